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
    """

    labels: np.ndarray
    probability: np.ndarray


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
    return _platt(_chosen(svm.SVC(), {"C": _COSTS, "gamma": widths}, x, labels, seed), x, labels,
                  new, seed)  # fmt: skip


def linear_svm(x: ArrayLike, labels: ArrayLike, new: ArrayLike, seed: int) -> Prediction:
    """Classify by a linear support vector machine; as `rbf_svm`."""
    svm = optional_module("sklearn.svm")
    machine = svm.SVC(kernel="linear")
    return _platt(_chosen(machine, {"C": _LINEAR_COSTS}, x, labels, seed), x, labels, new, seed)


def logistic_regression(x: ArrayLike, labels: ArrayLike, new: ArrayLike, seed: int) -> Prediction:
    """Classify by logistic regression with a ridge penalty; as `rbf_svm`, by its own scores."""
    linear = optional_module("sklearn.linear_model")
    machine = linear.LogisticRegression(max_iter=2000)
    fitted = _chosen(machine, {"C": _LINEAR_COSTS}, x, labels, seed).fit(x, labels)
    return Prediction(fitted.predict(new), fitted.predict_proba(new))


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


def _platt(machine: Any, x: ArrayLike, labels: ArrayLike, new: ArrayLike, seed: int) -> Prediction:
    calibration = optional_module("sklearn.calibration")
    calibrated = calibration.CalibratedClassifierCV(
        machine, method="sigmoid", cv=_inner(labels, seed), ensemble=False
    ).fit(x, labels)
    # The sigmoid may move the border between classes: the machine's own is what counts.
    return Prediction(machine.fit(x, labels).predict(new), calibrated.predict_proba(new))
