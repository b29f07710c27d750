"""Pairs that are known: declared constraints that objects share a cluster, or that they do not."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.core import Model, modelcontext
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant, Variable

from pm_match.checks import no_such
from pm_match.reading.probe import n_entries


class _Pairs(OpFromGraph):
    """Log probability of a constraint on pairs: 0 where it holds, -inf elsewhere.

    Inputs are the assignments, then as many index vectors. An op of its own, so that the pairs can
    be read back from the graph of any copy of the model.
    """


class MustLink(_Pairs):
    """Each k-th entry shares a cluster."""


class CannotLink(_Pairs):
    """No two of the k-th entries share a cluster."""


def must_link(name: str, linked: Mapping[Any, Any]) -> pt.TensorVariable:
    """Declare that objects of two or more assignments, or of one, share their clusters.

    The k-th entries of all the index vectors are in the same cluster; of one assignment alone, the
    objects of every group. Links that overlap, here or
    in another `must_link`, merge: what they connect shares one cluster. The declared log
    probability is -inf off the constraint, and `ClusterGibbs` moves connected objects jointly.

    Parameters
    ----------
    name : str
        Name of the constraint in the model.
    linked : mapping
        From assignments (variables, their names or their domains') to vectors of object positions,
        all of one length. Or from one assignment to a sequence of groups, vectors of positions of
        any lengths: clusters that are known already, and are kept whole.

    Returns
    -------
    TensorVariable
        The `pm.Potential` that was added to the model.

    Raises
    ------
    ValueError
        If there are fewer than two assignments, no entry, lengths that differ, or positions that
        are not in the domain.
    TypeError
        If the positions are not whole numbers.
    KeyError
        If there is no such assignment.

    See Also
    --------
    cannot_link

    Examples
    --------
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
    ...     cluster_a = pm.Categorical("cluster_a", weights, shape=8)
    ...     cluster_b = pm.Categorical("cluster_b", weights, shape=6)
    ...     # Object 3 of a belongs with object 5 of b, and object 7 with object 0.
    ...     links = pmm.must_link("links", {cluster_a: [3, 7], cluster_b: [5, 0]})
    ...     # Objects 0, 1 and 4 of a belong together, and so do 2 and 6.
    ...     known = pmm.must_link("known", {cluster_a: [[0, 1, 4], [2, 6]]})
    ...
    """
    return _declare(MustLink, "must_link", name, linked)


def cannot_link(name: str, apart: Mapping[Any, Any]) -> pt.TensorVariable:
    """Declare that objects of two or more assignments, or of one, do not share their clusters.

    No two of the k-th entries of all the index vectors are in the same cluster; of one assignment
    alone, no two objects of a group. The declared log probability is -inf off the constraint, and
    no step of `pm_match.sample` leaves it. Steps stay exact; what they propose that the constraint
    forbids is rejected, so that it costs draws where clusters of one domain can hardly change
    places. PyMC's default start has everything in one cluster, which is forbidden: start by
    `pm_match.sample`, or give `initvals`. Declare at least two clusters more than any object is
    kept apart from: with fewer, a chain may not get from every assignment to every other.

    Parameters
    ----------
    name : str
        Name of the constraint in the model.
    apart : mapping
        From assignments (variables, their names or their domains') to vectors of object positions,
        all of one length. Or from one assignment to a sequence of groups, vectors of positions of
        any lengths.

    Returns
    -------
    TensorVariable
        The `pm.Potential` that was added to the model.

    Raises
    ------
    ValueError, TypeError, KeyError
        As `must_link`.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
    ...     cluster_a = pm.Categorical("cluster_a", weights, shape=8)
    ...     cluster_b = pm.Categorical("cluster_b", weights, shape=6)
    ...     # Object 3 of a is not like object 5 of b, nor object 7 like object 0.
    ...     apart = pmm.cannot_link("apart", {cluster_a: [3, 7], cluster_b: [5, 0]})
    ...     # Objects 0, 1 and 4 of a are of three clusters.
    ...     different = pmm.cannot_link("different", {cluster_a: [[0, 1, 4]]})
    ...
    """
    return _declare(CannotLink, "cannot_link", name, apart)


def _declare(kind: type[_Pairs], what: str, name: str, given: Any) -> pt.TensorVariable:
    """Check a constraint on pairs, and add it to the model as a potential."""
    model, where = modelcontext(None), f"{what} {name!r}"
    entries = list(given.items()) if isinstance(given, Mapping) else []
    if len(entries) == 1 and all(np.ndim(group) == 1 for group in entries[0][1]):
        ((key, groups),) = entries
        if kind is MustLink:  # each object, with the first one of its group
            pairs = [(group[0], other) for group in groups for other in group[1:]]
        else:
            pairs = [pair for group in groups for pair in combinations(group, 2)]
        entries = [(key, list(side)) for side in zip(*pairs, strict=True)] or [(key, [])] * 2
    if len(entries) < 2:
        raise ValueError(
            f"{where}: expected a mapping of at least two assignments to positions, or "
            "of one to groups of positions; found "
            f"{given if not isinstance(given, Mapping) else list(given)!r}"
        )
    assignments = [_named(model, where, key) if isinstance(key, str) else key for key, _ in entries]
    # PyMC makes a Deterministic of labels that are observed in part.
    parts = [v for v in model.deterministics if f"{v.name}_unobserved" in model.named_vars]
    whole = [*model.basic_RVs, *parts]
    strangers = [variable for variable in assignments if variable not in whole]
    if strangers:
        raise TypeError(
            f"{where}: expected whole assignments, variables of the model; found {strangers[0]}"
        )
    positions = [
        _positions(where, variable, index)
        for variable, (_, index) in zip(assignments, entries, strict=True)
    ]
    lengths = {variable.name: len(p) for variable, p in zip(assignments, positions, strict=True)}
    if len(set(lengths.values())) != 1:
        raise ValueError(
            f"{where}: expected as many positions of every assignment, the k-th of "
            f"which are linked; found {lengths}"
        )
    if 0 in lengths.values():
        raise ValueError(f"{where}: expected positions to link; found none")
    sides = zip(assignments, positions, strict=True)
    for (own, one), (other_own, other) in combinations(sides, 2) if kind is CannotLink else ():
        if own is other_own and (one == other).any():
            raise ValueError(
                f"{where}: expected different objects of {own.name!r} to be kept apart; found "
                f"{one[one == other][0]} twice"
            )
    return pm.Potential(name, _log_probability(kind, assignments, positions))


def _named(model: Model, where: str, name: str) -> Any:
    """Return an assignment by its name, or its domain's: "a" for "cluster_a"."""
    found = [model[full] for full in (name, f"cluster_{name}") if full in model]
    if found:
        # A domain's own variable is observed.
        return next((own for own in found if own not in model.observed_RVs), found[0])
    known = [rv.name for rv in model.free_RVs if rv.dtype.startswith("int")]
    raise KeyError(f"{where}: {no_such(f'assignment {name!r}', known, name)}")


def _positions(where: str, variable: Any, index: Any) -> np.ndarray:
    index = np.asarray(index)
    if index.dtype.kind not in "iu" and index.size:
        raise TypeError(
            f"{where}: expected whole numbers as positions in {variable.name!r}; found "
            f"dtype {index.dtype}"
        )
    if index.ndim != 1:
        raise ValueError(
            f"{where}: expected a vector of positions in {variable.name!r}; found "
            f"{index.ndim} dimensions"
        )
    n_objects = n_entries(variable)
    bad = index[(index < 0) | (index >= n_objects)]
    if len(bad):
        raise ValueError(
            f"{where}: expected positions from 0 to {n_objects - 1} in "
            f"{variable.name!r}; found {bad[0]}"
        )
    return index.astype(np.int64)


def _log_probability(
    kind: type[_Pairs], assignments: Sequence[Variable], positions: Sequence[np.ndarray]
):
    inner = [pt.vector(dtype=variable.type.dtype) for variable in assignments]
    at = [pt.lvector() for _ in positions]
    entries = [cluster[index] for cluster, index in zip(inner, at, strict=True)]
    if kind is MustLink:
        first, *others = entries
        holds = pt.all([pt.all(pt.eq(first, other)) for other in others])
    else:
        holds = pt.all([pt.all(pt.neq(one, other)) for one, other in combinations(entries, 2)])
    op = kind([*inner, *at], [pt.switch(holds, np.float64(0.0), -np.inf)], inline=True)
    return op(*assignments, *[pt.constant(index) for index in positions])


def read_pairs(
    potential: Variable,
) -> tuple[type[_Pairs], list[Variable], list[np.ndarray]] | None:
    """Read the pairs that a potential declares.

    Return `kind`, `assignments`, `positions`: None if the potential is anything but `must_link`'s
    or `cannot_link`'s.
    """
    node = potential.owner
    while node is not None and not isinstance(node.op, _Pairs) and len(node.inputs) == 1:
        node = node.inputs[0].owner
    if node is None or not isinstance(node.op, _Pairs):
        return None
    half = len(node.inputs) // 2
    if not all(isinstance(index, Constant) for index in node.inputs[half:]):
        return None
    return type(node.op), node.inputs[:half], [index.data for index in node.inputs[half:]]
