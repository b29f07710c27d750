"""Credible balls of partitions."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pm_match as pmm
from tests.declared.draws import tree, typed, with_relevance


def n_blocks(labels):
    """Clusters, each irrelevant object one of its own."""
    return len(set(labels[labels >= 0].tolist())) + int(np.sum(labels < 0))


@pytest.mark.parametrize("loss", ["vi", "binder"])
@pytest.mark.parametrize("prob", [0.3, 0.75, 0.95, 1.0])
def test_bounds_by_looking_at_every_draw(prob, loss):
    idata = with_relevance(tree(4))
    estimate = pmm.partition_estimate(idata, loss=loss)
    ball = pmm.credible_ball(idata, estimate, prob=prob, loss=loss)
    distance = pmm.partition_loss(idata, estimate, loss=loss).to_numpy().ravel()
    radius = ball.attrs["radius"]
    inside = distance <= radius + 1e-12
    assert ball.attrs["probability"] == np.mean(inside) >= prob
    assert np.mean(distance < radius - 1e-12) < prob  # no smaller ball will do
    blocks = []
    for t in range(60):
        parts = [
            idata["posterior"][f"{v}_{k}"].to_numpy().reshape(60, -1)[t]
            for v, k in [("cluster", "a"), ("cluster", "b"), ("relevance", "a"), ("relevance", "b")]
        ]
        labels = np.concatenate(parts[:2])
        blocks.append(n_blocks(np.where(np.concatenate(parts[2:]), labels, -(10**6))))
    blocks = np.array(blocks)
    expected = {
        "horizontal": distance[inside].max(),
        "vertical_upper": distance[inside & (blocks == blocks[inside].min())].max(),
        "vertical_lower": distance[inside & (blocks == blocks[inside].max())].max(),
    }
    for bound, far in expected.items():
        one = ball.sel(bound=bound)
        assert float(one["distance"]) == pytest.approx(far, abs=1e-12)
        labels = np.concatenate([one["cluster_a"], one["cluster_b"]])
        assert int(one["n_clusters"]) == labels.max() + 1
        alone = np.where(labels < 0, 50 + np.arange(12), labels)  # the labels are those of a draw
        back = xr.Dataset(
            {
                "cluster_a": (("chain", "draw", "a_object"), alone[None, None, :7]),
                "cluster_b": (("chain", "draw", "b_object"), alone[None, None, 7:]),
            }
        )
        bare = {name: estimate[name].to_numpy() for name in ("cluster_a", "cluster_b")}
        assert pmm.partition_loss(back, bare, loss=loss).item() == pytest.approx(far, abs=1e-12)
    upper, lower = (ball.sel(bound=f"vertical_{x}") for x in ("upper", "lower"))
    counts = [
        n_blocks(np.concatenate([one["cluster_a"], one["cluster_b"]])) for one in (upper, lower)
    ]
    assert counts == [blocks[inside].min(), blocks[inside].max()]


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_draws_means_nothing(seed):
    rng = np.random.default_rng(seed)
    posterior = tree(2, (("a", 4), ("b", 3)), seed)["posterior"].to_dataset()  # many ties
    estimate = {"cluster_a": np.array([0, 0, 1, 1]), "cluster_b": np.array([0, 1, 1])}
    other = posterior.isel(chain=[1, 0], draw=rng.permutation(30))
    other = other.assign({k: 1 - other[k] for k in estimate})
    xr.testing.assert_identical(
        pmm.credible_ball(posterior, estimate), pmm.credible_ball(other, estimate)
    )


def test_a_ball_of_hardly_any_probability_holds_the_nearest_draw():
    idata = tree(seed=3)
    estimate = pmm.partition_estimate(idata)
    ball = pmm.credible_ball(idata, estimate, prob=1e-12)
    assert ball.attrs["radius"] == float(pmm.partition_loss(idata, estimate).min())


def test_several_sets():
    idata = typed()
    estimate = pmm.partition_estimate(idata)
    ball = pmm.credible_ball(idata, estimate)
    assert ball["distance"].dims == ("clusters", "bound")
    names = ["cluster_A_word", "cluster_B_word"]
    alone = pmm.credible_ball(idata, estimate, var_names=names)
    assert alone.attrs["radius"] == ball.attrs["radius"][1]
    np.testing.assert_array_equal(alone["distance"], ball["distance"].sel(clusters="word_weights"))
    np.testing.assert_array_equal(alone["cluster_A_word"], ball["cluster_A_word"])
    pmm.cluster_sizes(ball.sel(bound="horizontal"))


@pytest.mark.parametrize("prob", [0.0, 1.2, "much"])
def test_prob_is_a_probability(prob):
    with pytest.raises(ValueError, match="prob: expected a probability above 0 and up to 1"):
        pmm.credible_ball(tree(), pmm.partition_estimate(tree()), prob=prob)
