"""Networks on their own: the clusters that connected networks show without any others."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from pymc.model.core import Model
from scipy.sparse import coo_array

from pm_match.clusters.collapsed import Collapsed
from pm_match.networks.parts import Relation
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component
from pm_match.search.coarse import settled

# Labels that a run may start with, and its sweeps.
_N_LABELS = (2, 3, 5)
_SWEEPS = 50


class ConnectedPart(NamedTuple):
    """Assignments that networks connect, and nothing but clusters' names connects to others."""

    # list of (A_c,): for every clustering of the component, the numbers of its assignments in the
    # part
    assignments: list[NDArray[np.int64]]
    networks: list[list[str]]  # for every relation, the names of its networks in the part


def parts_of(component: Component) -> list[ConnectedPart]:
    """Find the parts of a component: one for every network, if no two share objects."""
    clusterings = component.clusterings
    offset = np.cumsum([0, *(len(c.assignments) for c in clusterings)])
    # The assignments on the axes of every network, numbered over all clusterings.
    owner = {
        name: [
            int(offset[c] + np.searchsorted(clusterings[c].ends, first, "right"))
            for c, first in zip(relation.axes, network.first, strict=True)
        ]
        for relation in component.of(Relation)
        for name, network in relation.networks.items()
    }
    ends = [(own[0], other) for own in owner.values() for other in own]
    pairs = np.array(ends, np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(offset[-1], offset[-1]))
    n_parts, part = scipy.sparse.csgraph.connected_components(graph, directed=False)
    return [
        ConnectedPart(
            [np.flatnonzero(part[offset[c] : offset[c + 1]] == p) for c in range(len(clusterings))],
            [
                [name for name in relation.networks if part[owner[name][0]] == p]
                for relation in component.of(Relation)
            ],
        )
        for p in range(n_parts)
    ]


def objects_of(component: Component, part: ConnectedPart) -> list[NDArray[np.int64]]:
    """Find the objects of a part in every clustering."""
    found = []
    for clustering, chosen in zip(component.clusterings, part.assignments, strict=True):
        sizes = [a.n_objects for a in clustering.assignments]
        found.append(np.flatnonzero(np.isin(np.repeat(np.arange(len(sizes)), sizes), chosen)))
    return found


def _as_component(
    component: Component, part: ConnectedPart, objects: list[NDArray[np.int64]], used: list[int]
) -> Component:
    """Return a part as a component of its own, all of whose objects are relevant.

    That of an infinite relational model, if the part is one network. It has the clusterings `used`.
    """
    clusterings = []
    for c in used:
        clustering, own = component.clusterings[c], objects[c]
        inside = np.full(clustering.n_objects, -1)
        inside[own] = np.arange(len(own))
        links, apart = (inside[p].reshape(-1, 2) for p in (clustering.links, clustering.apart))
        assignments = [clustering.assignments[number] for number in part.assignments[c]]
        clusterings.append(
            replace(
                clustering,
                assignments=tuple(replace(a, relevance=None, group=-1) for a in assignments),
                probabilities=(),
                links=links[(links >= 0).all(axis=1)],
                apart=apart[(apart >= 0).all(axis=1)],
                known=clustering.known[own],
            )
        )
    relations = []
    for relation, names in zip(component.of(Relation), part.networks, strict=True):
        networks = {}
        for name in names:
            network = relation.networks[name]
            first = tuple(
                int(np.searchsorted(objects[c], start))
                for c, start in zip(relation.axes, network.first, strict=True)
            )
            networks[name] = replace(network, first=first)
        if names:
            axes = tuple(used.index(c) for c in relation.axes)
            relations.append(replace(relation, axes=axes, networks=networks))
    return Component(tuple(clusterings), tuple(relations), ())


def clusters_alone(
    model: Model,
    component: Component,
    part: ConnectedPart,
    point: Point,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Cluster the objects of a part on its own, in a short run.

    It starts with one of few numbers of clusters, from which sweeps find more where there are
    more. Searches that start unlike each other end in the best mode more often
    than those that all start well.

    Return a list of (N_c,): for every clustering, the labels of the part's objects
    (see `objects_of`).
    """
    objects = objects_of(component, part)
    used = [c for c, chosen in enumerate(part.assignments) if len(chosen)]
    state = Collapsed(model, _as_component(component, part, objects, used))
    most = int(rng.choice(_N_LABELS))
    starts = [
        c.respected(rng.integers(min(most, c.truncation), size=len(linked.size))[linked.of_object])
        for c, linked in zip(state.component.clusterings, state.units, strict=True)
    ]
    state.load(point, starts)
    settled(state, rng, _SWEEPS)
    whole = [np.zeros(len(own), np.int64) for own in objects]
    for c, own in zip(used, state.found(), strict=True):
        whole[c] = own
    return whole
