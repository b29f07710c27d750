"""The draws of a chain, as PyMC keeps them, without anything to compile."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.backends import NDArray as Trace

from pm_match.reading.probe import initial_point, over_points
from pm_match.running.landmarks import Counts, Landmarks

# Numbers that are worked on at once.
_BATCH = 2**21


class Draws(Trace):
    """PyMC's trace, which computes what depends on the draws of many draws at once.

    PyMC's own compiles a function of a point, that of all transforms and deterministic variables,
    and calls it after every draw. To compile it can take longer than all else before the first
    draw. Here a draw is only copied; what depends on it is computed when it is asked for, and
    when enough draws have been made.

    `vars`: graphs of value variables that are kept (default: the model's `unobserved_value_vars`);
    `test_point`: of all value variables (default: the model's initial one); `types`: in which some
    variables are kept, if not their own. Draws while tuning are kept if `tuned`; if not, there is
    room for them in `samples`, which is never written to, and takes no memory. Of the labels of
    draws after tuning, `counts` has by chain what is counted with `landmarks`.
    """

    def __init__(
        self,
        name: str | None = None,
        model: pm.Model | None = None,
        vars: list[Any] | None = None,
        test_point: Mapping[str, Any] | None = None,
        types: Mapping[str, np.dtype] | None = None,
        tuned: bool = True,
        landmarks: Sequence[Landmarks] = (),
        **known: Any,
    ):
        model = pm.modelcontext(model)
        vars = model.unobserved_value_vars if vars is None else vars
        if not known:
            if test_point is None:
                test_point = initial_point(model)
            point = {str(v.name): np.asarray(test_point[v.name], v.dtype) for v in model.value_vars}
            counted = {name for own in landmarks for name in own.variables}
            others = {v.name: v for v in model.unobserved_value_vars if v.name in counted}
            computed = [v for v in (others | {v.name: v for v in vars}).values()]
            computed = [v for v in computed if v.name not in point]
            self._compute, values = over_points(model, computed, point)
            self._computed = [str(v.name) for v in computed]
            self._point = point
            at = point | dict(zip(self._computed, values, strict=True))
            known = {
                # What PyMC calls after every draw: there is nothing to be done.
                "fn": lambda *values: (),
                "var_shapes": {v.name: at[v.name].shape for v in vars},
                "var_dtypes": {v.name: (types or {}).get(v.name, at[v.name].dtype) for v in vars},
            }
        super().__init__(name, model, vars, test_point, **known)
        self._tuned = tuned
        self.landmarks = landmarks
        self.counts: dict[int, list[Counts]] = {}
        # Draws whose dependants are computed, how many may wait for that, and those while tuning.
        self._done = self._room = self._n_tuned = 0
        # Where value variables are kept, and where those are that are not, until all is computed.
        self._kept: dict[str, NDArray] = {}
        self._passing: dict[str, NDArray] = {}

    def setup(self, draws: int, chain: int, sampler_vars: Any = None) -> None:
        """Make room for the draws of a chain."""
        # PyMC copies one trace for all chains.
        self.samples: dict[str, NDArray] = {}
        super().setup(draws, chain, sampler_vars)
        size = sum(own.size for own in self._point.values())
        size += sum(own[:1].size for own in self.samples.values())
        self._room = min(max(_BATCH // max(size, 1), 1), max(draws, 1))
        self._kept = {name: self.samples[name] for name in self._point if name in self.samples}
        self._passing = {
            name: np.empty((self._room, *value.shape), value.dtype)
            for name, value in self._point.items()
            if name not in self._kept
        }
        self.counts[chain] = [Counts(own, draws) for own in self.landmarks]

    def record(self, point: Any, sampler_stats: Any = None, *, in_warmup: bool) -> None:
        """Keep a draw."""
        if in_warmup:
            self._n_tuned = self.draw_idx + 1
        if in_warmup and not self._tuned:
            self._done = self.draw_idx + 1
        else:
            for name, values in self._kept.items():
                values[self.draw_idx] = point[name]
            for name, values in self._passing.items():
                values[self.draw_idx - self._done] = point[name]
        super().record(point, sampler_stats, in_warmup=in_warmup)
        if self.draw_idx - self._done == self._room:
            self._catch_up()

    def _catch_up(self) -> None:
        """Compute what depends on the draws since the last time."""
        first, n = self._done, self.draw_idx - self._done
        if n <= 0 or not self._room:
            return
        now = slice(first, self.draw_idx)
        points = {name: own[:n] for name, own in self._passing.items()} | {
            name: own[now].astype(self._point[name].dtype, copy=False)
            for name, own in self._kept.items()
        }
        found = dict(zip(self._computed, self._compute(points), strict=True))
        for name in found.keys() & self.samples.keys():
            self.samples[name][now] = found[name]
        for own in self.counts[self.chain]:
            labels = {name: (found | points)[name] for name in own.landmarks.variables}
            for draw in range(max(self._n_tuned - first, 0), n):
                own.add({name: values[draw] for name, values in labels.items()})
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
