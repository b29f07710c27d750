"""Draws of what the marginals of features depend on: intercepts, noise, projections and priors."""

from dataclasses import replace
from typing import Any

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.clusters.step import PartitionStep
from pm_match.features.feature_sums import (
    Contributions,
    DomainSums,
    draw_intercepts,
    draw_latent,
    draw_projection,
    log_evidence,
)
from pm_match.features.marginals import split_deviations
from pm_match.features.parts import Features, Parameter, View
from pm_match.features.points import FeaturesPoints
from pm_match.numerics.rescale import rescale
from pm_match.numerics.slices import draw_elliptical_slice, draw_slice
from pm_match.reading.ancestry import Ancestry, mean, parameters, scale
from pm_match.reading.parts import Structure
from pm_match.reading.priors import log_density_function
from pm_match.reading.probe import natural_function, point_function, sampled_function


class MarginalGibbs(PartitionStep):
    r"""Draw intercepts, noise, projections and all else that the marginals of features depend on.

    Given the assignments, each from its conditional:

    - intercepts with a normal prior, all together, with latent vectors integrated out;
    - whatever is normal and enters in another way, such as what a semi-orthogonal projection is
      made of, by elliptical slices (Murray, Adams & MacKay 2010), latent vectors integrated out;
    - other numbers, such as scales, by slices (Neal 2003), latent vectors integrated out;
    - projections with a normal prior, and noise precisions with a Wishart prior, given latent
      vectors that are drawn anew; projections and latent vectors then exchange their scale (see
      `evidence.rescale`);
    - numbers on which only the priors of these depend, by slices.

    Latent vectors and deviations are drawn last, so that the step leaves the declared posterior
    alone whatever comes before or after it.

    Parameters
    ----------
    vars : sequence of variables
        Variables that the densities of features depend on.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the steps can serve.
    """

    name = "marginal_gibbs"
    order = 32

    @classmethod
    def parts(cls, structure: Structure) -> list[Features]:
        """Return the feature vectors of a model."""
        return structure.of(Features)

    @classmethod
    def served(cls, part: Features) -> list[str]:
        """Names of the variables that the step serves."""
        return [parameter.name for parameter in part.parameters]

    def _prepare(self) -> None:
        super()._prepare()
        features, model = self.part, self.model
        self._points = FeaturesPoints(model, features)
        self._alpha = natural_function(model, [features.precision]) if features.precision else None
        self._key = {p.name: model.rvs_to_values[model[p.name]].name for p in features.parameters}
        ancestry = Ancestry(model)
        free = set(model.free_RVs)
        self._log_prior, self._normal, self._forward = {}, {}, {}
        for p in features.parameters:
            rv = model[p.name]
            if p.update in ("intercept", "projection", "transposed", "normal"):
                self._normal[p.name] = point_function(model, [mean(rv), scale(rv)])
            if p.update == "slice":
                self._log_prior[p.name] = [log_density_function(model, p.name, True)]
            if p.update == "prior":
                below = [v.name for v in ancestry.children(rv) if v in free]
                self._log_prior[p.name] = [
                    log_density_function(model, n, True) for n in (p.name, *below)
                ]
            if p.update == "wishart":
                self._forward[p.name] = _wishart_functions(model, rv)
        self._direction = np.empty(features.n_factors)
        self._idle: list = [
            features.idle_of(d) if domain.flag else None
            for d, domain in enumerate(features.domains)
        ]

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new = dict(point)
        if not self.part.plain:
            self._load(point)
        for parameter in self.part.parameters:
            if parameter.update == "prior":
                self._draw_numbers(parameter, new, evidence=False)
            elif parameter.update == "slice":
                self._draw_numbers(parameter, new, evidence=True)
            elif parameter.update == "normal":
                self._draw_normal(parameter, new)
        if not self.part.plain:
            self._draw_intercepts(new)
            self._write_latent(new, self._draw_given_latent(new))
        return new, [{}]

    def _load(self, point) -> None:
        """Sum up the data by the clusters of a point."""
        features = self.part
        labels = [np.where(flag, own, -1) for own, flag in self._labels(point)]
        self._occupied = np.unique(np.concatenate([own[own >= 0] for own in labels]))
        rank = np.full(features.truncation + 1, -1)
        rank[self._occupied] = np.arange(len(self._occupied))
        self._sums = [
            DomainSums.of(domain.data, rank[own], len(self._occupied))
            for domain, own in zip(features.domains, labels, strict=True)
        ]
        self._contributions = Contributions(self._sums)
        self._idle_objects = [np.flatnonzero(own < 0) for own in labels]
        self._idle_kept: list[tuple[list, float] | None] = [None for _ in labels]
        self._root_alpha = 1.0
        if self._alpha is not None:
            self._root_alpha = float(np.sqrt(self._alpha(point)[0]))
        self._scaled: list[tuple] = [(None, None) for _ in labels]

    def _write_latent(self, new, drawn) -> None:
        """Write latent vectors and deviations: those of occupied clusters (J, K) if they are known.

        Others are drawn.
        """
        rng, features, view = self.rng, self.part, self._view(new)
        if drawn is None:
            drawn = draw_latent(rng, self._sums, view.marginals, view.latent_precision)
        latent = rng.standard_normal((features.truncation, features.n_all_factors))
        latent /= np.sqrt(view.latent_precision)
        latent[self._occupied] = drawn
        latent, deviations = split_deviations(
            latent, features.n_factors, view.scales, view.latent_precision
        )
        self._points.write_latent(new, self._root_alpha**2, latent, deviations)

    def _labels(self, point):
        """Read the labels of every domain's objects, and which of these are relevant."""
        points = self._points
        for domain, own in zip(self.part.domains, points.labels(point), strict=True):
            yield (
                own,
                points.read(point, domain.flag) > 0 if domain.flag else np.ones(len(own), bool),
            )

    def _view(self, point) -> View:
        """Read the view, with the shared precision (if there is one) at its present value."""
        view = self.part.view(point)
        if self.part.precision is None:
            return view
        for d, marginal in enumerate(view.marginals):
            if self._scaled[d][0] is not marginal:
                scaled = replace(marginal, root=marginal.root * self._root_alpha)
                self._scaled[d] = marginal, scaled
        return replace(
            view,
            marginals=tuple(scaled for _, scaled in self._scaled),
            latent_precision=view.latent_precision * self._root_alpha**2,
        )

    def _log_likelihood(self, point) -> float:
        """Log density of all features given the assignments, latent vectors integrated out."""
        try:
            view = self._view(point)
        except (ValueError, np.linalg.LinAlgError):
            return -np.inf  # not positive definite
        total = log_evidence(self._contributions.of(view.marginals), view.latent_precision)
        total += self._log_idle(point)
        return total if np.isfinite(total) else -np.inf

    def _log_idle(self, point) -> float:
        """Log density of irrelevant objects, a domain's evaluated anew only if it changes."""
        total = 0.0
        for d, own in enumerate(self._idle):
            if own is None or not len(self._idle_objects[d]):
                continue
            idle, keys = own
            given = [point[key] for key in keys]
            kept = self._idle_kept[d]
            if kept is None or not all(map(np.array_equal, given, kept[0])):
                found = float(idle(point)[self._idle_objects[d]].sum())
                kept = self._idle_kept[d] = [np.array(v) for v in given], found
            total += kept[1]
        return total

    # -- latent vectors integrated out ------------------------------------------------------------

    def _draw_numbers(self, parameter: Parameter, point, evidence: bool) -> None:
        """Draw the numbers of a variable one by one."""
        key = self._key[parameter.name]
        for index in np.ndindex(np.shape(point[key])):

            def log_density(x, index=index) -> float:
                moved = np.array(point[key])
                moved[index] = x
                point[key] = moved
                total = sum(log_prior(point) for log_prior in self._log_prior[parameter.name])
                if evidence and np.isfinite(total):
                    total += self._log_likelihood(point)
                return total if np.isfinite(total) else -np.inf

            draw_slice(self.rng, float(point[key][index]), log_density)

    def _draw_normal(self, parameter: Parameter, point) -> None:
        key = self._key[parameter.name]
        start = np.array(point[key])
        centre, width = (
            np.broadcast_to(v, start.shape) for v in self._normal[parameter.name](point)
        )

        def log_likelihood(x) -> float:
            point[key] = x
            return self._log_likelihood(point)

        draw_elliptical_slice(self.rng, start, centre, width, log_likelihood)

    def _draw_intercepts(self, point) -> None:
        own = {p.domain: p for p in self.part.parameters if p.update == "intercept"}
        if not own:
            return
        view = self._view(point)
        priors: list[Any] = [None for _ in view.marginals]
        for domain, parameter in own.items():
            centre, width = self._normal[parameter.name](point)
            shape = view.marginals[domain].intercept.shape
            priors[domain] = np.broadcast_to(centre, shape), np.broadcast_to(width**-2.0, shape)
        drawn = draw_intercepts(self.rng, self._sums, view.marginals, view.latent_precision, priors)
        for domain, parameter in own.items():
            point[self._key[parameter.name]] = drawn[domain]

    # -- given latent vectors ---------------------------------------------------------------------

    def _draw_given_latent(self, point):
        """Draw projections and noise given latent vectors; return these (J, K), or None if none."""
        given = [p for p in self.part.parameters if p.update in _GIVEN]
        if not given:
            return None
        rng, view, k = self.rng, self._view(point), self.part.n_factors
        drawn = draw_latent(rng, self._sums, view.marginals, view.latent_precision)
        # Means of clusters, but for the intercept and what the latent vectors say.
        explained = [drawn[:, k:] @ m.projection[:, k:].T for m in view.marginals]
        latent = np.ascontiguousarray(drawn[:, :k])
        projections, priors = {}, {}
        for p in given:
            own, marginal = self._sums[p.domain], view.marginals[p.domain]
            if p.update == "wishart":
                continue
            flip = p.update == "transposed"
            shape = (len(marginal.intercept), k)
            # Broadcast as it is declared, and turned only then.
            centre, width = (
                np.broadcast_to(v, shape[::-1]).T if flip else np.broadcast_to(v, shape)
                for v in self._normal[p.name](point)
            )
            priors[p.domain] = centre, width**-2.0
            projections[p.domain] = draw_projection(
                rng, own, marginal, latent, explained[p.domain], *priors[p.domain]
            )
        if len(projections) == len(self.part.domains):
            projections, latent = self._rescale(projections, priors, latent, view)
        for p in given:
            if p.update != "wishart":
                w = projections[p.domain]
                point[self._key[p.name]] = np.ascontiguousarray(
                    w.T if p.update == "transposed" else w
                )
        for p in given:
            if p.update != "wishart":
                continue
            marginal = view.marginals[p.domain]
            w = projections.get(p.domain, marginal.projection[:, :k])
            centres = marginal.intercept + explained[p.domain] + latent @ w.T
            self._draw_wishart(p, point, self._sums[p.domain], centres)
        return np.hstack([latent, drawn[:, k:]])

    def _rescale(self, projections, priors, latent, view: View):
        """Exchange scale between projections and latent vectors."""
        order = range(len(projections))
        w = np.concatenate([projections[d] for d in order])
        centre = np.concatenate([priors[d][0] for d in order])
        precision = np.concatenate([priors[d][1] for d in order])
        n_directions = 2 * self.part.n_factors
        rescale(
            self.rng, w, centre, precision, latent, view.latent_precision, n_directions,
            self._direction,
        )  # fmt: skip
        split = np.split(w, np.cumsum([len(projections[d]) for d in order])[:-1])
        return dict(zip(order, split, strict=True)), latent

    def _draw_wishart(self, parameter: Parameter, point, own: DomainSums, centres) -> None:
        """Draw a noise precision from its conjugate conditional."""
        # SciPy's distributions are slow to import.
        from scipy.stats import wishart

        prior, forward = self._forward[parameter.name]
        degrees, inverse_scale = prior(point)
        cross = own.sums.T @ centres
        squares = own.scatter - cross - cross.T + (centres.T * own.counts[:, 0]) @ centres
        inverse = inverse_scale + 0.5 * (squares + squares.T)
        n = own.counts.sum()
        drawn = wishart.rvs(degrees + n, np.linalg.inv(inverse), random_state=self.rng)
        point[self._key[parameter.name]] = forward(np.atleast_2d(drawn))


# Drawn given latent vectors.
_GIVEN = ("projection", "transposed", "wishart")


def _wishart_functions(model, rv):
    """Make functions for a Wishart variable: its prior at a point, and its value to be sampled.

    The prior is given by the degrees of freedom and the inverse of the scale matrix.
    """
    read, sampled = point_function(model, parameters(rv)), sampled_function(model, rv.name)

    def prior(point):
        nu, factor = read(point)
        return float(nu), np.linalg.inv(factor @ factor.T)

    return prior, lambda value: sampled({}, value)
