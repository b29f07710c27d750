"""The parameters of features that are best for given clusters, by L-BFGS with an exact gradient."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.features.emission import Emission
from pm_match.features.evidence_gradient import Gradient, evidence
from pm_match.features.feature_gibbs import wishart_functions
from pm_match.features.feature_sums import ClusterSums
from pm_match.features.parts import Features, Isometry, Parameter, Setting
from pm_match.features.points import FeaturesPoints
from pm_match.reading.ancestry import Refusal
from pm_match.reading.evidence import Point
from pm_match.reading.kept import Kept
from pm_match.reading.priors import log_density_function
from pm_match.reading.probe import initial_point

# How often noise is fitted at first, all else being given.
_FITS = 3
# Of L-BFGS: steps that are remembered, and the relative gain that ends a climb.
_MEMORY = 20
_CLOSE = 1e-8
# For gradients by differences, and how many numbers of a variable have them.
_STEP = 1e-5
_MOST_BY_DIFFERENCES = 4


class _Part:
    """Parameters of a domain whose gradient is known."""

    domain: int
    # (M, M): a root of the noise's covariance at the start, in which steps are taken
    unit: NDArray[np.float64]

    def start(self, point: Point, setting: Setting) -> int:
        """Begin at a point; return how many coordinates there are, all 0 there."""
        raise NotImplementedError

    def put(self, x: NDArray, setting: Setting) -> dict[str, Any]:
        """Move to coordinates x; return what that changes in a setting, by its name there."""
        raise NotImplementedError

    def gradient(self, own: Gradient) -> tuple[float, NDArray[np.float64]]:
        """Return the log prior there, and the gradient of the log density in the coordinates."""
        raise NotImplementedError

    def write(self, point: dict[str, NDArray]) -> None:
        """Write the parameters to a new point."""
        raise NotImplementedError


class _Normal(_Part):
    """An intercept (M,) or a projection (M, K) with a normal prior, or a projection with none."""

    def __init__(self, features: Features, parameter: Parameter, key: str):
        self.domain, self._key, self._transposed = parameter.domain, key, parameter.transposed
        self._k = features.n_factors
        self.is_intercept = parameter.update == "intercept"
        self._field = "intercept" if self.is_intercept else "projection"
        flat = parameter.update == "flat"
        self._prior: Callable[[Point], tuple[Any, Any]] = lambda point: (
            (0.0, 0.0) if flat else features.prior(parameter, point)
        )

    def start(self, point: Point, setting: Setting) -> int:
        self._mean, self._precision = self._prior(point)
        own = setting.emissions[self.domain]
        self._first = own.intercept if self.is_intercept else own.projection[:, : self._k]
        return self._first.size

    def put(self, x: NDArray, setting: Setting) -> dict[str, Any]:
        self._value = self._first + self.unit @ x.reshape(self._first.shape)
        return {self._field: self._value}

    def gradient(self, own: Gradient) -> tuple[float, NDArray[np.float64]]:
        off = self._value - self._mean
        pull = self._precision * off
        slope = self.unit.T @ (getattr(own, self._field) - pull)
        return -0.5 * float(np.sum(pull * off)), slope.ravel()

    def write(self, point: dict[str, NDArray]) -> None:
        point[self._key] = np.array(self._value.T if self._transposed else self._value)


class _Isometry(_Part):
    """A scale times the polar factor Q of a matrix A, and the spread of deviations.

    The law of Q is uniform, and nothing else of A matters, whose prior is left out.
    """

    def __init__(self, features: Features, isometry: Isometry, keys: dict[str, str]):
        self.domain, self._keys, self._k = isometry.domain, keys, features.n_factors
        self._orientation = isometry.orientation
        self._prior = lambda point: features.prior(isometry.orientation, point)
        numbers = {"scale": isometry.scale, "spread": isometry.spread}
        self._numbers = {of: own for of, own in numbers.items() if own is not None}

    def start(self, point: Point, setting: Setting) -> int:
        w = setting.emissions[self.domain].projection[:, : self._k]
        spread, scale = setting.spreads[self.domain], self._scale_of(setting)
        self._first, self._length = w / scale, float(self._prior(point)[1].flat[0]) ** -0.5
        logs = {"scale": scale, "spread": 1.0 if spread is None else spread[0]}
        self._values = {of: float(point[self._keys[n.name]]) for of, n in self._numbers.items()}
        # What a value differs from the log of what it is the value of is a constant.
        self._off = {of: np.log(logs[of]) - value for of, value in self._values.items()}
        return w.size + len(self._numbers)

    def put(self, x: NDArray, setting: Setting) -> dict[str, Any]:
        w = self._first
        raw = w + self.unit @ x[: w.size].reshape(w.shape)
        self._svd = np.linalg.svd(raw, full_matrices=False)
        self._q = self._svd[0] @ self._svd[2]
        self._now = {
            of: value + step
            for (of, value), step in zip(self._values.items(), x[w.size :], strict=True)
        }
        numbers = {of: float(np.exp(value + self._off[of])) for of, value in self._now.items()}
        self._factor = numbers["scale"] if "scale" in numbers else self._scale_of(setting)
        changed: dict[str, Any] = {"projection": self._factor * self._q}
        if "spread" in numbers:
            changed["spread"] = np.full(len(w), numbers["spread"])
        return changed

    def _scale_of(self, setting: Setting) -> float:
        w = setting.emissions[self.domain].projection[:, : self._k]
        return float(np.linalg.norm(w)) / self._k**0.5

    def gradient(self, own: Gradient) -> tuple[float, NDArray[np.float64]]:
        (u, d, v), by_q = self._svd, self._factor * own.projection
        inside = u.T @ by_q @ v.T
        turn = (inside - inside.T) / (d[:, None] + d)
        by_a = u @ turn @ v + (by_q - u @ (u.T @ by_q)) @ (v.T / d) @ v
        slopes = {"scale": float(np.sum(by_q * self._q))}
        if own.log_spread is not None:
            slopes["spread"] = float(own.log_spread.sum())
        prior, found = 0.0, []
        for of, number in self._numbers.items():
            off = self._now[of] - number.mean
            prior -= 0.5 * number.precision * off * off
            found.append(slopes[of] - number.precision * off)
        return prior, np.append((self.unit.T @ by_a).ravel(), found)

    def write(self, point: dict[str, NDArray]) -> None:
        # As long as a matrix of such numbers is.
        point[self._keys[self._orientation.name]] = self._q * len(self._q) ** 0.5 * self._length
        for of, number in self._numbers.items():
            point[self._keys[number.name]] = np.array(self._now[of])


class _Noise(_Part):
    """A noise precision with a Wishart prior, by its Cholesky factor with a log diagonal."""

    def __init__(self, model: Model, features: Features, parameter: Parameter, key: str):
        self.domain, self._key = parameter.domain, key
        self._prior, self._forward = wishart_functions(model, model[parameter.name])
        self._place = np.tril_indices(features.domains[parameter.domain].n_features)
        self._diagonal = np.flatnonzero(self._place[0] == self._place[1])

    def fitted(self, point: Point, emission: Emission, own: Gradient, n: float) -> Emission:
        """Return an emission with the noise that fits what is left of `n` objects."""
        assert own.precision is not None
        degrees, inverse_scale = self._prior(point)
        squares = n * emission.covariance - 2.0 * own.precision
        covariance = (inverse_scale + 0.5 * (squares + squares.T)) / (degrees + n)
        return replace(emission, root=np.linalg.cholesky(np.linalg.inv(covariance)))

    def start(self, point: Point, setting: Setting) -> int:
        degrees, self._inverse_scale = self._prior(point)
        self._first = setting.emissions[self.domain].root
        m = len(self._first)
        # That of the density of a matrix, and that of the change of variables.
        self._exponent = degrees - m - 1.0 + np.arange(m + 1.0, 1.0, -1.0)
        return len(self._place[0])

    def put(self, x: NDArray, setting: Setting) -> dict[str, Any]:
        self._step = np.zeros_like(self._first)
        self._step[self._place] = x
        np.fill_diagonal(self._step, np.exp(x[self._diagonal]))
        self._root = self._first @ self._step
        return {"root": self._root}

    def gradient(self, own: Gradient) -> tuple[float, NDArray[np.float64]]:
        assert own.precision is not None
        pull = self._inverse_scale @ self._root
        prior = self._exponent @ np.log(np.diagonal(self._root)) - 0.5 * np.sum(pull * self._root)
        slope = (self._first.T @ (2.0 * own.precision @ self._root - pull))[self._place]
        slope[self._diagonal] *= np.diagonal(self._step)
        slope[self._diagonal] += self._exponent
        return float(prior), slope

    def write(self, point: dict[str, NDArray]) -> None:
        point[self._key] = self._forward(self._root @ self._root.T)


class Maximiser:
    """Climbs the log density of features and of their parameters, clusters being given.

    Latent vectors and deviations are integrated out. Priors are densities on the scale that is
    sampled, but for that of a matrix of which only the polar factor matters: the law of that is
    uniform. The gradient is exact in intercepts, projections, isometries and noise precisions, and
    by differences in other variables of a few numbers.

    It has `left`: parameters that stay as they are: what only priors depend on, and arrays of many
    numbers.
    """

    def __init__(self, model: Model, features: Features):
        self._features, self._points = features, FeaturesPoints(model, features)
        keys = {p.name: str(model.rvs_to_values[model[p.name]].name) for p in features.parameters}
        start = initial_point(model)
        turned = {name for isometry in features.isometries for name in isometry.names}
        self._parts: list[_Part] = [_Isometry(features, own, keys) for own in features.isometries]
        # The value variable of each of the others, and its log density.
        self._others: list[tuple[str, Callable[[Point], float]]] = []
        self.left: list[str] = []
        for p in features.parameters:
            key = keys[p.name]
            if p.name in turned:
                continue
            if p.update in ("intercept", "projection", "flat"):
                self._parts.append(_Normal(features, p, key))
            elif p.update == "wishart":
                self._parts.append(_Noise(model, features, p, key))
            elif p.update == "prior" or start[key].size > _MOST_BY_DIFFERENCES:
                self.left.append(p.name)
            else:
                self._others.append((key, log_density_function(model, p.name)))

    def __call__(self, point: Point, most: int) -> tuple[dict[str, NDArray], float]:
        """Climb from a point.

        `most`: steps. Return `point`: what is integrated out stays as it was; `log_prior`: log
        density there of the parameters that climb, up to a constant; -inf if that of the features
        is not a number.
        """
        if not (self._parts or self._others):
            return dict(point), 0.0
        labels = self._points.labels(point)
        sums = self._sums(labels)
        irrelevant = [np.flatnonzero(label < 0) for label in labels]
        setting = self._fitted(point, sums)
        for part in self._parts:
            full, root = setting.emissions[part.domain].full, setting.emissions[part.domain].root
            part.unit = np.linalg.inv(root).T if full else np.diag(1.0 / root)
        lengths = [part.start(point, setting) for part in self._parts]
        n_known = sum(lengths)
        others = [np.array(point[key], float).ravel() for key, _ in self._others]
        ends = np.cumsum([*lengths, *map(len, others)])[:-1]

        def log_density(x: NDArray) -> tuple[float, float, list[NDArray]]:
            own = np.split(x, ends)
            now, prior, rest = setting, 0.0, 0.0
            if self._others:
                at = self._moved(point, own)
                prior = sum(log_density(at) for _, log_density in self._others)
                now = self._features.setting(at)
                rest = self._features.log_irrelevant(irrelevant, at)
            changes: list[dict[str, Any]] = [{} for _ in sums]
            for part, values in zip(self._parts, own, strict=False):
                changes[part.domain] |= part.put(values, now)
            value, gradients = evidence(sums, _changed(now, changes), self._features.n_factors)
            found = [part.gradient(gradients[part.domain]) for part in self._parts]
            prior += sum(own for own, _ in found)
            return value + rest + prior, prior, [slope for _, slope in found]

        best = np.concatenate([np.zeros(n_known), *others])
        highest, log_prior = -np.inf, -np.inf

        def descent(x: NDArray) -> tuple[float, NDArray]:
            nonlocal best, highest, log_prior
            slope = np.zeros(len(x))
            try:
                value, prior, found = log_density(x)
                slope[:n_known] = np.concatenate([*found, []])
                for i in range(n_known, len(x)):
                    step = np.where(np.arange(len(x)) == i, _STEP, 0.0)
                    slope[i] = (log_density(x + step)[0] - value) / _STEP
            except (Refusal, ValueError, np.linalg.LinAlgError):
                return np.inf, slope
            if not (np.isfinite(value) and np.isfinite(slope).all()):
                return np.inf, slope
            if value > highest:
                best, highest, log_prior = x.copy(), value, prior
            return -value, -slope

        options = {"maxiter": most, "maxcor": _MEMORY, "ftol": _CLOSE, "gtol": 0.0}
        with np.errstate(all="ignore"):
            scipy.optimize.minimize(descent, best, jac=True, method="L-BFGS-B", options=options)
        own = np.split(best, ends)
        new = self._moved(point, own)
        if np.isfinite(highest):
            now = self._features.setting(new) if self._others else setting
            for part, values in zip(self._parts, own, strict=False):
                part.put(values, now)
                part.write(new)
        return new, log_prior

    def _moved(self, point: Point, own: Sequence[NDArray]) -> dict[str, NDArray]:
        """Return a point with the others of all values (those of parts come first)."""
        new = dict(point)
        for (key, _), values in zip(self._others, own[len(self._parts) :], strict=True):
            new[key] = values.reshape(np.shape(point[key]))
        return new

    def _sums(self, labels: Sequence[NDArray]) -> list[ClusterSums]:
        """Sum up the data by the clusters that hold something."""
        held = np.unique(np.concatenate(labels))
        return [own.kept(held[held >= 0]) for own in self._features.sums(labels)]

    def _fitted(self, point: Point, sums: Sequence[ClusterSums]) -> Setting:
        """Return the setting at a point, with what is far off there brought near the data.

        That is intercepts at the domains' means, if that is better, and noise that fits what is
        left.
        """
        features, setting = self._features, self._features.setting(point)
        noise = [part for part in self._parts if isinstance(part, _Noise)]
        if not noise:
            return setting
        emissions = list(setting.emissions)
        for part in self._parts:
            if isinstance(part, _Normal) and part.is_intercept:
                data = features.domains[part.domain].data
                values = data.values
                if data.observed is not None:
                    values = np.ma.array(values, mask=~data.observed)
                mean = np.ma.filled(values.mean(axis=0), 0.0)
                emissions[part.domain] = replace(emissions[part.domain], intercept=mean)
        moved = replace(setting, emissions=tuple(emissions))
        best = setting
        try:
            if self._value(sums, moved) > self._value(sums, setting):
                best = moved
            for _ in range(_FITS):
                _, gradients = evidence(sums, best, features.n_factors)
                emissions = list(best.emissions)
                for part in noise:
                    d = part.domain
                    n = float(sums[d].counts.sum())
                    emissions[d] = part.fitted(point, emissions[d], gradients[d], n)
                best = replace(best, emissions=tuple(emissions))
            return best if np.isfinite(self._value(sums, best)) else setting
        except np.linalg.LinAlgError:
            return setting

    def _value(self, sums: Sequence[ClusterSums], setting: Setting) -> float:
        return evidence(sums, setting, self._features.n_factors)[0]


def _changed(setting: Setting, changes: Sequence[dict[str, Any]]) -> Setting:
    """Return a setting with other emissions and spreads."""
    emissions, spreads = [], []
    for emission, spread, own in zip(setting.emissions, setting.spreads, changes, strict=True):
        spreads.append(own.pop("spread", spread))
        emissions.append(replace(emission, **own))
    return replace(setting, emissions=tuple(emissions), spreads=tuple(spreads))


_MAXIMISERS: Kept[dict[str, Maximiser]] = Kept()


def maximiser_of(model: Model, features: Features) -> Maximiser:
    """Return the maximiser of some features of a model, made once."""
    made = _MAXIMISERS.of(model)
    if made is None:
        made = _MAXIMISERS.keep(model, {})
    # No two features share their latent vectors.
    if features.latent not in made:
        made[features.latent] = Maximiser(model, features)
    return made[features.latent]
