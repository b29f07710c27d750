"""Objects' features in another domain, with intervals."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from pymc.model.core import Model

from pm_match.features.predictor import FeaturePredictor, feature_predictor
from pm_match.features.values import Outlook, normals
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.interval_levels import interval_levels
from pm_match.prediction.components import Components, draw_weights, predicted
from pm_match.prediction.mixture import NUMBERS, NormalLaw
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictive import Predictive
from pm_match.prediction.predictor import NewObjects, Place
from pm_match.prediction.summaries import summary_dataset


def translate(
    idata: xr.DataTree | xr.Dataset,
    model: Model,
    x: Any = None,
    *,
    source: str,
    target: str,
    ci_prob: float | None = None,
    reweight: bool = True,
    num_draws: int | None = None,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> xr.Dataset:
    r"""Predict the features that a match of an object would have in another domain.

    What an object of the target domain looks like that shares the cluster of an object of the
    source: the mixture over draws t and clusters j, latent vectors z (deviations included)
    integrated out,

    .. math:: p(y \mid x^*, X) = \frac{\sum_{t, j} q_t(j)\, N(y;\, a_t + W_t \nu_{tj},\,
              W_t C_{tj} W_t^\top + \Sigma_t)}{\sum_{t, j} q_t(j)}

    with the weights :math:`q_t(j)` of `assign`, and :math:`z \sim N(\nu_{tj}, C_{tj})` given the
    objects of cluster j, the new one included. Mean and quantiles are those of the mixture, not of
    draws from it. Unlike `map_objects`, which inverts a projection, it takes account of clusters,
    noise, and the uncertainty of both.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` or `find_matching` returns, or its posterior.
    model : pymc.Model
        The model that was sampled.
    x : optional
        New objects of the source domain, as `assign` takes them. Default: the domain's own
        objects, whose clusters are those of the draws.
    source, target : str
        Names of the domains. The target has feature vectors; it may be the source itself.
    ci_prob : float, optional
        The probability of the equal-tailed interval of each feature. Default: ArviZ's
        ``rcParams["stats.ci_prob"]``.
    reweight, num_draws, progressbar, group, sample_dims
        As in `assign`.

    Returns
    -------
    Dataset
        ``<target>``, ``<target>_lower`` and ``<target>_upper``: the mean and the ends of the
        interval, shape (n_objects, n_features of the target). Objects are taken as relevant: an
        irrelevant one has no match (NaN for those of the source's own that never are relevant).

    Raises
    ------
    UnservedModelError, KeyError, TypeError
        As `assign`.
    ValueError
        If the domains do not share their clusters, or the target has no feature vectors; and as
        `assign`.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> found = pmm.translate(idata, model, source="a", target="b", ci_prob=0.9, progressbar=False)
    >>> sorted(found), found["b"].shape
    (['b', 'b_lower', 'b_upper'], (60, 20))
    """
    levels = interval_levels(ci_prob)
    points = RecordedPoints(idata, model, group, sample_dims, num_draws)
    home, goal = (find_place(points.structure, name) for name in (source, target))
    if (home.component, home.clustering) != (goal.component, goal.clustering):
        raise ValueError(
            f"source {source!r} and target {target!r}: expected domains of one set of clusters; "
            "found two sets"
        )
    predictive = Predictive(model, home.component)
    predictor = feature_predictor(predictive, goal)
    if predictor is None:
        raise ValueError(f"target {target!r}: expected a domain with feature vectors; found none")
    new = None if x is None else read_new_objects(model, predictive, home, x)
    n = home.assignment.n_objects if new is None else len(new)
    domain = predictor.domain_of(goal)
    n_features = domain.n_features
    found = []
    for rows, draws in predicted(points, predictive, n, n_features, progressbar):
        components = Components(len(range(n)[rows]), n_features, NormalLaw.of)
        own = None if new is None else new.rows(rows)
        for _ in draws:
            if own is None:
                _add_known(components, predictive, predictor, home, goal, rows)
            else:
                _add_new(components, predictive, predictor, own, goal, reweight)
        found.append(components.summaries(levels))
    values = np.concatenate(found, axis=1)
    names = (f"{goal.domain}{end}" for end, _ in NUMBERS)
    whole = dict(zip(names, values, strict=True))
    objects = (home.assignment.name,) if new is None else new
    return summary_dataset(model, points, domain.name, whole, objects)


def _add_known(
    components: Components,
    predictive: Predictive,
    predictor: FeaturePredictor,
    home: Place,
    goal: Place,
    rows: slice,
) -> None:
    """Add what a draw says of the source's own objects: one component each."""
    labels = predictive.labels_of(home)[rows]
    relevant = np.flatnonzero(labels >= 0)
    outlook = Outlook.fresh(predictor.emission_of(goal))
    factors, root = predictor.clusters.factors()
    row = predictor.clusters.row[labels[relevant]]
    log_weight = np.full((len(relevant), len(factors)), -np.inf)
    log_weight[np.arange(len(relevant)), row] = 0.0
    means, deviations = outlook.means(factors)[None], outlook.deviations(root)
    components.add(relevant, log_weight, normals(means, deviations))


def _add_new(
    components: Components,
    predictive: Predictive,
    predictor: FeaturePredictor,
    new: NewObjects,
    goal: Place,
    reweight: bool,
) -> None:
    """Add what a draw says of new objects: a component for every cluster."""
    log_weight = draw_weights(predictive, new, reweight)
    outlook = Outlook.fresh(predictor.emission_of(goal))
    own = predictor.by_row(log_weight)
    seen: Any = new.seen.get(predictive.predictors.index(predictor))
    if seen is None:
        factors, root = predictor.clusters.factors()
        means = outlook.means(factors)[None]
        components.add(np.arange(len(new)), own, normals(means, outlook.deviations(root)))
        return
    for rows, _, joined in predictor.patterns(new.place, seen):
        factors, root = joined.factors()
        means = outlook.means(factors)
        components.add(rows, own[rows], normals(means, outlook.deviations(root)))
