"""Gibbs draws of linear factor models: latents, loadings, precisions and missing values."""

from typing import Any, ClassVar

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.checks import check_flag
from pm_match.clusters.step import PartitionStep
from pm_match.numerics.rescale import rescale, rescale_sums
from pm_match.reading.parts import Structure
from pm_match.views.factors.linear_factors import (
    Array,
    draw_log_precision,
    draw_shift,
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
    """

    name = "factor_gibbs"
    order = 10
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"log_likelihood": (np.float64, [])}

    def __init__(self, vars: Any, exchange: bool = True, **kwargs: Any):
        check_flag("FactorGibbs: exchange", exchange)
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
        self._scaled = {number: self.part.scaled_with(number) for number in self.part.own}

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
                self._exchange_with_precisions(new, number)
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
            priors = [loading.prior(point) for _, loading in entered]
            loadings, z = self._rescale(loadings, priors, z, float(precision[0, 0]))
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

    def _rescale(self, loadings, priors, z: Array, tau: float) -> tuple[list[Array], Array]:
        """Exchange scale between loadings (D, k) of all views and latents (N, k)."""
        k = z.shape[1]
        n_rows = [len(own) for own in loadings]
        if all(not mean.any() and (prior == prior[:1]).all() for mean, prior in priors):
            w_map, z_map = np.empty((2, k, k))
            rescale_sums(
                self.rng,
                np.stack([w.T @ w for w in loadings]),
                np.stack([prior[0] for _, prior in priors]),
                z.T @ z,
                tau,
                float(len(z) - sum(n_rows)),
                2 * k,
                np.empty(k),
                np.empty(k),
                w_map,
                z_map,
            )
            return [w @ w_map for w in loadings], z @ z_map
        stacked = np.concatenate(loadings)
        centre, inverse = (np.concatenate(arrays) for arrays in zip(*priors, strict=True))
        rescale(self.rng, stacked, centre, inverse, z, tau, 2 * k, np.empty(k))
        return np.split(stacked, np.cumsum(n_rows)[:-1]), z

    def _exchange_with_precisions(self, point, number: int) -> None:
        r"""Exchange scale of latents of ours with their loadings and the precisions of these.

        Given :math:`r`, a column of many loadings has little choice in its length, and given
        these, :math:`r` has little. But :math:`(\sqrt g z, w / \sqrt g, g r)` changes neither the
        likelihood nor the density of :math:`\sqrt r w`. Along the orbits of these scalings, by the
        theorem that `evidence.rescale` names, :math:`g` is

        .. math:: \mathrm{Gamma}\bigl(\tfrac N2 + \sum_r a_r, \;
                  \tfrac12 \sum_n \tau_n z_n^2 + \sum_r b_r r\bigr).
        """
        points, (entered, precisions) = self._points, self._scaled[number]
        if not precisions:
            return
        centre, inverse = self.part.latents[number].prior(point)
        if centre.any() or any(own.prior(point)[0].any() for own in entered):
            return
        z = points.latents(point)[number]
        logs = [points.log_positive(point, own.name) for own in precisions]
        # One precision of several columns: these keep their proportions.
        n_scales = z.shape[1] if all(log.size == z.shape[1] for log in logs) else 1
        n = np.full(n_scales, z.size / n_scales)
        squares = summed_to((inverse * z**2).sum(axis=0), (n_scales,))
        shape, rate = np.zeros((2, n_scales))
        for own, log in zip(precisions, logs, strict=True):
            a, b = own.prior(point)
            shape += summed_to(a.reshape(-1), (n_scales,))
            rate += summed_to((b * np.exp(log)).reshape(-1), (n_scales,))
        log_g = draw_log_precision(self.rng, shape, rate, n, squares)
        points.write_latents(point, {number: z * np.exp(0.5 * log_g)})
        for loading in entered:
            w = points.loading(point, loading)
            points.write_loading(point, loading, w * np.exp(-0.5 * log_g))
        for own, log in zip(precisions, logs, strict=True):
            moved = log_g.reshape(own.shape) if log.size == n_scales else log_g
            points.write_positive(point, own.name, log + moved)

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
