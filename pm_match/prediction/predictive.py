"""The log predictive of new objects in every cluster, in one draw after the other."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.collapsed import Collapsed
from pm_match.numerics.stick_breaking import log_weights
from pm_match.prediction.predictor import NewObjects, Place, Predictor
from pm_match.reading.kinds import kind_of
from pm_match.reading.parts import Component


class Predictive:
    """What the draws of a component say of new objects."""

    # (N,) of every clustering: labels of objects in the present draw, -1 for irrelevant ones
    labels: list[NDArray[np.int64]]

    def __init__(self, model: Model, component: Component):
        self.component = component
        self._collapsed = Collapsed.of(model, component)
        # One for every evidence of the component; None where its kind predicts nothing.
        self.predictors: list[Predictor | None] = [
            kind_of(evidence).predictor(model, evidence, state)
            for evidence, state in zip(component.evidence, self._collapsed.evidence, strict=True)
        ]

    def load(self, point: Mapping[str, NDArray]) -> None:
        """Bring everything to a point."""
        self._point = point
        self.labels = self._collapsed.labels(point)
        self._collapsed.load(point, self.labels, everything=False)
        for predictor in self.predictors:
            if predictor is not None:
                predictor.load(point, self.labels)

    def labels_of(self, place: Place) -> NDArray[np.int64]:
        """Labels of one assignment's objects, -1 for irrelevant ones."""
        return self.labels[place.clustering][place.first :][: place.assignment.n_objects]

    def log_joint(self, new: NewObjects) -> NDArray[np.float64]:
        r"""Log joint of the clusters of new objects, one by one, and what is seen of them.

        .. math:: \log p(s^*, r^* \mid s, r) + \log p(x^* \mid s^*, r^*, X, s, r, \ldots)

        Return (N, T + 1): the last column is for irrelevant objects.
        """
        place = new.place
        clustering = self.component.clusterings[place.clustering]
        labels = self.labels[place.clustering]
        a, b = clustering.prior(self._point)
        found = np.empty((len(new), clustering.truncation + 1))
        found[:, :-1] = log_prior(a, b, labels, clustering.truncation)
        for predictor in self.predictors:
            if predictor is not None:
                found[:, :-1] += predictor.log_weights(place)
        found[:, -1] = -np.inf
        group = place.assignment.group
        if group >= 0:
            flags = np.concatenate(
                [own >= 0 for a, own in clustering.by_assignment(labels) if a.group == group]
            )
            yes, no = log_relevance(clustering.relevance_prior(self._point)[group], flags)
            found[:, :-1] += yes
            found[:, -1] = no
        for number, seen in new.seen.items():
            predictor = self.predictors[number]
            assert predictor is not None
            found += predictor.log_predictive(place, seen)
        return found


def check_possible(new: NewObjects, log_weight: NDArray, which: str) -> None:
    """Refuse objects without a density; `log_weight` (N,), of `which` draws."""
    impossible = np.flatnonzero(np.isneginf(log_weight))
    if len(impossible):
        raise ValueError(
            f"new objects of {new.place.domain!r}, object {new.labels[impossible[0]]}: expected "
            f"values that have a density in some cluster of {which}; found none"
        )


def log_prior(a: NDArray, b: NDArray, labels: NDArray, n_clusters: int) -> NDArray[np.float64]:
    r"""Log prior of a new object's cluster (T,), weights integrated out.

    `labels` (N,): of the others, -1 for none. With sticks :math:`v_k \sim \mathrm{Beta}(a_k, b_k)`
    (see `numerics.stick_breaking`)

    .. math:: p(s^* = j \mid s) = E[w_j \mid s] = \frac{a_j + N_j}{a_j + b_j + N_{\ge j}}
              \prod_{k<j} \frac{b_k + N_{>k}}{a_k + b_k + N_{\ge k}}.
    """
    counts = np.bincount(labels[labels >= 0], minlength=n_clusters)
    after = counts[::-1].cumsum()[::-1][1:]
    total = np.log(a + b + counts[:-1] + after)
    return log_weights(np.log(a + counts[:-1]) - total, np.log(b + after) - total)


def log_relevance(prior: NDArray, flags: NDArray[np.bool_]) -> tuple[float, float]:
    """Log probability of being relevant, and of being not.

    `prior` (3,): e, f, and whether the probability is free (see `clusters.relevance`); `flags`
    (N,): those of the objects that share it.
    """
    e, f, free = prior
    yes, no = e + free * flags.sum(), f + free * (~flags).sum()
    return float(np.log(yes / (yes + no))), float(np.log(no / (yes + no)))
