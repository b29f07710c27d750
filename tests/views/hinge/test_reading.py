"""Which hinges are read, however they are written, and which are refused, by name."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import evaluate
from pm_match.views.hinge import recognise as hinges

pytestmark = pytest.mark.usefixtures("only_collapsed")

N, M, D = 7, 3, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = np.array([1, -1, 1, np.nan, 1, -1, -1])


def declare(score=None, w=None, C=1.0, extra=lambda v, w: None):
    with pm.Model() as model:
        v = pm.Gamma("v", 2.0, 3.0)
        coefficients = pm.Normal("w", 0.0, tau=v, shape=D) if w is None else w(v)
        pmm.Hinge("label", (score or (lambda w: X @ w))(coefficients), C, observed=Y)
        extra(v, coefficients)
    return model


def only(model):
    structure = read(model)
    assert structure.refusals == {}
    (part,) = structure.parts
    return part


def test_a_precision_that_differs_at_a_draw_stops_the_chain():
    model = declare(w=lambda v: pm.Normal("w", 0.0, tau=pt.minimum(v, [300.0, 1e9]), shape=D))
    part, point = only(model), model.initial_point(0)
    part.prior_precision(point)
    with pytest.raises(UnservedModelError, match=r"'w': .* differs. Sample them by pm.NUTS"):
        part.prior_precision(point | {"v_log__": np.log(400.0)})


def random_point(model, seed=1):
    rng = np.random.default_rng(seed)
    start = model.initial_point(0)
    return {name: np.asarray(rng.normal(size=np.shape(value))) for name, value in start.items()}


@pytest.mark.parametrize(
    "score",
    [
        lambda w: X @ w,
        lambda w: (X * w).sum(axis=1),
        lambda w: pt.dot(w, X.T),
        lambda w: w[0] * X[:, 0] + X[:, 1] * w[1],
    ],
)
def test_a_linear_score_however_it_is_written(score):
    model = declare(score)
    part = only(model)
    assert part.names == ["w", "v"]
    point = random_point(model)
    design, offset = part.design(point)
    np.testing.assert_allclose(design, X, atol=1e-12)
    np.testing.assert_array_equal(offset, np.zeros((N, 1)))
    assert part.prior_precision(point) == pytest.approx(np.exp(point["v_log__"]))
    assert part.precision_prior(point) == pytest.approx((2.0, 3.0))
    np.testing.assert_array_equal(part.labels[:, 0], np.nan_to_num(Y))


def test_what_else_is_in_the_score_is_an_offset():
    def score(w):
        b = pm.Exponential("b", 1.0)
        return 2.0 * (X @ w) * b + b - 1.0

    model = declare(score)
    part = only(model)
    point = random_point(model)
    b = np.exp(point["b_log__"])
    design, offset = part.design(point)
    np.testing.assert_allclose(design, 2.0 * b * X)
    np.testing.assert_allclose(offset, np.full((N, 1), b - 1.0))


def test_classes():
    codes = np.array([0, 2, 1, -1, 1, 0, 2])
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 2.0, shape=(D, 3))
        pmm.Hinge("label", X @ w, 0.4, observed=codes)
    part = only(model)
    assert part.shape == (D, 3)
    assert part.precision is None
    assert part.prior_precision({}) == pytest.approx(0.25)
    assert part.C({}) == 0.4
    np.testing.assert_array_equal(part.labels[1], [-1.0, -1.0, 1.0])
    np.testing.assert_array_equal(part.labels[3], np.zeros(3))


def test_offsets_of_classes():
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 2.0, shape=(D, 3))
        a = pm.Normal("a", shape=3)
        pmm.Hinge("label", X @ w + a, observed=np.arange(N) % 3)
    part = read(model).parts[0]
    point = random_point(model)
    design, offset = part.design(point)
    np.testing.assert_allclose(design, X, atol=1e-12)
    np.testing.assert_array_equal(offset, np.broadcast_to(point["a"], (N, 3)))


@pytest.mark.parametrize(
    "mix",
    [
        # Of equal coefficients, and of the first column, it makes nothing else than they are.
        [[1.0, 0.5, 0.2], [0.0, 0.5, 0.3], [0.0, 0.0, 0.5]],
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
        [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]],
    ],
)
def test_columns_that_are_mixed(mix):
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 2.0, shape=(D, 3))
        pmm.Hinge("label", (X @ w) @ np.array(mix), observed=np.arange(N) % 3)
    structure = read(model)
    assert not structure.parts
    assert "columns of 'w' enter more than their own" in structure.refusals["label"]


def fourier(latent=None, frequencies=None, extra=lambda *_: None):
    with pm.Model() as model:
        h = pm.Normal("h", 0.0, 1.0, shape=(N, D)) if latent is None else latent
        omega = pm.Normal("omega", 0.5, 2.0, shape=(M, D)) if frequencies is None else frequencies()
        beta = pm.Normal("beta", 0.0, 1.0, shape=2 * M + 1)
        pmm.Hinge("label", pmm.fourier_features(h, omega) @ beta, observed=Y)
        extra(h, omega)
    return model


def test_fourier_features():
    model = fourier()
    part = only(model)
    assert (part.latent, part.frequencies, part.adapts) == ("h", "omega", True)
    assert part.names == ["beta", "omega"]
    point = random_point(model)
    means, factors = part.frequency_prior(point)
    np.testing.assert_array_equal(means, np.full((M, D), 0.5))
    np.testing.assert_array_equal(factors, np.tile(2.0 * np.eye(D), (M, 1, 1)))
    design, offset = part.design(point)
    assert offset is None
    expected = evaluate(pmm.fourier_features(point["h"], point["omega"]))
    np.testing.assert_allclose(design, expected, rtol=1e-12)


def test_fourier_features_of_constant_vectors():
    part = only(fourier(X))
    assert (part.latent, part.frequencies, part.adapts) == (None, "omega", True)
    start = part.start(np.random.default_rng(1), fourier(X).initial_point())
    assert 0.3 < np.sqrt(np.square(X @ start["omega"].T).mean()) < 3.0


@pytest.mark.parametrize("held", [lambda value: value, lambda value: pm.Data("kernel", value)])
def test_fourier_features_of_a_constant_kernel(held):
    omega = RNG.normal(size=(M, D))
    model = fourier(frequencies=lambda: held(omega))
    part = only(model)
    assert (part.latent, part.frequencies, part.adapts) == ("h", None, False)
    assert (part.names, part.relabelled) == (["beta"], [])
    point = random_point(model)
    for found, expected in zip(part.fourier(point), (point["h"], omega), strict=True):
        np.testing.assert_array_equal(found, expected)
    expected = evaluate(pmm.fourier_features(point["h"], omega))
    np.testing.assert_allclose(part.design(point)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("which", ["chol", "cov", "tau", "one"])
def test_multivariate_normal_frequencies(which):
    covariances = np.array([np.eye(D), [[2.0, 0.5], [0.5, 1.0]], np.eye(D)])
    centre = np.arange(6.0).reshape(M, D)
    spread = {
        "chol": {"chol": np.linalg.cholesky(covariances)},
        "cov": {"cov": covariances},
        "tau": {"tau": np.linalg.inv(covariances[1])},
        "one": {"cov": covariances[1]},
    }[which]
    part = only(fourier(frequencies=lambda: pm.MvNormal("omega", centre, shape=(M, D), **spread)))
    means, factors = part.frequency_prior({})
    np.testing.assert_array_equal(means, centre)
    expected = covariances if which in ("chol", "cov") else covariances[[1, 1, 1]]
    np.testing.assert_allclose(factors @ np.swapaxes(factors, 1, 2), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("scaled", "what"),
    [
        (lambda h, omega: pmm.fourier_features(2.0 * h, omega), "scaled vectors"),
        (lambda h, omega: pmm.fourier_features(h.clip(-99.0, 99.0), omega), "clipped vectors"),
        (lambda h, omega: pmm.fourier_features(h, omega)[:, ::-1], "another order"),
        (lambda h, omega: pmm.fourier_features(h, omega) * np.sqrt(2.0), "another scale"),
    ],
)
def test_what_only_looks_like_fourier_features(scaled, what):
    with pm.Model() as model:
        h = pm.Normal("h", 0.0, 1.0, shape=(N, D))
        omega = pm.Normal("omega", 0.5, 2.0, shape=(M, D))
        beta = pm.Normal("beta", 0.0, 1.0, shape=2 * M + 1)
        pmm.Hinge("label", scaled(h, omega) @ beta, observed=Y)
    part = only(model)
    assert (part.latent, part.frequencies, part.adapts) == (None, None, False)
    assert part.names == ["beta"]
    point = random_point(model)
    expected = evaluate(scaled(pt.constant(point["h"]), pt.constant(point["omega"])))
    np.testing.assert_allclose(part.design(point)[0], expected, atol=1e-10)


@pytest.mark.parametrize(
    ("frequencies", "extra", "message"),
    [
        (lambda: pm.Laplace("omega", 0.0, 1.0, shape=(M, D)), lambda *_: None, "Laplace"),
        (
            None,
            lambda h, omega: pm.Potential("other", omega.sum()),
            "'other' depends on the frequencies",
        ),
    ],
)
def test_frequencies_that_are_left_to_pymc(frequencies, extra, message):
    structure = read(fourier(frequencies=frequencies, extra=extra))
    assert message in structure.refusals["omega"]
    assert structure.parts[0].names == ["beta"]
    assert structure.parts[0].frequencies == "omega"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: declare(lambda w: pt.exp(X @ w)), "not affine in 'w'"),
        (lambda: declare(lambda w: (X @ w) * w[0]), "not affine in 'w'"),
        (lambda: declare(w=lambda v: pm.Normal("w", 1.0, tau=v, shape=D)), "prior mean than 0"),
        (
            lambda: declare(
                w=lambda v: pm.Normal("w", pt.maximum(pm.Normal("m") - 3.0, 0.0), tau=v, shape=D)
            ),
            "'w' depends on free variables by way of 'maximum', which is not analytic",
        ),
        (
            lambda: declare(w=lambda v: pm.Normal("w", 0.0, np.arange(1.0, 3.0), shape=D)),
            "more than one prior precision",
        ),
        (
            lambda: declare(
                w=lambda v: pm.Normal(
                    "w", 0.0, tau=pt.minimum(pm.HalfNormal("k", 50.0), [30.0, 1e9]), shape=D
                )
            ),
            "more than one prior precision",
        ),
        (lambda: declare(w=lambda v: pm.Laplace("w", 0.0, v, shape=D)), "no free pm.Normal"),
        (lambda: declare(extra=lambda v, w: pm.Potential("p", w.sum())), "'p' depends on 'w'"),
    ],
)
def test_refusals_name_what_is_wrong(model, message):
    structure = read(model())
    assert structure.parts == ()
    assert message in structure.refusals["label"]
    with pytest.raises(UnservedModelError, match="label"):
        pmm.steps(model())


@pytest.mark.parametrize(
    "extra",
    [
        lambda v, w: pm.Normal("other", 0.0, tau=v),
        lambda v, w: pm.Potential("other", -v),
    ],
)
def test_a_precision_that_something_else_depends_on_is_not_ours(extra):
    part = only(declare(extra=extra))
    assert part.precision is None
    assert part.prior_precision({"v_log__": np.array(0.7)}) == pytest.approx(np.exp(0.7))


def test_a_deviation_is_not_a_precision():
    part = only(declare(w=lambda v: pm.Normal("w", 0.0, v, shape=D)))
    assert part.precision is None
    assert part.prior_precision({"v_log__": np.array(0.7)}) == pytest.approx(np.exp(-1.4))


@pytest.mark.parametrize("transform", [None, pm.distributions.transforms.log])
@pytest.mark.parametrize(
    "cut",
    [
        lambda v: pt.clip(v, 1e-2, 1e2),
        lambda v: pt.maximum(v, 1e-3),
        lambda v: pt.minimum(v, 1e3),
        lambda v: v + 1e-9,
    ],
)
def test_a_precision_that_is_cut_off_is_not_ours(cut, transform):
    with pm.Model() as model:
        v = pm.Gamma("v", 2.0, 3.0, default_transform=transform)
        pmm.Hinge("label", X @ pm.Normal("w", 0.0, tau=cut(v), shape=D), observed=Y)
    part = only(model)
    assert part.precision is None
    point = {name: np.abs(value) for name, value in random_point(model).items()}
    v = point["v"] if transform is None else np.exp(point["v_log__"])
    assert part.prior_precision(point) == pytest.approx(evaluate(cut(pt.constant(v))))


def test_copies_are_read():
    assert only(declare().copy()).names == ["w", "v"]


def mixture():
    with pm.Model() as model:
        component = pm.Categorical("component", p=np.full(D, 1.0 / D), shape=M)
        precision = pm.Wishart("precision", nu=D + 2, V=np.eye(D), shape=(D, D, D))
        covariance = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", np.zeros(D), chol=pt.linalg.cholesky(covariance), shape=(D, D))
        omega = pm.MvNormal(
            "omega",
            mean[component],
            chol=pt.linalg.cholesky(covariance)[component],
            shape=(M, D),
        )
        beta = pm.Normal("beta", 0.0, 1.0, shape=2 * M + 1)
        pmm.Hinge("label", pmm.fourier_features(X, omega) @ beta, observed=Y)
    return model


def test_a_mixture_of_frequencies():
    model = mixture()
    part = read(model).parts[0]
    assert part.adapts
    point = random_point(model)
    point["component"] = np.array([1, 0, 1])
    means, factors = part.frequency_prior(point)
    np.testing.assert_allclose(means, point["mean"][[1, 0, 1]])
    np.testing.assert_array_equal(factors[0], factors[2])
    assert not np.allclose(factors[0], factors[1])


def test_a_density_that_is_not_that_of_the_parameters(monkeypatch):
    """As PyMC gives some batches of covariances."""
    densities = hinges.log_densities

    def mistaken(model, variables):
        declared = densities(model, variables)
        return lambda point: {rv: found + 0.1 for rv, found in declared(point).items()}

    monkeypatch.setattr(hinges, "log_densities", mistaken)
    structure = read(mixture())
    assert "declare chol=, not cov=" in structure.refusals["omega"]
    assert not structure.parts[0].adapts


def clipped(w):
    return pt.clip(X @ w, -50.0, 50.0)


def switched(w):
    return pt.switch(pm.Bernoulli("z", 0.3), X @ w, (X @ w) ** 2)


def switched_the_other_way(w):
    return pt.switch(pm.Bernoulli("z", 0.7), (X @ w) ** 2, X @ w)


def rarely_switched(w):
    return pt.switch(pm.Bernoulli("z", 0.001), (X @ w) ** 2, X @ w)


def of_a_rare_kind(w):
    kind = pm.Categorical("z", np.array([0.5, 0.499, 0.001]), shape=N)
    return pt.switch(pt.eq(kind, 2) & pt.eq(np.arange(N), 3), (X @ w) ** 2, X @ w)


def counted(w):
    return pt.switch(pm.Poisson("z", 2.0) > 2, (X @ w) ** 2, X @ w)


def in_small_units(w):
    return pt.tanh(1e-8 * (X @ w))


@pytest.mark.parametrize(
    "score",
    [
        clipped,
        switched,
        switched_the_other_way,
        rarely_switched,
        of_a_rare_kind,
        counted,
        in_small_units,
    ],
)
def test_scores_that_are_affine_in_places_only(score):
    assert "not affine in 'w'" in read(declare(score)).refusals["label"]


@pytest.mark.parametrize(
    "score",
    [
        lambda w, b: pt.switch(b > 9.0, (X @ w) ** 2, X @ w),
        lambda w, b: X @ w + pt.maximum(b - 9.0, 0.0) * w[0] ** 2,
    ],
)
def test_a_score_that_is_not_affine_at_a_draw_stops_the_chain(score):
    part = only(model := declare(lambda w: score(w, pm.Normal("b"))))
    point = random_point(model)
    part.design(point)
    with pytest.raises(UnservedModelError, match=r"'label': expected .* affine in 'w', .* pm.NUTS"):
        part.design(point | {"b": np.array(10.0)})


def test_an_offset_may_be_large():
    part = only(model := declare(lambda w: X @ w + 1e9))
    design, offset = part.design(random_point(model))
    np.testing.assert_allclose(design, X, atol=1e-6)
    np.testing.assert_array_equal(offset, np.full((N, 1), 1e9))


def test_a_positive_variable_in_the_score():
    model = declare(lambda w: (X @ w) * pt.sqrt(pm.HalfNormal("b")))
    point = random_point(model) | {"b_log__": np.array(0.6)}
    np.testing.assert_allclose(only(model).design(point)[0], X * np.exp(0.3))


def test_labels_in_a_data_container():
    with pm.Model() as model:
        labels = pm.Data("labels", np.nan_to_num(Y).astype(int))
        pmm.Hinge("label", X @ pm.Normal("w", shape=D), observed=labels)
    np.testing.assert_array_equal(only(model).labels[:, 0], np.nan_to_num(Y))
    with model:
        pm.set_data({"labels": np.ones(N, int)})
    np.testing.assert_array_equal(only(model).labels, np.ones((N, 1)))


def test_a_score_for_all_labels():
    with pm.Model() as model:
        w = pm.Normal("w", shape=pt.as_tensor(np.array([1])))
        pmm.Hinge("label", pt.specify_broadcastable(w)[pt.arange(w.shape[0])], observed=Y)
    assert "7 labels and 1 scores" in read(model).refusals["label"]


def test_frequencies_that_c_depends_on():
    with pm.Model() as model:
        omega = pm.Normal("omega", shape=(M, D))
        beta = pm.Normal("beta", shape=2 * M + 1)
        score = pmm.fourier_features(X, omega) @ beta
        pmm.Hinge("label", score, pt.exp(omega[0, 0]), observed=Y)
    structure = read(model)
    assert structure.refusals == {"omega": "C depends on the frequencies 'omega'"}
    assert structure.parts[0].names == ["beta"]


def test_what_waves_in_another_order_change_is_not_judged_by_itself():
    assert only(fourier(X)).relabelled == ["beta", "omega"]
    assert only(declare()).relabelled == []
