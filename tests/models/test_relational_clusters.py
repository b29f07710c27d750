"""The declared network models: what they are, that the steps serve them, and what cannot be."""

import time
from functools import reduce

import numpy as np
import pandas as pd
import pytensor
import pytest
from scipy import sparse
from scipy.stats import gamma

import pm_match as pmm
from pm_match.clusters.cluster_gibbs import ClusterGibbs
from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.models import relational_clusters
from pm_match.networks import read_block_network
from pm_match.reading import read
from pm_match.reading.probe import PLAIN
from tests.declared.networks import network_data, network_model

FREE = {
    "weights_row",
    "weights_column",
    "relevance_probability_row",
    "relevance_probability_column",
    "density",
    "noise",
    *(
        f"{what}_{n}_{t}"
        for what in ("cluster", "relevance")
        for n in "ab"
        for t in ("row", "column")
    ),
}
HYPER = {
    "concentration_row",
    "concentration_column",
    *(f"{what}_{p}" for what in ("density", "noise", "relevance") for p in ("alpha", "beta")),
}


def names(model):
    return {rv.name for rv in model.free_RVs}


def log_density(model, point, variables=None):
    """Log density at a point, interpreted: compiling would take longer."""
    graph = model.logp(variables, jacobian=False)
    return pytensor.function(model.value_vars, graph, mode=PLAIN, on_unused_input="ignore")(
        *[point[value.name] for value in model.value_vars]
    )


def long_form(x, columns=("document", "word", "count")):
    """A dense matrix's nonzero cells as a DataFrame, with labels of text."""
    cells = np.argwhere(x)
    parts = [[f"{column}{i}" for i in cells[:, axis]] for axis, column in enumerate(columns[:-1])]
    return pd.DataFrame(dict(zip(columns, [*parts, x[tuple(cells.T)]], strict=True)))


# -- what is declared ------------------------------------------------------------------------------


def test_declares_the_papers_model():
    x = pd.DataFrame(network_data()["a"], index=list("uvw"), columns=["x", "y"])
    model = relational_clusters(
        {"a": x, "b": network_data()["b"]}, n_clusters={"row": 4, "column": 3}
    )
    assert names(model) == FREE | HYPER
    assert [rv.name for rv in model.observed_RVs] == ["a", "b"]
    assert model.coords["a_row_object"] == ("u", "v", "w")
    assert model.coords["a_column_object"] == ("x", "y")
    assert model.coords["b_row_object"] == (0, 1)
    assert model.named_vars_to_dims["density"] == ("row_cluster", "column_cluster")
    assert model.named_vars_to_dims["relevance_a_row"] == ("a_row_object",)
    start = model.initial_point()
    assert start["cluster_a_row"].shape == (3,)
    assert start["weights_row_simplex__"].shape == (3,)
    assert start["density_logodds__"].shape == (4, 3)
    assert start["noise_logodds__"].shape == ()


@pytest.mark.parametrize("relevance", [False, True])
def test_without_hyperpriors_is_the_plain_declaration(relevance):
    """Every factor but the data's in closed form, and the data's against a plain declaration."""
    data = network_data()
    model = relational_clusters(
        data,
        relevance=relevance,
        n_clusters={"row": 2, "column": 3},
        hyperpriors=False,
        concentration=1.4,
        density_prior=(0.8, 1.2),
        noise_prior=(0.7, 1.2),
        relevance_prior=(2.0, 1.5),
    )
    plain = network_model(relevance=relevance, data=data)
    assert names(model) == {
        name for name in FREE if relevance or not name.startswith(("relevance", "noise"))
    }
    renamed = {
        "weights_row": "weights_0",
        "weights_column": "weights_1",
        "relevance_probability_row": "share_0",
        "relevance_probability_column": "share_1",
    }
    for what in ("cluster", "relevance"):
        for n in "ab":
            renamed |= {f"{what}_{n}_row": f"{what}_{n}_0", f"{what}_{n}_column": f"{what}_{n}_1"}
    rng = np.random.default_rng(4)
    point, other = {}, {}
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv]
        start = model.initial_point()[value.name]
        if start.dtype.kind == "f":
            drawn = rng.normal(size=start.shape)
        else:
            drawn = rng.integers(2, size=start.shape)
        point[value.name] = drawn
        other[plain.rvs_to_values[plain[renamed.get(rv.name, rv.name)]].name] = drawn
    np.testing.assert_allclose(log_density(model, point), log_density(plain, other), rtol=1e-12)


def test_hyperpriors_are_gamma_5_5():
    model = relational_clusters(network_data(), family="poisson")
    point = model.initial_point()
    for name in HYPER:
        point[model.rvs_to_values[model[name]].name] = np.array(np.log(0.3))
    found = log_density(model, point, [model[name] for name in HYPER])
    np.testing.assert_allclose(found, len(HYPER) * gamma(5.0, scale=0.2).logpdf(0.3), rtol=1e-12)


def test_one_network_is_an_infinite_relational_model():
    model = relational_clusters({"only": network_data()["a"]}, relevance=False)
    assert names(model) == {
        "weights_row",
        "weights_column",
        "density",
        "cluster_only_row",
        "cluster_only_column",
        "concentration_row",
        "concentration_column",
        "density_alpha",
        "density_beta",
    }


@pytest.mark.parametrize(
    "options",
    [{"symmetric": True}, {"one_mode": True}, {"types": ["object"]}, {"self_loops": True}],
)
def test_one_mode(options):
    data = network_data("undirected", loops="self_loops" in options)
    model = relational_clusters(data, n_clusters=3, **options)
    assert {"cluster_a_object", "relevance_b_object", "weights_object"} <= names(model)
    assert model.named_vars_to_dims["density"] == ("object_cluster", "object_cluster_other")
    (a, _) = model.observed_RVs
    assert a.owner.op.one_mode
    assert a.owner.op.symmetric is bool(options.get("symmetric"))
    assert a.owner.op.self_loops is bool(options.get("self_loops"))


def test_labels_of_one_mode_networks_may_be_on_one_axis():
    square = pd.DataFrame(network_data("directed")["a"], columns=list("wxyz"))
    model = relational_clusters({"a": square}, types="person")
    assert model.coords["a_person_object"] == ("w", "x", "y", "z")


def test_square_matrices_have_two_types_unless_told():
    model = relational_clusters(network_data("directed"))
    assert {"cluster_a_row", "cluster_a_column"} <= names(model)


def test_three_types():
    model = relational_clusters(network_data("three-way"), n_clusters=2)
    assert {f"cluster_a_axis_{i}" for i in range(3)} <= names(model)
    assert model["density"].eval().shape == (2, 2, 2)


def test_edge_lists_with_labels():
    table = long_form(network_data("bipartite", "poisson")["a"])
    model = relational_clusters(
        {"a": table}, family="poisson", types=("document", "word"), columns=list(table.columns)
    )
    assert model.coords["a_document_object"] == ("document0", "document1", "document2")
    assert "cluster_a_word" in names(model)


def test_columns_of_three_types_need_no_value():
    table = long_form(network_data("three-way", seed=3)["a"], ["user", "item", "tag", "there"])
    types = ["user", "item", "tag"]
    with_value = relational_clusters({"a": table}, types=types, columns=table.columns)
    without = relational_clusters({"a": table.drop(columns="there")}, types=types, columns=types)
    observed = [m.rvs_to_values[m["a"]].data for m in (with_value, without)]
    np.testing.assert_array_equal(*observed)


def test_unknown_cells():
    x = sparse.csr_array(network_data(seed=1)["a"])
    zero, unknown = (
        relational_clusters({"a": x}, absent=absent)["a"].owner.op.absent
        for absent in ("zero", "unknown")
    )
    assert (zero, unknown) == ("zero", "unknown")


def test_exposures():
    data = network_data("bipartite", "poisson")
    own = {name: [np.full(n, 2.0) for n in x.shape] for name, x in data.items()}
    for exposure in ("degree", own):
        model = relational_clusters(data, family="poisson", exposure=exposure)
        assert model["a"].owner.op.exposure == (True, True)
        given = model["a"].owner.op.split(model["a"].owner.inputs[2:]).exposure[1].data
        total = data["a"].sum()
        expected = own["a"][1] if exposure is own else data["a"].sum(axis=0) / total**0.5
        np.testing.assert_allclose(given, expected)


def test_exposures_and_known_clusters_are_matched_by_labels():
    data = pd.DataFrame(network_data("bipartite", "poisson")["a"]).add_prefix("w")
    data.index = [f"d{i}" for i in range(len(data))]
    own = pd.Series(np.arange(len(data)), data.index)

    def declared(given, known=own):
        return relational_clusters(
            {"a": data},
            family="poisson",
            relevance=False,
            exposure={"a": (given + 1.0, None)},
            known={"a_row": known},
        )

    for given in (own, own.iloc[::-1], own.iloc[::-1].rename_axis("row").to_xarray()):
        model = declared(given, given)
        exposure = model["a"].owner.op.split(model["a"].owner.inputs[2:]).exposure[0].data
        assert exposure.tolist() == (own + 1.0).tolist()
        assert model.rvs_to_values[model["cluster_a_row"]].data.tolist() == own.tolist()
    with pytest.raises(
        ValueError, match=r"BlockNetwork 'a': exposure on axis 0: expected labels of.*found 'x0'"
    ):
        declared(own.add_prefix("x").rename(index=lambda label: label.replace("d", "")))


@pytest.mark.parametrize("exposure", [None, "degree", "vectors"])
@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected", "three-way"])
def test_dispersion_multiplies_the_exposure_of_every_cell(kind, exposure):
    data = network_data(kind, "negative-binomial")
    options = {"symmetric": kind == "undirected", "one_mode": kind == "directed" or None}
    if exposure == "vectors":
        exposure = {
            name: [None if axis == 1 and kind != "undirected" else np.arange(1.0, n + 1.0)
                   for axis, n in enumerate(x.shape)]
            for name, x in data.items()
        }  # fmt: skip
    found = []
    for dispersion in (1.0, 0.3):
        model = relational_clusters(
            data, family="negative-binomial", exposure=exposure, dispersion=dispersion, **options
        )
        given = read_block_network(model["b"]).exposure
        own = [np.ones(n) if e is None else e for e, n in zip(given, data["b"].shape, strict=True)]
        found.append(reduce(np.multiply.outer, own))
    np.testing.assert_allclose(found[1], 0.3 * found[0])


def test_large_networks_are_declared_at_once():
    rng = np.random.default_rng(0)
    networks = {
        name: sparse.csr_array((rng.random((600, 600)) < 0.55).astype(int)) for name in "ab"
    }
    start = time.perf_counter()
    relational_clusters(networks)
    assert time.perf_counter() - start < 2.0


# -- what is served --------------------------------------------------------------------------------

SERVED = {
    "default": {},
    "ReMatch": {"relevance": False},
    "numbers": {"hyperpriors": False},
    "dirichlet": {"weights": "dirichlet"},
    "dirichlet, numbers": {"weights": "dirichlet", "hyperpriors": False, "concentration": 2.0},
    "uniform": {"weights": "uniform"},
    "uniform, ReMatch": {"weights": "uniform", "relevance": False, "hyperpriors": False},
    "clusters by type": {"n_clusters": {"row": 2, "column": 5}},
    "poisson": {"family": "poisson"},
    "degrees": {"family": "poisson", "exposure": "degree", "weights": "uniform"},
    "overdispersed counts": {"family": "negative-binomial", "dispersion": 0.5},
    "overdispersed, numbers": {
        "family": "negative-binomial",
        "exposure": "degree",
        "hyperpriors": False,
        "density_prior": (2.0, 3.0),
    },
    "normal": {"family": "normal"},
    "normal, numbers": {"family": "normal", "hyperpriors": False, "density_prior": (2.0, 3.0)},
    "unknown": {"absent": "unknown"},
    "directed": {"one_mode": True, "kind": "directed"},
    "undirected": {"symmetric": True, "kind": "undirected"},
    "self-loops": {"symmetric": True, "self_loops": True, "kind": "undirected", "loops": True},
    "undirected degrees": {
        "symmetric": True,
        "kind": "undirected",
        "family": "poisson",
        "exposure": "degree",
    },
    "three types": {"kind": "three-way", "types": ("user", "item", "tag")},
    "links": {"relevance": False, "links": {"a_row": [0, 2], "b_row": [1, 0]}},
    "sets of links": {
        "relevance": False,
        "links": [{"a_row": [0], "b_row": [1]}, {"a_column": [0], "b_column": [0]}],
    },
}


@pytest.mark.parametrize("options", SERVED.values(), ids=SERVED)
def test_steps_serve_all_of_it(options):
    options = {"n_clusters": 4} | options
    kind, loops = options.pop("kind", "bipartite"), options.pop("loops", False)
    data = network_data(kind, options.get("family", "bernoulli"), loops=loops)
    model = relational_clusters(data, **options)
    structure = read(model)
    assert structure.refusals == {}
    (component,) = structure.components
    served = [
        *ClusterGibbs.served(component),
        *HyperparameterGibbs.served(component),
    ]
    assert sorted(served) == sorted(names(model))
    links = options.get("links") or []
    expected = ["links", "links_1"][: 1 if isinstance(links, dict) else len(links)]
    assert [potential.name for potential in model.potentials] == expected


@pytest.mark.parametrize(
    "option", ["default", "degrees", "normal, numbers", "undirected", "three types", "links"]
)
@pytest.mark.filterwarnings("ignore:the draws fill the truncation")
def test_sampling(option):
    options = {"n_clusters": 4} | SERVED[option]
    kind = options.pop("kind", "bipartite")
    data = network_data(kind, options.get("family", "bernoulli"))
    model = relational_clusters(data, **options)
    idata = pmm.sample(
        draws=5,
        tune=5,
        chains=2,
        cores=1,
        progressbar=False,
        random_seed=1,
        model=model,
        init="dispersed",
    )
    posterior = idata["posterior"]
    assert set(posterior.data_vars) == names(model)
    assert np.isfinite(idata["sample_stats"]["log_joint"]).all()
    assert "tree_depth" not in idata["sample_stats"]  # nothing is left to NUTS
    if option == "links":
        first, second = posterior["cluster_a_row"], posterior["cluster_b_row"]
        np.testing.assert_array_equal(first[..., [0, 2]], second[..., [1, 0]])


def test_finds_the_clusters_and_the_irrelevant_objects():
    drawn = pmm.datasets.synthetic_networks(
        n_relevant=40, n_irrelevant=10, n_clusters=2, random_seed=5
    )
    model = relational_clusters(drawn.networks, n_clusters=9, hyperpriors=False)
    idata = pmm.sample(
        draws=20,
        tune=40,
        chains=2,
        cores=1,
        progressbar=False,
        random_seed=2,
        model=model,
        init="dispersed",
    )
    best = pmm.best_chain(idata)["posterior"]
    for number, t in enumerate(("row", "column")):
        keys = [f"{name}_{t}" for name in "ab"]
        found = [
            np.where(best[f"relevance_{key}"] == 1, best[f"cluster_{key}"], -1)[0, -1]
            for key in keys
        ]
        true = [drawn.clusters[name][number] for name in "ab"]
        assert pmm.metrics.matching_adjusted_rand_index(true, found) > 0.9


# -- what cannot be --------------------------------------------------------------------------------

BAD_OPTIONS = {
    "family": (
        {"family": "binomial"},
        "family: expected 'bernoulli', 'poisson', 'negative-binomial' or 'normal'",
    ),
    "weights": ({"weights": "crp"}, "weights: expected 'stick-breaking', 'dirichlet' or 'uniform'"),
    "absent": ({"absent": "no"}, "absent: expected 'zero' or 'unknown'; found 'no'"),
    "n_clusters": ({"n_clusters": 1}, "n_clusters: expected a whole number of at least 2; found 1"),
    "half a cluster": ({"n_clusters": 2.5}, "n_clusters: expected a whole number of at least 2"),
    "clusters of a type": (
        {"n_clusters": {"row": 5, "column": True}},
        r"n_clusters\['column'\]: expected a whole number of at least 2; found True",
    ),
    "clusters of one type": (
        {"n_clusters": {"row": 5}},
        r"one for each of \['row', 'column'\]; found \{'row': 5\}",
    ),
    "concentration": (
        {"concentration": 0.0},
        "concentration: expected a positive .* found 0.0",
    ),
    "text": ({"concentration": "high"}, "concentration: expected a positive number; found 'high'"),
    "pair": ({"density_prior": (1.0,)}, r"density_prior: expected \(alpha, beta\); found \(1.0,\)"),
    "number": ({"noise_prior": 1.0}, r"noise_prior: expected \(alpha, beta\); found 1.0"),
    "rate": (
        {"family": "poisson", "density_prior": (1.0, np.inf)},
        "density_prior's rate: expected a positive number; found inf",
    ),
    "beta": (
        {"relevance_prior": (1.0, -1.0)},
        "relevance_prior's beta: expected a positive",
    ),
    "ignored concentration": (
        {"concentration": 2.0},
        "concentration: expected none with hyperpriors=True, as it is drawn; found 2.0",
    ),
    "ignored prior": (
        {"density_prior": [0.5, 0.5]},
        r"density_prior: expected none .*; found \(0.5, 0.5\)",
    ),
    "number of types": (
        {"types": ("row",), "one_mode": False},
        "types: expected 2 names, for each",
    ),
    "equal types": ({"types": ("row", "row")}, "types: expected different names; found"),
    "type's name": ({"types": ("row", "a b")}, "expected an identifier .* found 'a b'"),
    "not one-mode": (
        {"symmetric": True, "one_mode": False},
        "symmetric=True: expected one-mode networks; found one_mode=False",
    ),
    "types of one mode": (
        {"one_mode": True, "types": ("row", "column")},
        "types: expected 1 name, for the objects of one-mode networks; found",
    ),
    "exposure of one": ({"exposure": {"a": [None, None]}}, r"each of the networks \['a', 'b'\]"),
    "dispersion": (
        {"family": "negative-binomial", "dispersion": 0.0},
        "dispersion: expected a positive number; found 0.0",
    ),
    "dispersion's family": (
        {"family": "poisson", "dispersion": 2.0},
        "dispersion: expected none but with family='negative-binomial'; found 2.0 with "
        "family='poisson'",
    ),
    "exposure's family": ({"exposure": "degree"}, "expected no exposure but with family 'poisson'"),
    "links and relevance": (
        {"links": {"a_row": [0], "b_row": [0]}},
        "linked objects must be relevant.*Say relevance=False",
    ),
    "stranger linked": (
        {"links": {"a_row": [0], "c_row": [0]}, "relevance": False},
        r"links: expected .* \['a_row', 'a_column', 'b_row', 'b_column'\]; found 'c_row'",
    ),
    "types linked": (
        {"links": {"a_row": [0], "b_column": [0]}, "relevance": False},
        r"links: expected objects of one type.* of the types \['column', 'row'\]",
    ),
    "type of PyMC": ({"types": ["doc__", "word"]}, "types: .* does not end in '__'.*found 'doc__'"),
    "columns": ({"columns": ["x", "y"]}, "expected a DataFrame in long form with `columns`"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options(options, message):
    data = network_data(
        "directed", "poisson" if options.get("family") == "poisson" else "bernoulli"
    )
    with pytest.raises((ValueError, TypeError), match=message):
        relational_clusters(data, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relevance": "words"}, "relevance: expected True or False; found 'words'"),
        ({"hyperpriors": None}, "hyperpriors: expected True or False; found None"),
        ({"exposure": [None, None]}, "exposure: expected 'degree', or a mapping .* type list"),
        ({"links": ["a_row"]}, "links: expected a mapping .* found an object of type str"),
    ],
)
def test_bad_types(options, message):
    with pytest.raises(TypeError, match=message):
        relational_clusters(network_data(), **options)


BAD_NETWORKS = {
    "nothing": ({}, "expected at least one network; found none"),
    "no mapping": ([np.eye(3)], "expected a mapping .* found an object of type list"),
    "no name": ({3: np.eye(3)}, "network 3: expected a string as a network's name"),
    "no identifier": ({"a-b": np.eye(3)}, "network 'a-b': expected an identifier"),
    "counts": ({"a": 2 * np.eye(3)}, r"network 'a': expected 0 or 1 .* found 2 at cell \(0, 0\)"),
    "axes": (
        {"a": np.eye(3), "b": np.zeros((2, 2, 2))},
        r"network 'b': expected 2 axes, as network 'a' has; found shape \(2, 2, 2\)",
    ),
    "density": ({"density": np.eye(3)}, "found 'density', which it uses itself"),
    "chain": ({"chain": np.eye(3)}, "found 'chain', which it uses itself"),
    "links": ({"links_2": np.eye(3)}, "found 'links_2', which it uses itself"),
    "weights": (
        {"weights_row": np.eye(3)},
        "network 'weights_row': .* a second 'weights_row' beside that of type 'row'",
    ),
    "dim": ({"row_cluster": np.eye(3)}, "a second 'row_cluster' beside that of type 'row'"),
    "each other": (
        {"a": np.eye(3), "cluster_a_row": np.eye(3)},
        "network 'cluster_a_row': .* beside that of network 'a'",
    ),
    "labels twice": (
        {"a": pd.DataFrame(np.eye(2), index=["u", "u"])},
        "network 'a': axis 0: expected unique object labels; found 'u' more than once",
    ),
    "no label": (
        {"a": pd.DataFrame(np.eye(2), columns=["u", None])},
        r"axis 1: expected a label of every object; found none of object number 1 \(from 0\)",
    ),
}


@pytest.mark.parametrize(("networks", "message"), BAD_NETWORKS.values(), ids=BAD_NETWORKS)
def test_bad_networks(networks, message):
    with pytest.raises((ValueError, TypeError), match=message):
        relational_clusters(networks)


def test_names_of_types_and_networks_that_meet():
    data = network_data()
    networks = {"a": data["a"], "a_b": data["b"]}
    with pytest.raises(
        ValueError, match=r"network 'a_b': .* second 'cluster_a_b_c' beside that of network 'a'"
    ):
        relational_clusters(networks, types=("b_c", "c"))


def test_self_loops_must_be_allowed():
    with pytest.raises(ValueError, match=r"network 'a': expected no self-loops; .*self_loops=True"):
        relational_clusters({"a": np.eye(3)}, symmetric=True)


def test_labels_of_all_kinds_can_be_coords():
    mixed = pd.DataFrame(
        network_data()["a"],
        index=pd.Index([1, "x", 2.5]),
        columns=pd.MultiIndex.from_tuples([("u", 1), ("u", 2)]),
    )
    model = relational_clusters({"a": mixed})
    assert model.coords["a_row_object"] == ("1", "x", "2.5")
    assert model.coords["a_column_object"] == ("u, 1", "u, 2")
