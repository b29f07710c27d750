"""Where chains start: k-means of what is numeric, and parameters maximised given the labels.

Labels and parameters in turn, from several starts; the best by the log density of both is kept.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_match.clusters.cluster_gibbs import random_labels
from pm_match.declared.parts import Sampled
from pm_match.numerics.k_means import cluster_numbers, k_means
from pm_match.reading.ancestry import Ancestry
from pm_match.reading.label_tables import value_gradient
from pm_match.reading.parts import Component
from pm_match.reading.probe import initial_point
from pm_match.search.chain import Chain
from pm_match.search.coarse import (
    LEAST,
    climb_objects,
    climbs,
    coarse_climb,
    compiled_ahead,
)

# Numbers of clusters that are begun with, if only a truncation is declared.
_NUMBERS = (2, 4, 8)
# Objects there are at least for each cluster to begin with.
_LEAST_OBJECTS = 5
_STARTS = 2
# Rounds of sweeps and maximisations of parameters for every start.
_ROUNDS = 6
_MOST_ITERATIONS = 60
# Exchanges of joint labels that are tried.
_MOST_EXCHANGES = 100
# Iterations that show whether one is better.
_FEW_ITERATIONS = 20
# Tries to find a point with a finite density, as many as PyMC makes.
_MOST_JITTERS = 10
# How far maxima may lie from the start of what has a transform, logs of scales for one: the density
# of a cluster of a single object has no top.
_FAR = 3.0


@compiled_ahead(climbs)
def search(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Bring a chain to a good mode of a component with parameters that are not integrated out."""
    component = chain.components[number]
    maximise = Parameters.of(chain, component)
    begin, best, highest = chain.point, chain.point, -np.inf
    numbers = _numbers(chain, number)
    for _ in range(_STARTS):
        for n in sorted({n for own in numbers for n in own}):
            chain.point = begin
            chain.place(number, _labels(chain, number, rng, [min(n, own[-1]) for own in numbers]))
            maximise(chain)
            for _ in range(_ROUNDS):
                chain.run(1, number)
                maximise(chain)
            coarse_climb(chain, number)
            for _ in range(_ROUNDS):
                maximise(chain)
                if climb_objects(chain, number) <= LEAST:
                    break
            value = chain.log_joint(number)
            if value > highest:
                best, highest = chain.point, value
    chain.point = best
    if any(own.parts for c in component.clusterings for own in c.assignments):
        _exchange(chain, number, rng, maximise)
    chain.settle(number)


def _exchange(chain: Chain, number: int, rng: np.random.Generator, maximise: "Parameters") -> None:
    """Exchange joint labels, two at a time: which part is whose, k-means does not know."""
    highest, left = chain.log_joint(number), _MOST_EXCHANGES
    for home, clustering in enumerate(chain.components[number].clusterings):
        used = {*np.unique(chain.labels(number)[home]).tolist()}
        pairs = [
            (one, other)
            for one in used
            for other in range(clustering.truncation)
            if other > one or other not in used
        ]
        since = 0  # the last exchange that was better
        while since < len(pairs) and left > 0:
            if since == 0:
                rng.shuffle(pairs)
            begin, (one, other) = chain.point, pairs[since]
            labels = chain.labels(number)
            here, there = labels[home] == one, labels[home] == other
            since += 1
            labels[home] = np.where(here, other, np.where(there, one, labels[home]))
            chain.place(number, labels)
            maximise(chain, _FEW_ITERATIONS)
            value, left = chain.log_joint(number), left - 1
            if value > highest + LEAST:
                highest, since = value, 0
            else:
                chain.point = begin
    maximise(chain)


def _numbers(chain: Chain, number: int) -> list[list[int]]:
    """Return the numbers of clusters to begin with, of every clustering."""
    clusterings, state = chain.components[number].clusterings, chain.collapsed(number)
    return [
        cluster_numbers(
            own.truncation, len(units.size), _LEAST_OBJECTS, None if own.finite else _NUMBERS
        )
        for own, units in zip(clusterings, state.units, strict=True)
    ]


def _labels(
    chain: Chain, number: int, rng: np.random.Generator, numbers: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Make labels to begin with: k-means of rows of numbers, or at random where there are none."""
    component, state = chain.components[number], chain.collapsed(number)
    found = []
    for home, (units, n) in enumerate(zip(state.units, numbers, strict=True)):
        own = [one.numbers_of(home) for one in component.of(Sampled, home)]
        if any(one.shape[1] for one in own):
            values = np.concatenate(own, axis=1)
            seen = np.isfinite(values)
            weight = units.total(seen.astype(float))
            sums = units.total(np.where(seen, values, 0.0))
            points = sums / np.maximum(weight, 1.0)
            labels = k_means(rng, points, n, weight > 0.0)
        else:
            labels = random_labels(rng, units, n)[units.first]
        found.append(labels[units.of_object])
    return found


class Parameters:
    """Climbs to the mode of the parameters of a component's likelihoods, all else fixed."""

    def __init__(self, chain: Chain, component: Component):
        model, evidence = chain.model, component.of(Sampled)
        ours = {model.values_to_rvs[v].name for step in chain.steps for v in step.vars}
        names = {name for own in evidence for name in (*own.parameters, *own.factors)} - ours
        climbed = [rv for rv in model.free_RVs if rv.name in names]
        free = [rv for rv in climbed if rv.dtype.startswith("float")]
        self.keys = [str(model.rvs_to_values[rv].name) for rv in free]
        self._gradient: Callable[[Any], tuple[float, list[NDArray]]] | None = None
        start = initial_point(model)
        self._bounds: list[tuple[float, float]] = []
        for rv, key in zip(free, self.keys, strict=True):
            bounded = model.rvs_to_transforms[rv] is not None
            for x in np.ravel(start[key]):
                self._bounds.append((x - _FAR, x + _FAR) if bounded else (-np.inf, np.inf))
        if free:
            self._gradient = value_gradient(model, Ancestry(model).touched(free), free)

    @classmethod
    def of(cls, chain: Chain, component: Component) -> "Parameters":
        """Return what maximises the parameters of a component: compiled once."""
        if "maximised" not in component.workspace:
            try:
                component.workspace["maximised"] = cls(chain, component)
            except (NotImplementedError, TypeError, ValueError):
                # Something has no gradient: its parameters stay as they are, or are redrawn.
                component.workspace["maximised"] = lambda *_: None
        return component.workspace["maximised"]

    def __call__(self, chain: Chain, n_iterations: int = _MOST_ITERATIONS) -> None:
        """Climb from the chain's point."""
        if self._gradient is None:
            return
        here = chain.point
        parts = [np.asarray(here[key]) for key in self.keys]
        ends = np.cumsum([part.size for part in parts])[:-1]

        def at(x: NDArray) -> dict[str, NDArray]:
            own = zip(self.keys, parts, np.split(x, ends), strict=True)
            return {**here, **{key: new.reshape(old.shape) for key, old, new in own}}

        def depth(x: NDArray) -> tuple[float, NDArray]:
            assert self._gradient is not None
            try:
                value, slopes = self._gradient(at(x))
            except Exception:
                return np.inf, np.zeros_like(x)
            slope = np.concatenate([np.ravel(own) for own in slopes])
            if not (np.isfinite(value) and np.isfinite(slope).all()):
                return np.inf, np.zeros_like(x)
            return -value, -slope

        low, high = np.transpose(self._bounds)
        start = np.clip(np.concatenate([np.ravel(part) for part in parts]), low, high)
        before = first = depth(start)[0]
        for _ in range(_MOST_JITTERS):
            if np.isfinite(first):
                break
            # A penalty on clusters that are alike has its pole where all start alike.
            jittered = start + chain.rng.uniform(-1.0, 1.0, start.shape)
            start = np.clip(jittered, low, high)
            first, _ = depth(start)
        if np.isfinite(first):
            found = scipy.optimize.minimize(
                depth,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=self._bounds,
                options={"maxiter": n_iterations},
            )
            if found.fun < before:
                chain.point = at(found.x)
