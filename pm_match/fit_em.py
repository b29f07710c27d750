"""Maximum likelihood of a declared model by EM, in the form of one draw."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model
from threadpoolctl import threadpool_limits

from pm_match.checks import check_seed, model_to_draw, warn
from pm_match.features.parts import Features
from pm_match.find_matching import find_matching, one_draw
from pm_match.networks.parts import Relation
from pm_match.normal.parts import Normals
from pm_match.progress import PATIENCE, SearchProgress
from pm_match.reading import read
from pm_match.reading.ancestry import Ancestry, Refusal, names, scale
from pm_match.reading.parts import Clustering, Component, Structure, UnservedModelError
from pm_match.reading.probe import initial_point, natural_function, with_values, without_c
from pm_match.results import annotate
from pm_match.views.em import (
    Ascent,
    Fit,
    dependency,
    fit_dependency,
    fit_projected_clusters,
    fit_shared_factors,
    projected_clusters,
)
from pm_match.views.em.ascent import check_ascent
from pm_match.views.em.shared_factors import latent_means
from pm_match.views.factors.recognise import FactorModel
from pm_match.views.hierarchy.recognise import Hierarchy, placed

# Weights are kept above this: PyMC's density of weights is only finite while they are not zero.
_LEAST = 1e-290


class _Fitted(NamedTuple):
    """A fit, the values of the model's variables that it gives, and what it has explained."""

    fit: Fit
    values: Mapping[str, Any]
    observed: list[str]


@without_c()
def fit_em(
    model: Model | None = None,
    *,
    starts: int = 10,
    tolerance: float = 1e-6,
    max_iterations: int = 20_000,
    random_seed: Any = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Maximise the likelihood of a model's parameters by expectation maximisation.

    The papers on models of dependency do this. The likelihood is that of the data given parameters,
    with assignments and factors summed or integrated out. **Priors are ignored.** It serves

    - `models.shared_factors`: standard normal latent vectors integrated out, maximised over
      projections, private factors, one noise for each view and intercepts (see
      `em.shared_factors`, which differs from the paper's figure 2 so that no iteration lowers the
      likelihood);
    - `models.dependency_clusters` of paired views with shared precisions: assignments summed out,
      maximised over weights, means and precisions;
    - `models.dependency_hierarchy`: likewise, and over links;
    - `models.projected_clusters` as in its paper, with one noise: assignments summed out, maximised
      over weights, latent vectors, projections and precision, from matchings that `find_matching`
      finds;

    however they are declared.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    starts : int, default 10
        The best end of so many starts is returned.
    tolerance : float, default 1e-6
        An iteration that gains fewer nats is the last.
    max_iterations : int, default 20000
        Of every start.
    random_seed : int or sequence of int, optional
        The same seed gives the same result.
    progressbar : bool, default True
        Whether more than two seconds show one.

    Returns
    -------
    DataTree
        Group `posterior` has one chain with one draw, in the form of `sample`: parameters at the
        maximum; of what was summed or integrated out, the most probable cluster of every object and
        the posterior means of latent vectors and missing values. Clusters are ordered by weight.
        Variables that only priors depend on have their initial value. Group `sample_stats` has
        `log_likelihood`, `n_iterations` and `converged`; group `em` has `log_likelihood` at every
        `iteration` of the best start, which never falls; and group `starts` the `log_likelihood`
        that every `start` ended with.

    Raises
    ------
    UnservedModelError
        If the model is none of these; the message says why.
    TypeError
        If `model` is not a PyMC model.
    ValueError
        If a setting is none, or the likelihood has no maximum.

    Warns
    -----
    UserWarning
        If the iterations ran out.

    Examples
    --------
    >>> views = pmm.datasets.correlated_views(50, random_seed=1)
    >>> model = pmm.models.shared_factors(views, n_shared=3)
    >>> best = pmm.fit_em(model, starts=2, tolerance=1e-3, random_seed=1, progressbar=False)
    >>> best["sample_stats"]["log_likelihood"].dims
    ('chain', 'draw')
    """
    model = model_to_draw(model)
    check_ascent(starts, tolerance, max_iterations)
    check_seed(random_seed)
    structure = read(model)
    with (
        threadpool_limits(1, user_api="blas"),
        SearchProgress(int(starts), bool(progressbar), after=PATIENCE, title="EM") as progress,
    ):
        options = Ascent(
            starts=int(starts),
            tolerance=tolerance,
            max_iterations=max_iterations,
            random_seed=random_seed,
            advance=lambda best: progress.advance(None),
        )
        try:
            fitted = _fitted(model, structure, options)
        except Refusal as refusal:
            raise UnservedModelError(f"fit_em does not serve this model: {refusal}.") from None
    fit = fitted.fit
    if not fit.converged:
        warn(
            f"EM still gained {np.diff(fit.log_likelihoods)[-1]:.2g} nats in the last of "
            f"{len(fit.log_likelihoods)} iterations: allow more of them, or a higher tolerance."
        )
    stats = {
        "log_likelihood": np.float64(fit.log_likelihood),
        "n_iterations": np.int64(len(fit.log_likelihoods)),
        "converged": np.bool_(fit.converged),
    }
    found = one_draw(model, with_values(model, initial_point(model), fitted.values), stats)
    annotate(found, model, [])
    found["posterior"].attrs["projections"] = "maximum likelihood"
    found["em"] = xr.DataTree(
        xr.Dataset(
            {"log_likelihood": ("iteration", fit.log_likelihoods)},
            {"iteration": np.arange(len(fit.log_likelihoods))},
        )
    )
    found["starts"] = xr.DataTree(
        xr.Dataset({"log_likelihood": ("start", fit.starts)}, {"start": np.arange(len(fit.starts))})
    )
    return found


def _fitted(model: Model, structure: Structure, options: Ascent) -> _Fitted:
    """Fit the one thing that a model is."""
    if structure.empty:
        raise Refusal(structure.explain())
    both = [*structure.components, *structure.parts]
    if len(both) > 1 or structure.refusals:
        left = f", and what nothing serves ({structure.explain()})" if structure.refusals else ""
        raise Refusal(f"expected one part that is independent of others; found {len(both)}{left}")
    (one,) = both
    if isinstance(one, FactorModel):
        fitted = _shared_factors(model, one, options)
    elif isinstance(one, Hierarchy):
        fitted = _dependency_hierarchy(one, options)
    elif isinstance(one, Component):
        fitted = _clusters(model, one, options)
    else:
        raise Refusal("it is none that the papers fit by EM")
    # Where values are missing, PyMC observes a part of the variable.
    observed = {rv.name.removesuffix("_observed") for rv in model.observed_RVs}
    strangers = sorted(observed - set(fitted.observed))
    if strangers:
        verb = "is" if len(strangers) == 1 else "are"
        raise Refusal(f"{', '.join(map(repr, strangers))} {verb} observed too")
    return fitted


def _clusters(model: Model, component: Component, options: Ascent) -> _Fitted:
    """Fit the clusters of one component, by what is seen of them."""
    if len(component.clusterings) > 1 or component.of(Relation):
        raise Refusal("networks are not fitted by EM")
    (clustering,) = component.clusterings
    if len(clustering.links) or len(clustering.apart):
        raise Refusal(f"objects of {clustering.assignments[0].name!r} are linked, or cannot be")
    if clustering.named:
        known = [own.name for own in clustering.assignments if own.known is not None]
        raise Refusal(f"labels of {', '.join(map(repr, known))} are observed")
    _must_have_free_weights(clustering)
    features, normals = component.of(Features), component.of(Normals)
    if len(features) == 1 == len(component.evidence):
        return _projected_clusters(model, clustering, features[0], options)
    if normals and len(normals) == len(component.evidence):
        return _dependency_clusters(clustering, normals, options)
    raise Refusal("its clusters are seen in vectors of several kinds, or in none")


# -- models -----------------------------------------------------------------------------------


def _shared_factors(model: Model, part: FactorModel, options: Ascent) -> _Fitted:
    start, ancestry = initial_point(model), Ancestry(model)
    n_views = [len(part.entered(n)) for n in range(len(part.latents))]
    shared = [n for n, found in enumerate(n_views) if found == len(part.views)][:1]
    if len(shared) != 1 or (len(part.views) == 1 and len(part.latents) > 1):
        raise Refusal("expected latent vectors that all of several views share")
    private: list[int | None] = []
    for view in part.views:
        own = [n for n in view.latents if n not in shared]
        if len(own) > 1 or any(n_views[n] > 1 for n in own):
            raise Refusal(f"{view.name!r} has more than shared factors and private ones of its own")
        private.append(own[0] if own else None)
    for latent in part.latents:
        if latent.foreign:
            raise Refusal(f"something else depends on {latent.name!r} too, or it is not normal")
        parents = ancestry.parents[model[latent.name]]
        if parents:
            raise Refusal(f"the prior of {latent.name!r} depends on {names(parents)}")
        mean, precision = latent.prior(start)
        if not (np.allclose(mean, 0.0) and np.allclose(precision, 1.0)):
            raise Refusal(f"{latent.name!r} is not standard normal")
    noise = [_noise(model, ancestry, part, number) for number in range(len(part.views))]
    intercepts = [view.intercept for view in part.views]
    if None in intercepts and any(intercepts):
        raise Refusal("some views have intercepts and others none")
    tables = {view.name: view.table.filled(np.nan) for view in part.views}
    fit = fit_shared_factors(
        tables,
        part.latents[shared[0]].shape[1],
        [0 if n is None else part.latents[n].shape[1] for n in private],
        intercept=None not in intercepts,
        **options,
    )
    p = fit.parameters
    z, own_z = latent_means(tables, p)
    latents = {shared[0]: z} | {
        n: own for n, own in zip(private, own_z, strict=True) if n is not None
    }
    values: dict[str, Any] = {}
    for number, factors in latents.items():
        latent = part.latents[number]
        values[latent.name] = latent.as_declared(factors)
    for v, view in enumerate(part.views):
        for number, loading in zip(view.latents, view.loadings, strict=True):
            found = p.projections[v] if number in shared else p.privates[v]
            values[loading.name] = loading.as_declared(found)
        if view.intercept is not None:
            values[view.intercept.name] = view.intercept.as_declared(p.intercepts[v])
        gamma, factor = noise[v]
        values[gamma] = 1.0 / p.variances[v] / factor
        if view.missing:
            means = p.intercepts[v] + z @ p.projections[v].T + own_z[v] @ p.privates[v].T
            values[view.missing] = means[np.isnan(tables[view.name])]
    return _Fitted(fit, values, list(tables))


def _noise(model: Model, ancestry: Ancestry, part: FactorModel, number: int) -> tuple[str, float]:
    """Find the free precision of a view's noise, and the constant it is multiplied by."""
    view = part.views[number]
    for precision in part.precisions:
        if precision.of != ((number, -1),) or precision.shape != ():
            continue
        others = ancestry.of([scale(model[view.declared[0]])]) - {model[precision.name]}
        if others:
            raise Refusal(f"the noise of {view.name!r} depends on {names(others)} too")
        point = initial_point(model)
        (value,) = natural_function(model, [precision.name])(point)
        factors = view.noise(point) / value
        if not np.allclose(factors, factors[0], rtol=1e-8, atol=0.0):
            raise Refusal(
                f"the noise of {view.name!r} is not the same for all features: expected one "
                f"precision, found {precision.name!r} times "
                f"{factors.min():.4g} to {factors.max():.4g}"
            )
        return precision.name, float(factors[0])
    raise Refusal(
        f"the noise of {view.name!r} has no precision of its own that is one free Gamma variable"
    )


def _dependency_clusters(
    clustering: Clustering, normals: Sequence[Normals], options: Ascent
) -> _Fitted:
    if len(clustering.assignments) > 1:
        raise Refusal("its views are not paired: several assignments share the clusters")
    (assignment,) = clustering.assignments
    tables = {}
    for own in normals:
        if not own.shared or not own.searchable or len(own.values) > 1:
            raise Refusal(
                f"{own.mean!r} has clusters with precisions of their own, or is not of one "
                "observed view"
            )
        (values,) = own.values
        if values.missing:
            raise Refusal(f"{values.name!r} has missing values; expected none")
        if values.factor:
            raise Refusal(f"the precisions of {values.name!r} have factors; expected none")
        if len(np.unique(values.objects)) < len(values.objects):
            raise Refusal(f"{values.name!r} has several rows for one object")
        tables[values.name] = placed(assignment.n_objects, values.objects, values.data)
    fit = fit_dependency(tables, clustering.truncation, **options)
    return _dependency(clustering, fit, tables, normals)[0]


def _dependency(
    clustering: Clustering, fit: Fit, tables: Mapping[str, NDArray], normals: Sequence[Normals]
) -> tuple[_Fitted, Any, list[NDArray]]:
    """Give what the two dependency-seeking mixtures share, their parameters, and all of w."""
    p = fit.parameters
    order = np.argsort(-p.weights, kind="stable")
    if p.links is None:
        p = p._replace(means=tuple(own[order] for own in p.means))
    else:
        p = p._replace(links=tuple(own[order] for own in p.links))
    p = p._replace(weights=p.weights[order])
    z, w = dependency.responsibilities(tables, p)
    values = _clustering_values(clustering, p.weights, [z.argmax(axis=1)])
    for own, mean, covariance in zip(normals, p.means, p.covariances, strict=True):
        values |= {own.mean: mean, own.precision: np.linalg.inv(covariance)}
    return _Fitted(fit, values, list(tables)), p, w


def _must_have_free_weights(clustering: Clustering) -> None:
    if not clustering.weights:
        raise Refusal(
            f"the weights of {clustering.assignments[0].name!r} are constants, or not those of "
            "all objects: EM would estimate one vector"
        )


def _dependency_hierarchy(part: Hierarchy, options: Ascent) -> _Fitted:
    _must_have_free_weights(part.clustering)
    normals = [view.normals for view in part.views]
    tables = {own.values[0].name: table for own, table in zip(normals, part.tables, strict=True)}
    n_marginal = [own.truncation for own in normals]
    fit = fit_dependency(tables, part.clustering.truncation, n_marginal, **options)
    fitted, p, w = _dependency(part.clustering, fit, tables, normals)
    more: dict[str, Any] = {}
    for view, link, own in zip(part.views, p.links, w, strict=True):
        more |= {
            view.link: _positive(link),
            view.assignment: own[view.objects].argmax(axis=1),
        }
    return fitted._replace(values={**fitted.values, **more})


def _projected_clusters(
    model: Model, clustering: Clustering, features: Features, options: Ascent
) -> _Fitted:
    for domain in features.domains:
        if domain.missing or domain.data.observed is not None:
            raise Refusal(f"{domain.name!r} has missing values")
    projections = [w for w in features.projections if w is not None]
    if features.precision and len(projections) < len(features.domains):
        raise Refusal("its projections are not free variables that are flat or normal")
    if not features.standard:
        raise Refusal(
            "its domains have intercepts, noise or deviations of their own, or are coarsened"
        )
    if len(features.domains) < len(clustering.assignments):
        raise Refusal("some of its assignments have no feature vectors")
    matching = find_matching(
        model, starts=options["starts"], random_seed=options["random_seed"], progressbar=False
    )
    labels = [matching["starts"][domain.assignment].to_numpy() for domain in features.domains]
    tables = [domain.data.values for domain in features.domains]
    fit = fit_projected_clusters(
        tables,
        list(zip(*labels, strict=True)),
        features.truncation,
        features.n_factors,
        **options,
    )
    order = np.argsort(-fit.parameters.weights, kind="stable")
    p = fit.parameters._replace(
        weights=fit.parameters.weights[order], latent=fit.parameters.latent[order]
    )
    _, found = projected_clusters.expected(tables, p)
    values = _clustering_values(clustering, p.weights, [own.argmax(axis=1) for own in found])
    values |= {
        features.latent: p.latent.T if features.latent_transposed else p.latent,
        str(features.precision): p.precision,
    }
    for parameter, w in zip(projections, p.projections, strict=True):
        values[parameter.name] = w.T if parameter.transposed else w
    return _Fitted(fit, values, [domain.name for domain in features.domains])


# -- to and from the model ----------------------------------------------------------------------


def _clustering_values(clustering: Clustering, weights, labels) -> dict[str, Any]:
    values: dict[str, Any] = {
        assignment.name: own for assignment, own in zip(clustering.assignments, labels, strict=True)
    }
    weights = _positive(weights)
    if clustering.sticks:
        left = weights[::-1].cumsum()[::-1][:-1]
        values[clustering.weights] = np.minimum(weights[:-1] / left, 1.0 - 1e-16)
    else:
        values[clustering.weights] = weights
    return values


def _positive(weights) -> NDArray[np.float64]:
    weights = np.maximum(weights, _LEAST)
    return weights / weights.sum(axis=-1, keepdims=True)
