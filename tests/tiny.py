"""Tiny models, small enough to enumerate, and what the tests of exactness do with them."""

from itertools import product

import numpy as np
import pymc as pm

import pm_match as pmm

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


def random_point(model, rng, links_kept=True):
    """A random point of the value variables, in which linked objects share their label."""
    point = model.initial_point(0)
    step = cluster_step(model)
    labels = rng.integers(step.partition.truncation, size=len(step._units.size))
    labels = np.split(labels[step._units.of_object], step._ends)
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
    n_units = len(step._units.size)
    return np.array(list(product(range(step.partition.truncation), repeat=n_units)))


def exact_law(step, point):
    """Posterior probability of every assignment in `all_assignments`, by the plain formulas."""
    hyper = step.partition.hyper(point)
    projections = step.projections(point)
    logs = []
    for units in all_assignments(step):
        labels = units[step._units.of_object]
        counts = np.bincount(labels, minlength=step.partition.truncation)
        logs.append(
            plain_log_prior(hyper.a, hyper.b, counts)
            + step._evidence.log_marginal(
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
