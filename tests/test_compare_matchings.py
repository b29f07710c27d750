"""Models of the same data, by how well they predict objects left out."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import scipy

import pm_match as pmm
from pm_match.compare_matchings import log_unit


def two_clusters(n=30):
    rng = np.random.default_rng(0)
    label = np.arange(n) % 2
    return {
        name: 6.0 * label[:, None] * np.array([1.0, -1.0]) + rng.normal(size=(n, 2))
        for name in "ab"
    }


def test_densities_are_of_one_unit():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(9, 3))
    a, b = rng.normal(size=(3, 3)), rng.normal(size=3)
    normal, moved = scipy.stats.multivariate_normal, x @ a + b
    there = normal.logpdf(moved, b, a.T @ a).sum()
    assert there + log_unit(x, moved) == pytest.approx(normal.logpdf(x, np.zeros(3)).sum())
    assert log_unit(x, x.copy()) == 0.0
    moved[0, 0] += 0.01
    assert log_unit(x, moved) is None
    assert log_unit(x, x[:, :2]) is None
    assert log_unit(x, x[:, [0, 0, 1]]) is None  # what is lost cannot be told


def test_units_of_columns_that_depend_on_each_other_are_those_of_each():
    """A map of all is not told by them; of too few rows, any table was one of any other."""
    rng = np.random.default_rng(1)
    few = rng.normal(size=(5, 8))
    twice = np.column_stack([few.T, few.T[:, 0] + few.T[:, 1]])
    for x in (few, twice):
        units = 10.0 ** rng.uniform(-9.0, 9.0, x.shape[1])
        assert log_unit(x, x * units + 1.0) == pytest.approx(len(x) * np.log(units).sum())
        assert log_unit(x, rng.normal(size=x.shape) * units) is None
        other = x * units
        other[:, 0] = rng.normal(size=len(x)) * units[0]
        assert log_unit(x, other) is None


def test_rows_that_any_map_fits_tell_none():
    """Any two rows are those of a column in other units, and M + 1 an affine map of any others."""
    rng = np.random.default_rng(2)
    for rows, columns, told in ((2, 1, False), (2, 3, False), (3, 1, True), (4, 3, True)):
        x = rng.normal(size=(rows, columns))
        assert (log_unit(x, 2.0 * x + 1.0) is not None) == told
        assert log_unit(x, x) == 0.0
        assert log_unit(x, rng.normal(size=x.shape)) is None
    for rows, told in ((4, False), (5, True)):
        x, a = rng.normal(size=(rows, 3)), rng.normal(size=(3, 3))
        assert (log_unit(x, x @ a) is not None) == told


def test_probabilities_of_counts_have_no_unit():
    x = np.array([[1, 0], [2, 5], [0, 3]])
    assert log_unit(x, x.copy()) == 0.0
    assert log_unit(x, 2 * x) is None


@pytest.mark.slow
def test_the_model_of_the_clusters_predicts_better():
    tables = two_clusters()
    models = {
        # Noise of one width in all directions and at most two clusters, or hardly any noise.
        name: pmm.models.projected_clusters(
            tables, n_factors=1, n_clusters=2, precision_prior=prior, projection="normal"
        )
        for name, prior in {"tight": (1e4, 1.0), "free": (1.0, 1.0)}.items()
    }
    idata = {
        name: pmm.sample(
            60, tune=30, chains=2, cores=1, random_seed=1, quiet=True,
            progressbar=False, compute_convergence_checks=False, model=model,
        )
        for name, model in models.items()
    }  # fmt: skip
    found = pmm.compare_matchings(models, idata, progressbar=False)
    assert list(found.index) == ["free", "tight"]
    assert found.loc["free", "difference"] == 0.0 == found.loc["free", "difference_se"]
    worse = found.loc["tight"]
    assert worse["difference"] == pytest.approx(worse["elpd"] - found.loc["free", "elpd"])
    assert worse["difference"] < -4.0 * worse["difference_se"] < 0.0
    assert found["clusters"].between(1, 2).all()
    # Leaving an object out costs: the log predictive of all draws is above.
    own = pmm.log_predictive(pmm.best_chain(idata["free"]), models["free"], progressbar=False)
    seen = own["log_likelihood"]["objects"]
    together = scipy.special.logsumexp(seen, axis=(0, 1)) - np.log(seen[..., 0].size)
    assert together.sum() - 20.0 < found.loc["free", "elpd"] < together.sum()


def test_different_data_are_refused():
    tables = two_clusters()
    one = pmm.models.table_clusters(tables, 2)
    other = pmm.models.table_clusters({k: v**2 for k, v in tables.items()}, 2)
    with pytest.raises(
        ValueError, match="expected the data of 'a' in 'other' to be those in 'one'"
    ):
        pmm.compare_matchings({"one": one, "other": other})
    few = {f"{k}": pmm.models.table_clusters({"a": np.eye(2)[::k]}, 2) for k in (1, -1)}
    with pytest.raises(ValueError, match="found others, or too few rows to tell"):
        pmm.compare_matchings(few)
    alone = pmm.models.table_clusters({"a": tables["a"], "c": tables["b"]}, 2)
    with pytest.raises(
        ValueError, match=r"expected the same observed variables in .*; found 'b' in one"
    ):
        pmm.compare_matchings({"one": one, "alone": alone})
    with pytest.raises(ValueError, match="expected at least two to compare; found 1"):
        pmm.compare_matchings({"one": one})
    with pytest.raises(TypeError, match=r"models: expected a mapping from .*; found "):
        pmm.compare_matchings([one, other])
    with pytest.raises(TypeError, match=r"model: expected a pm.Model; found an object of "):
        pmm.compare_matchings({"one": one, "other": pmm.prepare(tables)})


def test_data_may_be_in_shared_variables():
    def declared(n_clusters, x):
        with pm.Model() as model:
            weights = pm.Dirichlet("weights", np.ones(n_clusters))
            cluster = pm.Categorical("cluster_a", weights, shape=len(x))
            rate = pm.Gamma("rate", 2.0, 0.5, shape=n_clusters)
            pm.Poisson("x", rate[cluster], observed=pm.Data("counts", x))
        return model

    def compared(*other):
        models = {"one": declared(2, np.arange(6)), "two": declared(3, np.array(other))}
        return pmm.compare_matchings(
            models, draws=25, tune=10, chains=1, random_seed=1, progressbar=False
        )

    assert set(compared(0, 1, 2, 3, 4, 5).index) == {"one", "two"}
    with pytest.raises(ValueError, match="expected the data of 'x' in 'two' to be those in 'one'"):
        compared(0, 1, 2, 3, 4, 6)


def test_few_draws_are_refused():
    model = pmm.models.table_clusters(two_clusters(), 2)
    with pytest.raises(ValueError, match=r"at least 25 draws of the best chain, .*; found 24"):
        pmm.compare_matchings({"one": model, "two": model}, draws=24, tune=5, progressbar=False)


def test_known_parameters_leave_nothing_to_weigh():
    x, rates = np.arange(6), np.array([2.0, 5.0])
    with pm.Model() as model:
        cluster = pm.Categorical("cluster_a", [0.25, 0.75], shape=6)
        pm.Poisson("x", pt.as_tensor(rates)[cluster], observed=x)
    found = pmm.compare_matchings(
        {"one": model, "two": model}, draws=25, tune=5, chains=1, progressbar=False
    )
    exact = np.log(scipy.stats.poisson.pmf(x[:, None], rates) @ [0.25, 0.75]).sum()
    assert found["elpd"].to_list() == pytest.approx([exact, exact])
    assert (found["unsure"] == 0.0).all()


def test_of_coarsened_data_each_object_is_left_out_as_it_has_entered():
    """A mixture of two Poisson clusters, all labels enumerated."""
    x, n, power, a, b, t = np.array([0, 1, 2, 6, 7, 9, 12]), 7, 0.4, 1.5, 0.3, 2
    with pm.Model(coords={"object": range(n)}) as model:
        weights = pm.Dirichlet("weights", np.full(t, 1.3))
        cluster = pm.Categorical("cluster_a", weights, dims="object")
        rate = pm.Gamma("rate", a, b, shape=t)
        pm.Poisson("x", rate[cluster], observed=x, dims="object")
        pmm.coarsen("coarse", "x", power)

    def log_joint(labels, of):
        """Log density of labels and of the data `of` some objects, to the power."""
        held = np.bincount(labels, minlength=t)
        total = scipy.special.gammaln(1.3 + held).sum() - scipy.special.gammaln(1.3 * t + len(of))
        seen = np.bincount(labels, of, minlength=t)
        shape, own = a + power * seen, b + power * held
        total += (scipy.special.gammaln(shape) - shape * np.log(own)).sum()
        return total - power * scipy.special.gammaln(of + 1.0).sum()

    expected = 0.0
    for left in range(n):
        others = np.delete(x, left)
        states = [np.array(own) for own in np.ndindex(*[t] * (n - 1))]
        logs = np.array([log_joint(own, others) for own in states])
        predicted = []
        for own in states:
            held = np.bincount(own, minlength=t)
            shape = a + power * np.bincount(own, others, minlength=t)
            scale = b + power * held
            one = scipy.stats.nbinom.pmf(x[left], shape, scale / (scale + 1.0))
            predicted.append((1.3 + held) @ one / (1.3 * t + n - 1))
        posterior = scipy.special.softmax(logs)
        expected += np.log(posterior @ predicted)

    options = {"tune": 100, "chains": 1, "cores": 1, "init": "dispersed", "quiet": True}
    options |= {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    idata = pmm.sample(6000, model=model, **options)
    compared = pmm.compare_matchings(
        {"one": model, "other": model}, dict.fromkeys(("one", "other"), idata), num_draws=6000,
        progressbar=False,
    )  # fmt: skip
    np.testing.assert_allclose(compared["elpd"], expected, atol=0.1)
