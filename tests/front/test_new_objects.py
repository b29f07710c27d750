"""New objects of a matching: what is made of their tables, and where they belong."""

import numpy as np
import pandas as pd
import pytest

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
    partners = found["south"].str[1:].astype(int) % 3
    assert partners.tolist() == [2, 0, 1]
    assert (found["south_probability"] > 0.8).all()
    assert (found["unseen"] < 0.1).all()
    # By the user's name or the variable's, from a file, one row.
    pd.testing.assert_frame_equal(
        shops.assign("shop_1", customers([2])), shops.assign("shop 1", customers([2]))
    )


def test_what_is_not_seen_is_said_and_counts_for_nothing(shops, tmp_path):
    new = customers([0, 1])
    with pytest.warns(UserWarning, match=r"'shop 1', column 'member': 'maybe' is none of the cat"):
        strange = shops.assign("shop 1", new.assign(member=["maybe", "no"]))
    missing = shops.assign("shop 1", new.assign(member=[None, "no"]))
    pd.testing.assert_frame_equal(strange, missing)
    with pytest.warns(UserWarning, match=r"'shop 1': columns \['spend_€'\] are not there"):
        fewer = shops.assign("shop 1", new.drop(columns="spend/€"))
    pd.testing.assert_frame_equal(fewer, shops.assign("shop 1", new.assign(**{"spend/€": np.nan})))
    new.to_csv(tmp_path / "new.csv", index=False)
    pd.testing.assert_frame_equal(
        shops.assign("shop 1", tmp_path / "new.csv"), shops.assign("shop 1", new)
    )


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("table_clusters", {}),
        ("table_clusters", {"n_components": 1}),
        ("aligned_clusters", {}),
        ("projected_clusters", {}),
        ("projected_clusters", {"standardise": True}),
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
        again = as_the_model_takes_them(prepared, declared, name, table.iloc[3:7])
        seen = declared.rvs_to_values[declared[name]].data
        np.testing.assert_allclose(np.asarray(again, float), seen[3:7], atol=1e-10)


def test_what_cannot_be_placed_is_refused(shops):
    with pytest.raises(KeyError, match="north"):
        shops.assign("north", customers([0]))
    with pytest.raises(ValueError, match=r"new objects of 'south': no column can be used"):
        shops.assign("south", customers([0])[["sku", "note"]])
    with pytest.raises(ValueError, match=r"'south: south_count', row 0, column 0: expected"):
        shops.assign("south", customers([0]).assign(visits=-1))
    edges = np.random.default_rng(0).random((6, 5)) < 0.4
    prepared = pmm.prepare({"a": edges, "b": edges}, types=("x", "y"))
    with pytest.raises(ValueError, match="expected a matching of tables"):
        as_the_model_takes_them(prepared, None, "a", edges)
