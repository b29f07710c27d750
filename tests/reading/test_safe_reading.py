"""What is nearly a model that is served is another one, and is not sampled as if it were."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck

pytestmark = pytest.mark.usefixtures("only_collapsed")

T, K = 8, 2
MANY = 40


def features(mean=lambda z, c, w: z[c] @ w.T, tau=lambda p, c: p, shift=None, weights=None):
    """Declare two tables of two objects each, fewer than there are clusters."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        if weights is None:
            weights = pm.StickBreakingWeights("weights", 1.0, K=T - 1)
        precision = pm.Gamma("precision", 2.0, 2.0)
        z = pm.Normal("z", 0.0, tau=precision, shape=(T, K))
        for name in "ab":
            w = pm.Normal(f"projection_{name}", 0.0, 1.0, shape=(3, K))
            c = pm.Categorical(f"cluster_{name}", p=weights, shape=2)
            mu = mean(z, c, w)
            if shift is not None:
                mu = mu + shift(pm.Normal(f"intercept_{name}", 0.0, 1.0, shape=3))
            pm.Normal(name, mu, tau=tau(precision, c), observed=rng.normal(size=(2, 3)))
    return model


def normal_clusters(mean=lambda m, c: m[c], tau=lambda t: t):
    """Declare five objects in forty normal clusters."""
    data = np.random.default_rng(2).normal(size=(5, 2))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, K=MANY - 1)
        c = pm.Categorical("cluster", p=weights, shape=5)
        precision = pm.Wishart("precision", nu=4, V=np.eye(2))
        m = pm.MvNormal("mean", np.zeros(2), tau=0.5 * precision, shape=(MANY, 2))
        pm.MvNormal("x", mean(m, c), tau=tau(precision), observed=data)
    return model


def blocks(tau=lambda t: t):
    """Declare a network of weights between two sets of objects."""
    data = np.random.default_rng(3).normal(size=(4, 3))
    with pm.Model() as model:
        rows = pm.Categorical("rows", p=pm.StickBreakingWeights("u", 1.0, K=3), shape=4)
        columns = pm.Categorical("columns", p=pm.StickBreakingWeights("v", 1.0, K=3), shape=3)
        t = pm.Gamma("t", 2.0, 2.0, shape=(4, 4))
        density = pm.Normal("density", 0.0, tau=tau(0.5 * t), shape=(4, 4))
        pmm.BlockNetwork("x", [rows, columns], (density, t), family="normal", observed=data)
    return model


def other_rows(label, n=T):
    """Whether rows are those of a label."""
    return np.arange(n) == label


# From a label that behaves in another way than all others.
SPECIAL_LABELS = {
    "at the origin by a mask": lambda label: features(
        lambda z, c, w: (z * ~other_rows(label)[:, None])[c] @ w.T
    ),
    "at the origin": lambda label: features(
        lambda z, c, w: pt.set_subtensor(z[label], 0.0)[c] @ w.T
    ),
    "with other noise": lambda label: features(
        tau=lambda p, c: (p / (1.0 + pt.as_tensor(other_rows(label) * 1.0)[c]))[:, None]
    ),
    "normal, as the one before": lambda label: normal_clusters(
        lambda m, c: m[pt.switch(pt.eq(c, 5 * label + 4), c - 1, c)]
    ),
    "normal, at the origin": lambda label: normal_clusters(
        lambda m, c: pt.set_subtensor(m[5 * label], 0.0)[c]
    ),
}

PIECEWISE = {
    "latent vectors": lambda: features(lambda z, c, w: pt.clip(z, -3.0, 3.0)[c] @ w.T),
    "means": lambda: features(lambda z, c, w: pt.clip(z[c] @ w.T, -4.0, 4.0)),
    "a precision": lambda: features(tau=lambda p, c: pt.clip(p, 0.05, 20.0)),
    "a scale": lambda: features(tau=lambda p, c: pt.maximum(p**-0.5, 0.2) ** -2.0),
    "intercepts": lambda: features(shift=lambda a: pt.clip(a, -3.0, 3.0)),
    "a switch": lambda: features(lambda z, c, w: pt.switch(z > 9.0, 9.0, z)[c] @ w.T),
    "normal clusters": lambda: normal_clusters(lambda m, c: pt.clip(m, -9.0, 9.0)[c]),
    "their precision": lambda: normal_clusters(tau=lambda t: pt.clip(t, -10.0, 10.0)),
    "densities": lambda: blocks(tau=lambda t: pt.clip(t, 0.01, 10.0)),
}
NAMED = {"a scale": "maximum", "a switch": "gt"}


def test_as_they_are_they_are_served():
    for declared in (features, normal_clusters, blocks):
        assert not read(declared()).refusals
    assert not read(features(shift=lambda a: a)).refusals
    # Labels, and constants, may be anything.
    mean = lambda z, c, w: z[c] @ w.T + pt.clip(np.arange(3.0), 0.0, 1.0)  # noqa: E731
    assert not read(features(mean)).refusals
    assert not read(features(lambda z, c, w: z[pt.minimum(c, T - 1)] @ w.T)).refusals


@pytest.mark.parametrize("label", range(T))
@pytest.mark.parametrize("name", SPECIAL_LABELS)
def test_every_label_is_looked_at(name, label):
    structure = read(SPECIAL_LABELS[name](label))
    assert structure.refusals
    assert not structure.components


@pytest.mark.parametrize("name", PIECEWISE)
def test_what_is_piecewise_is_refused_by_name(name):
    structure = read(PIECEWISE[name]())
    assert not structure.components
    expected = f"{NAMED.get(name, 'clip')!r}, which is not analytic"
    assert all(expected in why for why in structure.refusals.values())


def test_differences_of_an_intercept_are_seen():
    """An intercept that the noise depends on through differences is not drawn as a plain one."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, K=2)
        z = pm.Normal("z", 0.0, 1.0, shape=(3, 1))
        c = pm.Categorical("cluster", p=weights, shape=4)
        a = pm.Normal("a", 0.0, 1.0, shape=2)
        w = pm.Normal("w", 0.0, 1.0, shape=(2, 1))
        sigma = pt.exp(0.1 * (a[0] - a[1]))
        pm.Normal("x", z[c] @ w.T + a, sigma, observed=rng.normal(size=(4, 2)))
    (component,) = read(model).components
    (own,) = component.evidence
    assert {p.name: p.update for p in own.parameters}["a"] == "normal"


def test_known_weights_sum_to_one():
    with pm.Model() as model:
        weights = pm.Data("known", np.full(T, 0.2))
        c = pm.Categorical("cluster", p=weights, shape=4)
        z = pm.Normal("z", 0.0, 1.0, shape=(T, 1))
        w = pm.Normal("w", 0.0, 1.0, shape=(2, 1))
        pm.Normal("x", z[c] @ w.T, 1.0, observed=np.zeros((4, 2)))
    assert "'known', to sum to 1; found a sum of 1.6" in read(model).refusals["cluster"]


@pytest.mark.parametrize("n_labels", [2, 3])
def test_every_object_has_every_label_with_either_flag(n_labels):
    with pm.Model() as model:
        weights = np.full(n_labels, 1.0 / n_labels)
        assignment = pm.Categorical("cluster", p=weights, shape=5)
        flag = pm.Bernoulli("flag", 0.5, shape=5)
    check = DensityCheck(Context.of(model), [], {assignment: n_labels, flag: 2})
    # Without the two points at other scales, which may be left out where nothing is defined.
    pairs = [(point["cluster"], point["flag"]) for point in check.points[:-2]]
    for i in range(5):
        assert {(int(c[i]), int(f[i])) for c, f in pairs} == set(np.ndindex(n_labels, 2))
