"""What the steps share: finding their partition in the model, and reading and writing points."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model, modelcontext
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.partition.stick_breaking import log_weights
from pm_match.structure import (
    WEIGHTS,
    ProjectedPartition,
    Structure,
    UnservedModelError,
    natural_function,
    read,
)

# In logs: how far above the smallest float weights are kept.
_MARGIN = 18.0


@dataclass_state
class PartitionStepState(StepMethodState):
    """What a chain changes in a step, besides its generator."""

    started: bool


class PartitionStep(BlockedStep):
    """A step on the variables of one recognised partition.

    Subclasses say which variables of a `Structure` they serve (`served`) and how they `update` a
    point.
    """

    _state_class = PartitionStepState
    _announces = False
    default_blocked = True

    def __init__(
        self,
        vars: Sequence[Any],
        *,
        model: Model | None = None,
        rng=None,
        initial_point=None,
        compile_kwargs=None,
        blocked: bool = True,
    ):
        model = modelcontext(model)
        self.model = model
        self.vars = get_value_vars_from_user_vars(vars, model)
        self.rng = get_random_generator(rng)
        self.blocked = blocked
        self.started = False
        self.partition = self._find(read(model))
        # Whatever is named, the step draws all that belongs together: complete the variables.
        names = self.served(self.partition)
        self.vars = [model.rvs_to_values[model[name]] for name in names]
        self._prepare()

    @classmethod
    def served(cls, partition: ProjectedPartition) -> list[str]:
        """Names of the variables of `partition` that the step serves."""
        raise NotImplementedError

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        if structure.refusals:
            return structure.explain()
        served = [name for partition in structure.partitions for name in cls.served(partition)]
        return f"it serves {', '.join(map(repr, served)) or 'nothing in this model'}"

    def _find(self, structure: Structure) -> ProjectedPartition:
        wanted = {self.model.values_to_rvs[value].name for value in self.vars}
        for partition in structure.partitions:
            if wanted <= set(self.served(partition)):
                return partition
        served = [name for p in structure.partitions for name in self.served(p)]
        stranger = sorted(wanted - set(served)) or sorted(wanted)
        raise UnservedModelError(
            f"{type(self).__name__} cannot serve {', '.join(map(repr, stranger))}: "
            f"{self.why_not(structure, stranger[0])}."
        )

    def _prepare(self) -> None:
        """Compile and allocate: called at construction, and again in every new process."""
        partition = self.partition
        # Beside the projections, only the missing values and the labels are read from a point.
        self._projections = natural_function(
            self.model, [domain.projection for domain in partition.domains]
        )
        # The recogniser admits PyMC's default transforms and none.
        self._transformed = {
            name: self.model.rvs_to_transforms[self.model[name]] is not None
            for name in (partition.weights, partition.precision)
        }
        self._value_of = {
            name: self.model.rvs_to_values[self.model[name]]
            for name in [*partition.collapsed, *(d.projection for d in partition.domains)]
        }

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is compiled or large: another process makes it anew from the model."""
        changing = {field.name for field in fields(self._state_class)} - {"var_names"}
        kept = {"vars", "blocked", "stats_dtypes", "stats_dtypes_shapes", *changing}
        state = {key: value for key, value in self.__dict__.items() if key in kept}
        state["_settings"] = self.settings()
        state["model"] = self.model
        state["_BlockedStep__newargs"] = self._BlockedStep__newargs
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        settings = state.pop("_settings")
        self.__dict__.update(state, **settings)
        self.partition = self._find(read(self.model))
        self._prepare()

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor that `_prepare` does not know."""
        return {}

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        """Start a chain."""
        super().setup_chain(rng, tune, draws)
        self.started = False
        partition = self._find(read(self.model))
        if partition is not self.partition:
            # The model has other data than when the step was made.
            self.partition = partition
            self._prepare()

    # -- points -----------------------------------------------------------------------------------

    def labels(self, point: Mapping[str, NDArray]) -> list[NDArray[np.int64]]:
        """Read the labels of every domain's objects from a point."""
        return [
            np.asarray(point[self._value_of[domain.assignment].name], np.int64)
            for domain in self.partition.domains
        ]

    def projections(self, point: Mapping[str, NDArray]) -> list[NDArray[np.float64]]:
        """Read every domain's projection (M_d, K) from a point."""
        return [
            np.ascontiguousarray(w.T if domain.transposed else w, dtype=np.float64)
            for domain, w in zip(self.partition.domains, self._projections(point), strict=True)
        ]

    def write(self, point: dict[str, NDArray], values: Mapping[str, Any]) -> None:
        """Write variables, by name and in the space that is sampled, into a new `point`."""
        for name, value in values.items():
            variable = self._value_of[name]
            point[variable.name] = np.asarray(value, dtype=variable.dtype)

    def write_projections(self, point, projections) -> None:
        """Write the projections (M_d, K) that are ours to update into a new `point`."""
        self.write(
            point,
            {
                domain.projection: w.T if domain.transposed else w
                for domain, w in zip(self.partition.domains, projections, strict=True)
                if domain.update is not None
            },
        )

    def write_weights(self, point, log_sticks, log_rests) -> None:
        """Write the weights, or the sticks that break them, given as logs."""
        partition = self.partition
        transformed = self._transformed[partition.weights]
        if partition.sticks:
            value = log_sticks - log_rests if transformed else np.exp(log_sticks)
        else:
            logs = log_weights(log_sticks, log_rests)
            # PyMC's density of weights is only finite while they can be told from zero.
            least = np.log(np.finfo(self._value_of[partition.weights].dtype).tiny) + _MARGIN
            if partition.free_weights_prior and logs.min() < least:
                warnings.warn(
                    f"a weight in {partition.weights!r} is too small for a float, which biases the "
                    "variables that its prior depends on: declare fewer clusters, or the sticks "
                    "themselves as pm.Beta, which have no such limit.",
                    UserWarning,
                    stacklevel=2,
                )
            logs = np.maximum(logs, least)
            value = logs[:-1] - logs.mean() if transformed else np.exp(logs - _log_sum(logs))
        self.write(point, {partition.weights: value})

    def write_latent(self, point, alpha, latent) -> None:
        """Write precision and latent vectors (T, K)."""
        partition = self.partition
        if not (np.isfinite(alpha) and alpha > 0.0 and np.isfinite(latent).all()):
            raise FloatingPointError(
                f"{partition.precision!r} or {partition.latent!r} is not finite any more: the data "
                "or the projections are on too extreme a scale."
            )
        precision = np.log(alpha) if self._transformed[partition.precision] else alpha
        written = latent.T if partition.latent_transposed else latent
        self.write(point, {partition.precision: precision, partition.latent: written})

    def write_missing(self, rng, point, labels, projections, alpha, latent) -> None:
        """Draw the missing values given all else, and write them."""
        for domain, label, w in zip(self.partition.domains, labels, projections, strict=True):
            if domain.missing is None or domain.data.observed is None:
                continue
            row, column = np.nonzero(~domain.data.observed)
            mean = np.einsum("ik,ik->i", latent[label[row]], w[column])
            noise = rng.standard_normal(len(mean))
            self.write(point, {domain.missing: mean + alpha**-0.5 * noise})

    @classmethod
    def competence(cls, var, has_grad) -> Competence:
        """Claim, inside a model context, exactly the variables that the step serves there."""
        try:
            model = modelcontext(None)
        except TypeError:
            # One of the steps speaks for all.
            if cls._announces and _looks_like_ours(var):
                warnings.warn(
                    f"pm_match cannot see the model that {var.name!r} belongs to, and leaves it to "
                    "PyMC. If it is a matching model, call pm.sample() inside `with model:`, "
                    "or call pm_match.sample().",
                    UserWarning,
                    stacklevel=2,
                )
            return Competence.INCOMPATIBLE
        if var not in model.free_RVs:
            return Competence.INCOMPATIBLE
        try:
            partitions = read(model).partitions
        except Exception as error:
            # Whatever goes wrong in reading it, somebody else's model must not suffer.
            warnings.warn(
                f"pm_match could not read the model, and leaves {var.name!r} to PyMC: {error!r}.",
                UserWarning,
                stacklevel=2,
            )
            return Competence.INCOMPATIBLE
        for partition in partitions:
            if var.name in cls.served(partition):
                return Competence.IDEAL
        return Competence.INCOMPATIBLE


def _log_sum(logs):
    top = logs.max()
    return top + np.log(np.exp(logs - top).sum())


def _looks_like_ours(variable) -> bool:
    """Whether a variable is an assignment over random weights: all that shows without its model."""
    node = getattr(variable, "owner", None)
    if node is None or not isinstance(node.op, CategoricalRV):
        return False
    return any(
        v.owner is not None and isinstance(v.owner.op, WEIGHTS)
        for v in ancestors([node.inputs[-1]])
    )
