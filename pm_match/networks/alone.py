"""Networks on their own: the clusters that connected networks show without any others."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.sparse import coo_array

from pm_match.clusters.climb import climb
from pm_match.clusters.evidence import Board
from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import log_joint, new_partition, place, sweep
from pm_match.clusters.units import Units, units
from pm_match.networks.block_evidence import BlockEvidence
from pm_match.networks.parts import Relation
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component

Priors = list[tuple[NDArray[np.float64], NDArray[np.float64]]]


class ConnectedPart(NamedTuple):
    """Assignments that networks connect, and nothing but clusters' names connects to others.

    Attributes
    ----------
    assignments : list of (A_c,) integer array
        For every clustering of the component, the numbers of its assignments in the part.
    networks : list of list of str
        For every relation, the names of its networks in the part.
    """

    assignments: list[NDArray[np.int64]]
    networks: list[list[str]]


def parts_of(component: Component) -> list[ConnectedPart]:
    """Find the parts of a component: one for every network, if no two share objects."""
    clusterings = component.clusterings
    offset = np.cumsum([0, *(len(c.assignments) for c in clusterings)])
    owner = _owners(component)
    ends = [
        (own[0], other)
        for relation in component.of(Relation)
        for name in relation.networks
        for own in [owner[name]]
        for other in own
    ]
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


def _owners(component: Component) -> dict[str, list[int]]:
    """Find the assignments on the axes of every network, numbered over all clusterings."""
    offset = np.cumsum([0, *(len(c.assignments) for c in component.clusterings)])
    found: dict[str, list[int]] = {}
    for relation in component.of(Relation):
        for name, network in relation.networks.items():
            found[name] = [
                int(offset[c] + np.searchsorted(component.clusterings[c].ends, first, "right"))
                for c, first in zip(relation.axes, network.first, strict=True)
            ]
    return found


def objects_of(component: Component, part: ConnectedPart) -> list[NDArray[np.int64]]:
    """Find the objects of a part in every clustering."""
    found = []
    for clustering, chosen in zip(component.clusterings, part.assignments, strict=True):
        sizes = [a.n_objects for a in clustering.assignments]
        found.append(np.flatnonzero(np.isin(np.repeat(np.arange(len(sizes)), sizes), chosen)))
    return found


class Alone:
    """The collapsed state of one part, all of whose objects are relevant.

    That of an infinite relational model, if the part is one network.

    Parameters
    ----------
    component : Component
    part : ConnectedPart
    point : mapping
        Where the priors are taken from.

    Attributes
    ----------
    units : list of Units
        One for every clustering: of the part's objects alone.
    """

    def __init__(self, component: Component, part: ConnectedPart, point: Point):
        clusterings = component.clusterings
        self.objects = objects_of(component, part)
        self.units: list[Units] = []
        for clustering, own in zip(clusterings, self.objects, strict=True):
            inside = np.full(clustering.n_objects, -1)
            inside[own] = np.arange(len(own))
            links = inside[clustering.links].reshape(-1, 2)
            self.units.append(units(len(own), links[(links >= 0).all(axis=1)]))
        self.board = Board(self.units, [c.truncation for c in clusterings])
        self.partitions = [
            new_partition(
                own.size,
                clustering.truncation,
                slot=self.board.slots_of(number),
                n_slots=self.board.n_slots[number : number + 1],
            )
            for number, (clustering, own) in enumerate(zip(clusterings, self.units, strict=True))
        ]
        self.priors: Priors = [c.prior(point) for c in clusterings]
        self.relations: list[BlockEvidence] = []
        for relation, names in zip(component.of(Relation), part.networks, strict=True):
            if not names:
                continue
            networks = []
            for name in names:
                network = relation.networks[name]
                first = tuple(
                    int(np.searchsorted(self.objects[c], start))
                    for c, start in zip(relation.axes, network.first, strict=True)
                )
                networks.append(replace(network, first=first))
            evidence = relation.on(self.board, networks=networks)
            evidence.set_prior(relation.prior(point)[0], None)
            self.relations.append(evidence)
        self.terms = [
            collect([term for r in self.relations for home, term in r.terms if home == number])
            for number in range(len(clusterings))
        ]

    def start(self, rng: np.random.Generator, n_labels: int) -> None:
        """Place every unit in one of the first `n_labels` clusters, at random."""
        for partition in self.partitions:
            n = min(n_labels, len(partition.counts))
            place(partition, rng.integers(n, size=len(partition.label)))
        for evidence in self.relations:
            evidence.load()

    def run(self, rng: np.random.Generator, n_sweeps: int) -> float:
        """Sweep, then climb; return the log joint."""
        for _ in range(n_sweeps):
            for partition, terms, prior in self._all():
                if len(terms):
                    sweep(rng, *prior, partition, terms)
        for partition, terms, prior in self._all():
            if len(terms):
                climb(*prior, partition, terms, 0.0)
        return sum(log_joint(*prior, p, terms) for p, terms, prior in self._all() if len(terms))

    def _all(self):
        return zip(self.partitions, self.terms, self.priors, strict=True)

    def labels(self) -> list[NDArray[np.int64]]:
        """Labels of the part's objects, for every clustering."""
        return [
            partition.label[own.of_object]
            for partition, own in zip(self.partitions, self.units, strict=True)
        ]


def clusters_alone(
    component: Component,
    part: ConnectedPart,
    point: Point,
    rng: np.random.Generator,
    *,
    n_runs: int = 1,
    n_sweeps: int = 50,
    n_labels: tuple[int, ...] = (2, 3, 5),
) -> list[NDArray[np.int64]]:
    """Cluster the objects of a part on its own: the best of a few short runs by log joint.

    Each run starts with one of the numbers of clusters `n_labels`: few, from which sweeps find more
    where there are more. Searches that start unlike each other end in the best mode more often
    than those that all start well.

    Returns
    -------
    list of (N_c,) array
        For every clustering, the labels of the part's objects (see `objects_of`).
    """
    state = Alone(component, part, point)
    best, labels = -np.inf, state.labels()
    for _ in range(n_runs):
        state.start(rng, int(rng.choice(n_labels)))
        found = state.run(rng, n_sweeps)
        if found > best:
            best, labels = found, state.labels()
    return labels
