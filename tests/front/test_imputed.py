"""Missing values of a matching come in the units and categories of the user's tables."""

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm

SHORT = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 1, "progressbar": False}


@pytest.fixture(scope="module")
def shops():
    rng = np.random.default_rng(0)
    kind = np.arange(30) % 3
    table = pd.DataFrame(
        {
            "colour": pd.Categorical(np.array(["green", "black", "brown"])[kind]),
            "price": rng.lognormal(np.array([1.0, 3.0, 5.0])[kind], 0.2),
            "new": pd.array(kind == 1, "boolean"),
            "sold": pd.array(rng.poisson(np.array([2, 9, 20])[kind]), "Int64"),
        },
        index=pd.period_range("2020-01", periods=30, freq="M"),
    )
    holes = table.copy()
    for k in range(table.shape[1]):
        holes.iloc[k : k + 3, k] = pd.NA
    tables = {"shop 1": holes, "south": table.drop(columns="colour")}
    return table, holes, pmm.match(tables, columns={"price": "positive"}, n_clusters=5, **SHORT)


def test_mixed_tables(shops):
    table, holes, result = shops
    found = result.impute(ci_prob=0.8, random_seed=1, progressbar=False)
    own = found["shop 1"]
    assert list(found) == ["shop 1", "south"]
    assert own.index.equals(table.index)
    for column in table:
        known = holes[column].notna().to_numpy()
        dtype = "Float64" if column == "sold" else table[column].dtype  # of means
        pd.testing.assert_series_equal(own[column][known], table[column][known].astype(dtype))
        sure = own.get(f"{column}_probability", pd.Series(1.0, own.index))
        assert (sure[known] == 1.0).all()
    assert own["colour"].iloc[:3].tolist() == ["green", "black", "brown"]
    assert own["new"].iloc[2:5].tolist() == [False, False, True]
    assert own["new_probability"].between(0.5, 1.0).all()
    said = pmm.impute(result.kept, result.model, ci_prob=0.8, random_seed=1, progressbar=False)
    for end in ("", "_lower", "_upper"):
        expected = said[f"shop_1_positive{end}"].to_numpy()[:, 0]
        np.testing.assert_array_equal(own[f"price{end}"], expected)
    assert (own["sold_lower"] <= own["sold"]).all()
    pd.testing.assert_frame_equal(found["south"], table.drop(columns="colour"))


def test_categories_come_as_the_tables_have_them():
    rng = np.random.default_rng(0)

    def table(n):
        kind = rng.integers(2, size=n)
        rating = np.where(kind, rng.choice([4, 5], n), rng.choice([5, 6], n))
        size = pd.Categorical(np.array(["s", "l"])[kind], ["s", "m", "l"], ordered=True)
        return pd.DataFrame({"rating": rating, "size": size})

    tables = {"a": table(60), "b": table(40)}
    holes = tables["a"].astype({"rating": float})
    holes.iloc[:2, 0], holes.iloc[4:6, 1] = np.nan, None
    result = pmm.match(tables | {"a": holes}, **SHORT)
    assert result.model.coords["category_rating"] == (4, 5, 6)
    assert [type(own) for own in result.model.coords["category_rating"]] == [int] * 3
    found = result.impute(progressbar=False)
    for name, own in tables.items():
        assert found[name][["rating", "size"]].dtypes.equals(own.dtypes)
        assert found[name][["rating", "size"]][6:].equals(own[6:])
    assert found["a"]["size"].notna().all()


def test_columns_keep_their_dtypes():
    kind = np.arange(20) % 2
    of_numbers, of_truth, of_text = ["float32", "Float64"], ["boolean"], ["string", "str", "object"]
    if find_spec("pyarrow"):
        of_numbers, of_truth = [*of_numbers, "double[pyarrow]"], [*of_truth, "bool[pyarrow]"]
    text = np.array(["u", "v"])[kind]
    table = pd.DataFrame(
        {dtype: pd.Series(kind + 0.5).astype(dtype) for dtype in of_numbers}
        | {dtype: pd.Series(kind == 1).astype(dtype) for dtype in of_truth}
        | {dtype: pd.Series(text).astype(dtype) for dtype in of_text}
    )
    holes = table.apply(lambda column: column.mask(np.arange(20) == 3))
    tables = {"a": holes, "b": table.assign(bool=kind == 1, count=kind)}
    result = pmm.match(tables, n_clusters=3, **SHORT)
    found = result.impute(progressbar=False)
    pd.testing.assert_frame_equal(found["a"][[*table]].drop(3), table.infer_objects().drop(3))
    pd.testing.assert_frame_equal(found["b"], tables["b"].infer_objects())


def test_numbers_told_of_other_columns_are_floats():
    """As means of truth values, of categories and of text are."""
    kind = np.arange(24) % 3
    columns = {
        "bool": pd.Series(kind > 0, dtype="object"),
        "boolean": pd.Series(kind > 0, dtype="boolean"),
        "category": pd.Series(kind).astype("category"),
        "text": pd.Series(kind.astype(str)),
    }
    table = pd.DataFrame(columns)
    holes = table.mask(np.arange(24)[:, None] == 3 + np.arange(4))
    told = {"bool": "number", "boolean": "count", "category": "count", "text": "number"}
    tables = {"a": holes, "b": table}
    found = pmm.match(tables, columns=told, n_clusters=3, correlated=False, **SHORT).impute()
    assert found["a"][[*table]].dtypes.astype(str).tolist() == [
        "float64",
        "Float64",
        *2 * ["float64"],
    ]
    for place, column in enumerate(table):
        own = found["a"][column]
        known = own.drop(3 + place).astype(float)
        assert known.tolist() == table[column].drop(3 + place).astype(float).tolist()
        lower, upper = (found["a"][f"{column}_{end}"][3 + place] for end in ("lower", "upper"))
        assert lower <= own[3 + place] <= upper
        assert own[3 + place] % 1 > 0
    assert found["b"]["text"].tolist() == kind.tolist()


def test_columns_of_the_table_stay():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(12, 2)), columns=["x", "x_lower"])
    table.iloc[1, 0] = np.nan
    result = pmm.match({"a": table}, search_only=True, random_seed=1, progressbar=False)
    found = result.impute(progressbar=False)["a"]
    assert list(found) == ["x", "x_lower", "x_lower_", "x_upper"]
    assert found["x_lower"].tolist() == table["x_lower"].tolist()


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("table_clusters", {}),
        ("normal_clusters", {}),
        ("projected_clusters", {"standardise": True}),
    ],
)
def test_other_units_say_the_same(model, options):
    rng = np.random.default_rng(0)
    tables = {
        name: pd.DataFrame(rng.normal(size=(20, 3)) + 4 * (np.arange(20) % 2)[:, None]).add_prefix(
            "x"
        )
        for name in "ab"
    }
    tables["a"].iloc[3, 1] = np.nan
    other = {name: 1024.0 * own for name, own in tables.items()}
    one, two = (
        pmm.match(own, model=model, n_clusters=4, **options, **SHORT).impute(
            random_seed=1, progressbar=False
        )["a"]
        for own in (tables, other)
    )
    ends = ["x1", "x1_lower", "x1_upper"]
    np.testing.assert_allclose(two[ends], 1024.0 * one[ends], rtol=1e-6)
    known = tables["a"].notna()
    pd.testing.assert_frame_equal(one[known.columns].where(known), tables["a"])
    for end in ends:
        np.testing.assert_allclose(one[end][known["x1"]], tables["a"]["x1"].dropna(), atol=1e-9)
    assert one["x1_lower"].iloc[3] < one["x1"].iloc[3] < one["x1_upper"].iloc[3]


def test_what_has_no_missing_values_of_its_own_is_refused():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(12, 3))).add_prefix("x")
    short = SHORT | {"search_only": True}
    for options in ({"model": "aligned_clusters"}, {"model": "table_clusters", "n_components": 2}):
        result = pmm.match({"a": table, "b": table[::-1]}, **options, **short)
        with pytest.raises(ValueError, match=r"impute: expected .* found one of their principal"):
            result.impute()
    network = rng.integers(2, size=(8, 8))
    result = pmm.match({"a": network, "b": network}, model="relational_clusters", **short)
    with pytest.raises(
        ValueError, match=r"impute: expected a matching of tables; found .*networks"
    ):
        result.impute()
