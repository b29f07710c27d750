"""Classifiers of all views' features side by side: what one does who ignores that there are views.

All choose their constants by cross-validation within the objects to learn from. A support vector
machine gives no probabilities: Platt's sigmoid is fitted to its scores, cross-validated too, and
what it predicts remains the sign of the score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from case_studies.peers.tables import optional_module

_COSTS = (0.3, 1.0, 3.0, 10.0)
_LINEAR_COSTS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of features of variance 1: many add up
_WIDTHS = (0.1, 0.3, 1.0, 3.0)  # times one over the number of features
_FEW = 1000  # objects up to which five folds are affordable


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is said of new objects.

    Attributes
    ----------
    labels : ndarray of int, shape (n_objects,)
    probability : ndarray, shape (n_objects, n_classes)
        In the order of the classes' numbers.
    calibrated : ndarray, shape (n_objects, n_classes), optional
        The same by Platt's sigmoids, where `probability` is the method's own. None where that is
        Platt's already, or nothing was held out.
    """

    labels: np.ndarray
    probability: np.ndarray
    calibrated: np.ndarray | None = None


def rbf_svm(x: ArrayLike, labels: ArrayLike, new: ArrayLike, seed: int) -> Prediction:
    """Classify by a support vector machine with a Gaussian kernel.

    Parameters
    ----------
    x : array_like, shape (n_objects, n_features)
    labels : array_like of int, shape (n_objects,)
    new : array_like, shape (n_new, n_features)
    seed : int
        Of the inner folds.

    Returns
    -------
    Prediction
    """
    svm = optional_module("sklearn.svm")
    widths = [width / np.shape(x)[1] for width in _WIDTHS]
    machine = _chosen(svm.SVC(), {"C": _COSTS, "gamma": widths}, x, labels, seed)
    return _with_platt(machine, x, labels, new, seed)


def linear_svm(x: ArrayLike, labels: ArrayLike, new: ArrayLike, seed: int) -> Prediction:
    """Classify by a linear support vector machine; as `rbf_svm`."""
    svm = optional_module("sklearn.svm")
    machine = _chosen(svm.SVC(kernel="linear"), {"C": _LINEAR_COSTS}, x, labels, seed)
    return _with_platt(machine, x, labels, new, seed)


def logistic_regression(x: ArrayLike, labels: ArrayLike, new: ArrayLike, seed: int) -> Prediction:
    """Classify by logistic regression with a ridge penalty; as `rbf_svm`, by its own scores."""
    linear = optional_module("sklearn.linear_model")
    machine = linear.LogisticRegression(max_iter=2000)
    fitted = _chosen(machine, {"C": _LINEAR_COSTS}, x, labels, seed).fit(x, labels)
    return Prediction(fitted.predict(new), fitted.predict_proba(new))


def platt(scores: ArrayLike, labels: ArrayLike, new: ArrayLike) -> np.ndarray:
    """Turn scores into probabilities by Platt's sigmoids.

    Parameters
    ----------
    scores : array_like, shape (n_objects,) or (n_objects, n_classes)
        Of objects from which they were not learned. Two classes may have one score, of class 1.
    labels : array_like of int, shape (n_objects,)
    new : array_like, shape (n_new,) or (n_new, n_classes)
        Scores to turn.

    Returns
    -------
    ndarray, shape (n_new, n_classes)
        Of several classes each is told from the rest, and their probabilities are made to sum to 1.
    """
    scores, labels, new = np.asarray(scores), np.asarray(labels), np.asarray(new)
    if scores.ndim == 1:
        positive = _fitted_sigmoid(scores, labels == 1, new)
        return np.column_stack([1 - positive, positive])
    each = [_fitted_sigmoid(scores[:, k], labels == k, new[:, k]) for k in range(scores.shape[1])]
    # Of what is like no class, all may be 0.
    odds = np.maximum(np.column_stack(each), 1e-300)
    return odds / odds.sum(axis=1, keepdims=True)


def _fitted_sigmoid(scores: np.ndarray, positive: np.ndarray, new: np.ndarray) -> np.ndarray:
    linear = optional_module("sklearn.linear_model")
    # Platt's targets: short of 1 and 0, so that scores that divide the classes leave some doubt.
    n, n_positive = len(scores), positive.sum()
    target = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n - n_positive + 2))
    centre, spread = scores.mean(), max(scores.std(), 1e-12)
    x = (np.tile(scores, 2)[:, None] - centre) / spread
    machine = linear.LogisticRegression(C=1e6).fit(
        x, np.repeat([1, 0], n), sample_weight=np.concatenate([target, 1 - target])
    )
    return machine.predict_proba((new[:, None] - centre) / spread)[:, 1]


CLASSIFIERS = {
    "RBF SVM": rbf_svm,
    "linear SVM": linear_svm,
    "logistic": logistic_regression,
}


def _inner(labels: ArrayLike, seed: int) -> Any:
    selection = optional_module("sklearn.model_selection")
    n_folds = 5 if len(np.asarray(labels)) <= _FEW else 3
    return selection.StratifiedKFold(n_folds, shuffle=True, random_state=seed)


def _chosen(machine: Any, grid: dict, x: ArrayLike, labels: ArrayLike, seed: int) -> Any:
    """Give the machine with the best constants, not yet fitted to all."""
    selection = optional_module("sklearn.model_selection")
    search = selection.GridSearchCV(machine, grid, cv=_inner(labels, seed), refit=False)
    return machine.set_params(**search.fit(x, labels).best_params_)


def _with_platt(
    machine: Any, x: ArrayLike, labels: ArrayLike, new: ArrayLike, seed: int
) -> Prediction:
    calibration = optional_module("sklearn.calibration")
    calibrated = calibration.CalibratedClassifierCV(
        machine, method="sigmoid", cv=_inner(labels, seed), ensemble=False
    ).fit(x, labels)
    # The sigmoid may move the border between classes: the machine's own is what counts.
    return Prediction(machine.fit(x, labels).predict(new), calibrated.predict_proba(new))
