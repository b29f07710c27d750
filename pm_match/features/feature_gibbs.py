"""Draws of what emissions depend on: projections, intercepts, noise and all of their priors."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType

from pm_match.checks import check_flag
from pm_match.clusters.hyperparameter_gibbs import numbers_of
from pm_match.clusters.step import PartitionStep, statistics
from pm_match.features.emission import Emission, draw_missing
from pm_match.features.exchanges import Exchanges
from pm_match.features.feature_sums import (
    ClusterSums,
    Contributions,
    draw_factors,
    draw_intercepts,
    draw_projection,
    log_evidence,
)
from pm_match.features.isometric import draw_isometries, exchange_labels
from pm_match.features.parts import Features, Parameter, Setting
from pm_match.features.points import FeaturesPoints
from pm_match.numerics.rescale import rescale
from pm_match.numerics.slices import draw_elliptical_slice, draw_slice
from pm_match.numerics.wishart import draw_wishart
from pm_match.reading.ancestry import Ancestry, Refusal, parameters
from pm_match.reading.parts import Structure
from pm_match.reading.priors import log_density_function
from pm_match.reading.probe import point_function, sampled_function


class FeatureGibbs(PartitionStep):
    r"""Draw projections, intercepts, noise and all else that emissions depend on.

    Given the assignments and a shared precision, each from its conditional:

    - projections that are a scale times a polar factor, by compiled slices (see
      `features.isometric`), latent vectors and deviations integrated out;
    - what is normal and enters in another way than these and the following, by elliptical slices
      (Murray, Adams & MacKay 2010), latent vectors integrated out;
    - other numbers, such as scales, by slices (Neal 2003), latent vectors integrated out;
    - intercepts with a normal prior, all together, with latent vectors integrated out;
    - projections with a normal prior, given latent vectors that are drawn anew. Projections and
      latent vectors then exchange their scale (see `numerics.rescale`), without which the two creep
      along each other;
    - noise precisions with a Wishart prior, given these and missing values;
    - numbers on which only the priors of these depend, by slices.

    Before the projection of one domain (another one every time, at random) is drawn, its clusters
    may exchange their labels: the one move by which a chain soon changes which clusters of two
    domains match. A projection with a normal prior of its own is integrated out meanwhile (see
    `features.permute`), for which noise has to be independent; a polar factor is turned along (see
    `features.isometric`). Weights are redrawn if any did. There is no such move for domains with
    objects that are linked to other domains', nor if other evidence sees the clusters.

    Latent vectors, deviations and missing values are drawn last, so that the step leaves the
    declared posterior alone whatever comes before or after it.

    Parameters
    ----------
    vars : sequence of variables
        Variables that the densities of features depend on. Flat projections are for
        `ProjectionMAP`.
    permute : bool, default True
        Whether clusters of a domain may exchange their labels.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the steps can serve.

    Notes
    -----
    Sampler statistic: `permute_accepted`, the fraction of exchanges that were accepted, 0 if none
    was proposed.

    Examples
    --------
    >>> model = pmm.models.table_clusters(pmm.datasets.iris())
    >>> [type(step).__name__ for step in pmm.steps(model)]
    ['FeatureGibbs', 'ClusterGibbs']
    """

    name = "feature_gibbs"
    order = 31
    record = Features
    stats_dtypes_shapes = statistics("permute_accepted")

    def __init__(self, vars: Any, permute: bool = True, **kwargs: Any):
        check_flag("FeatureGibbs: permute", permute)
        self.permute = bool(permute)
        super().__init__(vars, **kwargs)

    @classmethod
    def served(cls, part: Features) -> list[str]:
        """Names of the variables that the step serves."""
        return [parameter.name for parameter in part.parameters if parameter.update != "flat"]

    @classmethod
    def writes(cls, structure: Structure, part: Features) -> list[str]:
        """Names of what it integrates out, and then draws."""
        return part.names

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        for features in structure.of(Features):
            if any(p.name == name and p.update == "flat" for p in features.parameters):
                return "it is flat: ProjectionMAP finds it"
        return super().why_not(structure, name)

    def _prepare(self) -> None:
        super()._prepare()
        features, model = self.part, self.model
        self._points = FeaturesPoints(model, features)
        self._parameters = [p for p in features.parameters if p.update != "flat"]
        self._key = {p.name: model.rvs_to_values[model[p.name]].name for p in self._parameters}
        ancestry = Ancestry(model)
        free = set(model.free_RVs)
        self._log_prior, self._forward = {}, {}
        for p in self._parameters:
            rv = model[p.name]
            if p.update == "slice":
                self._log_prior[p.name] = [log_density_function(model, p.name)]
            if p.update == "prior":
                below = [v.name for v in ancestry.children(rv) if v in free]
                self._log_prior[p.name] = [log_density_function(model, n) for n in (p.name, *below)]
            if p.update == "wishart":
                self._forward[p.name] = wishart_functions(model, rv)
        self._isometric = {name for own in features.sliced for name in own.names}
        alone = {p.name for p in self._parameters if p.update in ("normal", "slice", "prior")}
        self._alone = alone - self._isometric
        regressed = _regressed(features) if self.permute else set()
        turned = {i.domain for i in features.sliced} if self.permute else set()
        self._exchanges = Exchanges(model, features, regressed)
        self._turned = Exchanges(model, features, turned)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new = self.draw_some(point, self._alone)
        self._exchange_turned(new)
        setting = self._draw_intercepts(new)
        if self._isometric:
            draw_isometries(self.rng, self.part, setting, new, self._key, self._some)
        factors = self._draw_factors(self._setting(new))
        self._draw_projections(new, factors)
        self._draw_noise(new, factors)
        setting = self._setting(new)
        self._points.write_factors(self.rng, new, None, factors, setting)
        accepted = self._turned.accepted + self._exchanges.accepted
        proposed = self._turned.proposed + self._exchanges.proposed
        return new, [{"permute_accepted": accepted / max(proposed, 1)}]

    def draw_some(self, point: PointType, names: Collection[str]) -> PointType:
        """Draw parameters without a conjugate prior one by one, latent vectors integrated out."""
        new = dict(point)
        self._load(point)
        for parameter in self._parameters:
            if parameter.name not in names:
                continue
            if parameter.update == "normal":
                self._draw_normal(parameter, new)
            else:
                self._draw_numbers(parameter, new)
        return new

    def _load(self, point) -> None:
        """Sum up the data by the clusters of a point."""
        labels = self._points.labels(point)
        self._take(point, self.part.sums(labels), [np.flatnonzero(own < 0) for own in labels])

    def _take(self, point, sums: list[ClusterSums], irrelevant: list[NDArray]) -> None:
        """Begin with sums of every domain, and its irrelevant objects."""
        self._sums, self._irrelevant = sums, irrelevant
        self._occupied = np.flatnonzero(self._held(point))
        self._some = [own.kept(self._occupied) for own in sums]
        self._contributions = Contributions(self._some)
        self._precision = self._points.precision(point)

    def _held(self, point) -> NDArray[np.bool_]:
        """Say which clusters (T,) hold something."""
        held = np.zeros(self.part.truncation, bool)
        for label in self._points.labels(point):
            held[label[label >= 0]] = True
        return held

    def _setting(self, point) -> Setting:
        """Read the setting, with the shared precision (if there is one) at its present value."""
        return self.part.setting(point).given(self._precision)

    # -- latent vectors integrated out ------------------------------------------------------------

    def _log_likelihood(self, point) -> float:
        """Log density of all features given the assignments, latent vectors integrated out."""
        try:
            setting = self._setting(point)
        except (Refusal, ValueError, np.linalg.LinAlgError):
            return -np.inf  # not positive definite
        contributions = self._contributions.of(setting.emissions)
        total = log_evidence(contributions, setting.latent_precision)
        total += self.part.log_irrelevant(self._irrelevant, point)
        return total if np.isfinite(total) else -np.inf

    def _draw_numbers(self, parameter: Parameter, point) -> None:
        """Draw the numbers of a variable one by one."""
        for start, put in numbers_of(point, self._key[parameter.name]):

            def log_density(x, put=put) -> float:
                put(x)
                total = sum(log_prior(point) for log_prior in self._log_prior[parameter.name])
                if parameter.update == "slice" and np.isfinite(total):
                    total += self._log_likelihood(point)
                return total if np.isfinite(total) else -np.inf

            draw_slice(self.rng, start, log_density)

    def _draw_normal(self, parameter: Parameter, point) -> None:
        key = self._key[parameter.name]
        centre, precision = self.part.prior(parameter, point)

        def log_likelihood(x) -> float:
            point[key] = x
            return self._log_likelihood(point)

        start, width = np.array(point[key]), precision**-0.5
        draw_elliptical_slice(self.rng, start, centre, width, log_likelihood)

    def _draw_intercepts(self, point) -> Setting:
        """Draw intercepts; return the setting with these."""
        own = {p.domain: p for p in self._parameters if p.update == "intercept"}
        setting = self._setting(point)
        if not own:
            return setting
        priors: list[Any] = [None for _ in setting.emissions]
        for domain, parameter in own.items():
            priors[domain] = self.part.prior(parameter, point)
        r = setting.latent_precision
        drawn = draw_intercepts(self.rng, self._some, setting.emissions, r, priors)
        for domain, parameter in own.items():
            point[self._key[parameter.name]] = drawn[domain]
        pairs = zip(setting.emissions, drawn, strict=True)
        return replace(setting, emissions=tuple(replace(e, intercept=a) for e, a in pairs))

    def _exchange_turned(self, point) -> None:
        """Exchange labels of a domain whose projection is turned along.

        Latent vectors, deviations and weights are integrated out; the latter are drawn.
        """
        chosen, features = self._turned.load(self.rng, point), self.part
        if chosen is None:
            return
        (own,) = (i for i in features.sliced if features.domains[i.domain].assignment == chosen)
        given = features, self._setting(point), point, self._key, self._sums, own
        raw = exchange_labels(self.rng, *given, self._turned)
        if self._turned.changed:
            point[self._key[own.orientation.name]] = raw
            self._turned.draw(self.rng, point)
            self._load(point)

    # -- given latent vectors ---------------------------------------------------------------------

    def _draw_factors(self, setting: Setting) -> NDArray[np.float64]:
        """Draw the factors (T, K') of all clusters, those of empty ones from their prior."""
        r = setting.latent_precision
        shape = self.part.truncation, self.part.n_all_factors
        factors = self.rng.standard_normal(shape) / np.sqrt(r)
        own = self._contributions.of(setting.emissions)
        factors[self._occupied] = draw_factors(self.rng, own, r)
        return factors

    def _draw_projections(self, point, factors: NDArray) -> None:
        """Draw projections given factors (T, K'), which then exchange their scale."""
        own = [p for p in self._parameters if p.update == "projection"]
        features, rng, k = self.part, self.rng, self.part.n_factors
        exchanges, setting = self._exchanges, self._setting(point)
        chosen = exchanges.load(rng, point)
        drawn: dict[Parameter, NDArray] = {}
        priors = []
        for p in own:
            sums, emission = self._sums[p.domain], setting.emissions[p.domain]
            centre, precision = features.prior(p, point)
            deviating = emission.projection[:, k:]
            explained = factors[:, k:] @ deviating.T
            if features.domains[p.domain].assignment == chosen:
                left, root = sums.shifted(emission.intercept).shifted(explained), emission.root
                renamed = exchanges.propose(
                    rng,
                    left.sums * root,
                    np.broadcast_to(sums.counts, sums.sums.shape),
                    centre * root[:, None],
                    precision / root[:, None] ** 2,
                    np.ascontiguousarray(factors[:, :k]),
                )
                if renamed is not None:
                    sums = self._sums[p.domain] = sums.renamed(renamed)
                    # Clusters keep their deviations in the domain under other labels.
                    columns = k + np.flatnonzero(deviating.any(axis=0))
                    factors[np.ix_(renamed, columns)] = factors[:, columns]
                    explained[renamed] = explained.copy()
            drawn[p] = draw_projection(
                rng, sums, emission, factors[:, :k], explained, centre, precision
            )
            priors.append((centre, precision))
        if exchanges.changed:
            exchanges.draw(rng, point)
        if len(drawn) == len(features.domains):
            # Only if all projections are ours can the latent vectors change their scale with them.
            drawn = self._rescale(drawn, priors, factors, setting.latent_precision, point)
        self._points.write_projections(point, drawn)

    def _rescale(self, projections: dict, priors, factors: NDArray, r: float, point) -> dict:
        """Exchange scale between projections and occupied latent vectors; draw the empty ones."""
        k = self.part.n_factors
        held = self._held(point)
        w, z = np.concatenate(list(projections.values())), np.ascontiguousarray(factors[held, :k])
        mean, precision = (
            np.ascontiguousarray(np.concatenate(own)) for own in zip(*priors, strict=True)
        )
        room = np.empty(k), np.empty(len(w) + len(z))
        rescale(self.rng, w, mean, precision, z, r, 2 * k, *room)
        factors[:, :k] = self.rng.standard_normal((len(factors), k)) / np.sqrt(r)
        factors[held, :k] = z
        ends = np.cumsum([len(own) for own in projections.values()])[:-1]
        return dict(zip(projections, np.split(w, ends), strict=True))

    def _draw_noise(self, point, factors: NDArray) -> None:
        """Draw noise precisions with a Wishart prior from their conjugate conditional."""
        emissions = self._setting(point).emissions
        for p in self._parameters:
            if p.update == "wishart":
                n, squares = self._residual_squares(p.domain, emissions[p.domain], point, factors)
                self._draw_wishart(p, point, n, squares)

    def _residual_squares(self, d: int, emission: Emission, point, factors: NDArray):
        """Count the relevant objects of a domain; sum up the squares of what no cluster explains.

        Missing values are drawn.
        """
        data, own = self.part.domains[d].data, self._sums[d]
        centres = emission.intercept + factors @ emission.projection.T
        if not own.by_pattern:
            cross = own.sums.T @ centres
            squares = own.scatter[0] - cross - cross.T
            return own.counts.sum(), squares + (centres.T * own.counts[:, 0]) @ centres
        label = self._points.labels(point)[d]
        values = data.filled(draw_missing(self.rng, emission, data, factors[label]))
        residuals = (values - centres[label])[label >= 0]
        return len(residuals), residuals.T @ residuals

    def _draw_wishart(self, parameter: Parameter, point, n: float, squares: NDArray) -> None:
        prior, forward = self._forward[parameter.name]
        degrees, inverse_scale = prior(point)
        inverse = inverse_scale + 0.5 * (squares + squares.T)
        drawn, _ = draw_wishart(self.rng, np.array([degrees + n]), inverse[None])
        point[self._key[parameter.name]] = forward(drawn[0])


def _regressed(features: Features) -> set[int]:
    """Find the domains whose projections can be integrated out, given the latent vectors."""
    return {
        number
        for number, (domain, w) in enumerate(
            zip(features.domains, features.projections, strict=True)
        )
        if w is not None and w.update == "projection" and not domain.full
    }


def wishart_functions(model, rv):
    """Make functions for a Wishart variable: its prior at a point, and its value to be sampled.

    The prior is given by the degrees of freedom and the inverse of the scale matrix.
    """
    read, sampled = point_function(model, parameters(rv)), sampled_function(model, rv.name)

    def prior(point):
        nu, factor = read(point)
        return float(nu), np.linalg.inv(factor @ factor.T)

    return prior, lambda value: sampled({}, value)
