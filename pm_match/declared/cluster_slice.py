"""Parameters of clusters that are not integrated out, drawn by slices, all clusters at once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType
from pymc.step_methods.state import dataclass_state

from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.step import PartitionStep, PartitionStepState
from pm_match.declared.numbers import Numbers, apart
from pm_match.declared.parts import Likelihoods
from pm_match.declared.rows import prior_by_row, prior_entered_by
from pm_match.declared.state import LikelihoodState
from pm_match.numerics.slices import draw_slices
from pm_match.reading.context import Context
from pm_match.reading.exchange import LabelRows
from pm_match.reading.owners import close
from pm_match.reading.parts import Component

# First intervals, in what one update moves a number by.
_WIDTH = 2.0


class _Group(NamedTuple):
    """Numbers of labels, none of which enters a log density that another one enters."""

    numbers: list[int]
    # from a point and labels to the log densities that each number enters: of the rows of each
    # label and its objects (T, n), and of the rest (n,)
    worth: Callable[[Any, NDArray[np.int64]], tuple[NDArray, NDArray]]


class _Block(NamedTuple):
    """What the labels of a clustering have."""

    evidence: Likelihoods
    numbers: Numbers
    groups: list[_Group]


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
    another; and for all numbers that enter no log density together, such as the means of columns.
    The first interval of a number is of the width that its updates have had during the warm-up,
    over the root of one more than the number of objects in the cluster. Where rows prove to matter
    to other clusters after all, one number is drawn after another from then on.

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
            rows = [own for own in state.evidence.sliced if drawn & set(own.names)]
            if rows:
                self._blocks.append(self._block(state, rows))

    def _block(self, state: LikelihoodState, rows: list[LabelRows]) -> _Block:
        """Group the numbers of some rows, by what they enter."""
        context = Context.of(self.model)
        numbers, model = Numbers(rows, context.start), context.model
        variables = [model[name] for own in rows for name in own.names]
        below = {child.name for child in context.ancestry.children(*variables)}
        # Rows may depend on rows.
        others = [own for own in state.evidence.redrawn if below & {*own.names}]
        parts, marked = [*dict.fromkeys([*rows, *others])], numbers.marked()
        entries = state.entered_by(context.start, marked)
        priors = [prior_entered_by(context, own, marked) for own in parts]
        read = [prior_by_row(model, own)[1] for own in parts]

        def group(some: list[int]) -> _Group:
            own = [(r, e[some]) for r, e in zip(read, priors, strict=True) if e[some].any()]
            worth = state.by_label(entries[some])

            def total(point, labels: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
                each, rest = worth(point, labels)
                for density, enters in own:
                    found = density(point)
                    each = each + np.stack(
                        [found[:, which].sum(axis=1) for which in enters], axis=1
                    )
                return each, rest

            return _Group(some, total)

        enters = np.concatenate([entries, *priors], axis=1)
        return _Block(state.evidence, numbers, [*map(group, apart(enters))])

    def _forget(self) -> None:
        """Forget what was learnt of scales."""
        self.scale = np.ones(sum(len(block.numbers) for block in self._blocks))
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
        first = 0
        for evidence, numbers, groups in self._blocks:
            own, table = labels[evidence.clustering], numbers.table(new)
            narrower = np.sqrt(1.0 + np.bincount(own, minlength=len(table)))[:, None]
            scale = self.scale[first : first + len(numbers)]
            first += len(numbers)
            for some, worth in groups:

                def log_densities(
                    here, numbers=numbers, worth=worth, own=own, table=table, some=some
                ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
                    table[:, some] = here
                    new.update(numbers.written(new, table))
                    with np.errstate(invalid="ignore"):
                        return worth(new, own)

                start = table[:, some]
                found = self._drawn(start, scale[some] / narrower, log_densities)
                table[:, some] = found
                new.update(numbers.written(new, table))
                if self.tune:
                    moved = _WIDTH * np.mean(abs(found - start) * narrower, axis=0)
                    scale[some] += (moved - scale[some]) / min(self.n_updates, 50)
        return new, [{}]

    def _drawn(self, start: NDArray, width: NDArray, log_densities) -> NDArray[np.float64]:
        """Draw numbers (T, n) side by side, or one after another if they are not alone."""
        shape = start.shape
        if self.alone:

            def side_by_side(values, wanted) -> NDArray[np.float64]:
                found = [np.add(*log_densities(here.reshape(shape))).ravel() for here in values]
                return np.where(np.isnan(found), -np.inf, found)

            found, held = draw_slices(self.rng, start.ravel(), width.ravel(), side_by_side)
            if close(held, side_by_side(found[None], None)[0]).all():
                return found.reshape(shape)
            # Each was drawn while the others were somewhere else, and that matters.
            self.alone = False
        found = start.copy()
        for place in np.ndindex(shape):

            def by_itself(values, wanted, place=place) -> NDArray[np.float64]:
                there = np.empty(values.shape)
                for value, own in zip(values, there, strict=True):
                    found[place] = value[0]
                    each, rest = log_densities(found)
                    own[0] = each[:, place[1]].sum() + rest[place[1]]
                return np.where(np.isnan(there), -np.inf, there)

            found[place] = draw_slices(self.rng, start[place][None], width[place][None], by_itself)[
                0
            ][0]
        return found
