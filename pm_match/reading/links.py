"""Linked objects: a declared constraint that objects share a cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.core import modelcontext
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant, Variable


class MustLink(OpFromGraph):
    """Log probability of a set of links: 0 where each k-th entry shares a cluster, -inf elsewhere.

    Inputs are the assignments, then as many index vectors. An op of its own, so that the links can
    be read back from the graph of any copy of the model.
    """


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
        From assignments (variables or their names) to vectors of object positions, all of one
        length. Or from one assignment to a sequence of groups, vectors of positions of any lengths:
        clusters that are known already, and are kept whole.

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
    model = modelcontext(None)
    entries = list(linked.items()) if isinstance(linked, Mapping) else []
    if len(entries) == 1 and all(np.ndim(group) == 1 for group in entries[0][1]):
        ((key, groups),) = entries
        # Each object, with the first one of its group.
        pairs = [(group[0], other) for group in groups for other in group[1:]]
        entries = [(key, list(side)) for side in zip(*pairs, strict=True)] or [(key, [])] * 2
    if len(entries) < 2:
        raise ValueError(
            f"must_link {name!r}: expected a mapping of at least two assignments to positions, or "
            "of one to groups of positions; found "
            f"{linked if not isinstance(linked, Mapping) else list(linked)!r}"
        )
    assignments = [model[key] if isinstance(key, str) else key for key, _ in entries]
    # PyMC makes a Deterministic of labels that are observed in part.
    parts = [v for v in model.deterministics if f"{v.name}_unobserved" in model.named_vars]
    whole = [*model.basic_RVs, *parts]
    strangers = [variable for variable in assignments if variable not in whole]
    if strangers:
        raise TypeError(
            f"must_link {name!r}: expected whole assignments, variables of the model; found "
            f"{strangers[0]}"
        )
    positions = [
        _positions(name, variable, index)
        for variable, (_, index) in zip(assignments, entries, strict=True)
    ]
    lengths = {variable.name: len(p) for variable, p in zip(assignments, positions, strict=True)}
    if len(set(lengths.values())) != 1:
        raise ValueError(
            f"must_link {name!r}: expected as many positions of every assignment, the k-th of "
            f"which are linked; found {lengths}"
        )
    if 0 in lengths.values():
        raise ValueError(f"must_link {name!r}: expected positions to link; found none")
    return pm.Potential(name, _log_probability(assignments, positions))


def _positions(name: str, variable: Any, index: Any) -> np.ndarray:
    index = np.asarray(index)
    if index.dtype.kind not in "iu" and index.size:
        raise TypeError(
            f"must_link {name!r}: expected whole numbers as positions in {variable.name!r}; found "
            f"dtype {index.dtype}"
        )
    if index.ndim != 1:
        raise ValueError(
            f"must_link {name!r}: expected a vector of positions in {variable.name!r}; found "
            f"{index.ndim} dimensions"
        )
    n_objects = int(variable.shape[0].eval())
    bad = index[(index < 0) | (index >= n_objects)]
    if len(bad):
        raise ValueError(
            f"must_link {name!r}: expected positions from 0 to {n_objects - 1} in "
            f"{variable.name!r}; found {bad[0]}"
        )
    return index.astype(np.int64)


def _log_probability(assignments: Sequence[Variable], positions: Sequence[np.ndarray]):
    inner = [pt.vector(dtype=variable.type.dtype) for variable in assignments]
    at = [pt.lvector() for _ in positions]
    first, *others = [cluster[index] for cluster, index in zip(inner, at, strict=True)]
    together = pt.all([pt.all(pt.eq(first, other)) for other in others])
    op = MustLink([*inner, *at], [pt.switch(together, np.float64(0.0), -np.inf)], inline=True)
    return op(*assignments, *[pt.constant(index) for index in positions])


def read_links(potential: Variable) -> tuple[list[Variable], list[np.ndarray]] | None:
    """Read the links that a potential declares.

    Returns
    -------
    assignments, positions : lists, or None
        None if the potential is anything but `must_link`'s.
    """
    node = potential.owner
    while node is not None and not isinstance(node.op, MustLink) and len(node.inputs) == 1:
        node = node.inputs[0].owner
    if node is None or not isinstance(node.op, MustLink):
        return None
    half = len(node.inputs) // 2
    if not all(isinstance(index, Constant) for index in node.inputs[half:]):
        return None
    return node.inputs[:half], [index.data for index in node.inputs[half:]]
