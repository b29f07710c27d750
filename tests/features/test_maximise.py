"""The gradient of the evidence of features, and where climbing along it ends."""

import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import ImputationWarning

import pm_match as pmm
from pm_match.features.emission import Emission, with_deviations
from pm_match.features.evidence_gradient import evidence
from pm_match.features.feature_sums import ClusterSums, Contributions, log_evidence
from pm_match.features.parts import Features, Setting
from pm_match.features.search import tables
from pm_match.features.search.maximise import Maximiser
from pm_match.numerics.masked import MaskedTable
from pm_match.reading.probe import PLAIN
from pm_match.search.chain import Chain

K, WIDTHS = 2, (3, 4)


def random_case(full, missing, spread, gamma):
    rng = np.random.default_rng([full, missing, spread, gamma])
    sums, emissions, spreads, n_values = [], [], [], 0
    for m in WIDTHS:
        x, labels = rng.normal(size=(12, m)), rng.integers(3, size=12)
        observed = None
        if missing:
            observed = rng.random(x.shape) < 0.7
            x[~observed] = 0.0
        data = MaskedTable(x, observed)
        n_values += data.n_values
        sums.append(ClusterSums.of(data, labels, 3, full))
        root = np.tril(rng.normal(size=(m, m)), -1) + np.diag(rng.uniform(0.5, 2.0, m))
        root = root if full else np.diagonal(root).copy()
        emissions.append(Emission(rng.normal(size=(m, K)), rng.normal(size=m), root))
        spreads.append(rng.uniform(0.2, 1.0, m) if spread else None)
    return (
        sums,
        Setting(tuple(emissions), tuple(spreads), 1.3, (2.0, 3.0) if gamma else None),
        (n_values),
    )


def reference(sums, setting, n_values):
    """By factors: deviations are further ones, whose projections are known."""
    r, emissions = setting.latent_precision, []
    for d, own in enumerate(setting.emissions):
        w = with_deviations(own.projection, d, setting.spreads, r)
        emissions.append(replace(own, projection=w))
    return log_evidence(Contributions(sums).of(emissions), r, setting.gamma, n_values)


@pytest.mark.parametrize("gamma", [False, True])
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_gradient(full, missing, spread, gamma):
    sums, setting, n_values = random_case(full, missing, spread, gamma)
    value, gradients = evidence(sums, setting, K)
    assert value == pytest.approx(reference(sums, setting, n_values))
    h = 1e-5

    def slope(d, **changed):
        """How the evidence changes if some of an emission, or its spread, is changed by h."""
        found = []
        for sign in (1.0, -1.0):
            emissions, spreads = list(setting.emissions), list(setting.spreads)
            for name, step in changed.items():
                if name == "spread":
                    spreads[d] = spreads[d] * np.exp(sign * h * step)
                elif name == "precision":
                    precision = emissions[d].precision + sign * h * step
                    emissions[d] = replace(emissions[d], root=np.linalg.cholesky(precision))
                else:
                    moved = getattr(emissions[d], name) + sign * h * step
                    emissions[d] = replace(emissions[d], **{name: moved})
            own = replace(setting, emissions=tuple(emissions), spreads=tuple(spreads))
            found.append(reference(sums, own, n_values))
        return (found[0] - found[1]) / (2.0 * h)

    for d, (m, own) in enumerate(zip(WIDTHS, gradients, strict=True)):
        units = np.eye(m)
        expected = [slope(d, intercept=unit) for unit in units]
        np.testing.assert_allclose(own.intercept, expected, rtol=1e-6, atol=1e-6)
        cells = np.eye(m * K).reshape(-1, m, K)
        expected = np.reshape([slope(d, projection=cell) for cell in cells], (m, K))
        np.testing.assert_allclose(own.projection, expected, rtol=1e-6, atol=1e-6)
        if spread:
            expected = [slope(d, spread=unit) for unit in units]
            np.testing.assert_allclose(own.log_spread, expected, rtol=1e-6, atol=1e-6)
        if full:
            for i in range(m):
                for j in range(i + 1):
                    both = np.outer(units[i], units[j])
                    both = (both + both.T) / 2.0
                    expected = slope(d, precision=both)
                    np.testing.assert_allclose(
                        np.sum(own.precision * both), expected, rtol=1e-5, atol=1e-5
                    )


RNG = np.random.default_rng(3)
LABELS = {"a": np.repeat([0, 1, 2], 8), "b": np.repeat([0, 1, 2], 6)}
LATENT = 2.0 * RNG.normal(size=(3, 2))
TABLES = {
    name: LATENT[own] @ RNG.normal(size=(2, m)) + 0.5 * RNG.normal(size=(len(own), m))
    for (name, own), m in zip(LABELS.items(), (3, 4), strict=True)
}
HOLES = {name: np.where(RNG.random(x.shape) < 0.1, np.nan, x) for name, x in TABLES.items()}


def other_scales(shared):
    """Isometries whose scales are no log-normal numbers of their own."""
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, K=3)
        z = pm.Normal("z", shape=(4, 2))
        whole = pm.LogNormal("scale")
        for name, x in TABLES.items():
            raw = pm.Normal(f"raw_{name}", shape=(x.shape[1], 2), initval=np.eye(x.shape[1], 2))
            scale = whole if shared else pm.HalfNormal(f"scale_{name}", 10.0)
            w = scale * pmm.semi_orthogonal(raw)
            c = pm.Categorical(f"c_{name}", weights, shape=len(x))
            noise = pm.HalfNormal(f"noise_{name}")
            pm.Normal(name, (z @ w.T)[c], noise, observed=x)
    return model


MODELS = {
    "scales of other priors": lambda: other_scales(False),
    "one scale for all": lambda: other_scales(True),
    "relevance": lambda: pmm.models.projected_clusters(
        TABLES, 2, 4, projection="normal", relevance=True
    ),
    "isometries": lambda: pmm.models.table_clusters(TABLES, 4),
    "isometries, missing values": lambda: pmm.models.table_clusters(HOLES, 4),
    "one noise": lambda: pmm.models.projected_clusters(
        TABLES, 2, 4, projection="isometric", intercept=True
    ),
    "normal projections, shared precision": lambda: pmm.models.projected_clusters(
        TABLES, 2, 4, projection="normal", intercept=True
    ),
    "flat projections": lambda: pmm.models.projected_clusters(TABLES, 2, 4, intercept=True),
    "private factors": lambda: pmm.models.projected_clusters(
        TABLES, 2, 4, projection="normal", within=1
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_climbs_to_a_maximum(case):
    model = MODELS[case]()
    rng = np.random.default_rng(4)
    chain = Chain(model, pmm.steps(model), model.initial_point(0), rng)
    (features,) = chain.components[0].of(Features)
    labels = np.concatenate(list(LABELS.values()))
    if case == "relevance":
        labels[[3, 30]] = -1
    chain.place(0, [labels])
    maximiser = Maximiser(model, features)
    moving = [p for p in features.parameters if p.name not in maximiser.left]
    keys = [model.rvs_to_values[model[p.name]].name for p in moving]

    def near(point, size):
        moved = {key: point[key] + size * rng.normal(size=point[key].shape) for key in keys}
        return point | moved

    # Where projections are zero, so is the gradient.
    start = near(chain.point, 0.3)
    turned = {isometry.orientation.name for isometry in features.isometries}
    names = [p.name for p in moving if p.update != "flat" and p.name not in turned]
    log_prior = model.compile_logp([model[name] for name in names], mode=PLAIN)

    def log_density(point):
        chain.point = point
        return chain.loaded(0).log_joint() + float(log_prior(point))

    best, prior = maximiser(start, 2000)
    again, other_prior = maximiser(near(best, 0.02), 2000)
    top = log_density(best)
    assert top > log_density(start)
    assert log_density(again) == pytest.approx(top, abs=0.02)
    # What it says of the parameters differs by a constant from what is declared.
    declared = float(log_prior(best)) - float(log_prior(again))
    assert prior - other_prior == pytest.approx(declared, abs=1e-6)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(30):
            assert log_density(near(best, size)) < top + 1e-3
    # A few steps do not fall.
    assert log_density(maximiser(start, 2)[0]) > log_density(start)


def searched(model):
    chain = Chain(model, pmm.steps(model), model.initial_point(0), np.random.default_rng(0))
    for number in range(len(chain.components)):
        tables.search(chain, number, np.random.default_rng(1))
    return chain


def declared(name, tables_, intercept=0.0, constant=False):
    """Normal clusters of projections with a prior of their own, or of a constant one."""
    weights = pm.StickBreakingWeights(f"weights_{name}", 1.0, K=3)
    z = pm.Normal(f"z_{name}", shape=(4, 2))
    for own, x in tables_.items():
        m = x.shape[1]
        c = pm.Categorical(f"c_{name}{own}", weights, shape=len(x))
        w, a, noise = np.eye(m, 2), 0.0, 1.0
        if not constant:
            w = pm.Normal(f"w_{name}{own}", shape=(m, 2))
            a = pm.Normal(f"a_{name}{own}", intercept, 1.0 + abs(intercept), shape=m)
            noise = pm.HalfNormal(f"noise_{name}{own}")
        pm.Normal(f"{name}{own}", (z @ w.T)[c] + a, noise, observed=x)


def test_every_component_climbs():
    with pm.Model() as model:
        declared("x", TABLES)
        declared("y", {name: 5.0 + table for name, table in TABLES.items()})
    chain = searched(model)
    for name in ("a_xa", "a_xb", "a_ya", "a_yb"):
        assert chain.point[name].all()


def test_without_parameters_nothing_climbs():
    with pm.Model() as model:
        declared("x", TABLES, constant=True)
    assert np.isfinite(searched(model).log_joint(0))


def matched_at(offset, tables_):
    """Search where values are larger by `offset`, and intercepts begin at 0."""
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", ImputationWarning)
        weights = pm.StickBreakingWeights("weights", 1.0, K=3)
        z = pm.Normal("z", shape=(4, 2))
        for name, x in tables_.items():
            m = x.shape[1]
            raw = pm.Normal(f"raw_{name}", shape=(m, 2), initval=np.eye(m, 2))
            a = pm.Normal(f"a_{name}", 0.0, 1e6, shape=m)
            c = pm.Categorical(f"c_{name}", weights, shape=len(x))
            precision = pm.Wishart(f"precision_{name}", m + 4, np.eye(m))
            pm.MvNormal(
                name,
                (z @ pmm.semi_orthogonal(raw).T)[c] + a,
                tau=precision,
                observed=np.ma.masked_invalid(x + offset),
            )
    chain = searched(model)
    return chain.labels(0)[0], chain.point["a_a"] - offset


@pytest.fixture(scope="module", params=[TABLES, HOLES], ids=["whole", "holes"])
def matched_near(request):
    """Tables, and what a search finds of them where intercepts begin."""
    return request.param, *matched_at(0.0, request.param)


@pytest.mark.parametrize("offset", [1e4, 1e5])
def test_tables_far_from_where_intercepts_begin(offset, matched_near):
    tables_, near, intercept = matched_near
    far, moved = matched_at(offset, tables_)
    assert pmm.metrics.adjusted_rand_index({"": near}, {"": far}) > 0.95
    assert moved == pytest.approx(intercept, abs=0.5)


def test_hyperparameters_and_what_priors_depend_on_move():
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 0.1)
        weights = pm.StickBreakingWeights("weights", alpha, K=3)
        z = pm.Normal("z", shape=(4, 2))
        width = pm.HalfNormal("width", 100.0)
        for name, x in TABLES.items():
            c = pm.Categorical(f"c_{name}", weights, shape=len(x))
            w = pm.Normal(f"w_{name}", 0.0, width, shape=(x.shape[1], 2))
            pm.Normal(name, (z @ w.T)[c], pm.HalfNormal(f"noise_{name}"), observed=x)
    start = model.initial_point(0)
    point = searched(model).point
    for key in ("alpha_log__", "width_log__"):
        assert point[key] < start[key] - 0.5


def test_large_arrays_are_drawn_in_a_search():
    tables_ = {name: np.tile(x, 2) for name, x in TABLES.items()}
    model = pmm.models.projected_clusters(tables_, 2, 4, projection="normal", within=1)
    chain = searched(model)
    (features,) = chain.components[0].of(Features)
    assert {"private_a", "private_b"} <= {*Maximiser(model, features).left}
    # They begin at zero, where their gradient is zero too.
    for name in "ab":
        assert not model.initial_point(0)[f"private_{name}"].any()
        assert chain.point[f"private_{name}"].all()
