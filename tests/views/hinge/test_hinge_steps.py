"""The steps of a hinge as PyMC uses them."""

import copy

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pm_match as pmm
from pm_match.normal.conjugate import log_marginal
from pm_match.views.hinge import fourier_values
from pm_match.views.hinge.carry import LabelledVectors
from pm_match.views.hinge.frequencies import FrequencyEvidence
from pm_match.views.hinge.scales import LostPrecision, draw_by_directions
from tests.exactness.dense import moments

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
Y[:5] = np.nan


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        frequencies = pm.Normal("frequencies", 0.0, 1.0, shape=(6, 2))
        v = pm.Gamma("v", 0.5, 0.5)
        beta = pm.Normal("beta", 0.0, tau=v, shape=13)
        pmm.Hinge("label", pmm.fourier_features(X, frequencies) @ beta, observed=Y)
    return model


KINDS = {
    "gibbs": lambda model: pmm.HingeGibbs([model["beta"]], model=model),
    "metropolis": lambda model: pmm.FrequencyMetropolis([model["frequencies"]], model=model),
    "leaps": lambda model: pmm.FrequencyMetropolis(
        [model["frequencies"]], model=model, n_leapfrog=3
    ),
}
CHANGED = {
    "gibbs": {"beta", "v_log__"},
    "metropolis": {"beta", "v_log__", "frequencies"},
    "leaps": {"beta", "v_log__", "frequencies"},
}


def start(model):
    rng = np.random.default_rng(1)
    point = {
        name: np.asarray(rng.normal(size=v.shape)) for name, v in model.initial_point().items()
    }
    for value in point.values():
        value.setflags(write=False)
    return point


def run(step, point, n=5):
    for _ in range(n):
        point, stats = step.step(point)
    return point, stats


@pytest.mark.parametrize("kind", KINDS)
def test_contract(model, kind):
    step = KINDS[kind](model)
    step.setup_chain(np.random.default_rng(2), 10, 10)
    point = start(model)
    before = copy.deepcopy(point)
    new, (stats,) = run(step, point)
    assert list(new) == list(point)
    for name, value in new.items():
        np.testing.assert_array_equal(point[name], before[name])
        assert isinstance(value, np.ndarray)
        assert (value.dtype, value.shape) == (point[name].dtype, point[name].shape)
        assert np.array_equal(value, point[name]) == (name not in CHANGED[kind])
    assert set(stats) == {name for name, _ in step.stats_dtypes_shapes.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_step_goes_on_alike(model, kind):
    step = KINDS[kind](model)
    step.setup_chain(np.random.default_rng(2), 10, 10)
    point, _ = run(step, start(model))
    other = cloudpickle.loads(cloudpickle.dumps(step))
    state = step.sampling_state
    other.sampling_state = copy.deepcopy(state)
    one, _ = run(step, point)
    two, _ = run(other, point)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_frequencies_are_where_their_leap_has_taken_them(model, monkeypatch):
    """If nothing else moves them; and where they were if it is refused."""
    step = KINDS["leaps"](model)
    step.setup_chain(np.random.default_rng(4), 0, 0)
    step.log_step_size = np.log(0.15)
    step.n_carried = 0
    monkeypatch.setattr(step, "_rescale", lambda new, evidence, stats: evidence)
    monkeypatch.setattr(FrequencyEvidence, "sweep", lambda self, *given: np.zeros(6, bool))
    ends, refused, leap = [], 0, step._leap

    def recorded(*given):
        ends.append(leap(*given))
        return ends[-1]

    monkeypatch.setattr(step, "_leap", recorded)
    point = start(model)
    for _ in range(40):
        before = point["frequencies"]
        point, _ = step.step(point)
        np.testing.assert_array_equal(point["frequencies"], ends[-1])
        moved = point["frequencies"] != before
        assert moved.all() or not moved.any()
        refused += not moved.any()
    assert 0 < refused < 40


@pytest.mark.parametrize("kind", ["metropolis", "leaps"])
def test_statistics_of_what_was_not_tried_are_no_numbers(model, kind):
    step = KINDS[kind](model)
    step.setup_chain(np.random.default_rng(2), 10, 10)
    _, (stats,) = step.step(start(model))
    assert np.isnan(stats["accepted_joint"]) == (kind == "metropolis")
    assert not np.isnan(stats["accepted_carried"])
    assert not np.isnan(stats["accepted_scale"])
    assert not np.isnan(stats["accepted_prior"])
    if kind != "metropolis":
        assert 0.0 < stats["accepted_joint"] <= 1.0


def test_the_step_size_adapts_only_in_tuning(model):
    step = KINDS["leaps"](model)
    step.setup_chain(np.random.default_rng(2), 10, 10)
    first = step.log_step_size
    point, _ = run(step, start(model))
    adapted = step.log_step_size
    assert adapted != first
    step.stop_tuning()
    run(step, point)
    assert step.log_step_size == adapted
    step.setup_chain(np.random.default_rng(2), 10, 10)
    assert step.log_step_size == first


def test_sample_takes_the_steps_and_learns(model):
    kinds = [type(step).__name__ for step in pmm.steps(model)]
    assert kinds == ["FrequencyMetropolis", "HingeGibbs"]
    with model:
        idata = pmm.sample(
            150,
            tune=150,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    posterior = idata["posterior"]
    hits = []
    for chain in range(2):
        for draw in range(0, 150, 10):
            own = posterior.isel(chain=chain, draw=draw)
            features = fourier_values(X, own["frequencies"].values)
            hits.append(np.mean((features @ own["beta"].values * Y)[5:] > 0))
    assert np.mean(hits) > 0.85
    assert not np.array_equal(posterior["beta"][0], posterior["beta"][1])
    spread = idata["sample_stats"]["spread"].values
    assert 0.3 < spread.mean() < 6.0


def test_no_object_with_a_label():
    with pm.Model() as model:
        frequencies = pm.Normal("frequencies", 0.0, 1.0, shape=(1, 2))
        beta = pm.Normal("beta", 0.0, 1.0, shape=3)
        score = pmm.fourier_features(X, frequencies) @ beta
        pmm.Hinge("label", score, observed=np.full(40, np.nan))
    steps = pmm.steps(model)
    for step in steps:
        step.setup_chain(np.random.default_rng(3), 0, 0)
    point, drawn = model.initial_point(), []
    for _ in range(2000):
        for step in steps:
            point, _ = step.step(point)
        drawn.append(np.append(point["beta"], point["frequencies"]))
    # The prior.
    np.testing.assert_allclose(np.mean(drawn, axis=0), 0.0, atol=0.15)
    np.testing.assert_allclose(np.std(drawn, axis=0), 1.0, atol=0.12)


def test_bad_settings(model):
    with pytest.raises(ValueError, match="n_sweeps: expected a whole number of at least 1"):
        pmm.FrequencyMetropolis([model["frequencies"]], model=model, n_sweeps=0)
    for wrong in (-1, 2.5):
        expected = f"n_leapfrog: expected a whole number of at least 0; found {wrong}"
        with pytest.raises(ValueError, match=expected):
            pmm.FrequencyMetropolis([model["frequencies"]], model=model, n_leapfrog=wrong)
        with pytest.raises(ValueError, match=expected.replace("leapfrog", "carried")):
            pmm.FrequencyMetropolis([model["frequencies"]], model=model, n_carried=wrong)
    with pytest.raises(pmm.UnservedModelError, match="frequencies"):
        pmm.HingeGibbs([model["frequencies"]], model=model)


@pytest.mark.compiled
def test_two_hinges_under_plain_pymc():
    """PyMC hands a step that it chooses all variables that it may serve, of both."""
    with pm.Model() as model:
        v = pm.Gamma("v", 1.0, 1.0)
        for name, sign in (("one", 1.0), ("other", -1.0)):
            w = pm.Normal(f"w_{name}", 0.0, tau=v if sign > 0 else 1.0, shape=2)
            pmm.Hinge(name, X @ w, observed=sign * Y)
        steps = pmm.HingeGibbs(model.free_RVs, model=model)
        idata = pm.sample(
            3,
            step=steps,
            tune=2,
            chains=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert [[own.name for own in step.vars] for step in steps.methods] == [
        ["w_one", "v_log__"],
        ["w_other"],
    ]
    for name in ("v", "w_one", "w_other"):
        assert (idata.posterior[name].diff("draw") != 0.0).all()


def mixture(rows):
    """Frequencies of two components, whose weights are declared once, or for every frequency."""
    with pm.Model() as model:
        weights = np.array([0.6, 0.4])
        component = pm.Categorical("component", p=np.tile(weights, (6, 1)) if rows else weights,
                                   shape=6)  # fmt: skip
        precision = pm.Wishart("precision", nu=5, V=np.eye(2), shape=(2, 2, 2))
        root = pt.linalg.cholesky(pt.linalg.inv(precision))
        mean = pm.MvNormal("mean", np.zeros(2), chol=root, shape=(2, 2))
        frequencies = pm.MvNormal(
            "frequencies", mean[component], chol=root[component], shape=(6, 2)
        )
        beta = pm.Normal("beta", 0.0, 1.0, shape=13)
        pmm.Hinge("label", pmm.fourier_features(X, frequencies) @ beta, observed=Y)
    return model


@pytest.mark.parametrize("rows", [False, True])
def test_frequencies_take_their_clusters_with_them(rows):
    model = mixture(rows)
    step = pmm.FrequencyMetropolis([model["frequencies"]], model=model, rng=1)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    point = {name: np.asarray(value) for name, value in model.initial_point(0).items()}
    seen = set()
    for _ in range(20):
        before = point
        point, _ = step.step(point)
        moved = before["component"] != point["component"]
        assert point["component"].dtype == before["component"].dtype
        assert (before["frequencies"][moved] != point["frequencies"][moved]).all()
        seen |= set(point["component"])
    assert seen == {0, 1}


def test_a_weak_prior_keeps_coefficients_where_numbers_are():
    """Of labels that can all be told apart, the scale has no end that the prior would set."""
    with pm.Model() as model:
        v = pm.Gamma("v", 0.01, 0.01)
        beta = pm.Normal("beta", 0.0, tau=v, shape=13)
        features = pmm.fourier_features(X[:8], X[8:14])
        pmm.Hinge("label", features @ beta, observed=np.sign(X[:8, 0]))
    step = pmm.HingeGibbs([model["beta"]], model=model, rng=1)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    point = model.initial_point(0)
    for _ in range(300):
        point, _ = step.step(point)
    assert np.isfinite(point["beta"]).all()


# -- a precision that is lost beside what labels say -----------------------------------------------


def few_labels(v):
    """Declare more features than labels."""
    with pm.Model() as model:
        frequencies = pm.Normal("frequencies", 0.0, 1.0, shape=(6, 2))
        v = v()
        beta = pm.Normal("beta", 0.0, tau=v, shape=13)
        pmm.Hinge("label", pmm.fourier_features(X[:8], frequencies) @ beta, observed=Y[5:13])
    return model


def test_a_tiny_precision_stops_no_chain():
    model = few_labels(lambda: pm.Gamma("v", 0.5, 0.5))
    point = start(model) | {"v_log__": np.array(np.log(1e-14))}
    for kind, make in KINDS.items():
        step = make(model)
        step.setup_chain(np.random.default_rng(3), 0, 0)
        new, stats = step.step(point)
        assert all(np.isfinite(value).all() for value in new.values())
        if kind == "gibbs":
            # What no label sees is as large as the prior has it, at the precision that was drawn.
            assert 0.05 < np.square(new["beta"]).mean() * np.exp(new["v_log__"]) < 5.0
        else:
            assert all(np.array_equal(new[name], point[name]) for name in point)
            assert np.isnan(stats[0]["accepted_scale"])


def test_scales_that_cannot_be_evaluated_are_refused_and_nothing_else(monkeypatch):
    """The law is the prior's where there is a place to go to: one number, and no label."""
    with pm.Model() as model:
        frequencies = pm.Normal("frequencies", 0.0, 1.0, shape=(1, 1))
        beta = pm.Normal("beta", 0.0, 1.0, shape=3)
        score = pmm.fourier_features(X[:4, :1], frequencies) @ beta
        pmm.Hinge("label", score, observed=np.full(4, np.nan))
    step = pmm.FrequencyMetropolis([model["frequencies"]], model=model)
    step.setup_chain(np.random.default_rng(5), 0, 0)
    at, refused = FrequencyEvidence.at, []

    def near(self, frequencies):
        if abs(frequencies[0, 0]) > 0.8:
            refused.append(frequencies)
            raise LostPrecision
        return at(self, frequencies)

    monkeypatch.setattr(FrequencyEvidence, "at", near)
    point = model.initial_point(0) | {"frequencies": np.array([[0.5]])}
    evidence, found = step._evidence(point), []
    for _ in range(12_000):
        evidence = step._rescale(point, evidence, {})
        found.append(abs(evidence.frequencies[0, 0]))
    assert len(refused) > 100
    share = np.array(found[::40])
    law = stats.truncnorm(0.0, 0.8)
    assert stats.kstest(share, law.cdf).pvalue > 1e-3


def test_carried_moves_do_not_go_where_coefficients_are_lost(monkeypatch):
    """The law is the prior's where there is a place to go to: one number, and no label."""
    with pm.Model() as model:
        frequencies = pm.Normal("frequencies", 0.0, 1.0, shape=(1, 1))
        beta = pm.Normal("beta", 0.0, 1.0, shape=3)
        score = pmm.fourier_features(X[:4, :1], frequencies) @ beta
        pmm.Hinge("label", score, observed=np.full(4, np.nan))
    step = pmm.FrequencyMetropolis([model["frequencies"]], model=model)
    step.setup_chain(np.random.default_rng(5), 0, 0)
    carried, refused = LabelledVectors.carried, []

    def near(self, now, frequencies, precision):
        if abs(frequencies[0, 0]) > 0.8:
            refused.append(frequencies)
            raise LostPrecision
        return carried(self, now, frequencies, precision)

    monkeypatch.setattr(LabelledVectors, "carried", near)
    point, found = model.initial_point(0) | {"frequencies": np.array([[0.5]])}, []
    for _ in range(6_000):
        step._carry(point, {})
        found.append(abs(point["frequencies"][0, 0]))
    assert len(refused) > 100
    law = stats.truncnorm(0.0, 0.8)
    assert stats.kstest(np.array(found[::40]), law.cdf).pvalue > 1e-3


def test_where_coefficients_are_lost_nothing_is_carried(model, monkeypatch):
    step = KINDS["metropolis"](model)
    step.setup_chain(np.random.default_rng(5), 0, 0)

    def lost(self, *given):
        raise LostPrecision

    monkeypatch.setattr(LabelledVectors, "_of", lost)
    _, (found,) = step.step(start(model))
    assert np.isnan(found["accepted_carried"])
    assert np.isfinite(found["accepted_scale"])


def test_large_problems_make_carried_moves_now_and_then(model, monkeypatch):
    step = KINDS["metropolis"](model)
    monkeypatch.setattr(step, "_share", 0.2)
    step.setup_chain(np.random.default_rng(5), 0, 0)
    point, made = start(model), 0
    for _ in range(200):
        point, (found,) = step.step(point)
        made += np.isfinite(found["accepted_carried"])
    assert 20 < made < 60


def test_the_prior_of_rescaled_frequencies_is_the_plain_formula():
    """Its differences, with a mixture's means and precisions integrated out and without one."""
    rng = np.random.default_rng(8)
    factors = np.exp(rng.normal(size=(4, 2)))
    sizes = {"n_factors": 2, "n_frequencies": 5, "n_components": 3, "n_private": 0}
    mixed = pmm.models.max_margin_views({"x": X}, Y, **sizes)
    step = pmm.FrequencyMetropolis([mixed["frequencies"]], model=mixed)
    point = mixed.initial_point(1)
    w = rng.normal(0.0, 2.0, point["frequencies"].shape)
    point["component"] = np.array([0, 2, 0, 0, 2])
    found = [step._scaled_log_prior(point, w)(f) for f in factors]
    prior = step._mixture.prior(point)
    expected = [log_marginal(w * f, point["component"], prior, False) for f in factors]
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-9)

    with pm.Model() as plain:
        frequencies = pm.Normal("frequencies", 0.5, 2.0, shape=(3, 2))
        beta = pm.Normal("beta", 0.0, 1.0, shape=7)
        pmm.Hinge("label", pmm.fourier_features(X, frequencies) @ beta, observed=Y)
    step = pmm.FrequencyMetropolis([plain["frequencies"]], model=plain)
    w = rng.normal(size=(3, 2))
    found = [step._scaled_log_prior({}, w)(f) for f in factors]
    expected = [stats.norm(0.5, 2.0).logpdf(w * f).sum() for f in factors]
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-9)


def test_a_sweep_where_the_precision_is_nearly_lost_is_not_undone():
    """Of more labels than features, of which some are lost beside others and some are not."""
    with pm.Model() as model:
        frequencies = pm.Normal("frequencies", 0.0, 0.05, shape=(3, 2))
        v = pm.Gamma("v", 0.5, 0.5)
        beta = pm.Normal("beta", 0.0, tau=v, shape=7)
        pmm.Hinge("label", pmm.fourier_features(X, frequencies) @ beta, observed=Y)
    step = pmm.FrequencyMetropolis([model["frequencies"]], model=model)
    step.setup_chain(np.random.default_rng(6), 0, 0)
    rng = np.random.default_rng(7)
    point = {
        "frequencies": rng.normal(0.0, 2.0, (3, 2)),
        "v_log__": np.array(np.log(1e-14)),
        "beta": rng.normal(size=7),
    }
    tried = moved = 0
    for _ in range(30):
        new, (stats,) = step.step(point)
        if np.isfinite(stats["accepted_scale"]):
            tried += 1
            moved += not np.array_equal(new["frequencies"], point["frequencies"])
            step._evidence(new)
    assert tried > 20
    assert moved > 10


def test_a_precision_that_leaves_no_digits_is_named():
    model = few_labels(lambda: pm.Gamma("v", 0.5, 0.5))
    step = KINDS["gibbs"](model)
    with pytest.raises(FloatingPointError, match=r"'v': expected.*at least 1e-24; found 1e"):
        step.step(start(model) | {"v_log__": np.array(np.log(1e-30))})


def test_a_tiny_constant_precision_is_named():
    model = few_labels(lambda: 1e-14)
    step = KINDS["metropolis"](model)
    step.setup_chain(np.random.default_rng(3), 0, 0)
    message = r"'beta': expected a prior precision with which 13 .* 8 labels .*found v = 1e-14 is"
    with pytest.raises(FloatingPointError, match=message):
        step.step(start(model))


@pytest.mark.parametrize("precision", [0.7, 1e-14])
@pytest.mark.parametrize("p", [3, 9])
def test_draws_by_directions_have_the_moments_of_coefficients(p, precision):
    rng = np.random.default_rng(6)
    design, weights, pulls = rng.normal(size=(5, p)), rng.gamma(2.0, size=5), rng.normal(size=5)
    weights[1] = pulls[1] = 0.0
    # Of the scores: of coefficients of 1e7, no moments would keep any digits.
    mean, covariance = moments(
        lambda rng: design @ draw_by_directions(rng, design, weights, pulls, precision), p
    )
    if p < len(design) or precision > 0.1:
        spread = design @ np.linalg.inv(design.T * weights @ design + precision * np.eye(p))
        expected = spread @ design.T, spread @ design.T @ pulls
    else:
        # By the inverse in the smaller dimension.
        design, weights, pulls = (own[weights > 0.0] for own in (design, weights, pulls))
        mean, covariance = mean[[0, 2, 3, 4]], covariance[np.ix_([0, 2, 3, 4], [0, 2, 3, 4])]
        spread = np.linalg.inv(precision * np.linalg.inv(design @ design.T) + np.diag(weights))
        expected = spread, spread @ pulls
    np.testing.assert_allclose(covariance, expected[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(mean, expected[1], rtol=1e-6, atol=1e-7)
