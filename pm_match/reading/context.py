"""What the readers of the parts of a model share."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.logprob.transforms import IntervalTransform, LogOddsTransform, LogTransform
from pymc.model.core import Model
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.checks import LARGEST
from pm_match.reading.ancestry import (
    RV,
    Ancestry,
    Refusal,
    mean,
    missing_part,
    names,
    parameters,
    scale,
)
from pm_match.reading.laws import GAMMA
from pm_match.reading.probe import (
    Reader,
    compiled,
    evaluate,
    initial_point,
    point_function,
    stand_in,
    uncast,
)

# Transforms that leave shapes as they are.
_ENTRY_BY_ENTRY = (type(None), LogTransform, LogOddsTransform, IntervalTransform)

Array = NDArray[np.float64]
# From a point to two parameters of a prior there.
Prior = Callable[[Any], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class Context:
    """A model that is being read.

    What is made here of a model's graphs keeps no reference to the model.

    Attributes
    ----------
    model : pymc.Model
    ancestry : Ancestry
    start : dict
        Some point of the value variables.
    shapes : dict
        Shapes of the free variables, by name.
    """

    model: Model
    ancestry: Ancestry
    start: dict[str, NDArray]
    shapes: dict[str, tuple[int, ...]]
    _found: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> "Context":
        """Begin to read a model."""
        # By the names of the values: pm.Potential may have renamed a variable that it was given.
        free, initial = model.free_RVs, initial_point(model).values()
        start = {
            model.rvs_to_values[rv].name: np.asarray(value)
            for rv, value in zip(free, initial, strict=True)
        }
        shapes = {rv.name: start[model.rvs_to_values[rv].name].shape for rv in free}
        others = [rv for rv in free if not isinstance(model.rvs_to_transforms[rv], _ENTRY_BY_ENTRY)]
        values = point_function(model, others)(start)
        shapes |= {rv.name: value.shape for rv, value in zip(others, values, strict=True)}
        return cls(model, Ancestry(model), start, shapes)

    def once(self, find: Callable[..., Any], rv: RV) -> Any:
        """Return what a function of this and a variable finds, and found before."""
        if (find, rv) not in self._found:
            self._found[find, rv] = find(self, rv)
        return self._found[find, rv]

    # -- what is looked at ------------------------------------------------------------------------

    def key(self, rv: RV) -> str:
        """Return the name of a variable's value in points."""
        return self.model.rvs_to_values[rv].name

    def is_seen(self, rv: RV) -> bool:
        """Whether something is observed of a variable, or of what depends on it."""
        if rv in self.model.observed_RVs or rv in self.model.potentials:
            return True
        return any(self.is_seen(child) for child in self.ancestry.children(rv))

    def n_labels(self, rv: RV) -> int:
        """Return how many labels an assignment has: two if it is of zeros and ones."""
        if not isinstance(rv.owner.op, CategoricalRV):
            return 2
        return self.at([parameters(rv)[0]])(self.start)[0].shape[-1]

    def transformed(self, rv: RV) -> bool:
        """Whether a free variable is sampled on another scale than its own."""
        return self.model.rvs_to_transforms.get(rv) is not None

    def at(self, outputs: Sequence[RV], givens: Mapping[RV, Any] | None = None) -> Reader:
        """Make a function of a point that evaluates `outputs`, with `givens` set to constants."""
        return point_function(self.model, outputs, givens)

    def function(
        self, outputs: Sequence[RV], variables: Sequence[RV]
    ) -> Callable[[Mapping[RV, NDArray]], list[NDArray]]:
        """Make a function of values of `variables`, which are all that `outputs` depend on."""
        stands = {rv: stand_in(rv) for rv in variables}
        found, names = compiled(self.model, outputs, stands, [*stands.values()])
        assert not names
        return lambda values: found({}, *[values[rv] for rv in variables])

    def near(self, rng: np.random.Generator, spread: float) -> dict[str, NDArray]:
        """Draw a point as far from the start, where what is discrete stays as it is."""
        return {
            name: np.asarray(value + rng.normal(0.0, spread, value.shape), value.dtype)
            if value.dtype.kind == "f"
            else value
            for name, value in self.start.items()
        }

    def multiplied(self, point: Mapping[str, NDArray], rv: RV, factor: Any) -> dict[str, NDArray]:
        """Return a point where a positive variable is `factor` times what it is at another."""
        key = self.key(rv)
        own = point[key] + np.log(factor) if self.transformed(rv) else np.abs(point[key]) * factor
        return {**point, key: np.asarray(own)}

    def prior(
        self,
        graphs: Sequence[RV],
        finish: Callable[..., Any],
        givens: Mapping[RV, Any] | None = None,
    ) -> Callable[[Any], Any]:
        """Make a function of a point: what `finish` makes of the values of `graphs` there.

        What depends on no random variable, but for the `givens`, is read once and for all.
        """
        read = self.at(graphs, givens)

        def prior(point) -> Any:
            return finish(*(np.asarray(value, np.float64) for value in read(point)))

        if self.ancestry.of(graphs) - set(givens or ()):
            return prior
        constant = prior({})
        return lambda point: constant

    def normal_prior(
        self,
        rv: RV,
        arrange: Callable[[NDArray], NDArray] = np.asarray,
        givens: Mapping[RV, Any] | None = None,
    ) -> Prior:
        """Make a function of a point: mean and precision of every entry of a normal variable.

        Both have the shape that `arrange` makes of the variable's own.
        """
        shape = self.shapes[rv.name]

        def finish(centre, width) -> tuple[Array, Array]:
            found = np.broadcast_to(centre, shape), np.broadcast_to(width**-2.0, shape)
            return arrange(found[0]), arrange(found[1])

        return self.prior([mean(rv), scale(rv)], finish, givens)

    def gamma_prior(self, rv: RV) -> Prior:
        """Make a function of a point: shape and rate of every entry of a Gamma variable."""
        shape = self.shapes[rv.name]
        return self.prior(
            GAMMA.arguments(rv),
            lambda a, b: (np.broadcast_to(a, shape), np.broadcast_to(b, shape)),
        )

    # -- data -------------------------------------------------------------------------------------

    def is_missing(self, rv: RV) -> bool:
        """Whether a free variable holds the missing values of an observed one."""
        whole = rv.name.removesuffix("_unobserved")
        if whole == rv.name or rv not in self.model.free_RVs:
            return False
        return self.model.named_vars.get(f"{whole}_observed") in self.model.observed_RVs

    def whole_name(self, rv: RV) -> str:
        """Return the name of a variable, as the user gave it, that PyMC may have split."""
        if self.is_missing(rv):
            return rv.name.removesuffix("_unobserved")
        return rv.name if self.missing_part(rv) is None else rv.name.removesuffix("_observed")

    def missing_part(self, rv: RV) -> RV | None:
        """Return the free variable with the missing values of an observed one, if there are any."""
        return missing_part(self.model, rv)

    def order(self, rv: RV, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Say where in the whole the cells of an observed variable are, by number.

        Parameters
        ----------
        rv : variable
        shape : tuple of int
            Its own, but for the axis of a row that is one cell.

        Returns
        -------
        integer array
            In the shape of the whole: n for the n-th cell that is observed, -1 - n for the n-th
            that is missing.
        """
        missing, n = self.missing_part(rv), int(np.prod(shape))
        if missing is None:
            return np.arange(n).reshape(shape)
        rest = self.observed([rv]).shape[len(shape) :]
        own = np.arange(n).reshape(*shape, *(1 for _ in rest))
        others = -1 - np.arange(int(np.prod(self.shapes[missing.name][: len(shape)])))
        others = others.reshape(*self.shapes[missing.name][: len(shape)], *(1 for _ in rest))
        givens = {
            rv: np.broadcast_to(own, (*shape, *rest)),
            missing: np.broadcast_to(others, self.shapes[missing.name]),
        }
        (found,) = self.at([self.model[self.whole_name(rv)]], givens)({})
        found = found.reshape(*found.shape[: found.ndim - len(rest)], -1)[..., 0] if rest else found
        return np.asarray(found, np.int64)

    def uncast(self, rv: RV, values: Array) -> Array:
        """Return the values of an observed variable as `pm.Data` holds them, if they were cast."""
        held = self.model.rvs_to_values[rv]
        whole = uncast(held)
        return values if whole is held else np.asarray(evaluate(whole), np.float64)

    def observed(self, rvs: Sequence[RV]) -> Array:
        """Return the values of an observed variable, NaN where they are declared missing.

        Parameters
        ----------
        rvs : sequence of variables
            What is observed, and what holds the missing values if some are.
        """
        held = np.asarray(evaluate(self.model.rvs_to_values[rvs[0]]), np.float64)
        if len(rvs) == 1:
            return held
        whole = self.model[rvs[0].name.removesuffix("_observed")]
        holes = np.full(self.shapes[rvs[1].name], np.nan)
        return self.at([whole], {rvs[0]: held, rvs[1]: holes})({})[0]

    def table(
        self,
        rvs: Sequence[RV],
        instead: str = " where nothing is declared missing; missing values are NaN or masked",
    ) -> tuple[Array, NDArray[np.bool_] | None]:
        """Return the values of an observed variable, and where they are observed.

        Refuses what is not finite, and says what is expected `instead`.

        Returns
        -------
        values : array
            Zero where they are missing.
        seen : array of bool or None
            None if none is missing.
        """
        held = self.observed(rvs[:1])
        if not np.isfinite(held).all():
            name = rvs[0].name.removesuffix("_observed") if len(rvs) > 1 else rvs[0].name
            raise Refusal(f"{name!r} holds {held[~np.isfinite(held)][0]}{instead}")
        if held.size and np.abs(held).max() > LARGEST:
            raise Refusal(
                f"{rvs[0].name!r} holds {held.flat[np.abs(held).argmax()]:g}; expected numbers of "
                f"at most {LARGEST:g} in size: use another unit"
            )
        if len(rvs) == 1:
            return np.ascontiguousarray(held), None
        values = self.observed(rvs)
        seen = np.isfinite(values)
        return np.ascontiguousarray(np.where(seen, values, 0.0)), seen

    # -- what is expected -------------------------------------------------------------------------

    def must_be_free(self, rv: RV) -> None:
        """Refuse an observed variable where a free one is expected."""
        if rv not in self.model.free_RVs:
            raise Refusal(f"{rv.name!r} is observed; expected a free variable")

    def is_gamma(self, rv: RV) -> bool:
        """Whether a variable is a Gamma whose conditional steps may draw."""
        return (
            rv in self.model.free_RVs
            and GAMMA.has(rv)
            and rv.dtype == "float64"
            and isinstance(self.model.rvs_to_transforms[rv], LogTransform | None)
        )

    def discrete(self, graphs: Iterable[RV]) -> set[RV]:
        """Return the free discrete variables that `graphs` depend on directly.

        What is read at a point says nothing of the values that they do not have there.
        """
        return {
            rv
            for rv in self.ancestry.of(graphs)
            if rv in self.model.free_RVs and not rv.dtype.startswith("float")
        }

    def must_be_untransformed(self, rv: RV, transforms: tuple[type, ...] = ()) -> None:
        """Refuse transforms other than `transforms`, PyMC's default ones."""
        transform = self.model.rvs_to_transforms.get(rv)
        if transform is not None and type(transform) not in transforms:
            raise Refusal(
                f"{rv.name!r} has the transform {type(transform).__name__}; expected PyMC's "
                "default or none"
            )

    def must_be_plain(
        self, rv: RV, transforms: tuple[type, ...], discrete: Collection[RV] = ()
    ) -> None:
        """Refuse transforms, discrete parents and precisions that the steps do not provide for.

        Parameters
        ----------
        rv : variable
        transforms : tuple of type
            PyMC's default transforms for it.
        discrete : collection of variables
            The discrete parents that are expected.
        """
        self.must_be_untransformed(rv, transforms)
        others = [
            p
            for p in self.ancestry.parents[rv]
            if p not in discrete and not p.dtype.startswith("float")
        ]
        if others:
            verb = "is" if len(others) == 1 else "are"
            raise Refusal(f"{rv.name!r} depends on {names(others)}, which {verb} discrete")
        if rv.dtype != "float64":
            raise Refusal(f"{rv.name!r} is {rv.dtype}; expected float64 (PyTensor's floatX)")
