"""Unknown cells of networks: against means of their blocks by the plain formulas."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import sparse

import pm_match as pmm
from tests.declared.few_draws import few_draws
from tests.declared.networks import ONE_MODE, exposures_of, network_data, network_model

# First parameters of the priors of blocks and of noise (the normal family's shapes aside), and what
# they share.
BLOCK, NOISE, SECOND, MEAN, STRENGTH = 0.8, 0.7, 1.2, 0.2, 0.7


def draws_of(model, rng, n=2000):
    """Repeat random labels and flags as draws."""
    found = {}
    for rv in model.free_RVs:
        if rv.name.startswith(("cluster_", "relevance_")):
            n_objects, width = rv.eval().size, 2 + rv.name.startswith("relevance_")
            labels = np.minimum(rng.integers(width, size=n_objects), 1)
            dims = ("chain", "draw", f"{rv.name}_object")
            found[rv.name] = dims, np.broadcast_to(labels, (1, n, n_objects))
    return xr.Dataset(found)


def means(data, draws, kind, family, exposures):
    """Work out the mean of every cell from the sums of its block's known cells."""
    sums, where = {}, {}
    for name, x in data.items():
        one_mode = kind in ONE_MODE
        ends = [f"{name}_{0 if one_mode else axis}" for axis in range(x.ndim)]
        labels = [draws[f"cluster_{end}"].values[0, 0] for end in ends]
        flags = [draws.get(f"relevance_{end}") for end in ends]
        for cell in np.ndindex(x.shape):
            if one_mode and cell[0] == cell[1]:
                continue
            block = tuple(int(own[i]) for own, i in zip(labels, cell, strict=True))
            if kind == "undirected":
                block = tuple(sorted(block))
            if not all(f is None or f.values[0, 0][i] for f, i in zip(flags, cell, strict=True)):
                block = "noise"
            exposure = np.prod([e[i] for e, i in zip(exposures[name], cell, strict=True)])
            where[name, cell] = block, exposure
            total = sums.setdefault(block, np.zeros(2))
            if np.isfinite(x[cell]) and not (kind == "undirected" and cell[0] > cell[1]):
                total += x[cell], exposure

    def mean(name, cell):
        block, exposure = where[name, cell]
        first, (s, c) = NOISE if block == "noise" else BLOCK, sums[block]
        if family == "bernoulli":
            return (first + s) / (first + SECOND + c)
        if family == "poisson":
            return exposure * (first + s) / (SECOND + c)
        if family == "normal":
            return (STRENGTH * MEAN + s) / (STRENGTH + c)
        # With fewer cells the variance is infinite.
        return exposure * (SECOND + s) / (first + c - 1.0) if first + c > 3.0 else np.nan

    return mean


@pytest.mark.parametrize(
    ("kind", "family", "relevance"),
    [
        *product(
            ["bipartite", "undirected"],
            ["bernoulli", "poisson", "negative-binomial", "normal"],
            [True, False],
        ),
        ("three-way", "bernoulli", False),
        ("directed", "poisson", "rows"),
        ("shared clusters", "normal", True),
    ],
)
def test_means_are_those_of_blocks(kind, family, relevance):
    exposed = family in ("poisson", "negative-binomial")
    data = {name: np.tile(x, [2] * x.ndim) for name, x in network_data(kind, family).items()}
    for x in data.values():
        x[(0, 1, 0)[: x.ndim]] = x[(3, 0, 0)[: x.ndim]] = np.nan
        if kind == "undirected":
            x[1, 0] = x[0, 3] = np.nan
    model = network_model(kind, family=family, relevance=relevance, exposure=exposed, data=data)
    draws = draws_of(model, np.random.default_rng(5))
    found = pmm.impute(draws, model, random_seed=6, progressbar=False)
    exposures = {
        name: exposures_of(x.shape, kind) if exposed else [np.ones(n) for n in x.shape]
        for name, x in data.items()
    }
    mean = means(data, draws, kind, family, exposures)
    compared = 0
    for name in found.data_vars:
        if name not in data:
            continue
        x, shown = data[name], found[name].values
        known = np.isfinite(x)
        np.testing.assert_array_equal(shown[known], x[known])
        assert np.isfinite(shown).all()
        if kind == "undirected":
            np.testing.assert_array_equal(shown, shown.T)
        for cell in map(tuple, np.argwhere(~known)):
            expected = mean(name, cell)
            if np.isfinite(expected):
                compared += 1
                assert shown[cell] == pytest.approx(expected, rel=0.07, abs=0.05)
    assert compared > 0


def test_axes_have_the_objects_names():
    x = np.random.default_rng(0).integers(2, size=(6, 6)).astype(float)
    x[1, 2] = np.nan
    np.fill_diagonal(x, 0.0)
    coords = {"person": list("abcdef")}
    with pm.Model(coords=coords) as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        cluster = pm.Categorical("cluster", weights, dims="person")
        density = pm.Beta("density", 1.0, 1.0, shape=(2, 2))
        pmm.BlockNetwork("knows", axes=[cluster, cluster], density=density, observed=x)
    found = pmm.impute(few_draws(model), model, ci_prob=0.5, random_seed=0, progressbar=False)
    assert found["knows"].dims == ("person", "person_other")
    assert found["knows"].sel(person="b", person_other="c").item() not in (0.0, 1.0)
    assert found["knows_upper"].sel(person="b", person_other="c").item() in (0.0, 1.0)
    assert found["knows"].sel(person="c", person_other="c").item() == 0.0


def test_three_axes_of_the_same_objects_have_names_of_their_own():
    x = np.random.default_rng(0).integers(2, size=(3, 3, 3)).astype(float)
    x[0, 1, 2] = np.nan
    with pm.Model(coords={"person": list("abc")}) as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        axes = [pm.Categorical(f"cluster_{k}", weights, dims="person") for k in range(3)]
        density = pm.Beta("density", 1.0, 1.0, shape=(2, 2, 2))
        pmm.BlockNetwork("trust", axes=axes, density=density, observed=x)
    found = pmm.impute(few_draws(model), model, random_seed=0, progressbar=False)["trust"]
    assert found.dims == ("person", "person_other", "person_other_other")
    place = dict(zip(found.dims, "abc", strict=True))
    assert 0.0 < found.sel(place).item() < 1.0


def test_cells_that_are_not_listed():
    listed = sparse.coo_array(([1.0, 2.0, 0.0], ([0, 1, 2], [1, 0, 1])), shape=(3, 2))
    model = pmm.models.relational_clusters(
        {"likes": listed}, family="poisson", absent="unknown", n_clusters=2
    )
    found = pmm.impute(few_draws(model), model, random_seed=0, progressbar=False)["likes"].values
    assert (found[0, 1], found[1, 0], found[2, 1]) == (1.0, 2.0, 0.0)
    assert (found[[0, 1, 2], [0, 1, 0]] > 0.0).all()


def test_no_cell_of_an_object_with_itself_is_predicted():
    listed = sparse.coo_array(([1.0, 0.0], ([0, 1], [1, 2])), shape=(3, 3))
    model = pmm.models.relational_clusters(
        {"knows": listed}, one_mode=True, absent="unknown", n_clusters=2
    )
    found = pmm.impute(few_draws(model), model, random_seed=0, progressbar=False)["knows"].values
    np.testing.assert_array_equal(np.diag(found), 0.0)
    assert (found[~np.eye(3, dtype=bool)] > 0.0).sum() == 5


def test_cells_are_predicted_in_blocks(monkeypatch):
    model = network_model(unknown=True)
    draws = draws_of(model, np.random.default_rng(0))
    whole = pmm.impute(draws, model, random_seed=0, progressbar=False)
    monkeypatch.setattr("pm_match.prediction.components._MOST_HELD", 1)
    split = pmm.impute(draws, model, random_seed=1, progressbar=False)
    np.testing.assert_allclose(whole["a"], split["a"], atol=0.03)


def test_missing_cells_of_plain_networks_have_the_variables_shape():
    rng = np.random.default_rng(1)
    x = np.ma.masked_array(rng.integers(2, size=(8, 5)), rng.random((8, 5)) < 0.2)
    with pm.Model() as model:
        row = pm.Categorical("row", pm.Dirichlet("p", np.ones(2)), shape=8)
        column = pm.Categorical("column", pm.Dirichlet("q", np.ones(2)), shape=5)
        density = pm.Beta("density", 1.0, 1.0, shape=(2, 2))
        pm.Bernoulli("edges", density[row[:, None], column], observed=x)
    draws = few_draws(model, draws=3000, tune=100)
    found = pmm.impute(draws, model, random_seed=0, progressbar=False)["edges"]
    assert found.shape == x.shape
    np.testing.assert_array_equal(found.values[~x.mask], x.data[~x.mask])
    recorded = draws.posterior["edges_unobserved"].mean(("chain", "draw")).values
    np.testing.assert_allclose(found.values[x.mask], recorded, atol=0.05)


def test_nothing_is_unknown():
    model = network_model()
    with pytest.raises(
        ValueError, match=r"values that are integrated out; found none\. pm_match\.imp"
    ):
        pmm.impute(draws_of(model, np.random.default_rng(0), 2), model, progressbar=False)


def test_a_table_that_is_too_large_is_refused(monkeypatch):
    model = network_model(unknown=True)
    monkeypatch.setenv("PM_MATCH_MEMORY", "1e-8")
    with pytest.raises(MemoryError, match="the cells of network 'a', of 3 x 3 x 2"):
        pmm.impute(draws_of(model, np.random.default_rng(0), 2), model, progressbar=False)


def test_counts_of_blocks_of_which_nothing_is_known():
    """Their probabilities may be next to 0, of which SciPy has no quantiles within hours."""
    x = np.ma.masked_array(np.arange(30).reshape(6, 5) % 4, np.zeros((6, 5), bool))
    x[0, 0] = x[3] = np.ma.masked
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        row = pm.Categorical("cluster_row", weights, shape=6)
        column = pm.Categorical("cluster_column", np.ones(2) / 2, shape=5)
        p = pm.Beta("p", 0.001, 0.001, shape=(3, 2))
        pm.NegativeBinomial("x", n=2.0, p=p[row[:, None], column], observed=x)
    labels = {"row": [0, 0, 0, 1, 0, 0], "column": [0, 0, 0, 1, 1]}
    draws = xr.Dataset(
        {
            f"cluster_{name}": (("chain", "draw", name), np.tile(own, (1, 30, 1)))
            for name, own in labels.items()
        }
    )
    found = pmm.impute(draws, model, random_seed=0, progressbar=False)
    assert found["x_upper"].values[0, 0] < 20
    assert found["x_upper"].values[3, 0] > 1e9
