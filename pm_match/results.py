"""What comes out: draws that say what they are, judged on what relabelling leaves alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from pymc.model.core import Model, modelcontext
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    warn_divergences,
    warn_treedepth,
)

from pm_match.checks import warn
from pm_match.matching.advice import FEW_DRAWS, FULL
from pm_match.matching.diagnose import diagnose
from pm_match.matching.draws import (
    EACH,
    FLAGS,
    JOINT,
    NUMBERS,
    ROWS_OF,
    SAMPLE_DIMS,
    SET,
    bare,
    draws_as_they_are,
    needs_tree,
)
from pm_match.matching.landmarks import GROUP
from pm_match.reading import read
from pm_match.reading.belonging import belonging
from pm_match.reading.parts import Assignment, Clustering, Structure

# Sampler statistics that say how a chain does.
_TOLD = ("log_joint", "n_occupied", "log_likelihood", "spread")


def annotate(idata: xr.DataTree, model: Model, used: Sequence[Any]) -> None:
    """Say in a DataTree's attributes what a model's variables are, and how they were found.

    Labels and flags are stored in small types (see `stored_types`). Labels that are all observed
    are in every draw what they are.
    """
    structure = read(model)
    by_map = any(getattr(step, "maximises", False) for step in used)
    posterior = idata["posterior"]
    assert isinstance(posterior, xr.DataTree)
    posterior.attrs["projections"] = "map" if by_map else "drawn"
    types = stored_types(structure)
    unordered = {name for part in structure.parts for name in part.unordered}
    for clustering in structure.all_clusterings:
        for assignment in clustering.assignments:
            if not assignment.drawn and GROUP not in idata.children:
                own = types[assignment.name]
                posterior[assignment.name] = _constant(idata, assignment, own)
            for name in (assignment.name, *assignment.variables):
                if name in posterior:
                    posterior[name] = posterior[name].astype(types[name], copy=False)
            if assignment.relevance and assignment.name in posterior:
                posterior[assignment.name].attrs[FLAGS] = assignment.relevance
            for part in assignment.parts:
                if part.name in posterior:
                    posterior[part.name].attrs[JOINT] = clustering.title
    for title, names in structure.sets.items():
        for name in names:
            if name in posterior and name not in unordered:
                # Labels of different sets, documents' and words', are not to be compared.
                posterior[name].attrs[SET] = title
    for evidence in structure.evidence:
        evidence.annotate(posterior)
        (component,) = (own for own in structure.components if evidence in own.evidence)
        for name, axes in evidence.of_clusters.items():
            if name not in posterior:
                continue
            attrs, of_part = posterior[name].attrs, evidence.of_parts.get(name)
            if not axes:
                attrs[ROWS_OF] = of_part or component.clusterings[evidence.clusterings[0]].title
            for axis, number in axes.items():
                # Sample dims come first.
                dim = posterior[name].dims[2 + axis]
                attrs[f"{ROWS_OF}_{dim}"] = of_part or component.clusterings[number].title
    _tell_clusters(posterior, model, structure)


def _tell_clusters(posterior: xr.DataTree, model: Model, structure: Structure) -> None:
    """Say what else is of clusters, and what is of none along a dim that may be theirs."""
    labels = stored_types(structure)
    # The dims that may be of clusters, by how many entries they have.
    sets: dict[tuple[str, str], set[str]] = {}
    for name, variable in posterior.data_vars.items():
        told = any(key.startswith(ROWS_OF) for key in variable.attrs)
        ours = name in model.named_vars and name not in labels and not told
        for dim in map(str, variable.dims[2:] if ours else ()):
            titles = {
                clustering.title
                for clustering in structure.all_clusterings
                if variable.sizes[dim] in _numbers_of_labels(clustering)
            }
            unnamed = bare(dim).startswith(f"{bare(name)}_dim_")
            # Clusters are called by their weights, whose dim is known.
            if name not in titles and (unnamed or titles):
                sets[str(name), dim] = titles
    free = {rv.name for rv in model.free_RVs}
    # What is computed may be of clusters whatever its shape is.
    computed = {rv.name for rv in model.deterministics} & {*posterior.data_vars}
    for component in structure.components:
        for number, clustering in enumerate(component.clusterings):
            of = [own for own in component.evidence if number in own.clusterings]
            each = [names for own in of for names in own.each_cluster]
            unclear = any(clustering.title in titles for titles in sets.values())
            joint = any(own.parts or own.name not in free for own in clustering.assignments)
            if joint or not (each or unclear or computed):
                continue
            axes = {
                (name, axis)
                for own in of
                for name, those in own.of_clusters.items()
                for axis, one in those.items()
                if one == number
            }
            found = belonging(model, clustering, axes, each)
            for (name, axis), theirs in found.axes.items():
                if name not in posterior:
                    continue
                dim = str(posterior[name].dims[2 + axis])
                sets.get((name, dim), set()).discard(clustering.title)
                if theirs:
                    sets.pop((name, dim), None)
                    posterior[name].attrs[f"{ROWS_OF}_{dim}"] = clustering.title
            for name in found.numbers:
                if name in posterior:
                    posterior[name].attrs[NUMBERS] = clustering.title
            for names in found.each:
                for name in names:
                    if name not in posterior:
                        continue
                    attrs = posterior[name].attrs
                    before = map(str, np.atleast_1d(attrs.get(ROWS_OF, [])))
                    several = [*dict.fromkeys([*before, clustering.title])]
                    attrs[ROWS_OF] = several if len(several) > 1 else clustering.title
                    if len(names) > 1:
                        attrs[EACH] = list(names)
    for (name, dim), titles in sets.items():
        if not titles and ROWS_OF not in posterior[name].attrs:
            posterior[name].attrs[f"{ROWS_OF}_{dim}"] = ""


def _numbers_of_labels(clustering: Clustering) -> set[int]:
    """Return how many labels there are, and how many of each part of joint ones."""
    parts = (part.n_labels for own in clustering.assignments for part in own.parts)
    return {clustering.truncation, *parts}


def stored_types(structure: Structure) -> dict[str, np.dtype]:
    """Name the types in which draws of labels and flags are kept: 16 bits and 8, not the usual 64.

    With more than 32,768 clusters, labels have 32 bits.
    """
    types: dict[str, np.dtype] = {}
    for clustering in structure.all_clusterings:
        label: np.dtype = np.dtype(np.int16 if clustering.truncation <= 2**15 else np.int32)
        for assignment in clustering.assignments:
            types |= dict.fromkeys((assignment.name, *assignment.variables), label)
            if assignment.relevance:
                types[assignment.relevance] = np.dtype(np.int8)
    return types


def _constant(idata: xr.DataTree, assignment: Assignment, dtype: np.dtype) -> xr.DataArray:
    """Return observed labels as draws that are all the same."""
    observed = idata["observed_data"].to_dataset()[assignment.name]
    labels = np.asarray(assignment.known, dtype)
    draws = {dim: idata["posterior"][dim].to_numpy() for dim in SAMPLE_DIMS}
    return observed.copy(data=labels).expand_dims(draws).copy()


def invariants(idata: xr.DataTree, model: Model | None = None) -> xr.Dataset:
    """Collect what a chain's convergence can be judged on: quantities that no relabelling changes.

    Parameters
    ----------
    idata : DataTree
        From `sample`.
    model : pymc.Model, optional
        Default: the model of the context.

    Returns
    -------
    Dataset
        The collapsed log joint, the number of occupied clusters, precisions, and all free variables
        that our steps do not draw.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.sample(20, tune=20, chains=2, cores=1, model=model, random_seed=1, quiet=True)
    >>> sorted(pmm.invariants(idata, model))
    ['log_joint', 'n_occupied', 'precision']
    """
    model = modelcontext(model)
    needs_tree(idata)
    posterior, stats = (draws_as_they_are(idata, group) for group in ("posterior", "sample_stats"))
    structure = read(model)
    # Sets are called by their weights, where these are one vector.
    bound = {*structure.sets, *(name for c in structure.clusterings for name in c.names)}
    # What no relabelling changes may stay: numbers, but not what there is one of for each cluster.
    bound -= {name for c in structure.clusterings for name in c.probabilities if name}
    bound |= {name for own in structure.evidence for name in own.relabelled}
    bound |= {name for part in structure.parts for name in part.relabelled}
    # Nor does what goes with labels without being chosen by them, as logits of their weights.
    dims = {
        key.removeprefix(f"{ROWS_OF}_")
        for variable in posterior.data_vars.values()
        for key, title in variable.attrs.items()
        if key.startswith(f"{ROWS_OF}_") and title
    }
    bound |= {
        str(name)
        for name, own in posterior.data_vars.items()
        if any(own.attrs.get(f"{ROWS_OF}_{dim}") != "" for dim in dims & {*own.dims})
    }
    chosen = {name: stats[name] for name in _TOLD if name in stats}
    for rv in model.free_RVs:
        if rv.name in posterior and rv.name not in bound:
            chosen[rv.name] = posterior[rv.name]
    return xr.Dataset(chosen)


def convergence_warnings(idata: xr.DataTree, model: Model) -> list[SamplerWarning]:
    """Judge convergence as `diagnose` does, and on `invariants`; what it says, as PyMC's warnings.

    That the truncation is full is warned of elsewhere.
    """
    found = [*warn_divergences(idata), *warn_treedepth(idata)]
    also = [str(name) for name in invariants(idata, model) if name in idata["posterior"]]
    diagnosis = diagnose(idata, also=also)
    sizes = idata["posterior"].sizes
    level = "info" if sizes["draw"] < FEW_DRAWS or sizes["chain"] == 1 else "warn"
    return found + [
        SamplerWarning(WarningType.CONVERGENCE, message, level) for message in diagnosis.convergence
    ]


def warn_if_full(idata: xr.DataTree, model: Model) -> None:
    """Warn if many draws use every cluster that a truncated stick-breaking has."""
    if "filled" not in idata["sample_stats"]:
        return
    filled = idata["sample_stats"]["filled"]
    full = filled >= 1.0
    # With several components, the statistic has one entry for each.
    full = full.any([dim for dim in full.dims if dim not in SAMPLE_DIMS])
    truncated = [c for c in read(model).all_clusterings if not c.finite]
    if float(full.mean()) >= FULL and truncated:
        one = truncated[0] if len(truncated) == 1 else None
        which = (
            f"all {one.truncation} clusters of {one.weights!r} are"
            if one
            else f"all clusters of one of {', '.join(repr(c.weights) for c in truncated)} are"
        )
        warn(
            f"the draws fill the truncation: {which} occupied in {int(full.sum())} of "
            f"{full.size} draws. Declare more clusters; if they fill too, the model may be too "
            "simple for these data."
        )
