"""What a look at data leaves open, chosen by searches: do numbers go together; what counts are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from pm_match.find_matching import find_matching
from pm_match.models.mixture import why_not_correlated
from pm_match.networks.counts import log_degrees, log_sizes, sample_objects
from pm_match.networks.data import edges_alone
from pm_match.progress import searching_for

# `PreparedData`, whose module imports this one.
_Prepared = Any

# With either of two models of numbers that searches choose from.
_SEARCHES = 2
# Of a network, that searches look at to choose a family.
_MOST_CELLS = 2000
# What negative binomial counts may have; and Poisson's.
_DISPERSIONS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, np.inf)
_FIRST = _DISPERSIONS.index(1.0)
# Log joints that differ by less are taken for the same: those of different kinds are comparable in
# the main.
_SAME = 10.0
# That searches for a family allow, if nobody says how many: counts that a family describes badly
# make as many clusters as there may be.
_CLUSTERS = 12


def settle(
    prepared: _Prepared, random_seed: Any, progressbar: bool, where: Mapping[str, Any]
) -> _Prepared:
    """Choose what is open; see `PreparedData.settled`."""

    def search(of: _Prepared, what: str, starts: int, **options: Any) -> xr.DataTree:
        """Search with options; nothing is told of it but which is better."""
        with warnings.catch_warnings(), searching_for(what):
            warnings.simplefilter("ignore")
            found = find_matching(
                of.declare(**options),
                starts=starts,
                random_seed=random_seed,
                progressbar=progressbar,
                **where,
            )
        if len(found["starts"]["log_joint"]) < starts:
            raise KeyboardInterrupt  # which `find_matching` answers with what it has
        return found

    if prepared.open_family:
        return _family(prepared, search)
    if prepared.model != "mixture" or not {"correlated", "power"}.isdisjoint(prepared.options):
        return prepared
    why_not = why_not_correlated(prepared.data, prepared.uses(), prepared.options.get("shared"))
    if why_not is None:
        return _correlated(prepared, search)
    if not why_not:
        return prepared
    said = f"Numbers are independent within clusters, as {why_not} (correlated=False)."
    return _with(prepared, False, said)


def _with(prepared: _Prepared, correlated: bool, said: str) -> _Prepared:
    options = {**prepared.options, "correlated": correlated}
    return replace(prepared, options=options, notes=[*prepared.notes, said])


def _correlated(prepared: _Prepared, search: Callable[..., xr.DataTree]) -> _Prepared:
    """Choose whether numbers of one cluster go together."""
    apart, together = (
        float(search(prepared, what, _SEARCHES, correlated=own)["starts"]["log_joint"].max())
        for own, what in ((False, "independent numbers"), (True, "correlated numbers"))
    )
    better = together > apart
    said = (
        f"Numbers {'have one covariance' if better else 'are independent'} within clusters: "
        f"the log joint of a search is {abs(together - apart):,.1f} higher so "
        f"(correlated={better})."
    )
    return _with(prepared, better, said)


def _family(prepared: _Prepared, search: Callable[..., xr.DataTree]) -> _Prepared:
    """Choose the family of counts: that of the highest log joint, as one of all counts.

    Searches see one network alone, that with the most counts above 1: families differ in how they
    describe it, and to find what it has in common with others takes most of the time.
    """
    types, symmetric = list(prepared.options["types"]), bool(prepared.options.get("symmetric"))
    one_mode = len(types) == 1
    name, largest = max(prepared.data.items(), key=lambda own: np.sum(own[1].values > 1.0))
    network = sample_objects(largest, _MOST_CELLS, one_mode, np.random.default_rng(0))
    nothing: dict[str, Any] = {"links": [], "cannot_link": [], "clusters": {}, "classes": {}}
    looked = replace(prepared, data={name: network}, class_names=[], **nothing)
    room = {"n_clusters": _CLUSTERS} if "n_clusters" not in prepared.options else {}
    # By what is said of them, log joints.
    found: dict[str, float] = {}

    def evaluate(at: int, by_degrees: bool) -> float:
        """Give the log joint with a dispersion, with or without degrees as exposures."""
        options = _options(at, by_degrees)
        said = _said(options)
        if said in found:
            return found[said]
        data = search(looked, said, 1, **room, **options)
        found[said] = float(data["starts"]["log_joint"].max())
        if by_degrees:
            clusters = [_clusters(data, f"{name}_{t}") for t in types * (1 + one_mode)]
            found[said] += log_degrees(network, clusters, symmetric, _DISPERSIONS[at])
        return found[said]

    def climb(best: int, by_degrees: bool) -> int:
        """Give the dispersion, from one to begin with, next to which log joints are lower."""
        for step in (1, -1):
            while 0 <= best + step < len(_DISPERSIONS) and (
                evaluate(best + step, by_degrees) > evaluate(best, by_degrees)
            ):
                best += step
        return best

    alone = {"family": "edges"}
    edges = replace(looked, data={name: edges_alone(network)})
    data = search(edges, _said(alone), 1, **room, family="bernoulli")
    sizes = log_sizes(network.values[network.values > 0])
    found[_said(alone)] = float(data["starts"]["log_joint"].max()) + sizes
    poisson = len(_DISPERSIONS) - 1
    evaluate(poisson, False)
    best = climb(_FIRST, False)
    # Of those that are about as good, the first is taken.
    candidates = [_options(poisson, False), alone, _options(best, False)]
    candidates.append(_options(climb(best, True), True))
    highest = max(found[_said(own)] for own in candidates)
    first = next(own for own in candidates if found[_said(own)] >= highest - _SAME)
    others = [own for own in candidates if own != first]
    second = max(others, key=lambda own: found[_said(own)])
    compared = []
    for own in [second, *(own for own in candidates[:1] if own not in (first, second))]:
        more = found[_said(first)] - found[_said(own)]
        higher = "higher" if more > 0 else "lower (much the same)"
        compared.append(f"{abs(more):,.1f} {higher} than with {_said(own)}")
    said = (
        f"Counts are taken with {_said(first)}: the log joint of a search is "
        f"{' and '.join(compared)}"
    )
    cells = f"{len(network.index):,} of {prepared.titles[name]}'s"
    said += "" if network is largest else f" (on {cells} cells, between objects sampled by degree)"
    options, used = {**prepared.options, **first}, prepared.data
    if first["family"] == "edges":
        said += ". How large they are says nothing of clusters"
        options["family"] = "bernoulli"
        used = {name: edges_alone(own) for name, own in used.items()}
    notes = [*prepared.notes, f"{said}."]
    return replace(prepared, data=used, options=options, notes=notes, open_family=False)


def _options(at: int, by_degrees: bool) -> dict[str, Any]:
    """Give the model's options for one of the dispersions."""
    options: dict[str, Any] = {"family": "poisson"}
    if not np.isinf(_DISPERSIONS[at]):
        options = {"family": "negative-binomial", "dispersion": _DISPERSIONS[at]}
    return options | ({"exposure": "degree"} if by_degrees else {})


def _said(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def _clusters(found: xr.DataTree, name: str) -> np.ndarray:
    """Give the clusters of all objects, -1 of those that are irrelevant."""
    drawn = found["posterior"].to_dataset().isel(chain=0, draw=0)
    clusters = drawn[f"cluster_{name}"].values.astype(np.int64)
    if f"relevance_{name}" not in drawn:
        return clusters
    return np.where(drawn[f"relevance_{name}"].values > 0, clusters, -1)
