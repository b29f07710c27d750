"""Decisions maximise the utility that they state, over everything that could be decided."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pm_match as pmm
from tests.declared.draws import tree, typed, with_relevance
from tests.matching.relabelled import posteriors, relabelled, shuffled

few = settings(max_examples=25, deadline=None, derandomize=True)
PAIR = ("cluster_a", "cluster_b")
pytestmark = pytest.mark.filterwarnings("ignore:(any two objects|one draw)")


def small(seed, relevant=True):
    idata = tree(3, (("a", 4), ("b", 3)), seed)
    return with_relevance(idata, seed=seed) if relevant else idata


def matchings(n, m):
    """All sets of pairs in which nothing is twice: each row with a column or with none."""
    for columns in itertools.product([None, *range(m)], repeat=n):
        chosen = [c for c in columns if c is not None]
        if len(set(chosen)) == len(chosen):
            yield [(i, c) for i, c in enumerate(columns) if c is not None]


@few
@given(st.integers(0, 10**6), st.floats(0, 0.99), st.booleans())
def test_one_to_one_maximises_its_utility(seed, threshold, relevant):
    idata = small(seed, relevant)
    match = pmm.match_probability(idata, *PAIR).to_numpy()
    best = max(sum(match[p] - threshold for p in links) for links in matchings(*match.shape))
    found = pmm.decide(idata, *PAIR, rule="one-to-one", threshold=threshold)
    assert found.attrs["utility"] == pytest.approx(best)
    assert found.attrs["exact"]
    assert not found["object"].duplicated().any()
    assert not found["partner"].duplicated().any()
    gains = [match[int(o[1:]), int(p[1:])] for o, p in found[["object", "partner"]].to_numpy()]
    np.testing.assert_allclose(found["probability"], gains)
    assert sum(gains) - threshold * len(gains) == pytest.approx(best)


@few
@given(st.integers(0, 10**6), st.floats(0, 0.99))
def test_many_to_many_maximises_its_utility(seed, threshold):
    idata = small(seed)
    match = pmm.match_probability(idata, *PAIR).to_numpy()
    found = pmm.decide(idata, *PAIR, threshold=threshold)  # the default
    assert found.attrs["rule"] == "many-to-many"
    assert found.attrs["utility"] == pytest.approx(np.clip(match - threshold, 0, None).sum())
    linked = {(int(o[1:]), int(p[1:])) for o, p in found[["object", "partner"]].to_numpy()}
    assert linked == set(zip(*np.nonzero(match > threshold), strict=True))
    assert (found["decision"] == "link").all()


def test_within_a_domain_every_pair_is_listed_once():
    idata = small(3)
    match = pmm.match_probability(idata, "cluster_a", "cluster_a").to_numpy()
    for top in (None, 3, 10):
        found = pmm.decide(
            idata, "cluster_a", "cluster_a", rule="many-to-many", threshold=0.1, top=top
        )
        expected = [(i, k) for i, k in itertools.combinations(range(4), 2) if match[i, k] > 0.1]
        assert [
            (int(o[1:]), int(p[1:])) for o, p in found[["object", "partner"]].to_numpy()
        ] == expected
        np.testing.assert_allclose(found["probability"], [match[p] for p in expected])
    lonely = pmm.decide(
        idata, "cluster_a", "cluster_a", rule="many-to-many", threshold=0.9, keep_unmatched=True
    )
    np.testing.assert_allclose(
        lonely["probability"], pmm.unmatched_probability(idata, "cluster_a", "cluster_a")
    )


@few
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(["one-to-one", "many-to-many"]))
def test_few_partners_are_exact_when_they_say_so(seed, top, rule):
    idata = small(seed)
    whole = pmm.decide(idata, *PAIR, rule=rule, threshold=0.15)
    part = pmm.decide(idata, *PAIR, rule=rule, threshold=0.15, top=top)
    assert part.attrs["utility"] <= whole.attrs["utility"] + 1e-12
    if part.attrs["exact"]:
        assert part.attrs["utility"] == pytest.approx(whole.attrs["utility"])
    if top >= 3:
        assert part.attrs["exact"]


def test_a_probability_at_the_threshold_is_not_above_it():
    together = np.r_[np.zeros(29, int), np.ones(71, int)][None, :, None]
    posterior = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "i"), np.zeros_like(together)),
            "cluster_b": (("chain", "draw", "k"), together),
        }
    )
    for rule in ("one-to-one", "many-to-many"):
        options = {"rule": rule, "threshold": 0.29}  # 0.29 * 100 is a bit less than 29
        assert not len(pmm.decide(posterior, "cluster_a", "cluster_b", **options))


def test_what_few_partners_leave_out_is_told():
    posterior = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "a"), np.zeros((1, 4, 2), int)),
            "cluster_b": (("chain", "draw", "b"), np.zeros((1, 4, 2), int)),
        }
    )
    one = pmm.decide(posterior, *PAIR, rule="one-to-one", top=1)
    assert len(one) == 1  # both objects of a have the same first partner
    assert not one.attrs["exact"]
    assert len(pmm.decide(posterior, *PAIR, rule="one-to-one", top=2)) == 2


def test_parts_with_large_and_small_clusters():
    """Connected parts of many sizes, against SciPy's dense solver."""
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(0)
    base = rng.choice(12, size=40, p=np.arange(1, 13) / 78)
    values = {
        d: np.where(rng.random((2, 30, 40)) < 0.8, base, rng.integers(0, 12, (2, 30, 40)))
        for d in "ab"
    }
    values["b"] = values["b"][..., :33]
    posterior = xr.Dataset({f"cluster_{d}": (("chain", "draw", d), v) for d, v in values.items()})
    match = pmm.match_probability(posterior, *PAIR).to_numpy()
    for threshold in (0.0, 0.3, 0.62):
        gain = np.clip(match - threshold, 0, None)
        best = gain[linear_sum_assignment(gain, maximize=True)].sum()
        found = pmm.decide(posterior, *PAIR, rule="one-to-one", threshold=threshold)
        assert found.attrs["utility"] == pytest.approx(best)


def test_unmatched_and_undecided():
    idata = small(5)
    options = {"rule": "one-to-one", "threshold": 0.2}
    links = pmm.decide(idata, *PAIR, **options)
    found = pmm.decide(idata, *PAIR, **options, abstain=0.5, keep_unmatched=True)
    paired = found[found["object"].notna() & found["partner"].notna()]
    pd.testing.assert_frame_equal(
        paired.drop(columns="decision"), links.drop(columns="decision"), check_dtype=False
    )
    assert found.attrs["utility"] == links.attrs["utility"]
    assert sorted(found["object"].dropna()) == ["a0", "a1", "a2", "a3"]
    assert sorted(found["partner"].dropna()) == ["b0", "b1", "b2"]
    expected = np.where(found["probability"] < 0.5, "abstain", "link").astype(object)
    alone = found["object"].isna() | found["partner"].isna()
    expected[alone & (found["probability"] >= 0.5)] = "unmatched"
    assert found["decision"].tolist() == expected.tolist()
    assert {"abstain", "unmatched"} <= set(found["decision"])
    for side, other in (PAIR, PAIR[::-1]):
        column = "object" if side == "cluster_a" else "partner"
        probability = pmm.unmatched_probability(idata, side, other).to_series()
        mine = found[alone & found[column].notna()]
        np.testing.assert_allclose(mine["probability"], probability[mine[column]])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_unlike_everything_is_rejected(seed):
    idata = with_relevance(tree(9, (("a", 4), ("b", 3), ("c", 2)), seed), seed=seed)
    alone = pmm.match_summary(idata).objects.set_index("object")["alone"]
    level = float(alone.iloc[:7].median())
    rejected = set(alone[alone >= level].index)
    options = {"threshold": 0.05, "keep_unmatched": True}
    for rule in ("many-to-many", "one-to-one"):
        found = pmm.decide(idata, *PAIR, rule=rule, reject=level, **options)
        links = found[found["decision"] == "link"]
        assert not rejected & {*links["object"], *links["partner"]}
        own = found[found["decision"] == "reject"]
        names = own["object"].fillna(own["partner"])
        assert set(names) == rejected - {"c0", "c1"}
        np.testing.assert_allclose(own["probability"], alone[names])
        # The others are decided as if these were not there.
        kept = pmm.decide(idata, *PAIR, **options).query("decision == 'link'")
        if rule == "many-to-many":
            kept = kept[~kept["object"].isin(rejected) & ~kept["partner"].isin(rejected)]
            pd.testing.assert_frame_equal(
                links[["object", "partner"]], kept[["object", "partner"]].reset_index(drop=True)
            )
    assert len(pmm.decide(idata, *PAIR, reject=0.0)) == 0
    with pytest.raises(ValueError, match="reject: expected a probability; found 2"):
        pmm.decide(idata, *PAIR, reject=2)


def test_new_objects_are_no_company_for_each_other():
    known = np.tile([0, 0, 1], (1, 10, 1))
    new = np.tile([2, 2, 1], (1, 10, 1))  # the first two in a cluster that nothing known is in
    idata = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "a"), known),
            "cluster_b": (("chain", "draw", "b"), known),
            "cluster_b_new": (("chain", "draw", "b_new"), new),
        }
    )
    found = pmm.decide(idata, "b_new", "a", keep_unmatched=True, reject=0.9)
    assert found.query("decision == 'reject'")["object"].tolist() == [0, 1]
    assert found.query("decision == 'unmatched'")["partner"].tolist() == [0, 1]


def test_the_cost_of_a_wrong_link():
    """A pair is worth a link if its odds are better than cost against gain."""
    labels = np.zeros((1, 10, 1), int)
    other = labels.copy()
    other[0, :3] = 1
    posterior = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "a"), labels),
            "cluster_b": (("chain", "draw", "b"), other),
        }
    )
    assert len(pmm.decide(posterior, *PAIR, threshold=0.69)) == 1
    assert len(pmm.decide(posterior, *PAIR, threshold=0.71)) == 0


def test_nothing_to_link():
    idata = with_relevance(small(0, relevant=False), share=0.0)
    found = pmm.decide(idata, *PAIR, keep_unmatched=True)
    assert (found["decision"] == "unmatched").all()
    assert (found["probability"] == 1).all()
    assert found.attrs["utility"] == 0
    assert pmm.decide(idata, *PAIR).columns.tolist() == [
        "object",
        "partner",
        "probability",
        "decision",
    ]


@few
@given(posteriors(), st.integers(0, 99))
def test_decisions_do_not_depend_on_labels_or_the_order_of_draws(idata, seed):
    a, *_, b = (n for n in idata["posterior"].data_vars if n.startswith("cluster_"))
    if "word" in b:
        a = "cluster_A_word"
    for rule in ("one-to-one", "many-to-many"):
        options = {"rule": rule, "threshold": 0.2, "keep_unmatched": True}
        found = pmm.decide(idata, a, b, **options)
        assert found["probability"].between(0, 1).all()
        for same in (relabelled(idata, seed), shuffled(idata, seed)):
            pd.testing.assert_frame_equal(found, pmm.decide(same, a, b, **options))


def test_wrong_parameters_are_refused():
    idata = tree()
    for options, message in (
        ({"rule": "best"}, "rule: expected 'one-to-one' or 'many-to-many'; found 'best'"),
        ({"threshold": 1.0}, r"threshold: expected a number from 0 to less than 1; found 1\.0"),
        ({"abstain": -0.1}, "abstain: expected a probability; found -0.1"),
        ({"top": 0}, "top: expected a whole number of at least 1; found 0"),
    ):
        with pytest.raises(ValueError, match=message):
            pmm.decide(idata, *PAIR, **options)
    with pytest.raises(
        ValueError, match=r"expected 'many-to-many' within a domain; .* 'cluster_a' twice"
    ):
        pmm.decide(idata, "cluster_a", "cluster_a", rule="one-to-one")
    with pytest.raises(ValueError, match="expected clusters of one set"):
        pmm.decide(typed(), "cluster_A_document", "cluster_A_word")


@few
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_chance_is_the_mean_over_all_pairs(seed, relevant, twice):
    idata, pair = small(seed, relevant), ("cluster_a", "cluster_a") if twice else PAIR
    match = pmm.match_probability(idata, *pair)
    values = match.to_numpy()
    pairs = values[~np.eye(len(values), dtype=bool)] if twice else values
    assert match.attrs["chance"] == pytest.approx(pairs.mean())
    found = pmm.decide(idata, *pair, rule="many-to-many")
    assert found.attrs["chance"] == pytest.approx(pairs.mean())
    table = pmm.match_probability(idata, *pair, top=2)
    assert table.attrs["chance"] == pytest.approx(pairs.mean())


def test_one_cluster_tells_nothing_apart():
    idata = small(0, relevant=False)
    posterior = idata["posterior"].to_dataset()
    one = posterior.assign({name: xr.zeros_like(posterior[name]) for name in PAIR})
    with pytest.warns(
        UserWarning, match=r"any two objects share .* probability 1\.00.*hardly tell"
    ):
        pmm.decide(one, *PAIR, rule="many-to-many")


@pytest.mark.parametrize(
    ("share", "threshold", "warns"), [(0.6, 0.3, True), (0.6, 0.7, False), (0.4, 0.3, False)]
)
def test_what_chance_has_is_held_against_the_threshold(share, threshold, warns):
    """All objects are together in a share of ten draws, and apart in the others."""
    draws = np.arange(10)[:, None] < 10 * share
    labels = {name: np.where(draws, 0, np.arange(4) + 4 * n) for n, name in enumerate(PAIR)}
    posterior = xr.Dataset(
        {name: (("chain", "draw", name[-1]), own[None]) for name, own in labels.items()}
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pmm.decide(posterior, *PAIR, threshold=threshold)
    assert bool(caught) is warns


def test_one_draw_is_no_probability():
    posterior = small(0, relevant=False)["posterior"].to_dataset()
    with pytest.warns(UserWarning, match="one draw: its probabilities are 0 and 1"):
        pmm.decide(posterior.isel(chain=[0], draw=[0]), *PAIR)
