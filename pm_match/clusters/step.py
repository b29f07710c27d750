"""What the steps share: finding the part of the model that they serve, and going to workers."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType
from pymc.model.core import Model, modelcontext
from pymc.step_methods.compound import (
    BlockedStep,
    Competence,
    CompoundStep,
    StepMethodState,
)
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars

from pm_match.checks import warn
from pm_match.numerics.ahead import Job, compile_ahead
from pm_match.progress import say
from pm_match.reading import read
from pm_match.reading.clusterings import over_weights
from pm_match.reading.declared_draws import DeclaredDensity, looked_at
from pm_match.reading.parts import Clustering, Structure, UnservedModelError


@dataclass_state
class PartitionStepState(StepMethodState):
    """What a chain changes in a step, besides its generator."""

    started: bool


def statistics(*names: str, **types: type) -> dict[str, Any]:
    """Declare sampler statistics: numbers of the `types` given, floats if none is."""
    return {name: (kind, []) for name, kind in (dict.fromkeys(names, np.float64) | types).items()}


def occupancy(clusterings: Sequence[Clustering], counts: Iterable[NDArray]) -> dict[str, Any]:
    """Count the clusters that hold something, and take the largest share of a truncation.

    `counts` has the sizes (T,) of the clusters of every one of the `clusterings`.
    """
    occupied = [int(np.count_nonzero(own)) for own in counts]
    filled = [
        n / own.truncation for n, own in zip(occupied, clusterings, strict=True) if not own.finite
    ]
    return {"n_occupied": sum(occupied), "filled": max(filled, default=0.0)}


class PartitionStep(BlockedStep):
    """A step on the variables of one recognised part of a model.

    Subclasses say what `record` they are for, a part or evidence of a `Structure` (by default its
    components), and which variables of one they serve. Arguments of their constructors are kept in
    attributes of the same names.
    """

    record: ClassVar[type | None] = None
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}
    _state_class = PartitionStepState
    _announces = False
    # Whether the variables of a part may have different steps.
    one_by_one = False
    default_blocked = True
    # When it takes its turn in an iteration. The clusters come last: all that they integrate out is
    # then drawn given everything else's draws.
    order: ClassVar[int] = 50
    # Whether it maximises where others draw, which makes the chain stochastic EM.
    maximises: ClassVar[bool] = False
    _n_steps = 0
    _declared: DeclaredDensity | None = None

    def __repr__(self) -> str:
        names = ", ".join(str(variable.name) for variable in self.vars)
        return f"{type(self).__name__}({names})"

    def __new__(cls, vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a step; of variables of several parts, a compound of one step for each part.

        PyMC gives a step that it chooses itself all variables that it is competent for.
        """
        model = modelcontext(kwargs.get("model"))
        number_of = {
            name: number
            for number, part in enumerate(cls.parts(read(model)))
            for name in cls.served(part)
        }
        groups: dict[int | None, list[Any]] = {}
        for var in vars if isinstance(vars, tuple | list) else [vars]:
            name = getattr(model.values_to_rvs.get(var, var), "name", "")
            groups.setdefault(number_of.get(name), []).append(var)
        if len(groups) < 2 or None in groups:
            return super().__new__(cls, vars, *args, **kwargs)
        rngs = get_random_generator(kwargs.pop("rng", None)).spawn(len(groups))
        own = zip(groups.values(), rngs, strict=True)
        return CompoundStep([cls(group, *args, rng=rng, **kwargs) for group, rng in own])

    def __init__(
        self,
        vars: Sequence[Any],
        *,
        model: Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ):
        model = modelcontext(model)
        self.model = model
        self.vars = get_value_vars_from_user_vars(vars, model)
        self.rng = get_random_generator(rng)
        self.blocked = blocked
        self.started = False
        self.part = self._find(read(model))
        names = self._together([model.values_to_rvs[value].name for value in self.vars])
        self.vars = [model.rvs_to_values[model[name]] for name in names]
        self._prepare()
        if compile_ahead(self.kernels()):
            say("Compiling (first use only)")

    @classmethod
    def parts(cls, structure: Structure) -> list[Any]:
        """Return the parts of a model that have variables for the step."""
        found: Iterable[Any] = structure.components
        if cls.record is not None:
            evidence = (own for component in found for own in component.evidence)
            found = [p for p in (*structure.parts, *evidence) if isinstance(p, cls.record)]
        return [part for part in found if cls.served(part)]

    @classmethod
    def served(cls, part: Any) -> list[str]:
        """Names of the variables of a part that the step serves."""
        return part.names

    @classmethod
    def writes(cls, structure: Structure, part: Any) -> list[str]:
        """Names of the variables that the step must write besides those that it serves."""
        return []

    @classmethod
    def keeping(cls, structure: Structure, part: Any, kept: set[str]) -> dict[str, Any]:
        """Return arguments with which the step leaves the variables `kept` as they are.

        Raises
        ------
        UnservedModelError
            If it has to write some of them.
        """
        written = sorted(kept.intersection(cls.writes(structure, part)))
        if written:
            raise UnservedModelError(
                f"{cls.__name__}, which draws {cls.served(part)}, writes {written} too, and a "
                "given step holds these: give a step for both or for neither."
            )
        return {}

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        if structure.refusals:
            return structure.explain()
        served = [name for part in cls.parts(structure) for name in cls.served(part)]
        return f"it serves {', '.join(map(repr, served)) or 'nothing in this model'}"

    def _together(self, wanted: list[str]) -> list[str]:
        """Return all variables that the step draws if some are `wanted`: the whole part."""
        return self.served(self.part)

    def _find(self, structure: Structure) -> Any:
        wanted = {self.model.values_to_rvs[value].name for value in self.vars}
        for part in self.parts(structure):
            if wanted <= set(self.served(part)):
                return part
        served = [name for part in self.parts(structure) for name in self.served(part)]
        stranger = sorted(wanted - set(served)) or sorted(wanted)
        raise UnservedModelError(
            f"{type(self).__name__} cannot serve {', '.join(map(repr, stranger))}: "
            f"{self.why_not(structure, stranger[0])}."
        )

    def _prepare(self) -> None:
        """Compile and allocate: called at construction, and again in every new process."""

    def _look(self, point: PointType) -> None:
        """Hold a draw against the declared density, the 2nd, 4th, 8th, 16th, ... of a chain."""
        self._n_steps += 1
        if looked_at(self._n_steps):
            if self._declared is None:
                self._declared = self._density()
            with np.errstate(all="ignore"):
                self._check_draw(self._declared, point)

    def _density(self) -> DeclaredDensity:
        """Make the declared density of all that a draw enters."""
        return DeclaredDensity(self.model, self.served(self.part))

    def _check_draw(self, declared: DeclaredDensity, point: PointType) -> None:
        """Raise `UnservedModelError` if a draw has another density than the declared one."""
        declared.check(point, self._log_densities(point))

    def _log_densities(self, point: PointType) -> list[float]:
        """List what `_density` adds up of at a draw, as the model was read."""
        raise NotImplementedError

    def kernels(self) -> list[Job]:
        """List what `step` calls and `_prepare` has not compiled, so that it can be ahead."""
        return []

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is compiled or large: another process makes it anew from the model."""
        changing = {field.name for field in fields(self._state_class)} - {"var_names"}
        kept = {"vars", "blocked", "stats_dtypes", "stats_dtypes_shapes", *changing}
        state = {key: value for key, value in self.__dict__.items() if key in kept}
        state["_settings"] = self.settings()
        state["model"] = self.model
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        settings = state.pop("_settings")
        self.__dict__.update(state, **settings)
        self.part = self._find(read(self.model))
        self._prepare()

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor that are the step's own."""
        given = [
            parameter.name
            for cls in type(self).__mro__
            if issubclass(cls, PartitionStep) and "__init__" in vars(cls)
            for parameter in signature(cls.__init__).parameters.values()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        return {name: getattr(self, name) for name in given if name not in ("self", "vars")}

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain."""
        super().setup_chain(rng, tune, draws)
        self.started, self._n_steps = False, 0
        part = self._find(read(self.model))
        if part is not self.part:
            # The model has other data than when the step was made.
            self.part, self._declared = part, None
            self._prepare()

    @classmethod
    def competence(cls, var: Any, has_grad: bool) -> Competence:
        """Claim, inside a model context, exactly the variables that the step serves there."""
        try:
            model = modelcontext(None)
        except TypeError:
            model = None
        if model is None or var not in model.free_RVs:
            # One of the steps speaks for all.
            if cls._announces and over_weights(var):
                warn(
                    f"pm_match cannot see the model that {var.name!r} belongs to, and leaves it to "
                    "PyMC. If it is a matching model, call pm.sample() inside `with model:`, "
                    "or call pm_match.sample()."
                )
            return Competence.INCOMPATIBLE
        try:
            structure = read(model, binary=False).recognised
            # Models without an assignment are PyMC's, unless `pm_match.sample` is asked.
            parts = cls.parts(structure) if structure.all_clusterings else []
        except Exception as error:
            # Whatever goes wrong in reading it, somebody else's model must not suffer.
            warn(f"pm_match could not read the model, and leaves {var.name!r} to PyMC: {error!r}.")
            return Competence.INCOMPATIBLE
        for part in parts:
            if var.name in cls.served(part):
                return Competence.IDEAL
        return Competence.INCOMPATIBLE
