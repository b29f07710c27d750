"""Parameters of clusters that are not integrated out, drawn by slices, all clusters at once."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType
from pymc.step_methods.state import dataclass_state

from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.step import PartitionStep, PartitionStepState
from pm_match.declared.parts import LabelRows, Likelihoods
from pm_match.declared.rows import prior_by_row
from pm_match.declared.state import LikelihoodState
from pm_match.numerics.slices import draw_slices
from pm_match.reading.ancestry import Ancestry
from pm_match.reading.owners import close
from pm_match.reading.parts import Component
from pm_match.reading.probe import initial_point

# First intervals, in what one update moves a number by.
_WIDTH = 2.0


class _Block(NamedTuple):
    """Rows of labels, and what they enter."""

    evidence: Likelihoods
    rows: LabelRows
    # from a point to the log densities (T,) of the rows, and of rows that depend on them
    priors: Callable[[Any], NDArray]
    # from a point and labels to what objects of each label are worth (T,), and the rest, where the
    # rows enter it
    worth: Callable[[Any, NDArray[np.int64]], tuple[NDArray, float]]


@dataclass_state
class ClusterSliceState(PartitionStepState):
    """What a chain changes in a step, besides its generator."""

    tune: bool
    scale: np.ndarray
    n_updates: int
    alone: bool


class ClusterSlice(PartitionStep):
    r"""Draw what clusters have of the parameters, given the labels: each number by a slice.

    Given the labels and all else, the rows :math:`\theta_t` of the labels are independent, with

    .. math::
        p(\theta_t \mid \ldots) \propto p(\theta_t) \prod_{i: s_i = t} p(x_i \mid \theta_t)

    One evaluation of all objects' log densities, summed by cluster, therefore serves a step of
    slice sampling (Neal 2003) for all clusters at once, however much more is known of one than of
    another. The first interval of a number is of the width that its updates have had during the
    warm-up, over the root of one more than the number of objects in the cluster. Where rows prove
    to matter to other clusters after all, one cluster is drawn after another from then on.

    Parameters
    ----------
    vars : sequence of variables
        Free variables that labels have rows of, which are independent between labels.
    model, rng : optional
        As of `ClusterGibbs`.

    Raises
    ------
    UnservedModelError
        If the variables are not such rows, have more than a few numbers a label
        (`parts.MOST_SLICED`), or are offsets from what all labels share, as in
        ``middle + spread * offset[cluster]``: a step that moves all together, NUTS, is better then.

    Examples
    --------
    >>> counts = np.array([[3, 0], [2, 1], [0, 9], [1, 8]])
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
    ...     cluster = pm.Categorical("cluster", weights, shape=4)
    ...     rate = pm.HalfNormal("rate", 5.0, shape=(5, 2))
    ...     counted = pm.Poisson("counts", rate[cluster], observed=counts)
    ...
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.ClusterSlice)]
    [ClusterSlice(rate_log__)]
    """

    name = "cluster_slice"
    order = 110
    one_by_one = True
    _state_class = ClusterSliceState

    def __init__(self, vars, **kwargs):
        super().__init__(vars, **kwargs)
        self._forget()

    @classmethod
    def served(cls, part: Component) -> list[str]:
        """Names of the variables that labels have few numbers of."""
        return [n for own in part.of(Likelihoods) for rows in own.sliced for n in rows.names]

    def _together(self, wanted: list[str]) -> list[str]:
        """Variables may have different steps, but for those that belong to one label each."""
        return [
            name
            for own in self.part.of(Likelihoods)
            for rows in own.sliced
            for name in rows.names
            if set(rows.names) & set(wanted)
        ]

    def _prepare(self) -> None:
        super()._prepare()
        model, collapsed = self.model, Collapsed.of(self.model, self.part)
        self._collapsed = collapsed
        drawn = {model.values_to_rvs[value].name for value in self.vars}
        self._blocks: list[_Block] = []
        for state in collapsed.of_kind(LikelihoodState):
            for rows in state.evidence.sliced:
                if drawn & set(rows.names):
                    priors = self._priors(state.evidence, rows)
                    worth = state.by_label(rows.keys)
                    self._blocks.append(_Block(state.evidence, rows, priors, worth))

    def _priors(self, evidence: Likelihoods, rows: LabelRows) -> Callable[[Any], NDArray]:
        """Compile the log densities (T,) of some rows, and of rows that depend on them."""
        model, ancestry = self.model, Ancestry(self.model)
        variables = [model[name] for name in rows.names]
        below = {child for rv in variables for child in ancestry.children(rv)}
        parts = [rows, *(o for o in evidence.redrawn if below & {model[name] for name in o.names})]
        read = [prior_by_row(model, part)[1] for part in parts]
        return lambda point: np.sum([own(point).sum(axis=1) for own in read], axis=0)

    def _forget(self) -> None:
        """Forget what was learnt of scales."""
        start = initial_point(self.model)
        self.scale = np.ones(sum(block.rows.table(start).shape[1] for block in self._blocks))
        self.n_updates, self.tune, self.alone = 0, True, True

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        """Start a chain."""
        super().setup_chain(rng, tune, draws)
        self._forget()

    def stop_tuning(self) -> None:
        """Keep the widths of intervals."""
        self.tune = False

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new, labels = dict(point), self._collapsed.labels(point)
        self.n_updates += 1
        for number, (block, column) in enumerate(self._numbers(new)):
            evidence, rows, priors, worth = block
            own = labels[evidence.clustering]
            counts = np.bincount(own, minlength=evidence.truncation)
            table = rows.table(new)

            def log_densities(
                here, rows=rows, priors=priors, worth=worth, own=own, table=table, column=column
            ) -> tuple[NDArray[np.float64], float]:
                table[:, column] = here
                new.update(rows.written(new, table))
                with np.errstate(invalid="ignore"):
                    each, rest = worth(new, own)
                    return priors(new) + each, rest

            start, narrower = table[:, column].copy(), np.sqrt(1.0 + counts)
            found = self._drawn(start, self.scale[number] / narrower, log_densities)
            table[:, column] = found
            new.update(rows.written(new, table))
            if self.tune:
                moved = _WIDTH * np.mean(abs(found - start) * narrower)
                self.scale[number] += (moved - self.scale[number]) / min(self.n_updates, 50)
        return new, [{}]

    def _drawn(self, start: NDArray, width: NDArray, log_densities) -> NDArray[np.float64]:
        """Draw what labels have (T,), side by side, or one after another if they are not alone."""
        if self.alone:

            def side_by_side(values, wanted) -> NDArray[np.float64]:
                found = [np.add(*log_densities(here)) for here in values]
                return np.where(np.isnan(found), -np.inf, found)

            found, held = draw_slices(self.rng, start, width, side_by_side)
            if close(held, side_by_side(found[None], None)[0]).all():
                return found
            # Each was drawn while the others were somewhere else, and that matters.
            self.alone = False
        found = start.copy()
        for label in range(len(start)):

            def by_itself(values, wanted, label=label) -> NDArray[np.float64]:
                there = np.empty(values.shape)
                for value, own in zip(values, there, strict=True):
                    found[label] = value[0]
                    each, rest = log_densities(found)
                    own[0] = each.sum() + rest
                return np.where(np.isnan(there), -np.inf, there)

            one = slice(label, label + 1)
            found[one], _ = draw_slices(self.rng, start[one], width[one], by_itself)
        return found

    def _numbers(self, point) -> Iterator[tuple[_Block, int]]:
        """Yield what labels have one number of each."""
        for block in self._blocks:
            for column in range(block.rows.table(point).shape[1]):
                yield block, column
