"""The max-margin model of several views as a classifier of folds, its kernel learned or frozen."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pymc as pm
import xarray as xr
from pymc.step_methods.compound import BlockedStep, Competence

import pm_match as pmm
from case_studies.peers.classifiers import Prediction
from case_studies.view_data import Fold, folds
from pm_match.datasets import PairedViews


@dataclass(frozen=True)
class Settings:
    """How the model is declared and sampled.

    Attributes
    ----------
    n_factors, n_frequencies, n_private : int
    coefficient_prior : (float, float)
        As `pm_match.models.max_margin_views` takes them.
    costs : tuple of float
        Weights C of the labels. Of several, the one is taken that predicts best within the objects
        to learn from.
    draws, tune : int
        Of the only chain. Chains that choose C have a third of them.
    inner_folds : int
        Parts that these objects are cut into to choose C.
    """

    n_factors: int = 20
    n_frequencies: int = 100
    n_private: int = 1
    coefficient_prior: tuple[float, float] = (0.5, 0.5)
    costs: tuple[float, ...] = (1.0,)
    draws: int = 300
    tune: int = 300
    inner_folds: int = 3


class Frozen(BlockedStep):
    """A step that leaves its variables where they are: a kernel that does not adapt."""

    name = "frozen"
    stats_dtypes_shapes: ClassVar[dict] = {}

    def __init__(self, variables, *, model: pm.Model):
        self.vars = [model.rvs_to_values[variable] for variable in variables]

    @staticmethod
    def competence(*_) -> Competence:
        """Leave it to the user to ask for it."""
        return Competence.INCOMPATIBLE

    def step(self, point: dict) -> tuple[dict, list]:
        """Return the point as it is."""
        return point, [{}]


def fit(
    views: dict[str, xr.DataArray],
    labels: np.ndarray,
    settings: Settings,
    seed: int,
    frozen: bool = False,
) -> tuple[pm.Model, xr.DataTree]:
    """Declare the model of labelled views and sample it.

    Parameters
    ----------
    views : dict of str to DataArray, shape (n_objects, n_features)
    labels : ndarray of int, shape (n_objects,)
    settings : Settings
        With the first of its costs as C.
    seed : int
    frozen : bool
        Whether the frequencies stay where they start, a draw from their prior.

    Returns
    -------
    model : pymc.Model
    idata : DataTree
    """
    model = pmm.models.max_margin_views(
        views,
        labels,
        settings.n_factors,
        settings.n_frequencies,
        n_private=settings.n_private,
        coefficient_prior=settings.coefficient_prior,
        C=settings.costs[0],
    )
    with _quiet():
        idata = pmm.sample(
            settings.draws,
            tune=settings.tune,
            model=model,
            chains=1,
            cores=1,
            random_seed=seed,
            step=_frozen(model) if frozen else None,
            init="dispersed",
            compute_convergence_checks=False,
            progressbar=False,
        )
    return model, idata


def _frozen(model: pm.Model) -> list:
    """Make the steps that leave frequencies alone; `pmm.sample` adds the others."""
    return [
        Frozen([model["frequencies"]], model=model),
        pmm.LatentHMC([model["latent"]], model=model, exchange=False),
    ]


def predict(fold: Fold, settings: Settings, seed: int, frozen: bool = False) -> Prediction:
    """Learn from a fold's objects, C chosen among these if there is a choice, and predict the rest.

    Parameters
    ----------
    fold : Fold
    settings : Settings
    seed : int
    frozen : bool
        As in `fit`.

    Returns
    -------
    Prediction
        By the class with the largest mean probability.
    """
    if len(settings.costs) > 1:
        settings = replace(settings, costs=(_chosen(fold, settings, seed, frozen),))
    model, idata = fit(fold.train, fold.train_labels, settings, seed, frozen)
    found = pmm.predict(idata, model, fold.test, random_seed=seed, progressbar=False)
    mean = found["mean_probability"].to_numpy()
    if mean.ndim == 1:
        mean = np.column_stack([1 - mean, mean])
    return Prediction(mean.argmax(axis=1), mean / mean.sum(axis=1, keepdims=True))


def _chosen(fold: Fold, settings: Settings, seed: int, frozen: bool) -> float:
    """Give the C with the least Brier score within the objects to learn from."""
    views = PairedViews(fold.train, fold.train_labels, ())
    # Scaled already: by its own deviation, a rare word would count like a frequent one.
    inner = list(folds(views, (), settings.inner_folds, seed, one_unit=tuple(fold.train)))
    truth = np.eye(int(fold.train_labels.max()) + 1)
    losses = []
    draws, tune = -(-settings.draws // 3), -(-settings.tune // 3)
    for cost in settings.costs:
        short = replace(settings, costs=(cost,), draws=draws, tune=tune)
        said = [predict(part, short, seed, frozen) for part in inner]
        losses.append(
            np.mean(
                [
                    np.mean((own.probability - truth[part.test_labels]) ** 2)
                    for own, part in zip(said, inner, strict=True)
                ]
            )
        )
    return settings.costs[int(np.argmin(losses))]


@contextmanager
def _quiet():
    """Keep PyMC's notes on one short chain from filling the screen."""
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
