"""Tiny declared models of normal clusters, of every kind that is served."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import CholeskyCovTransform

import pm_match as pmm
from pm_match.models.declare import imputing
from pm_match.normal.parts import Normals
from pm_match.reading.probe import natural_function
from tests.declared.plain import plain_log_prior

TRUNCATION = 3
CENTER = {"x": [0.4, -0.3], "y": [0.2], "f": [0.0, 0.0]}
STRENGTH = {"x": 0.5, "y": 0.8, "f": 0.6}
# Fifteen degrees give precisions light tails: Geweke's averages then settle.
DEGREES = {"x": 9, "y": 8, "f": 9}
CASES = (
    "own",
    "shared",
    "views",
    "matched",
    "free",
    "free scale",
    "missing",
    "missing in views",
    "tails",
    "tails in views",
)


def scale_matrix(d):
    return 0.15 * (np.eye(d) + 0.3)


def holed(values, *places):
    """The values without those at some places."""
    values = values.copy()
    values[tuple(zip(*places, strict=True))] = np.nan
    return np.ma.masked_invalid(values)


def observe(name, mean, **kwargs):
    """Observe vectors some values of which are missing."""
    with imputing():
        pm.MvNormal(name, mean, **kwargs)


def parameters(name, d, shared, strength=None):
    """Declare means and precisions; return the means, and the covariance by cluster."""
    nu, center = DEGREES[name], np.array(CENTER[name])
    strength = np.float64(STRENGTH[name]) if strength is None else strength
    if shared:
        precision = pm.Wishart(f"precision_{name}", nu=nu, V=scale_matrix(d))
        mean = pm.MvNormal(f"mean_{name}", center, tau=strength * precision, shape=(TRUNCATION, d))
        return mean, lambda label: {"tau": precision}
    precision = pm.Wishart(f"precision_{name}", nu=nu, V=scale_matrix(d), shape=(TRUNCATION, d, d))
    covariance = pt.linalg.inv(precision)
    mean = pm.MvNormal(f"mean_{name}", center, cov=covariance / strength, shape=(TRUNCATION, d))
    return mean, lambda label: {"cov": covariance[label]}


def normals_model(case, concentration=1.4) -> pm.Model:
    """Declare a tiny model in plain PyMC.

    - own: objects with precisions of their clusters' own;
    - shared: the same, with one precision;
    - views: two views of the objects, the first with one precision and of some objects only, in
      another order;
    - matched: two assignments that share weights, with links within and across, and a view each
      as these two; and a second variable of the first view over the second assignment;
    - free: what is clustered is a free variable, around which something is observed;
    - free scale: how much the means vary is a free variable;
    - missing: as own, but one object misses a value, and another one all;
    - missing in views: two views of the objects, the first with one precision, in both of which
      something is missing, also of two objects that are linked;
    - tails: as own, but every precision has a factor, of a prior of its own;
    - tails in views: as missing in views, but every precision has a factor.
    """
    rng = np.random.default_rng(4)

    def data(n, d):
        return rng.normal(size=(n, d)) * 1.5

    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(concentration), TRUNCATION - 1)
        n = 4 if case == "matched" else 5
        a = pm.Categorical("cluster_a", p=weights, shape=n)
        strength = pm.Gamma("strength", 4.0, 6.0) if case == "free scale" else None
        if case == "free":
            mean, noise = parameters("f", 2, shared=False)
            f = pm.MvNormal("f", mean[a], **noise(a), shape=(n, 2))
            pm.Normal("seen_f", f, 1.0, observed=data(n, 2))
            return model
        one = ("shared", "views", "matched", "missing in views", "tails in views")
        mean, noise = parameters("x", 2, case in one, strength)
        if case == "tails":
            shape, rate = np.linspace(3.0, 5.0, n), np.linspace(4.0, 3.0, n)
            factor = pm.Gamma("factor_x", shape, rate, shape=n)
            cov = noise(a)["cov"] / factor[:, None, None]
            pm.MvNormal("x", mean[a], cov=cov, observed=data(n, 2))
        elif case.endswith("in views"):
            x, y = holed(data(n, 2), (1, 0), (4, 0), (4, 1)), holed(data(n, 1), (2, 0))
            of_x, of_y = noise(a), parameters("y", 1, shared=False)
            middle, own = of_y[0], of_y[1](a)
            if case == "tails in views":
                factor = pm.Gamma("factor_x", 4.0, 4.0, shape=n)
                of_x = {"cov": pt.linalg.inv(of_x["tau"]) / factor[:, None, None]}
                factor = pm.Gamma("factor_y", 3.0, 2.0, shape=n)
                own = {"cov": own["cov"] / factor[:, None, None]}
            observe("x", mean[a], **of_x, observed=x)
            observe("y", middle[a], **own, observed=y)
            pmm.must_link("links", {a: [[1, 2]]})
        elif case == "missing":
            x = holed(data(n, 2), (0, 1), (3, 0), (3, 1))
            observe("x", mean[a], **noise(a), observed=x)
        elif case != "views":
            pm.MvNormal("x", mean[a], **noise(a), observed=data(n, 2))
        else:
            some = np.array([4, 0, 1])
            pm.MvNormal("x", mean[a[some]], **noise(a[some]), observed=data(3, 2))
            mean, noise = parameters("y", 1, shared=False)
            pm.MvNormal("y", mean[a], **noise(a), observed=data(n, 1))
        if case == "matched":
            b = pm.Categorical("cluster_b", p=weights, shape=3)
            pm.MvNormal("more_x", mean[b[1:]], **noise(b[1:]), observed=data(2, 2))
            mean, noise = parameters("y", 1, shared=False)
            pm.MvNormal("y", mean[b], **noise(b), observed=data(3, 1))
            # Units of a and b, of two of a, and of one.
            pmm.must_link("links", {a: [0, 1], b: [0, 2]})
            pmm.must_link("others", {a: [1, 2], b: [2, 2]})
    return model


def cluster_step(model) -> pmm.ClusterGibbs:
    return pmm.ClusterGibbs([model["cluster_a"]], model=model, rng=0)


def inside(step):
    """What is behind the step of a model with one clustering."""
    collapsed = step._collapsed
    (clustering,), (own,) = step.part.clusterings, collapsed.units
    return SimpleNamespace(
        collapsed=collapsed,
        clustering=clustering,
        normals=step.part.of(Normals),
        units=own,
        partition=collapsed.partitions[0],
        terms=collapsed.terms[0],
        evidence=[state.evidence for state in collapsed.evidence],
        renamed=collapsed._renamed[0],
    )


def random_point(model, rng):
    """A random point of the value variables, in which linked objects share their label."""
    own = inside(cluster_step(model))
    labels = rng.integers(TRUNCATION, size=len(own.units.size))[own.units.of_object]
    parts = dict(
        zip(
            (a.name for a in own.clustering.assignments),
            np.split(labels, own.clustering.ends),
            strict=True,
        )
    )
    return {
        name: np.asarray(
            parts[name] if name in parts else rng.normal(0, 0.8, size=np.shape(value)),
            dtype=np.asarray(value).dtype,
        )
        for name, value in model.initial_point(0).items()
    }


def loaded(step, point):
    """What is behind a step, at a point."""
    collapsed = step._collapsed
    collapsed.load(point, collapsed.labels(point))
    return inside(step)


def collapsed_log_joint(own, point, labels):
    """Log p(labels, vectors) by the plain formulas, for the labels (N,) of all objects."""
    a, b = own.clustering.prior(point)
    counts = np.bincount(labels, minlength=TRUNCATION)
    return plain_log_prior(a, b, counts) + sum(e.log_marginal(labels) for e in own.evidence)


def exact_law(own, point):
    """Posterior probability of every assignment of the units, in the order of `product`."""
    n_units = len(own.units.size)
    logs = [
        collapsed_log_joint(own, point, np.array(units)[own.units.of_object])
        for units in product(range(TRUNCATION), repeat=n_units)
    ]
    weights = np.exp(np.array(logs) - np.max(logs))
    return weights / weights.sum()


def natural(model, point):
    names = [rv.name for rv in model.free_RVs]
    return dict(zip(names, natural_function(model, names)(point), strict=True))


def aligned_model(
    d=2, sizes=(4, 3, 3), power=0.6, free_scale=True, truncation=3, tails=False
) -> pm.Model:
    """Declare a tiny model of domains that are seen through maps, and coarsened.

    The first domain has no map, the last one no scale. With tails, precisions have factors.
    """
    rng = np.random.default_rng(6)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.4), truncation - 1)
        scale = pm.Wishart("scale_matrix", nu=d + 5, V=0.3 * np.eye(d)) if free_scale else np.eye(d)
        # Light tails: precisions have moments then.
        precision = pm.Wishart(
            "precision",
            nu=d + 7,
            V=0.5 * pt.linalg.inv(scale),
            shape=(truncation, d, d),
            # PyMC's own depends on V, and random numbers in the log density are refused.
            default_transform=CholeskyCovTransform(d),
        )
        covariance = pt.linalg.inv(precision)
        center = 0.3 * np.arange(d)
        mean = pm.MvNormal("mean", center, cov=covariance / 0.7, shape=(truncation, d))
        for e, n in enumerate(sizes):
            cluster = pm.Categorical(f"cluster_{'abc'[e]}", p=weights, shape=n)
            centre, spread = mean[cluster], covariance[cluster]
            if tails:
                factor = pm.Gamma(f"factor_{e}", 4.0, 3.0 + e, shape=n)
                spread = spread / factor[:, None, None]
            if e:
                raw = pm.Normal(f"orientation_{e}", 0.0, 1.3, shape=(d, d))
                q = pmm.semi_orthogonal(raw)
                c = pm.LogNormal(f"scale_{e}", 0.1, 0.3) if e < 2 else np.float64(1.0)
                a = pm.Normal(f"intercept_{e}", np.linspace(-0.2, 0.3, d), 0.6, shape=d)
                centre = a + c * (centre @ q.T)
                spread = c**2 * (q @ spread @ q.T)
            x = rng.normal(size=(n, d)) + 0.2
            pm.MvNormal(f"x_{e}", centre, cov=spread, observed=x)
            if power < 1.0:
                pmm.coarsen(f"coarsened_{e}", f"x_{e}", power)
    return model
