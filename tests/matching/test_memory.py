"""What would take too much memory is refused before it is made, and the thinner way named."""

import numpy as np
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.matching.memory import check_size, limit
from tests.running.processes import MODELS, QUIET, SEED


def draws_of(n_a, n_b, n_draws=1):
    rng = np.random.default_rng(0)
    labels = {
        f"cluster_{name}": (
            ("chain", "draw", name),
            rng.integers(9, size=(1, n_draws, n)).astype(np.int32),
        )
        for name, n in {"a": n_a, "b": n_b}.items()
    }
    return xr.Dataset(labels)


def test_a_matrix_of_all_pairs_says_how_large_it_would_be():
    idata = draws_of(200_000, 100_000)
    message = (
        r"match_probability: .* 'cluster_a' and 'cluster_b', of 200,000 x 100,000: expected at "
        r"most 4 GiB; found 149\.0 GiB\. Ask for the likeliest partners alone \(top=5\)"
    )
    with pytest.raises(MemoryError, match=message):
        pmm.match_probability(idata, "a", "b")
    assert len(pmm.match_probability(idata, "a", "b", top=1)) == 200_000


def test_pairs_are_counted_before_they_are_listed(monkeypatch):
    idata = draws_of(60, 50)
    for b in "ba":
        n_pairs = len(pmm.decide(idata, "a", b, threshold=0.0))
        assert n_pairs > 100
        with monkeypatch.context() as patch:
            patch.setenv("PM_MATCH_MEMORY", str((n_pairs + 0.5) * 144 / 2**30))
            pmm.decide(idata, "a", b, threshold=0.0)
            patch.setenv("PM_MATCH_MEMORY", str((n_pairs - 0.5) * 144 / 2**30))
            with pytest.raises(
                MemoryError, match=rf"^decide: expected at most {n_pairs - 1} pairs"
            ):
                pmm.decide(idata, "a", b, threshold=0.0)


def test_the_limit_can_be_another(monkeypatch):
    idata = draws_of(60, 50)
    monkeypatch.setenv("PM_MATCH_MEMORY", str(60 * 50 * 8 / 2**30))
    assert pmm.match_probability(idata, "a", "b").shape == (60, 50)
    monkeypatch.setenv("PM_MATCH_MEMORY", str(60 * 49 * 8 / 2**30))
    with pytest.raises(MemoryError, match="60 x 50"):
        pmm.match_probability(idata, "a", "b")
    monkeypatch.setenv("PM_MATCH_MEMORY", "plenty")
    with pytest.raises(ValueError, match="expected a positive number of GiB; found 'plenty'"):
        limit()


def test_sizes_do_not_overflow():
    with pytest.raises(MemoryError, match=r"found 8,000,000,000\.0 GiB"):
        check_size("this,", (np.int64(2**30), np.int64(10**9)), "Do without")


def test_new_objects_and_all_known_ones(monkeypatch):
    tables = pmm.datasets.synthetic(20, 6, n_factors=2, random_seed=0)
    model = pmm.models.projected_clusters(tables, n_factors=2, n_clusters=4)
    found = pmm.find_matching(model, starts=1, random_seed=0, progressbar=False)
    new = {"a": tables["a"].to_numpy()[:3]}
    monkeypatch.setenv("PM_MATCH_MEMORY", str(3 * 39 * 8 / 2**30))
    with pytest.raises(MemoryError, match=r"^assign: .* of 'a' .* of 3 x 40: .* Ask for the"):
        pmm.assign(found, model, new, progressbar=False)


def test_sample_warns_of_what_its_draws_will_take(monkeypatch):
    model = MODELS["robust"]()
    monkeypatch.setenv("PM_MATCH_MEMORY", str(2 * 3 * 16 * 4 / 2**30))
    message = "2 chains of 3 draws will take .* most of it for 'cluster': thin keeps every"
    with pytest.warns(UserWarning, match=message):
        pmm.sample(3, tune=2, chains=2, cores=1, model=model, **SEED, **QUIET)
