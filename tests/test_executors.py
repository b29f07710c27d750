"""Searches and chains on executors: what comes out is the same, bit for bit, wherever they run."""

import importlib
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.running.runs import check_executor
from tests.declared.kinds import MODELS

sampling = importlib.import_module("pm_match.sampling")

pytestmark = [
    pytest.mark.filterwarnings("ignore:the draws fill the truncation"),
    pytest.mark.filterwarnings("ignore:only one of"),
]
SHORT = {"tune": 3, "random_seed": 3, "progressbar": False, "quiet": True}
# Of every run, but for the time it takes.
TIMES = {
    "perf_counter_diff",
    "perf_counter_start",
    "process_time_diff",
    "sampling_time",
    "seconds",
}


@pytest.fixture(scope="module")
def model():
    return MODELS["columns"]()


def with_nuts():
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=3)
        cluster = pm.Categorical("cluster", p=weights, shape=12)
        mu = pm.Normal("mu", 0.0, 3.0, shape=4)
        shift = pm.Normal("shift")
        pm.Normal("x", mu[cluster] + shift, 0.7, observed=rng.normal(size=12))
    return model


def assert_same(found, expected):
    assert [*found.children] == [*expected.children]
    for group, own in expected.children.items():
        there = found[group]
        assert {*there.data_vars} == {*own.data_vars}
        assert dict(there.sizes) == dict(own.sizes)
        for name in {*own.variables} - TIMES:
            np.testing.assert_array_equal(there[name], own[name], err_msg=f"{group}: {name}")
            assert there[name].dtype == own[name].dtype
            assert there[name].attrs == own[name].attrs
        kept = {k: v for k, v in own.attrs.items() if k not in TIMES | {"created_at"}}
        assert kept == {k: there.attrs[k] for k in kept}


def everything(model, **where):
    """Search, start, and sample."""
    starts = pmm.initial_points(model, 2, random_seed=2, progressbar=False, **where)
    found = pmm.find_matching(model, starts=3, random_seed=1, progressbar=False, **where)
    drawn = pmm.sample(4, chains=3, model=model, **SHORT, **where)
    return starts, found, drawn


@pytest.fixture(scope="module")
def expected(model):
    return everything(model, cores=1)


def check(found, expected):
    for own, other in zip(found[0], expected[0], strict=True):
        assert own.keys() == other.keys()
        for name in own:
            np.testing.assert_array_equal(own[name], other[name])
    assert_same(found[1], expected[1])
    assert_same(found[2], expected[2])


def test_in_forked_processes(model, expected):
    check(everything(model, cores=2), expected)


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_on_processes_that_begin_with_nothing(model, expected, n):
    with ProcessPoolExecutor(n, mp_context=get_context("spawn")) as pool:
        check(everything(model, executor=pool), expected)
        # What workers have made for a model is not in the way of another seed.
        other = pmm.find_matching(model, starts=2, random_seed=8, progressbar=False, executor=pool)
    assert_same(other, pmm.find_matching(model, starts=2, random_seed=8, progressbar=False))


def test_on_threads(model, expected):
    with ThreadPoolExecutor(2) as pool:
        check(everything(model, executor=pool), expected)


@pytest.mark.slow
def test_on_dask(model, expected):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        check(everything(model, executor=client.get_executor()), expected)


@pytest.mark.slow
@pytest.mark.compiled
def test_chains_that_nuts_draws_too():
    def drawn(**where):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "left to PyMC's own steps")
            model = with_nuts()
            return pmm.sample(4, chains=2, model=model, init="dispersed", **SHORT, **where)

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = drawn(executor=pool)
    assert {"shift", "mu"} <= {*found["posterior"]}
    assert_same(found, drawn(cores=1))


def test_steps_of_ones_own_and_all_that_sample_takes(model):
    def drawn(**where):
        ours = pmm.steps(model)
        ours[0].n_sweeps = 2
        return pmm.sample(
            4,
            chains=2,
            model=model,
            step=ours,
            init="dispersed",
            discard_tuned_samples=False,
            **SHORT,
            **where,
        )

    with ProcessPoolExecutor(1) as pool:
        found = drawn(executor=pool)
    assert found["warmup_posterior"].sizes == {**found["posterior"].sizes, "draw": 3}
    assert_same(found, drawn(cores=1))


def test_a_seed_that_has_spawned_before(model):
    def drawn(**where):
        rng = np.random.default_rng(4)
        rng.spawn(3)
        options = SHORT | {"random_seed": rng}
        return pmm.sample(2, chains=2, model=model, init="dispersed", **options, **where)

    with ThreadPoolExecutor(1) as pool:
        assert_same(drawn(executor=pool), drawn(cores=1))


def test_ctrl_c_returns_the_chains_that_have_ended(model, expected, monkeypatch):
    real = sampling.runs

    def interrupted(task, items, **where):
        found = dict(real(task, items, **where))
        yield from [(2, found[2]), (0, found[0])]
        raise KeyboardInterrupt

    monkeypatch.setattr(sampling, "runs", interrupted)
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.warns(UserWarning, match="interrupted: 2 of 3 chains have ended"),
    ):
        found = pmm.sample(4, chains=3, model=model, executor=pool, **SHORT)
    assert found["posterior"].chain.values.tolist() == [0, 2]
    for name, own in expected[2]["posterior"].items():
        np.testing.assert_array_equal(found["posterior"][name], own.isel(chain=[0, 2]))

    def at_once(task, items, **where):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(sampling, "runs", at_once)
    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt, match="no chain has"):
        pmm.sample(4, chains=3, model=model, init="dispersed", executor=pool, **SHORT)


def test_a_chain_that_was_cut_short_is_none(model, monkeypatch):
    """Ctrl-C in a terminal reaches a worker, too: its chain would return what it has."""
    real = sampling._drawn

    def fewer(*args):
        return real(*args).isel(draw=slice(2))

    monkeypatch.setattr(sampling, "_drawn", fewer)
    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt, match="no chain has"):
        pmm.sample(4, chains=1, model=model, init="dispersed", executor=pool, **SHORT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoint", "run"),
        ("callback", print),
        ("cores", 2),
        ("return_inferencedata", False),
    ],
)
def test_what_chains_elsewhere_cannot_have_is_refused(model, name, value):
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(TypeError, match=rf"^sample: expected no {name}.* with an executor"),
    ):
        pmm.sample(2, model=model, executor=pool, **{name: value})


def test_what_is_no_executor_is_refused_before_anything_is_done(model):
    with pytest.raises(TypeError, match=r"expected a concurrent\.futures\.Executor"):
        pmm.sample(2, model=model, executor=4)


def test_a_dask_client_without_workers_is_refused(model):
    """Chains would wait for ever."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(ValueError, match="client: expected workers; found none"),
    ):
        pmm.sample(2, model=model, executor=client.get_executor())


def test_an_adaptive_dask_cluster_need_not_have_workers_yet():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.adapt(minimum=0, maximum=1)
        check_executor(client.get_executor())


def test_numbers_of_factors_on_an_executor():
    tables = pmm.datasets.synthetic(30, 8, n_factors=2, random_seed=0)

    def chosen(**where):
        return pmm.choose_n_factors(
            lambda k: pmm.models.projected_clusters(tables, n_factors=k),
            [1, 2],
            n_folds=3,
            random_seed=1,
            progressbar=False,
            **where,
        )

    expected = chosen(cores=1)
    assert chosen(cores=2).identical(expected)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert chosen(executor=pool).identical(expected)
    with pytest.raises(ValueError, match="cores: expected a whole number of at least 1; found 0"):
        chosen(cores=0)
