"""Labels on disk are read some draws or objects at a time, and give what labels in memory give."""

import numpy as np
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.matching.draws import OnDisk

pytest.importorskip("dask")

N_DRAWS = 70


@pytest.fixture(scope="module")
def in_memory():
    rng = np.random.default_rng(0)
    found = {}
    for name, n in (("a", 30), ("b", 24)):
        labels = np.tile(rng.integers(4, size=n), (2, N_DRAWS // 2, 1))
        moved = rng.random(labels.shape) < 0.2
        labels[moved] = rng.integers(6, size=moved.sum())
        found[f"cluster_{name}"] = (("chain", "draw", name), labels.astype(np.int16))
    return xr.Dataset(found)


SUMMARIES = {
    "match_probability": lambda draws: pmm.match_probability(draws, "a", "b"),
    "best partners": lambda draws: pmm.match_probability(draws, "a", "b", top=2),
    "partition_estimate": lambda draws: pmm.partition_estimate(draws, random_seed=0),
    "match_summary": lambda draws: pmm.match_summary(draws, estimate(draws)),
    "unmatched_probability": lambda draws: pmm.unmatched_probability(draws, "a"),
    "cluster_spans": pmm.cluster_spans,
    "decide": lambda draws: pmm.decide(draws, "a", "b"),
    "relabel": lambda draws: pmm.relabel(draws, estimate(draws)),
    "diagnose": lambda draws: pmm.diagnose(draws).table,
}
# Those that look at one draw at a time, or some.
STREAMED = ["match_summary", "unmatched_probability", "cluster_spans", "partition_estimate"]


def estimate(draws):
    return draws[["cluster_a", "cluster_b"]].isel(chain=0, draw=0, drop=True).load()


def same(one, two):
    if isinstance(one, tuple):
        for a, b in zip(one, two, strict=True):
            same(a, b)
    elif isinstance(one, xr.Dataset | xr.DataArray):
        xr.testing.assert_identical(one, two.load())
    else:
        assert one.equals(two)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUMMARIES)
def test_summaries_are_the_same(name, in_memory):
    on_disk = in_memory.chunk(draw=1, a=10, b=10)
    same(SUMMARIES[name](in_memory), SUMMARIES[name](on_disk))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUMMARIES)
def test_summaries_of_relevant_objects_are_the_same(name, in_memory):
    flagged = in_memory.assign(relevance_b=(in_memory["cluster_b"] + in_memory["draw"]) % 3 > 0)
    same(SUMMARIES[name](flagged), SUMMARIES[name](flagged.chunk(draw=1, a=10, b=10)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STREAMED)
def test_labels_are_never_loaded_whole(name, in_memory, monkeypatch):
    read, most = OnDisk.__getitem__, [0]

    def counted(own, key):
        found = read(own, key)
        most[0] = max(most[0], found.size / own.size)
        return found

    def whole(own, dtype=None, copy=None):
        raise AssertionError("loaded whole")

    monkeypatch.setattr(OnDisk, "__getitem__", counted)
    monkeypatch.setattr(OnDisk, "__array__", whole)
    SUMMARIES[name](in_memory.chunk(draw=1, a=10, b=10))
    assert 0 < most[0] < 1


@pytest.mark.parametrize("top", [None, 2])
def test_match_probability_reads_labels_twice(top, in_memory, monkeypatch):
    """Which there are, and then themselves."""
    read, n_read = OnDisk.__getitem__, [0]

    def counted(own, key):
        found = read(own, key)
        n_read[0] += found.size
        return found

    monkeypatch.setattr(OnDisk, "__getitem__", counted)
    pmm.match_probability(in_memory.chunk(draw=1, a=10, b=10), "a", "b", top=top)
    assert n_read[0] == 2 * sum(own.size for own in in_memory.data_vars.values())
