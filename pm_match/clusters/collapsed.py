"""A component with all that can be integrated out integrated out: what several steps share."""

from typing import Any

import numpy as np
from pymc.model.core import Model

from pm_match.clusters.exchange import Exchange
from pm_match.clusters.points import ClusteringPoints
from pm_match.clusters.protocol import Terms, collect
from pm_match.clusters.relevance import new_relevance
from pm_match.clusters.split_merge import new_scratch, split_or_merge
from pm_match.clusters.sweep import log_joint, new_partition, place, rename, sweep
from pm_match.clusters.units import Units, units
from pm_match.features.marginals import Marginal, split_deviations
from pm_match.features.parts import Features, View
from pm_match.features.points import FeaturesPoints
from pm_match.features.projected_normal import DomainData, ProjectedNormalEvidence
from pm_match.networks.block_evidence import BlockEvidence, Board
from pm_match.networks.points import RelationPoints
from pm_match.normal.normal_rows import NormalRows
from pm_match.normal.normal_wishart import NormalWishartEvidence
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.normal.shared_normal import SharedNormalEvidence
from pm_match.reading.parts import Clustering, Component, UnservedModelError
from pm_match.reading.priors import log_densities_function

# Restricted scans before a split or its reverse is proposed.
N_SCANS = 2


class Collapsed:
    """The collapsed state of a component: partitions and their evidence.

    Parameters
    ----------
    model : pymc.Model
    component : Component
    grouped : list of Units, optional
        What moves together in every clustering. Default: the objects that are linked.
    like : Collapsed, optional
        A state of the same component, whose access to points is shared.

    Attributes
    ----------
    units : list of Units
    partitions : list of Partition
        One for every clustering.
    features : list of ProjectedNormalEvidence or None
        One for every clustering.
    normals : list of list of NormalWishartEvidence or SharedNormalEvidence
        For every clustering, one for each set of normal clusters.
    relations : list of BlockEvidence
    """

    def __init__(
        self,
        model: Model | None,
        component: Component,
        grouped: list[Units] | None = None,
        like: "Collapsed | None" = None,
    ):
        self.component = component
        clusterings = component.clusterings
        self.units = grouped or [units(c.n_objects, c.links) for c in clusterings]
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
        self.normals = [
            [_normal_evidence(clustering, one, units) for one in normals]
            for clustering, normals, units in zip(
                clusterings, component.normals, self.units, strict=True
            )
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
        self.priors: list = [None for _ in clusterings]
        self.views: list[View | None] = [None for _ in clusterings]
        # The model itself is not kept: it would never be let go of (see `structure.read`).
        assert like is not None or model is not None
        self._access: _Access = like._access if like is not None else _Access(model, component)
        self.points = self._access.clusterings
        self.feature_points = self._access.features

    @classmethod
    def of(cls, model: Model, component: Component) -> "Collapsed":
        """Return the state of a component that all its steps share: each loads it anew."""
        if "collapsed" not in component.workspace:
            component.workspace["collapsed"] = cls(model, component)
        return component.workspace["collapsed"]

    def regrouped(self, grouped: list[Units]) -> "Collapsed":
        """Return another state of the component, whose units are others: whole clusters, say."""
        return Collapsed(None, self.component, grouped, like=self)

    def _terms(self, number: int) -> Terms:
        evidence = self.features[number]
        terms: list[Any] = [] if evidence is None else [evidence.term]
        terms += [normals.term for normals in self.normals[number]]
        for relation in self.relations:
            terms += [term for home, term in relation.terms if home == number]
        return collect(terms)

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

        The evidence of feature vectors (and of normal clusters) may be left out, where nothing
        depends on it.

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
            if not features or evidence is None or declared is None:
                continue
            if not declared.plain:
                self._load_view(number, declared, evidence, point)
            else:
                hyper = declared.hyper(point)
                evidence.load(
                    self.projections(number, point),
                    self.partitions[number].slot.astype(np.int64),
                    hyper.shape,
                    hyper.rate,
                    hyper.latent_precision,
                )
        if features:
            self._load_normals(point)
        for relation in self.relations:
            relation.load()

    def _load_normals(self, point) -> None:
        """Bring the evidence of normal clusters to a point."""
        for partition, declared, evidence in zip(
            self.partitions, self.component.normals, self.normals, strict=True
        ):
            for normals, own in zip(declared, evidence, strict=True):
                slots = partition.slot.astype(np.int64)
                own.load(normals.vectors(point), slots, normals.prior(point))

    def _load_view(self, number: int, features: Features, evidence, point) -> None:
        """Bring the evidence of features with marginals of their own to a point."""
        view = features.view(point)
        self.views[number] = view
        slots = self.partitions[number].slot.astype(np.int64)
        by_assignment = {
            domain.assignment: marginal
            for domain, marginal in zip(features.domains, view.marginals, strict=True)
        }
        k = features.n_all_factors
        nothing = Marginal(np.zeros((0, k)), np.zeros(0), np.zeros(0))
        marginals = [
            by_assignment.get(assignment.name, nothing)
            for assignment in self.component.clusterings[number].assignments
        ]
        pairs = list(zip(marginals, evidence.domains, strict=True))
        whitened = [m.whitened(data) for m, data in pairs]
        projections = [marginal.whitened_projection() for marginal in marginals]
        if features.precision:
            hyper = features.hyper(point)
            evidence.load(
                projections,
                slots,
                hyper.shape,
                hyper.rate,
                view.latent_precision,
                whitened,
                sum(m.log_root.sum() * len(data.values) for m, data in pairs),
            )
            return
        constants = np.concatenate([m.log_constants(data) for m, data in pairs])
        evidence.load_known(
            whitened,
            projections,
            slots,
            view.latent_precision,
            constants,
            self._idle(number, point),
        )

    def _idle(self, number: int, point):
        """Log density of every object (N,) as an irrelevant one; None if all are relevant."""
        features = self.component.features[number]
        if features is None or not features.flagged:
            return None
        found = {
            domain.assignment: idle
            for domain, idle in zip(features.domains, features.idle(point), strict=True)
        }
        return np.concatenate(
            [
                np.zeros(assignment.n_objects) if own is None else own
                for assignment in self.component.clusterings[number].assignments
                for own in [found.get(assignment.name)]
            ]
        )

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
            self.priors[number] = clustering.prior(point)
            if clustering.probabilities:
                self.partitions[number].relevance.prior[:] = clustering.relevance_prior(point)
        for evidence, relation in zip(self.relations, self.component.relations, strict=True):
            evidence.set_prior(*relation.prior(point))

    # -- moves ------------------------------------------------------------------------------------

    def sweep(self, rng: np.random.Generator) -> int:
        """Sweep once over all units of all clusterings; return how many objects moved."""
        moved = 0
        for partition, terms, prior in zip(self.partitions, self.terms, self.priors, strict=True):
            moved += sweep(rng, *prior, partition, terms)
        return moved

    def rename(self, rng: np.random.Generator) -> tuple[int, int]:
        """Propose label swaps in all clusterings; return how many were accepted and proposed."""
        accepted, proposed = 0, 0
        for partition, prior, renamed in zip(
            self.partitions, self.priors, self._renamed, strict=True
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
            self.partitions, self.terms, self.priors, self._members, strict=True
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
            a, b = self.priors[number]
            found = self._exchanges[number].propose(rng, a, b, place)
            accepted, proposed = accepted + found[0], proposed + found[1]
        return accepted, proposed

    def log_joint(self) -> float:
        """Log p(data, assignments, relevance), all else integrated out."""
        total = 0.0
        for partition, terms, prior in zip(self.partitions, self.terms, self.priors, strict=True):
            total += log_joint(*prior, partition, terms)
        return total

    def log_feature_prior(self, point) -> float:
        """Log density of what the features depend on, so that modes compare.

        That is of projections that have a normal prior, and of the parameters of marginals.
        """
        total = self._access.log_parameters(point)
        for features, points in zip(self.component.features, self.feature_points, strict=True):
            if features is None or points is None or not features.plain:
                continue
            for domain, w in zip(features.domains, points.projections(point), strict=True):
                if domain.update == "normal":
                    mean, precision = features.projection_prior(domain, point)
                    squares = precision * (w - mean) ** 2
                    total += 0.5 * float((np.log(precision / (2.0 * np.pi)) - squares).sum())
        return total

    # -- out --------------------------------------------------------------------------------------

    def found(self) -> list[np.ndarray]:
        """Return the present labels of the objects of every clustering, -1 for irrelevant ones."""
        return [
            partition.label[own.of_object]
            for partition, own in zip(self.partitions, self.units, strict=True)
        ]

    def draw(self, rng: np.random.Generator, point, new, features: bool = True) -> None:
        """Draw all that was integrated out from its exact conditional, and write it to `new`.

        What belongs to feature vectors and normal clusters may be left as it is: given the
        assignments, it does not depend on the rest.
        """
        for partition, points, label in zip(
            self.partitions, self.points, self.found(), strict=True
        ):
            points.draw(rng, point, new, label, partition.counts, partition.relevance.counts)
        for number, evidence in enumerate(self.features):
            own = self.feature_points[number]
            if features and evidence is not None and own is not None:
                alpha, latent = evidence.draw(rng, self.partitions[number].slot_of)
                view = self.views[number]
                if view is not None:
                    n_factors, r = own.features.n_factors, view.latent_precision
                    latent, deviations = split_deviations(latent, n_factors, view.scales, r)
                    own.write_latent(new, alpha, latent, deviations)
                    continue
                own.write_latent(new, alpha, latent)
                projections = own.projections(point)
                own.write_missing(rng, new, own.labels(new), projections, alpha, latent)
        if features:
            self._draw_normals(rng, new)
        for network, writer, relation in zip(
            self.relations, self._access.relations, self.component.relations, strict=True
        ):
            slot_of = [self.partitions[axis].slot_of for axis in relation.axes]
            writer.write_parameters(new, relation.density, network.draw(rng, slot_of))
            if relation.noise:
                writer.write_parameters(new, relation.noise, network.draw_noise(rng))

    def _draw_normals(self, rng: np.random.Generator, new) -> None:
        """Draw means and precisions of normal clusters, and write them to `new`."""
        for label, evidence, writers in zip(
            self.found(), self.normals, self._access.normals, strict=True
        ):
            for own, writer in zip(evidence, writers, strict=True):
                writer.write_parameters(new, *own.draw(rng, label))


class _Access:
    """Reads and writes points for what is declared of a component."""

    def __init__(self, model: Model, component: Component):
        self.clusterings = [ClusteringPoints(model, c) for c in component.clusterings]
        self.features = [FeaturesPoints(model, f) if f else None for f in component.features]
        self.normals = [[NormalsPoints(model, n) for n in own] for own in component.normals]
        self.relations = [RelationPoints(model, r) for r in component.relations]
        names = [p.name for f in component.features if f is not None for p in f.parameters]
        self.log_parameters = log_densities_function(model, names)


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
    # Objects without features may be irrelevant too, by what else is seen of them.
    flagged = any(a.relevance for a in clustering.assignments)
    return ProjectedNormalEvidence(
        domains, own, features.truncation, features.n_all_factors, flagged
    )


def _normal_evidence(
    clustering: Clustering, normals: Normals, own: Units
) -> NormalWishartEvidence | SharedNormalEvidence:
    """Make the evidence of normal clusters, whose vectors may be of some objects only."""
    sizes = [assignment.n_objects for assignment in clustering.assignments]
    starts = np.cumsum([0, *sizes])
    start = {a.name: n for a, n in zip(clustering.assignments, starts, strict=False)}
    objects = np.concatenate([v.objects + start[v.assignment] for v in normals.values])
    kind = SharedNormalEvidence if normals.shared else NormalWishartEvidence
    return kind(NormalRows(objects, own, normals.n_features), clustering.truncation)
