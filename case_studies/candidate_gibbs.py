"""The paper's draws of hyperparameters, to compare with: one of several candidates.

Iwata & Ishiguro (2017), "Robust unsupervised cluster matching for network data", below eq. 15.
"""

from typing import Any

import numpy as np
from pymc.logprob.transforms import LogTransform

from pm_match import HyperparameterGibbs
from pm_match.checks import check_count
from pm_match.reading.probe import point_function

__all__ = ["CandidateGibbs"]


class CandidateGibbs(HyperparameterGibbs):
    """Draw hyperparameters by choosing between the present value and draws from the prior.

    One is chosen with probability proportional to its likelihood, which leaves the posterior alone.

    Parameters
    ----------
    vars : sequence of variables
        Positive numbers, with priors that can draw.
    n_candidates : int, default 10
        Draws from the prior.
    **kwargs
        As of `HyperparameterGibbs`.
    """

    name = "candidate_gibbs"

    def __init__(self, vars: Any, n_candidates: int = 10, **kwargs: Any):
        check_count("CandidateGibbs: n_candidates", n_candidates)
        self.n_candidates = n_candidates
        super().__init__(vars, **kwargs)

    def _prepare(self) -> None:
        super()._prepare()
        self._parameters = {}
        for name in self._names:
            rv = self.model[name]
            if not isinstance(self.model.rvs_to_transforms[rv], LogTransform):
                raise ValueError(f"{name!r}: expected a positive number, sampled on its log")
            parameters = list(rv.owner.op.dist_params(rv.owner))
            self._parameters[name] = point_function(self.model, parameters, {})

    def _draw(self, name: str, point) -> None:
        rng, key = self.rng, self._value_names[name]
        op, parameters = self.model[name].owner.op, self._parameters[name](point)
        drawn = [np.log(op.rng_fn(rng, *parameters, None)) for _ in range(self.n_candidates)]
        values, logs = [float(point[key]), *map(float, drawn)], []
        dtype = point[key].dtype
        for value in values:
            point[key] = np.asarray(value, dtype)
            found = self._log_likelihood(name, point)
            logs.append(found if np.isfinite(found) else -np.inf)
        if not np.isfinite(max(logs)):
            raise FloatingPointError(f"{name!r}: the collapsed log joint is not finite")
        weights = np.cumsum(np.exp(np.array(logs) - max(logs)))
        chosen = int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))
        point[key] = np.asarray(values[chosen], dtype)
