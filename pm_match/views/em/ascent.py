"""What every EM does: steps that cannot lower the log likelihood, from several starts."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from pm_match.checks import check_count, check_positive

# Of several starts, each is climbed until an iteration gains fewer nats, and only the best further.
_COARSE = 1e-3

# From parameters to their log likelihood, and to better parameters.
Step = Callable[[Any], tuple[float, Any]]


class Ascent(TypedDict, total=False):
    """How every fit climbs."""

    starts: int  # the best end of so many starts is returned
    # in nats, of the whole log likelihood: an iteration that gains fewer is the last
    tolerance: float
    max_iterations: int  # of every start
    random_seed: Any
    advance: Callable[[float], None]  # told the best log likelihood so far after every start


class Fit[P](NamedTuple):
    """Parameters that maximise a likelihood, as far as the starts found."""

    parameters: P  # of the best start
    # (I,): of the best start, iteration after iteration; the last is that of `parameters`
    log_likelihoods: NDArray[np.float64]
    # whether the best start gained less than the tolerance before its iterations ran out
    converged: bool
    # (S,): the log likelihood that every start ended with: of all but the best, when an iteration
    # gained less than 0.001 nats (or the tolerance, if more)
    starts: NDArray[np.float64]

    @property
    def log_likelihood(self) -> float:
        """Of the parameters."""
        return float(self.log_likelihoods[-1])


def ascent(step: Step, start: Any, tolerance: float, max_iterations: int) -> Fit:
    """Iterate `step` until it gains less than `tolerance` nats."""
    parameters, trace = start, []
    for iteration in range(max_iterations):
        log_likelihood, better = step(parameters)
        trace.append(log_likelihood)
        if iteration > 0 and trace[-1] - trace[-2] < tolerance:
            return Fit(parameters, np.array(trace), True, np.array(trace[-1:]))
        if iteration < max_iterations - 1:
            parameters = better
    return Fit(parameters, np.array(trace), False, np.array(trace[-1:]))


def best_of(
    step: Step, start: Callable[[np.random.Generator, int], Any], **options: Unpack[Ascent]
) -> Fit:
    """Climb from several starts; return the best end.

    `step`: from parameters to their log likelihood, and to better parameters; `start`: from a
    generator and the number of a start to its parameters; `**options`: see `Ascent`.
    """
    starts, tolerance = options.get("starts", 20), options.get("tolerance", 1e-6)
    max_iterations = options.get("max_iterations", 20_000)
    check_ascent(starts, tolerance, max_iterations)
    advance = options.get("advance")
    best: Fit | None = None
    ends: list[float] = []
    for number, rng in enumerate(np.random.default_rng(options.get("random_seed")).spawn(starts)):
        found = ascent(step, start(rng, number), max(tolerance, _COARSE), max_iterations)
        ends.append(found.log_likelihood)
        if best is None or found.log_likelihood > best.log_likelihood:
            best = found
        if advance is not None:
            advance(best.log_likelihood)
    assert best is not None
    left = max_iterations - len(best.log_likelihoods) + 1
    if tolerance < _COARSE and left > 1:
        # The last iteration's parameters are the first of what follows.
        further = ascent(step, best.parameters, tolerance, left)
        trace = np.concatenate([best.log_likelihoods, further.log_likelihoods[1:]])
        best = further._replace(log_likelihoods=trace)
    ends[int(np.argmax(ends))] = best.log_likelihood
    return best._replace(starts=np.array(ends))


def check_ascent(starts: Any, tolerance: Any, max_iterations: Any) -> None:
    """Refuse settings that are none."""
    check_count("starts", starts)
    check_count("max_iterations", max_iterations, 2)
    check_positive("tolerance", tolerance)
