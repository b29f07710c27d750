"""Links, and objects apart: the declared constraints, and every way to get one wrong."""

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
        pmm.must_link("more", {"b": [1], "cluster_a": [1]})  # a domain's name will do
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
        ({"cluster_a": [0], "nobody": [0]}, KeyError, "no assignment 'nobody'; there are"),
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


def test_log_probability_is_minus_infinity_where_objects_apart_share_a_cluster(model):
    with model:
        pmm.cannot_link("apart", {model["cluster_a"]: [0, 2], "cluster_b": [1, 2]})
        pmm.cannot_link("inside", {"cluster_a": [[0, 1, 2]]})
    logp = model.compile_fn(
        model.logp(vars=model.potentials),
        inputs=model.value_vars,
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    point = model.initial_point()
    for a, b, fine in (
        ([0, 1, 2], [0, 1, 0], True),
        ([0, 1, 2], [0, 0, 0], False),
        ([0, 1, 2], [0, 1, 2], False),
        ([0, 1, 0], [2, 2, 2], False),
    ):
        found = logp(point | {"cluster_a": np.array(a), "cluster_b": np.array(b)})
        assert found == (0.0 if fine else -np.inf)


def test_objects_apart_are_read(model):
    with model:
        pmm.cannot_link("apart", {"cluster_a": [0], "cluster_b": [1]})
        pmm.must_link("links", {"cluster_a": [2], "cluster_b": [2]})
    (clustering,) = read(model).clusterings
    assert clustering.apart.tolist() == [[0, 4]]
    assert clustering.links.tolist() == [[2, 5]]


def test_starts_keep_objects_apart(model):
    with model:
        pmm.cannot_link("apart", {"cluster_a": [0, 1, 2], "cluster_b": [2, 2, 2]})
        pmm.must_link("links", {"cluster_a": [0], "cluster_b": [0]})
    (clustering,) = read(model).clusterings
    for seed in range(50):
        labels = np.random.default_rng(seed).integers(0, 3, 6)
        labels[3] = labels[0]
        found = clustering.respected(labels)
        assert (found[:3] != found[5]).all()
        assert found[0] == found[3]
        if (labels[:3] != labels[5]).all():
            np.testing.assert_array_equal(found, labels)
    step = pmm.ClusterGibbs([model["cluster_a"]], model=model)
    with pytest.raises(UnservedModelError, match="the start contradicts cannot_link"):
        step._collapsed.load(model.initial_point(), [np.array([0, 0, 1, 0, 1, 1])])


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (
            [
                (pmm.must_link, {"cluster_a": [0, 1], "cluster_b": [0, 0]}),
                (pmm.cannot_link, {"cluster_a": [[0, 1]]}),
            ],
            r"cluster_a\[0\] and cluster_a\[1\] are kept apart: expected .*; found a link",
        ),
        (
            [(pmm.cannot_link, {"cluster_a": [0], "cluster_b": [5]})],
            "cannot_link 'c': expected positions from 0 to 2 in 'cluster_b'; found 5",
        ),
        (
            [(pmm.cannot_link, {"cluster_a": [[0, 1], [1, 2, 1]]})],
            "expected different objects of 'cluster_a' to be kept apart; found 1 twice",
        ),
    ],
)
def test_bad_objects_apart(model, constraints, message):
    def declared():
        with model:
            for declare, own in constraints:
                declare("c" if declare is pmm.cannot_link else "m", own)
        return pmm.ClusterGibbs([model["cluster_a"]], model=model)

    with pytest.raises(ValueError, match=message):
        declared()


def test_too_few_clusters_are_told(model):
    with model:
        pmm.cannot_link("all", {"cluster_a": [[0, 1, 2]]})
        pmm.cannot_link("more", {"cluster_a": [0, 1, 2], "cluster_b": [0, 0, 0]})
    (clustering,) = read(model).clusterings
    with pytest.raises(UnservedModelError, match="cannot be linked; it has 3 clusters"):
        clustering.respected(np.zeros(6, np.int64))


def test_contradictions_name_the_users_objects():
    labels = np.ma.masked_array([0, 1, 0], mask=[False, False, True])
    with pm.Model(coords={"o": ["x", "y", "z"]}) as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        a = pm.Categorical("cluster_a", weights, observed=labels, dims="o")
        pm.Normal("v", pm.Normal("mean", shape=3)[a], 1.0, observed=np.zeros(3))
        pmm.must_link("known", {"cluster_a": [[0, 1]]})
    with pytest.raises(
        UnservedModelError, match=r"^cluster_a\['x'\]: .* same observed label; found"
    ):
        pmm.steps(model)
