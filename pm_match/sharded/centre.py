r"""What is drawn centrally: all but the labels, given sums over the objects.

Given the sums, hyperparameters are drawn with weights and the parameters of clusters integrated
out; then labels are swapped; then weights and parameters are drawn. Beside the draw of all labels
given these, that is a Gibbs sampler of the declared, truncated model.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.clusters.points import ClusteringPoints
from pm_match.clusters.sweep import new_partition, rename
from pm_match.numerics.stick_breaking import draw_log_sticks, log_prior, log_weights
from pm_match.reading.evidence import Point
from pm_match.reading.kinds import kind_of
from pm_match.reading.parts import Component, Structure, UnservedModelError
from pm_match.reading.probe import natural_function
from pm_match.sharded.evidence import Scorer, ShardedEvidence, Sums
from pm_match.sharded.shards import Found, Setting

# Label swaps that are proposed an iteration, for each label.
_SWAPS = 2


class Centre:
    """Weights, parameters and hyperparameters of a model, given sums.

    Parameters
    ----------
    model : pymc.Model
        Declared on a sample of the rows.
    structure : Structure
    rng : numpy.random.Generator
    point : mapping
        Where to start.

    Attributes
    ----------
    point : dict
        The present values of the model's value variables; those of the sample's labels say nothing.
    counts : (T,) integer array
        Objects in each cluster.
    sizes : dict of str to (T,) integer array
        By assignment.
    sums : list of dict of str to Sums
        For each evidence, by assignment.

    Raises
    ------
    UnservedModelError
        If a part of the model is not served; the message says which variable, and why.
    """

    def __init__(self, model: Model, structure: Structure, rng: np.random.Generator, point: Point):
        self.component = _only_component(structure)
        (self.clustering,) = self.component.clusterings
        self.rng, self.point = rng, dict(point)
        self.evidence: list[ShardedEvidence] = []
        for own in self.component.evidence:
            made = kind_of(own).sharded(model, own)
            if made is None:
                titles = ", ".join(repr(a.name) for a in self.clustering.assignments)
                raise UnservedModelError(
                    f"sample_sharded: the data of {titles} are of the kind {own.kind!r}, which "
                    "cannot be drawn from sums over chunks of rows"
                )
            self.evidence.append(made)
        _check_covered(model, self.component, self.evidence)
        self._points = ClusteringPoints(model, self.clustering)
        weights = self.clustering.weights
        self._weights = natural_function(model, [weights]) if weights else None
        self._hyperparameters = (
            _FromSums([model[n] for n in self.component.hyperparameters], model=model, rng=rng)
            if self.component.hyperparameters
            else None
        )

    @property
    def scorers(self) -> dict[str, dict[int, Scorer]]:
        """The scorers of every assignment, by the number of the evidence that sees its objects."""
        return {
            own.name: {
                number: evidence.scorers[own.name]
                for number, evidence in enumerate(self.evidence)
                if own.name in evidence.scorers
            }
            for own in self.clustering.assignments
        }

    def begin(self, assignments: Sequence[str], found: Sequence[dict[int, Sums]]) -> None:
        """Take the totals of all chunks, of which the assignments are given."""
        for evidence, own in zip(self.evidence, self._added(assignments, found), strict=True):
            evidence.begin(own)

    def setting(self, iteration: int) -> Setting:
        """Return what labels are drawn given."""
        parameters = [evidence.parameters(self.point) for evidence in self.evidence]
        return Setting(iteration, self._log_weights(), parameters)

    def _log_weights(self) -> NDArray[np.float64]:
        if self._weights is None:
            a, b = self.clustering.prior(self.point)
            return log_weights(np.log(a / (a + b)), np.log(b / (a + b)))
        value = np.asarray(self._weights(self.point)[0], np.float64)
        with np.errstate(divide="ignore"):
            if self.clustering.sticks:
                return log_weights(np.log(value), np.log1p(-value))
            return np.log(value)

    # -- sums -------------------------------------------------------------------------------------

    def _added(
        self, assignments: Sequence[str], found: Sequence[dict[int, Sums]]
    ) -> list[dict[str, Sums]]:
        """Add up sums of chunks, in their order, by evidence and assignment."""
        total: list[dict[str, Sums]] = [{} for _ in self.evidence]
        for assignment, own in zip(assignments, found, strict=True):
            for number, sums in own.items():
                if assignment not in total[number]:
                    total[number][assignment] = tuple(np.array(x) for x in sums)
                    continue
                for one, more in zip(total[number][assignment], sums, strict=True):
                    one += more
        return total

    def gather(
        self, assignments: Sequence[str], found: Sequence[Found]
    ) -> tuple[dict[str, NDArray[np.int64]], list[dict[str, Sums]]]:
        """Add up what is found of all chunks, in their order: objects by assignment, and sums."""
        sizes: dict[str, NDArray[np.int64]] = {}
        for assignment, (counts, *_) in zip(assignments, found, strict=True):
            sizes[assignment] = sizes.get(assignment, 0) + counts
        return sizes, self._added(assignments, [sums for _, sums, _ in found])

    def load(self, assignments: Sequence[str], found: Sequence[Found]) -> None:
        """Take the sums of all labels."""
        self.sizes, self.sums = self.gather(assignments, found)
        self.counts = np.sum(list(self.sizes.values()), axis=0)

    def log_marginals(self, sums: Sequence[Mapping[str, Sums]]) -> NDArray[np.float64]:
        """Log marginal likelihood (J,) of clusters with some `sums`, given hyperparameters."""
        return np.sum(
            [e.log_marginals(self.point, own) for e, own in zip(self.evidence, sums, strict=True)],
            axis=0,
        )

    def log_joint(self) -> float:
        """Log p(data, labels), weights and parameters integrated out, up to a constant."""
        a, b = self.clustering.prior(self.point)
        total = log_prior(np.array(a), np.array(b), self.counts)
        pairs = zip(self.evidence, self.sums, strict=True)
        base = sum(own.log_base(self.point, sums) for own, sums in pairs)
        return float(total + self.log_marginals(self.sums).sum() + base)

    # -- draws ------------------------------------------------------------------------------------

    def update(self) -> dict[str, float]:
        """Draw all but the labels, given the sums; return statistics."""
        if self._hyperparameters is not None:
            self.point = self._hyperparameters.update(self, self.point)
        accepted = self._swap()
        new = dict(self.point)
        self._draw_weights(new)
        for evidence, sums in zip(self.evidence, self.sums, strict=True):
            evidence.draw(self.rng, new, sums)
        self.point = new
        return {"swap_accepted": accepted}

    def _draw_weights(self, new: dict[str, NDArray]) -> None:
        if self.clustering.weights:
            a, b = self.clustering.prior(new)
            sticks = draw_log_sticks(self.rng, np.array(a), np.array(b), self.counts)
            self._points.write_weights(new, *sticks)

    def _swap(self) -> float:
        """Swap labels, by the prior alone (see `clusters.label_swap`); return how many were."""
        a, b = (np.array(x) for x in self.clustering.prior(self.point))
        n = len(self.counts)
        # The kernel asks for a partition; there are no objects in this one.
        partition, renamed = new_partition(np.zeros(0, np.int64), n), np.zeros(n, np.int64)
        partition.counts[:] = self.counts
        accepted, proposed = rename(self.rng, a, b, partition, renamed, _SWAPS * n)
        self.counts = partition.counts
        self.sums = reordered(self.sums, np.argsort(renamed))
        return accepted / max(proposed, 1)


def reordered(sums: Sequence[Mapping[str, Sums]], rows: NDArray) -> list[dict[str, Sums]]:
    """Return the sums of some clusters, in the order of `rows`."""
    return [
        {name: tuple(x[rows] for x in own) for name, own in evidence.items()} for evidence in sums
    ]


class _FromSums(HyperparameterGibbs):
    """Hyperparameters given sums rather than a collapsed state of the objects."""

    def update(self, centre: Centre, point: Point) -> dict[str, NDArray]:
        """Draw each; return a new point."""
        self._collapsed: Any = SimpleNamespace(
            partitions=[SimpleNamespace(counts=centre.counts)],
            evidence=[
                SimpleNamespace(
                    log_factor=lambda at, own=own, sums=sums: float(
                        own.log_marginals(at, sums).sum()
                    )
                )
                for own, sums in zip(centre.evidence, centre.sums, strict=True)
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
            "sample_sharded: expected a model of one set of clusters; found "
            f"{len(structure.components)}, and {len(structure.parts)} other parts"
        )
    (component,) = structure.components
    if len(component.clusterings) != 1:
        names = ", ".join(repr(c.title) for c in component.clusterings)
        raise UnservedModelError(
            f"sample_sharded: expected one set of clusters; found {names}, which are seen together"
        )
    (clustering,) = component.clusterings
    if len(clustering.links):
        raise UnservedModelError("sample_sharded: objects that are linked are not served")
    if clustering.named:
        raise UnservedModelError("sample_sharded: labels that are observed are not served")
    for assignment in clustering.assignments:
        if assignment.relevance:
            raise UnservedModelError(
                f"sample_sharded: {assignment.relevance!r}: objects that may be irrelevant are not "
                "served"
            )
    return component


def _check_covered(model: Model, component: Component, evidence: Sequence[ShardedEvidence]) -> None:
    """Check that all free variables are drawn by somebody."""
    names = {n for c in component.clusterings for n in c.names} | set(component.hyperparameters)
    names |= {name for own in evidence for name in own.names}
    left = sorted(str(rv.name) for rv in model.free_RVs if rv.name not in names)
    if left:
        raise UnservedModelError(
            f"sample_sharded: {', '.join(map(repr, left))} cannot be drawn from sums over chunks "
            "of rows; declare constants in their place"
        )
