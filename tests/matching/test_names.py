"""Summaries take a domain by its name or its assignment's, and say what a slip may have meant."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm


@pytest.fixture
def idata():
    """Two domains, one with a space in its name, and a variable called as a domain."""
    rng = np.random.default_rng(0)
    sizes = {"north": 6, "south_2": 5}
    posterior = {
        f"cluster_{name}": (("chain", "draw", f"{name}_object"), rng.integers(3, size=(2, 20, n)))
        for name, n in sizes.items()
    }
    # What PyMC calls a table of which values are missing.
    posterior["north"] = (("chain", "draw", "north_object"), rng.normal(size=(2, 20, 6)))
    for name in sizes:
        dims = ("chain", "draw", f"{name}_feature", "factor")
        posterior[f"projection_{name}"] = (dims, rng.normal(size=(2, 20, 3, 2)))
    return xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)})


NAMES = [("north", "south_2"), ("north", "south 2"), ("cluster_north", "south-2")]
ASKED = {
    "match_probability": lambda i, a, b: pmm.match_probability(i, a, b),
    "partners": lambda i, a, b: pmm.match_probability(i, a, b, top=2),
    "within": lambda i, a, b: pmm.match_probability(i, a, "cluster_north", top=1),
    "decide": lambda i, a, b: pmm.decide(i, a, b, threshold=0.2),
    "unmatched": lambda i, a, b: pmm.unmatched_probability(i, a, b),
    "unmatched in all": lambda i, a, b: pmm.unmatched_probability(i, a),
    "span": lambda i, a, b: pmm.span_probability(i, [a, b]),
    "spans": lambda i, a, b: pmm.cluster_spans(i, var_names=[a, b]),
    "summary": lambda i, a, b: pmm.match_summary(i, var_names=[a, b]).objects,
    "estimate": lambda i, a, b: pmm.partition_estimate(i, var_names=[a, b]),
    "loss": lambda i, a, b: pmm.partition_loss(i, {a: np.arange(6) // 2}, var_names=[a]),
    "diagnose": lambda i, a, b: pmm.diagnose(i, var_names=[a, b]).table,
    "relevance": lambda i, a, b: pmm.relevance_probability(i, var_names=[a]),
    "map": lambda i, a, b: pmm.map_objects(i, np.eye(3), source=a, target=b),
}


def check_same(asked, idata, other, names):
    """Check that other draws give the same by these names as draws do by their variables'."""
    expected = asked(idata, "cluster_north", "cluster_south_2")
    found = asked(other, *names)
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    else:
        xr.testing.assert_identical(found, expected)


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("asked", ASKED)
def test_domains_and_assignments_are_one(idata, asked, names):
    check_same(ASKED[asked], idata, idata, names)


def test_a_slip_is_answered_with_the_word_that_was_meant(idata):
    with pytest.raises(KeyError, match=r"no variable 'nrth' .*did you mean 'north'"):
        pmm.match_probability(idata, "nrth", "south 2")
    with pytest.raises(KeyError, match="did you mean 'cluster_north'"):
        pmm.match_summary(idata, var_names=["clutser_north"])
    with pytest.raises(KeyError, match=r"there are \['cluster_north', 'cluster_south_2'\]\"$"):
        pmm.decide(idata, "north", "zzz")


def test_a_network_of_one_type_is_known_by_its_name():
    labels = np.zeros((1, 4, 3), int)
    dims = ("chain", "draw")
    one = xr.Dataset({f"cluster_{n}_person": ((*dims, n), labels) for n in "ab"})
    assert pmm.match_probability(one, "a", "b").shape == (3, 3)
    for other in ("firm", "big_person"):
        two = one.assign({f"cluster_{n}_{other}": ((*dims, f"{n}_2"), labels) for n in "ab"})
        said = rf"'a' has several types .* \['a_person', 'a_{other}'\]"
        with pytest.raises(KeyError, match=said):
            pmm.match_probability(two, "a", "b")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["firm_person", "firm_2_person", "firm_big_person"], "firm_person"),
        (["firm_big_person", "firm_person", "shop_person"], "firm_person"),
        (["firm_big", "shop"], None),
        (["firm_2", "firm_3"], None),
        (["firm_2_person", "shop_person"], None),
    ],
)
def test_names_that_begin_alike_are_of_others(names, expected):
    labels = xr.Dataset(
        {f"cluster_{n}": (("chain", "draw", n), np.zeros((1, 2, 3), int)) for n in names}
    )
    if expected is None:
        with pytest.raises(KeyError, match=r"no variable 'firm' among the draws; there are \['clu"):
            pmm.unmatched_probability(labels, "firm")
    else:
        assert pmm.unmatched_probability(labels, "firm").dims == (expected,)


@pytest.mark.parametrize("asked", ASKED)
def test_the_prefix_of_a_named_model_is_understood(idata, asked):
    posterior = idata["posterior"].to_dataset()
    named = {name: f"shop::{name}" for name in posterior.data_vars}
    prefixed = idata.copy()
    for name in ("cluster_north", "cluster_south_2"):
        posterior[name].attrs["clusters"] = "shop::weights"
    prefixed["posterior"] = xr.DataTree(posterior.rename(named))
    for name in ("cluster_north", "cluster_south_2"):
        idata["posterior"][name].attrs["clusters"] = "weights"
    for names in (("north", "south 2"), ("shop::cluster_north", "shop::cluster_south_2")):
        if asked in ("loss", "map") and "shop" in names[0]:
            continue  # of labels that are given, and of projections
        check_same(ASKED[asked], idata, prefixed, names)


def test_models_of_two_prefixes_keep_them():
    labels = (("chain", "draw", "n"), np.zeros((1, 4, 3), int))
    two = xr.Dataset({f"{prefix}::cluster_a": labels for prefix in ("one", "other")})
    with pytest.raises(KeyError, match=r"no variable 'a' .*one::cluster_a"):
        pmm.match_probability(two, "a", "a")
