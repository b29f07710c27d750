"""A component with all that can be integrated out integrated out: what several steps share."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.apart import new_apart
from pm_match.clusters.evidence import Board, EvidenceState, Site, relevance_groups
from pm_match.clusters.exchange import Exchange, kernel_and_scratch
from pm_match.clusters.points import ClusteringPoints
from pm_match.clusters.protocol import Terms, collect, jobs
from pm_match.clusters.relevance import new_relevance
from pm_match.clusters.split_merge import new_scratch, split_or_merge
from pm_match.clusters.sweep import (
    log_evidence_of,
    log_joint,
    new_partition,
    place,
    rename,
    score_unit,
    sweep,
)
from pm_match.clusters.units import Units, units
from pm_match.numerics.ahead import Job, compile_ahead, job
from pm_match.progress import say
from pm_match.reading.declared_draws import DeclaredDensity
from pm_match.reading.evidence import Point
from pm_match.reading.kinds import kind_of
from pm_match.reading.parts import Component, UnservedModelError

# How often two labels are proposed to swap where parameters go with them. Steps that adapt to every
# parameter's scale, NUTS for one, lose by each swap of a full cluster with an empty one.
ANCHORED_SWAPS = 0.2
# How far scores may be from changes of the log evidence, as a part of it.
_ROUNDING = 1e-8


class Collapsed:
    """The collapsed state of a component: partitions of clusterings, and the states of evidence.

    `grouped`: what moves together in every clustering (default: the objects that are linked);
    `like`: a state of the same component, whose access to points is shared. There is one partition
    for each clustering, in `partitions`, and one state for each evidence, in `evidence`.
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
        self.partitions = [
            new_partition(
                own.size,
                clustering.truncation,
                new_relevance(relevance_groups(clustering, own)),
                self.board.slots_of(number),
                self.board.n_slots[number : number + 1],
                any(own.anchored for own in component.about(number)),
                own.fixed(clustering.known),
            )
            for number, (clustering, own) in enumerate(zip(clusterings, self.units, strict=True))
        ]
        # The model itself is not kept: it would never be let go of (see `reading.read`).
        assert like is not None or model is not None
        self._access: _Access = like._access if like is not None else _Access(model, component)
        self.points = self._access.clusterings
        site = Site(clusterings, self.units, self.board, self.partitions)
        self.evidence: list[EvidenceState] = [
            kind_of(own).state(own, site, access)
            for own, access in zip(component.evidence, self._access.evidence, strict=True)
        ]
        for own, state in zip(component.evidence, self.evidence, strict=True):
            seen = [number for number, _ in getattr(state, "terms", ())]
            if not seen or not set(seen) <= set(range(len(clusterings))):
                raise TypeError(
                    f"kind {own.kind!r}: expected states with terms of clusterings 0 to "
                    f"{len(clusterings) - 1}; found {seen}"
                )
        self._apart = [
            [new_apart(own, clustering.apart, self.board.slots_of(number))]
            if len(clustering.apart)
            else []
            for number, (clustering, own) in enumerate(zip(clusterings, self.units, strict=True))
        ]
        self._members = [new_scratch(len(own.size)) for own in self.units]
        self._exchangeable = [
            all(own.exchangeable for own in component.about(number))
            for number in range(len(clusterings))
        ]
        self._renamed = [np.zeros(c.truncation, np.int64) for c in clusterings]
        # Other groups of the same objects call the same kernels.
        if like is None and compile_ahead(self.kernels()):
            say("Compiling (first use only)")
        self.terms = [self._terms(number) for number in range(len(clusterings))]
        self.exchanges = [
            Exchange(partition, terms, own, clustering.ends)
            for partition, terms, own, clustering in zip(
                self.partitions, self.terms, self.units, clusterings, strict=True
            )
        ]
        self._free = [
            (number, place)
            for number, exchange in enumerate(self.exchanges)
            for place in range(len(exchange.free))
        ]
        self.priors: list = [None for _ in clusterings]

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
        seen = [term for own in self.evidence for home, term in own.terms if home == number]
        return collect([*seen, *self._apart[number]])

    def kernels(self) -> list[Job]:
        """List what tables of terms and a step of `ClusterGibbs` call.

        The last are compiled first elsewhere. So what takes longest comes late, and where both meet
        there is little that they do twice.
        """
        terms = [term for evidence in self.evidence for _, term in evidence.terms]
        terms += [term for own in self._apart for term in own]
        found = [own for term in terms for own in jobs(term)]
        rng, prior, table = np.random.default_rng(), np.zeros(0), np.zeros((1, 1), np.int64)
        given = prior, prior, self.partitions[0]
        found.append(job(place, self.partitions[0], self._renamed[0]))
        found.append(job(sweep, rng, *given, table))
        found.append(job(rename, rng, *given, self._renamed[0], 1))
        found.append(job(log_joint, *given, table))
        found.append(job(log_evidence_of, table, 1))
        found.append(job(score_unit, self.partitions[0], table, 0, self.partitions[0].scores))
        if any(len(clustering.assignments) > 1 for clustering in self.component.clusterings):
            kernel, *scratch = kernel_and_scratch(terms, 1)
            found.append(job(kernel, rng, *given, table, 0, 1, *scratch))
        found.append(job(split_or_merge, rng, *given, table, self._members[0], 1))
        for evidence in self.evidence:
            found += evidence.kernels()
        return found

    def of_kind(self, state: type) -> list[Any]:
        """Return the states of the evidence of one kind."""
        return [own for own in self.evidence if isinstance(own, state)]

    @property
    def anchored(self) -> bool:
        """Whether labels of some clustering have parameters that are not integrated out."""
        return any(partition.anchored[0] for partition in self.partitions)

    @property
    def n_objects(self) -> int:
        """Objects of all clusterings."""
        return sum(c.n_objects for c in self.component.clusterings)

    # -- in ---------------------------------------------------------------------------------------

    def labels(self, point: Point) -> list[NDArray[np.int64]]:
        """Read the labels of the objects of every clustering, -1 for irrelevant ones."""
        return [points.labels(point) for points in self.points]

    def load(
        self, point: Point, labels: Sequence[NDArray[np.int64]], everything: bool = True
    ) -> None:
        """Bring the state to a point, with the given `labels` of every clustering's objects.

        `labels`, sequence of (N,); `everything`: False leaves out evidence whose priors have no
        hyperparameters of ours: the others' steps do not look at it. Raise `UnservedModelError` if
        objects that are linked are in different clusters, or those that cannot be in one.
        """
        for own, clustering, label in zip(
            self.units, self.component.clusterings, labels, strict=True
        ):
            _check_links(own, label)
            _check_apart(clustering.apart, label)
        for partition, own, label in zip(self.partitions, self.units, labels, strict=True):
            place(partition, label[own.first])
        self.load_priors(point)
        for evidence in self._some(everything):
            evidence.load(point)

    def _some(self, everything: bool) -> list[EvidenceState]:
        return [
            own
            for own, declared in zip(self.evidence, self.component.evidence, strict=True)
            if everything or declared.hyperpriors
        ]

    def load_priors(self, point: Point) -> None:
        """Bring the priors of weights, flags and evidence to a point."""
        for number, clustering in enumerate(self.component.clusterings):
            # Copies: kernels are compiled for arrays of any one kind.
            a, b = clustering.prior(point)
            self.priors[number] = np.array(a), np.array(b)
            if clustering.probabilities:
                self.partitions[number].relevance.prior[:] = clustering.relevance_prior(point)
        for evidence in self.evidence:
            evidence.load_prior(point)

    # -- moves ------------------------------------------------------------------------------------

    def refreshed(self, rng: np.random.Generator, point: Point) -> Point:
        """Return a point in which parameters of empty clusters are new draws from their prior.

        The state has been loaded at the `point`, and is at the one returned.
        """
        for evidence in self.evidence:
            point = evidence.refreshed(rng, point)
        return point

    def pool(self, rng: np.random.Generator, point: Point) -> None:
        """Let labels be drawn with several values of what units have of their own."""
        for evidence in self.evidence:
            evidence.pool(rng, point)

    def choose(self, point: Point) -> Point:
        """Return a point with the values that were drawn with the labels."""
        for evidence in self.evidence:
            point = evidence.choose(point)
        return point

    def sweep(self, rng: np.random.Generator) -> int:
        """Sweep once over all units of all clusterings; return how many objects moved."""
        moved = 0
        for partition, terms, prior in zip(self.partitions, self.terms, self.priors, strict=True):
            moved += sweep(rng, *prior, partition, terms)
        return moved

    def rename(self, rng: np.random.Generator, point: Point | None = None) -> tuple[int, int]:
        """Propose label swaps in all clusterings; return how many were accepted and proposed.

        Nothing is proposed where labels have parameters that cannot go with them, and no swap
        accepted that changes the declared density, at a `point`, of what goes with them.
        """
        accepted, proposed = 0, 0
        for partition, prior, renamed, allowed in zip(
            self.partitions, self.priors, self._renamed, self._exchangeable, strict=True
        ):
            if not allowed:
                continue
            n = len(renamed)
            if partition.anchored[0]:
                n = int(rng.random() < ANCHORED_SWAPS)
            held = partition.counts, partition.slot_of, partition.label_of, partition.label
            before = [own.copy() for own in held] if partition.anchored[0] else []
            found = rename(rng, *prior, partition, renamed, n)
            if found[0] and before and point is not None and not self._same_renamed(point):
                for own, was in zip(held, before, strict=True):
                    own[:] = was
                found = 0, found[1]
            accepted, proposed = accepted + found[0], proposed + found[1]
        return accepted, proposed

    def _same_renamed(self, point: Point) -> bool:
        return all(evidence.same_renamed(point) for evidence in self.evidence)

    @property
    def _bounded(self) -> bool:
        return any(own.bounded for own in self.evidence)

    def split_or_merge(self, rng: np.random.Generator, n: int) -> tuple[int, int]:
        """Propose `n` splits or merges in each clustering; return how many were accepted, and made.

        Nothing is proposed to clusterings without a relevant unit that may move, nor where labels
        rule each other out.
        """
        n = 0 if self._bounded else n
        accepted, proposed = 0, 0
        for partition, terms, prior, scratch in zip(
            self.partitions, self.terms, self.priors, self._members, strict=True
        ):
            found = split_or_merge(rng, *prior, partition, terms, scratch, n)
            accepted, proposed = accepted + found[0], proposed + found[1]
        return accepted, proposed

    def exchange(self, rng: np.random.Generator, n: int) -> tuple[int, int]:
        """Propose exchanges of labels in `n` assignments; return how many were accepted, and made.

        The assignments are drawn uniformly from those that can exchange labels.
        """
        accepted, proposed = 0, 0
        for _ in range(n if self._free and not self._bounded else 0):
            number, place = self._free[int(rng.integers(len(self._free)))]
            a, b = self.priors[number]
            found = self.exchanges[number].propose(rng, a, b, place)
            accepted, proposed = accepted + found[0], proposed + found[1]
        return accepted, proposed

    def scores(self, number: int, unit: int) -> NDArray[np.float64]:
        """Score a unit as the kernel does: log predictives up to a constant (T + 1,).

        Of a clustering's unit in every cluster, as if it had left its own; the last is for a unit
        that is irrelevant, as far as evidence tells.
        """
        partition = self.partitions[number]
        score_unit(partition, self.terms[number], unit, partition.scores)
        n_slots = partition.n_slots[0]
        return partition.scores[np.append(partition.slot_of, n_slots)]

    def log_joint(self) -> float:
        """Log p(data, assignments, relevance), all else integrated out."""
        total = 0.0
        for partition, terms, prior in zip(self.partitions, self.terms, self.priors, strict=True):
            total += log_joint(*prior, partition, terms)
        return total

    def log_prior(self, point: Point) -> float:
        """Log density of parameters that are not integrated out, so that modes compare."""
        return sum(own.log_prior(point) for own in self.evidence)

    # -- out --------------------------------------------------------------------------------------

    def found(self) -> list[np.ndarray]:
        """Return the present labels of the objects of every clustering, -1 for irrelevant ones."""
        return [
            partition.label[own.of_object]
            for partition, own in zip(self.partitions, self.units, strict=True)
        ]

    def draw(
        self,
        rng: np.random.Generator,
        point: Point,
        new: dict[str, NDArray],
        everything: bool = True,
    ) -> None:
        """Draw all that was integrated out from its exact conditional, and write it to `new`.

        What belongs to evidence that was not loaded may be left as it is (`everything`): given the
        assignments, it does not depend on the rest.
        """
        for partition, points, label in zip(
            self.partitions, self.points, self.found(), strict=True
        ):
            points.draw(rng, point, new, label, partition.counts, partition.relevance.counts)
        for evidence in self._some(everything):
            evidence.draw(rng, point, new)

    def check_draw(self, declared: DeclaredDensity, point: Point) -> None:
        """Raise `UnservedModelError` if a draw has another density than the declared one.

        `declared`: the density, of the component; `point`: to which the state has been drawn. Where
        a kind of evidence has no `log_conditional`, only scores are looked at.
        """
        with suppress(NotImplementedError), np.errstate(all="ignore"):
            of_labels, apart = zip(*[p.log_densities(point) for p in self.points], strict=True)
            found = [*of_labels]
            for own in self.evidence:
                found += [own.log_evidence(), own.log_conditional(point)]
            declared.check(point, found, apart)
        self._check_scores(point, 10.0 * declared.rounding)

    def _check_scores(self, point: Point, least: float) -> None:
        """Raise `RuntimeError` if what a unit scores is not what the log evidence changes by.

        Of one unit, and one label that it may get.
        """
        labels = self.found()
        rng = np.random.default_rng(int(sum(own.sum() for own in labels)) % 2**32)
        number = int(rng.integers(len(labels)))
        partition, own = self.partitions[number], self.units[number]
        free = np.flatnonzero((partition.fixed == 0) & (partition.label >= 0))
        if not len(free):
            return
        unit, label = int(rng.choice(free)), int(rng.integers(len(partition.counts)))
        self.load(point, labels)
        before, scores = self._log_evidence(), self.scores(number, unit)
        found = scores[label] - scores[partition.label[unit]]
        if not np.isfinite(found):
            return
        moved = [one.copy() for one in labels]
        moved[number][own.of_object == unit] = label
        self.load(point, moved)
        expected = self._log_evidence() - before
        self.load(point, labels)
        if abs(found - expected) > least + _ROUNDING * (abs(before) + abs(expected)):
            raise RuntimeError(
                f"{self.component.clusterings[number].title!r}: expected scores by which the log "
                f"evidence changes by {expected:.6g} where an object changes its cluster; found "
                f"{found:.6g}. On extreme scales of data rounding does so: standardise them. "
                "Otherwise this is a fault of pm_match, or of a kind that was added to it: please "
                "report it, with the model."
            )

    def _log_evidence(self) -> float:
        return sum(own.log_evidence() for own in self.evidence)


class _Access:
    """Reads and writes points for what is declared of a component."""

    def __init__(self, model: Model | None, component: Component):
        assert model is not None
        self.clusterings = [ClusteringPoints(model, c) for c in component.clusterings]
        self.evidence = [kind_of(own).access(own, model) for own in component.evidence]


def _check_links(own: Units, labels: NDArray[np.int64]) -> None:
    if own.linked and not np.array_equal(labels, labels[own.first[own.of_object]]):
        raise UnservedModelError(
            "the start contradicts must_link: objects that are linked start in different clusters."
        )


def _check_apart(apart: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
    one, other = labels[apart].T
    if ((one == other) & (one >= 0)).any():
        raise UnservedModelError(
            "the start contradicts cannot_link: objects that cannot be linked start in one cluster."
        )
