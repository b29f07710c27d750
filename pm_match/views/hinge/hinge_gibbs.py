"""Gibbs draws of the coefficients under a hinge, through a scale for every label."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.clusters.step import PartitionStep
from pm_match.numerics.slices import draw_slice
from pm_match.reading.densities import log_gamma, log_normal
from pm_match.reading.parts import Point
from pm_match.views.hinge.recognise import HingeModel
from pm_match.views.hinge.scales import (
    LostPrecision,
    draw_by_directions,
    draw_coefficients,
    draw_precision,
    factorise,
    gram,
    observe,
)

# The least v: coefficients of the size that it allows leave four digits of the scores.
_LEAST_PRECISION = 1e-24
# The least shape of the prior of v for draws of the coefficients' scale.
_LEAST_SHAPE = 0.5


class HingePoints(Writer):
    """Reads and writes coefficients and their precision.

    `rows` (n,) are the objects that have labels, and `labels` (n, K) what these are.
    """

    def __init__(self, model: Model, part: HingeModel):
        super().__init__(model, [part.coefficients, *([part.precision] if part.precision else [])])
        self.part = part
        # Objects without a label say nothing; one is kept, so that no array is empty.
        labelled = np.flatnonzero(part.labels.any(axis=1))
        self.rows = labelled if len(labelled) else np.zeros(1, np.int64)
        self.labels = part.labels[self.rows]

    def coefficients(self, point: Point) -> NDArray[np.float64]:
        """Read the coefficients (P, K)."""
        return self.read(point, self.part.coefficients).reshape(self.part.shape)

    def log_labels(self, point: Point) -> float:
        """Evaluate the log pseudo-likelihood of the labels."""
        design, offset = self.part.design(point)
        scores = design[self.rows] @ self.coefficients(point)
        scores += 0.0 if offset is None else offset[self.rows]
        short = np.maximum(0.0, 1.0 - self.labels * scores)[self.labels != 0.0]
        return float(-2.0 * self.part.C(point) * short.sum())

    def write_coefficients(self, point: dict[str, NDArray], drawn: NDArray) -> None:
        """Write coefficients (P, K) as they are declared."""
        name = self.part.coefficients
        self.write(point, {name: drawn.reshape(self.read(point, name).shape)})


class HingeGibbs(PartitionStep):
    r"""Draw the coefficients of a hinge's score, and the precision of their prior.

    In turn, each from its exact conditional:

    - the scale :math:`\lambda` of every label: :math:`1/\lambda` is inverse Gaussian with mean
      :math:`1/(C|1 - yf|)`. It never leaves the step;
    - the coefficients, which are then normal, with precision :math:`v I + F^T W F`: all together,
      one column after the other where classes have scores of their own;
    - their prior's precision v, if it is declared as a Gamma;
    - the scale of coefficients and v together, :math:`(s\beta, v/s^2)`, of which the prior of
      :math:`\beta` sees nothing, given the labels without their scales: large scores tie
      :math:`\lambda` to them and are tied by it. Along these orbits (J. S. Liu & C. Sabatti, 2000,
      Biometrika 87(2), theorem 1), with :math:`v \sim \mathrm{Gamma}(a, b)`,

      .. math:: \log p(s) = -2C \sum_n \max(0, 1 - s y_n f_n) - 2a \log s - b v s^{-2},

      with respect to :math:`\log s`, and what is an offset of the scores left as it is. It is left
      out if a < 1/2: of labels that can all be told apart, so weak a prior would let one draw take
      v to where numbers end.

    N. G. Polson & S. L. Scott (2011), "Data augmentation for support vector machines", Bayesian
    Analysis 6(1).

    Parameters
    ----------
    vars : sequence of variables
        The coefficients, or the precision: both are drawn.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the variables are not of a hinge that the steps can serve.
    FloatingPointError
        In a step, if v is below 1e-24.

    Examples
    --------
    >>> data = pmm.datasets.xor_views(40)
    >>> model = pmm.models.max_margin_views(data.views, data.labels)
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.HingeGibbs)]
    [HingeGibbs(coefficients, coefficient_precision_log__)]
    """

    name = "hinge_gibbs"
    order = 60
    record = HingeModel

    @classmethod
    def served(cls, part: Any) -> list[str]:
        """Names of the variables that the step serves."""
        return [part.coefficients, *([part.precision] if part.precision else [])]

    def _prepare(self) -> None:
        self._points = HingePoints(self.model, self.part)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new = dict(point)
        part, rng = self.part, self.rng
        design, offset = part.design(point)
        design = design[self._points.rows]
        C, precision = part.C(point), part.prior_precision(point)
        if precision < _LEAST_PRECISION:
            raise FloatingPointError(
                f"{part.precision or part.coefficients!r}: expected a prior precision of at least "
                f"{_LEAST_PRECISION:g}; found {precision:.2g}, with which scores have no digits. "
                "Give it a prior that holds it away from 0."
            )
        scores = design @ self._points.coefficients(point)
        if offset is not None:
            offset = offset[self._points.rows]
            scores += offset
        weights, pulls = observe(rng, scores, self._points.labels, C)
        if offset is not None:
            pulls -= weights * offset
        drawn = np.empty(part.shape)
        for k in range(part.shape[1]):
            try:
                lower = factorise(gram(design, weights[:, k]), precision)
            except LostPrecision:
                drawn[:, k] = draw_by_directions(rng, design, weights[:, k], pulls[:, k], precision)
            else:
                drawn[:, k] = draw_coefficients(rng, lower, design.T @ pulls[:, k])
        if part.precision:
            a, b = part.precision_prior(point)
            v = draw_precision(rng, (a, b), drawn)
            if a >= _LEAST_SHAPE:
                log_s = self._draw_scale(design @ drawn, offset, C, a, b * v)
                drawn *= np.exp(log_s)
                v *= np.exp(-2.0 * log_s)
            self._points.write_positive(new, part.precision, np.log(v))
        self._points.write_coefficients(new, drawn)
        self._look(new)
        return new, [{}]

    def _log_densities(self, point) -> list[float]:
        part, points = self.part, self._points
        coefficients, v = points.coefficients(point), part.prior_precision(point)
        found = [points.log_labels(point), log_normal(coefficients, 0.0, v).sum()]
        if part.precision:
            found.append(log_gamma(np.log(v), *part.precision_prior(point)))
        return found

    def _draw_scale(self, scores, offset, C: float, a: float, b_v: float) -> float:
        """Draw log s, given the scores (n, K) without their offset, and b times v."""
        margins = self._points.labels * scores
        room = np.ones(margins.shape) if offset is None else 1.0 - self._points.labels * offset

        def log_density(log_s: float) -> float:
            loss = np.maximum(0.0, room - np.exp(log_s) * margins).sum()
            return -2.0 * (C * loss + a * log_s) - b_v * np.exp(-2.0 * log_s)

        return draw_slice(self.rng, 0.0, log_density)
