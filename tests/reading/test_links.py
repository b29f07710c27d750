"""Links: the declared constraint, and every way to get one wrong."""

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.parts import UnservedModelError
from tests.declared.plain import inside, tiny_data


@pytest.fixture
def model():
    return pmm.models.projected_clusters(tiny_data(), n_factors=2, n_clusters=3)


def test_log_probability_is_minus_infinity_off_the_links(model):
    with model:
        pmm.must_link("links", {model["cluster_a"]: [0, 2], "cluster_b": [1, 2]})
    point = model.initial_point()
    logp = model.compile_fn(
        model.logp(vars=model.potentials),
        inputs=model.value_vars,
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    assert logp(point) == 0.0
    point["cluster_b"] = np.array([1, 0, 0])
    assert logp(point) == 0.0
    point["cluster_b"] = np.array([0, 1, 0])
    assert logp(point) == -np.inf


def test_links_survive_a_copy_of_the_model(model):
    with model:
        pmm.must_link("links", {"cluster_a": [0, 2], "cluster_b": [1, 2]})
        pmm.must_link("more", {"cluster_b": [1], "cluster_a": [1]})
    found = read(pm.model.fgraph.clone_model(model)).clusterings[0].links
    assert sorted(found.tolist()) == [[0, 4], [2, 5], [4, 1]]


def test_groups_of_three_domains():
    data = tiny_data() | {"c": tiny_data()["a"] + 1.0}
    model = pmm.models.projected_clusters(
        data, n_clusters=3, links=[{"a": [0], "b": [1], "c": [2]}, {"c": [2], "a": [1]}]
    )
    step = pmm.ClusterGibbs([model["cluster_c"]], model=model)
    assert sorted(inside(step).units.size.tolist()) == [1, 1, 1, 1, 1, 4]


@pytest.mark.parametrize(
    ("linked", "error", "message"),
    [
        ({"cluster_a": [0]}, ValueError, "at least two assignments"),
        ({"cluster_a": [0, 1], "cluster_b": [0]}, ValueError, r"of every .*; found .*2.*1"),
        ({"cluster_a": [3], "cluster_b": [0]}, ValueError, r"from 0 to 2 in 'cluster_a'; found 3"),
        ({"cluster_a": [-1], "cluster_b": [0]}, ValueError, "found -1"),
        (
            {"cluster_a": [0.5], "cluster_b": [0]},
            TypeError,
            "whole numbers .*; found dtype float64",
        ),
        ({"cluster_a": [[0]], "cluster_b": [[0]]}, ValueError, "expected a vector of positions"),
        ({"cluster_a": [], "cluster_b": []}, ValueError, "positions to link; found none"),
        ({"cluster_a": [0], "nobody": [0]}, KeyError, "nobody"),
    ],
)
def test_bad_links(model, linked, error, message):
    with model, pytest.raises(error, match=message):
        pmm.must_link("links", linked)


def test_links_are_between_whole_assignments(model):
    with model, pytest.raises(TypeError, match="expected whole assignments"):
        pmm.must_link("links", {model["cluster_a"][:2]: [0], model["cluster_b"]: [1]})
    with model:
        shifted = pm.Deterministic("shifted", model["cluster_a"] + 0)
    with model, pytest.raises(TypeError, match="expected whole assignments"):
        pmm.must_link("links", {shifted: [0], "cluster_b": [1]})


def test_links_of_unknown_domains():
    with pytest.raises(ValueError, match=r"links: expected names among \['a', 'b'\]; found 'c'"):
        pmm.models.projected_clusters(tiny_data(), links={"a": [0], "c": [0]})


def test_links_between_different_weights_contradict(model):
    with model:
        weights = pm.StickBreakingWeights("others", alpha=1.0, K=2)
        other = pm.Categorical("cluster_c", p=weights, shape=3)
        pmm.must_link("links", {"cluster_a": [0], other: [0]})
    with pytest.raises(UnservedModelError, match=r"'links' links it with 'cluster_c', which"):
        pmm.ClusterGibbs([model["cluster_a"]], model=model)
