"""A component with all that can be integrated out integrated out: what several steps share."""

from typing import Any

import numpy as np
from pymc.model.core import Model

from pm_match.evidence.block_evidence import BlockEvidence, Board
from pm_match.evidence.projected_normal import DomainData, ProjectedNormalEvidence
from pm_match.partition.exchange import Exchange
from pm_match.partition.relevance import new_relevance
from pm_match.partition.split_merge import new_scratch, split_or_merge
from pm_match.partition.sweep import (
    log_joint,
    new_partition,
    place,
    rename,
    sweep,
)
from pm_match.partition.units import Units, units
from pm_match.steps.points import ClusteringPoints, FeaturesPoints, RelationPoints
from pm_match.structure import Clustering, Component, UnservedModelError

# Restricted scans before a split or its reverse is proposed.
N_SCANS = 2


class Collapsed:
    """The collapsed state of a component: partitions and their evidence.

    Parameters
    ----------
    model : pymc.Model
    component : Component

    Attributes
    ----------
    units : list of Units
    partitions : list of Partition
        One for every clustering.
    features : list of ProjectedNormalEvidence or None
        One for every clustering.
    relations : list of BlockEvidence
    """

    def __init__(self, model: Model, component: Component):
        self.component = component
        clusterings = component.clusterings
        self.units = [units(c.n_objects, c.links) for c in clusterings]
        self.board = Board(self.units, [c.truncation for c in clusterings])
        groups = [_groups(c, u) for c, u in zip(clusterings, self.units, strict=True)]
        self.partitions = [
            new_partition(
                own.size,
                clustering.truncation,
                new_relevance(group),
                self.board.slots_of(number),
                self.board.n_slots[number : number + 1],
            )
            for number, (clustering, own, group) in enumerate(
                zip(clusterings, self.units, groups, strict=True)
            )
        ]
        self._members = [new_scratch(len(own.size)) for own in self.units]
        self._renamed = [np.zeros(c.truncation, np.int64) for c in clusterings]
        self.features = [
            _feature_evidence(*parts)
            for parts in zip(clusterings, component.features, self.units, strict=True)
        ]
        self.relations = [
            BlockEvidence(
                relation.family,
                list(relation.networks.values()),
                relation.axes,
                self.board,
                [group >= 0 for group in groups],
                one_mode=relation.one_mode,
                symmetric=relation.symmetric,
                self_loops=relation.self_loops,
            )
            for relation in component.relations
        ]
        self.terms = [self._terms(number) for number in range(len(clusterings))]
        self._exchanges = [
            Exchange(partition, terms, own, clustering.ends)
            for partition, terms, own, clustering in zip(
                self.partitions, self.terms, self.units, clusterings, strict=True
            )
        ]
        self._free = [
            (number, place)
            for number, exchange in enumerate(self._exchanges)
            for place in range(len(exchange.free))
        ]
        self.points = [ClusteringPoints(model, c) for c in clusterings]
        self.feature_points = [FeaturesPoints(model, f) if f else None for f in component.features]
        self._relation_points = [RelationPoints(model, r) for r in component.relations]
        self._priors: list = [None for _ in clusterings]

    @classmethod
    def of(cls, model: Model, component: Component) -> "Collapsed":
        """Return the state of a component that all its steps share: each loads it anew."""
        if "collapsed" not in component.workspace:
            component.workspace["collapsed"] = cls(model, component)
        return component.workspace["collapsed"]

    def _terms(self, number: int) -> tuple:
        evidence = self.features[number]
        terms: list[Any] = [] if evidence is None else [evidence.term]
        for relation in self.relations:
            terms += [term for home, term in relation.terms if home == number]
        return tuple(terms)

    @property
    def n_objects(self) -> int:
        """Objects of all clusterings."""
        return sum(c.n_objects for c in self.component.clusterings)

    # -- in ---------------------------------------------------------------------------------------

    def labels(self, point) -> list[np.ndarray]:
        """Read the labels of the objects of every clustering, -1 for irrelevant ones."""
        return [points.labels(point) for points in self.points]

    def load(self, point, labels, features: bool = True) -> None:
        """Bring the state to a point, with the given `labels` of every clustering's objects.

        The evidence of feature vectors may be left out, where nothing depends on it.

        Raises
        ------
        ValueError
            If a label is not a cluster's.
        UnservedModelError
            If objects that are linked are in different clusters.
        """
        for clustering, own, label in zip(
            self.component.clusterings, self.units, labels, strict=True
        ):
            _check_labels(clustering, own, label)
        for partition, own, label in zip(self.partitions, self.units, labels, strict=True):
            place(partition, label[own.first])
        self.load_priors(point)
        for number, evidence in enumerate(self.features):
            declared = self.component.features[number]
            if features and evidence is not None and declared is not None:
                hyper = declared.hyper(point)
                evidence.load(
                    self.projections(number, point),
                    self.partitions[number].slot.astype(np.int64),
                    hyper.shape,
                    hyper.rate,
                    hyper.latent_precision,
                )
        for relation in self.relations:
            relation.load()

    def projections(self, number: int, point) -> list[np.ndarray]:
        """Read the projection of every assignment, (0, K) for those without features."""
        features, points = self.component.features[number], self.feature_points[number]
        assert features is not None
        assert points is not None
        found = {
            domain.assignment: w
            for domain, w in zip(features.domains, points.projections(point), strict=True)
        }
        nothing = np.zeros((0, features.n_factors))
        return [
            found.get(assignment.name, nothing)
            for assignment in self.component.clusterings[number].assignments
        ]

    def load_priors(self, point) -> None:
        """Bring the priors of weights, flags and blocks to a point."""
        for number, clustering in enumerate(self.component.clusterings):
            self._priors[number] = clustering.prior(point)
            if clustering.probabilities:
                self.partitions[number].relevance.prior[:] = clustering.relevance_prior(point)
        for evidence, relation in zip(self.relations, self.component.relations, strict=True):
            evidence.set_prior(*relation.prior(point))

    # -- moves ------------------------------------------------------------------------------------

    def sweep(self, rng: np.random.Generator) -> int:
        """Sweep once over all units of all clusterings; return how many objects moved."""
        moved = 0
        for partition, terms, prior in zip(self.partitions, self.terms, self._priors, strict=True):
            moved += sweep(rng, *prior, partition, terms)
        return moved

    def rename(self, rng: np.random.Generator) -> tuple[int, int]:
        """Propose label swaps in all clusterings; return how many were accepted and proposed."""
        accepted, proposed = 0, 0
        for partition, prior, renamed in zip(
            self.partitions, self._priors, self._renamed, strict=True
        ):
            found = rename(rng, *prior, partition, renamed, len(renamed))
            accepted, proposed = accepted + found[0], proposed + found[1]
        return accepted, proposed

    def split_or_merge(self, rng: np.random.Generator, n: int) -> tuple[int, int]:
        """Propose `n` splits or merges in each clustering; return how many were accepted, and made.

        Nothing is proposed to clusterings with fewer than two relevant units.
        """
        accepted, proposed = 0, 0
        for partition, terms, prior, scratch in zip(
            self.partitions, self.terms, self._priors, self._members, strict=True
        ):
            found = split_or_merge(rng, *prior, partition, terms, scratch, n, N_SCANS)
            accepted, proposed = accepted + found[0], proposed + found[1]
        return accepted, proposed

    def exchange(self, rng: np.random.Generator, n: int) -> tuple[int, int]:
        """Propose exchanges of labels in `n` assignments; return how many were accepted, and made.

        The assignments are drawn uniformly from those that can exchange labels.
        """
        accepted, proposed = 0, 0
        for _ in range(n if self._free else 0):
            number, place = self._free[int(rng.integers(len(self._free)))]
            a, b = self._priors[number]
            found = self._exchanges[number].propose(rng, a, b, place)
            accepted, proposed = accepted + found[0], proposed + found[1]
        return accepted, proposed

    def log_joint(self) -> float:
        """Log p(data, assignments, relevance), all else integrated out."""
        total = 0.0
        for partition, terms, prior in zip(self.partitions, self.terms, self._priors, strict=True):
            total += log_joint(*prior, partition, terms)
        return total

    # -- out --------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, point, new, features: bool = True) -> None:
        """Draw all that was integrated out from its exact conditional, and write it to `new`.

        What belongs to feature vectors may be left as it is: given the assignments, it does not
        depend on the rest.
        """
        labels = [
            partition.label[own.of_object]
            for partition, own in zip(self.partitions, self.units, strict=True)
        ]
        for partition, points, label in zip(self.partitions, self.points, labels, strict=True):
            points.draw(rng, point, new, label, partition.counts, partition.relevance.counts)
        for number, evidence in enumerate(self.features):
            own = self.feature_points[number]
            if features and evidence is not None and own is not None:
                alpha, latent = evidence.draw(rng, self.partitions[number].slot_of)
                own.write_latent(new, alpha, latent)
                projections = own.projections(point)
                own.write_missing(rng, new, own.labels(new), projections, alpha, latent)
        for network, writer, relation in zip(
            self.relations, self._relation_points, self.component.relations, strict=True
        ):
            slot_of = [self.partitions[axis].slot_of for axis in relation.axes]
            writer.write_parameters(new, relation.density, network.draw(rng, slot_of))
            if relation.noise:
                writer.write_parameters(new, relation.noise, network.draw_noise(rng))


def _check_labels(clustering: Clustering, own: Units, labels) -> None:
    if labels.min() < -1 or labels.max() >= clustering.truncation:
        raise ValueError(
            f"labels of {', '.join(repr(a.name) for a in clustering.assignments)} must be in "
            f"0 ... {clustering.truncation - 1}, found {labels.min()} to {labels.max()}."
        )
    if own.linked and not np.array_equal(labels, labels[own.first[own.of_object]]):
        raise UnservedModelError(
            "the start contradicts must_link: objects that are linked start in different clusters."
        )


def _groups(clustering, own) -> np.ndarray:
    """Return the group of relevance flags of every unit, -1 for those that are relevant."""
    of_object = np.repeat(
        [assignment.group for assignment in clustering.assignments],
        [assignment.n_objects for assignment in clustering.assignments],
    )
    return of_object[own.first]


def _feature_evidence(clustering, features, own) -> ProjectedNormalEvidence | None:
    """Make the evidence of features, where assignments without any have none to show."""
    if features is None:
        return None
    by_assignment = {domain.assignment: domain.data for domain in features.domains}
    domains = [
        by_assignment.get(a.name) or DomainData(np.zeros((a.n_objects, 0)))
        for a in clustering.assignments
    ]
    return ProjectedNormalEvidence(domains, own, features.truncation, features.n_factors)
