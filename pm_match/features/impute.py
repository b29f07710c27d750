"""Missing values, predicted."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.features.emission import Emission
from pm_match.features.parts import FeatureDomain, Features
from pm_match.features.predictor import feature_predictor, vectors_of
from pm_match.features.summaries import summary_dataset
from pm_match.features.translate import draw_weights
from pm_match.features.values import Components, Outlook, entries, predicted
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.interval_levels import interval_levels
from pm_match.prediction.mixture import mixture_mean, mixture_quantiles
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictive import Predictive
from pm_match.prediction.predictor import NewObjects, Place

__all__ = ["impute"]


def impute(
    idata: xr.DataTree | xr.Dataset,
    model: Model,
    new_data: Mapping[str, Any] | None = None,
    *,
    ci_prob: float | None = None,
    reweight: bool = True,
    num_draws: int | None = None,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    r"""Predict missing values, in the shape of their tables, with intervals.

    Each is a mixture of normal distributions over draws, latent vectors integrated out: for the
    objects of the data one a draw, given their clusters in it,

    .. math:: x_{dnm} \mid s \sim N(w_{dm}^\top \mu_j,\; \alpha^{-1} + w_{dm}^\top C_j w_{dm}),
              \quad j = s_{dn}

    (eq. 23–26 of Iwata, Hirao & Ueda 2016), and for new objects one a draw and cluster, given what
    is observed of them, weighted as in `assign`. Mean and quantiles are those of the mixture, so
    that they are steadier than those of the recorded draws ``<name>_unobserved``, which say the
    same.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` or `find_matching` returns, or its posterior.
    model : pymc.Model
        The model that was sampled.
    new_data : mapping, optional
        From domains to what is seen of new objects, as `assign` takes it; their missing features
        are predicted. Default: those of the data.
    ci_prob : float, optional
        The probability of the equal-tailed intervals. Default: ArviZ's
        ``rcParams["stats.ci_prob"]``.
    reweight, num_draws, progressbar, group, sample_dims
        As in `assign`.
    var_names : sequence of str, optional
        Without new data, the domains to predict. Default: all that have missing values.

    Returns
    -------
    Dataset
        For every domain ``<name>``, ``<name>_lower`` and ``<name>_upper``, shape (n_objects,
        n_features): mean and ends of the interval where a value is missing, and the value itself
        where it is not.

    Raises
    ------
    UnservedModelError, KeyError, TypeError
        As `assign`.
    ValueError
        If there are no missing values in the data; and as `assign`.
    """
    levels = interval_levels(ci_prob)
    points = RecordedPoints(idata, model, group, sample_dims, num_draws)
    found = []
    if new_data is None:
        for place in _with_missing(points, var_names):
            found.append(_of_data(model, points, place, levels, progressbar))
        return xr.merge(found)
    if var_names is not None:
        raise ValueError("var_names: expected none with new_data, which names its domains itself")
    for domain, given in new_data.items():
        place = find_place(points.structure, domain)
        predictive = Predictive(model, place.component)
        new = read_new_objects(model, predictive, place, given)
        if vectors_of(new) is None:
            raise ValueError(
                f"new_data: expected features of domain {domain!r}, some of them missing"
            )
        found.append(_of_new(model, points, predictive, new, levels, reweight, progressbar))
    return xr.merge(found)


def _with_missing(points: RecordedPoints, var_names: Sequence[str] | None) -> list[Place]:
    """Find the domains with missing values."""
    if var_names is not None:
        found = [find_place(points.structure, name) for name in var_names]
    else:
        found = [
            find_place(points.structure, domain.assignment)
            for features in points.structure.of(Features)
            for domain in features.domains
            if domain.data.observed is not None
        ]
    for place in found:
        domain = _domain(place)
        if domain is None or domain.data.observed is None:
            raise ValueError(f"var_names: domain {place.domain!r} has no missing values")
    if not found:
        raise ValueError(
            "expected a domain with missing values; found none. new_data may have some"
        )
    return found


def _domain(place: Place) -> FeatureDomain | None:
    """Return the feature vectors of an assignment's objects, if they have any."""
    for features in place.component.of(Features, place.clustering):
        for domain in features.domains:
            if domain.assignment == place.assignment.name:
                return domain
    return None


def _of_data(model, points: RecordedPoints, place: Place, levels, progressbar) -> xr.Dataset:
    """Predict the missing values of a domain's own objects."""
    domain = _domain(place)
    assert domain is not None
    predictive = Predictive(model, place.component)
    whole = np.repeat(domain.data.values[None], 1 + len(levels), axis=0)
    row, column = domain.data.holes
    for own, draws in predicted(points, predictive, len(row), 1, progressbar):
        i, m = row[own], column[own]
        mean, sd = np.empty((2, points.n_draws, len(i)))
        for t in draws:
            mean[t], sd[t] = _entries(predictive, place, i, m)
        weight = np.ones(points.n_draws)
        whole[0, i, m] = mixture_mean(weight, mean)
        whole[1:, i, m] = mixture_quantiles(weight, mean, sd, levels)
    return summary_dataset(model, points, place, domain, whole, place)


def _entries(predictive: Predictive, place: Place, row: NDArray, column: NDArray):
    """Mean and standard deviation of some entries of a domain's table in a draw."""
    predictor = feature_predictor(predictive, place)
    assert predictor is not None
    data, clusters = predictor.domain_of(place).data, predictor.clusters
    labels = predictive.labels_of(place)
    emission, factors = predictor.emission_of(place), clusters.factors()
    mean, sd = entries(emission, data, *factors, clusters.row[labels], row, column)
    background = predictor.irrelevant(place)
    if background is not None:
        # Irrelevant objects vary around means of their own, and in no cluster.
        left = background.residuals(data)
        own = Emission.of_noise(background.root)
        nobody = np.zeros(len(labels), np.int64)
        alone = entries(own, left, np.zeros((1, 0)), np.zeros((1, 0, 0)), nobody, row, column)
        irrelevant = labels[row] < 0
        mean = np.where(irrelevant, alone[0] + background.mean[row, column], mean)
        sd = np.where(irrelevant, alone[1], sd)
    return mean, sd


def _of_new(
    model,
    points: RecordedPoints,
    predictive: Predictive,
    new: NewObjects,
    levels,
    reweight: bool,
    progressbar,
) -> xr.Dataset:
    """Predict the missing values of new objects."""
    vectors, domain = vectors_of(new), _domain(new.place)
    assert vectors is not None
    assert domain is not None
    values = vectors.values
    whole = np.repeat(values[None], 1 + len(levels), axis=0)
    for rows, draws in predicted(points, predictive, len(new), values.shape[1], progressbar):
        own = new.rows(rows)
        collected: dict[bytes, tuple[NDArray, NDArray, Components]] = {}
        for _ in draws:
            _add(predictive, own, reweight, collected)
        for members, seen, components in collected.values():
            found = components.summaries(levels)
            for place, i in enumerate(members):
                whole[:, rows.start + i, ~seen] = found[:, place]
    return summary_dataset(model, points, new.place, domain, whole, new)


def _add(predictive: Predictive, new: NewObjects, reweight: bool, collected) -> None:
    """Add what a draw says of the values that are missing, by which of them are."""
    predictor, vectors = feature_predictor(predictive, new.place), vectors_of(new)
    assert predictor is not None
    assert vectors is not None
    log_weight = draw_weights(predictive, new, reweight)
    by_row = predictor.by_row(log_weight)
    background = predictor.background_of(new.place)
    for rows, seen, joined in predictor.patterns(new.place, vectors):
        if seen.all():
            continue
        x = vectors.values[np.ix_(rows, seen)]
        outlook = Outlook.unseen(predictor.emission_of(new.place), seen, x)
        factors, root = joined.factors()
        mean, sd = outlook.means(factors), outlook.deviations(root)
        weight = by_row[rows]
        if background is not None:
            own_mean, own_sd = _of_background(background, seen, x)
            mean = np.concatenate([mean, own_mean], axis=1)
            sd = np.concatenate([sd, own_sd[None]])
            weight = np.column_stack([weight, log_weight[rows, -1]])
        key = seen.tobytes()
        if key not in collected:
            collected[key] = rows, seen, Components(len(rows), int((~seen).sum()))
        collected[key][2].add(np.arange(len(rows)), weight, mean, sd)


def _of_background(background: Emission, seen: NDArray[np.bool_], x: NDArray):
    """Mean (N, 1, M) and standard deviation (M,) of what irrelevant objects lack."""
    outlook = Outlook.unseen(background, seen, x)
    return outlook.base, np.sqrt(outlook.variance)
