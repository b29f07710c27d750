"""What is recorded of labels: all of them, or counts with landmarks in their place."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import is_count
from pm_match.matching.draws import PREFIX, SAMPLE_DIMS, SET, full_name
from pm_match.matching.landmarks import GROUP, OTHERS
from pm_match.reading.parts import Structure
from pm_match.running.checkpoint import seed_state
from pm_match.running.landmarks import Counts, Landmarks

# A generator of their own: those of chains are spawned from the seed, and have small numbers.
_SPAWNED = 2**32 - 1


def choose_landmarks(
    model: Model, structure: Structure, record: Any, random_seed: Any
) -> dict[str, list[int]] | None:
    """Choose the landmarks of every assignment; None if all labels are to be recorded.

    Raise `ValueError` if `record` is not as `sample` says, or the model has no clusters. Raise
    `KeyError` if there is no such domain.
    """
    assignments = [a for c in structure.all_clusterings for a in c.assignments]
    sizes = {a.name: a.n_objects for a in assignments}
    if not (isinstance(record, str) and record == "all"):
        for own in assignments:
            own.must_be_alone()
    if isinstance(record, Mapping):
        chosen: dict[str, list[int]] = {name: [] for name in sizes}
        for domain, objects in record.items():
            name = full_name(sizes, domain)
            names = _objects(model, name, sizes[name])[1].tolist()
            unknown = [own for own in objects if own not in names]
            if unknown:
                raise ValueError(f"record: expected objects of {name!r}; found {unknown[:5]}")
            chosen[name] = sorted({names.index(own) for own in objects})
        return chosen
    if isinstance(record, str) and record == "all":
        return None
    if not is_count(record) or not sizes:
        raise ValueError(
            'record: expected "all", or, in a model with clusters, a number of landmarks of every '
            f"domain, or their names by domain; found {record!r}"
        )
    seed = seed_state(random_seed)
    seed |= {"spawn_key": (*seed["spawn_key"], _SPAWNED), "n_children_spawned": 0}
    rng = np.random.default_rng(np.random.SeedSequence(**seed))
    return {
        name: sorted(rng.choice(n, min(n, record), replace=False).tolist())
        for name, n in sizes.items()
    }


def landmarks_of(
    structure: Structure, chosen: Mapping[str, Sequence[int]] | None
) -> list[Landmarks]:
    """Return landmarks by set of clusters."""
    if chosen is None:
        return []
    return [
        Landmarks(own, {a.name: np.array(chosen[a.name], np.int64) for a in own.assignments})
        for own in structure.all_clusterings
    ]


def _objects(model: Model, name: str, n: int) -> tuple[str, NDArray]:
    """Return the dim of an assignment's objects, and their names."""
    dim = str(model.named_vars_to_dims.get(name, [f"{name}_dim_0"])[0])
    names = model.coords.get(dim)
    return dim, np.arange(n) if names is None else np.asarray(names)


def add_counts(
    idata: xr.DataTree,
    model: Model,
    counted: Sequence[Sequence[Counts]],
    types: Mapping[str, np.dtype],
) -> None:
    """Write counts, by chain and by set of clusters, to a group of draws, and sizes to the others.

    Those of a chain that was cut when it was interrupted are of all its draws.
    """
    posterior = idata["posterior"]
    n = posterior.sizes["draw"]
    coords: dict[str, Any] = {dim: posterior[dim].to_numpy() for dim in SAMPLE_DIMS}
    sample = dict(coords)
    found: dict[str, Any] = {"n_draws": ("chain", [own[0].n_draws for own in counted])}
    for chains in zip(*counted, strict=True):
        own, chosen = chains[0].landmarks.clustering, chains[0].landmarks.chosen
        kept = {
            name: np.stack([getattr(chain, name)[:n] for chain in chains])
            for name in ("labels", "flags", "sizes")
        }
        together, unmatched = (
            np.stack([getattr(chain, name) for chain in chains])
            for name in ("together", "unmatched")
        )
        first = 0
        domains = {a.name.removeprefix(PREFIX): a for a in own.assignments}
        for number, (domain, assignment) in enumerate(domains.items()):
            dim, coords[dim] = _objects(model, assignment.name, assignment.n_objects)
            which, mark = chosen[assignment.name], f"{domain}_landmark"
            rows, first = slice(first, first + len(which)), first + len(which)
            name = f"size_{domain}"
            dims = (*SAMPLE_DIMS, f"{name}_dim_0")
            posterior[name] = xr.DataArray(kept["sizes"][:, :, number], sample, dims)
            if len(domains) > 1:
                alone = unmatched[:, own.slices[assignment.name]]
                others = [other for other in domains if other != domain]
                found[f"unmatched_{domain}"] = (("chain", dim), alone, {OTHERS: others})
            if not len(which):
                continue
            coords[mark] = coords[dim][which]
            found[assignment.name] = (
                (*SAMPLE_DIMS, mark),
                kept["labels"][..., rows].astype(types[assignment.name]),
                {SET: own.title},
            )
            if assignment.relevance:
                flags = kept["flags"][..., rows].astype(types[assignment.relevance])
                found[assignment.relevance] = ((*SAMPLE_DIMS, mark), flags)
            for other, theirs in domains.items():
                found[f"together_{other}_with_{domain}"] = (
                    ("chain", mark, _objects(model, theirs.name, theirs.n_objects)[0]),
                    together[:, rows, own.slices[theirs.name]],
                )
    idata[GROUP] = xr.DataTree(xr.Dataset(found, coords))
