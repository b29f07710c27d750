"""The draws of a chain, as PyMC keeps them, without anything to compile."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.backends import NDArray as Trace

from pm_match.reading.probe import initial_point, over_points

# Numbers that are worked on at once.
_BATCH = 2**21


class Draws(Trace):
    """PyMC's trace, which computes what depends on the draws of many draws at once.

    PyMC's own compiles a function of a point, that of all transforms and deterministic variables,
    and calls it after every draw. To compile it can take longer than all else before the first
    draw. Here a draw is only copied; what depends on it is computed when it is asked for, and at
    the end of the chain.

    Parameters
    ----------
    model : pymc.Model
    vars : list of variables, optional
        Graphs of value variables that are kept. Default: the model's `unobserved_value_vars`.
    test_point : mapping, optional
        A point of all value variables. Default: the model's initial one.
    labels : collection of str, default ()
        Names of variables that are kept in 32 bits: half the memory.
    tuned : bool, default True
        Whether draws while tuning are kept. If not, there is room for them in `samples`, which is
        never written to, and takes no memory.
    """

    def __init__(
        self,
        name: str | None = None,
        model: pm.Model | None = None,
        vars: list[Any] | None = None,
        test_point: Mapping[str, Any] | None = None,
        labels: Collection[str] = (),
        tuned: bool = True,
        **known: Any,
    ):
        model = pm.modelcontext(model)
        vars = model.unobserved_value_vars if vars is None else vars
        if not known:
            if test_point is None:
                test_point = initial_point(model)
            point = {str(v.name): np.asarray(test_point[v.name], v.dtype) for v in model.value_vars}
            computed = [v for v in vars if v.name not in point]
            self._compute, values = over_points(model, computed, point)
            self._computed = [str(v.name) for v in computed]
            self._point = point
            at = point | dict(zip(self._computed, values, strict=True))
            known = {
                # What PyMC calls after every draw: there is nothing to be done.
                "fn": lambda *values: (),
                "var_shapes": {v.name: at[v.name].shape for v in vars},
                "var_dtypes": {
                    v.name: np.dtype(np.int32) if v.name in labels else at[v.name].dtype
                    for v in vars
                },
            }
        super().__init__(name, model, vars, test_point, **known)
        self._tuned = tuned
        # Draws whose dependants are computed.
        self._done = 0
        self._values: dict[str, NDArray] = {}

    def setup(self, draws: int, chain: int, sampler_vars: Any = None) -> None:
        """Make room for the draws of a chain."""
        # PyMC copies one trace for all chains.
        self.samples: dict[str, NDArray] = {}
        super().setup(draws, chain, sampler_vars)
        self._values = {
            name: self.samples[name]
            if name in self.samples
            else np.empty((draws, *value.shape), value.dtype)
            for name, value in self._point.items()
        }

    def record(self, point: Any, sampler_stats: Any = None, *, in_warmup: bool) -> None:
        """Keep a draw."""
        if in_warmup and not self._tuned:
            self._done = self.draw_idx + 1
        else:
            for name, values in self._values.items():
                values[self.draw_idx] = point[name]
        super().record(point, sampler_stats, in_warmup=in_warmup)

    def _catch_up(self) -> None:
        """Compute what depends on the draws since the last time."""
        size = sum(own[:1].size for own in (*self._values.values(), *self.samples.values()))
        step = max(_BATCH // max(size, 1), 1)
        while self._done < self.draw_idx and self._values:
            now = slice(self._done, min(self._done + step, self.draw_idx))
            points = {
                name: own[now].astype(self._point[name].dtype, copy=False)
                for name, own in self._values.items()
            }
            found = self._compute(points)
            for name, values in zip(self._computed, found, strict=True):
                self.samples[name][now] = values
            self._done = now.stop

    def close(self) -> None:
        """End the chain."""
        self._catch_up()
        super().close()

    def get_values(self, varname: str, burn: int = 0, thin: int = 1) -> NDArray:
        """Return the draws of a variable."""
        self._catch_up()
        return super().get_values(varname, burn, thin)

    def point(self, idx: int) -> dict[str, Any]:
        """Return one draw of all variables."""
        self._catch_up()
        return super().point(idx)

    def _slice(self, idx: slice) -> Any:
        self._catch_up()
        return super()._slice(idx)
