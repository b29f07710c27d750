"""Gibbs draws of linear factor models: latents, loadings, precisions and missing values."""

from typing import Any, ClassVar

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.evidence.linear_factors import (
    Array,
    draw_log_precision,
    draw_shift,
    loading_form,
    summed_to,
)
from pm_match.evidence.rescale import rescale
from pm_match.steps.base import PartitionStep
from pm_match.steps.factor_points import FactorPoints
from pm_match.structure import Structure
from pm_match.structure.factor_models import FactorModel, FactorView

_LOG_2PI = np.log(2.0 * np.pi)


class FactorGibbs(PartitionStep):
    r"""Draw the latents, loadings, precisions and missing values of linear factor models.

    For views :math:`x_{in} \sim N(a_i + W_i h_n + V_i u_{in}, \tau_i^{-1} I)`, each from its exact
    conditional, with missing values integrated out:

    - all latents of an object jointly: shared ones :math:`h_n` with private ones integrated out,
      then :math:`u_{in}` given these;
    - all rows of :math:`[W_i \; V_i \; a_i]`, given the latents;
    - what the likelihood does not see: the scale of latents and loadings along random directions
      (see `evidence.rescale`), the centre of latents and intercepts;
    - Gamma precisions of columns and of noise: Gamma(a + n/2, b + S/2), with n values whose squares
      add up to S;
    - the missing values.

    Latents that something else depends on too are given. Precisions that are not declared as Gamma
    variables are read from the point, and are some other step's to draw.

    Parameters
    ----------
    vars : sequence of variables
        Variables of a linear factor model.
    exchange : bool, default True
        Whether latents exchange their scale with loadings, and their centre with intercepts. The
        draws are exact without, and mix worse.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the step can serve.

    Notes
    -----
    The sampler statistic ``log_likelihood`` is the log density of all observed values of the views
    given everything else at the point that the step leaves.
    """

    name = "factor_gibbs"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"log_likelihood": (np.float64, [])}

    def __init__(self, vars, exchange: bool = True, **kwargs):
        if not isinstance(exchange, bool | np.bool_):
            raise TypeError(f"FactorGibbs: exchange must be True or False, found {exchange!r}.")
        self.exchange = bool(exchange)
        super().__init__(vars, **kwargs)

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"exchange": self.exchange}

    @classmethod
    def parts(cls, structure: Structure) -> list[FactorModel]:
        """Return the linear factor models of a model."""
        return [part for part in structure.parts if isinstance(part, FactorModel)]

    @classmethod
    def served(cls, part: FactorModel) -> list[str]:
        """Names of the variables that the step serves."""
        return part.names

    def _prepare(self) -> None:
        super()._prepare()
        self._points = FactorPoints(self.model, self.part)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new, points = dict(point), self._points
        self._draw_latents(new)
        latents = points.latents(new)
        squares = [self._draw_loadings(new, view, latents) for view in self.part.views]
        if self.exchange:
            for number in self.part.own:
                self._exchange(new, number, latents[number])
        self._draw_precisions(new, squares)
        points.draw_missing(self.rng, new)
        return new, [{"log_likelihood": self._log_likelihood(new, squares)}]

    def _draw_latents(self, point) -> None:
        """Draw all latents of ours: shared ones with private ones integrated out, then these."""
        part, points = self.part, self._points
        form, forms, places = points.shared_form(point)
        if places:
            priors = [part.latents[number].prior(point) for number in places]
            mean, precision = (np.hstack(arrays) for arrays in zip(*priors, strict=True))
            drawn = form.with_prior(mean, precision).draw(self.rng)
            points.write_latents(point, {n: drawn[:, place] for n, place in places.items()})
        points.draw_private(self.rng, point, forms)

    def _draw_loadings(self, point, view: FactorView, latents: list[Array]) -> Array:
        """Draw a view's loadings and intercept; return sums (D,) of squared residuals."""
        design = np.hstack([latents[number] for number in view.latents])
        priors = [loading.prior(point) for loading in view.loadings]
        if view.intercept is not None:
            design = np.hstack([design, np.ones((len(design), 1))])
            centre, inverse = view.intercept.prior(point)
            priors.append((centre[:, None], inverse[:, None]))
        mean, precision = (np.hstack(arrays) for arrays in zip(*priors, strict=True))
        noise = view.noise(point)
        rows = loading_form(view.table, design, noise, mean, precision).draw(self.rng)
        start = 0
        for loading in view.loadings:
            end = start + loading.shape[1]
            self._points.write_loading(point, loading, rows[:, start:end])
            start = end
        if view.intercept is not None:
            self._points.write_intercept(point, view.intercept, rows[:, -1])
        return np.square(view.table.residuals(design @ rows.T)).sum(axis=0)

    def _exchange(self, point, number: int, latents: Array) -> None:
        """Exchange scale and centre of latents (N, k) of ours with loadings and intercepts."""
        points, part = self._points, self.part
        z = np.array(latents, order="C")
        prior = part.latents[number].prior(point)
        entered = [
            (view, loading)
            for view in part.views
            for own, loading in zip(view.latents, view.loadings, strict=True)
            if own == number
        ]
        loadings = [points.loading(point, loading) for _, loading in entered]
        mean, precision = prior
        if not mean.any() and (precision == precision[0, 0]).all():
            # A spherical prior, as `rescale` takes it.
            w = np.concatenate(loadings)
            centre, inverse = (
                np.concatenate(arrays)
                for arrays in zip(*(f.prior(point) for _, f in entered), strict=True)
            )
            k = z.shape[1]
            rescale(self.rng, w, centre, inverse, z, float(precision[0, 0]), 2 * k, np.empty(k))
            loadings = np.split(w, np.cumsum([len(own) for own in loadings])[:-1])
            for (_, loading), own in zip(entered, loadings, strict=True):
                points.write_loading(point, loading, own)
        shifted = [
            (view.intercept, w)
            for (view, _), w in zip(entered, loadings, strict=True)
            if view.intercept is not None
        ]
        if len(shifted) == len(entered):
            views = [(w, points.intercept(point, a), a.prior(point)) for a, w in shifted]
            c = draw_shift(self.rng, z, prior, views)
            z += c
            for (a, w), (_, old, _) in zip(shifted, views, strict=True):
                points.write_intercept(point, a, old - w @ c)
        points.write_latents(point, {number: z})

    def _draw_precisions(self, point, squares: list[Array]) -> None:
        """Draw Gamma precisions of noise, given sums of squared residuals, and of loadings."""
        part, points = self.part, self._points
        for own in part.precisions:
            value = points.positive(point, own.name)
            total, count = np.zeros(own.shape), np.zeros(own.shape)
            for v, n in own.of:
                view = part.views[v]
                if n < 0:
                    n_values = view.table.n_observed.astype(np.float64)
                    # Precisions over the variable, to which they are proportional.
                    summed = squares[v] * (view.noise(point) / value.reshape(own.aligned))
                else:
                    loading = view.loadings[n]
                    mean, precision = loading.prior(point)
                    if loading.transposed:
                        mean, precision = mean.T, precision.T
                    w = points.read(point, loading.name)
                    n_values = np.ones(w.shape)
                    summed = (w - mean) ** 2 * (precision / value.reshape(own.aligned))
                total += summed_to(summed, own.aligned).reshape(own.shape)
                count += summed_to(n_values, own.aligned).reshape(own.shape)
            a, b = own.prior(point)
            points.write_positive(point, own.name, draw_log_precision(self.rng, a, b, count, total))

    def _log_likelihood(self, point, squares: list[Array]) -> float:
        """Log density of all observed values, given sums of squared residuals."""
        total = 0.0
        for view, own in zip(self.part.views, squares, strict=True):
            noise, n = view.noise(point), view.table.n_observed
            total += float(0.5 * (n * (np.log(noise) - _LOG_2PI)).sum() - 0.5 * noise @ own)
        if not np.isfinite(total):
            raise FloatingPointError(
                f"the log density of {', '.join(repr(view.name) for view in self.part.views)} is "
                "not finite any more: the data or a precision are on too extreme a scale."
            )
        return total
