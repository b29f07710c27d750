"""Processes that sample, to be killed and interrupted."""

import multiprocessing
import os
import signal
import time
import warnings

import cloudpickle
import numpy as np
import pymc as pm

import pm_match as pmm
from tests.declared.plain import tiny_model

QUIET = {"progressbar": False, "compute_convergence_checks": False, "quiet": True}
SEED = {"random_seed": 3, "init": "dispersed"}


def robust() -> pm.Model:
    """Declare clusters with centres, a shift for NUTS, and a number for Metropolis."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2.0, 0.5, 8), rng.normal(2.0, 0.5, 8)])
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=2)
        cluster = pm.Categorical("cluster", p=weights, shape=len(x))
        mu = pm.Normal("mu", 0.0, 3.0, shape=3)
        shift = pm.Normal("shift")
        nu = pm.DiscreteUniform("nu", 3, 9)
        pm.StudentT("x", nu=nu, mu=mu[cluster] + shift, sigma=0.7, observed=x)
    return model


MODELS = {"robust": robust, "features": lambda: tiny_model(missing=True)}


class Sampling:
    """A process that calls a function of `pmm` in a group of its own, as in a terminal.

    Attributes
    ----------
    made : shared integer
        Draws that its chains have made.
    """

    def __init__(self, function, *args, context="fork", pause=0.0, **kwargs):
        own = multiprocessing.get_context(context)
        self.made = own.Value("q", 0)
        self._here, there = own.Pipe(duplex=False)
        # As PyMC hands over its own: models have parts that plain pickles cannot hold.
        call = cloudpickle.dumps((function, args, kwargs)) if context == "spawn" else None
        given = (None, None, None) if call else (function, args, kwargs)
        self.process = own.Process(target=_call, args=(there, self.made, pause, call, *given))
        self.process.start()
        there.close()

    def wait_for(self, draws, seconds=120.0):
        """Wait until it has made so many draws."""
        until = time.monotonic() + seconds
        while self.made.value < draws and self.process.is_alive():
            assert time.monotonic() < until
            time.sleep(0.001)

    def interrupt(self):
        """Press Ctrl-C: all processes of a terminal are told."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> bool:
        """Kill it; return whether it was still running."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        return self.process.exitcode == -signal.SIGKILL

    def found(self):
        """Wait for what it returns: draws or the error raised, and what it warned of."""
        found = self._here.recv()
        self.process.join()
        return found


def _call(pipe, made, pause, call, function, args, kwargs):
    if call is not None:
        function, args, kwargs = cloudpickle.loads(call)
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def count(trace, draw):
        made.value += 1
        # Not one long sleep, which a signal's handler would not end.
        until = time.monotonic() + pause
        while time.monotonic() < until:
            time.sleep(0.001)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="Found chain dimension")
        try:
            found = function(*args, callback=count, **QUIET | kwargs)
            found = {name: group.to_dataset() for name, group in found.children.items()}
        except BaseException as error:
            found = error
    messages = [str(own.message) for own in warned if "truncation" not in str(own.message)]
    pipe.send((found, messages))


def same(one, two, draws=None) -> bool:
    """Whether two results agree bit for bit, but for times; the first so many draws of them."""
    for name in ("posterior", "sample_stats"):
        a, b = one[name], two[name]
        assert set(a.data_vars) == set(b.data_vars)
        for key in a.data_vars:
            if not str(key).startswith(("perf_counter", "process_time")):
                own, other = (x[key].isel(draw=slice(draws)).to_numpy() for x in (a, b))
                if not np.array_equal(own, other, equal_nan=own.dtype.kind == "f"):
                    return False
    return True


__all__ = ["MODELS", "QUIET", "SEED", "Sampling", "pmm", "same"]
