"""What is used of the data, what is not, and which model they get."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.links import read_pairs

RNG = np.random.default_rng(0)


def frame(n=30, **more):
    own = {
        "price": RNG.normal(size=n),
        "sold": RNG.poisson(3, n),
        "kind": RNG.choice(["tea", "cocoa"], n),
        "organic": RNG.random(n) < 0.5,
    }
    return pd.DataFrame(own | more)


def numbers(names, n=30):
    return pd.DataFrame(RNG.normal(size=(n, len(names))), columns=list(names))


def test_ids_become_labels_and_nothing_is_lost_on_the_way():
    a = frame(sku=[f"N{i}" for i in range(30)])
    a.loc[3, "price"] = np.nan
    found = pmm.prepare({"north": a, "south": frame(20)}, id={"north": "sku"})
    assert found.kind == "tables"
    assert found.data["north"].index.tolist() == a["sku"].tolist()
    assert found.data["south"].index.tolist() == list(range(20))
    assert found.data["north"].columns.tolist() == ["price", "sold", "kind", "organic"]
    np.testing.assert_array_equal(found.data["north"]["price"], a["price"])
    np.testing.assert_array_equal(found.data["north"]["organic"], a["organic"].astype(float))
    assert found.uses() == {
        "price": "number",
        "sold": "count",
        "kind": "category",
        "organic": "boolean",
    }
    assert str(found).splitlines()[0] == (
        "north: 30 objects (N0, N1, N2, …); used are price (number: 1 missing), sold (count), "
        "kind (category), organic (boolean)."
    )
    assert "sku" in a.columns  # the user's own frame is left as it is


FEW = {
    "one category": (["tea"] * 5, ["tea", "cocoa"] * 20, "category"),
    "one code": ([7] * 5, pd.Categorical([7, 8] * 20), "category"),
    "one truth value": ([True] * 5, [0, 1] * 20, "boolean"),
    "one count": ([3, 3, 3, np.nan, 3], [0, 3, 0, 12] * 10, "count"),
    "a category for every object": (list("abcde"), list("abcdefgh") * 5, "category"),
    "a count for every object": ([0, 9, 2, 12, 3], [0, 3, 0, 12] * 10, "count"),
}


@pytest.mark.parametrize("case", FEW)
@pytest.mark.filterwarnings("ignore:domain 'small'.*distinct whole numbers")
def test_what_a_column_holds_is_not_judged_by_a_few_objects(case):
    """In a small table values vary little, or none is there twice, by chance."""
    few, many, use = FEW[case]
    large = pd.DataFrame({"x": many, "price": RNG.normal(size=40)})
    for small in (pd.DataFrame({"x": few}), pd.DataFrame({"price": range(0, 500, 100), "x": few})):
        found = pmm.prepare({"small": small, "large": large})
        assert found.columns["small"]["x"].use == found.columns["large"]["x"].use == use
        kept = pd.Series(few, name="x")
        pd.testing.assert_series_equal(found.data["small"]["x"], kept, check_dtype=False)
        found.declare()


@pytest.mark.parametrize(
    "few", [["rum"] * 5, list("vwxyz"), [None] * 5, [1, 2, 3, 4, 5], [None, None, None, None, [1]]]
)
def test_values_that_no_other_table_has_do_not_make_a_column_comparable(few):
    small = pd.DataFrame({"price": RNG.normal(size=5), "id": few})
    there = ["tea", "cocoa"] * 20 if isinstance(few[0], str | None) else few * 8
    large = pd.DataFrame({"price": RNG.normal(size=40), "id": there})
    with pytest.warns(UserWarning, match="domain 'small': 'id' .left out"):
        found = pmm.prepare({"small": small, "large": large})
    assert list(found.data["small"]) == ["price"]


def test_columns_of_one_value_are_none_of_models_of_numbers():
    small, large = frame(5, sold=3), frame(40)
    with pytest.warns(UserWarning, match="'sold' .left out: one value"):
        pmm.prepare({"small": small, "large": large}, model="normal_clusters").declare()


def test_columns_that_tell_the_same_are_warned_of():
    a, b = frame(60), frame(40)
    for own in (a, b):
        own["city"] = RNG.choice(["Rome", "Pisa", "Lyon", "Nice"], len(own))
        own["land"] = own["city"].map({"Rome": "IT", "Pisa": "IT", "Lyon": "FR", "Nice": "FR"})
        own["times"] = own["sold"]
    a.loc[::9, "land"] = None
    said = "'sold' tells 'times', 'city' tells 'land': .* columns={'times': 'ignore'}$"
    with pytest.warns(UserWarning, match=said) as warned:
        pmm.prepare({"a": a, "b": b})
    assert [warning.filename for warning in warned] == [__file__]
    fine = {"land": "ignore", "times": "ignore"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pmm.prepare({"a": a, "b": b}, columns=fine)
        # One row is another one in one of the tables; or rows are too few, or nearly all the same.
        b.loc[5, ["city", "land", "times"]] = ["Rome", "FR", b.loc[5, "sold"] + 1]
        pmm.prepare({"a": a, "b": b})
        pmm.prepare({"a": a[:9], "b": b[30:]})
        rare = pd.Series(["no"] * 95 + ["yes"] * 5)
        x = pd.DataFrame({"kind": list("uvwxy") * 19 + ["z"] * 5, "rare": rare})
        pmm.prepare({"a": x, "b": x})


@pytest.mark.parametrize("dtype", [object, "string", "category", "dictionary"])
def test_blank_text_is_missing_as_empty_cells_of_files_are(dtype):
    kinds = pd.Series(["tea", "", "cocoa", "  ", None, "tea"] * 5)
    if dtype == "dictionary":
        pa = pytest.importorskip("pyarrow")
        dtype = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    table = frame().assign(kind=kinds.astype(dtype))
    found = pmm.prepare({"a": table, "b": frame()})
    assert found.columns["a"]["kind"][:2] == ("category", "15 missing")
    assert found.data["a"]["kind"].dropna().tolist() == ["tea", "cocoa", "tea"] * 5
    if isinstance(found.data["a"]["kind"].dtype, pd.CategoricalDtype):
        assert set(found.data["a"]["kind"].cat.categories) == {"tea", "cocoa"}
    table["kind"] = table["kind"].astype(object).replace({"tea": "1.5", "cocoa": "2"})
    with pytest.raises(TypeError, match=r"'kind': .*found numbers as text"):
        pmm.prepare({"a": table, "b": frame()})
    codes, labels = pmm.prepare({"a": frame(6)}, clusters={"a": kinds[:6]}).clusters["a"]
    assert labels.tolist() == ["cocoa", "tea"]
    assert codes.tolist() == [1, -1, 0, -1, -1, 1]


@pytest.mark.parametrize("what", ["links", "cannot_link"])
def test_labels_of_one_domain_alone_tell_which(what):
    tables = {
        name: numbers("uv", 6).set_axis([f"{name[0]}{i}" for i in range(6)])
        for name in ("north side", "south")
    }
    model = pmm.prepare(tables, **{what: [("s3", "n1"), ["n4", "s0", "n5"]]}).declare()
    pairs = set()
    for potential in model.potentials:
        _, assignments, positions = read_pairs(potential)
        sides = [
            [f"{variable.name.removeprefix('cluster_')[0]}{k}" for k in own]
            for variable, own in zip(assignments, positions, strict=True)
        ]
        pairs |= set(map(frozenset, zip(*sides, strict=True)))
    expected = [("n1", "s3"), ("n4", "s0"), ("n5", "s0"), ("n4", "n5")]
    assert pairs == set(map(frozenset, expected))
    array = pmm.prepare(tables, **{what: np.array([("n4", "s0"), ("s3", "n1")])}).declare()
    _, _, positions = read_pairs(array[what])
    assert [own.tolist() for own in positions] == [[4], [0]]
    for given, message in (
        ([("n1", "s33")], "no domain has an object 's33'; did you mean 's3'"),
        ([("n1",)], r"at least two objects; found \('n1',\)"),
        (("n1", "s3"), "of such, or of tuples of labels; found an object of type str"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"{what}: .*{message}"):
            pmm.prepare(tables, **{what: given})
    unnamed = {name: own.reset_index(drop=True) for name, own in tables.items()}
    with pytest.raises(ValueError, match="found '3' in 'north side' and 'south': say which by"):
        pmm.prepare(unnamed, **{what: [(3, 4)]})


def test_whole_numbers_that_vary_less_than_counts_are_codes():
    rng = np.random.default_rng(0)

    def ratings(n):
        own = {"rating": rng.integers(1, 6, n), "age": rng.integers(15, 26, n)}
        own["made"] = np.resize([2, 2, 2, 4, 4, 6, 6, 6], n)  # of variance 3 and mean 4
        return pd.DataFrame(own | {"sold": rng.poisson(4, n), "few": rng.poisson(0.2, n)})

    tables = {"a": ratings(300), "b": ratings(30)}
    tables["b"].loc[2, "rating"] = np.nan
    found = pmm.prepare(tables)
    uses = {"rating": "category", "age": "number"} | dict.fromkeys(["made", "sold", "few"], "count")
    assert found.uses() == uses
    assert found.columns["b"]["rating"].note == "1 missing; varies less than counts do"
    assert "age (number: varies less than counts do)" in str(found)
    ratings_of_b = tables["b"]["rating"].dropna().astype(int)
    assert found.data["b"]["rating"].dropna().tolist() == ratings_of_b.tolist()
    assert str([*found.declare().coords["category_rating"]]) == "[1, 2, 3, 4, 5]"
    # what is told stays, few rows tell nothing, and models of numbers take numbers
    told = {"rating": "count", "age": "count"}
    assert pmm.prepare(tables, columns=told).uses() == uses | told
    few = {name: own[:9].assign(rating=np.resize([3, 4], 9)) for name, own in tables.items()}
    assert pmm.prepare(few).uses()["rating"] == "count"
    assert "rating" in pmm.prepare(tables, model="table_clusters").numeric()["a"]


def test_whole_numbers_that_name_the_rows_of_a_file_are_numbers(tmp_path):
    file = tmp_path / "a.csv"
    for sku, labels in ((["7", "12", "9"], [7, 12, 9]), (["07", "12", "9"], ["07", "12", "9"])):
        pd.DataFrame({"u": [1.5, 2, 3.5], "sku": sku}).to_csv(file, index=False)
        assert pmm.prepare([file], id="sku").data["a"].index.tolist() == labels
        pd.DataFrame({"u": [1.5, 2, 3.5]}, index=sku).to_csv(file)
        assert pmm.prepare([file]).data["a"].index.tolist() == labels
    pd.DataFrame({"u": [1.5, 2, 3.5]}, pd.Index(list("pqr"), name="sku")).to_csv(file)
    with pytest.raises(ValueError, match=r"no column 'skuu'; there are .*; did you mean 'sku'"):
        pmm.prepare([file], id="skuu")


def test_a_first_column_whose_use_is_told_has_no_labels(tmp_path):
    for name in "ab":
        table = pd.DataFrame({"kind": list("pqrs"), "u": [1.5, 2.5, 4.5, 8.5]})
        table.to_csv(tmp_path / f"{name}.csv.gz", index=False)
    files = [tmp_path / f"{name}.csv.gz" for name in "ab"]
    found = pmm.prepare(files, columns={"kind": "category"})
    assert found.uses() == {"kind": "category", "u": "number"}
    assert found.data["a"].index.tolist() == [1, 2, 3, 4]
    assert list(pmm.prepare(files, columns={"kind": "ignore"}).uses()) == ["u"]
    assert pmm.prepare(files).data["b"].index.tolist() == list("pqrs")


def test_a_warning_names_what_is_left_out():
    a = frame(sku=[f"N{i}" for i in range(30)], shop="north")
    with pytest.warns(
        UserWarning, match=r"'sku' .*id='sku'.*; 'shop' .left out: one value"
    ) as said:
        found = pmm.prepare({"a": a})
    assert [warning.filename for warning in said] == [__file__]
    assert found.words()[1] == (
        "a: left out are sku (a text of its own for every object; if it names them, say id='sku'),"
        " shop (one value only (north))."
    )
    found = pmm.prepare({"a": a}, id="sku", columns={"shop": "ignore", "sold": "number"})
    assert found.uses()["sold"] == "number"
    assert "a: left out are shop (as you said)." in str(found)


@pytest.mark.parametrize("standardise", [False, True])
def test_what_a_model_of_numbers_leaves_out_is_said(standardise):
    given = {"model": "projected_clusters", "standardise": standardise}
    with pytest.warns(UserWarning, match="^a a: projected_clusters takes numbers, and leaves out"):
        found = pmm.prepare({"a a": frame(), "b": numbers("uv")}, **given)
    assert "a a: projected_clusters takes numbers, and leaves out kind." in found.notes
    hole = numbers("uv")
    hole.loc[3] = np.nan
    with pytest.raises(ValueError, match=r"^domain 'a a': row 3: expected an observed value"):
        pmm.prepare({"a a": hole, "b": numbers("uv")}, **given).declare()


def test_columns_are_used_in_one_way_in_all_tables_in_two_ways_are_warned_of():
    a = pd.DataFrame(RNG.normal(size=(20, 4)), columns=["Sepal.Length", "width ", "mass", "1.0"])
    b = a.set_axis(["sepal_length", "Width", "mass", "10"], axis=1)
    said = (
        "columns 'Sepal.Length' and 'sepal_length', 'Width' and 'width ': expected one name in all "
        "tables, if they hold the same; found different ones, so that they are not compared. "
        "Rename them"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(said)}$"):
        pmm.prepare({"a": a, "b": b})
    # Where one table has both, they are not the same.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pmm.prepare({"a": a[["mass"]], "b": a[["mass"]].assign(Mass=a["1.0"])})
        pmm.prepare({"a": a[["mass"]], "b": b[["mass"]]})
    wide = pd.DataFrame(RNG.normal(size=(20, 5)), columns=list("pqrst"))
    with pytest.warns(UserWarning, match="'P' and 'p', 'Q' and 'q', 'R' and 'r', and 2 more: "):
        pmm.prepare({"a": wide, "b": wide.rename(columns=str.upper)})


def test_columns_are_used_in_one_way_in_all_tables():
    a, b = frame(), frame()
    b["sold"] = b["sold"] * 20
    b["organic"] = RNG.poisson(2, 30)
    expected = {"price": "number", "sold": "number", "kind": "category", "organic": "count"}
    for tables in ({"a": a, "b": b}, {"b": b, "a": a}):
        found = pmm.prepare(tables)
        assert found.uses() == expected
        assert {own["sold"].use for own in found.columns.values()} == {"number"}


@pytest.mark.parametrize("other", [RNG.normal(size=30), RNG.random(30) < 0.5])
def test_a_column_of_categories_in_one_table_alone_is_asked_about(other):
    a, b = frame(), frame(kind=other)
    use = "boolean" if other.dtype == bool else "number"
    for tables, said in (
        ({"a": a, "b": b}, f"found category in domain 'a' and {use} in domain 'b'. Say columns="),
        ({"b": b, "a": a}, f"found {use} in domain 'b' and category in domain 'a'. Say columns="),
    ):
        with pytest.raises(ValueError, match=f"column 'kind': expected the same .*{said}"):
            pmm.prepare(tables)
        assert pmm.prepare(tables, columns={"kind": "category"}).uses()["kind"] == "category"
        assert "kind" not in pmm.prepare(tables, columns={"kind": "ignore"}).uses()


def test_names_of_columns_may_be_any():
    names = {"kind": "member__", "sold": "a::b"}
    found = pmm.prepare({"a": frame().rename(columns=names), "b": frame().rename(columns=names)})
    assert {"member_", "a:b"} <= set(found.uses())
    assert "a_member_" in {rv.name for rv in found.declare().observed_RVs}


def test_names_of_domains_may_be_any():
    found = pmm.prepare({"shop 1-north": frame(), "2nd": frame(), "C++": frame()})
    assert found.titles == {"shop_1_north": "shop 1-north", "_2nd": "2nd", "C_": "C++"}
    model = found.declare(n_clusters=3)
    assert {"cluster_shop_1_north", "cluster__2nd"} <= set(model.named_vars)
    with pytest.raises(ValueError, match=r"'shop 1': expected a name .* found 'shop-1'"):
        pmm.prepare({"shop-1": frame(), "shop 1": frame()})
    with pytest.raises(ValueError, match="found 'weights', which it uses itself"):
        pmm.prepare({"weights": frame()})
    with pytest.raises(ValueError, match="domain 'a::b': expected a name without '::'"):
        pmm.prepare({"a::b": frame()})
    with pytest.raises(ValueError, match="domain 'shop/1': expected a name without '/'"):
        pmm.prepare({"shop/1": frame()})


def test_errors_name_domains_as_they_are_given():
    rng = np.random.default_rng(0)
    tables = {
        "2024": pd.DataFrame(rng.normal(size=(4, 2)), columns=["u", "v"]),
        "east (x)": pd.DataFrame(rng.normal(size=(3, 2)), columns=["w", "x"]),
    }
    with pytest.raises(ValueError, match=r"no table 'west'; there are \['2024', 'east \(x\)'\]"):
        pmm.prepare(tables, links={"2024": [0], "west": [1]})
    linked = pmm.prepare(tables, links={"2024": ["zz"], "east (x)": ["1"]})
    with pytest.raises(ValueError, match=r"^links: '2024' has no object 'zz'"):
        linked.declare()
    far = pmm.prepare(tables, links={"2024": [9], "east (x)": [1]})
    with pytest.raises(ValueError, match=r"expected positions from 0 to 3 in '2024'; found 9"):
        far.declare()
    tables["2024"].loc[3] = np.nan
    with pytest.raises(ValueError, match=r"^domain '2024': row 3: expected an observed value"):
        pmm.prepare(tables).declare()
    network = rng.integers(0, 2, (4, 3))
    networks = {"2024": network, "east (x)": network}
    with pytest.raises(ValueError, match=r"set of objects '2024'; there are \['2024_r', '2024_c'"):
        pmm.prepare(networks, types=["r", "c"], links={"2024": [0], "east (x)": [1]})
    linked = pmm.prepare(networks, types=["r", "c"], links={"2024_r": ["zz"], "east (x)_r": ["1"]})
    with pytest.raises(ValueError, match=r"^links: '2024_r' has no object 'zz'"):
        linked.declare()


@pytest.mark.parametrize(
    "table",
    [
        RNG.normal(size=(9, 3)),
        np.ma.masked_less(RNG.normal(size=(9, 3)), -1),
        pmm.standardise({"x": RNG.normal(size=(9, 3))})["x"],
        pd.DataFrame(RNG.normal(size=(9, 3)), columns=["a/b", "c", "d"]),
    ],
)
def test_tables_of_all_forms(table):
    found = pmm.prepare({"a": table, "b": numbers("uv")})
    assert found.data["a"].shape == (9, 3)
    assert all("/" not in column for column in found.data["a"])
    with pytest.raises(TypeError, match="expected what prepare returns; found an object of type d"):
        pmm.choose_model({"a": frame()})
    assert pmm.choose_model(found) == "table_clusters"
    found.declare()


class TestChoice:
    """`choose_model`."""

    def choice(self, linked=False, **tables):
        links = {"a": [0], "b": [1]} if linked else None
        found = pmm.prepare(tables, links=links)
        assert found.model == pmm.choose_model(found)
        return found.model

    def test_numbers_of_different_things_are_matched_by_shape(self):
        assert self.choice(a=numbers("uv"), b=numbers("xyz")) == "table_clusters"
        assert self.choice(a=numbers("uv").to_numpy(), b=numbers("uv")) == "table_clusters"

    def test_columns_in_common_match(self):
        assert self.choice(a=numbers("uv"), b=numbers("vw")) == "mixture"
        assert self.choice(a=frame(), b=frame()) == "mixture"

    def test_one_table(self):
        assert self.choice(a=frame()) == "mixture"
        assert self.choice(a=numbers("uv")) == "table_clusters"

    def test_categories_match_by_links_alone(self):
        a, b = frame()[["kind", "price"]], numbers("uv")
        assert self.choice(a=a, b=b) == "table_clusters"
        assert self.choice(a=a, b=b, linked=True) == "mixture"
        with pytest.raises(ValueError, match="'a': expected a column of numbers, or one in common"):
            self.choice(a=a[["kind"]], b=b)

    def test_counts_of_different_things_may_be_a_network(self):
        rng = np.random.default_rng(0)
        words = {
            name: pd.DataFrame(rng.poisson(1.0, (9, 3)), columns=list(columns))
            for name, columns in (("a", "uvw"), ("b", "xyz"))
        }
        told = "relational_clusters matches both"
        assert told in " ".join(pmm.prepare(words).notes)
        for given in ({"a": numbers("uv"), "b": words["b"]}, {"a": words["a"], "b": words["a"]}):
            assert told not in " ".join(pmm.prepare(given).notes)

    def test_networks(self):
        assert self.choice(a=sparse.eye(4).tocsr()) == "relational_clusters"


def edges(*pairs, names=("boss", "clerk")):
    return pd.DataFrame(pairs, columns=list(names))


class TestNetworks:
    """Matrices and lists of edges."""

    def test_values_say_the_family(self):
        family = lambda x: pmm.prepare({"a": sparse.csr_array(x)}).options["family"]  # noqa: E731
        assert family([[0, 1], [1, 0]]) == "bernoulli"
        assert family([[0, 3], [1, 0]]) == "poisson"
        told = pmm.prepare({"a": np.array([[0, 3], [1, 0]])}, dispersion=0.5)
        assert told.options["family"] == "negative-binomial"
        with pytest.raises(
            ValueError, match=r"network 'a': .* found 0.5 at cell \(0, 1\). Bring .* f"
        ):
            family([[0, 0.5], [1, 0]])
        given = pmm.prepare({"a": np.eye(2) / 3}, family="normal")
        assert given.options == {"family": "normal", "types": ("row", "column")}
        given.declare()

    def test_lists_of_edges_of_two_types(self):
        lists = {
            "a": edges(("d1", "ball"), ("d2", "goal"), names=("text", "word")),
            "b": edges(("e1", "Ball"), ("e2", "Tor"), names=("text", "word")),
        }
        found = pmm.prepare(lists, model="relational_clusters")
        assert found.options == {
            "types": ("text", "word"),
            "family": "bernoulli",
        }
        model = found.declare()
        assert model.coords["b_word_object"] == ("Ball", "Tor")

    def test_tables_that_look_like_matrices_are_asked_about(self):
        people = list("pqrst")
        knows = pd.DataFrame(RNG.integers(2, size=(5, 5)), people, people[::-1])
        knows["p"] = 0
        said = "domain 'a': rows and columns have the same names; if these are the nodes of a net"
        with pytest.warns(UserWarning, match=said):
            pmm.prepare({"a": knows, "b": frame()})
        assert pmm.prepare({"a": knows}, model="relational_clusters").kind == "networks"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pmm.prepare({"a": RNG.normal(size=(5, 5)), "b": pd.DataFrame(RNG.normal(size=(5, 5)))})
            pmm.prepare({"a": RNG.integers(2, size=(9, 9)), "b": RNG.integers(2, size=(9, 8))})
        with pytest.warns(UserWarning, match="'b': as many rows as columns; if these are t"):
            pmm.prepare({"a": RNG.integers(2, size=(9, 9)), "b": RNG.poisson(1, size=(8, 8))})

    def test_sparse_matrices_are_tables_for_a_model_of_tables(self):
        values = RNG.normal(size=(9, 4)) * (RNG.random((9, 4)) < 0.5)
        found = pmm.prepare({"a": sparse.csr_array(values)}, model="table_clusters")
        assert found.kind == "tables"
        np.testing.assert_array_equal(found.data["a"], values)

    def test_whole_numbers_at_the_ends_of_edges_are_names(self, tmp_path):
        lists = edges((1001, "u"), (50_000, "v"), (1001, "v"))
        lists.to_csv(tmp_path / "a.csv", index=False)
        for given in (lists, lists.convert_dtypes(), tmp_path / "a.csv"):
            (network,) = pmm.prepare({"a": given}, model="relational_clusters").data.values()
            assert network.shape == (2, 2)
            assert network.labels[0].tolist() == [1001, 50_000]
        large = lists.assign(boss=np.array([1, 2, 2**64 - 1], np.uint64))
        (network,) = pmm.prepare({"a": large}, model="relational_clusters").data.values()
        assert network.labels[0].tolist() == [1, 2, 2**64 - 1]
        same = edges((7, 9), (9, 1001))
        same.to_csv(tmp_path / "a.csv", index=False)
        for given in (same, tmp_path / "a.csv"):
            model = pmm.prepare({"a": given}, columns=list(same), types=["person"]).declare()
            assert model.coords["a_person_object"] == (7, 9, 1001)
        with pytest.raises(ValueError, match=r"in 'boss' and 'clerk'; found 1 in both.*as '9'"):
            pmm.prepare({"a": same}, columns=["boss", "clerk"])

    def test_tables_that_look_like_edges_are_pointed_out(self):
        said = "'boss' and 'clerk' hold the same names; if rows are"
        ends = zip(3 * "abcdefghijk", 3 * "bcdefghijka", strict=True)
        lists = dict.fromkeys("ab", edges(*ends))
        with pytest.warns(UserWarning, match=said):
            pmm.prepare(lists)
        rows, columns = "abcdefghij", "klmnopqrst"
        pairs = [(one, other) for one in rows for other in columns if one != "c" or other > "p"]
        never = "are never the same in two rows; if rows are edges"
        with pytest.warns(UserWarning, match=never):
            pmm.prepare(dict.fromkeys("ab", edges(*pairs)))
        ratings = [("low", "high"), ("high", "low")] * 9
        few = [pair for pair in pairs if pair[1] < "p"]
        with warnings.catch_warnings():
            warnings.filterwarnings("error", said)
            warnings.filterwarnings("error", f".*{never}")
            chance = [(f"r{k % 15}", f"c{(k + k // 15) % 15}") for k in range(30)]
            for own in (ratings, few, [*pairs, pairs[0]], chance):
                pmm.prepare(dict.fromkeys("ab", edges(*own)))
            more = edges(*pairs).assign(year=2020, price=RNG.normal(size=len(pairs)))
            pmm.prepare(dict.fromkeys("ab", more), columns={"year": "ignore"})
            named = edges(*pairs).assign(sku=[f"s{k}" for k in range(len(pairs))])
            pmm.prepare(dict.fromkeys("ab", named), id="sku")
            pmm.prepare(dict.fromkeys("ab", named.set_index("sku").rename_axis(None)))
            pmm.prepare(dict.fromkeys("ab", edges(*pairs).rename_axis("row")))

    def test_links_name_networks_of_one_type(self):
        lists = {name: edges(("x", "u"), ("u", "y"), ("x", "y")) for name in "ab"}
        options = {"types": ["person"], "symmetric": True}
        links = pd.DataFrame({"a": ["x"], "b": ["u"]})
        (found,) = pmm.prepare(lists, links=links, **options).links
        (same,) = pmm.prepare(lists, links=links.add_suffix("_person"), **options).links
        assert found == same

    @pytest.mark.parametrize("options", [{"types": ["boss", "clerk"]}, {"symmetric": True}])
    def test_tables_of_whole_numbers_are_edges_or_matrices_as_they_are_told(self, options):
        pairs = edges((7, 9), (9, 8), (7, 8), (7, 7))
        with pytest.raises(
            ValueError, match=r"'a': expected columns=\['boss', 'clerk'\] for a list"
        ):
            pmm.prepare({"a": pairs}, **options)
        matrix = pmm.prepare({"a": pairs.to_numpy()[:2] * (1 - np.eye(2))}, **options).data["a"]
        assert matrix.shape == (2, 2)

    def test_edges_that_are_listed_several_times_are_counted(self):
        many = edges(("x", "u"), ("x", "u"), ("y", "v"))
        found = pmm.prepare({"a": many}, columns=["boss", "clerk"])
        assert found.options["family"] == "poisson"
        assert found.data["a"].values.tolist() == [2, 1]
        assert "a: edges that are listed several times are counted (1)." in found.notes

    @pytest.mark.parametrize("values", [{}, {"calls": [1, 2, 3, 4, 5] * 2}])
    def test_edges_without_direction_may_be_listed_in_both(self, values):
        once = edges(("x", "u"), ("u", "v"), ("v", "x"), ("v", "w"), ("w", "x"))
        both = pd.concat([once, once.set_axis(["clerk", "boss"], axis=1)]).assign(**values)
        asked = {"types": "person", "symmetric": True}
        found = pmm.prepare({"a": both}, **asked)
        same = pmm.prepare({"a": both[:5]}, **asked)
        for own in ("index", "values"):
            assert (getattr(found.data["a"], own) == getattr(same.data["a"], own)).all()
        assert "a: all edges are listed in both directions, and taken once." in found.notes
        with pytest.raises(ValueError, match="list each once, or leave out symmetric=True"):
            pmm.prepare({"a": both[:9]}, **asked)
        loop = edges(("u", "u")).assign(**dict.fromkeys(values, 7))
        asked["self_loops"] = True
        found, same = (
            pmm.prepare({"a": pd.concat([own, loop])}, **asked).data["a"]
            for own in (both, both[:5])
        )
        assert len(found.values) == 6
        assert (found.values == same.values).all()

    def test_edges_that_are_there_in_both_directions_may_have_none(self):
        m = np.triu(RNG.random((9, 9)) < 0.4, 1)
        m[0, 1] = True
        matrix = sparse.csr_array((m | m.T).astype(float))
        one = {"types": "person"}
        with pytest.warns(UserWarning, match="as if edges have a direction; .* symmetric=True"):
            pmm.prepare({"a": matrix, "b": matrix}, **one)
        with pytest.warns(UserWarning, match="as if rows and columns are different objects"):
            pmm.prepare({"a": matrix})
        directed = matrix.copy()
        directed[0, 1] = 0.0
        weighted = matrix.copy()
        weighted[0, 1] = 2.0
        apart = pd.DataFrame(matrix.toarray(), list("abcdefghi"), list("rstuvwxyz"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for data, options in (
                ({"a": matrix}, {"types": ["boss", "clerk"]}),
                ({"a": matrix}, one | {"symmetric": False}),
                ({"a": matrix}, one | {"symmetric": True}),
                ({"a": matrix, "b": directed}, one),
                ({"a": weighted}, one),
                ({"a": apart}, {"model": "relational_clusters"}),
                ({"a": matrix[:8]}, {}),
                ({"a": sparse.eye_array(9)}, {}),
            ):
                pmm.prepare(data, **options)

    def test_whether_both_ends_are_the_same_people_is_asked(self):
        same = edges(("ann", "bob"), ("bob", "cy"))
        with pytest.raises(ValueError, match=r"names in 'boss' and 'clerk'; found 1 in both, such"):
            pmm.prepare({"a": same}, model="relational_clusters")
        for types in ("person", ["person"]):
            model = pmm.prepare({"a": same}, types=types).declare()
            assert model.coords["a_person_object"] == ("ann", "bob", "cy")
        model = pmm.prepare({"a": same}, types=["b", "c"]).declare()
        assert model.coords["a_b_object"] == ("ann", "bob")

    def test_what_is_said_of_tables_is_refused(self):
        many = {"a": edges(("x", "u"), ("y", "v"))}
        with pytest.raises(TypeError, match=r"columns: expected names .* as in \['boss', …\]"):
            pmm.prepare(many, columns="boss")
        with pytest.raises(ValueError, match=r"columns: expected a list .*; found \{'boss': 'ig"):
            pmm.prepare(many, model="relational_clusters", columns={"boss": "ignore"})
        with pytest.raises(ValueError, match="id: expected none, as these are networks; found 'bo"):
            pmm.prepare(many, model="relational_clusters", id="boss")
        with pytest.raises(ValueError, match="of tables, columns= is a mapping to uses"):
            pmm.prepare(many, columns=["boss", "clerk"], id="boss")

    def test_bad_lists(self):
        with pytest.raises(ValueError, match=r"no column 'bos'; .* did you mean 'boss'"):
            pmm.prepare({"a": edges(("x", "u"))}, columns=["bos", "clerk"])
        said = r"expected names .* in \['sold', 'price'\]; found 'price' of dtype float64. Of t"
        with pytest.raises(TypeError, match=said):
            pmm.prepare({"a": frame()}, columns=["sold", "price"])
        with pytest.raises(ValueError, match=r"'boss', row 1: expected a label; found none"):
            pmm.prepare({"a": edges((7, 8), (None, 9))}, columns=["boss", "clerk"])
        with pytest.raises(ValueError, match=r"network 'b': expected .*edges, as .* 'a' is"):
            pmm.prepare({"a": edges(("x", "u")), "b": np.eye(2)}, model="relational_clusters")


def test_given_clusters_are_declared_whole():
    a, b = numbers("uv", 6), numbers("xyz", 5)
    a.index = list("pqrstu")
    tables = {"a": a, "the b": b}
    labels = pd.Series([1, 1, 2, 2, 2], index=list("qpsrt"))  # u has none
    clusters = {"a": labels, "the b": ["x", "y", "x", "x", None]}
    prepared = pmm.prepare(tables, clusters=clusters, links={"a": ["u"], "the b": [4]})
    assert prepared.groups() == {"a": [[0, 1], [2, 3, 4]], "the_b": [[0, 2, 3], [1]]}
    model = prepared.declare()
    assert [p.name for p in model.potentials] == [
        *("links", "links_1", "links_2"),  # two that are given, and those kept whole
        *("cannot_link", "cannot_link_1"),  # and distinct
    ]
    (clustering,) = read(model).clusterings
    assert clustering.apart.tolist() == [[0, 2], [6, 7]]
    merging = pmm.prepare(tables, clusters=clusters, distinct=False).declare()
    assert [p.name for p in merging.potentials] == ["links", "links_1"]
    assert len(model.coords["cluster"]) == 12
    alone = pmm.prepare(tables, clusters={"a": range(6), "the b": [0, 0, 1, 1, 1]}).declare()
    assert [p.name for p in alone.potentials] == ["links", "cannot_link", "cannot_link_1"]
    with pytest.raises(ValueError, match=r"clusters\['a'\]: expected 6 labels; found 2"):
        pmm.prepare(tables, clusters={"a": [1, 2]})
    with pytest.raises(ValueError, match=r"clusters\['B'\]: no table 'B'; there are .*"):
        pmm.prepare(tables, clusters={"B": [1, 2]})


def test_given_clusters_are_matched_by_labels_that_are_numbers_too():
    a = numbers("uv", 5)
    order = [3, 0, 4, 1, 2]
    expected = np.array([0, 1, 0, 1, 2])[order].tolist()

    def codes(table, given):
        (found,) = pmm.prepare({"a": table}, clusters={"a": given}).clusters.values()
        return found[0].tolist()

    given = pd.Series([0, 1, 0, 1, 2])
    assert codes(a.iloc[order], given) == expected
    assert codes(a.iloc[order], given.iloc[::-1].rename_axis("row").to_xarray()) == expected
    assert codes(a.set_axis(np.arange(5.0)).iloc[order], given) == expected
    assert codes(a.set_axis(list("pqrst")), given) == given.tolist()  # numbers are no labels there
    assert codes(a, given.iloc[:3]) == [0, 1, 0, -1, -1]
    holes = pmm.prepare({"a": a}, clusters={"a": given.where(given > 0)}).clusters["a"][1]
    assert holes.tolist() == [1, 2]
    assert holes.dtype.kind == "i"
    pairs = pd.MultiIndex.from_product([["x"], range(5)])
    assert codes(a.set_axis(pairs).iloc[order], given.set_axis(pairs)) == expected
    assert codes(a.set_axis(range(1, 6)), given.to_numpy()) == given.tolist()
    with pytest.raises(ValueError, match=r"clusters\['a'\]: expected labels of obj.*; found '0'"):
        codes(a.set_axis(range(1, 6)), given)
    with pytest.raises(ValueError, match=r"clusters\['a'\]: expected labels of obj.*; found 'p'"):
        codes(a, given.set_axis(list("pqrst")))


NO_CLUSTERS = {
    "list": ([[1, 2, 1]], TypeError, r"clusters: expected a mapping from domains .*type list"),
    "table": ({"a": numbers("k", 3)}, TypeError, r"\['a'\]: .*; found the shape \(3, 1\)$"),
    "name": ({"a": "k"}, TypeError, r"\['a'\]: expected a label for every object .* type str"),
    "twice": (
        {"a": pd.Series([1, 2], ["north", "north"])},
        ValueError,
        r"\['a'\]: .* 'north' more",
    ),
    "typo": (
        {"a": pd.Series([1, 2], ["nort", "south"])},
        ValueError,
        r"clusters\['a'\]: expected labels of objects in the index; found 'nort'; did you mean "
        r"'north'\? \(values that",
    ),
}


@pytest.mark.parametrize("case", NO_CLUSTERS)
def test_what_are_no_clusters_is_refused(case):
    given, error, message = NO_CLUSTERS[case]
    table = numbers("uv", 3).set_axis(["north", "south", "west"])
    with pytest.raises(error, match=message):
        pmm.prepare({"a": table}, clusters=given)


def test_what_cannot_be_linked_is_declared(tmp_path):
    a, b = numbers("uv", 6), numbers("xyz", 5)
    a.index = list("pqrstu")
    (tmp_path / "apart.csv").write_text("a,the b\nq,3\ns,0\n")
    expected = [[1, 9], [3, 6]]
    for given in (
        {"a": ["q", "s"], "the b": [3, 0]},
        pd.DataFrame({"a": ["q", "s"], "the b": [3, 0]}),
        tmp_path / "apart.csv",
    ):
        prepared = pmm.prepare({"a": a, "the b": b}, cannot_link=given)
        assert read(prepared.declare()).clusterings[0].apart.tolist() == expected
    inside = pmm.prepare({"a": a, "the b": b}, cannot_link={"a": [["p", "q", "u"]]})
    (clustering,) = read(inside.declare()).clusterings
    assert clustering.apart.tolist() == [[0, 1], [0, 5], [1, 5]]
    with pytest.raises(ValueError, match="cannot_link: 'a' has no object 'z'"):
        pmm.prepare({"a": a, "the b": b}, cannot_link={"a": ["z"], "the b": [0]}).declare()
    with pytest.raises(TypeError, match="cannot_link: expected a mapping"):
        pmm.prepare({"a": a, "the b": b}, cannot_link=3)


def test_classes_of_networks_are_observed():
    rng = np.random.default_rng(0)
    data = {"one": sparse.csr_array(rng.poisson(1.0, (6, 5))), "the other": np.ones((4, 3))}
    known = ["x", None, "y", "x", None, None]
    prepared = pmm.prepare(data, classes={"one_text": known}, types=["text", "word"])
    assert prepared.class_names == ["x", "y"]
    found = {own.weights: own for own in read(prepared.declare()).clusterings}
    documents, words = found["weights_text"], found["weights_word"]
    own = documents.slices["cluster_one_text"]
    assert documents.known[own].tolist() == [0, -1, 1, 0, -1, -1]
    assert (documents.known >= 0).sum() == 3
    assert (words.known < 0).all()
    with pytest.raises(ValueError, match=r"classes\['one'\]: no set of objects 'one'; there are"):
        pmm.prepare(data, classes={"one": known}, types=["text", "word"])
    with pytest.raises(ValueError, match="found known with relevance=True"):
        prepared.declare(relevance=True)
    firm = {"firm": np.triu(rng.integers(0, 2, (6, 6)), 1)}
    person = pmm.prepare(firm, classes={"firm": known}, types=["person"], symmetric=True)
    assert list(person.classes) == ["firm_person"]


def test_given_clusters_of_networks_are_declared_whole():
    rng = np.random.default_rng(0)
    data = {"one": sparse.csr_array(rng.poisson(1.0, (6, 5))), "the other": np.ones((4, 3))}
    clusters = {"one_text": ["x", None, "y", "x", None, "y"], "the other_text": [0, 0, 1, 1]}
    prepared = pmm.prepare(data, clusters=clusters, types=["text", "word"])
    found = {own.weights: own for own in read(prepared.declare()).clusterings}
    documents, words = found["weights_text"], found["weights_word"]
    assert documents.links.tolist() == [[0, 3], [2, 5], [6, 7], [8, 9]]
    assert documents.apart.tolist() == [[0, 2], [6, 8]]
    assert not len(words.links)
    with pytest.raises(ValueError, match=r"clusters\['one'\]: no set of objects 'one'; there are"):
        pmm.prepare(data, clusters={"one": [0] * 6}, types=["text", "word"])


class Graph:
    """As much of a networkx graph as is asked for."""

    def __init__(self, edges, nodes=None, directed=False, sides=None, weights=None):
        self.pairs, self.directed, self.weights = edges, directed, weights or {}
        self.sides = sides or {}
        self.names = nodes or list(dict.fromkeys(node for edge in edges for node in edge))
        self.nodes, self.edges = self._nodes, self._edges

    def is_directed(self):
        return self.directed

    def _edges(self, data):
        assert data == "weight"
        return [(u, v, self.weights.get((u, v))) for u, v in self.pairs]

    @property
    def _nodes(self):
        sides = self.sides

        class View(list):
            def __call__(self, data):
                assert data == "bipartite"
                return [(node, sides.get(node)) for node in self]

        return View(self.names)


class TestGraphs:
    """Graphs of networkx."""

    def test_all_nodes_are_objects(self):
        found = pmm.prepare({"g": Graph([("b", "a"), ("b", 3)], nodes=["z", "b", "a", 3])})
        assert found.options["symmetric"] is True
        network = found.data["g"]
        assert network.labels[0].tolist() == ["z", "b", "a", "3"]
        assert network.index.tolist() == [[1, 2], [1, 3]]
        assert str(found).startswith("g: objects: 4 of type object; 2 cells.")
        assert "cluster_g_object" in found.declare().named_vars

    def test_nodes_that_are_whole_numbers_are(self):
        graph = Graph([(7, 1001), (9, 1001)], nodes=[1001, 7, 9, 8])
        (network,) = pmm.prepare({"g": graph}).data.values()
        assert network.labels[0].tolist() == [1001, 7, 9, 8]
        assert network.index.tolist() == [[0, 1], [0, 2]]
        graph = Graph([("f", 7), (9, "g")], sides={"f": 1, 7: 0, 9: 0, "g": 1})
        (network,) = pmm.prepare({"g": graph}, types=["user", "film"]).data.values()
        assert [labels.tolist() for labels in network.labels] == [[7, 9], ["f", "g"]]

    def test_directions_and_weights(self):
        graph = Graph([("b", "a"), ("a", "b")], directed=True, weights={("a", "b"): 3.0})
        found = pmm.prepare({"g": graph}, family="poisson")
        assert found.options["one_mode"] is True
        index, values = found.data["g"].index, found.data["g"].values
        assert dict(zip(map(tuple, index.tolist()), values, strict=True)) == {(0, 1): 1, (1, 0): 3}

    def test_one_type_may_be_named(self):
        graph = Graph([("b", "a"), ("c", "a")])
        for types, symmetric in (("person", True), (["person"], True), (["boss", "clerk"], None)):
            found = pmm.prepare({"g": graph}, types=types)
            assert found.options.get("symmetric") is symmetric
            assert found.declare()
        graph = Graph([("b", "a"), ("c", "a"), ("a", "c")], directed=True)
        found = pmm.prepare({"g": graph}, types="person")
        assert found.options["one_mode"]
        assert found.declare()

    def test_two_sides(self):
        sides = {"f": 1, "u": 0, "g": 1}
        graph = Graph([("f", "u"), ("u", "g")], sides=sides)
        found = pmm.prepare({"n": graph}, types=["user", "film"])
        assert [labels.tolist() for labels in found.data["n"].labels] == [["u"], ["f", "g"]]
        with pytest.raises(
            ValueError, match=r"two sides .* found \('f', 'g'\), with both ends on one"
        ):
            pmm.prepare({"n": Graph([("f", "g"), ("f", "u")], sides=sides)})


class Annotated:
    """As much of an AnnData as is asked for."""

    def __init__(self, values, variables, components=None):
        self.X, self.var_names = values, variables
        self.obs_names = [f"cell{i}" for i in range(values.shape[0])]
        self.obsm = {} if components is None else {"X_pca": components}


def test_annotated_data():
    few = Annotated(sparse.csr_array(RNG.normal(size=(9, 3))), ["CD3", "CD4", "CD8"])
    many, components = RNG.normal(size=(8, 300)), RNG.normal(size=(8, 50))
    cells = Annotated(many, [f"gene{i}" for i in range(300)], components)

    class Modalities:
        mod = {"protein": few, "rna": cells}  # noqa: RUF012

    for data in (Modalities(), {"protein": few, "rna": cells}):
        found = pmm.prepare(data)
        assert found.model == "table_clusters"
        assert found.data["protein"].columns.tolist() == ["CD3", "CD4", "CD8"]
        assert found.data["protein"].index[3] == "cell3"
        np.testing.assert_array_equal(found.data["protein"], few.X.toarray())
        np.testing.assert_array_equal(found.data["rna"], components[:, :10])
    with pytest.raises(
        ValueError, match=r"at most 200 variables, or .*obsm\['X_pca'\].*; found 300"
    ):
        pmm.prepare({"rna": Annotated(many, cells.var_names)})


def test_classes_are_observed():
    a, b = numbers("uv", 6), numbers("xyz", 5)
    classes = {"a": ["T", None, "B", "B", None, None], "b": [None, "NK", "B", None, None]}
    found = pmm.prepare({"a": a, "b": b}, classes=classes)
    assert found.class_names == ["B", "T", "NK"]
    assert found.classes["a"].tolist() == [1, -1, 0, 0, -1, -1]
    assert found.classes["b"].tolist() == [-1, 2, 0, -1, -1]
    model = found.declare()
    seen = model.rvs_to_values[model["cluster_a_observed"]]
    assert seen.eval().tolist() == [1, 0, 0]
    assert model["cluster_a_unobserved"].type.ndim == 1
    whole = pmm.prepare({"a": a, "b": b}, classes={"a": [5, 5, 6, 6, 5, 5]}).declare()
    assert [rv.name for rv in whole.observed_RVs if rv.name == "cluster_a"]
    with pytest.raises(ValueError, match=r"classes\['a'\]: no set of objects 'a'; there are"):
        pmm.prepare({"a": np.eye(3)}, types=["u", "v"], classes={"a": [1, 1, 2]})


def test_classes_that_never_meet_are_warned_of():
    tables = {"shop 1": numbers("uv", 4), "b": numbers("xyz", 3)}
    with pytest.warns(UserWarning, match="^classes: .* found 1 in 'shop 1' and '1' in 'b'"):
        pmm.prepare(tables, classes={"shop 1": [1, 1, 2, 2], "b": ["1", "2", "2"]})
    with pytest.warns(UserWarning, match="^classes: expected values in 'shop 1' that others have"):
        pmm.prepare(tables, classes={"shop 1": [1, 1, 2, 2], "b": [3, None, 3]})


def test_clusters_that_are_not_kept_whole_are_where_chains_start():
    a, b = numbers("uv", 8), numbers("xyz", 6)
    a += 9.0 * (np.arange(8) % 2)[:, None]
    clusters = {"a": np.arange(8) % 2, "b": np.arange(6) // 3}
    prepared = pmm.prepare({"a": a, "b": b}, clusters=clusters, whole=False)
    assert not prepared.declare().potentials
    starts = prepared.starts(2, random_seed=1, progressbar=False)
    assert len(starts) == 2
    for start in starts:
        for name, own in clusters.items():
            labels = start[f"cluster_{name}"]
            for k in range(2):
                assert len(set(labels[own == k])) == 1
    assert pmm.prepare({"a": a, "b": b}, clusters=clusters).starts() is None


BAD = {
    "no mapping": (
        lambda: pmm.prepare(numbers("uv")),
        TypeError,
        r"^data: expected a mapping from names to tables .* files; found an .* type DataFrame$",
    ),
    "frames in a list": (lambda: pmm.prepare([numbers("uv")]), TypeError, "of files; found an ob"),
    "a file": (
        lambda: pmm.prepare(["none.csv"]),
        ValueError,
        "none.csv: No such file",
    ),
    "one file": (lambda: pmm.prepare("none.csv"), ValueError, "none.csv: No such file"),
    "id": (
        lambda: pmm.prepare({"a": frame()}, id="Price"),
        ValueError,
        "mean 'price'",
    ),
    "id of no domain": (
        lambda: pmm.prepare({"a": frame(), "b": frame()}, id={"A": "kind", "b": "kind"}),
        ValueError,
        r"id: no domain 'A'; there are \['a', 'b'\]; did you mean 'a'",
    ),
    "ids in a list": (
        lambda: pmm.prepare({"a": frame(), "b": frame()}, id=["kind", "kind"]),
        TypeError,
        "id: expected the name of a column, or a mapping .* found an object of type list",
    ),
    "id twice": (
        lambda: pmm.prepare({"a": frame()}, id="kind"),
        ValueError,
        "more than once",
    ),
    "column": (
        lambda: pmm.prepare({"a": frame()}, columns={"solt": "count"}),
        ValueError,
        "no column 'solt' in any table; .* did you mean 'sold'",
    ),
    "use": (
        lambda: pmm.prepare({"a": frame()}, columns={"sold": "id"}),
        ValueError,
        r"columns\['sold'\]: expected 'number', .* or 'ignore'; found 'id'",
    ),
    "no number": (
        lambda: pmm.prepare({"a": frame()}, columns={"kind": "number"}),
        TypeError,
        "column 'kind': expected numbers, to be used as number; found '(tea|cocoa)'",
    ),
    "nothing left": (
        lambda: pmm.prepare({"a": pd.DataFrame({"u": [1.5, 1.5]})}),
        ValueError,
        r"a column that can be used; found none \('u': one value only \(1.5\)\)",
    ),
    "infinite": (
        lambda: pmm.prepare({"a": pd.DataFrame({"u": [1.5, np.inf]})}),
        ValueError,
        "1 infinite value, the first .inf. in row 1, column 'u'",
    ),
    "model of numbers": (
        lambda: pmm.prepare({"a a": frame()[["kind"]]}, model="table_clusters"),
        ValueError,
        r"^domain 'a a': expected a column of numbers, as table_clusters takes them; found none am",
    ),
    "model": (
        lambda: pmm.prepare({"a": frame()}, model="mixtur"),
        ValueError,
        "model: expected",
    ),
    "wrong model": (
        lambda: pmm.prepare({"a": np.eye(3)}, model="mixture", types=["u", "v"]),
        ValueError,
        "model: expected one for networks; found 'mixture'",
    ),
    "option": (
        lambda: pmm.prepare({"a": frame()}, n_cluster=3),
        TypeError,
        "mixture: no option 'n_cluster'; .* did you mean 'n_clusters'",
    ),
    "argument": (
        lambda: pmm.prepare({"a": frame()}, standardize=True),
        TypeError,
        "prepare: no argument 'standardize'; did you mean 'standardise'",
    ),
    "argument of match": (
        lambda: pmm.match({"a": frame()}, drows=5),
        TypeError,
        "match: no argument 'drows'; did you mean 'draws'",
    ),
    "option of another": (
        lambda: pmm.prepare({"a": frame()}).declare(n_factors=2),
        TypeError,
        "mixture: no option 'n_factors'",
    ),
    "standardise": (
        lambda: pmm.prepare({"a": frame()}, standardise=True),
        ValueError,
        "standardise: expected a model of numbers, .*; found 'mixture'",
    ),
}


@pytest.mark.parametrize(
    "index",
    [
        pd.period_range("2020-01", periods=5, freq="M"),
        pd.date_range("2020-01-01", periods=5),
        pd.date_range("2020-01-01", periods=5, tz="Europe/Rome"),
        pd.MultiIndex.from_product([["north"], range(5)]),
    ],
    ids=["periods", "dates", "zone", "levels"],
)
def test_links_take_the_labels_of_the_index(index):
    tables = {name: numbers("uv", 5).set_axis(index) for name in "ab"}
    links = pd.DataFrame({"a": [index[0], index[3]], "b": [index[2], index[1]]})
    model = pmm.prepare(tables, links=links).declare()
    _, _, positions = read_pairs(model["links"])
    assert [own.tolist() for own in positions] == [[0, 3], [2, 1]]


def test_all_columns_of_a_table_that_are_refused_are_named_together():
    table = frame()
    table["when"] = pd.date_range("2024", periods=len(table)).astype(str)
    table["amount"] = [str(k) for k in range(len(table))]
    with pytest.raises(TypeError, match=r"(?s)'when': .*dates as text.*\n.*'amount': .*as text"):
        pmm.prepare({"a": table})


@pytest.mark.parametrize("case", BAD)
def test_bad_data(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
