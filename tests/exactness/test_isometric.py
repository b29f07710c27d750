"""Projections that keep distances, drawn by compiled slices: their law, and what recognises them.

The law is held against a grid, over which the dense normal density of all data is evaluated, and by
one update from exact draws of all variables and data together.
"""

from functools import partial
from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy.special import betaln
from scipy.stats import multivariate_normal, norm

import pm_match as pmm
from pm_match.features import isometric
from pm_match.features.feature_gibbs import FeatureGibbs
from pm_match.features.parts import Features
from pm_match.reading import read
from tests.declared.features import Kind, feature_model
from tests.exactness.simulate import ModelSimulator, check_at_length

LABELS = {"a": np.array([0, 0, 1, 1, 1]), "b": np.array([0, 1, 1])}
OTHER = np.array([[0.9], [-0.5]])
# One number a domain, or two in the first and a constant projection in the second.
KINDS = {
    "rigid": Kind(projection="rigid", noise="wishart", latent_scale=True),
    "deviations": Kind(projection="rigid", noise="wishart", deviations="one"),
    "independent noise": Kind(projection="rigid", noise="vector", deviations="one", missing=True),
    "patterns beside": Kind(
        projection="rigid", noise="wishart", deviations="one", missing=True, domains=3
    ),
    "relevance": Kind(projection="rigid", relevance="all", deviations="one"),
    "one factor": Kind(projection="rigid", noise="wishart", factors=1, deviations="one"),
}
SEES = 4.5


def declared(features: int, constant: bool):
    """Declare two domains whose labels, noise and intercepts are given, all but the projections."""
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), 1)
        latent = pm.Normal("latent", 0.0, np.float64(1.1), shape=(2, 1))
        for name, label in LABELS.items():
            cluster = pm.Categorical(f"cluster_{name}", weights, shape=len(label))
            if constant and name == "b":
                mu = latent @ OTHER.T
            else:
                scale = pm.LogNormal(f"scale_{name}", 0.2, 0.5)
                raw = pm.Normal(f"raw_{name}", 0.0, 0.7, shape=(features, 1))
                mu = latent @ (scale * pmm.semi_orthogonal(raw)).T
                if constant:
                    spread = pm.LogNormal(f"spread_{name}", -0.5, 0.6)
                    mu = mu + pm.Normal(f"deviation_{name}", 0.0, spread, shape=(2, features))
            noise = covariance(features)
            x = rng.normal(size=(len(label), features)) + 2.0 * label[:, None]
            pm.MvNormal(f"x_{name}", mu[cluster], noise, observed=x)
    return model


def covariance(m: int):
    return 0.6 * np.eye(m) + 0.2


def data_of(model, name):
    return model.rvs_to_values[model[f"x_{name}"]].data


def dense_log_density(model, projections, spreads=(0.0,), labels=LABELS):
    """Log density of all data given the labels: one normal vector, latent vectors integrated out.

    Up to a constant, and at all pairs of G projections and S spreads of the deviations of the first
    domain: (G, S). The covariance is that without deviations, plus squared spreads times one.

    Parameters
    ----------
    projections : dict of (G, M) array
        Of every domain.
    spreads : (S,) array
    """
    n_points = len(next(iter(projections.values())))
    x = np.concatenate([data_of(model, name).ravel() for name in labels])
    rows = {name: np.eye(2)[label] for name, label in labels.items()}
    latent = np.concatenate(
        [
            np.einsum("nt,gm->gnmt", own, projections[name]).reshape(n_points, -1, 2)
            for name, own in rows.items()
        ],
        axis=1,
    )
    m = projections["a"].shape[1]
    still = 1.1**2 * latent @ latent.transpose(0, 2, 1)
    still += np.kron(np.eye(sum(map(len, rows.values()))), covariance(m))
    deviating = np.zeros((len(x), 2 * m))
    deviating[: len(rows["a"]) * m] = np.kron(rows["a"], np.eye(m))
    seen = np.column_stack([deviating, x])
    grams = seen.T @ np.linalg.solve(still, np.broadcast_to(seen, (n_points, *seen.shape)))
    # In these coordinates of all deviations, the data see each by itself.
    precisions, basis = np.linalg.eigh(grams[:, :-1, :-1])
    pull = (basis.transpose(0, 2, 1) @ grams[:, :-1, -1:]).transpose(0, 2, 1)
    variance = np.square(spreads)[:, None]
    grown = 1.0 + variance * precisions[:, None]
    explained = (variance * pull**2 / grown - np.log(grown)).sum(axis=2)
    return 0.5 * (explained - grams[:, -1, -1:] - np.linalg.slogdet(still)[1][:, None])


def drawn(model, names, n, permute=False):
    """Draw projections `n` times with everything else as it is; return what `names` have."""
    step = next(s for s in pmm.steps(model) if isinstance(s, FeatureGibbs))
    step = FeatureGibbs(step.vars, permute=permute, model=model)
    point = dict(model.initial_point(0))
    for name, label in LABELS.items():
        point[f"cluster_{name}"] = label
    step.setup_chain(np.random.default_rng(5), 0, 0)
    found = []
    for _ in range(n):
        point, _ = step.step(point)
        found.append([np.ravel(point[name]) for name in names])
    return [np.array(column) for column in zip(*found, strict=True)]


def check_means(found, expected, weights):
    """Compare means of quantities (n, Q) of a chain with those of a grid (G, Q)."""
    exact = weights @ expected
    batches = found[: len(found) // 50 * 50].reshape(50, -1, found.shape[1]).mean(axis=1)
    errors = (batches.mean(axis=0) - exact) / (batches.std(axis=0, ddof=1) / np.sqrt(50))
    assert np.abs(errors).max() < 4.0, errors


def test_direction_scale_and_deviations_by_quadrature():
    model = declared(2, constant=True)
    angle = np.linspace(-np.pi, np.pi, 48, endpoint=False)
    log_scale, log_spread = 0.2 + 0.5 * np.linspace(-4, 4, 33), -0.5 + 0.6 * np.linspace(-4, 4, 33)
    a, c = (g.ravel() for g in np.meshgrid(angle, log_scale, indexing="ij"))
    w = np.exp(c)[:, None] * np.column_stack([np.cos(a), np.sin(a)])
    constant = np.broadcast_to(OTHER[:, 0], w.shape)
    logs = dense_log_density(model, {"a": w, "b": constant}, np.exp(log_spread)).ravel()
    a, c, k = (g.ravel() for g in np.meshgrid(angle, log_scale, log_spread, indexing="ij"))
    logs += norm(0.2, 0.5).logpdf(c) + norm(-0.5, 0.6).logpdf(k)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()

    def quantities(cosine, sine, c, k):
        both = cosine * sine, cosine**2, cosine * c, sine * k
        return np.column_stack([cosine, sine, *both, c, k, c * c, k * k, c * k])

    raw, scale, spread = drawn(model, ["raw_a", "scale_a_log__", "spread_a_log__"], 4_000)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    found = quantities(*unit.T, scale[:, 0], spread[:, 0])
    check_means(found, quantities(np.cos(a), np.sin(a), c, k), weights)
    # How long the raw vector is, nobody knows.
    lengths = np.linalg.norm(raw, axis=1)[:, None]
    check_means(np.hstack([lengths, lengths**2]), np.array([[0.7 * np.sqrt(np.pi / 2), 0.98]]), [1])


def test_signs_and_common_scales_by_quadrature():
    model = declared(1, constant=False)
    log_scale = 0.2 + 0.5 * np.linspace(-4.5, 4.5, 61)
    s, c, d = (g.ravel() for g in np.meshgrid([-1, 1], log_scale, log_scale, indexing="ij"))
    w = {"a": np.exp(c)[:, None], "b": (s * np.exp(d))[:, None]}
    logs = dense_log_density(model, w)[:, 0]
    logs += norm(0.2, 0.5).logpdf(c) + norm(0.2, 0.5).logpdf(d)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()

    def quantities(s, c, d):
        return np.column_stack([s, c, d, c * c, d * d, c * d, s * c])

    names = ["raw_a", "raw_b", "scale_a_log__", "scale_b_log__"]
    one, two, first, second = (x[:, 0] for x in drawn(model, names, 4_000))
    found = quantities(np.sign(one * two), first, second)
    check_means(found, quantities(s, c, d), weights)


def test_matchings_and_directions_by_quadrature():
    """Clusters exchange their labels within the domain whose projection is turned along."""
    model = declared(2, constant=True)
    angle = np.linspace(-np.pi, np.pi, 48, endpoint=False)
    log_scale, log_spread = 0.2 + 0.5 * np.linspace(-4, 4, 25), -0.5 + 0.6 * np.linspace(-4, 4, 25)
    a, c = (g.ravel() for g in np.meshgrid(angle, log_scale, indexing="ij"))
    w = np.exp(c)[:, None] * np.column_stack([np.cos(a), np.sin(a)])
    given = {"a": w, "b": np.broadcast_to(OTHER[:, 0], w.shape)}
    logs = []
    for swapped in (False, True):
        labels = LABELS | {"a": 1 - LABELS["a"] if swapped else LABELS["a"]}
        counts = np.bincount(np.concatenate(list(labels.values())), minlength=2)
        own = dense_log_density(model, given, np.exp(log_spread), labels).ravel()
        # Of two labels, the weights are Beta(1, 1).
        logs.append(own + betaln(*(1.0 + counts)))
    logs = np.concatenate(logs)
    grid = np.meshgrid([0.0, 1.0], angle, log_scale, log_spread, indexing="ij")
    swapped, a, c, k = (g.ravel() for g in grid)
    logs += norm(0.2, 0.5).logpdf(c) + norm(-0.5, 0.6).logpdf(k)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    assert 0.05 < weights @ swapped < 0.95

    def quantities(swapped, cosine, sine, c, k):
        both = swapped * cosine, swapped * sine, swapped * c, swapped * k
        return np.column_stack([swapped, cosine, sine, c, k, *both])

    names = ["cluster_a", "raw_a", "scale_a_log__", "spread_a_log__"]
    label, raw, scale, spread = drawn(model, names, 4_000, permute=True)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    found = quantities(label[:, 0].astype(float), *unit.T, scale[:, 0], spread[:, 0])
    assert np.mean(np.diff(label[:, 0]) != 0) > 0.05  # and they do move
    check_means(found, quantities(swapped, np.cos(a), np.sin(a), c, k), weights)


@pytest.mark.parametrize(("m", "k"), [(2, 2), (5, 2), (3, 1)])
def test_the_way_back_of_a_turn_is_its_transpose(m, k):
    rng = np.random.default_rng(1)
    frames = isometric._Frames(rng.normal(size=(3, m)), rng.normal(size=(4, k)))
    one, other = frames(np.array([0, 1, 2])), frames(np.array([2, 3, 0]))
    there, back = isometric._turn_between(one, other), isometric._turn_between(other, one)
    np.testing.assert_allclose(there @ one, other, atol=1e-10)
    np.testing.assert_allclose(there.T, back, atol=1e-10)
    np.testing.assert_allclose(there @ there.T, np.eye(m), atol=1e-10)


def test_exchanges_are_those_that_are_tried_one_at_a_time(monkeypatch):
    model = feature_model(KINDS["deviations"])
    step = next(s for s in pmm.steps(model) if isinstance(s, FeatureGibbs))
    found, accepted = [], 0.0
    for at_once in (isometric._AT_ONCE, 1):
        monkeypatch.setattr(isometric, "_AT_ONCE", at_once)
        step.setup_chain(np.random.default_rng(5), 0, 0)
        point = model.initial_point(0)
        for _ in range(20):
            point, (stats,) = step.step(point)
            accepted += stats["permute_accepted"]
        found.append(point)
    assert accepted > 1.0
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name], rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.fixture(scope="module")
def rigid():
    return ModelSimulator(feature_model(KINDS["deviations"]), seed=7)


def test_one_update_of_a_model(rigid):
    found = rigid.scores(400, n_updates=1)
    assert max(map(abs, found.values())) < SEES, found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_updates_leave_the_prior_alone(kind):
    check_at_length(ModelSimulator(feature_model(kind), seed=8), 4_000)


def less_precise(*args, right):
    q, numbers, prior, weight, pull, rest, linear = args
    return right(q, numbers, prior, weight, pull, 0.5 * rest, linear)


def without_prior_of_scales(*args, right):
    return right(*args[:2], np.where([[True, False]], args[2], 0.3 * args[2]), *args[3:])


def pulled_more(*args, right):
    return right(*args[:4], 1.3 * args[4], *args[5:])


@pytest.mark.slow
def test_less_precise_latent_vectors_are_seen(monkeypatch):
    wrong = partial(less_precise, right=isometric.Shape.of)
    monkeypatch.setattr(isometric.Shape, "of", wrong)
    with pytest.raises(AssertionError):
        test_direction_scale_and_deviations_by_quadrature()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [without_prior_of_scales, pulled_more])
def test_wrong_shapes_are_seen(rigid, wrong, monkeypatch):
    right = isometric.Shape.of
    monkeypatch.setattr(isometric.Shape, "of", partial(wrong, right=right))
    found = rigid.scores(4000, n_updates=1)
    assert max(map(abs, found.values())) > 5.0, found


@pytest.mark.slow
def test_common_scales_by_another_density_are_seen(rigid, monkeypatch):
    right = isometric.draw_slice
    monkeypatch.setattr(
        isometric, "draw_slice", lambda rng, x, density: right(rng, x, lambda t: density(t) + t)
    )
    found = rigid.scores(2000, n_updates=1)
    assert max(map(abs, found.values())) > 6.0, found


@pytest.mark.slow
def test_orientations_of_another_length_are_seen(rigid, monkeypatch):
    right = isometric.draw_with_polar
    monkeypatch.setattr(isometric, "draw_with_polar", lambda rng, q, tau: right(rng, q, 1.3 * tau))
    found = rigid.scores(2000, n_updates=1)
    assert max(map(abs, found.values())) > 6.0, found


@pytest.mark.slow
def test_turns_without_a_way_back_are_seen(monkeypatch):
    right = isometric._turn_between
    more = np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
    monkeypatch.setattr(isometric, "_turn_between", lambda one, other: more @ right(one, other))
    with pytest.raises(AssertionError):
        test_matchings_and_directions_by_quadrature()


# -- what is recognised ----------------------------------------------------------------------------


def isometries(model):
    return {
        own.domain: (own.scale is not None, own.spread is not None)
        for own in read(model).of(Features)[0].sliced
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("rigid", {0: (True, False), 1: (True, False)}),
        ("deviations", {0: (True, True), 1: (True, True)}),
        ("independent noise", {0: (True, True), 1: (True, True)}),
        ("patterns beside", {2: (True, True)}),
        ("relevance", {0: (True, True), 1: (True, True)}),
    ],
)
def test_isometries_are_found(kind, expected):
    assert isometries(feature_model(KINDS[kind])) == expected


def edited(scale=None, raw=None, spread=None, use=None):
    """Declare two rigid domains, of which the first differs in something."""
    rng = np.random.default_rng(2)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), 2)
        latent = pm.Normal("latent", shape=(3, 2))
        for name in "ab":
            own = name == "a"
            cluster = pm.Categorical(f"cluster_{name}", weights, shape=4)
            c = (scale if own and scale else partial(pm.LogNormal, mu=0.0, sigma=0.4))(
                f"scale_{name}"
            )
            a = (raw if own and raw else pm.Normal)(f"raw_{name}", shape=(3, 2))
            s = (spread if own and spread else partial(pm.LogNormal, mu=0.0, sigma=0.4))(
                f"spread_{name}"
            )
            w = c * pmm.semi_orthogonal(a)
            deviation = pm.Normal(f"deviation_{name}", 0.0, s, shape=(3, 3))
            mu, sigma = (latent @ w.T + deviation)[cluster], np.float64(0.5)
            if own and use:
                mu, sigma = use(mu, sigma, a, c, s)
            pm.Normal(f"x_{name}", mu, sigma, observed=rng.normal(size=(4, 3)))
    return model


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({}, (True, True)),
        ({"scale": partial(pm.HalfNormal, sigma=1.0)}, (False, True)),
        ({"scale": partial(pm.Gamma, alpha=2.0, beta=1.0)}, (False, True)),
        ({"scale": lambda name: np.float64(1.3)}, (False, True)),
        ({"spread": partial(pm.HalfNormal, sigma=1.0)}, (True, False)),
        ({"scale": lambda name: pm.LogNormal(name, pm.Normal("mean"), 0.4)}, (False, True)),
        ({"scale": lambda name: pm.LogNormal(name, 0.0, 0.4) ** 2}, (False, True)),
        ({"raw": partial(pm.Normal, sigma=2.0)}, (True, True)),
        ({"raw": partial(pm.Normal, mu=0.1)}, None),
        ({"raw": partial(pm.Normal, sigma=np.array([1.0, 2.0]))}, None),
        ({"use": lambda mu, sigma, a, c, s: (mu + a[0, 0], sigma)}, None),
        ({"use": lambda mu, sigma, a, c, s: (mu + 0.1 * c, sigma)}, (False, True)),
        ({"use": lambda mu, sigma, a, c, s: (mu, sigma * s)}, (True, False)),
    ],
)
def test_what_is_something_else_is_left_to_other_draws(edit, expected):
    found = isometries(edited(**edit))
    assert found.get(0) == expected
    assert found[1] == (True, True)


def test_dense_density_is_scipys():
    """The reference itself."""
    model = declared(2, constant=True)
    w = np.array([[0.4, -1.1], [0.7, 0.2]])
    spreads = (0.0, 0.3, 0.9)
    logs = dense_log_density(model, {"a": w, "b": np.broadcast_to(OTHER[:, 0], (2, 2))}, spreads)
    exact = []
    for v, kappa in product(w, spreads):
        loadings = np.zeros((16, 2 + 4))
        for n, (name, label) in enumerate((k, c) for k, row in LABELS.items() for c in row):
            own = v if name == "a" else OTHER[:, 0]
            loadings[2 * n : 2 * n + 2, label] = 1.1 * own
            if name == "a":
                loadings[2 * n : 2 * n + 2, 2 + 2 * label : 4 + 2 * label] = kappa * np.eye(2)
        whole = loadings @ loadings.T + np.kron(np.eye(8), covariance(2))
        x = np.concatenate([data_of(model, name).ravel() for name in "ab"])
        exact.append(multivariate_normal(cov=whole).logpdf(x))
    assert np.diff(logs.ravel()) == pytest.approx(np.diff(exact))
