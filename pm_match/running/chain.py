"""One chain: all steps of an iteration as one step, which can be stopped, saved and restored."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType
from pymc.model.core import Model
from pymc.sampling.mcmc import (
    assign_step_methods,
    instantiate_steppers,
    resolve_backend_compile_kwargs,
)
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps
from pymc.util import get_random_generator

from pm_match.reading.probe import density_graphs, starts, untraced
from pm_match.running.checkpoint import Checkpoint
from pm_match.running.interrupt import Interrupt
from pm_match.running.plain_values import unpacked
from pm_match.running.record import Record

type Step = BlockedStep | CompoundStep


class ChainSteps(CompoundStep):
    """All steps of an iteration, for one chain after another.

    Whatever runs chains takes it for a step: `setup_chain`, then `step` for every draw, in any
    process. It draws what PyMC draws with these steps, bit for bit. Draws that are on disk it gives
    once more; then it goes on as if it had just made the last of them.

    `interrupt`: once it was asked to stop, no chain goes on; `checkpoint`: where draws are kept,
    with all that the steps change; `thin`: how often all steps are performed for each draw.
    """

    def __init__(
        self,
        methods: Sequence[Step],
        interrupt: Interrupt,
        checkpoint: Checkpoint | None = None,
        thin: int = 1,
    ):
        super().__init__(methods)
        self._thin = thin
        self._interrupt, self._checkpoint = interrupt, checkpoint
        self._record: Record | None = None

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain."""
        rng = get_random_generator(rng, copy=False)
        self._interrupt.leave_to_parent()
        if self._checkpoint is not None:
            self._record = self._checkpoint.record(rng, tune + draws)
        tune, draws = tune * self._thin, draws * self._thin
        if len(self.methods) == 1:
            # PyMC gives a step that is alone the chain's generator itself.
            self.methods[0].setup_chain(rng, tune, draws)
        else:
            super().setup_chain(rng, tune, draws)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform all steps, or give the next draw on disk."""
        if self._interrupt.asked:
            raise KeyboardInterrupt
        record = self._record
        if record is None:
            return self._draw(point)
        again = record.next()
        if again is not None:
            state = record.state_at_end()
            if state is not None:
                self._restore(state, again[1])
            return again
        point, stats = self._draw(point)
        if record.add(point, stats):
            self.save()
        return point, stats

    def _draw(self, point: PointType) -> tuple[PointType, StatsType]:
        for _ in range(self._thin):
            point, stats = super().step(point)
        return point, stats

    def save(self) -> None:
        """Write the draws that are not on disk yet, if there is a checkpoint."""
        if self._record is not None and self._record.unsaved:
            self._record.save(self.sampling_state)

    def _restore(self, state: tuple[Any, list[NDArray]], stats: StatsType) -> None:
        """Bring the steps into the state that they were in after a draw."""
        steps: Any = self
        steps.sampling_state = unpacked(*state, steps.sampling_state)
        for method, own in zip(flatten_steps(self), stats, strict=True):
            if hasattr(method, "divergences"):
                # PyMC counts them for its statistics, and leaves them out of its state.
                method.divergences = int(own["divergences"])


def all_steps(
    model: Model,
    steps: Sequence[Step],
    step_kwargs: Mapping[str, Any],
    *,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
) -> list[Step]:
    """Add to some steps those that PyMC chooses for the variables that they leave.

    `step_kwargs`, `backend`, `compile_kwargs`: what `pm.sample` was given for the steps that it
    makes. What is for NUTS is of no use where nothing is left to it.
    """
    served, own = {value for step in steps for value in step.vars}, dict(step_kwargs)
    if "target_accept" in own:
        if "target_accept" in own.get("nuts", {}):
            raise ValueError("target_accept: expected it once; found it, and one in nuts=")
        own["nuts"] = {"target_accept": own.pop("target_accept"), **own.get("nuts", {})}
    if served.issuperset(model.value_vars):
        own.pop("nuts", None)
        if not own:
            return list(steps)
    # PyMC makes the graph of the whole log density, and will again.
    with model, untraced(model):
        provided, selected = assign_step_methods(model, list(steps))
        made = instantiate_steppers(
            model,
            provided,
            selected,
            step_kwargs=own,
            compile_kwargs=resolve_backend_compile_kwargs(backend, compile_kwargs),
        )
    return made if isinstance(made, list) else [made]


@contextmanager
def asked_less(model: Model) -> Iterator[None]:
    """Let a model give `pm.sample` what it has given before meanwhile.

    It begins with the graph of the whole log density, for variables without steps, even where all
    have one; and it compiles a function that gives starts as they are given.
    """
    own = vars(model)

    def logp(*args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return type(model).logp(model, *args, **kwargs)
        return density_graphs(model, [*model.basic_RVs, *model.potentials])

    def make_initial_point(
        *, overrides: Any = None, jitter_rvs: Any = None, return_transformed: bool = True
    ) -> Any:
        if return_transformed:
            return starts(model, jitter_rvs or (), overrides)
        return type(model)._make_initial_point(
            model, overrides=overrides, jitter_rvs=jitter_rvs, return_transformed=False
        )

    instead: dict[str, Any] = {"_make_initial_point": make_initial_point, "logp": logp}
    # What the user has put in these places stays.
    instead = {name: function for name, function in instead.items() if name not in own}
    own |= instead
    try:
        yield
    finally:
        for name in instead:
            own.pop(name, None)
