"""Diagnosis: sound on chains that agree, alarmed by those that do not, blind to labels."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from arviz_stats import ess, rhat
from hypothesis import given, settings
from hypothesis import strategies as st

import pm_match as pmm
from pm_match.matching.chains import chain_distances, groups_of_chains
from pm_match.matching.losses import loss_between
from pm_match.matching.mixing import mixing, worst_of
from pm_match.matching.set_draws import read_sets
from pm_match.matching.traces import choose_pairs, pair_traces, partition_traces
from tests.declared.draws import chains, tree, typed, with_relevance
from tests.matching.relabelled import clusters_of, posteriors, relabelled

few = settings(max_examples=12, deadline=None, derandomize=True)


def test_chains_that_agree_need_no_advice():
    found = pmm.diagnose(chains([0, 0, 0, 0], [0, 0, 0, 0]))
    assert found.ok
    assert not found.disagree
    assert found.advice == found.not_agreed == []
    assert "No sign" in str(found)
    assert found.chains["group"].tolist() == [0, 0, 0, 0]
    assert found.filled == 0
    # Each was numbered anew in every draw, and R-hat of the labels says nothing of that.
    assert found.table["r_hat"].drop(found.table.index[4]).max() < 1.01


def test_the_table_is_arvizs():
    idata = chains([0, 0, 0, 0], [0, 0, 0, 0])
    table = pmm.diagnose(idata).table
    for name, values in (
        ("log_joint", idata["sample_stats"]["log_joint"]),
        ("precision", idata["posterior"]["precision"]),
    ):
        x = values.to_numpy()
        expected = [x.mean(), x.std(), rhat(x), ess(x), ess(x, method="tail", prob=(0.05, 0.95))]
        np.testing.assert_allclose(table.loc[name].iloc[:5].astype(float), expected)


def test_chains_in_another_mode_are_told():
    found = pmm.diagnose(chains([0, 1, 0, 1], [0, -12, 0, -12]))
    assert found.chains["group"].tolist() == [0, 1, 0, 1]
    assert found.disagree
    assert "Chains 1, 3 found another matching (log joint 12." in found.advice[0]
    assert "than chains 0, 2. " in found.advice[0]
    assert "find_matching" in found.advice[0]
    assert "R-hat is larger than 1.01" in found.advice[1]
    assert "log_joint" in found.advice[1]
    assert found.distance.loc[0, 1] > 5 * found.distance.loc[0, 2]
    assert str(found).endswith("\n".join(f"- {item}" for item in found.advice))
    assert "<li>Chains 1, 3 found" in found._repr_html_()


@pytest.mark.parametrize("seed", range(4))
def test_another_matching_of_the_same_clusters_is_told(seed):
    """Most pairs that share a cluster are of one domain, and agree."""
    a, b = np.repeat(range(6), [28, 44, 11, 6, 3, 15]), np.repeat(range(6), [42, 32, 6, 7, 6, 14])
    other = np.array([0, 2, 1, 3, 4, 5])[b]
    posterior = xr.Dataset(
        {
            "cluster_a": (["chain", "draw", "x"], np.tile(a, (3, 40, 1))),
            "cluster_b": (["chain", "draw", "y"], np.tile([[b], [other], [b]], (40, 1))),
        }
    )
    assert pmm.diagnose(posterior, random_seed=seed).chains["group"].tolist() == [0, 1, 0]


@pytest.mark.parametrize("seed", range(4))
def test_chains_that_match_next_to_nothing_agree(seed):
    """One of them has matches in every fiftieth draw."""
    a = np.arange(60) % 5
    b = np.tile(a + 5, (3, 300, 1))
    b[2, ::50] = a
    posterior = xr.Dataset(
        {
            "cluster_a": (["chain", "draw", "x"], np.tile(a, (3, 300, 1))),
            "cluster_b": (["chain", "draw", "y"], b),
        }
    )
    assert pmm.diagnose(posterior, random_seed=seed).chains["group"].tolist() == [0, 0, 0]


def test_modes_that_are_about_as_probable_are_kept():
    advice = pmm.diagnose(chains([0, 1, 0, 0], [0, -1, 0, 0])).advice[0]
    assert "Chain 1 found another matching (log joint 1." in advice
    assert "keep all chains" in advice
    # Without a log joint only that they differ can be said.
    advice = pmm.diagnose(chains([0, 1, 0, 0])).advice[0]
    assert advice.startswith("The chains found different matchings: chains 0, 2, 3; chain 1.")


def test_only_the_log_joint_differs():
    found = pmm.diagnose(chains([0, 0, 0, 0], [0, 0, 0, 9]))
    assert not found.disagree
    assert found.not_agreed == ["log_joint"]
    few = chains([0, 0, 0, 0], [0, 0, 0, 9], draws=50)
    assert pmm.diagnose(few).not_agreed == []  # which few draws cannot tell
    assert any("R-hat" in item and "log_joint" in item for item in found.advice)
    assert any("effective sample size" in item for item in found.advice)


def test_of_many_quantities_the_worst_are_named():
    idata = chains([0, 0, 0, 0], [0, 0, 0, 9])
    rng = np.random.default_rng(2)
    for k in range(1, 6):
        shifts = np.array([0, 0, 0, k])[:, None]
        own = xr.DataArray(rng.normal(size=(4, 200)) + shifts, dims=("chain", "draw"))
        idata["posterior"][f"by_{k}"] = own
    found = pmm.diagnose(idata)
    worst = found.table["r_hat"].sort_values(ascending=False).index[:4]
    assert worst.tolist() == ["log_joint", "by_5", "by_4", "by_3"]
    named = ", ".join(f"{own} ({found.table['r_hat'][own]:.2f})" for own in worst)
    assert f"for {named} and 2 more: the chains" in found.advice[0]
    assert found.not_agreed == ["log_joint", *(f"by_{k}" for k in range(1, 6))]


def test_what_is_constant_is_called_so():
    idata = chains([0, 0, 0, 0], [0, 0, 0, 0], noise=0)
    found = pmm.diagnose(idata)
    constant = found.table["note"] == "constant"
    assert constant["occupied clusters"]
    assert constant["distance from a partition"]
    assert found.table["r_hat"].notna().all()
    assert (found.table["r_hat"][constant] == 1).all()
    assert found.ok


def test_what_is_stuck_at_different_values_is_infinite():
    found = pmm.diagnose(chains([0, 0, 1, 0], [0, 0, -30, 0], noise=0))
    assert found.table.loc["distance from a partition", "r_hat"] == np.inf
    assert found.table.loc["distance from a partition", "note"] == "stuck at different values"
    assert any("stuck at different values" in item for item in found.advice)
    assert "Chain 2 found another matching (log joint 30." in found.advice[0]


@pytest.mark.parametrize(
    ("trace", "r_hat", "note"),
    [
        (np.ones((4, 50)), 1.0, "constant"),
        (np.full((4, 50), -3747.9) + 1e-10 * np.arange(50), 1.0, "constant"),
        (np.repeat([[0.0], [0.0], [1.0]], 50, axis=1), np.inf, "stuck at different values"),
        (np.tile(np.repeat([0.0, 1.0], 25), (4, 1)), np.inf, "stuck at different values"),
        (np.ones((1, 50)), np.nan, "constant"),
        (np.arange(3.0)[None], np.nan, ""),
        (np.arange(6.0).reshape(2, 3), np.nan, ""),
    ],
)
def test_mixing_of_hard_cases(trace, r_hat, note):
    found = mixing(trace)
    np.testing.assert_equal(found.r_hat, r_hat)
    assert found.note == note


@pytest.mark.parametrize("seed", range(3))
def test_the_worst_pair_is_the_one_with_the_largest_r_hat(seed):
    rng = np.random.default_rng(seed)
    together = rng.random((3, 41, 20)) < rng.random((3, 1, 20)) ** 2
    together[..., 3] = True
    r_hat = [mixing(together[..., i]).r_hat for i in range(20)]
    assert worst_of(together) == np.argmax(r_hat)
    assert worst_of(together[..., 3:5]) == 1
    # Stuck at different values is the worst of all.
    together[..., 7] = np.arange(3)[:, None] == 1
    assert worst_of(together) == 7
    assert worst_of(together[:1]) == 0


def test_rare_events_and_zeros_have_finite_r_hats():
    rng = np.random.default_rng(0)
    trace = rng.random((4, 300)) < 0.01
    assert 0.99 < mixing(trace).r_hat < 1.05
    trace[:] = False
    trace[2, 7] = True
    assert np.isfinite(mixing(trace).r_hat)
    assert mixing(np.zeros((2, 10))).note == "constant"


@pytest.mark.parametrize("shape", [(1, 200), (1, 1), (4, 1), (2, 3)])
def test_one_chain_or_few_draws(shape):
    idata = chains([0, 1, 0, 1][: shape[0]], [0] * shape[0], draws=shape[1])
    found = pmm.diagnose(idata)
    text = str(found)
    assert "nan" not in text.lower()
    assert not np.isfinite(found.table["r_hat"]).any() or shape[0] > 1
    assert any("one chain" in item for item in found.advice) == (shape[0] == 1)
    assert any("too small" in item for item in found.advice) == (shape[1] < 100)
    assert not any("R-hat" in item for item in found.advice)


def test_missing_groups_and_variables():
    idata = chains([0, 0], [0, 0])
    bare = pmm.diagnose(idata["posterior"].to_dataset()[["cluster_a", "cluster_b"]])
    assert "log_joint" not in bare.table.index
    assert "log_joint" not in bare.chains
    assert np.isnan(bare.filled)
    assert len(bare.table) == 4
    # Without assignments the rest is judged.
    rest = xr.DataTree.from_dict(
        {
            "posterior": idata["posterior"].to_dataset()[["precision"]],
            "sample_stats": idata["sample_stats"].to_dataset(),
        }
    )
    assert pmm.diagnose(rest).table.index.tolist() == ["log_joint", "precision"]
    with pytest.raises(KeyError, match=r"nothing to judge.*there are \['weights'\]"):
        pmm.diagnose(idata["posterior"].to_dataset()[["weights"]])
    # Statistics of other draws than the posterior's are left alone.
    thinned = xr.DataTree.from_dict(
        {
            "posterior": idata["posterior"].to_dataset().isel(draw=slice(None, None, 2)),
            "sample_stats": idata["sample_stats"].to_dataset(),
        }
    )
    assert "log_joint" not in pmm.diagnose(thinned).table.index


def test_moves_are_told_by_chain():
    found = pmm.diagnose(chains([0, 0], [0, 0])).chains
    assert found["moved"].tolist() == [0.25, 0.25]
    assert found["swap_accepted"].tolist() == [0.5, 0.5]


def test_a_filled_truncation():
    idata = chains([0, 0, 0, 0], [0, 0, 0, 0])
    posterior = idata["posterior"].to_dataset().isel(cluster=slice(3))
    # These might as well be sticks, one fewer than clusters.
    assert np.isnan(pmm.diagnose(posterior).filled)
    posterior["weights"] = posterior["weights"] / posterior["weights"].sum("cluster")
    found = pmm.diagnose(xr.DataTree.from_dict({"posterior": posterior}))
    occupied = [len(c) for c in clusters_of(idata, "a", "b")]
    assert found.filled == np.mean(np.array(occupied) >= 3)
    assert f"occupied in {found.filled:.0%} of the draws" in found.truncation[0]
    # What the sampler says about truncations comes first: it knows which are truncated.
    idata["sample_stats"]["filled"] = xr.zeros_like(idata["sample_stats"]["log_joint"])
    idata["posterior"] = posterior
    assert pmm.diagnose(idata).truncation == []


def test_the_log_joint_of_other_draws_is_left_out():
    idata = chains([0, 0, 0, 0], [0, 0, 0, 0])
    assert "log_joint" in pmm.diagnose(idata).table.index
    idata["prior"] = idata["posterior"].to_dataset()
    assert "log_joint" not in pmm.diagnose(idata, group="prior").table.index
    posterior = idata["posterior"].to_dataset().assign_coords(draw=range(200))
    stats = idata["sample_stats"].to_dataset().assign_coords(draw=range(200))
    halves = {"posterior": posterior.isel(draw=slice(100))}
    halves["sample_stats"] = stats.isel(draw=slice(100, None))
    assert "log_joint" not in pmm.diagnose(xr.DataTree.from_dict(halves)).table.index


def test_few_pairs_of_irrelevant_objects():
    idata = with_relevance(tree(), share=0.0)
    assert pmm.diagnose(idata, n_pairs=1).table.index[0] == "log_joint"


def test_further_variables_by_their_worst_entry():
    idata = chains([0, 0, 0, 0], [0, 0, 0, 0])
    shift = np.zeros((4, 1, 6))
    shift[3, 0, 4] = 5
    idata["posterior"]["weights"] = idata["posterior"]["weights"] + shift
    found = pmm.diagnose(idata, also=["weights"])
    assert found.table.loc["worst of weights: [4]", "r_hat"] > 1.5
    assert not found.ok
    assert pmm.diagnose(idata).ok
    with pytest.raises(KeyError, match="no variable 'x' among the draws"):
        pmm.diagnose(idata, also=["x"])


def test_several_sets_are_judged_apart():
    idata = typed()
    table = pmm.diagnose(idata).table
    for title in ("document_weights", "word_weights"):
        assert f"occupied clusters ({title})" in table.index
    own = pmm.diagnose(idata, var_names=["cluster_A_word", "cluster_B_word"]).table
    np.testing.assert_array_equal(
        table.loc["entropy of sizes (word_weights)"].to_numpy(),
        own.loc["entropy of sizes"].to_numpy(),
    )


def test_traces_by_their_definitions():
    idata = with_relevance(tree(5))
    (draws,) = read_sets(idata, None, "posterior", ("chain", "draw"))
    labels = pmm.partition_estimate(idata)
    reference = np.concatenate([labels["cluster_a"], labels["cluster_b"]])
    traces = partition_traces(draws, reference)
    objects = [("a", i) for i in range(7)] + [("b", i) for i in range(5)]
    found = clusters_of(idata, "a", "b")
    sizes = [np.array([len(c) for c in clusters]) for clusters in found]
    np.testing.assert_array_equal(traces["occupied clusters"], [len(n) for n in sizes])
    entropy = [-(n / n.sum() * np.log(n / n.sum())).sum() for n in sizes]
    np.testing.assert_allclose(traces["entropy of sizes"], entropy)
    # Variation of information from conditional entropies, irrelevant objects being alone.
    for draw, clusters in enumerate(found):
        own = [set(c) for c in clusters]
        own += [{o} for o in objects if not any(o in c for c in own)]
        other = [
            {o for o, r in zip(objects, reference, strict=True) if r == j}
            for j in set(reference) - {-1}
        ]
        other += [{o} for o, r in zip(objects, reference, strict=True) if r < 0]
        expected = 0.0
        for one in own:
            for two in other:
                if n := len(one & two):
                    expected -= n / 12 * (np.log2(n / len(one)) + np.log2(n / len(two)))
        assert traces["distance from a partition"][draw] == pytest.approx(expected, abs=1e-12)
    assert loss_between(reference, reference, "vi") == 0


@pytest.mark.parametrize("n_pairs", [30, 500])
def test_pairs_and_their_traces(n_pairs):
    idata = with_relevance(tree(9), names=("b",))
    (draws,) = read_sets(idata, None, "posterior", ("chain", "draw"))
    pairs = choose_pairs(draws, n_pairs, np.random.default_rng(0))
    assert len(pairs) == len(np.unique(pairs, axis=0)) <= n_pairs
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert (len(pairs) == 66) == (n_pairs == 500)
    objects = [("a", i) for i in range(7)] + [("b", i) for i in range(5)]
    expected = [
        [any({objects[i], objects[k]} <= set(c) for c in clusters) for i, k in pairs]
        for clusters in clusters_of(idata, "a", "b")
    ]
    np.testing.assert_array_equal(pair_traces(draws, pairs), expected)


def test_distances_of_chains():
    together = np.zeros((3, 4, 2), bool)
    together[:2, :, 0] = True
    together[1, :2, 1] = True
    together[2, :, 1] = True
    distance, within = chain_distances(together)
    # P is (1, 0), (1, 1/2) and (0, 1).
    np.testing.assert_allclose(distance, [[0, 0.2, 1], [0.2, 0, 0.6], [1, 0.6, 0]])
    np.testing.assert_allclose(within, np.array([0, 1 / 3, 0]) / np.sqrt(2))
    # What a chain's own halves lead one to expect is no disagreement.
    assert groups_of_chains(distance, within).tolist() == [0, 0, 1]
    assert groups_of_chains(distance, np.zeros(3)).tolist() == [0, 1, 2]
    assert groups_of_chains(*chain_distances(np.zeros((2, 1, 0), bool))).tolist() == [0, 0]


@few
@given(posteriors(), st.integers(0, 99))
def test_a_diagnosis_does_not_depend_on_labels(idata, seed):
    one, other = (pmm.diagnose(x) for x in (idata, relabelled(idata, seed)))
    pd.testing.assert_frame_equal(one.table, other.table)
    pd.testing.assert_frame_equal(one.chains, other.chains)
    assert str(one) == str(other)


def test_a_diagnosis_does_not_depend_on_the_order_of_chains():
    idata = chains([0, 1, 0], [0, -5, 0])
    turned = idata.isel(chain=[2, 0, 1])
    one, other = pmm.diagnose(idata), pmm.diagnose(turned)
    np.testing.assert_allclose(one.table["r_hat"], other.table["r_hat"])
    np.testing.assert_allclose(one.table["mean"], other.table["mean"])
    assert other.chains["group"].tolist() == [0, 0, 1]


def test_wrong_parameters_are_refused():
    with pytest.raises(
        ValueError, match=r"sample_dims: expected chains and draws; found \('draw',\)"
    ):
        pmm.diagnose(tree(), sample_dims=("draw",))
    with pytest.raises(ValueError, match="expected chains and draws; found 'draw'"):
        pmm.diagnose(tree(), sample_dims="draw")
    with pytest.raises(ValueError, match="n_pairs: expected a whole number of at least 1; found 0"):
        pmm.diagnose(tree(), n_pairs=0)


def test_few_full_draws_are_not_told():
    idata = tree()
    full = xr.zeros_like(idata["sample_stats"]["log_joint"])
    for number, told in ((5, False), (6, True)):  # of 60
        filled = (np.arange(full.size) < number).astype(float).reshape(full.shape)
        idata["sample_stats"]["filled"] = full.copy(data=filled)
        assert bool(pmm.diagnose(idata).truncation) is told


def test_equal_values_without_spread_are_no_best_matching():
    """Chain 1 is far above chain 0, as it has a cluster of equal values whose scale goes to 0."""
    x = np.array([[1.0, 0.3], [2.0, 0.3], [4.0, 0.3], [5.0, 1.0], [7.0, 2.0], [9.0, 0.1]])
    labels = np.array([[0, 0, 0, 0, 2, 2], [2, 2, 2, 0, 0, 0]])
    scale = np.ones((2, 100, 4, 2))
    scale[1, :, 2, 1] = 1e-30
    weights = np.tile([0.5, 1e-40, 0.5, 1e-30], (2, 100, 1))  # small where there are no objects
    mean = np.full((2, 100, 4, 2), 1.0)
    mean[1, :, 2] = [3.0, 0.3]

    def advice(scale, x, labels=labels, mean=mean, **more):
        draws = np.tile(labels[:, None], (1, 100, 1))
        draws[:, :60] = labels[:, None, ::-1]
        posterior = {
            "cluster_a": (("chain", "draw", "a"), draws),
            "scale": (("chain", "draw", "k", "column"), scale),
            "mean": (("chain", "draw", "k", "column"), mean),
            "weights": (("chain", "draw", "k"), weights),
        }
        stats = {"log_joint": (("chain", "draw"), np.tile([[0.0], [999.0]], (1, 100)))}
        tree = {
            "posterior": xr.Dataset(posterior | more),
            "sample_stats": xr.Dataset(stats),
            "observed_data": xr.Dataset({"y": (("row", "column"), x)}),
        }
        return pmm.diagnose(xr.DataTree.from_dict(tree)).convergence

    said = advice(scale, x)
    assert said[0].startswith(
        "Chain 1: 'scale' of cluster 2 is 1e-30, as 3 values of 'y' are 0.3. The density of equal "
        "values has no bound"
    )
    assert not any("best_chain" in own for own in said)
    flags = np.ones((2, 100, 6), int)
    flags[..., 2] = 0
    relevant = {"relevance_a": (("chain", "draw", "a"), flags)}
    assert "as 2 values of 'y'" in advice(scale, x, **relevant)[0]
    # Nothing of this, and the best chain is recommended.
    differ = x + np.arange(6)[:, None]
    for own in (
        advice(np.maximum(scale, 1e-3), x),  # a scale that is only small
        advice(scale, differ),
        advice(scale, x.astype(int), mean=np.floor(mean)),  # counts
        advice(scale, x, labels[[0, 0]] + [[0], [1]]),  # of a cluster that has no objects
        advice(scale, x, np.array([labels[0], [2, 0, 0, 0, 1, 1]])),  # of one object
        advice(np.where(scale < 1.0, -1.0, scale), x),  # means
        advice(scale, x, mean=mean + 1e-3),  # a rate, or a probability: the mean has its own scale
        advice(scale, x, mean=mean[..., ::-1]),  # of another column
    ):
        assert not any("no bound" in said for said in own)
    assert any("best_chain" in own for own in advice(scale, differ))
