"""Declarations with rich emissions, and the model to begin with for tables."""

import numpy as np
import pytest

import pm_match as pmm
from pm_match.features.parts import Features
from pm_match.reading import read
from pm_match.reading.probe import evaluate
from tests.declared.plain import tiny_data


def data(seed=0, n=(12, 10), m=(3, 2)):
    rng = np.random.default_rng(seed)
    return {
        name: 5.0 + rng.normal(size=(n_, m_)) * 2.0 for name, n_, m_ in zip("ab", n, m, strict=True)
    }


CASES = {
    "own noise": ({"projection": "normal", "noise": "own"}, {"scale_a", "noise_a"}),
    "intercept": ({"projection": "normal", "intercept": True}, {"intercept_a", "precision"}),
    "full": ({"projection": "normal", "within": "full"}, {"within_a", "within_b"}),
    "private": ({"projection": "normal", "within": 1}, {"private_a", "noise_b"}),
    "deviations": ({"projection": "normal", "deviations": True}, {"deviation_a", "spread_b"}),
    "isometric": ({"projection": "isometric"}, {"orientation_a", "scale_b"}),
    "relevance": (
        {"projection": "normal", "relevance": True},
        {"relevance_a", "background_b", "relevance_probability"},
    ),
    "determination": (
        {"projection": "normal", "determination": True},
        {"factor_precision", "precision"},
    ),
    "all": (
        {"projection": "isometric", "intercept": True, "within": "full", "deviations": True},
        {"orientation_a", "intercept_b", "within_a", "deviation_b"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_option_is_declared_and_wholly_served(case):
    options, expected = CASES[case]
    model = pmm.models.projected_clusters(data(), n_factors=2, n_clusters=4, **options)
    assert expected <= {rv.name for rv in model.free_RVs}
    check_served(model)


def check_served(model):
    """Steps of ours draw every variable, and leave the density finite."""
    free = {rv.name for rv in model.free_RVs}
    steps = pmm.steps(model)
    served = {model.values_to_rvs[v].name for step in steps for v in step.vars}
    assert served == free
    point = model.initial_point(0)
    for step in steps:
        step.setup_chain(np.random.default_rng(1), 0, 0)
    for _ in range(3):
        for step in steps:
            point, _ = step.step(point)
    logs = model.compile_fn(model.logp(sum=False), mode="FAST_COMPILE", on_unused_input="ignore")
    assert all(np.isfinite(own).all() for own in logs(point))


def test_priors_follow_the_units_of_the_data():
    """The density of a table in other units is the same but for the change of variables."""
    options = {"projection": "isometric", "intercept": True, "within": "full", "deviations": True}
    one = pmm.models.projected_clusters(data(), 2, 4, **options)
    other = pmm.models.projected_clusters(
        {name: 1000.0 * x for name, x in data().items()}, 2, 4, **options
    )
    found = [read(m).of(Features)[0].setting(m.initial_point(0)) for m in (one, other)]
    for mine, scaled in zip(found[0].emissions, found[1].emissions, strict=True):
        np.testing.assert_allclose(1000.0 * mine.projection[:, :2], scaled.projection[:, :2])
        np.testing.assert_allclose(mine.precision, 1e6 * scaled.precision)
        np.testing.assert_allclose(1000.0 * mine.intercept, scaled.intercept)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"projection": "isometric", "noise": "shared"},
            "noise: expected 'own' with projection='isometric'; found 'shared'",
        ),
        (
            {"projection": "normal", "within": "full", "relevance": True},
            "within: expected .isotropic. with relevance=True",
        ),
        (
            {"projection": "isometric", "determination": True},
            "projection: expected .normal. with determination=True",
        ),
        ({"projection": "normal", "within": 0}, "within: expected a whole number of at least 1"),
        ({"projection": "normal", "within": "diag"}, "within: expected 'isotropic' or 'full'"),
        (
            {"projection": "normal", "noise": "own", "precision_prior": (2.0, 1.0)},
            "precision_prior: expected none with noise='own'",
        ),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        pmm.models.projected_clusters(data(), **options)


def test_flags_must_be_flags():
    with pytest.raises(TypeError, match="deviations: expected True or False; found 'yes'"):
        pmm.models.projected_clusters(data(), projection="normal", deviations="yes")


@pytest.mark.parametrize("projection", ["map", "normal", "isometric"])
def test_missing_values_and_any_projection_go_with_all_else(projection):
    options = {"intercept": True, "noise": "own", "deviations": True, "relevance": True}
    model = pmm.models.projected_clusters(
        tiny_data(missing=True), n_factors=2, n_clusters=3, projection=projection, **options
    )
    check_served(model)


def test_table_clusters_takes_missing_values():
    holed = data()
    holed["a"][0, 1] = holed["a"][4, :2] = holed["b"][3, 0] = np.nan
    model = pmm.models.table_clusters(holed, 4)
    assert {"a_unobserved", "b_unobserved"} <= {rv.name for rv in model.free_RVs}
    check_served(model)
    found = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    assert np.isfinite(found["starts"]["log_joint"]).all()


def test_table_clusters_takes_a_power():
    model = pmm.models.table_clusters(data(), 4, power=0.5)
    assert [potential.name for potential in model.potentials] == ["coarsened_a", "coarsened_b"]
    assert [domain.power for domain in read(model).of(Features)[0].domains] == [0.5, 0.5]
    check_served(model)
    assert not pmm.models.table_clusters(data(), 4, power=1.0).potentials


def test_a_power_needs_all_values():
    holed = data()
    holed["b"][3, 0] = np.nan
    message = "power: expected 1 where values are missing; found 0.5, and 1 missing values in"
    with pytest.raises(ValueError, match=f"{message} domain 'b'"):
        pmm.models.table_clusters(holed, 4, power=0.5)
    clash = {"a": data()["a"], "coarsened_a": data()["b"]}
    with pytest.raises(ValueError, match="found a second 'coarsened_a' beside that of domain 'a'"):
        pmm.models.table_clusters(clash, 4, power=0.5)
    with pytest.raises(ValueError, match=r"power: expected a number in \(0, 1\]; found 2"):
        pmm.models.table_clusters(data(), 4, power=2)


def test_table_clusters_standardises_and_declares():
    model = pmm.models.table_clusters({name: 100.0 * x for name, x in data().items()}, 5)
    observed = model["a"].owner.op, np.asarray(model.rvs_to_values[model["a"]].data)
    np.testing.assert_allclose(observed[1].std(axis=0), 1.0)
    assert len(model.coords["factor"]) == 2
    assert len(model.coords["cluster"]) == 5
    assert {"orientation_a", "within_a", "deviation_a", "intercept_a"} <= set(model.named_vars)


def test_semi_orthogonal_is_the_polar_factor():
    rng = np.random.default_rng(3)
    for shape in ((5, 2), (2, 5), (3, 3)):
        raw = rng.normal(size=shape)
        found = evaluate(pmm.semi_orthogonal(raw))
        _, s, v = np.linalg.svd(raw, full_matrices=False)
        np.testing.assert_allclose(found @ (v.T * s) @ v, raw, atol=1e-12)
        short = found.T @ found if shape[0] >= shape[1] else found @ found.T
        np.testing.assert_allclose(short, np.eye(min(shape)), atol=1e-12)
