"""Counts in place of labels are those of the labels of the same run."""

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.running.draws import Draws
from tests.running.processes import QUIET, SEED, Sampling, same

pytestmark = pytest.mark.filterwarnings("ignore:the draws fill the truncation")
LENGTH = {"tune": 3, "chains": 3, "cores": 1}


def domains():
    """Two domains of named objects, one of 12 and one of 9."""
    rng = np.random.default_rng(0)
    coords = {"shop": [f"s{i}" for i in range(12)], "web": [f"w{i}" for i in range(9)]}
    with pm.Model(coords=coords) as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
        mu = pm.Normal("mu", 0.0, 3.0, shape=5)
        for name, own in coords.items():
            label = pm.Categorical(f"cluster_{name}", p=weights, dims=name)
            pm.Deterministic(f"mean_{name}", mu[label].mean())
            pm.Normal(f"x_{name}", mu[label], 0.7, observed=rng.normal(0.0, 1.5, len(own)))
    return model


def network():
    """Two sets of clusters, two domains of each, and objects that are irrelevant."""
    rng = np.random.default_rng(1)
    cells = {"a": rng.integers(0, 2, (9, 7)), "b": rng.integers(0, 2, (6, 8))}
    return pmm.models.relational_clusters(cells, n_clusters=3)


def partly_known():
    """Labels of which some are observed, and an assignment without a prefix whose are all."""
    rng = np.random.default_rng(2)
    labels = np.ma.masked_less(np.array([0, 1, -1, -1, -1, -1, 2, -1]), 0)
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        mu = pm.Normal("mu", 0.0, 3.0, shape=3)
        z = pm.Categorical("z", p=weights, observed=labels)
        known = pm.Categorical("known", p=weights, observed=np.arange(6) % 3)
        pm.Normal("x", mu[z], 1.0, observed=rng.normal(size=8))
        pm.Normal("y", mu[known], 1.0, observed=rng.normal(size=6))
    return model


MODELS = {"domains": domains, "network": network, "partly known": partly_known}
# How many pairs of assignments have clusters of one set.
PAIRS = {"domains": 4, "network": 8, "partly known": 4}


def drawn(name="domains", draws=8, **kwargs):
    return pmm.sample(draws, model=MODELS[name](), **LENGTH | SEED | QUIET | kwargs)


def whole(name="domains", **kwargs):
    return drawn(name, **kwargs)["posterior"].to_dataset()


def relevance_of(posterior, name):
    flags = posterior.get(name.replace("cluster_", "relevance_"))
    return xr.ones_like(posterior[name]) if flags is None or flags.name == name else flags


def check(found, expected):
    """Compare counts with draws of labels."""
    counts, posterior = found["landmarks"].to_dataset(), found["posterior"].to_dataset()
    short = [own.removeprefix("size_") for own in posterior if own.startswith("size_")]
    names = [own if own in expected.data_vars else f"cluster_{own}" for own in short]
    for name in names:
        short, labels = name.removeprefix("cluster_"), expected[name].to_numpy()
        flags = relevance_of(expected, name).to_numpy() != 0
        n_clusters = posterior[f"size_{short}"].shape[-1]
        own = np.where(flags, labels, -1)
        np.testing.assert_array_equal(
            posterior[f"size_{short}"], (own[..., None] == np.arange(n_clusters)).sum(axis=2)
        )
        others = []
        for other in names:
            where = other.removeprefix("cluster_")
            together = counts.get(f"together_{short}_with_{where}")
            if together is None:
                continue
            chosen = there(expected[other], counts[f"{where}_landmark"])
            theirs = np.where(relevance_of(expected, other) != 0, expected[other], -2)
            others += [theirs] if other != name else []
            equal = own[:, :, None, :] == theirs[:, :, chosen, None]
            np.testing.assert_array_equal(together, equal.sum(axis=1))
            np.testing.assert_array_equal(counts[other], expected[other].to_numpy()[..., chosen])
            flag = other.replace("cluster_", "relevance_")
            if other.startswith("cluster_") and flag in expected:
                np.testing.assert_array_equal(counts[flag], expected[flag].to_numpy()[..., chosen])
        if others:
            alone = ~(own[..., None] == np.concatenate(others, axis=2)[:, :, None]).any(axis=3)
            np.testing.assert_array_equal(counts[f"unmatched_{short}"], alone.sum(axis=1))
    np.testing.assert_array_equal(counts["n_draws"], expected.sizes["draw"])


def there(variable, landmarks):
    """Return where landmarks are among an assignment's objects."""
    dim = variable.dims[-1]
    names = variable[dim].to_numpy() if dim in variable.coords else np.arange(variable.shape[-1])
    return [names.tolist().index(own) for own in landmarks.to_numpy()]


@pytest.mark.parametrize("name", MODELS)
def test_they_are_those_of_the_labels(name):
    expected, found = whole(name), drawn(name, record=4)
    check(found, expected)
    assert sum(own.startswith("together_") for own in found["landmarks"].data_vars) == PAIRS[name]
    kept = {own for own in found["posterior"].data_vars if not own.startswith("size_")}
    assert kept == {
        own for own in expected.data_vars if not re.match("cluster_|relevance_[ab]_|z|known", own)
    }
    for own in kept:
        np.testing.assert_array_equal(found["posterior"][own], expected[own])


def test_every_kth_draw_and_draws_while_tuning():
    options = {"draws": 8, "tune": 4, "thin": 2, "discard_tuned_samples": False}
    found = drawn(record=3, **options)
    check(found, whole(**options))
    assert "cluster_shop" not in found["warmup_posterior"]


@pytest.fixture(scope="module")
def expected():
    return whole()


@pytest.fixture(scope="module")
def counted():
    return drawn(record=4)


def assert_same(found, expected):
    assert same(found, expected)
    xr.testing.assert_identical(found["landmarks"].to_dataset(), expected["landmarks"].to_dataset())


def test_in_processes_and_on_executors(counted):
    assert_same(drawn(record=4, cores=2), counted)
    options = {name: own for name, own in (LENGTH | SEED | QUIET).items() if name != "cores"}
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pmm.sample(8, model=domains(), record=4, executor=pool, **options)
    assert_same(found, counted)


def test_with_a_checkpoint_and_more_draws(counted, tmp_path):
    drawn(record=4, draws=5, checkpoint=tmp_path)
    quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    assert_same(pmm.resume(tmp_path, model=domains(), draws=8, **quiet), counted)
    with pytest.raises(TypeError, match="record: expected neither trace nor"):
        pmm.resume(tmp_path, model=domains(), return_inferencedata=False, **quiet)


def test_chains_that_were_cut_are_counted_whole(expected):
    long = pmm.sample(300, model=domains(), record="all", **LENGTH | SEED | QUIET)["posterior"]
    process = Sampling(
        pmm.sample, 300, model=domains(), record=4, pause=0.01, **LENGTH | SEED | {"cores": 3}
    )
    process.wait_for(60)
    process.interrupt()
    found, messages = process.found()
    assert any("interrupted: chains have" in own for own in messages), found
    counts = found["landmarks"]
    n_draws = counts["n_draws"].to_numpy()
    assert (n_draws >= found["posterior"].sizes["draw"]).all()
    assert (n_draws < 300).all()
    chosen = there(long["cluster_web"], counts["web_landmark"])
    for chain, n in enumerate(n_draws):
        own, theirs = (long[f"cluster_{d}"].to_numpy()[chain, :n] for d in ("shop", "web"))
        equal = (own[:, None] == theirs[:, chosen, None]).sum(axis=0)
        np.testing.assert_array_equal(counts["together_shop_with_web"][chain], equal)


def test_many_draws_are_worked_on_in_parts(counted, monkeypatch):
    monkeypatch.setattr("pm_match.running.draws._BATCH", 100)
    assert_same(drawn(record=4), counted)


def test_the_seed_draws_landmarks_and_names_choose_them(counted, expected):
    counts = counted["landmarks"].to_dataset()
    names = {name: counts[f"{name}_landmark"].to_numpy().tolist() for name in ("web", "shop")}
    assert [len(own) for own in names.values()] == [4, 4]
    assert_same(drawn(record=names), counted)
    other = pmm.sample(8, model=domains(), record=4, **LENGTH | QUIET, random_seed=4)
    assert other["landmarks"]["shop_landmark"].to_numpy().tolist() != names["shop"]
    generator = {"random_seed": np.random.default_rng(3)}
    again = pmm.sample(8, model=domains(), record=4, **LENGTH | QUIET | SEED | generator)
    assert_same(again, counted)
    few = drawn(record={"web": ["w3"]})
    check(few, expected)
    assert dict(few["landmarks"]["together_shop_with_web"].sizes) == {
        "chain": 3,
        "web_landmark": 1,
        "shop": 12,
    }
    assert drawn(record=100)["landmarks"].sizes["web_landmark"] == 9


def test_summaries_read_the_counts(counted, expected):
    counts = counted["landmarks"].to_dataset()
    chosen = there(expected["cluster_web"], counts["web_landmark"])
    found = pmm.match_probability(counted, "shop", "cluster_web")
    all_pairs = pmm.match_probability(expected, "shop", "web")
    np.testing.assert_array_equal(found, all_pairs[:, chosen])
    assert found.dims == ("shop", "web_landmark")
    assert found.attrs["chance"] == pytest.approx(all_pairs.attrs["chance"], rel=1e-12)
    some = expected.isel(web=chosen)
    table = pmm.match_probability(counted, "shop", "web", top=3)
    assert table.attrs == found.attrs
    pd.testing.assert_frame_equal(table, pmm.match_probability(some, "shop", "web", top=3))
    within = pmm.match_probability(counted, "web", "web", top=9)
    everyone = pmm.match_probability(expected, "web", "web", top=9)
    kept = everyone[everyone["partner"].isin(counts["web_landmark"].to_numpy())]
    pd.testing.assert_frame_equal(within, kept.reset_index(drop=True))
    assert within.attrs["chance"] == pytest.approx(everyone.attrs["chance"], rel=1e-12)
    for b in (None, "web", ["cluster_web"]):
        alone = pmm.unmatched_probability(counted, "shop", b)
        xr.testing.assert_identical(alone, pmm.unmatched_probability(expected, "shop", b))


def test_convergence_is_judged_on_landmarks(counted, expected):
    chosen = {
        name: there(expected[f"cluster_{name}"], counted["landmarks"][f"{name}_landmark"])
        for name in ("shop", "web")
    }
    some = xr.DataTree.from_dict(
        {"posterior": expected.isel(chosen), "sample_stats": counted["sample_stats"]}
    )
    found, plain = pmm.diagnose(counted), pmm.diagnose(some)
    titles = found.table.index.str.replace(" (landmarks)", "")
    pd.testing.assert_frame_equal(found.table.set_axis(titles), plain.table, check_names=False)
    assert found.table.index.str.endswith(" (landmarks)").sum() == 3
    assert "worst of 28 pairs (landmarks)" in found.table.index[4]
    pd.testing.assert_frame_equal(found.chains, plain.chains)
    estimate = pmm.partition_estimate(counted, group="landmarks", progressbar=False)
    np.testing.assert_array_equal(
        estimate["cluster_web"],
        pmm.partition_estimate(some, progressbar=False)["cluster_web"],
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_run_judges_itself(name, caplog):
    with caplog.at_level("INFO", "pymc"):
        drawn(name, record=3, quiet=False, compute_convergence_checks=True)
    assert "too small to check convergence" in caplog.text


WITHOUT = {
    "estimate": lambda i: pmm.partition_estimate(i, progressbar=False),
    "summary": lambda i: pmm.match_summary(i),
    "spans": lambda i: pmm.cluster_spans(i),
    "decide": lambda i: pmm.decide(i, "shop", "web"),
    "posterior alone": lambda i: pmm.match_probability(i["posterior"].to_dataset(), "shop", "web"),
    "span": lambda i: pmm.span_probability(i, ["shop", "web"]),
    "relevance": lambda i: pmm.relevance_probability(i),
    "assign": lambda i: pmm.assign(i, domains(), {"shop": [0.0]}),
}


@pytest.mark.parametrize("asked", WITHOUT)
def test_what_needs_labels_says_so(counted, asked):
    with pytest.raises(KeyError, match=r"labels were not recorded \(record= of.*thin= keeps"):
        WITHOUT[asked](counted)


WRONG = {
    "number": (0, ValueError, r"record: expected \"all\", or, .*; found 0"),
    "word": ("labels", ValueError, "a number of landmarks of every .* found 'labels'"),
    "object": ({"web": ["w1", "s1"]}, ValueError, r"objects of 'cluster_web'; found \['s1'\]"),
    "domain": ({"wb": ["w1"]}, KeyError, "did you mean 'web'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_record_is_refused(what):
    record, error, match = WRONG[what]
    with pytest.raises(error, match=match):
        drawn(record=record)


def test_what_cannot_be_had_with_counts_is_refused(counted):
    own = domains()
    for kwargs in ({"trace": Draws(model=own)}, {"return_inferencedata": False}):
        with pytest.raises(TypeError, match="record: expected neither trace nor"):
            pmm.sample(4, model=own, record=2, **LENGTH | SEED | QUIET | kwargs)
    with pytest.raises(
        ValueError, match=r"b: expected all other domains of its set, \['web'\].*\['shop'\]"
    ):
        pmm.unmatched_probability(counted, "shop", "shop")
    with pytest.raises(ValueError, match='relevance: expected "auto"'):
        pmm.match_probability(counted, "shop", "web", relevance=None)
    sets = drawn("network", record=2)
    with pytest.raises(ValueError, match="expected clusters of one set, and landmarks of"):
        pmm.match_probability(sets, "a_row", "a_column")
    with pm.Model() as plain:
        pm.Normal("x", pm.Normal("mu"), 1.0, observed=[0.0])
    with pytest.raises(pmm.UnservedModelError):
        pmm.sample(4, model=plain, record=2)


@pytest.mark.parametrize("name", ["log_likelihood", "log_prior"])
def test_log_densities_of_what_is_not_kept_are_refused(name):
    """PyMC would stop with a KeyError after the last draw, and return none."""
    for own in ({"record": 2}, {"var_names": ["weights"]}):
        message = rf"idata_kwargs: expected {name} where .* without \[.*'cluster_shop', "
        with pytest.raises(TypeError, match=message):
            drawn(idata_kwargs={name: True}, **own)


def test_pymcs_zarr_trace_is_refused():
    from pymc.backends.zarr import ZarrTrace

    # Made without Zarr 2, which it needs.
    trace = ZarrTrace.__new__(ZarrTrace)
    with pytest.raises(TypeError, match=r"trace: .* PyMC's ZarrTrace, .*checkpoint=.*to_zarr"):
        drawn(trace=trace)


def test_variables_that_are_not_asked_for_take_no_memory(expected, monkeypatch):
    found = []
    real = Draws.close

    def close(self):
        real(self)
        found.append({name: len(own) for name, own in self._passing.items()})

    monkeypatch.setattr(Draws, "close", close)
    monkeypatch.setattr("pm_match.running.draws._BATCH", 100)
    few = drawn(var_names=["weights", "mean_shop"])["posterior"]
    assert set(few.data_vars) == {"weights", "mean_shop"}
    np.testing.assert_allclose(few["mean_shop"], expected["mean_shop"], rtol=1e-12)
    assert {own["cluster_shop"] for own in found} == {2}


@pytest.mark.parametrize("engine", ["zarr", "h5netcdf"])
def test_counts_can_be_saved(counted, tmp_path, engine):
    path = tmp_path / "draws"
    if engine == "zarr":
        counted.to_zarr(path)
    else:
        counted.to_netcdf(path, engine=engine)
    found = xr.open_datatree(path, engine=engine).load()
    for asked in (pmm.match_probability, pmm.unmatched_probability):
        xr.testing.assert_identical(asked(found, "shop", "web"), asked(counted, "shop", "web"))
