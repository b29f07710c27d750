"""Where the time of an iteration goes, model by model: kernels, draws, points, Python, PyMC.

*Kernels* is what is compiled, wherever Python calls it; *draws* what `Collapsed.draw` does besides,
*points* the reading and writing of points besides, and *steps* all else of them. *PyMC* is
what an iteration of `pmm.sample` takes besides its steps: its loop, keeping draws, making the
result. Shares are of the whole.
"""

import common  # noqa: I001  (before numpy)

import argparse
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numba.core.dispatcher import Dispatcher

import pm_match as pmm
from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.points import Writer


def _tables(n: int) -> Any:
    return pmm.datasets.synthetic(n_objects=n, n_domains=2, random_seed=0)


def _mixture(n: int) -> Any:
    rng = np.random.default_rng(0)
    label = rng.integers(5, size=n)
    table = {f"count {j}": rng.poisson(rng.gamma(3.0, 2.0, 5)[label]) for j in range(8)}
    return pmm.models.mixture(pd.DataFrame(table), n_clusters=20)


def _networks() -> Any:
    networks = pmm.datasets.synthetic_networks(random_seed=0).networks
    return pmm.models.relational_clusters(networks)


def _xor() -> Any:
    data = pmm.datasets.xor_views()
    return pmm.models.max_margin_views(data.views, data.labels, n_factors=2, n_frequencies=30)


def _digits() -> Any:
    domains = pmm.datasets.rotated_digits(n_objects=200, digits=(0, 1, 2, 3), random_seed=0)
    return pmm.models.table_clusters(domains, n_components=10)


MODELS: dict[str, Callable[[], Any]] = {
    "projected, 2 x 200 x 50, maximised": lambda: pmm.models.projected_clusters(
        _tables(200), n_factors=5
    ),
    "projected, 2 x 200 x 50, normal": lambda: pmm.models.projected_clusters(
        _tables(200), n_factors=5, projection="normal"
    ),
    "tables, 3 x 200 x 10": _digits,
    "networks, 2 x 120 x 120": _networks,
    "XOR, 300 x 2 x 10": _xor,
    "counts, 1 000 x 8": lambda: _mixture(1_000),
    "counts, 100 000 x 8": lambda: _mixture(100_000),
    "projected, 2 x 50 000 x 50, normal": lambda: pmm.models.projected_clusters(
        _tables(50_000), n_factors=5, projection="normal"
    ),
}


class Clock:
    """Sums up CPU time by what it is spent on; what is timed inside of something else is not its.

    Attributes
    ----------
    seconds : dict
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = time.process_time()

    def _book(self) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def within(self, what: str):
        """Book what is done inside."""
        self._book()
        self._open.append(what)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def timed(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is booked whenever it is called."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.within(what):
                return function(*args, **kwargs)

        return call


@contextmanager
def booked(clock: Clock):
    """Book kernels, draws and points while inside."""
    places = []
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "pm_match":
            kernels = {k: v for k, v in vars(module).items() if isinstance(v, Dispatcher)}
            places += [(module, k, v, "kernels") for k, v in kernels.items()]
    methods = {Collapsed: ("draw",), Writer: ("read", "write", "read_labels")}
    for owner, names in methods.items():
        what = "draws" if owner is Collapsed else "points"
        places += [(owner, name, vars(owner)[name], what) for name in names]
    for owner, name, found, what in places:
        timed = clock.timed(what, found)
        if isinstance(owner, type):
            timed = _method(timed)
        elif isinstance(found, Dispatcher):
            # Which some take, with functions that are not compiled.
            timed.py_func = found.py_func  # type: ignore[attr-defined]
        setattr(owner, name, timed)
    try:
        yield
    finally:
        for owner, name, found, _ in places:
            setattr(owner, name, found)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


def shares(model: Any, seconds: float) -> tuple[float, dict[str, float]]:
    """Return the CPU seconds of an iteration and, of these, those by what they are spent on."""
    quiet: dict[str, Any] = {"chains": 1, "cores": 1, "quiet": True, "progressbar": False}
    quiet |= {"init": "dispersed", "random_seed": 0, "compute_convergence_checks": False}
    steps = pmm.steps(model)
    point = (
        model.initial_point(0) | pmm.initial_points(model, 1, random_seed=0, init="dispersed")[0]
    )
    begin = time.process_time()
    point, _ = common.last(common.chain(steps, point, 20, 0))
    n = max(5, int(20 * seconds / (time.process_time() - begin)))
    clock = Clock()
    with booked(clock):
        for _ in range(n):
            for step in steps:
                with clock.within("steps"):
                    point, _ = step.step(point)
    begin = time.process_time()
    pmm.sample(1, tune=0, model=model, **quiet)
    once = time.process_time() - begin
    begin = time.process_time()
    pmm.sample(n, tune=0, model=model, **quiet)
    whole = (time.process_time() - begin - once) / (n - 1)
    found = {what: spent / n for what, spent in clock.seconds.items()}
    return whole, found | {"PyMC": max(0.0, whole - sum(found.values()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose names begin so")
    parser.add_argument("--seconds", type=float, default=5.0, help="about, for each model, twice")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = ["kernels", "draws", "points", "steps", "PyMC"]
    rows = []
    for name, declare in MODELS.items():
        if not name.startswith(options.only):
            continue
        _, found = shares(declare(), options.seconds)
        total = sum(found.values())
        parts = (f"{100.0 * found.get(what, 0.0) / total:.0f} %" for what in columns)
        rows.append([name, f"{1e3 * total:.2f} ms", *parts])
        print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    common.print_table("an iteration, CPU time", ["model", "", *columns], rows)


if __name__ == "__main__":
    main()
