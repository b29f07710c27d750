"""Kernels that another process compiles while this one goes on: all that a step needs, and kept."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from numba import njit
from numba.core.dispatcher import Dispatcher

import pm_match as pmm
from pm_match.numerics.ahead import compile_ahead, job
from pm_match.starts import Search
from tests.declared.columns import declared
from tests.declared.factor_ways import EQUAL, declare
from tests.declared.features import Kind, feature_model
from tests.declared.networks import network_model
from tests.declared.normals import normals_model
from tests.declared.plain import tiny_model
from tests.declared.views import tiny_views

MODELS = {
    "flat projections": tiny_model,
    "features": lambda: feature_model(Kind(missing=True)),
    "networks": network_model,
    "undirected network": lambda: network_model(kind="undirected"),
    "normal clusters": lambda: normals_model("own"),
    "normal clusters of one covariance": lambda: normals_model("shared"),
    "columns": lambda: declared("poisson"),
    "max margin": lambda: tiny_views(m=2),
    "max margin of three classes": lambda: tiny_views([0, 2, None, 1, 0], C=0.6),
    "shared factors": lambda: pmm.models.shared_factors({"x": X, "y": X[:, :2]}, n_shared=1),
    "transposed loadings": lambda: declare(**EQUAL["transposed loading"]),
}
VIEWS = (pmm.FactorGibbs, pmm.LatentHMC, pmm.FrequencyMetropolis, pmm.HingeGibbs)
X = np.random.default_rng(0).normal(size=(6, 3))


@pytest.mark.parametrize("case", MODELS)
def test_a_step_needs_nothing_else(case, monkeypatch):
    listed: list = []
    for room in ("collapsed", "step"):
        monkeypatch.setattr(f"pm_match.clusters.{room}.compile_ahead", listed.extend)
    model = MODELS[case]()
    served = (pmm.ClusterGibbs, pmm.ProjectionMAP, *VIEWS)
    steps = [own for own in pmm.steps(model) if isinstance(own, served)]
    if isinstance(steps[-1], pmm.ClusterGibbs):
        steps[-1].n_exchanges = 3.0
    for kernel, signature in listed:
        kernel.compile(signature)
    more = []
    compiled = Dispatcher.compile

    def noted(self, signature):
        before = len(self.overloads)
        found = compiled(self, signature)
        if len(self.overloads) > before and not self.targetoptions.get("no_cpython_wrapper"):
            more.append((self.py_func.__qualname__, signature))
        return found

    monkeypatch.setattr(Dispatcher, "compile", noted)
    point = model.initial_point(0)
    for step in 3 * steps:
        point, _ = step.step(point)
    assert [own for own in more if own[0] in {kernel.__name__ for kernel, _ in listed}] == []
    assert [name for name, _ in more] == []


@pytest.mark.parametrize(
    "case", ["networks", "normal clusters", "columns", "aligned", "flat projections"]
)
def test_searches_call_what_was_compiled_ahead(case, monkeypatch):
    listed: list = []
    monkeypatch.setattr("pm_match.search.recipe.compile_ahead", listed.extend)
    model = MODELS[case]() if case in MODELS else pmm.models.aligned_clusters({"a": X, "b": -X})
    search = Search(model)
    assert search.steps
    names = ["climb_units", "climb_pairs", "climb_merges", "climb_names"]
    assert [kernel.__name__ for kernel, _ in listed] == [
        *names, *["assign_nearest"] * (case == "aligned")
    ]  # fmt: skip
    for kernel, signature in listed:
        kernel.compile(signature)
    present = {kernel: set(kernel.overloads) for kernel, _ in listed}
    called = set()
    for name, (kernel, _) in zip(names, listed, strict=False):

        def noted(*args, name=name, kernel=kernel):
            called.add(name)
            return kernel(*args)

        monkeypatch.setattr(f"pm_match.search.coarse.{name}", noted)
    search.from_dispersed(np.random.default_rng(0))
    assert called == set(names)
    for kernel, overloads in present.items():
        assert set(kernel.overloads) == overloads


_SCRIPT = """
import time
import numpy as np
from pm_match.clusters.relevance import log_flags, new_relevance
from pm_match.numerics.ahead import compile_ahead, job
from pm_match.numerics.numba_internals import kept
from pm_match.numerics.sines import sines

flags = new_relevance(np.zeros(3, np.int64))
jobs = [job(log_flags, flags), job(sines, *np.zeros((3, 2, 2)))]
compile_ahead(jobs)
print("going on", flush=True)
until = time.monotonic() + 100.0
while not all(kept(*own) for own in jobs) and time.monotonic() < until:
    time.sleep(0.05)
assert all(kept(*own) for own in jobs)
assert not any(kernel.overloads for kernel, _ in jobs)
assert np.isfinite(log_flags(flags))
assert not any(kernel.stats.cache_misses for kernel, _ in jobs)
compile_ahead(jobs)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
@pytest.mark.skipif(os.cpu_count() == 1, reason="there is but one processor")
def test_another_process_compiles(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert (done.returncode, done.stdout) == (0, "going on\n"), done.stderr
    assert not done.stderr


_STUCK = """
import os
import signal
import sys
from pathlib import Path
import numpy as np
from pm_match.clusters.relevance import log_flags, new_relevance
from pm_match.numerics import ahead
from pm_match.numerics.sines import sines

def stuck():
    Path(sys.argv[1]).write_text(str(os.getpid()))
    let_go()
    while True:
        signal.pause()

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda number, frame: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
let_go, ahead._let_go, ahead._LONGEST = ahead._let_go, stuck, int(sys.argv[2])
flags = new_relevance(np.zeros(3, np.int64))
assert ahead.compile_ahead([ahead.job(log_flags, flags), ahead.job(sines, *np.zeros((3, 2, 2)))])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
@pytest.mark.skipif(os.cpu_count() == 1, reason="there is but one processor")
@pytest.mark.parametrize("terminated", [False, True])
def test_nobody_waits_for_what_another_process_compiles(tmp_path, terminated):
    """Whoever reads what is printed waits for all that could still print."""
    longest = "300" if terminated else "5"
    done = subprocess.run(
        [sys.executable, "-c", _STUCK, str(tmp_path / "pid"), longest],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # It is there, and ends.
    number = (tmp_path / "pid").read_text()
    other = Path("/proc", number, "stat")
    assert runs(other)
    if terminated:
        os.kill(int(number), signal.SIGTERM)
    until = time.monotonic() + 60.0
    while runs(other) and time.monotonic() < until:
        time.sleep(0.1)
    assert not runs(other)


def runs(stat):
    """Whether a process is there, and has not ended without anybody's asking."""
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.usefixtures("compiled_ahead")
def test_a_program_goes_on_without_another_process(monkeypatch):
    def refused():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refused)
    monkeypatch.setattr("pm_match.numerics.ahead.kept", lambda *one: False)
    assert compile_ahead([job(njit(lambda x: x + 1.0), 2.0), job(njit(lambda x: x - 1.0), 2.0)])


@pytest.mark.usefixtures("compiled_ahead")
def test_what_is_never_kept_is_not_compiled_in_vain(monkeypatch):
    def refused():
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", refused)
    jobs = [job(njit(lambda x: x + 1.0), 2.0), job(njit(lambda x: x - 1.0), 2.0)]
    assert compile_ahead(jobs)
    assert not compile_ahead(jobs)


@pytest.mark.usefixtures("compiled_ahead")
def test_draws_do_not_depend_on_it(monkeypatch):
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        label = pm.Categorical("label", p=weights, shape=8)
        rate = pm.Gamma("rate", 1.0, 1.0, shape=3)
        pm.Poisson("x", rate[label], observed=rng.poisson(3.0, 8))
    kwargs = {"tune": 0, "chains": 1, "init": "dispersed", "random_seed": 1, "quiet": True}
    found = [pmm.sample(5, model=model, progressbar=False, **kwargs).posterior]
    monkeypatch.setattr("pm_match.clusters.collapsed.compile_ahead", lambda jobs: None)
    found.append(pmm.sample(5, model=pm.model.fgraph.clone_model(model), **kwargs).posterior)
    for name, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][name])
