"""Mixtures of ordinary tables: what is declared of which column, and that it is served."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats

import pm_match as pmm
from pm_match import testing
from pm_match.reading import read

N_TRUE = 3


def table(n, seed, *, income=False):
    """A table of three clear clusters, and their labels."""
    rng = np.random.default_rng(seed)
    label = rng.integers(N_TRUE, size=n)
    town = np.where(rng.random(n) < 0.8, label, rng.integers(N_TRUE, size=n))
    found = pd.DataFrame(
        {
            "height": np.array([0.0, 4.0, 8.0])[label] + 0.5 * rng.normal(size=n),
            "visits": rng.poisson(np.array([1.0, 6.0, 15.0])[label]),
            "member": rng.random(n) < np.array([0.1, 0.5, 0.9])[label],
            "town": np.array(["x", "y", "z"])[town],
        },
        index=[f"row {i}" for i in range(n)],
    )
    if income:
        found["income"] = np.exp(rng.normal(size=n) + label)
    return found, label


def two_tables():
    spring, autumn = table(60, 1, income=True)[0], table(50, 2)[0]
    spring.iloc[3, 0] = np.nan
    spring.iloc[4, 3] = None
    return {"spring": spring, "autumn": autumn}


def names(variables):
    return {rv.name for rv in variables}


def test_columns_are_declared_by_their_dtypes():
    model = pmm.models.mixture(table(20, 0)[0], n_clusters=5)
    assert names(model.observed_RVs) == {
        "table_number",
        "table_count",
        "table_boolean",
        "table_town",
    }
    assert model.coords["number"] == ("height",)
    assert model.coords["category_town"] == ("x", "y", "z")
    assert model.coords["table_object"][:2] == ("row 0", "row 1")
    assert model["probability_town"].eval().shape == (5, 3)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


def test_tables_share_the_parameters_of_columns_that_they_share():
    model = pmm.models.mixture(two_tables(), n_clusters=5, columns={"income": "positive"})
    free = names(model.free_RVs)
    assert {"mean", "rate", "probability", "log_mean_spring"} <= free
    assert "mean_spring" not in free
    assert "spring_own_positive" in names(model.observed_RVs)
    own = pmm.models.mixture(two_tables(), n_clusters=5, shared=["height", "town"])
    assert {"mean", "rate_spring", "rate_autumn", "mean_spring"} <= names(own.free_RVs)
    assert model.coords["number"] == ("height",)


def test_some_of_three_tables_share_some_columns():
    """They were refused: two variables of a table had one name."""
    tables = {name: table(20, seed)[0][["height"]] for seed, name in enumerate("abc")}
    tables["a"]["weight"], tables["b"]["weight"] = np.arange(20.0), np.arange(20.0) / 2
    model = pmm.models.mixture(tables, n_clusters=4)
    whole, some = {f"{name}_number" for name in "abc"}, {"a_number_a_b", "b_number_a_b"}
    assert names(model.observed_RVs) == whole | some
    assert model.coords["number_a_b"] == ("weight",)
    structure = read(model)
    assert {own.kind for own in structure.components[0].evidence} == {"columns"}
    collapsed = {*structure.components[0].collapsed}
    assert {"mean", "precision", "mean_a_b", "precision_a_b"} <= collapsed


def test_a_column_is_what_it_is_said_to_be():
    frame, _ = table(20, 0)
    model = pmm.models.mixture(frame, columns={"visits": "number", "member": "category"})
    assert model.coords["number"] == ("height", "visits")
    assert model.coords["category_member"] == (False, True)


@pytest.mark.parametrize(
    ("dtype", "values", "name"),
    [
        ("boolean", [True, None, False, True], "table_boolean"),
        ("Int64", [3, None, 0, 5], "table_count"),
        ("Float64", [0.5, None, 2.0, 1.0], "table_number"),
    ],
)
def test_missing_values_of_nullable_dtypes(dtype, values, name):
    model = pmm.models.mixture(pd.DataFrame({"x": pd.array(values, dtype=dtype)}), n_clusters=3)
    observed, _ = (model[f"{name}_{part}"] for part in ("observed", "unobserved"))
    seen = [float(v) for v in values if v is not None]
    np.testing.assert_array_equal(model.rvs_to_values[observed].eval(), seen)


@pytest.mark.parametrize("missing", [False, True])
def test_large_counts_are_what_they_are(missing):
    """Of whole numbers PyMC keeps 32 bits: it was told of 3 where a table has 2^32 + 3."""
    values = [7, 2**31, None if missing else 1, 2**32 + 3]
    frame = pd.DataFrame({"bytes": pd.array(values, dtype="Int64")})
    model = pmm.models.mixture(frame, n_clusters=2)
    observed = model["table_count_observed" if missing else "table_count"]
    seen = [value for value in values if value is not None]
    assert model.rvs_to_values[observed].eval().ravel().tolist() == seen


def test_integers_with_missing_values_are_what_the_other_table_has():
    frames = two_tables()
    frames["spring"]["visits"] = frames["spring"]["visits"].astype(float)
    frames["spring"].iloc[0, 1] = np.nan
    model = pmm.models.mixture(frames)
    assert model.coords["number"] == ("height", "visits")
    as_counts = pmm.models.mixture(frames, columns={"visits": "count"})
    assert as_counts.coords["count"] == ("visits",)
    nullable = frames["spring"]["visits"].astype("Int64")
    frames["spring"]["visits"] = nullable
    assert pmm.models.mixture(frames).coords["count"] == ("visits",)


@pytest.mark.parametrize(
    ("change", "given", "message"),
    [
        ({"visits": -1.0}, {"visits": "count"}, "row 'row 2', column 'visits'.*found -1"),
        ({"visits": 0.5}, {"visits": "count"}, "whole numbers, zero or more; found 0\\.5"),
        ({"visits": np.inf}, {"visits": "count"}, "whole numbers, zero or more; found inf"),
        ({"height": np.inf}, {}, "column 'height': expected finite numbers; found inf"),
        ({"height": -2.0}, {"height": "positive"}, "above zero; found -2"),
        ({"height": 7.0}, {"height": "boolean"}, "True or False"),
        ({}, {"town": "count"}, "column 'town': expected a count; found .* are no numbers"),
        ({}, {"size": "count"}, "columns: .* found 'size', which no table has"),
        ({}, {"town": "colour"}, "columns\\['town'\\]"),
    ],
)
def test_bad_columns_are_refused(change, given, message):
    frame, _ = table(20, 0)
    frame["visits"] = frame["visits"].astype(float)
    for column, value in change.items():
        frame.loc["row 2", column] = value
    if "height" in given and given["height"] == "boolean":
        frame["height"] = np.where(frame["height"] == 7.0, 7.0, 1.0)
    if "height" in given and given["height"] == "positive":
        frame["height"] = np.where(frame["height"] == -2.0, -2.0, 1.0)
    with pytest.raises((ValueError, TypeError), match=message):
        pmm.models.mixture(frame, columns=given)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (["1", "2"], "expected values of one type; found 1 in 'a' and '1' in 'b', which count"),
        (pd.Categorical(["2", "3"]), "expected values of one type; found 2 in 'a' and '2' in 'b'"),
        ([3, 4], r"expected values in 'a' that others have too; found none \(1, say\)"),
        (["x", "y"], r"expected values in 'a' that others have too; found none \(1, say\)"),
    ],
)
def test_categories_that_never_meet_are_warned_of(there, said):
    tables = {"a": pd.DataFrame({"zone": [1, 2, 1]}), "b": pd.DataFrame({"zone": there})}
    columns = {"zone": "category"}
    with pytest.warns(UserWarning, match=f"^column 'zone': {said}") as warned:
        pmm.models.mixture(tables, 3, columns=columns)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pmm.models.mixture(tables, 3, columns=columns, shared=())
        tables["b"] = pd.DataFrame({"zone": [1.0, 3.0, np.nan]})
        pmm.models.mixture(tables, 3, columns=columns)


def test_categories_that_are_spelled_in_two_ways_are_warned_of():
    def declared(own, other):
        tables = {"a": pd.DataFrame({"hue": own}), "b": pd.DataFrame({"hue": other})}
        return pmm.models.mixture(tables, 3)

    with pytest.warns(
        UserWarning,
        match="'hue': expected one spelling in all tables; found 'Red' in 'a' and 'red ' in 'b', ",
    ) as warned:
        declared(["Red", "blue", "Red"], ["blue", "red ", "Blue"])
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        declared(["m", "M", "f"], ["M", "f", "m"])
        declared(["m", "M", "f"], ["M", "f", "f"])
        declared(["m", "M", "f"], ["m", "f", "f"])
        declared(["< 5", "> 5"], ["> 5", "< 5"])


@pytest.mark.parametrize(
    "values",
    [
        pd.cut(np.arange(6), [-1, 2, 6]),
        pd.period_range("2020", periods=2, freq="Y").repeat(3).astype("category"),
        pd.Series([("u", 1), ("w", 2), ("w", 2)] * 2),
        pd.Series(["u", "w"] * 3, dtype=object),
    ],
)
def test_categories_of_any_kind_are_named_by_what_files_can_hold(values):
    frame = pd.DataFrame({"object": values, "u": np.arange(6.0)})
    model = pmm.models.mixture({"a": frame, "b": frame})
    assert {"a_object_", "b_object_"} <= {rv.name for rv in model.observed_RVs}
    expected = [str(value) for value in dict.fromkeys(values)]
    assert list(model.coords["category_object"]) == expected
    assert model.rvs_to_values[model["a_object_"]].data.tolist() == pd.factorize(values)[0].tolist()


@pytest.mark.parametrize("dtype", ["string", "string[pyarrow]", "arrow"])
def test_text_of_any_dtype_is_of_categories(dtype):
    pyarrow = pytest.importorskip("pyarrow")
    dtype = pd.ArrowDtype(pyarrow.string()) if dtype == "arrow" else dtype
    frame = pd.DataFrame({"town": pd.Series(["u", "w", None, "u"], dtype=dtype)})
    assert [rv.name for rv in pmm.models.mixture(frame).free_RVs][-1] == "table_town_unobserved"


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_blank_text_is_a_missing_value(dtype):
    frame = pd.DataFrame({"town": pd.Series(["u", "", "w", "  ", "u"], dtype=dtype)})
    model = pmm.models.mixture(frame)
    assert list(model.coords["category_town"]) == ["u", "w"]
    seen = model.rvs_to_values[model["table_town_observed"]]
    assert seen.eval().tolist() == [0, 1, 0]
    if dtype != "category":
        told = pmm.models.mixture(frame.replace({"u": "2", "w": "7"}), columns={"town": "count"})
        assert told.rvs_to_values[told["table_count_observed"]].eval().tolist() == [2, 7, 2]


def test_bad_tables_are_refused():
    frame, _ = table(20, 0)
    with pytest.raises(TypeError, match="expected a DataFrame, or a mapping"):
        pmm.models.mixture(frame.to_numpy())
    with pytest.raises(TypeError, match="'a': expected a DataFrame; found an object of type list"):
        pmm.models.mixture({"a": [1, 2]})
    with pytest.raises(
        TypeError, match=r"columns: expected a mapping .*; found an object of type l"
    ):
        pmm.models.mixture(frame, columns=["height"])
    with pytest.raises(ValueError, match="names of columns that are text, without '/'; found 0"):
        pmm.models.mixture(pd.DataFrame(frame.to_numpy()))
    with pytest.raises(ValueError, match="expected unique row labels; found '0' more than"):
        pmm.models.mixture(frame.set_index(np.zeros(20, int)))
    with pytest.raises(ValueError, match="found 'row 0' more than"):
        pmm.models.mixture(pd.concat([frame, frame]))
    with pytest.raises(ValueError, match=r"expected values that differ; found 1\.0 only"):
        pmm.models.mixture(frame.assign(height=1.0))
    with pytest.raises(
        ValueError, match=r"'height': expected values that differ by 1e-100 at least"
    ):
        pmm.models.mixture(frame.assign(height=1e-200 * np.arange(20)))
    with pytest.raises(ValueError, match=r"'town__': .* not end in '__'.* found 'probability_town"):
        pmm.models.mixture(frame.rename(columns={"town": "town__"}))
    with pytest.raises(ValueError, match="at least two categories"):
        pmm.models.mixture(frame.assign(town="x"))
    with pytest.raises(ValueError, match=r"shared: .* found 'height'"):
        pmm.models.mixture(frame, shared=["height"])
    for renamed, tables in (
        ({"town": "count"}, lambda own: own),
        ({"town": "own_count"}, lambda own: {"a": own, "b": own[["own_count"]]}),
        ({"town": "a"}, lambda own: {"a": own, "b": own[["a"]]}),
    ):
        with pytest.raises(ValueError, match=f"column '{renamed['town']}': .* second .* Rename"):
            pmm.models.mixture(tables(frame.rename(columns=renamed)))
    other = frame.assign(town=1)
    with pytest.raises(ValueError, match=r"'b', column 'town': expected a category.*found a count"):
        pmm.models.mixture({"a": frame, "b": other})


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2020-01-01", periods=20),
        pd.to_timedelta(range(20), unit="s"),
        np.arange(20) * 1j,
        pd.period_range("2020-01", periods=20, freq="M"),
    ],
)
def test_what_is_none_of_these_is_no_category(values):
    """Every date would be a category of its own."""
    frame, _ = table(20, 0)
    frame["seen"] = values
    with pytest.raises(ValueError, match=r"'table', column 'seen': expected numbers, .* dtype"):
        pmm.models.mixture(frame)


def test_two_tables_are_matched_by_what_they_share():
    frames = two_tables()
    labels = [table(60, 1, income=True)[1], table(50, 2)[1]]
    model = pmm.models.mixture(frames, n_clusters=6, columns={"income": "positive"})
    idata = pmm.sample(
        100, tune=100, chains=2, model=model, random_seed=1, progressbar=False, cores=1
    )
    together = pmm.match_probability(idata, "cluster_spring", "cluster_autumn").to_numpy()
    same = labels[0][:, None] == labels[1]
    assert together[same].mean() > 0.9
    assert together[~same].mean() < 0.05
    assert list(idata["posterior"]["mean"].coords["number"].to_numpy()) == ["height"]


def test_all_data_count_to_a_power():
    """Known labels apart. Clusters in which columns are correlated then stay whole."""
    rng = np.random.default_rng(0)
    shared, noise = rng.normal(size=(150, 1)), rng.normal(size=(150, 5))
    x = np.repeat([0.0, 4.0, 8.0], 50)[:, None] + shared + 0.7 * noise
    frame = pd.DataFrame(x, columns=list("abcde"))
    tables = {"one": frame[::2], "two": frame[1::2]}
    found = {}
    for power in (1.0, 0.5):
        model = pmm.models.mixture(tables, power=power)
        best = pmm.find_matching(model, starts=3, random_seed=0, progressbar=False)
        found[power] = len(pmm.cluster_sizes(pmm.partition_estimate(best)))
    assert found[1.0] > found[0.5] == 3
    holed = {
        "one": frame[::2].mask(frame[::2] > 9.0),
        "two": frame[1::2].assign(kind=["x", "y", "y"] * 25),
    }
    model = pmm.models.mixture(holed, known={"one": np.arange(75) % 2 - 1}, power=0.5)
    assert not read(model).refusals
    assert names(model.potentials) == {
        "coarsened_one_number_observed",
        "coarsened_two_number",
        "coarsened_two_kind",
    }
    with pytest.raises(ValueError, match="power: expected"):
        pmm.models.mixture(tables, power=2.0)


@pytest.mark.parametrize("missing", [False, True])
def test_correlated_columns_have_one_covariance(missing):
    """Of three tables, two share columns that the third has not; one has columns alone."""
    rng = np.random.default_rng(1)
    tables = {
        name: pd.DataFrame(
            rng.normal(size=(n, 2)) @ np.array([[1.0, 0.8], [0.0, 0.3]]), columns=["u", "v"]
        )
        for name, n in {"a": 2, "b": 2, "c": 1}.items()
    }
    for name in "ab":
        tables[name][["w", "x"]] = rng.normal(size=(2, 2))
    tables["a"]["y"] = rng.normal(size=2)
    tables["a"]["k"] = rng.poisson(3.0, 2)
    if missing:
        tables["a"].loc[1, "u"] = np.nan
    model = pmm.models.mixture(tables, n_clusters=3, correlated=True)
    assert model["precision"].eval().shape == (2, 2)
    assert model["precision_a_b"].eval().shape == (2, 2)
    assert model["precision_a"].eval().shape == (3, 1)
    assert not read(model).refusals
    testing.check_declared_density(model)
    testing.check_scores(model)
    testing.check_law(model)


def test_correlated_columns_are_not_what_cuts_clusters():
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(3), 50)
    x = np.array([0.0, 4.0, 8.0])[label][:, None] * [0.0, 0.0, 0.0, 1.0]
    x = x + 3.0 * rng.normal(size=(150, 1)) + 0.5 * rng.normal(size=(150, 4))
    frame = pd.DataFrame(x, columns=list("abcd"))
    tables = {"one": frame[::2], "two": frame[1::2]}
    labels = {"one": label[::2], "two": label[1::2]}
    found = {}
    for correlated in (False, True):
        model = pmm.models.mixture(tables, correlated=correlated)
        best = pmm.find_matching(model, starts=2, random_seed=0, progressbar=False)
        labelled = pmm.partition_estimate(best, progressbar=False)
        own = {name: labelled[f"cluster_{name}"].to_numpy() for name in tables}
        found[correlated] = pmm.metrics.adjusted_rand_index(labels, own)
    assert found[True] > 0.9
    assert found[False] < 0.3
    with pytest.raises(ValueError, match=r"power: expected 1 for correlated columns; found 0\.5"):
        pmm.models.mixture(tables, correlated=True, power=0.5)
    with pytest.raises(TypeError, match="correlated: expected"):
        pmm.models.mixture(tables, correlated="yes")
    counts = {"one": frame[["a"]].assign(n=range(150)), "two": frame[["b"]]}
    with pytest.raises(ValueError, match="correlated: expected columns of numbers, two at least"):
        pmm.models.mixture(counts, correlated=True)
    columns = {"n": "number"}
    assert "precision_one" in pmm.models.mixture(counts, columns=columns, correlated=True)


def test_the_prior_of_correlated_columns_is_the_stated_one():
    """Of tables by any names, whose columns of their own are correlated, too."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        rng.normal(size=(30, 4)) * [1.0, 2.0, 3.0, 4.0] + 5.0, columns=list("abcd")
    )
    model = pmm.models.mixture({"one": frame[["a", "b"]], "other": frame}, correlated=True)
    every = pd.concat([frame[["a", "b"]]] * 2)
    for suffix, own in {"": every, "_other": frame[["c", "d"]]}.items():
        precision, mean = model[f"precision{suffix}"], model[f"mean{suffix}"]
        drawn = pm.draw(precision, 4000, random_seed=3)
        within = own.var(ddof=0).to_numpy() / 4.0
        np.testing.assert_allclose(np.diag(drawn.mean(axis=0)), 5.0 * 0.5 / within, rtol=0.1)
        point = {precision: np.diag(1.0 / within), mean: np.tile(own.mean(), (25, 1))}
        point[mean][0, 0] += 1.0
        expected = stats.multivariate_normal.logpdf(point[mean], own.mean(), 20.0 * np.diag(within))
        found = pm.logp(mean, point[mean]).eval({precision: point[precision]})
        np.testing.assert_allclose(found, expected)


def test_correlated_columns_may_have_any_units():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(20, 2)) + rng.normal(size=(20, 1)), columns=["u", "v"])
    units = pd.Series({"u": 1e-12, "v": 1e12})

    def assigned(own, new):
        model = pmm.models.mixture(own, n_clusters=4, correlated=True)
        idata = pmm.sample(
            20, tune=20, chains=1, cores=1, model=model, random_seed=0, progressbar=False
        )
        found = pmm.assign(idata, model, {"table": new}, progressbar=False)
        return found["prediction/table"]["probability"].to_numpy()

    expected = assigned(frame, frame[:5])
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(assigned(frame * units, frame[:5] * units), expected, atol=1e-6)
