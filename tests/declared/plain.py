"""Tiny models, small enough to enumerate, and what the tests of exactness do with them."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pymc as pm

import pm_match as pmm
from pm_match.features.parts import Features
from pm_match.features.state import FeatureState

TRUNCATION = 3


def tiny_data(missing=False, n_objects=(3, 3), n_features=(2, 3), seed=1):
    rng = np.random.default_rng(seed)
    data = {
        name: rng.normal(size=(n, m)) * 1.5
        for name, n, m in zip("ab", n_objects, n_features, strict=True)
    }
    if missing:
        data["a"][0, 1] = np.nan
        data["b"][2, [0, 2]] = np.nan
    return data


def tiny_model(
    missing=False,
    linked=False,
    n_clusters=TRUNCATION,
    n_factors=2,
    projection="normal",
    data=None,
    **kwargs,
) -> pm.Model:
    return pmm.models.projected_clusters(
        tiny_data(missing) if data is None else data,
        n_factors=n_factors,
        n_clusters=n_clusters,
        concentration=kwargs.pop("concentration", 1.4),
        precision_prior=(2.0, 1.5),
        latent_precision=0.6,
        projection=projection,
        links={"a": [0, 2], "b": [1, 1]} if linked else None,
        **kwargs,
    )


def cluster_step(model) -> pmm.ClusterGibbs:
    return pmm.ClusterGibbs([model["cluster_a"]], model=model, rng=0)


class inside:
    """What is behind the step of a model with features and one clustering."""

    def __init__(self, step: pmm.ClusterGibbs):
        collapsed = step._collapsed
        (self.clustering,), (self.features,) = step.part.clusterings, step.part.of(Features)
        (self.units,), (self.state,) = collapsed.units, collapsed.partitions
        (state,), (self.renamed,) = collapsed.of_kind(FeatureState), collapsed._renamed
        self.evidence, self._points = state.evidence, state.points
        self.truncation, self.n_factors = self.features.truncation, self.features.n_factors
        self.domains, self.links = self.features.domains, self.clustering.links
        self.ends = self.clustering.ends

    def hyper(self, point):
        a, b = self.clustering.prior(point)
        return SimpleNamespace(a=a, b=b, **vars(self.features.hyper(point)))

    def labels(self, point):
        return self._points.labels(point)

    def projections(self, point):
        return self._points.projections(point)


def random_point(model, rng, links_kept=True):
    """A random point of the value variables, in which linked objects share their label."""
    point = model.initial_point(0)
    step = cluster_step(model)
    labels = rng.integers(inside(step).truncation, size=len(inside(step).units.size))
    labels = np.split(labels[inside(step).units.of_object], inside(step).ends)
    new = {}
    for name, value in point.items():
        value = np.asarray(value)
        if name.startswith("cluster_"):
            new[name] = labels.pop(0).astype(value.dtype)
        else:
            new[name] = np.asarray(rng.normal(0, 0.8, size=value.shape), dtype=value.dtype)
    return new


def all_assignments(step):
    """Every assignment with labels, as labels of units (A, U)."""
    n_units = len(inside(step).units.size)
    return np.array(list(product(range(inside(step).truncation), repeat=n_units)))


def exact_law(step, point):
    """Posterior probability of every assignment in `all_assignments`, by the plain formulas."""
    hyper = inside(step).hyper(point)
    projections = inside(step).projections(point)
    logs = []
    for units in all_assignments(step):
        labels = units[inside(step).units.of_object]
        counts = np.bincount(labels, minlength=inside(step).truncation)
        logs.append(
            plain_log_prior(hyper.a, hyper.b, counts)
            + inside(step).evidence.log_marginal(
                projections, labels, hyper.shape, hyper.rate, hyper.latent_precision
            )
        )
    weights = np.exp(np.array(logs) - np.max(logs))
    return weights / weights.sum()


def plain_log_prior(a, b, counts):
    """Log p(s): one Beta integral a stick."""
    from scipy.special import betaln

    return sum(
        betaln(a[j] + counts[j], b[j] + counts[j + 1 :].sum()) - betaln(a[j], b[j])
        for j in range(len(a))
    )


def total_variation(counts, law):
    return 0.5 * np.abs(counts / counts.sum() - law).sum()


def sampling_noise(law, n):
    """Expected total variation of `n` independent draws from their own law."""
    return 0.5 * np.sqrt(2.0 * law * (1.0 - law) / (np.pi * n)).sum()
