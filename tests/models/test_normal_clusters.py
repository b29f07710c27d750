import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.stats import multivariate_normal, wishart

import pm_match as pmm
from pm_match.reading.probe import natural_function


def domains(seed=0):
    """Clusters of three sizes, at different places and of different spread in each domain."""
    rng = np.random.default_rng(seed)
    sizes, found = (60, 30, 15), {}
    for name, d, spread in (("left", 2, (0.2, 2.0, 0.5)), ("right", 3, (1.5, 0.3, 0.6))):
        centres = 6.0 * np.linalg.qr(rng.normal(size=(3, 3)))[0][:, :d]
        parts = zip(sizes, centres, spread, strict=True)
        x = np.concatenate([c + s * rng.normal(size=(n, d)) for n, c, s in parts])
        found[name] = x * 10.0 ** np.arange(d)
    return found, np.repeat(np.arange(3), sizes)


def test_clusters_of_different_spread_are_found_and_matched_by_their_sizes():
    tables, true = domains()
    best = pmm.find_matching(pmm.models.normal_clusters(tables), starts=2, random_seed=0)
    labels = pmm.partition_estimate(best)
    for name in tables:
        found = labels[f"cluster_{name}"].to_numpy()
        assert pmm.metrics.adjusted_rand_index({name: true}, {name: found}) > 0.95
    agree = labels["cluster_left"].to_numpy() == labels["cluster_right"].to_numpy()
    assert agree.mean() > 0.95


def test_the_declared_density_is_that_of_the_formula():
    """Of a domain, given labels, means and precisions; by SciPy."""
    tables, _ = domains()
    model = pmm.models.normal_clusters({"left": tables["left"]}, 3, mean_strength=0.5)
    rng = np.random.default_rng(1)
    x = tables["left"]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    label = rng.integers(3, size=len(x))
    precision = wishart.rvs(df=6, scale=np.eye(2), size=3, random_state=2)
    mean = rng.normal(size=(3, 2))
    of_means = sum(
        wishart.logpdf(p, df=4, scale=np.eye(2))
        + multivariate_normal.logpdf(m, np.zeros(2), np.linalg.inv(0.5 * p))
        for m, p in zip(mean, precision, strict=True)
    )
    of_data = sum(
        multivariate_normal.logpdf(row, mean[j], np.linalg.inv(precision[j]))
        for row, j in zip(x, label, strict=True)
    )
    point = model.initial_point() | {"mean_left": mean, "cluster_left": label}
    rv = model["precision_left"]
    point[model.rvs_to_values[rv].name] = model.rvs_to_transforms[rv].forward(precision).eval()
    variables = [model[name] for name in ("mean_left", "precision_left", "left")]
    found = model.compile_logp(vars=variables, jacobian=False)(point)
    assert found == pytest.approx(of_means + of_data, rel=1e-9)


def test_everything_is_served_and_named():
    tables, _ = domains()
    known = np.full(105, -1)
    known[:2] = 0
    model = pmm.models.normal_clusters(
        tables, 4, links={"left": [0], "right": [1]}, known={"left": known}
    )
    assert {rv.name for rv in model.free_RVs} == {
        "weights", "cluster_left_unobserved", "cluster_right",
        "mean_left", "precision_left", "mean_right", "precision_right",
        "precision_factor_left", "precision_factor_right",
    }  # fmt: skip
    served = {v.name for step in pmm.steps(model) for v in step.vars}
    assert served == {v.name for v in model.value_vars}


def test_components_of_columns_of_one_kind():
    tables, _ = domains()
    model = pmm.models.normal_clusters(tables, n_components=2)
    assert model["mean_right"].eval().shape == (12, 2)
    # Their proportions are kept.
    spread = model.rvs_to_values[model["right"]].data.std(axis=0)
    assert spread[0] > 2.0 * spread[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concentration": 0.0}, "concentration"),
        ({"n_clusters": 1}, "n_clusters"),
        ({"mean_strength": -1.0}, "mean_strength"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        pmm.models.normal_clusters(domains()[0], **options)


def test_missing_values_are_variables():
    """Prior and scale are those of the observed values; density is of all, declared as one."""
    tables, _ = domains()
    x = tables["right"].copy()
    x[7, 1] = x[9, 0] = x[9, 2] = np.nan
    model = pmm.models.normal_clusters({"left": tables["left"], "right": x}, 3, mean_strength=0.5)
    assert "right_unobserved" in {rv.name for rv in model.free_RVs}
    served = {v.name for step in pmm.steps(model) for v in step.vars}
    assert served == {v.name for v in model.value_vars}
    scaled = (x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0)
    rng = np.random.default_rng(3)
    drawn, label = rng.normal(size=3), rng.integers(3, size=len(x))
    point = model.initial_point() | {"right_unobserved": drawn, "cluster_right": label}
    scaled[7, 1], scaled[9, 0], scaled[9, 2] = drawn
    precision = np.asarray(natural_function(model, ["precision_right"])(point)[0])
    expected = sum(
        multivariate_normal.logpdf(row, point["mean_right"][j], np.linalg.inv(precision[j]))
        for row, j in zip(scaled, label, strict=True)
    )
    found = model.compile_logp(vars=[model["right_observed"]], jacobian=False)(point)
    assert found == pytest.approx(expected, rel=1e-9)


def test_missing_values_are_filled_in_before_components():
    tables, _ = domains()
    tables["right"][7, 1] = np.nan
    model = pmm.models.normal_clusters(tables, n_components=2)
    assert not [rv.name for rv in model.free_RVs if rv.name.endswith("_unobserved")]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ((7, slice(None)), "domain 'right': row 7: expected an observed value; found none"),
        ((slice(None), 1), "domain 'right': column 1: expected an observed value; found none"),
    ],
)
def test_rows_and_columns_without_a_value_are_refused(place, message):
    tables, _ = domains()
    tables["right"][place] = np.nan
    with pytest.raises(ValueError, match=message):
        pmm.models.normal_clusters(tables)


def test_a_summary_of_draws_with_missing_values():
    tables, true = domains()
    tables["left"][::7, 0] = tables["right"][1::6, 1] = np.nan
    model = pmm.models.normal_clusters(
        {name: pd.DataFrame(own) for name, own in tables.items()}, n_clusters=6
    )
    idata = pmm.sample(
        40, tune=20, chains=2, cores=1, model=model, random_seed=1, progressbar=False, quiet=True
    )
    labels = pmm.partition_estimate(idata)
    for name in tables:
        found = labels[f"cluster_{name}"].to_numpy()
        assert pmm.metrics.adjusted_rand_index({name: true}, {name: found}) > 0.9
    summary = pmm.match_summary(idata)
    assert len(summary.objects) == 210
    assert idata["posterior"]["left_unobserved"].shape[-1] == np.isnan(tables["left"]).sum()


def test_reserved_names():
    tables, _ = domains()
    with pytest.raises(
        ValueError, match=r"domain 'weights': .* found 'weights', which it uses itself"
    ):
        pmm.models.normal_clusters({"weights": tables["left"]})


def test_plain_pymc_samples_it_as_well():
    """It is an ordinary model: `pm.sample` needs nothing of ours but a recognised assignment."""
    with pmm.models.normal_clusters({name: own[::5] for name, own in domains()[0].items()}, 3):
        idata = pm.sample(5, tune=5, chains=1, random_seed=0, progressbar=False, cores=1)
    assert idata.posterior["cluster_left"].shape == (1, 5, 21)
