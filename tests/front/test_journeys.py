"""Newcomers' journeys, from raw files to decisions: each within a dozen lines of their own."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pm_match as pmm
from pm_match import __main__ as cli
from pm_match.metrics import adjusted_rand_index

pytestmark = pytest.mark.compiled
# As few draws as show something: the samplers themselves are tested elsewhere.
SHORT = {"random_seed": 1, "draws": 30, "tune": 30, "chains": 2, "cores": 1, "progressbar": False}


def shop(rng, ids, n):
    """A shop's articles of three kinds, with what people's files have in them."""
    kind = rng.integers(3, size=n)
    table = pd.DataFrame(
        {
            "sku": [f"{ids}{i:03d}" for i in range(n)],
            "colour": np.array(["green", "black", "brown"])[kind],
            "price": rng.lognormal(np.array([1.0, 2.0, 3.0])[kind], 0.2).round(2),
            "sold": rng.poisson(np.array([3, 9, 20])[kind]),
            "currency": "EUR",
        }
    )
    table.loc[rng.random(n) < 0.1, "price"] = np.nan
    table.loc[rng.random(n) < 0.1, "colour"] = None
    return table, kind


def groups(rng, n, k=3):
    return rng.permutation(np.arange(n) % k)


def found(result, truth):
    """How well the estimate agrees with the truth, by domain."""
    return adjusted_rand_index(truth, result.labels)


def test_two_shops(tmp_path):
    rng = np.random.default_rng(0)
    (north, a), (south, b) = shop(rng, "N", 50), shop(rng, "S", 40)
    north.to_csv(tmp_path / "shop north.csv", index=False)
    south.to_csv(tmp_path / "shop-south.csv", index=False)
    files = [tmp_path / "shop north.csv", tmp_path / "shop-south.csv"]

    with pytest.warns(UserWarning, match="'currency' .left out: one value only"):
        result = pmm.match(files, id="sku", **SHORT)
    partners = result.matches("shop north", "shop-south", top=2)
    decided = result.decide(keep_unmatched=True)
    page = result.report(tmp_path / "match.html")

    assert found(result, {"shop_north": a, "shop_south": b}) > 0.9
    assert partners.columns.tolist() == ["object", "partner", "probability", "chance"]
    assert set(partners["object"]) == set(north["sku"])
    assert set(partners["partner"]) <= set(south["sku"])
    assert partners["probability"].mean() > 0.9 > 0.5 > partners["chance"].max()
    assert set(decided["decision"]) <= {"link", "unmatched", "abstain"}
    assert result.clusters.columns.tolist() == ["shop north", "shop-south", "total"]
    assert "shop north: left out are currency (one value only (EUR))." in repr(result)
    assert "colour (category: " in repr(result)
    assert "The model is mixture." in repr(result)
    assert result.verdict()[0] in page.read_text()


def test_two_shops_from_the_command_line(tmp_path, capsys):
    pytest.importorskip("h5netcdf")
    rng = np.random.default_rng(0)
    for name, n in {"north": 50, "south": 40}.items():
        shop(rng, name[0], n)[0].to_csv(tmp_path / f"{name}.csv", index=False)

    files = [str(tmp_path / f"{name}.csv") for name in ("north", "south")]
    short = ["--seed", "1", "--draws", "20", "--tune", "20", "--chains", "2", "--cores", "1"]
    with pytest.warns(UserWarning, match="'currency'"):
        assert cli.main([*files, "--id", "sku", "--out", str(tmp_path / "out"), *short]) == 0

    said = capsys.readouterr().out
    assert "north: 50 objects (n000, n001, n002, …); used are colour (category" in said
    assert "The model is mixture." in said
    match = pd.read_csv(tmp_path / "out" / "match_north_south.csv", index_col=0)
    assert match.shape == (50, 40)
    assert match.index[0] == "n000"


def test_two_data_frames():
    rng = np.random.default_rng(3)
    a, b = groups(rng, 48), groups(rng, 45)
    centre = np.array([[0, 0], [10, 10], [14, 14]])
    left = pd.DataFrame(centre[a] + rng.normal(size=(48, 2)), columns=["length", "width"])
    right = pd.DataFrame(9.0 - centre[b] + rng.normal(size=(45, 2)), columns=["weight", "age"])
    right.iloc[3, 1] = np.nan

    result = pmm.match({"left": left, "right": right}, **SHORT)
    probability = result.probability()

    assert found(result, {"left": a, "right": b}) > 0.8
    assert probability.shape == (48, 45)
    assert re.match(r"3 of 3 clusters span both domains; \d\d of 93 objects are sure", repr(result))
    assert "right: 45 objects (0, 1, 2, …); used are weight (number), age (number: 1 missing)." in (
        result.prepared.words()
    )
    assert result.model.named_vars["cluster_left"] is not None
    assert result.idata["posterior"].sizes["chain"] == 2


def firm(rng, name, n):
    """Who writes to whom in a firm of three groups, once an edge."""
    group = groups(rng, n)
    tie = np.where(group[:, None] == group, np.array([1.0, 0.6, 0.0])[group], 0.1)
    one, other = np.nonzero(np.triu(rng.random((n, n)) < tie, 1))
    names = np.array([f"{name}{i}" for i in range(n)])
    return pd.DataFrame({"from": names[one], "to": names[other]}), dict(
        zip(names, group, strict=True)
    )


def test_edge_lists():
    rng = np.random.default_rng(0)
    (here, a), (there, b) = firm(rng, "ann", 30), firm(rng, "bob", 27)

    with pytest.raises(ValueError, match=r"say types=.'object'.*symmetric=True"):
        pmm.match({"firm 1": here, "firm 2": there}, model="relational_clusters")
    result = pmm.match({"firm 1": here, "firm 2": there}, types=["person"], symmetric=True, **SHORT)
    partners = result.matches("firm 1", "firm 2", top=1)

    assert len(partners) > 20
    assert result.clusters.columns.tolist() == ["firm 1", "firm 2", "total"]
    objects = result.objects[result.objects["cluster"] >= 0]
    assert set(objects["domain"]) == {"firm 1", "firm 2"}
    truth = objects["object"].map(a | b)
    assert adjusted_rand_index({"all": truth}, {"all": objects["cluster"]}) > 0.6


def bag(rng, n, m):
    """Counts of words in texts of three topics."""
    text, word = groups(rng, n), groups(rng, m)
    often = np.array([1.0, 2.0, 4.0])[word]
    return sparse.csr_array(rng.poisson(np.where(text[:, None] == word, often, 0.1))), text


def test_bags_of_words(tmp_path):
    rng = np.random.default_rng(0)
    (english, a), (german, b) = bag(rng, 30, 36), bag(rng, 27, 33)
    sparse.save_npz(tmp_path / "german.npz", german)

    data = {"english": english, "german": tmp_path / "german.npz"}
    result = pmm.match(data, types=["text", "word"], family="poisson", **SHORT)
    words = result.matches("english_word", "german_word", top=3)

    truth = {"english_text": a, "german_text": b}
    assert adjusted_rand_index(
        truth, result.labels[["cluster_english_text", "cluster_german_text"]]
    )
    assert words["probability"].median() > 0.5 > words["chance"].max()
    with pytest.raises(KeyError, match="'english' has several types of objects"):
        result.matches("english", "german")
    with pytest.raises(ValueError, match=r"expected names of two domains, of .*'english_text'"):
        result.matches()
    assert result.clusters.index.names == ["type", "cluster"]
    assert result.clusters.columns.tolist() == ["english", "german", "total"]
    assert [line.partition(":")[0] for line in result.verdict()[:2]] == ["text", "word"]


def test_given_clusterings():
    rng = np.random.default_rng(1)
    a, b = groups(rng, 60, 4), groups(rng, 52, 4)
    centre = np.array([[0, 0, 0], [4, 4, 4], [10, 10, 9], [22, 20, 10]])
    blood = pd.DataFrame(centre[a] + rng.normal(size=(60, 3)), columns=["p", "q", "r"])
    tissue = pd.DataFrame(
        5.0 * centre[b][:, ::-1] + 3.0 * rng.normal(size=(52, 3)), columns=["x", "y", "z"]
    )
    cells = pd.Series(np.array(["B", "T", "NK", "M"])[a])

    result = pmm.match(
        {"blood": blood, "tissue": tissue}, clusters={"blood": cells, "tissue": b}, **SHORT
    )
    best = result.matches("blood", "tissue", top=1)

    answer = dict(zip(best["object"], best["partner"], strict=True))
    assert answer == {"B": 0, "T": 1, "NK": 2, "M": 3}
    probability = result.probability()
    assert probability.shape == (4, 4)
    # Each has one counterpart at most: those of one domain are different clusters.
    assert (probability.sum(axis=0) <= 1 + 1e-9).all()
    assert (probability.sum(axis=1) <= 1 + 1e-9).all()
    for name, given in {"blood": a, "tissue": b}.items():
        draws = result.idata["posterior"][f"cluster_{name}"].to_numpy()
        for k in range(4):  # kept whole
            own = draws[..., given == k]
            assert (own == own[..., :1]).all()


def test_classes_that_are_known_of_some():
    rng = np.random.default_rng(1)
    a, b = groups(rng, 60), groups(rng, 52)
    centre = np.array([[0, 0], [5, 5], [11, 10]])
    names = np.array(["B", "T", "NK"])
    here = pd.DataFrame(centre[a] + rng.normal(size=(60, 2)), columns=["p", "q"])
    there = pd.DataFrame(centre[b] + rng.normal(size=(52, 2)), columns=["p", "q"])
    known = pd.Series(names[a], dtype=object).where(np.arange(60) < 12, None)

    result = pmm.match({"shop 1": here, "there": there}, classes={"shop 1": known}, **SHORT)
    found = result.classes()

    assert found.columns.tolist() == ["domain", "object", "class", "probability"]
    assert (found["class"][:12] == known[:12]).all()
    assert (found["probability"][:12] == 1).all()
    assert (found["class"] == names[np.concatenate([a, b])]).mean() > 0.95
    assert result.clusters.columns.tolist() == ["shop 1", "there", "total"]
    assert result.objects["domain"].unique().tolist() == ["shop 1", "there"]
    pd.testing.assert_frame_equal(result.matches(), result.matches("shop 1", "there"))


@pytest.mark.parametrize(("one", "other"), [(7, 8), ("x", "y")])
def test_classes_are_told_as_they_were_given(one, other):
    """Numbers are no floats where some object is in none of them, and none is None."""
    x = np.repeat([0.0, 9.0, 18.0], 6) + np.tile([0.0, 0.2, 0.1], 6)
    here, there = pd.DataFrame({"p": x[:12]}), pd.DataFrame({"p": x + 0.05})
    classes = {"here": [one] * 6 + [other] * 6}
    result = pmm.match({"here": here, "there": there}, classes=classes, search_only=True, **SHORT)
    told = result.classes()["class"].tolist()
    assert told == 2 * ([one] * 6 + [other] * 6) + [None] * 6
    assert not any(isinstance(own, float) for own in told)


@pytest.mark.slow
def test_given_clusters_that_shapes_do_not_tell_apart_are_not_sure():
    pytest.importorskip("sklearn")
    flowers = pmm.datasets.iris(random_seed=0)  # two of the four features each
    species = pmm.datasets.true_labels(flowers)
    result = pmm.match(
        flowers, clusters=species, random_seed=1, draws=300, tune=300, cores=1, progressbar=False
    )
    probability = result.probability().to_numpy()
    assert (probability.sum(axis=0) <= 1 + 1e-9).all()
    assert probability.max() < 0.95
    assert (np.diag(probability) > 0.05).all()
    # Two species of the three at least, in both domains.
    assert int(re.search(r"(\d+) doubtful", result.verdict()[0]).group(1)) >= 200
