"""The step of linear factor models: points, statistics, workers, and what it refuses."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import PLAIN
from pm_match.views.factors.points import FactorPoints
from tests.declared.factors import FactorKind, factor_kind_model

KINDS = {
    "missing": FactorKind(),
    "transposed": FactorKind(columns="shared", private="gamma", transposed=True, n_shared=2),
    "given": FactorKind(seen=True, noise="features"),
    "one view": FactorKind(sizes=((4, 0),), noise="known", n_shared=2),
}


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return factor_kind_model(KINDS[request.param])


def started(model, seed=1, **kwargs):
    (step,) = pmm.steps(model)
    step = pmm.FactorGibbs([model[name] for name in step.served(step.part)], model=model, **kwargs)
    step.setup_chain(np.random.default_rng(seed), 0, 0)
    point = {name: np.asarray(value) for name, value in model.initial_point(0).items()}
    rng = np.random.default_rng(2)
    point = {name: value + 0.3 * rng.normal(size=value.shape) for name, value in point.items()}
    return step, point


def test_a_step_leaves_the_given_point_alone(model):
    step, point = started(model)
    before = {name: value.copy() for name, value in point.items()}
    new, _ = step.step(point)
    assert list(new) == list(point)
    drawn = {v.name for v in step.vars}
    for name, value in point.items():
        assert np.array_equal(value, before[name])
        assert isinstance(new[name], np.ndarray)
        assert new[name].shape == value.shape
        assert new[name].dtype == value.dtype
        assert np.array_equal(new[name], value) == (name not in drawn)


def test_the_same_seed_gives_the_same_draws_in_another_process(model):
    step, point = started(model)
    other = cloudpickle.loads(cloudpickle.dumps(step))
    for own in (step, other):
        own.setup_chain(np.random.default_rng(5), 0, 0)
    one, two = point, point
    for _ in range(2):
        (one, told), (two, told_too) = step.step(one), other.step(two)
    assert told == told_too
    for name in point:
        assert np.array_equal(one[name], two[name])


def test_settings_survive(model):
    step, _ = started(model, exchange=False)
    assert cloudpickle.loads(cloudpickle.dumps(step)).exchange is False


def test_the_log_likelihood_is_the_declared_one(model):
    step, point = started(model)
    new, ((told),) = step.step(point)
    views = [f"{v.name}_observed" if v.missing else v.name for v in step.part.views]
    declared = model.compile_logp(vars=[model[name] for name in views], mode=PLAIN)(new)
    assert np.isclose(told["log_likelihood"], declared)


def test_what_views_say_of_a_given_latent_is_the_dense_density():
    """Private latents, and missing values, integrated out; and drawn from their conditional."""
    model = factor_kind_model(FactorKind(seen=True, sizes=((3, 2), (2, 1)), noise="features"))
    step, point = started(model)
    part, points = step.part, FactorPoints(model, step.part)
    latents, forms = points.shared_form(point, ["latent"])
    form = latents.form
    h = points.latents(point)[0]
    found = np.einsum("ni,ni->n", h, form.linear)
    found -= 0.5 * np.einsum("ni,nij,nj->n", h, form.matrix[form.index], h)
    assert list(latents.sizes) == [0]
    expected = np.zeros(part.n_objects)
    for view in part.views:
        w, v = np.split(points.loadings(point, view), [1], axis=1)
        covariance = 0.8**2 * v @ v.T + np.diag(1.0 / view.noise(point))
        at_zero = points.intercept(point, view) + 0.2 * v.sum(axis=1)
        for n, seen in enumerate(view.table.observed):
            if seen.any():
                values, own = view.table.values[n, seen], covariance[np.ix_(seen, seen)]
                for sign, centre in ((1.0, at_zero + w @ h[n]), (-1.0, at_zero)):
                    expected[n] += sign * stats.multivariate_normal.logpdf(
                        values, centre[seen], own
                    )
    assert np.allclose(found, expected)
    new = dict(point)
    draws = []
    rng = np.random.default_rng(3)
    for _ in range(2000):
        points.draw_private(rng, new, forms)
        draws.append(new["private_latent_a"][3])
    # Object 3 has all features of the first view, private prior N(0.2, 0.8²).
    view = part.views[0]
    w, v = np.split(points.loadings(point, view), [1], axis=1)
    inverse = np.eye(2) / 0.64 + v.T @ (v * view.noise(point)[:, None])
    rest = view.table.values[3] - h[3] @ w.T - points.intercept(point, view)
    mean = np.linalg.solve(inverse, 0.2 / 0.64 + v.T @ (view.noise(point) * rest))
    error = np.sqrt(np.diag(np.linalg.inv(inverse)) / len(draws))
    assert (np.abs(np.mean(draws, axis=0) - mean) < 4.5 * error).all()
    assert np.allclose(np.cov(np.transpose(draws)), np.linalg.inv(inverse), atol=0.09)


def test_latents_are_drawn_jointly():
    """Means and covariances of shared and private latents against the dense conditional."""
    model = factor_kind_model(FactorKind(sizes=((3, 1), (2, 1)), noise="features"))
    step, point = started(model)
    part, points = step.part, FactorPoints(model, step.part)
    rng = np.random.default_rng(7)
    # Large loadings, which tie shared and private latents together.
    for view in part.views:
        for loading in view.loadings:
            points.write_factor(point, loading, 1.0 + rng.normal(size=loading.shape))
    # h, u_a, u_b of every object.
    prior_mean, prior = np.array([0.0, 0.2, 0.2]), np.diag([1.0, 1.0 / 0.64, 1.0 / 0.64])
    draws, new = [], dict(point)
    for _ in range(2000):
        step._draw_latents(new)
        draws.append(np.hstack(points.latents(new)))
    draws = np.array(draws)
    for n in range(part.n_objects):
        inverse, linear = prior.copy(), prior @ prior_mean
        for v, view in enumerate(part.views):
            seen = np.ones(view.table.values.shape[1], bool)
            if view.table.observed is not None:
                seen = view.table.observed[n]
            rows = np.zeros((len(seen), 3))
            rows[:, [0, 1 + v]] = points.loadings(point, view)
            weighted = (rows * view.noise(point)[:, None])[seen]
            rest = view.table.values[n] - points.intercept(point, view)
            inverse += weighted.T @ rows[seen]
            linear += weighted.T @ rest[seen]
        covariance = np.linalg.inv(inverse)
        error = np.sqrt(np.diag(covariance) / len(draws))
        mean = covariance @ linear
        assert (np.abs(draws[:, n].mean(axis=0) - mean) < 4.5 * error).all()
        scales = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        found = np.cov(draws[:, n].T)
        assert np.allclose(found / scales, covariance / scales, atol=0.11)


def test_missing_values_are_drawn_around_the_mean():
    model = factor_kind_model(FactorKind(noise="known"))
    step, point = started(model)
    points = FactorPoints(model, step.part)
    new, rng = dict(point), np.random.default_rng(4)
    draws = []
    for _ in range(3000):
        points.draw_missing(rng, new)
        draws.append(new["a_unobserved"])
    # In the order of the array: all of object 0, and feature 1 of object 2.
    view = step.part.views[0]
    latents = points.latents(point)
    means = np.hstack([latents[n] for n in view.latents]) @ points.loadings(point, view).T
    means += points.intercept(point, view)
    expected = [*means[0], means[2, 1]]
    width = np.array([0.5, 0.7, 0.9, 0.7])
    assert (np.abs(np.mean(draws, axis=0) - expected) < 4.5 * width / np.sqrt(3000)).all()
    assert np.allclose(np.std(draws, axis=0), width, rtol=0.08)


def scaled_model(common: bool) -> pm.Model:
    """Two views, with a precision for every factor of each, or one for all projections."""
    rng = np.random.default_rng(8)
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 0.8, shape=(5, 2))
        r = s = pm.Gamma("r", 2.0, 1.5, shape=() if common else 2)
        if not common:
            s = pm.Gamma("s", 1.0, 0.5, shape=2)
        a = pm.Normal("a", 0.0, tau=1.4 * r, shape=(3, 2))
        b = pm.Normal("b", 0.0, tau=s if common else s[:, None], shape=(2, 4))
        pm.Normal("x", z @ a.T, 1.0, observed=rng.normal(size=(5, 3)))
        pm.Normal("y", z @ b, 1.0, observed=rng.normal(size=(5, 4)))
    return model


@pytest.mark.parametrize("common", [False, True], ids=["each factor", "all factors"])
def test_scale_is_exchanged_with_precisions_by_the_declared_density(common):
    """Along scalings of the first factor, or of both, with their Jacobian."""
    model = scaled_model(common)
    step, point = started(model, seed=3)
    first = slice(None) if common else slice(0, 1)
    moved = {"z": (slice(None), first), "a": (slice(None), first), "b": first}
    moved |= {"r_log__": ()} if common else {"r_log__": first, "s_log__": first}

    def scaled(log_g):
        new = {name: np.array(value) for name, value in point.items()}
        for name, place in moved.items():
            if name.endswith("log__"):
                new[name][place] += log_g
            else:
                new[name][place] *= np.exp((0.5 if name == "z" else -0.5) * log_g)
        return new

    logp = model.compile_logp(mode=PLAIN)
    # Latent vectors grow, rows of projections shrink.
    n = (5 - 3 - 4) * (2 if common else 1)
    grid = np.linspace(-8.0, 8.0, 3201)
    log_density = np.array([logp(scaled(log_g)) + 0.5 * n * log_g for log_g in grid])
    cumulated = np.cumsum(np.exp(log_density - log_density.max()))
    drawn = []
    for _ in range(3000):
        new = dict(point)
        step._exchange_scale(new, 0)
        drawn.append(np.ravel(new["r_log__"] - point["r_log__"])[0])
    places = np.interp(drawn, grid, cumulated / cumulated[-1])
    assert stats.kstest(places, "uniform").pvalue > 1e-3
    for name, value in scaled(drawn[-1]).items():
        place = moved.get(name, ...)
        assert np.allclose(np.asarray(new[name])[place], value[place])


@pytest.mark.parametrize(
    "kind", [FactorKind(), FactorKind(seen=True), FactorKind(columns="constant")]
)
def test_scale_stays_where_precisions_cannot_take_it(kind):
    """Priors that are not around zero; latents that are given; precisions that are known."""
    step, point = started(factor_kind_model(kind))
    for number in step.part.own:
        new = dict(point)
        step._exchange_scale(new, number)
        assert all(new[name] is value for name, value in point.items())


def test_pm_sample_takes_the_step_and_draws_the_rest_itself():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 1)) @ rng.normal(size=(1, 3)) + 0.3 * rng.normal(size=(20, 3))
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0, shape=(20, 1))
        w = pm.Normal("w", 0.0, 1.0, shape=(3, 1))
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("x", z @ w.T, sigma, observed=x)
        # Of models without an assignment, PyMC chooses no step of ours by itself.
        idata = pm.sample(
            150, step=pmm.steps(), tune=150, chains=1, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert "log_likelihood" in idata["sample_stats"]
    assert abs(float(idata["posterior"]["sigma"].mean()) - 0.3) < 0.12
    assert read(model).parts


def test_starts_are_near_the_truth_and_differ():
    rng = np.random.default_rng(6)
    h = rng.normal(size=(100, 2))
    views = {}
    for name, d in (("a", 8), ("b", 6)):
        views[name] = 5.0 + h @ rng.normal(size=(2, d)) + 0.2 * rng.normal(size=(100, d))
        views[name][rng.random((100, d)) < 0.05] = np.nan
    model = pmm.models.shared_factors(views, 2, 1)
    one, two = pmm.initial_points(model, 2, random_seed=1)
    assert not np.array_equal(one["latent"], two["latent"])
    for start in (one, two):
        residual = h - start["latent"] @ np.linalg.lstsq(start["latent"], h)[0]
        assert (residual**2).mean() < 0.1
        assert np.allclose(start["intercept_a"], np.nanmean(views["a"], axis=0))
        assert 3.0 < start["precision_a"] < 50.0
        assert np.isfinite(start["a_unobserved"]).all()
        assert start["a_unobserved"].shape == (np.isnan(views["a"]).sum(),)
    assert {rv.name for rv in model.free_RVs} == set(one)


def test_more_factors_than_directions_can_start():
    with pm.Model() as model:
        z = pm.Normal("z", 0.0, 1.0, shape=(4, 3))
        w = pm.Normal("w", 0.0, 1.0, shape=(2, 3))
        pm.Normal("x", z @ w.T, 1.0, observed=np.ones((4, 2)))
    (start,) = pmm.initial_points(model, 1, random_seed=1)
    assert np.isfinite(start["z"]).all()
    assert start["z"].shape == (4, 3)


def test_bad_use_is_refused(model):
    (step,) = pmm.steps(model)
    with pytest.raises(TypeError, match="exchange: expected True or False; found 'no'"):
        pmm.FactorGibbs([model[step.served(step.part)[0]]], model=model, exchange="no")
    with pm.Model() as other:
        x = pm.Normal("x")
        pm.Normal("y", x, 1.0, observed=0.0)
    with pytest.raises(UnservedModelError, match="FactorGibbs cannot serve 'x'"):
        pmm.FactorGibbs([x], model=other)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_extreme_scale_is_said():
    model = factor_kind_model(FactorKind(noise="known"))
    step, point = started(model)
    point["column_precision_a_log__"] = np.full(1, np.inf)
    with pytest.raises(FloatingPointError, match=r"not positive definite|not finite"):
        step.step(point)
