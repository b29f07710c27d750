"""Holds a model's declared log densities against the ones that the steps assume."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.evidence.projected_normal import DomainData
from pm_match.partition.stick_breaking import log_weights
from pm_match.structure.ancestry import RV, Refusal
from pm_match.structure.functions import log_densities, natural_function
from pm_match.structure.parts import Hyper

_TEST_POINTS = 3


class DensityCheck:
    """Compares, entry by entry and at random points, what is declared with what was read.

    Any way of writing the same density agrees; with probability one no other density does.

    Parameters
    ----------
    model : pymc.Model
    weights, precision, latent : variables
    sticks : bool
        Whether `weights` holds the sticks of a stick-breaking.
    assignments : sequence of variables
    observed : sequence of lists of variables
        For each assignment its observed variable, and the one with the missing values if there is
        one.
    truncation : int
    hyper : callable
        From a point to the `Hyper`parameters that were read.
    """

    def __init__(
        self,
        model: Model,
        *,
        weights: RV,
        sticks: bool,
        precision: RV,
        latent: RV,
        assignments: Sequence[RV],
        observed: Sequence[Sequence[RV]],
        truncation: int,
        hyper: Callable[[Mapping[str, NDArray]], Hyper],
    ):
        self.model = model
        self.weights, self.sticks = weights, sticks
        self.precision, self.latent = precision, latent
        self.labelled = assignments
        self.hyper = hyper
        declared = log_densities(
            model, [latent, *assignments, *(rv for rvs in observed for rv in rvs)]
        )
        natural = natural_function(model, [weights.name, precision.name])
        rng = np.random.default_rng(20160401)
        start = model.initial_point(0)
        labels = {model.rvs_to_values[rv].name for rv in assignments}
        self.points = [_random_point(rng, start, labels, truncation) for _ in range(_TEST_POINTS)]
        self.declared = [declared(point) for point in self.points]
        self.natural = [natural(point) for point in self.points]

    def _value(self, point, rv: RV) -> NDArray:
        return point[self.model.rvs_to_values[rv].name]

    def latent_prior(self) -> None:
        """Refuse if the latent vectors are not Normal(0, tau = r * precision), r a constant."""
        if self.model.rvs_to_transforms[self.latent] is not None:
            raise Refusal(f"{self.latent.name!r} has a transform; expected none")
        for point, declared, (_, alpha) in zip(
            self.points, self.declared, self.natural, strict=True
        ):
            tau = alpha * self.hyper(point).latent_precision
            expected = _log_normal(self._value(point, self.latent), 0.0, tau)
            if not _same(declared[self.latent], expected):
                raise Refusal(
                    f"{self.latent.name!r}: its declared log density is not that of independent "
                    f"Normal(0, tau = r * {self.precision.name}) with a constant r"
                )

    def assignments(self) -> None:
        """Refuse if an assignment is not Categorical over the weights."""
        for point, declared, (natural, _) in zip(
            self.points, self.declared, self.natural, strict=True
        ):
            logs = np.log(natural)
            if self.sticks:
                logs = log_weights(logs, np.log1p(-natural))
            for assignment in self.labelled:
                if not _same(declared[assignment], logs[self._value(point, assignment)]):
                    raise Refusal(
                        f"{assignment.name!r}: its declared probabilities are not "
                        + (
                            f"the weights that the sticks {self.weights.name!r} break, the last "
                            "cluster taking what is left"
                            if self.sticks
                            else f"{self.weights.name!r}"
                        )
                    )

    def likelihood(
        self,
        name: str,
        rvs: Sequence[RV],
        data: DomainData,
        assignment: RV,
        projection: RV,
        latent_transposed: bool,
        n_factors: int,
    ) -> bool:
        """Refuse if a domain is not normal around its projected latent vectors.

        Returns
        -------
        bool
            Whether the projection is declared as (K, M_d) rather than (M_d, K).
        """
        n_objects, n_features = data.values.shape
        n_labels = self._value(self.points[0], assignment).shape[0]
        if n_labels != n_objects:
            raise Refusal(
                f"{name!r} has {n_objects} objects and {assignment.name!r} {n_labels} labels"
            )
        natural = natural_function(self.model, [projection.name])
        shape = self._value(self.points[0], projection).shape
        layouts = {False: (n_features, n_factors), True: (n_factors, n_features)}
        possible = [flip for flip, layout in layouts.items() if shape == layout]
        if not possible:
            raise Refusal(
                f"{projection.name!r} has shape {shape}; expected ({n_features} features, "
                f"{n_factors} factors)"
            )
        for point, declared, (_, alpha) in zip(
            self.points, self.declared, self.natural, strict=True
        ):
            (w,) = natural(point)
            z = self._value(point, self.latent)
            z = (z.T if latent_transposed else z)[self._value(point, assignment)]
            seen = np.ones(data.values.shape, bool) if data.observed is None else data.observed
            values = data.values.copy()
            if len(rvs) == 2:
                values[~seen] = self._value(point, rvs[1])
            found = np.empty(values.shape)
            for rv, where in zip(rvs, (seen, ~seen), strict=False):
                if np.size(declared[rv]) != where.sum():
                    possible = []
                else:
                    found[where] = np.ravel(declared[rv])
            possible = [
                flip
                for flip in possible
                if _same(found, _log_normal(values, z @ (w if flip else w.T), alpha))
            ]
            if not possible:
                raise Refusal(
                    f"{name!r}: its declared log density is not that of Normal({self.latent.name}"
                    f"[{assignment.name}] @ {projection.name}.T, tau={self.precision.name})"
                )
        return possible[0]


def _random_point(rng, start, labels, truncation) -> dict[str, NDArray]:
    """Draw a point of the value variables, with nothing special about it."""
    point = {}
    for name, value in start.items():
        value = np.asarray(value)
        if name in labels:
            drawn = rng.integers(truncation, size=value.shape)
        elif value.dtype.kind == "f":
            drawn = rng.normal(0.0, 0.7, size=value.shape)
        else:
            drawn = value
        point[name] = np.asarray(drawn, dtype=value.dtype)
    return point


def _log_normal(x, mean, tau):
    return 0.5 * (np.log(tau) - np.log(2.0 * np.pi)) - 0.5 * tau * (x - mean) ** 2


def _same(found, expected) -> bool:
    found = np.asarray(found)
    if found.shape != np.shape(expected):
        return False
    return bool(np.allclose(found, expected, rtol=1e-6, atol=1e-6))
