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
from case_studies.peers.classifiers import Prediction, platt
from case_studies.view_data import Fold, folds
from pm_match.datasets import PairedViews


@dataclass(frozen=True)
class Settings:
    """How the model is declared and sampled.

    Attributes
    ----------
    n_factors, n_frequencies, n_private : int
    coefficient_prior, precision_prior : (float, float)
        As `pm_match.models.max_margin_views` takes them.
    costs : tuple of float
        Weights C of the labels. Of several, the one is taken that predicts best within the objects
        to learn from.
    draws, tune : int
        Of each chain.
    chains : int
        Each starts with frequencies of its own. C is chosen by one chain with a third of all draws
        and tuning.
    inner_folds : int
        Parts that the objects to learn from are cut into to choose C.
    n_leapfrog : int
        Steps of Hamiltonian moves of all frequencies at once; 0 for none.
    """

    n_factors: int = 20
    n_frequencies: int = 100
    n_private: int = 1
    coefficient_prior: tuple[float, float] = (0.5, 0.5)
    precision_prior: tuple[float, float] = (1.0, 1.0)
    costs: tuple[float, ...] = (1.0,)
    draws: int = 300
    tune: int = 300
    chains: int = 1
    inner_folds: int = 3
    n_leapfrog: int = 0


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
        precision_prior=settings.precision_prior,
        C=settings.costs[0],
    )
    with _quiet():
        idata = pmm.sample(
            settings.draws,
            tune=settings.tune,
            model=model,
            chains=settings.chains,
            cores=1,
            random_seed=seed,
            step=_moves(model, settings.n_leapfrog, frozen),
            init="dispersed",
            compute_convergence_checks=False,
            progressbar=False,
        )
    return model, idata


def _moves(model: pm.Model, n_leapfrog: int, frozen: bool) -> list | None:
    """Make the step of frequencies that is asked for, if any; `pmm.sample` adds the others."""
    frequencies = [model["frequencies"]]
    if frozen:
        return [Frozen(frequencies, model=model)]
    if n_leapfrog:
        return [pmm.FrequencyMetropolis(frequencies, model=model, n_leapfrog=n_leapfrog)]
    return None


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
        By the class with the largest mean probability; calibrated by the objects that were held out
        to choose C, if there was a choice. Their scores are of one chain that learned from fewer
        objects.
    """
    if len(settings.costs) == 1:
        return _predict(fold, settings, seed, frozen)[0]
    cost, held_out, labels = _chosen(fold, settings, seed, frozen)
    said, scores = _predict(fold, replace(settings, costs=(cost,)), seed, frozen)
    return replace(said, calibrated=platt(held_out, labels, scores))


def _predict(
    fold: Fold, settings: Settings, seed: int, frozen: bool
) -> tuple[Prediction, np.ndarray]:
    """Predict with the first of the costs; with the mean scores, (N,) or (N, classes)."""
    model, idata = fit(fold.train, fold.train_labels, settings, seed, frozen)
    found = pmm.predict(idata, model, fold.test, random_seed=seed, progressbar=False)
    mean = found["mean_probability"].to_numpy()
    if mean.ndim == 1:
        mean = np.column_stack([1 - mean, mean])
    said = Prediction(mean.argmax(axis=1), mean / mean.sum(axis=1, keepdims=True))
    return said, found["decision"].mean(["chain", "draw"]).to_numpy()


def _chosen(
    fold: Fold, settings: Settings, seed: int, frozen: bool
) -> tuple[float, np.ndarray, np.ndarray]:
    """Choose C by the Brier score within the objects to learn from.

    Returns
    -------
    cost : float
    scores : ndarray, shape (n_objects,) or (n_objects, n_classes)
        Of the objects, in the inner folds' order, each held out in its turn.
    labels : ndarray of int, shape (n_objects,)
    """
    views = PairedViews(fold.train, fold.train_labels, ())
    # Scaled already: by its own deviation, a rare word would count like a frequent one.
    inner = list(folds(views, (), settings.inner_folds, seed, one_unit=tuple(fold.train)))
    truth = np.eye(int(fold.train_labels.max()) + 1)
    losses, scores = [], []
    draws, tune = (-(-settings.chains * n // 3) for n in (settings.draws, settings.tune))
    for cost in settings.costs:
        short = replace(settings, costs=(cost,), draws=draws, tune=tune, chains=1)
        said, own = zip(*(_predict(part, short, seed, frozen) for part in inner), strict=True)
        scores.append(np.concatenate(own))
        losses.append(
            np.mean(
                [
                    np.mean((of_fold.probability - truth[part.test_labels]) ** 2)
                    for of_fold, part in zip(said, inner, strict=True)
                ]
            )
        )
    best = int(np.argmin(losses))
    labels = np.concatenate([part.test_labels for part in inner])
    return settings.costs[best], scores[best], labels


@contextmanager
def _quiet():
    """Keep PyMC's notes on short chains from filling the screen."""
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
