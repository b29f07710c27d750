"""Reads and writes points of value variables, for what is declared of the parts of a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model
from scipy.special import log_softmax, logit, xlogy

from pm_match.checks import warn
from pm_match.numerics.log_gamma import draw_log_gamma
from pm_match.numerics.stick_breaking import draw_log_sticks, log_weights
from pm_match.reading.densities import log_beta
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Clustering
from pm_match.reading.probe import natural_function

# In logs: how far above the smallest float weights are kept.
_MARGIN = 18.0
# Probabilities that would round to 0 or 1 are recorded as the next number that does not: at 1
# itself PyMC's density of a Beta variable is not a number.
_LEAST_LOG_ODDS, _MOST_LOG_ODDS = -700.0, 36.0
# Beyond these, the log of the other probability has fewer than seven digits.
MOST_EXACT_LOG_ODDS = 20.0


class Writer:
    """Writes variables, by name and in the space that is sampled.

    Parameters
    ----------
    model : pymc.Model
    names : sequence of str
    """

    def __init__(self, model: Model, names: Sequence[str]):
        self.value_of = {name: model.rvs_to_values[model[name]] for name in names}
        # The recogniser admits PyMC's default transforms and none.
        self.transformed = {
            name: model.rvs_to_transforms.get(model[name]) is not None for name in names
        }

    def write(self, point: dict[str, NDArray], values: Mapping[str, Any]) -> None:
        """Write values into a new `point`."""
        for name, value in values.items():
            variable = self.value_of[name]
            point[variable.name] = np.asarray(value, dtype=variable.dtype)

    def read(self, point: Mapping[str, NDArray], name: str) -> NDArray:
        """Read a variable that has no transform."""
        return np.asarray(point[self.value_of[name].name])

    def read_labels(
        self,
        point: Mapping[str, NDArray],
        name: str,
        flag: str | None,
        n_objects: int,
        n_labels: int,
    ) -> NDArray[np.int64]:
        """Read the labels (N,) of an assignment, -1 where a relevance flag is 0.

        Kernels look nothing up again: what comes in is looked at here.

        Raises
        ------
        ValueError
            If there are not as many as objects, or one is no cluster's.
        """
        labels = np.asarray(self.read(point, name), np.int64)
        if labels.shape != (n_objects,):
            raise ValueError(
                f"{name!r}: expected {n_objects} labels; found an array of shape {labels.shape}"
            )
        if labels.min() < 0 or labels.max() >= n_labels:
            raise ValueError(
                f"{name!r}: expected labels in 0 ... {n_labels - 1}; found {labels.min()} to "
                f"{labels.max()}"
            )
        if flag is None:
            return labels
        flags = self.read(point, flag)
        if flags.shape != labels.shape:
            raise ValueError(
                f"{flag!r}: expected {n_objects} flags; found an array of shape {flags.shape}"
            )
        return np.where(flags > 0, labels, -1)

    def write_positive(self, point: dict[str, NDArray], name: str, log_value: NDArray) -> None:
        """Write a positive variable, given as its log, which is what PyMC samples by default."""
        self.write(point, {name: log_value if self.transformed[name] else np.exp(log_value)})

    def write_probability(self, point: dict[str, NDArray], name: str, log_odds: NDArray) -> None:
        """Write probabilities, given as log odds, which is what PyMC samples by default."""
        self.write(point, {name: from_log_odds(log_odds, self.transformed[name])})

    def write_simplex(
        self, point: dict[str, NDArray], name: str, logs: NDArray, advice: str = ""
    ) -> None:
        """Write probabilities (..., T), given as their logs.

        `advice`: what to do if one that is too small for a float would matter, to the variables
        that their prior depends on.
        """
        # PyMC's density of weights is only finite while they can be told from zero.
        least = least_log(self.value_of[name].dtype)
        if advice and logs.min() < least:
            warn(
                f"a weight in {name!r} is too small for a float, which biases the variables that "
                f"its prior depends on{advice}"
            )
        logs = np.maximum(logs, least)
        if self.transformed[name]:
            value = logs[..., :-1] - logs.mean(axis=-1, keepdims=True)
        else:
            value = np.exp(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True))
        self.write(point, {name: value})

    def read_log_odds(self, point: Mapping[str, NDArray], name: str) -> NDArray:
        """Read probabilities as log odds: of what is next to 1, the digits that tell are kept."""
        value = self.read(point, name)
        return value if self.transformed[name] else logit(value)

    def read_log_simplex(self, point: Mapping[str, NDArray], name: str) -> NDArray:
        """Read the logs of probabilities (..., T)."""
        value = self.read(point, name)
        if not self.transformed[name]:
            return np.log(value)
        logs = np.concatenate([value, -value.sum(axis=-1, keepdims=True)], axis=-1)
        return log_softmax(logs, axis=-1)

    def read_log(self, point: Mapping[str, NDArray], name: str) -> NDArray:
        """Read the log of a positive variable."""
        value = self.read(point, name)
        return value if self.transformed[name] else np.log(value)

    def read_positive(self, point: Mapping[str, NDArray], name: str) -> NDArray:
        """Read a positive variable."""
        value = self.read(point, name)
        return np.exp(value) if self.transformed[name] else value


class ClusteringPoints(Writer):
    """Reads and writes a clustering's assignments, flags, weights and probabilities."""

    def __init__(self, model: Model, clustering: Clustering):
        super().__init__(model, clustering.names)
        self.clustering = clustering
        self.log_weights = log_weights_function(model, clustering)
        named = [name for name in clustering.probabilities if name]
        self._probabilities = natural_function(model, named)

    def labels(self, point: Mapping[str, NDArray]) -> NDArray[np.int64]:
        """Read the labels (N,) of all objects, -1 for irrelevant ones."""
        n_labels = self.clustering.truncation
        found = []
        for own in self.clustering.assignments:
            labels = np.full(own.n_objects, -1) if own.known is None else own.known.copy()
            if own.drawn:
                given = own.relevance, int(own.free.sum())
                parts = {
                    name: self.read_labels(point, name, *given, n)
                    for name, n in own.n_labels(n_labels).items()
                }
                labels[own.free] = own.joined(parts)
            found.append(labels)
        return np.concatenate(found)

    def write_labels(self, point: dict[str, NDArray], labels: NDArray[np.int64]) -> None:
        """Write the labels (N,) of all objects, -1 for irrelevant ones, into a new `point`.

        Raise `ValueError` if there are not as many as objects, one is not a cluster's or not the
        one that is observed, or an object is irrelevant that cannot be.
        """
        clustering = self.clustering
        if labels.shape != (clustering.n_objects,):
            raise ValueError(
                f"labels of {clustering.title!r}: expected one for each of "
                f"{clustering.n_objects} objects; found shape {labels.shape}"
            )
        if labels.min() < -1 or labels.max() >= clustering.truncation:
            raise ValueError(
                f"labels of {clustering.title!r}: expected numbers in -1 ... "
                f"{clustering.truncation - 1}; found {labels.min()} to {labels.max()}"
            )
        if not np.array_equal(labels, clustering.respected(labels)):
            raise ValueError(
                f"labels of {clustering.title!r}: expected those observed, and apart what "
                "cannot be linked; found others"
            )
        for assignment, own in clustering.by_assignment(labels):
            if assignment.relevance:
                self.write(point, {assignment.relevance: own >= 0})
            elif own.min() < 0:
                raise ValueError(
                    f"{assignment.name!r}: expected labels from 0, all its objects being relevant; "
                    "found -1"
                )
            # An irrelevant object has a cluster, which says nothing.
            self.write(point, assignment.values(np.maximum(own, 0)))

    def log_densities(self, point: Mapping[str, NDArray]) -> tuple[float, float]:
        """Log density of labels over constant weights; and of all else that belongs to clusters.

        That is other labels, weights, and flags and probabilities of being relevant.
        """
        clustering, labels, total = self.clustering, 0.0, 0.0
        logs, *shares = self.log_weights(point), *self._probabilities(point)
        if clustering.weights:
            given = *clustering.prior(point), clustering.sticks
            total += float(log_density_of_weights(logs, *given))
        prior = clustering.relevance_prior(point)
        for group, name in enumerate(clustering.probabilities):
            if name:
                share = float(shares.pop(0))
                found = np.log(share), np.log1p(-share)
                total += float(log_beta(*found, *prior[group, :2]))
                prior[group] = *np.exp(found), 0.0
        for own in clustering.assignments:
            if own.drawn:
                drawn = own.joined({name: self.read(point, name) for name in own.drawn})
                labels += float(logs[drawn].sum())
            if own.known is not None:
                labels += float(logs[own.known[~own.free]].sum())
            if own.relevance:
                yes = np.mean(self.read(point, own.relevance))
                total += own.n_objects * float(xlogy([yes, 1.0 - yes], prior[own.group, :2]).sum())
        return (0.0, labels + total) if clustering.weights else (labels, total)

    def draw(
        self,
        rng: np.random.Generator,
        point: Mapping[str, NDArray],
        new: dict[str, NDArray],
        labels: NDArray[np.int64],
        counts: NDArray[np.int64],
        flag_counts: NDArray[np.float64],
    ) -> None:
        """Draw what was integrated out from its exact conditional, and write the clustering.

        `point`, `new`: the point with the hyperparameters, and the one to write to; `labels` (N,):
        -1 for irrelevant objects, whose labels only the weights say anything about; `counts` (T,):
        relevant objects in each cluster; `flag_counts` (G, 2): irrelevant and relevant objects of
        each group of flags.
        """
        clustering = self.clustering
        if clustering.weights:
            sticks = draw_log_sticks(rng, *clustering.prior(point), counts)
            self.write_weights(new, *sticks)
            logs = log_weights(*sticks)
        else:
            logs = self.log_weights(point)
        irrelevant = np.flatnonzero(labels < 0)
        if len(irrelevant):
            cumulative = np.cumsum(np.exp(logs - logs.max()))
            uniform = rng.random(len(irrelevant)) * cumulative[-1]
            drawn = labels.copy()
            drawn[irrelevant] = np.minimum(
                np.searchsorted(cumulative, uniform, side="right"), len(logs) - 1
            )
        else:
            drawn = labels
        for assignment, own in clustering.by_assignment(drawn):
            self.write(new, assignment.values(own))
        for assignment, own in clustering.by_assignment(labels):
            if assignment.relevance:
                self.write(new, {assignment.relevance: own >= 0})
        prior = clustering.relevance_prior(point)
        for (e, f, _), (no, yes), name in zip(
            prior, flag_counts, clustering.probabilities, strict=False
        ):
            if name:
                log_odds = draw_log_gamma(rng, e + yes) - draw_log_gamma(rng, f + no)
                self.write_probability(new, name, log_odds)

    def write_weights(
        self, point: dict[str, NDArray], log_sticks: NDArray, log_rests: NDArray
    ) -> None:
        """Write the weights, or the sticks that break them, given as logs."""
        name = self.clustering.weights
        if self.clustering.sticks:
            value = log_sticks - log_rests if self.transformed[name] else np.exp(log_sticks)
            self.write(point, {name: value})
            return
        logs = log_weights(log_sticks, log_rests)
        advice = (
            ", unless HyperparameterGibbs draws them: declare fewer clusters, or the sticks "
            "themselves as pm.Beta, which have no such limit."
        )
        self.write_simplex(point, name, logs, advice if self.clustering.free_weights_prior else "")


def log_weights_function(model: Model, clustering: Clustering) -> Callable[[Point], NDArray]:
    """Make a function of a point: the log weights (T,) of a clustering there."""
    if not clustering.weights:

        def constant(point: Point) -> NDArray[np.float64]:
            a, b = clustering.prior(point)
            return log_weights(np.log(a / (a + b)), np.log(b / (a + b)))

        return constant
    read, sticks = natural_function(model, [clustering.weights]), clustering.sticks

    def drawn(point: Point) -> NDArray[np.float64]:
        value = np.asarray(read(point)[0], np.float64)
        with np.errstate(divide="ignore"):
            return log_weights(np.log(value), np.log1p(-value)) if sticks else np.log(value)

    return drawn


def log_density_of_weights(
    logs: NDArray, a: NDArray, b: NDArray, sticks: bool = False
) -> NDArray[np.float64]:
    """Log density of weights, given as logs (..., T): what Beta(a, b) sticks (..., T - 1) break.

    `sticks`: whether it is that of the sticks themselves.
    """
    rests = np.logaddexp.accumulate(logs[..., ::-1], axis=-1)[..., ::-1]
    before, after = rests[..., :-1], rests[..., 1:]
    found = log_beta(logs[..., :-1] - before, after - before, a, b)
    # The sticks break the weights one after the other.
    return (found if sticks else found - before).sum(axis=-1)


def least_log(dtype: Any) -> float:
    """Give the log of the least weight of a simplex that is told from zero."""
    return float(np.log(np.finfo(dtype).tiny) + _MARGIN)


def from_log_odds(log_odds: Any, transformed: bool) -> Any:
    """Return probabilities, or log odds where those are what is sampled."""
    clipped = np.clip(log_odds, _LEAST_LOG_ODDS, _MOST_LOG_ODDS)
    return clipped if transformed else 1.0 / (1.0 + np.exp(-clipped))
