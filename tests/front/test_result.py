"""Verdicts, of made-up draws that are sure, in doubt, of two minds, or about nothing."""

import itertools
import pickle
import time
from html import escape

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.front.provenance import fingerprint, provenance
from pm_match.front.write import _figures
from pm_match.tables.domains import as_labels

N = {"a": 12, "b 2": 9}
GROUP = {name: np.arange(n) % 3 for name, n in N.items()}


def drawn(chains, log_joint=(0.0, 0.0), relevance=None, indexes=None):
    """A result of draws of labels: by chain, functions from a domain to (draws, objects)."""
    data = {
        name: pd.DataFrame(np.random.default_rng(0).normal(size=(n, 2)), columns=["<u>", name])
        for name, n in N.items()
    }
    for name, index in (indexes or {}).items():
        data[name].index = index
    prepared = pmm.prepare(data)
    names = {"a": "a", "b 2": "b_2"}
    posterior = {
        f"cluster_{names[name]}": (
            ("chain", "draw", f"{names[name]}_object"),
            np.stack([chain(name) for chain in chains]),
        )
        for name in N
    }
    if relevance is not None:
        posterior["relevance_a"] = (("chain", "draw", "a_object"), relevance)
    objects = {
        f"{names[name]}_object": as_labels(name, "row", data[name].index) for name in indexes or {}
    }
    shape = (len(chains), len(chains[0]("a")))
    stats = np.random.default_rng(1).normal(size=shape) + np.array(log_joint)[: shape[0], None]
    idata = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(posterior, coords={"chain": range(shape[0]), **objects}),
            "sample_stats": xr.Dataset(
                {
                    "log_joint": (("chain", "draw"), stats),
                    "n_occupied": (("chain", "draw"), np.full(shape, 3)),
                }
            ),
        }
    )
    return pmm.MatchResult(idata, None, prepared)


def sure(name, n_draws=40):
    return np.tile(GROUP[name], (n_draws, 1))


def turned(name):
    return sure(name) if name == "a" else (sure(name) + 1) % 3


def doubtful(name):
    labels = sure(name).copy()
    labels[::2, 0] = 1 if name == "a" else 0
    return labels


def test_a_sure_matching():
    result = drawn([sure, sure])
    assert result.verdict()[:2] == [
        "3 of 3 clusters span both domains; 21 of 21 objects are sure.",
        "Both chains found the same matching.",
    ]
    assert result.clusters["b 2"].tolist() == [3, 3, 3]
    best = result.matches(top=1)
    assert best["probability"].tolist() == [1.0] * 12
    np.testing.assert_allclose(best["chance"], 1 / 3)
    assert result.probability("a", "b 2").sel(a_object=0, b_2_object=3) == 1
    assert result.decide("a", "b 2")["decision"].tolist() == ["link"] * 36
    assert set(result.objects["domain"]) == {"a", "b 2"}


def test_one_table_is_matched_with_itself():
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 2)), columns=["u", "v"])
    result = pmm.match({"a": x}, search_only=True, random_seed=1, progressbar=False)
    pd.testing.assert_frame_equal(result.matches(), result.matches("a", "a"))
    assert result.probability().shape == (12, 12)


def test_doubt_is_counted():
    result = drawn([doubtful, doubtful])
    assert result.verdict()[0] == (
        "3 of 3 clusters span both domains; 20 of 21 objects are sure, 1 doubtful."
    )
    assert result.objects.query("confidence < 0.9")["object"].tolist() == [0]


def test_of_chains_of_two_minds_clusters_are_not_averaged_but_probabilities_are(tmp_path):
    result = drawn([sure, turned, turned], log_joint=(50.0, 0.0, 0.0))
    together = result.labels["cluster_a"][0] == result.labels["cluster_b_2"]
    assert together.to_numpy().tolist() == (GROUP["b 2"] == GROUP["a"][0]).tolist()
    found = "The chains disagree: {} of 3 found the matching reported here, that of chain {}, which"
    assert result.verdict()[1] == found.format(1, 0) + (
        " has the highest log joint. Probabilities are averages over all chains: where their "
        "matchings differ, little is sure. Links, or more of them, can tell."
    )
    assert found.format(1, 0) in result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert result.probability("a", "b 2").sel(a_object=0, b_2_object=3) == pytest.approx(1 / 3)
    assert (result.objects["confidence"] < 0.9).all()
    whole = drawn([lambda name: 0 * sure(name), sure, sure], log_joint=(50.0, 0.0, 0.0))
    assert [line[:10] for line in whole.verdict()] == ["1 of 1 clu", "The chains"]
    other = drawn([sure, turned, turned], log_joint=(0.0, 50.0, 49.0))
    assert found.format(2, 1) in other.verdict()[1]
    assert other.probability("a", "b 2").sel(a_object=0, b_2_object=3) == pytest.approx(1 / 3)


def test_the_best_chain_may_be_told_of_alone():
    whole = drawn([sure, turned, turned], log_joint=(50.0, 0.0, 0.0))
    result = pmm.MatchResult(whole.idata, None, whole.prepared, only_best=True)
    assert result.kept["posterior"]["chain"].to_numpy().tolist() == [0]
    assert result.verdict()[1] == (
        "The chains disagree: 1 of 3 found the matching reported here, that of chain 0, which has "
        "the highest log joint. Its probabilities leave out the other matchings, which may be "
        "right too. Links, or more of them, can tell."
    )
    assert result.probability("a", "b 2").sel(a_object=0, b_2_object=3) == 1


def test_clusters_of_one_domain_and_objects_alone():
    def apart(name):
        labels = sure(name).copy()
        labels[:, -1] = 7 if name == "a" else 8
        return labels

    result = drawn([apart, apart])
    assert result.verdict()[0] == (
        "3 of 5 clusters span both domains; 19 of 21 objects are sure, 2 alone in a cluster."
    )

    def together(name):
        labels = np.zeros_like(sure(name))
        labels[:, -1] = 1 if name == "a" else 2
        return labels

    assert drawn([together, together]).verdict()[0].startswith("1 of 3 clusters spans both")


def test_clusters_of_one_object_are_shown_in_one_row():
    def apart(name):
        labels = sure(name).copy()
        labels[:, -2:] = [7, 8] if name == "a" else [9, 9]
        return labels

    relevance = np.ones((2, 40, 12), int)
    relevance[..., 0] = 0
    result = drawn([apart, apart], relevance=relevance)
    rows = [line.split() for line in repr(result).splitlines()]
    start = rows.index(["cluster"]) + 1
    assert rows[start : start + 6] == [
        ["0", "3", "3", "6"],
        ["1", "3", "2", "5"],
        ["2", "3", "2", "5"],
        ["3", "0", "2", "2"],
        ["alone", "2", "0", "2"],
        ["irrelevant", "1", "0", "1"],
    ]
    assert "<th>alone</th>" in result._repr_html_()
    assert result.clusters["total"].sum() == 21
    assert len(result.clusters) == 7


def test_objects_that_fit_no_cluster():
    relevance = np.ones((2, 40, 12), int)
    relevance[..., 5] = 0
    few = drawn([sure, sure], relevance=relevance).verdict()
    assert few[0].endswith(", 1 in no cluster.")
    assert "Most objects" not in " ".join(few)
    relevance[:] = 0
    most = drawn([sure, sure], relevance=relevance).verdict()
    assert most[1] == ("Most objects are in no cluster. Without relevance, every object is in one.")


def test_noise_is_called_noise():
    rng = np.random.default_rng(0)
    result = drawn([lambda name: rng.integers(3, size=(40, N[name]))] * 2)
    assert "hardly tell objects apart" in " ".join(result.verdict())


def test_one_cluster_of_what_draws_divide_is_called_so():
    """Two halves, of which draws have many objects wrong, or few."""

    def halves(wrong):
        rng = np.random.default_rng(0)

        def labels(name):
            half = np.arange(N[name]) % 2
            return np.where(rng.random((40, N[name])) < wrong, 1 - half, half)

        return drawn([labels] * 2)

    result = halves(0.15)
    assert len(result.clusters) == 1
    assert result.verdict()[1].startswith("Draws often keep apart what is in one cluster here")
    divided = pmm.partition_estimate(result.kept, loss="ari")
    assert len(pmm.cluster_sizes(divided)) == 2
    few = halves(0.1)
    assert len(few.clusters) == 2
    assert "keep apart" not in " ".join(few.verdict())


def test_one_chain_says_so():
    assert "There is only one chain: others" in drawn([sure]).verdict()[1]


def test_chains_that_differ_in_more_than_the_matching_are_not_called_alike():
    def long(name):
        return sure(name, 200)

    for log_joint, found in (
        ((0.0, 0.0), "the same matching"),
        ((0.0, 2.0), "much the same matching, but do not agree in all"),
    ):
        result = drawn([long, long], log_joint=log_joint)
        assert result.verdict()[1] == f"Both chains found {found}."
        assert (result.diagnosis.table["r_hat"].max() > 1.3) == (log_joint[1] > 0)


def test_the_page_of_a_notebook_escapes_names():
    page = drawn([sure, sure])._repr_html_()
    assert "<strong>3 of 3 clusters span both domains" in page
    assert "&lt;u&gt; (number)" in page
    assert "<u>" not in page


def test_names_are_checked():
    result = drawn([sure, sure])
    with pytest.raises(KeyError, match=r"no domain .b2.; there are .*did you mean 'b 2'"):
        result.matches("a", "b2")
    with pytest.raises(ValueError, match="expected names of two domains"):
        result.matches("a")


def test_of_two_networks_one_name_may_begin_as_the_other():
    graph = pd.DataFrame(1 - np.eye(4, dtype=int))
    prepared = pmm.prepare({"firm": graph, "firm_2": graph}, types=["person"], symmetric=True)
    labels = np.tile([0, 0, 1, 1], (1, 5, 1))
    posterior = xr.Dataset(
        {
            f"cluster_{name}_person": (("chain", "draw", f"{name}_person_object"), labels)
            for name in prepared.data
        }
    )
    idata = xr.DataTree.from_dict({"posterior": posterior, "sample_stats": xr.Dataset()})
    idata["sample_stats"]["log_joint"] = xr.DataArray(np.zeros((1, 5)), dims=("chain", "draw"))
    result = pmm.MatchResult(idata, None, prepared)
    assert result.matches("firm", "firm_2", top=1)["probability"].eq(1.0).all()
    assert result.probability("firm_2", "firm").shape == (4, 4)


def test_figures_and_pages(tmp_path):
    pytest.importorskip("matplotlib")
    result = drawn([sure, sure])
    assert len(result.plot().axes) == 2
    page = result.report(tmp_path / "match.html", title="Shops").read_text()
    assert "<li>3 of 3 clusters span both domains; 21 of 21 objects are sure.</li>" in page
    assert "Data, ordered by cluster" in page
    for name, own in result.prepared.data.items():
        title = escape(result.prepared.titles[name])
        assert f"Data of {title}</th><td>{len(own)} × " in page
        assert f"fingerprint {fingerprint(own)}<" in page
    assert "<td>model = " in page


def test_domains_have_the_names_that_the_user_gave_them(tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    result = drawn([sure, sure])
    figures = {"plot": result.plot(), **dict(_figures(result))}
    for name, figure in figures.items():
        said = " ".join(text.get_text() for text in figure.findobj(plt.Text))
        assert "b_2" not in said
        assert "b 2" in said or name in ("trace", "log_joint")
        plt.close(figure)
    page = result.report(tmp_path / "match.html").read_text()
    assert "b_2" not in page
    assert "<th>size_b 2</th>" in page
    assert "b_2" not in str(result.diagnosis)
    assert "b_2" not in result.objects.to_string()


def test_fingerprints_tell_data_apart():
    table = pd.DataFrame({"x": [1.0, np.nan], "kind": pd.Categorical(["u", "v"])}, index=["p", "q"])
    same = pd.DataFrame({"x": [1.0, np.nan], "kind": ["u", "v"]}, index=["p", "q"])
    assert fingerprint(table) == fingerprint(same)
    assert len(fingerprint(table)) == 16
    others = [
        table.rename(index={"p": "r"}),
        table.rename(columns={"x": "y"}),
        table.iloc[::-1],
        table.assign(x=[1.0 + 1e-15, np.nan]),
    ]
    assert len({fingerprint(own) for own in [table, *others]}) == 5


def test_the_seed_and_the_draws_are_told():
    prepared = drawn([sure, sure]).prepared
    said = provenance(prepared, {"random_seed": 7, "draws": 20})
    assert said["Sampling"] == "random_seed = 7, draws = 20"
    assert said["Model"].startswith("model = ")


def far(name):
    return sure(name) + 3 * (name == "a")


def test_labels_are_the_users_own():
    """Periods, tuples and times of a zone, which draws have as text."""
    indexes = {
        "a": pd.period_range("2020-01", periods=12, freq="M"),
        "b 2": pd.MultiIndex.from_product([["N", "S", "W"], range(3)], names=["shop", "no"]),
    }
    own = drawn([sure, sure], indexes=indexes)
    plain = drawn([sure, sure])
    expected = [*indexes["a"], *indexes["b 2"]]
    assert own.objects["object"].tolist() == expected
    for found, known in (
        (own.matches(top=2), plain.matches(top=2)),
        (own.decide(), plain.decide()),
    ):
        for column, name in (("object", "a"), ("partner", "b 2")):
            assert found[column].tolist() == [indexes[name][k] for k in known[column]]
    unmatched = drawn([far, far], indexes=indexes).decide(keep_unmatched=True)
    assert unmatched["object"].isna().sum() == 9
    assert unmatched["partner"].isna().sum() == 12


def test_times_of_a_zone_can_be_written(tmp_path):
    rng = np.random.default_rng(0)
    tables = {
        name: pd.DataFrame(
            rng.normal(size=(8, 2)), pd.date_range("2020", periods=8, tz=zone)
        ).add_prefix("x")
        for name, zone in (("a", "Europe/Rome"), ("b", None))
    }
    result = pmm.match(tables, search_only=True, random_seed=1, progressbar=False)
    assert result.objects["object"].tolist() == [*tables["a"].index, *tables["b"].index]
    plt = pytest.importorskip("matplotlib.pyplot")
    before = plt.get_fignums()
    result.write(tmp_path)
    assert plt.get_fignums() == before
    draws = xr.open_datatree(tmp_path / "draws.nc")
    assert str(draws["posterior"]["a_object"].to_numpy()[0]) == "2020-01-01 00:00:00+01:00"
    assert pd.read_csv(tmp_path / "clusters.csv")["object"][0] == "2020-01-01 00:00:00+01:00"


def test_nothing_is_left_of_a_result_that_is_replaced(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    result = drawn([sure, sure])
    for top in (0, 1.5):
        with pytest.raises(ValueError, match="top: expected a whole number of at least 1; found"):
            result.write(tmp_path, top=top)
    result.write(tmp_path)
    objects = pd.read_csv(tmp_path / "clusters.csv")
    objects["domain"] = objects["domain"].replace("b 2", "2024")
    objects.to_csv(tmp_path / "clusters.csv", index=False)
    old = ["match_a__2024.csv", "networks.png"]
    others = ["match_2019.csv", "match_a_c.csv", "notes.png"]
    for name in (*old, *others):
        (tmp_path / name).touch()
    with pytest.raises(FileExistsError):
        result.write(tmp_path)
    result.write(tmp_path, force=True)
    assert not any((tmp_path / name).exists() for name in old)
    assert all((tmp_path / name).exists() for name in others)
    assert (tmp_path / "match_a_b_2.csv").exists()
    # Of all figures that tables have: networks have one more, above.
    monkeypatch.setattr("pm_match.front.write._figures", lambda result: iter(()))
    result.write(tmp_path, force=True)
    assert [figure.name for figure in tmp_path.glob("*.png")] == ["notes.png"]
    # What is no table of objects is replaced.
    (tmp_path / "clusters.csv").write_text("")
    result.write(tmp_path, force=True)
    assert pd.read_csv(tmp_path / "clusters.csv").shape[0] == len(objects)


def test_of_many_pairs_the_likeliest_are_written(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    result = drawn([sure, sure])
    pairs = len(pd.read_csv(result.write(tmp_path) / "match_a_b_2.csv", index_col=0).stack())
    assert (tmp_path / "match_probability.png").exists()
    monkeypatch.setattr("pm_match.front.write._MOST_PAIRS", pairs - 1)
    (tmp_path / "match_probability.png").unlink()
    result.write(tmp_path, force=True)
    assert (tmp_path / "match_probability.png").exists()
    monkeypatch.setattr("pm_match.front.write._MOST_DOMAINS", 1)
    (tmp_path / "match_probability.png").unlink()
    result.write(tmp_path, force=True)
    assert not (tmp_path / "match_probability.png").exists()
    found = pd.read_csv(tmp_path / "match_a_b_2.csv")
    assert [*found] == ["object", "partner", "probability"]


def test_files_of_domains_with_long_names_can_be_written(tmp_path):
    pytest.importorskip("matplotlib")
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 2)), columns=["u", "v"])
    for end in "bc":
        long = {f"{'é' * 150}{own}": x[: 12 - n] for n, own in enumerate(("a", end, "d"))}
        result = pmm.match(long, search_only=True, random_seed=1, progressbar=False)
        result.write(tmp_path, force=True)
        files = [*tmp_path.glob("match_éé*.csv")]
        tables = {own.shape: own for own in (pd.read_csv(file, index_col=0) for file in files)}
        assert len(files) == 3
        for pair in itertools.combinations(long, 2):
            expected = result.probability(*pair).to_numpy()
            np.testing.assert_allclose(tables[expected.shape], expected, atol=1e-6)


def test_a_result_survives_pickling():
    table = pd.DataFrame({"u": [1.0, 2.5, 7.0, 8.5], "v": [3, 1, 9, 8]})
    result = pmm.match({"a": table, "b": table}, search_only=True, random_seed=1, progressbar=False)
    again = pickle.loads(pickle.dumps(result))
    assert repr(again) == repr(result)
    new = table.iloc[:2]
    pd.testing.assert_frame_equal(
        again.assign("a", new, progressbar=False), result.assign("a", new, progressbar=False)
    )


def test_what_takes_its_time_is_said(monkeypatch, caplog):
    def slow(function):
        def called(*args, **options):
            time.sleep(1.2)
            return function(*args, **options)

        return called

    caplog.set_level("INFO", "pymc")
    known = drawn([sure, sure])
    monkeypatch.setattr("pm_match.front.result.diagnose", slow(pmm.diagnose))
    monkeypatch.setattr("pm_match.front.result.write", slow(lambda *_: None))
    for progressbar, said in ((True, ["Summarising ...", "Writing ..."]), (False, [])):
        caplog.clear()
        result = pmm.MatchResult(known.idata, None, known.prepared, progressbar=progressbar)
        result.write("nowhere")
        assert caplog.messages == said
