"""Labels of new objects, from the views that they have."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model
from scipy.special import expit, softmax

from pm_match.checks import check_seed, no_such
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.interval_levels import interval_levels
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictor import coords
from pm_match.progress import PATIENCE, SearchProgress
from pm_match.reading.parts import Point, Structure, UnservedModelError
from pm_match.reading.probe import initial_point
from pm_match.tables.domains import as_new_objects
from pm_match.tables.paired_views import same_objects
from pm_match.views.factors.linear_factors import (
    Array,
    CanonicalForm,
    MaskedTable,
)
from pm_match.views.factors.points import FactorPoints, LatentForm
from pm_match.views.factors.recognise import FactorView
from pm_match.views.hinge import fourier_values
from pm_match.views.hinge.labelled_latents import LabelledLatent
from pm_match.views.hinge.recognise import HingeModel


def predict(
    idata: xr.DataTree | xr.Dataset,
    model: Model,
    new_views: Mapping[str, Any] | None = None,
    *,
    label: str | None = None,
    ci_prob: float | None = None,
    num_draws: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> xr.Dataset:
    r"""Predict the labels of new objects from the views that they have, with uncertainty.

    In every draw, the latent vector h of a new object is drawn from its conditional given what is
    seen of it (private latent vectors and missing values integrated out), which is normal; its
    score is :math:`f = \beta^\top \phi(h)`. The probability is the pseudo-likelihood normalised
    over the labels: of class +1, :math:`\propto \exp\{-2C \max(0, 1 - f)\}`, and where classes have
    scores of their own of class k, in proportion to the product over scores that k is +1 in its own
    and -1 in the others. The draws themselves are not weighted by how well they predict the views.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    model : pymc.Model
        The model that was sampled, such as `max_margin_views`.
    new_views : mapping, optional
        From names of views, some or all, to tables of the same new objects: arrays, data frames,
        data arrays or sparse matrices. NaN and masked values are missing; labelled columns are
        matched by label. Default: the model's own objects, at the latent vectors of the draws, to
        which their labels have contributed.
    label : str, optional
        The name of the hinge, if the model has several.
    ci_prob : float, optional
        The probability of the equal-tailed intervals. Default: ArviZ's
        ``rcParams["stats.ci_prob"]``.
    num_draws : int, optional
        How many draws of each chain to use, evenly spaced. Default: all.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
        Of the draws of latent vectors.
    progressbar : bool, default True
        Whether to show one if it takes more than two seconds.
    group, sample_dims
        The group of the DataTree that holds the draws, and the dimensions that number them.

    Returns
    -------
    Dataset
        - ``decision`` (chain, draw, object[, class]): the scores. Two classes have one.
        - ``probability`` (chain, draw, object[, class]): of the class +1, which
          ``attrs["positive"]`` names, or of each.
        - ``mean_probability`` (object[, class]): its mean over draws, which is the one to decide
          by and to judge calibration on.
        - ``predicted`` (object): the class with the largest mean probability.
        - ``decision_lower``, ``decision_upper``, ``probability_lower``, ``probability_upper``
          (object[, class]): the ends of the intervals over draws.

    Raises
    ------
    UnservedModelError
        If the model has no hinge on random Fourier features of latent vectors that views see.
    KeyError
        If there is no such view or label, or the draws lack a variable.
    TypeError, ValueError
        If new views do not fit the model's, or another argument is not as described.

    Examples
    --------
    >>> data = pmm.datasets.xor_views(40)
    >>> model = pmm.models.max_margin_views(data.views, data.labels)
    >>> idata = pmm.sample(10, tune=10, chains=2, cores=1, model=model, random_seed=1, quiet=True)
    >>> found = pmm.predict(idata, model, data.views)
    >>> found["probability"].dims
    ('chain', 'draw', 'object')
    """
    check_seed(random_seed)
    levels = interval_levels(ci_prob)
    points = RecordedPoints(idata, model, group, sample_dims, num_draws)
    part, hinge = _find(points.structure, label)
    outlook = _Outlook.of(model, part, new_views) if new_views is not None else None
    objects = _objects(model, part.name) if outlook is None else outlook.objects
    rng = np.random.default_rng(random_seed)
    decision = np.empty((points.n_draws, len(objects), hinge.shape[1]))
    probability = np.empty_like(decision)
    coefficients = model.rvs_to_values[model[hinge.coefficients]].name
    with SearchProgress(points.n_draws, progressbar, PATIENCE, "Predicting") as progress:
        for number, point in enumerate(points):
            latent, frequencies = hinge.fourier(point)
            if outlook is not None:
                latent = outlook.latent_form(point).draw(rng)
            beta = point[coefficients].reshape(hinge.shape)
            decision[number] = fourier_values(latent, frequencies) @ beta
            probability[number] = label_probability(decision[number], hinge.C(point))
            progress.advance()
    return _summary(model, points, hinge, objects, decision, probability, levels)


def label_probability(scores: NDArray, C: float) -> NDArray[np.float64]:
    """Normalise the pseudo-likelihood of scores (N, S) over the labels.

    Return (N, S): probabilities of the class +1 of one score, of every class of several.
    """
    log_odds = 2.0 * C * (np.maximum(0.0, 1.0 + scores) - np.maximum(0.0, 1.0 - scores))
    return expit(log_odds) if scores.shape[1] == 1 else softmax(log_odds, axis=1)


@dataclass(frozen=True, eq=False)
class _Outlook:
    """What is seen of new objects, as views of a model."""

    objects: NDArray  # (N,) labels
    views: list[FactorView]  # those of the model that are given, with the new objects' values
    part: LabelledLatent
    points: FactorPoints

    @classmethod
    def of(cls, model: Model, part: LabelledLatent, given: Any) -> _Outlook:
        """Check what is given of new objects."""
        if not isinstance(given, Mapping) or not given:
            raise TypeError(
                "new_views: expected a mapping from names of views to tables of new objects; found "
                f"{given if isinstance(given, Mapping) else type(given).__name__!r}"
            )
        known = {view.name: view for view in part.factors.views}
        tables = {}
        for name, table in given.items():
            if name not in known:
                raise KeyError(no_such(f"view {name!r} in the model", sorted(known), name))
            tables[name] = as_new_objects(name, table, coords(model, name, 1), "view")
        objects = same_objects(tables)
        views = []
        for name, table in tables.items():
            values = np.ma.filled(table.values, np.nan)
            if values.shape[1] != known[name].table.values.shape[1]:
                raise ValueError(
                    f"new objects of view {name!r}: expected "
                    f"{known[name].table.values.shape[1]} features; found {values.shape[1]}"
                )
            views.append(replace(known[name], table=MaskedTable.of(values), missing=None))
        return cls(objects, views, part, FactorPoints(model, part.factors))

    def latent_form(self, point: Point) -> CanonicalForm:
        """Find the conditional of the objects' latent vectors at a draw."""
        factors = self.part.factors
        sizes = {n: factors.latents[n].shape[1] for view in self.views for n in view.latents}
        forms = [self.points.view_form(point, view) for view in self.views]
        form, others = LatentForm.product(forms, sizes), []
        for n in sizes:
            latent = factors.latents[n]
            if latent.name == self.part.name:
                prior = self.part.prior(point)
            elif latent.foreign:
                raise UnservedModelError(
                    f"views depend on {latent.name!r} besides {self.part.name!r}, and something "
                    "else depends on it: its values for new objects are not known"
                )
            else:
                prior = latent.prior(point)
                others.append(n)
            form = form.with_prior(n, self._prior(latent.name, prior))
        return form.without(others).form

    def _prior(self, name: str, prior: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return the prior (1, k) that the objects of a model have in common."""
        if any((array != array[:1]).any() for array in prior):
            raise UnservedModelError(
                f"the prior of {name!r} differs between objects: that of new ones is not known"
            )
        return prior[0][:1], prior[1][:1]


def _find(structure: Structure, label: str | None) -> tuple[LabelledLatent, HingeModel]:
    """Find the hinge to predict, and the latent vectors that it scores."""
    found = {
        hinge.name: (part, hinge)
        for part in structure.parts
        if isinstance(part, LabelledLatent)
        for hinge in part.hinges
    }
    if not found:
        raise UnservedModelError(
            "nothing to predict in this model: expected a Hinge on fourier_features of latent "
            f"vectors that views see linearly; {structure.explain()}"
        )
    if label is None and len(found) > 1:
        raise ValueError(f"label: expected one of {sorted(found)}; found None")
    if label is not None and label not in found:
        raise KeyError(no_such(f"label {label!r} in the model", sorted(found), label))
    return found[label if label is not None else next(iter(found))]


def _objects(model: Model, name: str) -> NDArray:
    """Return the labels of a model's own objects."""
    found = coords(model, name, 0)
    return np.arange(len(initial_point(model)[name])) if found is None else np.asarray(found)


def _classes(model: Model, hinge: HingeModel) -> NDArray:
    """Return the names of the classes, or the codes that labels have if there are none."""
    n_scores = hinge.shape[1]
    named = model.coords.get("class")
    if named is not None and len(named) == max(2, n_scores):
        return np.asarray(named)
    return np.array([-1, 1]) if n_scores == 1 else np.arange(n_scores)


def _summary(
    model: Model, points: RecordedPoints, hinge: HingeModel, objects, decision, probability, levels
) -> xr.Dataset:
    """Put the draws and their summaries together."""
    classes = _classes(model, hinge)
    own = ("object",) if hinge.shape[1] == 1 else ("object", "class")
    dims = (*points.sample_dims, *own)
    sizes = [points.posterior.sizes[dim] for dim in points.sample_dims]
    if hinge.shape[1] == 1:
        decision, probability = decision[..., 0], probability[..., 0]
    mean = probability.mean(axis=0)
    best = (mean > 0.5).astype(np.int64) if hinge.shape[1] == 1 else mean.argmax(axis=1)
    found: dict[str, Any] = {
        "mean_probability": (own, mean),
        "predicted": ("object", classes[best]),
    }
    for name, values in (("decision", decision), ("probability", probability)):
        found[name] = (dims, values.reshape(*sizes, *values.shape[1:]))
        lower, upper = np.quantile(values, levels, axis=0)
        found |= {f"{name}_lower": (own, lower), f"{name}_upper": (own, upper)}
    coords: dict[Any, Any] = {
        dim: points.posterior.coords[dim]
        for dim in points.sample_dims
        if dim in points.posterior.coords
    }
    coords["object"] = objects
    if hinge.shape[1] > 1:
        coords["class"] = classes
    dataset = xr.Dataset(found, coords)
    if hinge.shape[1] == 1:
        dataset.attrs["positive"] = classes[1].item()
    return dataset
