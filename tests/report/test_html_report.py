import base64
import dataclasses
import gzip
import io
import json
import re
from html import escape
from html.parser import HTMLParser
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.matching import best_chain
from pm_match.plots.canvas import pyplot
from pm_match.report import html_report, page_data
from pm_match.report.profiles import profile, rows_of
from tests.declared.draws import tree, typed, with_relevance


def saved_tables(page):
    """The tables that the page offers to save, by file name."""
    found = re.findall(r'download="([^"]+)" href="data:text/csv[^,]*,([^"]+)"', page)
    return {name: pd.read_csv(io.BytesIO(base64.b64decode(code))) for name, code in found}


def packed_data(page):
    """What the page's script reads."""
    (code,) = re.findall(r'id="page-data">([A-Za-z0-9+/=]+)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(code)))


def written(idata, tmp_path, **options):
    path = pmm.report(idata, tmp_path / "page.html", **options)
    return path.read_text(encoding="utf-8")


def test_the_page_holds_all_it_shows(tmp_path):
    page = written(tree(), tmp_path)
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "http" not in re.sub(r'"data:[^"]+"', "", page)
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(images) >= 2
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)


def test_tables_are_those_of_the_summaries(tmp_path):
    idata = with_relevance(tree())
    labels = pmm.partition_estimate(idata)
    tables = saved_tables(written(idata, tmp_path, labels=labels))
    clusters, objects = pmm.match_summary(idata, labels)
    assert sorted(tables) == ["clusters.csv", "match_a_b.csv", "objects.csv"]
    pd.testing.assert_frame_equal(tables["clusters.csv"], clusters.reset_index(), rtol=1e-3)
    pd.testing.assert_frame_equal(tables["objects.csv"], objects, rtol=1e-3, check_dtype=False)
    best = pmm.match_probability(idata, "cluster_a", "cluster_b", top=3)
    pd.testing.assert_frame_equal(tables["match_a_b.csv"], best, rtol=1e-3, check_dtype=False)


def test_the_diagnosis_is_told_in_words(tmp_path):
    idata = tree()
    idata["sample_stats"]["log_joint"][0] += 50.0  # far above the other chain
    found = pmm.diagnose(idata)
    assert not found.ok
    page = written(idata, tmp_path)
    assert all(page.count(item) == 1 for item in found.advice)  # once
    assert "on the sampling. More draws" in page
    page = written(best_chain(idata), tmp_path, diagnosis=found)
    assert all(page.count(item) == 1 for item in found.advice)
    assert "only one chain" not in page


def test_chains_that_disagree_are_not_averaged_in_silence(tmp_path):
    idata = tree()
    for chain, labels in ((0, [0, 0, 0, 0, 1, 1, 1]), (1, [0, 1, 0, 1, 0, 1, 0])):
        idata["posterior"]["cluster_a"][chain] = labels
        idata["posterior"]["cluster_b"][chain] = labels[:5]
    page = written(idata, tmp_path, labels=pmm.partition_estimate(idata))
    assert "The chains disagree. Probabilities here are averages" in page
    best = best_chain(idata)
    found = "The chains disagree: 1 of 2 found the matching reported here, that of chain "
    page = written(best, tmp_path, diagnosis=pmm.diagnose(idata))
    assert found in page
    page = written(idata, tmp_path)  # by default, clusters are the best chain's
    assert found in page
    own = pmm.match_summary(idata, pmm.partition_estimate(best)).objects["cluster"]
    assert saved_tables(page)["objects.csv"]["cluster"].tolist() == own.tolist()
    page = written(idata["posterior"].to_dataset(), tmp_path)  # none is known to be the best
    assert "The chains disagree. Probabilities here are averages" in page


def test_what_is_said_in_short(tmp_path):
    idata = with_relevance(tree())
    labels = pmm.partition_estimate(idata)
    objects = pmm.match_summary(idata, labels).objects
    inside = objects[objects["cluster"] >= 0]
    page = written(idata, tmp_path, labels=labels)
    sure = int((inside["confidence"] > 0.9).sum())
    assert f"; {sure} of {len(objects)} objects are sure" in page
    outside = len(objects) - len(inside)
    assert (f", {outside} in no cluster." in page) == bool(outside)
    assert "maximised" not in page
    idata["posterior"].attrs["projections"] = "map"
    page = written(idata, tmp_path, labels={name: labels[name].to_numpy() for name in labels})
    assert "Projections were maximised" in page


def test_objects_without_a_counterpart_are_counted(tmp_path):
    own = {"cluster_a": [0, 0, 1, 1], "cluster_b": [0, 0, 0]}  # cluster 1 is in a alone
    posterior = xr.Dataset(
        {
            name: (("chain", "draw", f"{name}_object"), np.tile(values, (2, 5, 1)))
            for name, values in own.items()
        }
    )
    page = written(posterior, tmp_path)
    assert "2 objects probably have no counterpart in another domain" in page


def test_long_labels_are_not_rounded(tmp_path):
    days = 20200101.0 + np.arange(7)
    posterior = tree()["posterior"].to_dataset().assign_coords(a_object=days)
    tables = saved_tables(written(posterior, tmp_path))
    assert set(tables["match_a_b.csv"]["object"]) <= set(days)
    assert set(tables["objects.csv"]["object"][:7].astype(float)) == set(days)


def test_names_are_escaped(tmp_path):
    objects = [f"<script>{i}" for i in range(7)]
    posterior = tree()["posterior"].to_dataset().assign_coords(a_object=objects)
    page = written(posterior, tmp_path, title="<script>1 & 2")
    assert "<title>&lt;script&gt;1 &amp; 2</title>" in page
    assert "<script>" not in page


def test_sets_of_clusters_have_tables_of_their_own(tmp_path):
    page = written(typed(), tmp_path)
    assert page.count("<h3>document_weights</h3>") == page.count("<h3>word_weights</h3>") == 2
    documents = page.partition("<h3>document_weights</h3>")[2].partition("<h3>")[0]
    assert "size_A_document" in documents
    assert "word" not in documents
    assert {"match_A_document_B_document.csv", "match_A_word_B_word.csv"} < set(saved_tables(page))


def test_large_matrices_are_left_out(tmp_path, monkeypatch):
    page = written(tree(), tmp_path)
    assert "too many objects" not in page
    assert len(packed_data(page)["matrices"]) == 1
    monkeypatch.setattr(page_data, "_MOST_PARTNERS", 11)
    page = written(tree(), tmp_path)
    assert "too many objects" in page
    assert packed_data(page)["matrices"] == []
    assert "match_a_b.csv" in page


@pytest.mark.parametrize(
    "idata",
    [
        pytest.param(tree(sizes=(("a", 7),)), id="one domain"),
        pytest.param(tree().isel(chain=[0], draw=[0]), id="one draw"),
        pytest.param(tree()["posterior"].to_dataset(), id="posterior alone"),
    ],
)
def test_little_is_enough(idata, tmp_path):
    assert "Which clusters go together" in written(idata, tmp_path)


def test_data_are_drawn(tmp_path):
    rng = np.random.default_rng(0)
    tables = {"a": rng.normal(size=(7, 3)), "b": rng.normal(size=(5, 4))}
    without, drawn = (written(tree(), tmp_path, data=data) for data in (None, tables))
    assert "Data, ordered by cluster" not in without
    assert "Data, ordered by cluster" in drawn
    assert drawn.count("<img") == without.count("<img") + 1
    with pytest.raises(ValueError, match=r"data: no labels of 'A'; there are \['cluster_a'"):
        written(tree(), tmp_path, data={"A": tables["a"]})
    networks = {"A": rng.integers(0, 2, (6, 8)), "B": rng.integers(0, 2, (5, 7))}
    assert "Data, ordered by cluster" in written(typed(), tmp_path, data=networks)


def test_no_figure_stays_open(tmp_path):
    plt = pyplot()
    plt.close("all")
    written(tree(), tmp_path)
    with pytest.raises(ValueError, match="expected"):
        written(tree(), tmp_path, data={"a": np.eye(2)})
    assert plt.get_fignums() == []


def test_bad_input(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected the folder"):
        pmm.report(tree(), tmp_path / "none" / "page.html")
    with pytest.raises(KeyError, match="no assignment variable"):
        pmm.report(tree()["posterior"].to_dataset()[["projection_a"]], tmp_path / "page.html")
    with pytest.raises(TypeError, match="DataTree or a Dataset"):
        pmm.report({}, tmp_path / "page.html")


MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; alert(1); //",
    "</title></style><svg onload=alert(1)>",
    "&lt;b&gt;",
]


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [(tag, *(name for name, _ in attrs))]


def tags(page):
    parser = Tags()
    parser.feed(page)
    return {tag for tag in parser.found if tag[0] != "p"}


@pytest.mark.parametrize("text", MARKUP)
def test_labels_names_and_titles_are_escaped(tmp_path, text):
    # A DataTree allows no slashes in names; a Dataset does.
    plain = tree()["posterior"].to_dataset()
    name = f"cluster_{text}"
    posterior = plain.rename_vars(cluster_a=name)
    labels = [f"{text}{i}" for i in range(posterior.sizes["a_object"])]
    posterior = posterior.assign_coords(a_object=labels)
    for variable in (name, "cluster_b"):
        posterior[variable].attrs["clusters"] = text
    page = written(posterior, tmp_path, title=text)
    assert tags(page) <= tags(written(plain, tmp_path))
    assert escape(text) in page
    assert text not in page or text == escape(text) or text == MARKUP[2]


def test_names_of_sets_are_escaped(tmp_path):
    idata = typed()
    for name in ("cluster_A_word", "cluster_B_word"):
        idata["posterior"][name].attrs["clusters"] = MARKUP[0]
    posterior = idata["posterior"].to_dataset()
    # What is said of matches names the domains of every set.
    posterior = posterior.rename_vars(cluster_A_document=f"cluster_{MARKUP[0]}")
    page = written(posterior, tmp_path)
    assert "<script>" not in page
    assert escape(MARKUP[0]) in page
    assert f"({escape(MARKUP[0])}, B_document), taken at random" in page


def test_advice_is_escaped(tmp_path):
    found = dataclasses.replace(pmm.diagnose(tree()), convergence=[MARKUP[0]])
    page = written(tree(), tmp_path, diagnosis=found)
    assert "<script>" not in page
    assert page.count(escape(MARKUP[0])) == 1


def test_saved_tables_hold_no_formulas(tmp_path):
    idata = tree()
    labels = ["=1+1", "+1+1", "@SUM(A1)", "-1-1", "e", "f", "g"]
    idata["posterior"] = xr.DataTree(idata["posterior"].to_dataset().assign_coords(a_object=labels))
    tables = saved_tables(written(idata, tmp_path))
    found = tables["objects.csv"]["object"].tolist()
    assert found[:5] == ["'=1+1", "'+1+1", "'@SUM(A1)", "'-1-1", "e"]


def test_what_matches_are_worth_beside_chance_is_told(tmp_path):
    # Labels drawn at random, four clusters: a quarter of all pairs is together, again or not.
    page = written(tree(), tmp_path)
    assert re.search(r"taken at random, share a cluster with probability 0\.2\d;", page)
    assert "hardly tell objects apart" in page
    idata = tree()
    for name in ("cluster_a", "cluster_b"):
        idata["posterior"][name][:] = idata["posterior"][name][0, 0]
    page = written(idata, tmp_path)
    assert "share one in another with 1" in page
    assert "hardly" not in page


def test_partners_on_the_page_are_those_of_the_draws(tmp_path):
    idata = with_relevance(tree())
    data = packed_data(written(idata, tmp_path))
    assert [own["title"] for own in data["domains"]] == ["a", "b"]
    assert data["domains"][1]["objects"] == [f"b{i}" for i in range(5)]
    together = pmm.match_probability(idata, "a", "b").to_numpy()
    (pair,) = data["pairs"]
    for lists, values in ((pair["ab"], together), (pair["ba"], together.T)):
        for own, expected in zip(lists, values, strict=True):
            assert len(own) == np.count_nonzero(expected)
            assert [p for _, p in own] == sorted((p for _, p in own), reverse=True)
            for j, p in own:
                assert p == pytest.approx(expected[j], abs=6e-4)
    (matrix,) = data["matrices"]
    cells = np.frombuffer(gzip.decompress(base64.b64decode(matrix["code"])), np.uint8)
    ordered = together[np.ix_(*matrix["order"])]
    np.testing.assert_allclose(cells.reshape(7, 5), 100 * ordered, atol=0.51)


def test_large_matrices_are_means_of_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(page_data, "_MOST_CELLS", 9)
    idata = tree()
    (matrix,) = packed_data(written(idata, tmp_path))["matrices"]
    rows, columns = matrix["edges"]
    assert rows == [0, 3, 6, 7]
    cells = np.frombuffer(gzip.decompress(base64.b64decode(matrix["code"])), np.uint8)
    ordered = pmm.match_probability(idata, "a", "b").to_numpy()[np.ix_(*matrix["order"])]
    for i, j in np.ndindex(3, 3):
        mean = ordered[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean()
        assert cells.reshape(3, 3)[i, j] == pytest.approx(100 * mean, abs=0.51)


def test_rows_and_profiles_are_those_of_the_data(tmp_path):
    labels = {"a": [0, 0, 0, 1, 1, 1, 1], "b": [0, 0, 1, 1, 2]}
    posterior = xr.Dataset(
        {
            f"cluster_{name}": (("chain", "draw", f"{name}_object"), np.tile(own, (2, 5, 1)))
            for name, own in labels.items()
        }
    )
    a = pd.DataFrame({"size": [9.0, 9, 9, 1, 1, 1, 1], "kind": [*"xxxyyy", None]})
    b = pd.DataFrame({"size": [8.0, 8, np.nan, 2, 2], "<b>": [5, 4, 3, 2, 1]}) * [1, 1000]
    page = written(posterior, tmp_path, data={"a": a, "b": b}, titles={"a": "shop <1>"})
    one, other = packed_data(page)["domains"]
    assert one["title"] == "shop <1>"
    assert one["columns"] == ["size", "kind"]
    assert one["rows"][6] == [1.0, None]
    assert other["rows"][2] == [None, 3000]
    assert "1 object probably has no counterpart in another domain" in page
    told = re.sub(r"<[^>]+>", " ", page.partition("What each cluster is like")[2])
    first = " ".join(told.partition("Cluster 1")[0].split())
    assert "shop &lt;1&gt; : 4 objects" in first  # cluster 0, the largest
    assert "kind: y 100% ( 50%)" in first.replace("(50%", "( 50%")
    assert "size 1 (4.43)" in first
    assert "&lt;b&gt; 2,500 (3,000)" in first
    assert "b : 1 object " in " ".join(told.split())
    assert "Data, ordered by cluster" not in page  # which takes numbers


def test_clusters_of_images_are_shown_by_examples(tmp_path):
    group = {"a": np.array([0, 0, 0, 1, 1, 1, 1]), "b": np.array([1, 0, 1, 0, 0])}
    draws = {
        f"cluster_{name}": (("chain", "draw", f"{name}_object"), np.tile(own, (2, 9, 1)))
        for name, own in group.items()
    }
    draws["cluster_a"][1][:, ::3, 0] = 1  # the least sure of its cluster
    data = {
        name: np.arange(6.0) + 10.0 * np.arange(len(own))[:, None] for name, own in group.items()
    }
    page = written(
        xr.Dataset(draws), tmp_path, data=data, image_of=lambda table: table.reshape(-1, 2, 3)
    )
    found = re.findall(
        r'<img class="examples" alt="Examples of cluster (.) in (.)" src="data:[^,]*,([^"]*)"', page
    )
    assert [own[:2] for own in found] == [(cluster, name) for cluster in "01" for name in "ab"]
    labels = pmm.partition_estimate(xr.Dataset(draws))
    for cluster, name, code in found:
        shown = pyplot().imread(io.BytesIO(base64.b64decode(code)))
        members = np.flatnonzero(labels[f"cluster_{name}"] == int(cluster))
        assert shown.shape == (2, 4 * len(members) - 1, 4)
        # The surest first: darker, the larger.
        dark = [1 - shown[0, 4 * k, 0] for k in range(len(members))]
        order = [*members[1:], members[0]] if 0 in members and name == "a" else members
        assert (np.argsort(dark) == np.argsort(order)).all()
    with pytest.raises(ValueError, match=r"image_of: expected an image for each of the 7 objects"):
        written(xr.Dataset(draws), tmp_path, data=data, image_of=lambda table: table)


def test_networks_are_told_by_their_strongest_columns():
    counts = np.array([[5, 0, 1], [4, 0, 1], [0, 3, 1], [0, 2, 1]])
    labels = xr.Dataset(
        {
            "cluster_n_text": ("text", [0, 0, 1, 1]),
            "cluster_n_word": ("word", [0, 1, 2]),
        },
        coords={"word": ["ball", "vote", "the"]},
    )
    rows = rows_of(labels, {"n": counts})
    assert set(rows) == {"n_text", "n_word"}
    found = profile(rows["n_text"], np.array([True, True, False, False]), 3)
    assert [(own.name, own.here, own.overall) for own in found] == [("ball", "4.5", "2.2")]
    assert rows["n_text"].told(9) == (
        None,
        [
            [["ball", 5.0], ["the", 1.0]],
            [["ball", 4.0], ["the", 1.0]],
            [["vote", 3.0], ["the", 1.0]],
            [["vote", 2.0], ["the", 1.0]],
        ],
    )


def test_where_it_comes_from_is_told(tmp_path):
    page = written(tree(), tmp_path, provenance={"Data of <a>": "7 × 8"})
    assert '<th scope="row">Data of &lt;a&gt;</th><td>7 × 8</td>' in page
    assert f"pm_match {version('pm_match')}, pymc {version('pymc')}" in page
    assert re.search(r"<td>20\d\d-\d\d-\d\d \d\d:\d\d UTC</td>", page)


def test_what_sorts_and_searches_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(html_report, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"reports need itables.*pm_match\[examples\]"):
        pmm.report(tree(), tmp_path / "page.html")


def test_a_large_page_is_no_larger_than_five_megabytes(tmp_path):
    n, rng = 2000, np.random.default_rng(0)
    posterior, data = {}, {}
    for name in "ab":
        labels = np.tile(rng.integers(0, 8, n), (2, 10, 1))
        moved = rng.random(labels.shape) < 0.3  # as unsure as a matching that is of any use
        labels[moved] = rng.integers(0, 8, moved.sum())
        posterior[f"cluster_{name}"] = (("chain", "draw", f"{name}_object"), labels)
        data[name] = rng.normal(size=(n, 30))
    path = pmm.report(xr.Dataset(posterior), tmp_path / "page.html", data=data)
    assert path.stat().st_size < 5_000_000


def test_rows_are_shown_under_their_objects_names(tmp_path):
    labels = {"a": [0, 0, 0, 1, 1, 1, 1], "b": [0, 0, 1, 1, 1]}
    names = {f"{name}_object": [f"{name}{i}" for i in range(len(labels[name]))] for name in "ab"}
    posterior = xr.Dataset(
        {
            f"cluster_{name}": (("chain", "draw", f"{name}_object"), np.tile(own, (2, 5, 1)))
            for name, own in labels.items()
        },
        coords=names,
    )
    tables = {
        name: pd.DataFrame({"x": np.arange(len(own)) + 0.5}, names[f"{name}_object"])
        for name, own in labels.items()
    }
    data = {name: own.iloc[::-1] for name, own in tables.items()}
    page = written(posterior, tmp_path, data=data, image_of=lambda own: own.to_numpy()[..., None])
    for name, own in zip("ab", packed_data(page)["domains"], strict=True):
        assert own["objects"] == list(tables[name].index)
        assert own["rows"] == tables[name].to_numpy().tolist()
    same = written(posterior, tmp_path, data=tables, image_of=lambda t: t.to_numpy()[..., None])
    examples = r'class="examples"[^>]*base64,([^"]*)"'
    assert re.findall(examples, page) == re.findall(examples, same)
    data["a"] = data["a"].rename({"a3": "p3"})
    with pytest.raises(ValueError, match="data of 'a': expected the objects of the draws, such"):
        written(posterior, tmp_path, data=data)


def test_networks_may_be_in_another_order_than_labels(tmp_path):
    counts = pd.DataFrame([[5, 0, 1], [0, 3, 1]], ["s", "t"], ["ball", "vote", "the"])
    labels = xr.Dataset(
        {"cluster_n_text": ("text", [0, 1]), "cluster_n_word": ("word", [0, 1, 1])},
        coords={"text": counts.index, "word": counts.columns},
    )
    own = html_report._in_order(labels, {"n": counts.iloc[::-1, ::-1]})
    pd.testing.assert_frame_equal(own["n"], counts)
    labels = xr.Dataset({"cluster_n_word": ("word", [0, 1, 1])}, {"word": counts.columns})
    square = pd.DataFrame(np.arange(9).reshape(3, 3), counts.columns, counts.columns)
    own = html_report._in_order(labels, {"n": square.iloc[::-1, ::-1]})
    pd.testing.assert_frame_equal(own["n"], square)


def test_runs_that_were_put_together_are_reported(tmp_path):
    posterior = tree()["posterior"].to_dataset()
    size = {"chain": posterior["chain"], "draw": posterior["draw"]}
    values = np.arange(posterior["cluster_a"][..., 0].size).reshape(len(size["chain"]), -1)
    stats = xr.Dataset(
        {name: (tuple(size), values) for name in ("log_joint", "n_occupied")}, coords=size
    )
    both = {
        group: xr.concat([own, own], "chain")
        for group, own in (("posterior", posterior), ("sample_stats", stats))
    }
    page = written(xr.DataTree.from_dict(both), tmp_path)
    assert "Log joint and occupied clusters" in page


def test_data_may_be_named_as_users_do(tmp_path):
    idata = tree(sizes=(("my_shop", 7), ("b", 5)))
    rng = np.random.default_rng(0)
    data = {"my shop": rng.normal(size=(7, 2)), "b": rng.normal(size=(5, 2))}
    page = written(idata, tmp_path, data=data)
    assert [own["title"] for own in packed_data(page)["domains"]] == ["my shop", "b"]
    assert "Data, ordered by cluster" in page
    page = written(idata, tmp_path, data=data, titles={"my_shop": "north"})
    assert [own["title"] for own in packed_data(page)["domains"]] == ["north", "b"]


@pytest.mark.parametrize("strange", [1.0, np.nan, np.inf])
def test_columns_that_do_not_vary_are_not_drawn(tmp_path, monkeypatch, strange):
    rng = np.random.default_rng(0)
    data = {name: pd.DataFrame(rng.normal(size=(n, 2))) for name, n in (("a", 7), ("b", 5))}
    data["a"].loc[0] = np.nan
    data["a"]["same"] = strange
    drawn = []
    draw = html_report.plots.plot_matched_data
    monkeypatch.setattr(
        html_report.plots,
        "plot_matched_data",
        lambda labels, tables: drawn.append(tables) or draw(labels, tables),
    )
    page = written(tree(), tmp_path, data=data)
    assert "Data, ordered by cluster" in page
    assert [list(own) for own in drawn[0].values()] == [[0, 1], [0, 1]]
    assert packed_data(page)["domains"][0]["columns"] == ["0", "1", "same"]
    data["a"] = data["a"][["same"]]
    assert "Data, ordered by cluster" not in written(tree(), tmp_path, data=data)
