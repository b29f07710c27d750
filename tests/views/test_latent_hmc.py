"""`LatentHMC` as a step method: what it serves, what it keeps, what it leaves alone."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats import ess
from pymc.step_methods.compound import BlockedStep
from scipy import stats

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import PLAIN
from pm_match.views.factors.recognise import FactorModel
from pm_match.views.hinge.labelled_latents import LabelledLatent
from tests.declared.views import tiny_views
from tests.exactness.chains import batched

pytestmark = pytest.mark.usefixtures("only_collapsed")


@pytest.fixture(scope="module")
def model():
    return tiny_views()


def make(model, latent="latent", **kwargs):
    step = pmm.LatentHMC([model[latent]], model=model, **kwargs)
    step.setup_chain(np.random.default_rng(0), 50, 50)
    return step


def start(model):
    return {name: np.asarray(v) for name, v in model.initial_point(0).items()}


def run(step, point, n):
    stats = []
    for _ in range(n):
        point, found = step.step(point)
        stats += found
    return point, stats


def test_the_given_point_is_left_alone(model):
    point = start(model)
    copies = {name: value.copy() for name, value in point.items()}
    new, _ = make(model).step(point)
    assert list(new) == list(point)
    for name, value in copies.items():
        np.testing.assert_array_equal(point[name], value)
        assert new[name].shape == value.shape
    changed = {name for name in new if not np.array_equal(new[name], copies[name])}
    assert {"latent", "private_latent_x", "y_unobserved"} < changed
    # What else trades scale with the latent vectors.
    own = {f"{kind}_{v}" for kind in ("projection", "column_precision") for v in "xy"}
    own |= {"intercept_x", "intercept_y", "coefficients", "frequencies"}
    own |= {"latent", "private_latent_x", "y_unobserved"}
    assert {name.removesuffix("_log__") for name in changed} <= own


def test_the_same_generator_gives_the_same_draws(model):
    one, _ = run(make(model), start(model), 5)
    other, _ = run(make(model), start(model), 5)
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


def test_step_size_is_adapted_while_tuning_only(model):
    point = start(model)
    point["coefficients"] = np.array([9.0, -8.0, 7.0, 9.0, 0.3])
    point["frequencies"] = np.array([[3.0], [-5.0]])
    step = make(model)
    point, stats = run(step, point, 400)
    step.stop_tuning()
    kept = step.log_step_size
    _, stats = run(step, point, 300)
    assert step.log_step_size == kept
    assert abs(np.mean([own["latent_acceptance"] for own in stats]) - 0.8) < 0.12
    assert set(stats[0]) == set(step.stats_dtypes_shapes)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    assert copy.log_step_size == kept
    assert not copy.tune


def test_unlabelled_objects_are_not_held_up(model):
    """An object without a label moves in every step, whatever the others do."""
    point, step = start(model), make(model)
    for _ in range(20):
        new, _ = step.step(point)
        assert new["latent"][2, 0] != point["latent"][2, 0]
        point = new


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target_accept": 1.0}, "target_accept: expected a number between 0 and 1"),
        ({"max_steps": 0}, "max_steps: expected a whole number of at least 1"),
    ],
)
def test_bad_arguments(model, given, message):
    with pytest.raises(ValueError, match=message):
        make(model, **given)


def declare(use, latent=None):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    with pm.Model() as model:
        h = pm.Normal("h", 0.0, 1.0, shape=(6, 2)) if latent is None else latent()
        w = pm.Normal("w", 0.0, 1.0, shape=(3, 2))
        pm.Normal("x", h @ w.T, 1.0, observed=x)
        frequencies = pm.Normal("frequencies", 0.0, 1.0, shape=(2, 2))
        beta = pm.Normal("beta", 0.0, 1.0, shape=5)
        use(h, frequencies, beta)
    return model


LABELS = np.array([1, -1, 1, 1, -1, -1])


def plain(h, frequencies, beta):
    pmm.Hinge("y", pmm.fourier_features(h, frequencies) @ beta, observed=LABELS)


def test_a_hinge_on_other_features_is_left_to_pymc():
    def other(h, frequencies, beta):
        pmm.Hinge("y", pmm.fourier_features(h**2, frequencies) @ beta, observed=LABELS)

    structure = read(declare(other))
    assert not [part for part in structure.parts if isinstance(part, LabelledLatent)]
    assert "fourier_features" in structure.refusals["h"]
    model = declare(other)
    with pytest.raises(UnservedModelError, match="'h'"):
        pmm.LatentHMC([model["h"]], model=model)


KERNEL = np.random.default_rng(4).normal(size=(2, 2))


def frozen(h, frequencies, beta):
    pmm.Hinge("y", pmm.fourier_features(h, KERNEL) @ beta, C=0.7, observed=LABELS)


def test_a_frozen_kernel_has_the_declared_density_and_its_gradient():
    model = declare(frozen)
    structure = read(model)
    assert not structure.refusals
    (part,) = [part for part in structure.parts if isinstance(part, LabelledLatent)]
    assert [hinge.frequencies for hinge in part.hinges] == [None]
    step = pmm.LatentHMC([model["h"]], model=model, rng=1)
    rng = np.random.default_rng(5)
    point = {name: rng.normal(size=value.shape) for name, value in start(model).items()}
    latents, _ = step._factors.shared_form(point, part.names)
    form = latents.form.with_prior(*part.prior(point))
    term = step._term(point)
    declared = model.compile_logp(mode=PLAIN)
    slope = model.compile_dlogp(vars=[model["h"]], mode=PLAIN)
    gaps = []
    for _ in range(4):
        h = 2.0 * rng.normal(size=(6, 2))
        value, gradient = term(np.arange(6), h)
        pull = np.einsum("nij,nj->ni", form.matrix[form.index], h)
        ours = (value + (h * (form.linear - 0.5 * pull)).sum(axis=1)).sum()
        gaps.append(declared(point | {"h": h}) - ours)
        ours = gradient + form.linear - pull
        np.testing.assert_allclose(slope(point | {"h": h}).reshape(6, 2), ours, rtol=1e-9)
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-10)
    # It is sampled at all.
    names = [name for made in pmm.steps(model) for name in (v.name for v in made.vars)]
    assert {"h", "beta", "w"} <= set(names)
    new, _ = run(make(model, latent="h"), point, 3)
    assert not np.array_equal(new["h"], point["h"])


def test_a_kernel_that_is_an_expression_is_left_to_pymc():
    def other(h, frequencies, beta):
        pmm.Hinge("y", pmm.fourier_features(h, pt.exp(frequencies)) @ beta, observed=LABELS)

    assert "a free variable or a constant array" in read(declare(other)).refusals["h"]


def test_what_else_depends_on_it_is_refused():
    def also(h, frequencies, beta):
        plain(h, frequencies, beta)
        pm.Potential("more", -(h**2).sum())

    assert "'more' depends on 'h'" in read(declare(also)).refusals["h"]


def test_another_prior_is_refused():
    model = declare(plain, lambda: pm.StudentT("h", 4.0, shape=(6, 2)))
    assert "'h' is a StudentT; expected a Normal" in read(model).refusals["h"]


def test_two_hinges_of_one_latent():
    def two(h, frequencies, beta):
        plain(h, frequencies, beta)
        other = pm.Normal("other", 0.0, 1.0, shape=5)
        observed = np.where(np.arange(6) < 3, np.nan, LABELS)
        pmm.Hinge("z", pmm.fourier_features(h, frequencies) @ other, C=2.0, observed=observed)

    model = declare(two)
    (part,) = [part for part in read(model).parts if isinstance(part, LabelledLatent)]
    assert [hinge.name for hinge in part.hinges] == ["y", "z"]
    step = pmm.LatentHMC([model["h"]], model=model, rng=1)
    point = start(model) | {"beta": np.arange(5.0), "other": np.arange(5.0)[::-1].copy()}
    term, rows, h = step._term(point), np.arange(6), np.ones((6, 2))
    before = model.compile_logp(vars=[model["y"], model["z"]], sum=False, mode=PLAIN)(
        point | {"h": h}
    )
    np.testing.assert_allclose(term(rows, h)[0], before[0] + before[1])


# -- exchange of scale -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scaled_model():
    rng = np.random.default_rng(5)
    views = {"a": rng.normal(size=(6, 3)), "b": rng.normal(size=(6, 2))}
    return pmm.models.max_margin_views(
        views, [1, -1, 1, 1, -1, None], 2, 3, n_private=0, n_components=2, column_prior=(2.0, 1.0)
    )


def some_point(model, seed):
    rng = np.random.default_rng(seed)
    return {
        name: np.asarray(v + 0.3 * rng.normal(size=v.shape) if v.dtype.kind == "f" else v)
        for name, v in start(model).items()
    }


def check_unseen(model, before, found, expected):
    """A move ends where it should, and neither views nor labels see it."""
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-9)
    observed = model.compile_logp(vars=[model[name] for name in ("a", "b", "label")], mode=PLAIN)
    assert observed(found) == pytest.approx(observed(before), rel=1e-9)


def test_scale_is_exchanged_by_the_declared_density(scaled_model):
    """Over all scalings of two factors, with their Jacobian; labels and views see nothing."""
    model = scaled_model
    step = make(model)
    point = some_point(model, 9)
    point["component"] = np.array([0, 1, 1], point["component"].dtype)

    def scaled(t):
        """Points (n, ...) that factors are scaled to, by logs t (n, 2)."""
        new = {name: np.stack([value] * len(t)) for name, value in point.items()}
        new["latent"] *= np.exp(t)[:, None]
        new["frequencies"] *= np.exp(-t)[:, None]
        for name in "ab":
            new[f"projection_{name}"] *= np.exp(-t)[:, None]
            new[f"column_precision_{name}_log__"] += 2.0 * t
        return new

    # Six latent vectors grow; three frequencies, and three and two rows of projections, shrink.
    grid = np.linspace(-1.8, 1.8, 46)
    places = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = batched(model, model.logp(), point)(scaled(places)).reshape(46, 46)
    log_density += (6 - 3 - 3 - 2) * (grid[:, None] + grid)
    p = np.exp(log_density - log_density.max())
    p /= p.sum()
    assert p[[0, -1]].sum() + p[:, [0, -1]].sum() < 1e-3
    new, drawn = dict(point), []
    for _ in range(4000):
        step._exchange_scale(new)
        drawn.append(np.log(new["latent"][0] / point["latent"][0]))
    drawn = np.array(drawn)
    for f in (lambda s, t: s, lambda s, t: t, lambda s, t: s * t, lambda s, t: s**2,
              lambda s, t: 0.5 + 0.5 * np.sign(s - t), lambda s, t: np.sin(4.0 * t)):  # fmt: skip
        found = f(*drawn.T)
        error = found.std() / np.sqrt(float(ess(found[None])))
        assert abs(found.mean() - (p * f(grid[:, None], grid)).sum()) < 4.2 * error
    (last,) = zip(*scaled(drawn[-1:]).values(), strict=True)
    check_unseen(model, point, new, dict(zip(point, last, strict=True)))


def test_centres_are_exchanged_by_the_declared_density(scaled_model):
    """Along all moves of two factors: a normal density, whose matrix logp tells."""
    model = scaled_model
    step = make(model)
    point = some_point(model, 10)
    logp = model.compile_logp(mode=PLAIN)

    def shifted(c):
        new = {name: np.array(value) for name, value in point.items()}
        new["latent"] += c
        for name in "ab":
            new[f"intercept_{name}"] -= new[f"projection_{name}"] @ c
        angle = new["frequencies"] @ c
        one, other = point["coefficients"][:3], point["coefficients"][3:6]
        new["coefficients"][:3] = np.cos(angle) * one - np.sin(angle) * other
        new["coefficients"][3:6] = np.sin(angle) * one + np.cos(angle) * other
        return new

    i = np.eye(2)
    zero = logp(shifted(np.zeros(2)))
    slope = [0.5 * (logp(shifted(e)) - logp(shifted(-e))) for e in i]
    bend = np.diag([logp(shifted(e)) + logp(shifted(-e)) - 2.0 * zero for e in i])
    bend[0, 1] = bend[1, 0] = logp(shifted(i.sum(0))) - zero - sum(slope) - 0.5 * np.trace(bend)
    covariance = np.linalg.inv(-bend)
    drawn = []
    for _ in range(4000):
        new = dict(point)
        step._shift(new)
        drawn.append((new["latent"] - point["latent"])[0])
    root = np.linalg.cholesky(covariance)
    standard = np.linalg.solve(root, (drawn - covariance @ slope).T)
    for own in (*standard, standard[0] * np.sqrt(0.5) + standard[1] * np.sqrt(0.5)):
        assert stats.kstest(own, "norm").pvalue > 1e-3
    check_unseen(model, point, new, shifted(drawn[-1]))


def test_scale_stays_where_frequencies_are_to_stay(scaled_model):
    model = scaled_model
    point = start(model)
    point["frequencies"] = np.arange(6.0).reshape(3, 2)
    kept = make(model, exchange=False)
    assert np.array_equal(kept.step(point)[0]["frequencies"], point["frequencies"])
    assert not np.array_equal(make(model).step(point)[0]["frequencies"], point["frequencies"])
    assert cloudpickle.loads(cloudpickle.dumps(kept)).exchange is False
    with pytest.raises(TypeError, match="exchange: expected True or False; found 1"):
        pmm.LatentHMC([model["latent"]], model=model, exchange=1)


# -- beside steps of a user's own ------------------------------------------------------------------


class Kept(BlockedStep):
    """A step that leaves its variables as they are."""

    def __init__(self, vars, model, **kwargs):
        self.vars = vars

    def step(self, point):
        return point, []


def kept(model, names):
    return Kept([model.rvs_to_values[model[name]] for name in names], model=model)


@pytest.mark.parametrize(
    "held", [["frequencies"], ["frequencies", "coefficients", "coefficient_precision"]]
)
def test_what_a_given_step_holds_is_left_alone(model, held):
    ours = pmm.steps(model, given=[kept(model, held)])
    point = some = {name: value + 0.3 for name, value in start(model).items()}
    some["component"] = point["component"] = start(model)["component"]
    for step in ours:
        step.setup_chain(np.random.default_rng(0), 0, 0)
        point, _ = step.step(point)
    keys = [model.rvs_to_values[model[name]].name for name in held]
    for name in keys:
        np.testing.assert_array_equal(point[name], some[name])
    assert not np.array_equal(point["latent"], some["latent"])


def test_what_frequencies_move_with_cannot_be_held_alone(model):
    given = kept(model, ["coefficients", "coefficient_precision"])
    with pytest.raises(UnservedModelError, match=r"FrequencyMetropolis.*writes \['coefficient_pr"):
        pmm.steps(model, given=[given])
    ours = pmm.HingeGibbs([model["coefficients"]], model=model)
    assert pmm.FrequencyMetropolis in map(type, pmm.steps(model, given=[ours]))


def test_private_vectors_cannot_be_held_alone(model):
    (names,) = (part.names for part in read(model).parts if isinstance(part, FactorModel))
    with pytest.raises(UnservedModelError, match=r"LatentHMC.*writes \['private_latent_x', 'y_un"):
        pmm.steps(model, given=[kept(model, names)])
