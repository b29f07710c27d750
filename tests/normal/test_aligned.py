"""Domains that are seen through maps, coarsened, with a free scale matrix: read, and sampled."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pm_match as pmm
from pm_match import testing
from pm_match.normal.conjugate import log_marginal
from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.normal.parts import Normals
from pm_match.reading import read
from pm_match.reading.coarsen import read_power
from pm_match.reading.probe import natural_function
from tests.declared.normals import aligned_model
from tests.exactness.chains import check_chain, run


def normals_of(model):
    (found,) = read(model).of(Normals)
    return found


def test_what_is_read():
    model = aligned_model()
    normals = normals_of(model)
    assert normals.power == 0.6
    assert normals.scale_matrix.name == "scale_matrix"
    assert normals.scale_matrix.factor == pytest.approx(2.0)
    maps = [values.alignment for values in normals.values]
    assert maps[0] is None
    assert maps[1].names == ["orientation_1", "scale_1", "intercept_1"]
    assert maps[2].names == ["orientation_2", "intercept_2"]
    assert {v.name for step in pmm.steps(model) for v in step.vars} == {
        v.name for v in model.value_vars
    }


def test_log_marginal_of_coarsened_vectors_by_quadrature():
    prior = NormalWishartPrior(np.array([0.3]), 0.7, 2.5, np.array([[1.2]]))
    x, labels, power = np.array([0.1, -0.9, 1.4, 2.0]), np.array([0, 2, 0, 2]), 0.4
    logs, middles = np.linspace(-8.0, 5.0, 601), np.linspace(-40.0, 40.0, 8001)
    expected = 0.0
    for j in (0, 2):
        total = np.zeros(len(logs))
        for n, tau in enumerate(np.exp(logs)):
            log_density = stats.norm.logpdf(middles, 0.3, (0.7 * tau) ** -0.5)
            for value in x[labels == j]:
                log_density = log_density + power * stats.norm.logpdf(value, middles, tau**-0.5)
            inside = np.trapezoid(np.exp(log_density), middles)
            total[n] = inside * stats.gamma.pdf(tau, 1.25, scale=2.0 / 1.2) * tau
        expected += np.log(np.trapezoid(total, logs))
    found = log_marginal(x[:, None], labels, prior, False, power)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("tails", [False, True])
def test_scores_and_running_state(tails):
    model = aligned_model(tails=tails)
    testing.check_scores(model, n_points=3)
    testing.check_running_state(model, n_moves=300)


@pytest.mark.slow
@pytest.mark.parametrize("tails", [False, True])
def test_draws_of_means_and_precisions(tails):
    testing.check_draws(aligned_model(tails=tails))


@pytest.mark.slow
def test_law_of_assignments():
    testing.check_law(aligned_model(sizes=(3, 2, 1)), n_sweeps=200_000)


@pytest.mark.slow
@pytest.mark.parametrize("tails", [False, True])
def test_whole_chain(tails):
    model = aligned_model(sizes=(2, 2), truncation=2, tails=tails)
    check_chain(model, run(pmm.steps(model), model.initial_point(0), 1000, n_tune=200))


def test_draws_of_the_scale_matrix():
    # Alone: all else stays as it is but what is empty, so that draws are independent.
    model = aligned_model(sizes=(4, 3))
    (step,) = (s for s in pmm.steps(model) if isinstance(s, pmm.ScaleMatrixGibbs))
    step.setup_chain(np.random.default_rng(0), 0, 1)
    rng = np.random.default_rng(1)
    point = {
        name: np.asarray(rng.normal(0, 0.4, np.shape(value)), np.asarray(value).dtype)
        if np.asarray(value).dtype.kind == "f"
        else np.asarray(value)
        for name, value in model.initial_point(0).items()
    }
    point["cluster_a"], point["cluster_b"] = np.array([0, 0, 2, 2]), np.array([0, 2, 0])
    read_it = natural_function(model, ["scale_matrix", "precision", "mean"])
    _, precision, mean = read_it(point)
    found = []
    for _ in range(4000):
        scale, others, centres = read_it(step.step(point)[0])
        np.testing.assert_allclose(others[[0, 2]], precision[[0, 2]], rtol=1e-9)
        np.testing.assert_allclose(centres[[0, 2]], mean[[0, 2]])
        found.append((scale, np.trace(scale @ others[1])))
    # Wishart(7, 0.3 I) times two of Wishart(9, (2 S)^-1), as functions of S.
    inverse = np.eye(2) / 0.3 + 2.0 * precision[[0, 2]].sum(axis=0)
    known = stats.wishart(7 + 2 * 9, np.linalg.inv(inverse))
    scales = np.array([scale for scale, _ in found])
    error = np.sqrt(known.var() / len(found))
    assert (np.abs(scales.mean(axis=0) - known.mean()) < 4.5 * error).all()
    # Of an empty cluster, tr(S Lambda) has the mean 9 / 2 times two dimensions.
    traces = np.array([trace for _, trace in found])
    assert traces.mean() == pytest.approx(9.0, abs=5.0 * traces.std() / np.sqrt(len(traces)))


@pytest.mark.parametrize("tails", [False, True])
def test_draws_of_maps_leave_the_declared_density_alone(tails):
    """Stein's identity, by the gradient of the declared density, for all that the step draws.

    E[f dlogp/dx + df/dx] = 0 with f = 1 and f = x. Across singular matrices the density of an
    orientation jumps: there f has the determinant as a factor.
    """
    model = aligned_model(tails=tails)
    (step,) = (s for s in pmm.steps(model) if isinstance(s, pmm.AlignmentGibbs))
    step.setup_chain(np.random.default_rng(0), 0, 1)
    point = model.initial_point(0)
    point["cluster_a"], point["cluster_b"] = np.array([0, 0, 2, 2]), np.array([0, 2, 0])
    point["cluster_c"] = np.array([0, 0, 2])
    if tails:
        factors = np.random.default_rng(3).normal(0.0, 1.2, (3, 4))
        point |= {f"factor_{e}_log__": factors[e, :n] for e, n in enumerate((4, 3, 3))}
    names = {v.name for v in step.vars}
    drawn = [
        rv
        for rv, value in model.rvs_to_values.items()
        if value.name in names or rv.name in ("mean", "precision")
    ]
    values = [model.rvs_to_values[rv] for rv in drawn]
    gradient = model.compile_fn(
        model.dlogp(drawn), inputs=model.value_vars, on_unused_input="ignore"
    )
    rows = []
    for _ in range(600):
        for _ in range(5):  # what follows one another is alike, and gradients take longer
            point, _ = step.step(point)
        row, slopes = [], gradient(point)
        for value in values:
            x = np.ravel(point[value.name])
            slope, slopes = slopes[: x.size], slopes[x.size :]
            f, df = 1.0, np.zeros_like(x)
            if value.name.startswith("orientation"):
                f = np.linalg.det(point[value.name])
                df = (f * np.linalg.inv(point[value.name]).T).ravel()
            row += [f * slope + df, f * x * slope + f + x * df]
        rows.append(np.concatenate(row))
    batches = np.mean(np.split(np.array(rows), 30), axis=1)
    z = batches.mean(axis=0) / (batches.std(axis=0, ddof=1) / np.sqrt(len(batches)))
    # Fifty-six quantities, by Student's t with 29 degrees of freedom: once in a hundred such tests.
    assert np.abs(z).max() < 4.2, z


def declared(edit):
    """The tiny model with something that is another model's."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 2)
        precision = pm.Wishart("precision", nu=7, V=np.eye(2), shape=(3, 2, 2))
        within = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", np.zeros(2), cov=within / 0.5, shape=(3, 2))
        a = pm.Categorical("cluster_a", p=weights, shape=4)
        b = pm.Categorical("cluster_b", p=weights, shape=3)
        pm.MvNormal("x", mean[a], cov=within[a], observed=x)
        raw = pm.Normal("orientation", 0.0, 1.0, shape=(2, 2), initval=np.eye(2))
        q = pmm.semi_orthogonal(raw)
        centre, spread = mean[b] @ q.T, q @ within[b] @ q.T
        if edit == "another turn of the covariance":
            spread = q.T @ within[b] @ q
        if edit == "not turned at random":
            centre, spread = mean[b] @ raw.T, raw @ within[b] @ raw.T
        if edit == "a scale of the mean alone":
            centre = pm.LogNormal("scale", 0.0, 0.3) * centre
        pm.MvNormal("y", centre, cov=spread, observed=y)
        if edit == "one domain coarsened":
            pmm.coarsen("coarsened", "y", 0.5)
        if edit == "two powers":
            pmm.coarsen("coarsened", "y", 0.5)
            pmm.coarsen("coarsened_x", "x", 0.6)
        if edit == "something else to a power":
            pm.Potential("extra", -0.5 * pm.logp(model["y"], y) + 0.1 * mean[b, 0])
    return model


def test_a_turned_domain_is_served():
    model = declared("")
    assert [v.alignment is not None for v in normals_of(model).values] == [False, True]


@pytest.mark.parametrize(
    "edit",
    [
        "another turn of the covariance",
        "not turned at random",
        "a scale of the mean alone",
        "one domain coarsened",
        "two powers",
        "something else to a power",
    ],
)
def test_what_is_another_model_is_not_taken_for_it(edit):
    # A table of log densities serves it instead, or it is refused.
    structure = read(declared(edit))
    assert not structure.of(Normals)
    assert structure.notes or structure.refusals


def test_powers_are_read_from_the_graph():
    model = aligned_model()
    for own in (model, model.copy()):
        assert read_power(own, own["coarsened_1"], own["x_1"]) == pytest.approx(0.6)
        assert read_power(own, own["coarsened_1"], own["x_2"]) is None


def test_bad_powers():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, observed=[1.0])
        y = pm.Normal("y")
        with pytest.raises(ValueError, match=r"power: expected a number in \(0, 1\]; found 1.5"):
            pmm.coarsen("k", "x", 1.5)
        with pytest.raises(TypeError, match="expected an observed variable"):
            pmm.coarsen("k", y, 0.5)
        # Names that PyMC gives where values are missing, but here none are.
        pm.Normal("y_observed", y, 1.0, observed=[2.0])
        with pytest.raises(TypeError, match="expected an observed variable"):
            pmm.coarsen("k", "y", 0.5)
        pm.Normal("x_observed", 0.0, 1.0, observed=[3.0])
        assert not model.potentials
        pmm.coarsen("k", "x", 0.5)
    assert read_power(model, model["k"], model["x"]) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["orientation_1", "scale_1", "intercept_1", "scale_matrix"])
def test_points_that_are_written_into_are_read_anew(name):
    """PyMC's processes have every draw in the same arrays."""
    model = aligned_model()
    normals, key = normals_of(model), model.rvs_to_values[model[name]].name
    point = {k: np.array(v) for k, v in model.initial_point(0).items()}

    def found(normals):
        return np.append(normals.vectors(point), normals.prior(point).inverse_scale)

    before = found(normals)
    point[key][...] += 0.3
    after = found(normals)
    assert (before != after).any()
    np.testing.assert_array_equal(after, found(normals_of(aligned_model())))
