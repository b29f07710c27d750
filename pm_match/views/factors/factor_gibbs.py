"""Gibbs draws of linear factor models: latents, loadings, precisions and missing values."""

from typing import Any

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.checks import check_flag
from pm_match.clusters.step import PartitionStep, statistics
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.rescale import rescale
from pm_match.views.factors import row_solves
from pm_match.views.factors.linear_factors import (
    Array,
    draw_log_precision,
    loading_form,
    summed_to,
)
from pm_match.views.factors.points import FactorPoints
from pm_match.views.factors.recognise import FactorModel, FactorView

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
    - the scale of latents, loadings and precisions of columns, all at once;
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

    Examples
    --------
    >>> model = pmm.models.shared_factors(pmm.datasets.correlated_views(100), n_shared=3)
    >>> [type(step).__name__ for step in pmm.steps(model)]
    ['FactorGibbs']
    """

    name = "factor_gibbs"
    order = 10
    record = FactorModel
    stats_dtypes_shapes = statistics("log_likelihood")

    def __init__(self, vars: Any, exchange: bool = True, **kwargs: Any):
        check_flag("FactorGibbs: exchange", exchange)
        self.exchange = bool(exchange)
        super().__init__(vars, **kwargs)

    def _prepare(self) -> None:
        super()._prepare()
        self._points = FactorPoints(self.model, self.part)

    def kernels(self) -> list[Job]:
        """List what patterns of missing values call, and exchanges of scale around zero."""
        missing = any(view.table.observed is not None for view in self.part.views)
        found = row_solves.kernels() if missing else []
        if self.exchange and self.part.own:
            row, square = np.zeros(1), np.zeros((1, 1))
            found.append(job(rescale, self.rng, square, square, square, square, 1.0, 1, row, row))
        return found

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
        if self.exchange:
            for number in self.part.own:
                self._exchange_scale(new, number)
        points.draw_missing(self.rng, new)
        self._look(new)
        return new, [{"log_likelihood": self._log_likelihood(new, squares)}]

    def _log_densities(self, point) -> list[float]:
        return self._points.log_densities(point)

    def _draw_latents(self, point) -> None:
        """Draw all latents of ours: shared ones with private ones integrated out, then these."""
        points = self._points
        form, forms = points.shared_form(point)
        for number in form.sizes:
            form = form.with_prior(number, self.part.latents[number].prior(point))
        if form.sizes:
            points.write_latents(point, form.draw(self.rng))
        points.draw_private(self.rng, point, forms)

    def _draw_loadings(self, point, view: FactorView, latents: list[Array]) -> Array:
        """Draw a view's loadings and intercept; return sums (D,) of squared residuals."""
        ones = [np.ones((self.part.n_objects, 1))] if view.intercept else []
        design = np.hstack([*(latents[number] for number in view.latents), *ones])
        priors = [factor.prior(point) for factor in view.factors]
        mean, precision = (np.hstack(arrays) for arrays in zip(*priors, strict=True))
        noise = view.noise(point)
        rows = loading_form(view.table, design, noise, mean, precision).draw(self.rng)
        ends = np.cumsum([factor.shape[1] for factor in view.factors])[:-1]
        for factor, own in zip(view.factors, np.split(rows, ends, axis=1), strict=True):
            self._points.write_factor(point, factor, own)
        return np.square(view.table.residuals(design @ rows.T)).sum(axis=0)

    def _exchange(self, point, number: int, latents: Array) -> None:
        """Exchange scale and centre of latents (N, k) of ours with loadings and intercepts."""
        points, part = self._points, self.part
        z = np.array(latents, order="C")
        prior = part.latents[number].prior(point)
        entered = part.entered(number).values()
        loadings = [points.factor(point, loading) for loading in entered]
        mean, precision = prior
        if not mean.any() and (precision == precision[0, 0]).all():
            # A spherical prior, as `rescale` takes it.
            k, ends = z.shape[1], np.cumsum([len(own) for own in loadings])[:-1]
            priors = zip(*(loading.prior(point) for loading in entered), strict=True)
            # In rows, as it is compiled ahead, however they are declared.
            w, centre, inverse = (
                np.ascontiguousarray(np.concatenate(own)) for own in (loadings, *priors)
            )
            room = np.empty(k), np.empty(len(w) + len(z))
            rescale(self.rng, w, centre, inverse, z, precision[0, 0], 2 * k, *room)
            for loading, own in zip(entered, np.split(w, ends), strict=True):
                points.write_factor(point, loading, own)
        c = points.exchange_centre(self.rng, point, number, z, prior)
        if c is not None:
            z += c
        points.write_latents(point, {number: z})

    def _exchange_scale(self, point, number: int) -> None:
        """Exchange the scale of latents of ours with loadings and the precisions of these."""
        prior = self.part.latents[number].prior(point)
        self._points.exchange_scale(point, number, prior, self._log_scale)

    def _log_scale(self, quadratic: Array, exponent: Array) -> Array:
        """Draw how much latents grow where all that pulls is Gamma (see `exchange_scale`)."""
        zero = np.zeros(quadratic.shape)
        return 0.5 * draw_log_precision(self.rng, 0.5 * exponent, 0.5 * quadratic, zero, zero)

    def _draw_precisions(self, point, squares: list[Array]) -> None:
        """Draw Gamma precisions of noise, given sums of squared residuals, and of loadings."""
        part, points = self.part, self._points
        for own in part.precisions:
            value = points.read_positive(point, own.name)
            total, count = np.zeros(own.shape), np.zeros(own.shape)
            for v, n in own.of:
                view = part.views[v]
                if n < 0:
                    n_values = view.table.n_of_feature.astype(np.float64)
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
            noise, n = view.noise(point), view.table.n_of_feature
            total += float(0.5 * (n * (np.log(noise) - _LOG_2PI)).sum() - 0.5 * noise @ own)
        if not np.isfinite(total):
            raise FloatingPointError(
                f"the log density of {', '.join(repr(view.name) for view in self.part.views)} is "
                "not finite any more: the data or a precision are on too extreme a scale."
            )
        return total
