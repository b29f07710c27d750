"""What is drawn centrally: all but the labels, given sums over the objects.

Given the sums, hyperparameters are drawn with weights and the parameters of clusters integrated
out; then labels are swapped; then weights and parameters are drawn. Beside the draw of all labels
given these, that is a Gibbs sampler of the declared, truncated model. Parameters of kinds without
such sums are not integrated out: they are drawn first, by passes over the rows, and go along when
labels are swapped.

If there are several sets of clusters, as of the rows and of the columns of a network, their labels
are drawn in turn, each given the others. The last set is another one in every iteration. It is the
one whose labels are swapped, and whose clusters are split and merged; and the first in the next
iteration, so that nothing looks at its labels meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.clusters.label_swap import swap
from pm_match.clusters.points import ClusteringPoints
from pm_match.clusters.step import occupancy
from pm_match.numerics.stick_breaking import draw_log_sticks, log_prior
from pm_match.reading.evidence import Point
from pm_match.reading.kinds import kind_of
from pm_match.reading.parts import Clustering, Component, Structure, UnservedModelError
from pm_match.sharded.evidence import Ask, Scorer, ShardedEvidence, Sums, added
from pm_match.sharded.shards import ChunkResult, Setting

Call = Callable[..., list[Any]]

# Label swaps that are proposed an iteration, for each label.
_SWAPS = 2


class Centre:
    """Weights, parameters and hyperparameters of a model, given sums.

    `model`: declared on a sample of the rows; `point`: where to start. It has `point`, the present
    values of the model's value variables, of which those of the sample's labels say nothing;
    `sizes` (T,) of clusters, by assignment; and the `labels` of watched assignments, as they were
    last drawn. Raise `UnservedModelError` if a part of the model is not served.
    """

    def __init__(self, model: Model, structure: Structure, rng: np.random.Generator, point: Point):
        self.component = _only_component(structure)
        self.clusterings = self.component.clusterings
        self.rng, self.point = rng, dict(point)
        self.evidence: list[ShardedEvidence] = []
        for own in self.component.evidence:
            made = kind_of(own).sharded(model, own, self.component)
            if made is None:
                number = own.clusterings[0]
                titles = ", ".join(repr(a.name) for a in self.clusterings[number].assignments)
                raise UnservedModelError(
                    f"sample_sharded: the data of {titles} are of the kind {own.kind!r}, which "
                    "cannot be drawn from sums over chunks of rows"
                )
            if len(own.clusterings) > 1 and not made.watched:
                names = ", ".join(repr(self.clusterings[n].title) for n in own.clusterings)
                raise UnservedModelError(
                    f"sample_sharded: data of the kind {own.kind!r} see several sets of clusters "
                    f"({names}), and do not say whose labels others depend on (`watched`)"
                )
            self.evidence.append(made)
        _check_covered(model, self.component, self.evidence)
        self._points = [ClusteringPoints(model, own) for own in self.clusterings]
        self.watched = {name for own in self.evidence for name in own.watched}
        self.labels: dict[str, NDArray[np.int16]] = {}
        self.sizes: dict[str, NDArray[np.int64]] = {}
        self._counts = [np.zeros(own.truncation, np.int64) for own in self.clusterings]
        # Of every evidence, by the labels of that of its sets of clusters that was drawn last.
        self._sums: dict[int, dict[str, Sums]] = {}
        self._number, self._seen = 0, list[int]()
        # What the labels that every evidence sees were drawn given.
        self._settings: dict[int, Setting] = {}
        self._hyperparameters = (
            _FromSums([model[n] for n in self.component.hyperparameters], model=model, rng=rng)
            if self.component.hyperparameters
            else None
        )

    @property
    def clustering(self) -> Clustering:
        """The set of clusters whose labels were drawn last."""
        return self.clusterings[self._number]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Objects in each of the clusters whose labels were drawn last."""
        return self._counts[self._number]

    @counts.setter
    def counts(self, counts: NDArray[np.int64]) -> None:
        self._counts[self._number] = counts

    @property
    def sums(self) -> dict[int, dict[str, Sums]]:
        """Sums by the labels that were drawn last, of every evidence that sees them."""
        return {number: self._sums[number] for number in self._seen}

    @property
    def n_objects(self) -> dict[str, int]:
        """The objects of every assignment in the sample that the model was declared on."""
        return {a.name: a.n_objects for own in self.clusterings for a in own.assignments}

    def truncation(self, assignment: str) -> int:
        """Return how many clusters the objects of an assignment may be in."""
        return next(own.truncation for own in self.clusterings if assignment in own.slices)

    @property
    def scorers(self) -> dict[str, dict[int, Scorer]]:
        """The scorers of every assignment, by the number of the evidence that sees its objects."""
        return {
            own.name: {
                number: evidence.scorers[own.name]
                for number, evidence in enumerate(self.evidence)
                if own.name in evidence.scorers
            }
            for clustering in self.clusterings
            for own in clustering.assignments
        }

    def begin(self, found: Iterable[tuple[str, dict[int, Sums]]]) -> None:
        """Take the totals of all chunks."""
        for number, own in added(found).items():
            self.evidence[number].begin(own)

    def look(self, labels: Mapping[str, NDArray[np.int16]]) -> None:
        """Take the labels of watched assignments, -1 where they are not known yet."""
        self.labels |= labels
        for evidence in self.evidence:
            evidence.look(self.labels)

    def settings(self, iteration: int) -> Iterator[Setting]:
        """Give what the labels of each set of clusters are drawn given; `load` what is found."""
        n = len(self.clusterings)
        for turn in range(n):
            self._number = (turn - iteration) % n
            assignments = [own.name for own in self.clustering.assignments]
            self._seen = [
                number
                for number, own in enumerate(self.evidence)
                if not own.scorers.keys().isdisjoint(assignments)
            ]
            seen = {number: self.evidence[number] for number in self._seen}
            setting = Setting(
                iteration,
                assignments,
                self._points[self._number].log_weights(self.point),
                {number: own.parameters(self.point) for number, own in seen.items()},
                {
                    number: {a: own.context(a) for a in assignments if a in own.scorers}
                    for number, own in seen.items()
                },
                self.watched & set(assignments),
            )
            self._settings |= dict.fromkeys(self._seen, setting)
            yield setting

    # -- sums -------------------------------------------------------------------------------------

    def load(self, found: Sequence[ChunkResult]) -> None:
        """Take what was found when labels were drawn."""
        sizes, sums = gathered(found)
        self.sizes |= sizes
        self._sums |= sums
        self.counts = np.sum(list(sizes.values()), axis=0)
        labels: dict[str, list[NDArray]] = {}
        for own in found:
            if own.labels is not None:
                labels.setdefault(own.assignment, []).append(own.labels)
        if labels:
            self.look({name: np.concatenate(own) for name, own in labels.items()})

    def log_marginals(self, sums: Mapping[int, Mapping[str, Sums]]) -> NDArray[np.float64]:
        """Log marginal likelihood (J,) of clusters with some `sums`, given hyperparameters."""
        return np.sum(
            [self.evidence[n].log_marginals(self.point, own) for n, own in sums.items()], axis=0
        )

    def log_joint(self) -> float:
        """Log p(data, labels), weights and parameters integrated out, up to a constant."""
        total = 0.0
        for clustering, counts in zip(self.clusterings, self._counts, strict=True):
            a, b = clustering.prior(self.point)
            total += log_prior(a, b, counts)
        for number, sums in self._sums.items():
            own = self.evidence[number]
            total += own.log_marginals(self.point, sums).sum() + own.log_base(self.point, sums)
        return float(total)

    def told(self) -> dict[str, float]:
        """Statistics of the labels, as `ClusterGibbs` has them."""
        return {"log_joint": self.log_joint(), **occupancy(self.clusterings, self._counts)}

    # -- draws ------------------------------------------------------------------------------------

    def update(self, call: Call, tuning: bool = False) -> dict[str, float]:
        """Draw all but the labels, given the sums; return statistics.

        `call`: calls a method of all shards (see `workers`); `tuning`: whether the draw is thrown
        away.
        """
        if self._hyperparameters is not None:
            self.point = self._hyperparameters.update(self, self.point)
        self.point = dict(self.point)
        asks = {number: self._ask(call, number) for number in self._settings}
        for number, ask in asks.items():
            counts = self._counts[self.component.evidence[number].clusterings[0]]
            self.evidence[number].update(self.rng, self.point, counts, ask, tuning)
        accepted = self._swap(asks)
        new = dict(self.point)
        for clustering, points, counts in zip(
            self.clusterings, self._points, self._counts, strict=True
        ):
            if clustering.weights:
                a, b = clustering.prior(new)
                sticks = draw_log_sticks(self.rng, a, b, counts)
                points.write_weights(new, *sticks)
        for number, sums in self._sums.items():
            self.evidence[number].draw(self.rng, new, sums)
        self.point = new
        return {"swap_accepted": accepted}

    def _ask(self, call: Call, number: int) -> Ask:
        """Make the passes over the rows, by the labels that were drawn last, of one evidence."""
        setting = self._settings[number]
        return lambda parameters: added(call("add_up", setting, number, parameters))[number]

    def _swap(self, asks: Mapping[int, Ask]) -> float:
        """Swap labels, by the prior alone (see `clusters.label_swap`); return how many were."""
        if not all(self.component.evidence[number].exchangeable for number in self._seen):
            return 0.0
        a, b = self.clustering.prior(self.point)
        n = len(self.counts)
        counts, named, renamed = self.counts.copy(), np.zeros(n, np.int64), np.arange(n)
        accepted, proposed = swap(self.rng, a, b, counts, named, renamed, _SWAPS * n)
        source, new = np.argsort(renamed), dict(self.point)
        if np.array_equal(source, np.arange(n)):
            return accepted / max(proposed, 1)
        if not all(self.evidence[own].relabel(new, source, asks[own]) for own in self._seen):
            return 0.0
        self.counts, self.point = counts, new
        self._sums |= changed(self.sums, lambda x: x[source])
        return accepted / max(proposed, 1)


def gathered(
    found: Sequence[ChunkResult],
) -> tuple[dict[str, NDArray[np.int64]], dict[int, dict[str, Sums]]]:
    """Add up what is found of all chunks, in their order: objects by assignment, and sums."""
    sizes: dict[str, NDArray[np.int64]] = {}
    for own in found:
        sizes[own.assignment] = sizes.get(own.assignment, 0) + own.counts
    return sizes, added((own.assignment, own.sums) for own in found)


def changed(
    sums: Mapping[int, Mapping[str, Sums]], change: Callable[[NDArray], NDArray]
) -> dict[int, dict[str, Sums]]:
    """Return sums each array of which is changed, by the clusters along its first axis."""
    return {
        number: {name: tuple(map(change, own)) for name, own in evidence.items()}
        for number, evidence in sums.items()
    }


class _FromSums(HyperparameterGibbs):
    """Hyperparameters given sums rather than a collapsed state of the objects."""

    def update(self, centre: Centre, point: Point) -> dict[str, NDArray]:
        """Draw each; return a new point."""
        self._collapsed: Any = SimpleNamespace(
            partitions=[SimpleNamespace(counts=counts) for counts in centre._counts],
            evidence=[
                SimpleNamespace(
                    log_factor=lambda at, own=centre.evidence[number], sums=sums: float(
                        own.log_marginals(at, sums).sum()
                    )
                )
                for number, sums in sorted(centre._sums.items())
            ],
        )
        new = dict(point)
        for name in self._names:
            self._draw(name, new)
        return new


def _only_component(structure: Structure) -> Component:
    """Return the one component of a model, whose labels are independent given weights."""
    if structure.refusals:
        raise UnservedModelError(f"sample_sharded: {structure.explain()}.")
    if structure.parts or len(structure.components) != 1:
        raise UnservedModelError(
            "sample_sharded: expected clusters that the data connect; found "
            f"{len(structure.components)} groups of them, and {len(structure.parts)} other parts"
        )
    (component,) = structure.components
    for clustering in component.clusterings:
        if len(clustering.links) or len(clustering.apart):
            raise UnservedModelError("sample_sharded: objects that are linked are not served")
        if clustering.named:
            raise UnservedModelError("sample_sharded: labels that are observed are not served")
        for assignment in clustering.assignments:
            if assignment.relevance:
                raise UnservedModelError(
                    f"sample_sharded: {assignment.relevance!r}: objects that may be irrelevant are "
                    "not served. Leave relevance out of the model (relevance=False)"
                )
    return component


def _check_covered(model: Model, component: Component, evidence: Sequence[ShardedEvidence]) -> None:
    """Check that all free variables are drawn by somebody."""
    drawn = [name for own in evidence for name in own.names]
    twice = sorted({name for name in drawn if drawn.count(name) > 1})
    if twice:
        raise UnservedModelError(
            f"sample_sharded: expected parameters that one kind of data depend on; found "
            f"{', '.join(map(repr, twice))}, which several do, of other sets of clusters or kinds"
        )
    names = {n for c in component.clusterings for n in c.names} | set(component.hyperparameters)
    names |= {*drawn}
    left = sorted(str(rv.name) for rv in model.free_RVs if rv.name not in names)
    if left:
        raise UnservedModelError(
            f"sample_sharded: {', '.join(map(repr, left))} cannot be drawn over chunks of "
            "rows; declare constants in their place"
        )
