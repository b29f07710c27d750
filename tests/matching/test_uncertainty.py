"""Probabilities of objects and of clusters, against lists of clusters written out."""

import itertools
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pm_match as pmm
from pm_match.matching.contingency import contingency
from pm_match.matching.set_draws import renumbered
from tests.declared.draws import tree, typed, with_relevance
from tests.matching.relabelled import clusters_of, posteriors, relabelled, shuffled

few = settings(max_examples=12, deadline=None, derandomize=True)


def spans(clusters, name, i):
    """Domains of the cluster that holds an object; none if it is irrelevant."""
    return next(({d for d, _ in c} for c in clusters if (name, i) in c), set())


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b")])
def test_unmatched_probability(names):
    idata = with_relevance(tree(), names=names)
    draws = clusters_of(idata, "a", "b")
    found = pmm.unmatched_probability(idata, "cluster_a")
    assert found.dims == ("a_object",)
    assert found["a_object"].to_numpy().tolist() == [f"a{i}" for i in range(7)]
    expected = [np.mean(["b" not in spans(c, "a", i) for c in draws]) for i in range(7)]
    np.testing.assert_allclose(found, expected)
    xr.testing.assert_identical(found, pmm.unmatched_probability(idata, "cluster_a", "cluster_b"))


def test_unmatched_among_the_same_objects_and_several_domains():
    idata = with_relevance(tree(6, (("a", 5), ("b", 3), ("c", 4))), names=("b",))
    draws = clusters_of(idata, "a", "b", "c")

    def company(clusters, i, among):
        own = next((c for c in clusters if ("a", i) in c), [])
        return any(d in among and (d, k) != ("a", i) for d, k in own)

    for among in ("a", "ab", "bc", "abc"):
        found = pmm.unmatched_probability(idata, "cluster_a", [f"cluster_{d}" for d in among])
        expected = [np.mean([not company(c, i, among) for c in draws]) for i in range(5)]
        np.testing.assert_allclose(found, expected)
    # All other domains are the default.
    xr.testing.assert_identical(
        pmm.unmatched_probability(idata, "cluster_a"),
        pmm.unmatched_probability(idata, "cluster_a", ["cluster_b", "cluster_c"]),
    )


def test_an_irrelevant_object_has_no_counterpart():
    idata = with_relevance(tree(1), share=0.0, names=("a",))
    np.testing.assert_array_equal(pmm.unmatched_probability(idata, "cluster_a"), 1)
    np.testing.assert_array_equal(pmm.unmatched_probability(idata, "cluster_b"), 1)
    np.testing.assert_array_equal(pmm.span_probability(idata, ["cluster_a"])["cluster_a"], 0)


@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("wanted", ["a", "b", "ab", "ac", "abc"])
def test_span_probability(exactly, wanted):
    idata = with_relevance(tree(6, (("a", 5), ("b", 3), ("c", 4))), names=("a", "c"))
    draws = clusters_of(idata, "a", "b", "c")
    names = [f"cluster_{d}" for d in wanted]
    found = pmm.span_probability(idata, names, exactly=exactly)
    for name in "abc":
        right = [
            [
                spans(c, name, i) == set(wanted) if exactly else set(wanted) <= spans(c, name, i)
                for c in draws
            ]
            for i in range(idata["posterior"].sizes[f"{name}_object"])
        ]
        np.testing.assert_allclose(found[f"cluster_{name}"], np.mean(right, axis=1))
        assert found[f"cluster_{name}"].dims == (f"{name}_object",)


def test_cluster_spans():
    idata = with_relevance(tree(6, (("a", 5), ("b", 3), ("c", 4))), names=("a", "c"))
    draws = clusters_of(idata, "a", "b", "c")
    table = pmm.cluster_spans(idata, ci_prob=0.5)
    for row in table.itertuples():
        domains = {d for d in "abc" if getattr(row, d)}
        number = [sum({d for d, _ in c} == domains for c in clusters) for clusters in draws]
        objects = [
            sum(len(c) for c in clusters if {d for d, _ in c} == domains) for clusters in draws
        ]
        np.testing.assert_allclose(
            [row.mean, row.sd, row.eti50_lb, row.eti50_ub, row.objects],
            [np.mean(number), np.std(number), *np.quantile(number, [0.25, 0.75]), np.mean(objects)],
        )
    assert table["mean"].sum() == pytest.approx(np.mean([len(c) for c in draws]))
    assert (table["mean"].diff().dropna() <= 0).all()


def test_cluster_spans_of_several_sets():
    table = pmm.cluster_spans(typed())
    assert table.index.get_level_values("clusters").unique().tolist() == [
        "document_weights",
        "word_weights",
    ]
    documents = table.loc["document_weights"]
    assert not documents[["A_word", "B_word"]].any(axis=None)
    np.testing.assert_array_equal(
        documents[["mean", "objects"]],
        pmm.cluster_spans(typed(), var_names=["cluster_A_document", "cluster_B_document"])[
            ["mean", "objects"]
        ],
    )


def test_relevance_probability():
    idata = with_relevance(tree(), names=("a",))
    found = pmm.relevance_probability(idata)
    np.testing.assert_allclose(
        found["cluster_a"], idata["posterior"]["relevance_a"].mean(("chain", "draw"))
    )
    np.testing.assert_array_equal(found["cluster_b"], 1)
    assert found["cluster_b"].dims == ("b_object",)


def written_out(idata, labels):
    """The tables of `match_summary` by their definitions, for domains a and b."""
    draws = clusters_of(idata, "a", "b")
    estimate = {
        (d, i): int(label)
        for d in "ab"
        for i, label in enumerate(labels[f"cluster_{d}"].to_numpy())
    }
    objects = []
    for own in estimate:
        place = {label: 0.0 for label in [*estimate.values(), "none"]}
        together, partners, relevant, unmatched = [], {"a": 0.0, "b": 0.0}, 0.0, 0.0
        others = [o for o, c in estimate.items() if c == estimate[own] and o != own]
        for clusters in draws:
            mine = next((c for c in clusters if own in c), [])
            with_it = [o for o in mine if o != own]
            relevant += bool(mine) / len(draws)
            if others:
                together.append(sum(o in with_it for o in others) / len(others))
            if all(o[0] == own[0] for o in with_it):
                unmatched += 1 / len(draws)
            if not with_it:
                place["none"] += 1 / len(draws)
            for other in with_it:
                place[estimate[other]] += 1 / len(with_it) / len(draws)
                partners[other[0]] += 1 / len(draws)
        assert sum(place.values()) == pytest.approx(1)
        entropy = -sum(q * np.log(q) for q in place.values() if q > 1e-12)
        confidence = np.mean(together) if others else np.nan
        if estimate[own] < 0:
            confidence = 1 - relevant
        objects.append(
            [relevant, confidence, place["none"], unmatched, entropy, partners["a"], partners["b"]]
        )
    clusters = []
    for label in sorted({c for c in estimate.values() if c >= 0}):
        members = {o for o, c in estimate.items() if c == label}
        rows = []
        for draw in draws:
            near = [len(members & set(c)) / len(members | set(c)) for c in draw] or [0.0]
            own = {o: c for c in draw for o in c}
            pairs = list(itertools.combinations(members, 2))
            rows.append(
                [
                    np.mean([len(own.get(o, [])) for o in members]),
                    np.mean([o in own and p in own[o] for o, p in pairs]) if pairs else np.nan,
                    any(members <= set(c) for c in draw),
                    max(near) > 0.5,
                    max(near),
                    any(members == set(c) for c in draw),
                ]
            )
        entropy = np.mean(
            [row[4] for o, row in zip(estimate, objects, strict=True) if o in members]
        )
        sizes = [sum(d == domain for d, _ in members) for domain in "ab"]
        clusters.append([*sizes, len(members), *np.mean(rows, axis=0), entropy])
    return np.array(clusters), np.array(objects)


@pytest.mark.parametrize("names", [(), ("a", "b")])
@pytest.mark.parametrize("estimate", ["default", "other"])
def test_match_summary_by_its_definitions(names, estimate):
    idata = with_relevance(tree(5), names=names)
    labels = pmm.partition_estimate(idata)
    if estimate == "other":  # numbers with a gap, and an object left out
        labels["cluster_a"].to_numpy()[:] = [0, 0, 3, 3, -1, 7, 3]
        labels["cluster_b"].to_numpy()[:] = [3, 3, 0, 8, -1]
    found = pmm.match_summary(idata, labels if estimate == "other" else None)
    clusters, objects = written_out(idata, labels)
    np.testing.assert_allclose(found.clusters, clusters, atol=1e-12)
    np.testing.assert_allclose(found.objects.iloc[:, 3:], objects, atol=1e-12)
    assert found.objects["object"].tolist() == [
        *(f"a{i}" for i in range(7)),
        *(f"b{i}" for i in range(5)),
    ]
    assert found.objects["cluster"].tolist() == [
        *labels["cluster_a"].to_numpy(),
        *labels["cluster_b"].to_numpy(),
    ]


def test_match_summary_of_what_is_certain():
    labels = {"a": [0, 0, 1, 2], "b": [0, 1, 1]}
    posterior = xr.Dataset(
        {
            f"cluster_{d}": (("chain", "draw", d), np.tile(values, (2, 5, 1)))
            for d, values in labels.items()
        }
    )
    found = pmm.match_summary(relabelled(xr.DataTree.from_dict({"posterior": posterior})))
    assert found.clusters[["together", "stays", "jaccard", "exact"]].eq(1).all(axis=None)
    assert found.clusters["expected_size"].tolist() == [3, 3, 1]
    np.testing.assert_allclose(found.objects["entropy"], 0, atol=1e-12)
    assert found.objects["alone"].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert found.objects["unmatched"].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert pmm.match_summary(tree(sizes=(("a", 4),))).objects["unmatched"].isna().all()


def test_match_summary_of_several_sets():
    found = pmm.match_summary(typed())
    own = pmm.match_summary(typed(), var_names=["cluster_A_word", "cluster_B_word"])
    words = found.clusters.loc["word_weights"]
    pd.testing.assert_frame_equal(words[own.clusters.columns], own.clusters)
    assert words["size_A_document"].eq(0).all()
    assert found.objects["domain"].drop_duplicates().tolist() == [
        "A_document",
        "B_document",
        "A_word",
        "B_word",
    ]


@few
@given(posteriors(), st.integers(0, 99))
def test_nothing_depends_on_labels_or_on_the_order_of_draws(idata, seed):
    name, other = [n for n in idata["posterior"].data_vars if n.startswith("cluster_")][:2]
    if "word" in other:
        other = other.replace("A_word", "B_document")
    labels = pmm.partition_estimate(idata)
    for same in (relabelled(idata, seed), shuffled(idata, seed)):
        for summary in (
            lambda x: pmm.match_probability(x, name, other),
            lambda x: pmm.unmatched_probability(x, name),
            lambda x: pmm.span_probability(x, [name, other]),
            lambda x: pmm.relevance_probability(x),
        ):
            xr.testing.assert_allclose(summary(idata), summary(same))
        pd.testing.assert_frame_equal(pmm.cluster_spans(idata), pmm.cluster_spans(same))
        for one, two in zip(
            pmm.match_summary(idata, labels), pmm.match_summary(same, labels), strict=True
        ):
            pd.testing.assert_frame_equal(one, two, atol=1e-12)


@few
@given(posteriors())
def test_probabilities_are_probabilities(idata):
    clusters, objects = pmm.match_summary(idata)
    for table, names in (
        (clusters, ["cohesion", "together", "stays", "jaccard", "exact"]),
        (objects, ["relevance", "confidence", "alone", "unmatched"]),
    ):
        values = table[names].to_numpy()
        assert ((values >= 0) & (values <= 1 + 1e-12) | np.isnan(values)).all()
    assert (objects["entropy"] >= -1e-12).all()
    # What is irrelevant has no partner.
    assert (objects["alone"] >= 1 - objects["relevance"] - 1e-12).all()
    assert (objects["unmatched"] >= objects["alone"] - 1e-12).all()


@few
@given(posteriors())
def test_match_probabilities_are_symmetric_and_irrelevant_objects_match_nothing(idata):
    a, b = [n for n in idata["posterior"].data_vars if n.startswith("cluster_")][-2:]
    a = a.replace("B_document", "A_word")  # of one set with b
    match = pmm.match_probability(idata, a, b)
    np.testing.assert_array_equal(match, pmm.match_probability(idata, b, a).T)
    relevance = pmm.relevance_probability(idata)
    own, other = (relevance[name].to_numpy() for name in (a, b))
    most = np.minimum.outer(own, other)
    assert (match.to_numpy() >= 0).all()
    assert (match.to_numpy() <= most + 1e-12).all()
    within = pmm.match_probability(idata, a, a).to_numpy()
    np.testing.assert_allclose(np.diag(within), own)


def test_what_cannot_be_said_is_refused():
    idata = typed()
    with pytest.raises(
        ValueError, match=r"'cluster_A_document' and 'cluster_A_word': expected clus"
    ):
        pmm.unmatched_probability(idata, "cluster_A_document", "cluster_A_word")
    with pytest.raises(ValueError, match="expected clusters of one set"):
        pmm.span_probability(idata, ["cluster_A_document", "cluster_A_word"])
    with pytest.raises(ValueError, match="domains: expected at least one"):
        pmm.span_probability(idata, [])
    with pytest.raises(ValueError, match="b: expected at least one"):
        pmm.unmatched_probability(idata, "cluster_A_word", [])
    with pytest.raises(
        ValueError, match=r"expected other domains with clusters of the set that 'cluster_a' has"
    ):
        pmm.unmatched_probability(tree(sizes=(("a", 3),)), "cluster_a")
    with pytest.raises(ValueError, match="ci_prob: expected a number between 0 and 1; found 89"):
        pmm.cluster_spans(idata, ci_prob=89)
    with pytest.raises(KeyError, match="no variable 'cluster_x'"):
        pmm.relevance_probability(idata, var_names=["cluster_x"])
    with pytest.raises(KeyError, match="no assignment variable"):
        pmm.cluster_spans(idata["posterior"].to_dataset()[["relevance_A_word"]])
    with pytest.raises(ValueError, match="found dim 'draw' of length 0"):
        pmm.cluster_spans(idata["posterior"].to_dataset().isel(draw=slice(0)))
    labels = pmm.partition_estimate(idata)
    with pytest.raises(KeyError, match="no labels of 'cluster_A_word'"):
        pmm.match_summary(idata, labels.drop_vars("cluster_A_word"))
    with pytest.raises(
        ValueError, match=r"'cluster_A_word': expected 8 whole numbers.* shape \(7,\)"
    ):
        pmm.match_summary(idata, labels.isel(A_word_object=slice(7)))
    with pytest.raises(ValueError, match="'cluster_A_document': expected 6 whole numbers"):
        pmm.match_summary(idata, labels.astype(float))


@pytest.mark.parametrize("far", [1, 10**12])
def test_occupied_clusters_are_renumbered(far):
    labels = np.array([5, 3, 9, 3, 4]) * far
    relevant = np.array([True, True, True, True, False])
    numbers, sizes = renumbered(labels, relevant)
    assert numbers.tolist() == [1, 0, 2, 0, -1]
    assert sizes.tolist() == [2, 1, 1]
    assert renumbered(labels, ~relevant)[0].tolist() == [-1, -1, -1, -1, 0]
    assert renumbered(labels, np.zeros(5, bool))[0].tolist() == [-1] * 5


@pytest.mark.parametrize("n_labels", [3, 90])
def test_contingency(n_labels):
    rng = np.random.default_rng(0)
    one, other = rng.integers(n_labels, size=(2, 60))
    cells = contingency(one, other)
    table = np.zeros((n_labels, n_labels), int)
    np.add.at(table, (one, other), 1)
    np.testing.assert_array_equal(np.argwhere(table), np.column_stack([cells.row, cells.column]))
    np.testing.assert_array_equal(cells.number, table[table > 0])
    np.testing.assert_array_equal(cells.row[cells.cell], one)
    np.testing.assert_array_equal(cells.column[cells.cell], other)


def test_no_matrix_of_pairs_is_built():
    """5,000 objects, 40 draws: a matrix of pairs would have 200 MB, the draws have 0.8 MB."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 900, (1, 40, 5000)).astype(np.int32)
    posterior = xr.Dataset({f"cluster_{d}": (("chain", "draw", d), values) for d in "ab"})
    labels = xr.Dataset({f"cluster_{d}": ((d,), values[0, 0]) for d in "ab"})
    tracemalloc.start()
    pmm.unmatched_probability(posterior, "cluster_a")
    pmm.span_probability(posterior, ["cluster_a"])
    pmm.cluster_spans(posterior)
    pmm.match_summary(posterior, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6
