"""New objects of a matching: what is made of their tables, and where they belong."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.front.new_objects import as_the_model_takes_them

MEMBER, SPEND = np.array(["yes", "no", "no"]), np.array([5.0, 30.0, 80.0])
VISITS = np.array([20, 8, 1])
DRAWS = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 1, "progressbar": False}


def customers(kinds):
    kinds = np.asarray(kinds)
    return pd.DataFrame(
        {
            "sku": [f"c{i}" for i in range(len(kinds))],
            "visits": VISITS[kinds] + np.arange(len(kinds)) % 2,
            "spend/€": SPEND[kinds] * (1.0 + 0.1 * (np.arange(len(kinds)) % 3)),
            "member": MEMBER[kinds],
            "note": np.arange(len(kinds)) + 0.5,
        }
    )


@pytest.fixture(scope="module")
def shops():
    tables = {"shop 1": customers([0, 1, 2] * 5), "south": customers([0, 1, 2] * 4)}
    return pmm.match(
        tables, id="sku", columns={"note": "ignore", "spend/€": "positive"}, n_clusters=5, **DRAWS
    )


def test_each_is_placed_beside_its_like(shops):
    found = shops.assign("shop 1", customers([2, 0, 1]))
    assert found.index.tolist() == ["c0", "c1", "c2"]
    known = shops.labels["cluster_shop_1"].to_numpy()
    assert found["cluster"].tolist() == known[[2, 0, 1]].tolist()
    assert (found["probability"] > 0.8).all()
    partners = found["partner_south"].str[1:].astype(int) % 3
    assert partners.tolist() == [2, 0, 1]
    assert (found["match_south"] > 0.8).all()
    assert (found["unseen"] < 0.1).all()
    # By the user's name or the variable's, or a number; one row.
    pd.testing.assert_frame_equal(
        shops.assign("shop_1", customers([2])), shops.assign("shop 1", customers([2]))
    )
    tables = {2.5: customers([0, 1]), 3: customers([2, 1])}
    numbered = pmm.match(tables, id="sku", search_only=True, random_seed=1, progressbar=False)
    found = numbered.assign(2.5, customers([2]))
    assert found[["match_2.5", "match_3"]].shape == (1, 2)
    assert numbered.matches(2.5, 3)["object"].isin(["c0", "c1"]).all()


def test_what_is_not_seen_is_said_and_counts_for_nothing(shops, tmp_path):
    new = customers([0, 1])
    with pytest.warns(UserWarning, match=r"'shop 1', column 'member': 'maybe' is none of the cat"):
        strange = shops.assign("shop 1", new.assign(member=["maybe", "no"]))
    missing = shops.assign("shop 1", new.assign(member=[None, "no"]))
    pd.testing.assert_frame_equal(strange, missing)
    with pytest.warns(UserWarning, match=r"'shop 1': columns \['spend_€'\] are not there"):
        fewer = shops.assign("shop 1", new.drop(columns="spend/€"))
    pd.testing.assert_frame_equal(fewer, shops.assign("shop 1", new.assign(**{"spend/€": np.nan})))
    with pytest.warns(UserWarning, match=r"'shop 1': columns \['age'\] are none that known obj"):
        more = shops.assign("shop 1", new.assign(age=[20, 60]))
    pd.testing.assert_frame_equal(more, shops.assign("shop 1", new))
    new.to_csv(tmp_path / "new.csv", index=False)
    pd.testing.assert_frame_equal(
        shops.assign("shop 1", tmp_path / "new.csv"), shops.assign("shop 1", new)
    )


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("table_clusters", {}),
        ("table_clusters", {"n_components": 1}),
        ("normal_clusters", {}),
        ("aligned_clusters", {}),
        ("projected_clusters", {}),
        ("projected_clusters", {"standardise": True}),
        ("table_clusters", {"standardise": True, "n_components": 1}),
        ("aligned_clusters", {"standardise": True, "n_components": 1}),
    ],
)
def test_known_objects_given_again_are_what_the_model_was_made_of(model, options):
    rng = np.random.default_rng(0)
    tables = {
        name: pd.DataFrame(rng.normal(3.0, 2.0, size=(12, m)), columns=list("pqr")[:m])
        for name, m in (("a", 3), ("b", 2))
    }
    prepared = pmm.prepare(tables, model=model, **options)
    declared = prepared.declare()
    for name, table in tables.items():
        again = as_the_model_takes_them(prepared, name, table.iloc[3:7])[1]
        seen = declared.rvs_to_values[declared[name]].data
        np.testing.assert_allclose(np.asarray(again, float), seen[3:7], atol=1e-10)


def test_what_cannot_be_placed_is_refused(shops):
    with pytest.raises(KeyError, match="north"):
        shops.assign("north", customers([0]))
    with pytest.raises(
        ValueError,
        match=r"new objects of 'south': expected columns that known objects have, of "
        r"\[(?!.*'note'.*;).*\]; found \['note'\]",
    ):
        shops.assign("south", customers([0])[["sku", "note"]])
    with pytest.raises(ValueError, match="one object is a table of one row"):
        shops.assign("south", customers([0]).drop(columns="sku").iloc[0])
    with pytest.raises(
        ValueError, match=r"new objects of 'shop 1', row 'c1', column 'visits': exp.*-1.0$"
    ):
        shops.assign("shop 1", customers([0, 0]).assign(visits=[1, -1]))
    with pytest.raises(KeyError, match=r"no domain 'shop'; there are \['shop 1', 'south'\]"):
        shops.assign("shop", customers([0]))


def test_networks_are_for_assign():
    edges = (np.random.default_rng(0).random((6, 5)) < 0.4).astype(int)
    result = pmm.match({"a": edges, "b": edges}, types=("x", "y"), **DRAWS)
    with pytest.raises(ValueError, match="expected a matching of tables"):
        result.assign("a", edges)


def test_categories_are_those_of_their_own_column():
    """Whichever columns begin alike, are shared, or hold numbers."""
    kinds = np.arange(12) % 3
    table = pd.DataFrame(
        {
            "colour": np.array(["a", "b", "c"])[kinds],
            "col": np.array(["x", "a", "z"])[kinds],
            "code": np.array(["1", "B", "2"])[kinds],
            "yes": kinds > 0,
            "counted": np.array(["few", "some", "many"])[kinds],
            "v": kinds * 5,
        }
    )
    tables = {"cluster 1": table, "b": table.replace({"col": {"x": "y"}})}
    shared = ["colour", "v", "code", "yes", "counted"]
    prepared = pmm.prepare(tables, shared=shared, columns={"code": "category"})
    declared = prepared.declare()
    new = table.iloc[[2, 0]].assign(code=[2, 1])
    found = as_the_model_takes_them(prepared, "cluster_1", new)[1]
    for variable, given in found.items():
        seen = declared.rvs_to_values[declared[variable]].data
        np.testing.assert_array_equal(np.asarray(given, float), seen[[2, 0]], variable)
    assert {name for name in found} == {
        own.name for own in declared.observed_RVs if own.name.startswith("cluster_1")
    }


@pytest.mark.parametrize("codes", [[12345601, 12345602], [0.12345601, 0.12345602], [True, False]])
def test_categories_that_are_numbers_differ_in_any_digit(codes):
    table = pd.DataFrame({"code": codes * 3, "v": [1.5, 9.0, 2.0, 8.0, 1.0, 7.0]})
    prepared = pmm.prepare({"a": table, "b": table}, columns={"code": "category"})
    expected = table["code"].map({code: k for k, code in enumerate(sorted(codes))}).tolist()
    for new in (table, table.astype({"code": object}), table.astype({"code": "category"})):
        found = as_the_model_takes_them(prepared, "a", new)[1]
        assert found["a_code"].tolist() == expected
    with_a_hole = as_the_model_takes_them(prepared, "a", table.reindex(range(7)))[1]["a_code"]
    np.testing.assert_array_equal(with_a_hole, [*expected, np.nan])


def test_files_of_a_few_rows_have_no_labels_in_known_columns(tmp_path):
    table = pd.DataFrame({"member": ["yes", "no"] * 3, "v": [1, 9, 2, 8, 1, 7]})
    prepared = pmm.prepare({"a": table, "b": table})
    table.iloc[:1].to_csv(tmp_path / "new.csv", index=False)
    found = as_the_model_takes_them(prepared, "a", tmp_path / "new.csv")[1]
    assert found["a_member"].tolist() == [1.0]


def test_files_are_read_by_the_types_of_known_files(tmp_path):
    """Codes of digits alone are text where others are not."""
    known = tmp_path / "a.csv"
    known.write_text("name,code/part,v\nn1,003,1\nn2,3,2\nn3,B,9\nn4,C,1\nn5,B,8\nn6,C,2\n")
    prepared = pmm.prepare([known])
    new = tmp_path / "new.csv"
    new.write_text("name,code/part,v\n007,003,1\n8,3,9\n9,,9\n")
    found = as_the_model_takes_them(prepared, "a", new)[1]
    np.testing.assert_array_equal(found["a_code_part"], [0.0, 1.0, np.nan])
    new.write_text("name,code/part,v\n1,3.0,9\n2,,2\n")
    found = as_the_model_takes_them(prepared, "a", new)[1]
    np.testing.assert_array_equal(found["a_code_part"], [1.0, np.nan])
    new.write_text("name,code/part,v\n1,3.0,9\n2,B,2\n")
    with pytest.warns(UserWarning, match=r"'3\.0' is none of the categories that were seen"):
        as_the_model_takes_them(prepared, "a", new)


def test_objects_without_an_id_are_numbered(shops):
    found = shops.assign("south", customers([0, 1]).drop(columns="sku"))
    assert found.index.tolist() == [0, 1]


def test_given_clusters_place_new_objects_too():
    table = customers([0, 1, 2] * 4).drop(columns=["note"])
    given = np.array(["x", "y", "z"])[np.arange(12) % 3]
    result = pmm.match({"a": table, "b": table}, id="sku", clusters={"a": given}, **DRAWS)
    found = result.assign("b", table.iloc[:3])
    partners = found["partner_a"].str[1:].astype(int) % 3
    assert partners.tolist() == [0, 1, 2]


def test_all_chains_count_alike_where_they_disagree():
    """Of new objects, missing values and classes: in one chain, labels of a table are turned."""
    here, there = customers([0, 1, 2] * 5), customers([0, 1, 2] * 4)
    there.loc[0, "visits"] = np.nan
    options = {"id": "sku", "columns": {"note": "ignore"}, "classes": {"here": list("abc") * 5}}
    own = pmm.match({"here": here, "there": there}, model="mixture", **options, **DRAWS)
    posterior = own.idata["posterior"].to_dataset().copy(deep=True)
    posterior["cluster_there"][1] = (posterior["cluster_there"][1] + 1) % 3
    idata = own.idata.copy()
    idata["posterior"] = xr.DataTree(posterior)
    trees = [idata, *(idata.isel(chain=[k], missing_dims="ignore") for k in range(2))]
    results = [pmm.MatchResult(tree, own.model, own.prepared) for tree in trees]
    assert "chain" in results[0].labels.attrs
    density, *each = (found.assign("there", here[:3])["log_predictive"] for found in results)
    np.testing.assert_allclose(density, np.logaddexp(*each) - np.log(2))
    filled = [found.impute(random_seed=1, progressbar=False)["there"] for found in results]
    visits, *each = (found["visits"].iloc[0] for found in filled)
    assert abs(visits - np.mean(each)) < 0.5 < 2.0 < abs(np.diff(each))
    sure = [found.classes().query("domain == 'there'")["probability"] for found in results]
    assert (sure[0] < 0.6).all()
    assert (np.array(sure[1:]) > 0.9).all()
