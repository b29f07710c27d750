"""Likelihoods of any kind at a point: a table of what objects are worth under labels."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pymc.model.core import Model

from pm_match.clusters.evidence import Point, Site
from pm_match.clusters.sweep import capacity
from pm_match.declared.parts import LARGE, Likelihoods
from pm_match.declared.rows import Redraw, log_touched
from pm_match.declared.sampled import SampledAccess, SampledState
from pm_match.declared.term import LabelTable
from pm_match.reading.context import Context
from pm_match.reading.entering import Marks
from pm_match.reading.label_tables import Entries, prior_draws
from pm_match.reading.owners import OTHER_STEPS, Owned, close, each_label
from pm_match.reading.parts import UnservedModelError

# Values of each random effect that are tried at once.
N_TRIED = 16


class LikelihoodAccess(SampledAccess):
    """What is compiled of a model for some likelihoods over its assignments."""

    evidence: Likelihoods

    def __init__(self, model: Model, evidence: Likelihoods):
        super().__init__(model, evidence)
        fast = evidence.truncation * len(evidence.owner) > LARGE
        self._way = evidence.batch, evidence.conditions, fast
        self.entries = self.densities.compiled(*self._way)
        self._some = {tuple(True for _ in evidence.factors): self.entries}
        self.redraw = Redraw(Context.of(self.model), evidence.redrawn)

    def entries_of(self, which: tuple[bool, ...]) -> Entries:
        """Compile the entries of some of the factors."""
        if which not in self._some:
            self._some[which] = self.densities.only(which).compiled(*self._way)
        return self._some[which]

    @cached_property
    def draw_effects(self) -> Callable[[np.random.Generator, Point], dict[str, NDArray]]:
        """Draws random effects from their prior at a point."""
        effects = self.evidence.effects
        assert effects is not None
        own = [self.model[name] for name in effects.names]
        return prior_draws(Context.of(self.model), own)

    @cached_property
    def log_touched(self) -> Callable[[Any], float]:
        """The declared log density, at a point, of all that labels and their rows enter."""
        factors = [self.model[name] for name in self.evidence.factors]
        return log_touched(Context.of(self.model), factors, self.evidence.rows)


class LikelihoodState(SampledState):
    """Likelihoods over the labels of a clustering, for the units of a site."""

    evidence: Likelihoods
    access: LikelihoodAccess

    def __init__(self, evidence: Likelihoods, site: Site, access: LikelihoodAccess):
        self.evidence, self.site, self.access = evidence, site, access
        number = evidence.clustering
        clustering, units = site.clusterings[number], site.units[number]
        owner = evidence.owner
        self._owned = Owned(np.where(owner < 0, -1, units.of_object[owner]), len(units.size))
        self._ends = clustering.ends
        labels = each_label(clustering.truncation, clustering.n_objects)
        self._labels = np.split(labels, self._ends, axis=1)
        self.term = LabelTable(
            worth=np.zeros((len(units.size), capacity(clustering.truncation))),
            slot=site.partitions[number].slot,
            constant=np.zeros(1),
        )
        self.terms = [(number, self.term)]
        self._tried: list[Point] = []
        if evidence.effects is not None:
            self._unit = units.of_object[evidence.effects.owner]
            self._groups = Owned(evidence.effects.group, len(self._unit))
            self._groups_owned = Owned(self._unit, len(units.size))

    def refreshed(self, rng: np.random.Generator, point: Point) -> Point:
        """Draw the rows of empty labels from their prior, if that is nothing to all the rest.

        Rows may matter where none was seen to when the model was read.
        """
        used = np.bincount(self._objects(), minlength=self.evidence.truncation)
        new = self.access.redraw.proposed(rng, point, used == 0)
        if new is None:
            return point
        before, held = self._told(), (self.term.worth.copy(), self.term.constant.copy())
        self.load(new)
        if close(before, self._told()).all():
            return new
        self.term.worth[:], self.term.constant[:] = held
        return point

    def pool(self, rng: np.random.Generator, point: Point) -> None:
        """Try several values of every random effect at once: the present one, and prior draws.

        The table is then the log of the sum over these of the densities that it has with each. A
        label that is drawn given an effect which fits the old one hardly moves (R. Neal 2003,
        "Markov chain sampling for non-linear state space models using embedded hidden Markov
        models"; H. Tjelmeland 2004, "Using all Metropolis-Hastings proposals to estimate mean
        values").
        """
        effects = self.evidence.effects
        if effects is None:
            return
        entries = self.access.entries(point, self._labels)
        total = self._groups.total(entries)
        self._tried, self._chosen = [point], np.zeros(total.shape, np.int8)
        while len(self._tried) < N_TRIED:
            drawn = {**point, **self.access.draw_effects(rng, point)}
            own = self._groups.total(self.access.entries(drawn, self._labels))
            for key, place in zip(effects.keys, effects.places, strict=True):
                # What is drawn may round to a bound, at which there is no density.
                own[place[~np.isfinite(drawn[key]) & (place >= 0)]] = -np.inf
            with np.errstate(invalid="ignore"):
                both = np.logaddexp(total, own)
                # Which is taken under every label, all of them drawn as they come.
                self._chosen[rng.random(own.shape) < np.exp(own - both)] = len(self._tried)
            total = both
            self._tried.append(drawn)
        entries[:, effects.group >= 0] = 0.0
        self._tabulate(entries)
        self.term.worth[:, 1 : len(entries) + 1] += self._groups_owned.total(total.T)

    def choose(self, point: Point) -> Point:
        """Take the value that was chosen of every random effect under the label drawn."""
        effects = self.evidence.effects
        if effects is None:
            return point
        labels = self.site.slots(self.evidence.clustering)[self._unit] - 1
        chosen = np.append(self._chosen[np.arange(len(labels)), labels].astype(np.int64), 0)
        new = dict(point)
        for key, place in zip(effects.keys, effects.places, strict=True):
            tried = np.stack([own[key] for own in self._tried])
            (new[key],) = np.take_along_axis(tried, chosen[place][None], axis=0)
        self.load(new)
        return new

    def _told(self) -> NDArray[np.float64]:
        """Return what the units are worth where they are, and the rest (U + 1,)."""
        return np.append(self._worth(), self.term.constant)

    def _worth(self) -> NDArray[np.float64]:
        """Return what the units (U,) are worth where they are."""
        slots = self.site.slots(self.evidence.clustering)
        return self.term.worth[np.arange(len(slots)), slots]

    def load(self, point: Point) -> None:
        """Bring the table to a point."""
        self._tabulate(self.access.entries(point, self._labels))

    def _tabulate(self, entries: NDArray[np.float64]) -> None:
        """Write what units are worth under every label, by entries (T, E), to the table."""
        self.term.worth[:, 1 : len(entries) + 1] = self._owned.total(entries)
        self.term.constant[0] = self._of_nobody(entries[:, self._owned.free])

    def entries_of(self, factor: str, point: Point) -> NDArray[np.float64]:
        """Evaluate the entries (T, n) of a factor at a point, under each label."""
        which = tuple(name == factor for name in self.evidence.factors)
        return self.access.entries_of(which)(point, self._labels)

    def entered_by(self, point: Point, marked: Sequence[Mapping[str, Marks]]) -> NDArray[np.bool_]:
        """Say which entries (K, E) each of K sets of the labels' numbers enters at some labels."""
        found = np.zeros((len(marked), sum(self.evidence.sizes)), np.bool_)
        for labels in zip(*self._labels, strict=True):
            densities, conditions = self.access.densities, self.evidence.conditions
            own = densities.entered_by(conditions, point, labels, marked)
            found |= np.concatenate([marks.reshape(len(marked), -1) for marks in own], axis=1)
        return found

    def by_label(
        self, enters: NDArray[np.bool_]
    ) -> Callable[[Point, NDArray[np.int64]], tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Make what sums up the log densities that each of n numbers enters, at labels (N,).

        Those of the objects of each label (T, n), and those of no object (n,). `enters` (n, E): no
        entry is entered by two. Factors that none enters are not evaluated.
        """
        sizes, n_labels, n = self.evidence.sizes, self.evidence.truncation, len(enters)
        parts = np.split(enters, np.cumsum(sizes)[:-1], axis=1)
        which = tuple(bool(part.any()) for part in parts)
        compiled, kept = self.access.entries_of(which), np.repeat(which, sizes)
        enters, owner = enters[:, kept], self.evidence.owner[kept]
        owned, free = (np.flatnonzero(enters.any(axis=0) & own) for own in (owner >= 0, owner < 0))
        number = enters.argmax(axis=0)

        def sums(point: Point, labels: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
            (entries,) = compiled(point, np.split(labels[None], self._ends, axis=1))
            place = labels[owner[owned]] * n + number[owned]
            own = np.bincount(place, entries[owned], n_labels * n)
            return own.reshape(-1, n), np.bincount(number[free], entries[free], n)

        return sums

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Let rows go with the labels that have been swapped since the table was loaded.

        Raise `UnservedModelError` if the table is not what is declared of the labels drawn.
        """
        self._check(point)
        new |= self._renamed(point)

    def _renamed(self, point: Point) -> dict[str, NDArray]:
        """Let rows go with their labels."""
        source = self.site.slot_of(self.evidence.clustering) - 1
        if np.array_equal(source, np.arange(len(source))):
            return {}
        return {k: v for rows in self.evidence.rows for k, v in rows.taken(point, source).items()}

    def same_renamed(self, point: Point) -> bool:
        """Whether the declared density stays as it is if rows go with labels that are swapped."""
        number = self.evidence.clustering
        before, after = (
            dict(zip(self.access.keys, np.split(own, self._ends), strict=True))
            for own in (self._objects(), self.site.labels(number))
        )
        try:
            here = self.access.log_touched({**point, **before})
            there = self.access.log_touched({**point, **self._renamed(point), **after})
        except ParameterValueError:
            return False
        return bool(close(np.array(here), np.array(there)))

    def _objects(self) -> NDArray[np.int64]:
        """Return the labels of objects (N,) that have the rows which they had at the point."""
        number = self.evidence.clustering
        return (self.site.slots(number) - 1)[self.site.units[number].of_object]

    def _check(self, point: Point) -> None:
        """Refuse labels that do something together that they did nowhere when they were read."""
        objects = self._objects()
        entries = self.access.entries(point, np.split(objects[None], self._ends, axis=1))
        if not close(self._owned.total(entries)[:, 0], self._worth()).all():
            raise UnservedModelError(
                f"{self._named}: expected log densities whose entries depend on the labels of one "
                "object each, as those had that the model was read at; found draws of labels where "
                f"they depend on several. {OTHER_STEPS}"
            )
