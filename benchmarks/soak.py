"""A soak: whether memory grows, sampling slows down, or the running state drifts away.

Two models take turns: projected clusters of 10^5 objects with 50 features, and two networks of
10^7 cells in all. Draws are not kept. Resident memory is of the process, after every turn; speed is
in iterations of a CPU second. At the end, the log joint of the state that has been kept up to date
over many moves is held against the plain formula.
"""

import common  # noqa: I001  (before numpy)

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from scipy import sparse

import pm_match as pmm
from pm_match.clusters.collapsed import Collapsed
from pm_match.testing import plain_log_joint

# First turns, which do not count: what is allocated once is allocated then.
WARM_UP = 2


def features(n_objects: int) -> pm.Model:
    """Declare projected clusters of two synthetic domains with so many objects in all."""
    domains = pmm.datasets.synthetic(n_objects // 2, 50, random_seed=0)
    return pmm.models.projected_clusters(domains, n_factors=5, n_clusters=20, projection="normal")


def networks(n_cells: int) -> pm.Model:
    """Declare the matching of two networks with so many cells in all, in ten blocks each way."""
    rng, size = np.random.default_rng(1), int(np.sqrt(n_cells / 2))
    densities = 0.1 * rng.beta(0.5, 0.5, (10, 10))
    found = {}
    for name in "ab":
        rows, columns = rng.integers(10, size=(2, size))
        cells = rng.random((size, size)) < densities[np.ix_(rows, columns)]
        found[name] = sparse.csr_array(cells.astype(np.int8))
    return pmm.models.relational_clusters(found, n_clusters=20)


class Run:
    """An endless chain of a model."""

    def __init__(self, model: pm.Model):
        self.model, self.steps = model, pmm.steps(model)
        self.rng = np.random.default_rng(2)
        start = pmm.initial_points(model, 1, random_seed=0, init="dispersed")[0]
        rest = {k: v for k, v in model.initial_point(0).items() if k not in start}
        self.point = {**rest, **start}
        for step, rng in zip(self.steps, self.rng.spawn(len(self.steps)), strict=True):
            step.setup_chain(rng, 0, 1)
            step.stop_tuning()

    def turn(self, seconds: float) -> float:
        """Draw for so long; return the iterations of a CPU second."""
        begin, cpu, n = time.monotonic(), time.process_time(), 0
        while time.monotonic() - begin < seconds:
            for step in self.steps:
                self.point, _ = step.step(self.point)
            n += 1
        return n / (time.process_time() - cpu)

    def errors(self, moves: int = 20) -> tuple[float, float]:
        """Return relative errors of the running log joint, and of that rebuilt from its labels."""
        (cluster,) = [step for step in self.steps if isinstance(step, pmm.ClusterGibbs)]
        state = Collapsed.of(self.model, cluster.part)
        state.load(self.point, state.labels(self.point))
        for _ in range(moves):
            state.sweep(self.rng)
            state.split_or_merge(self.rng, 1)
        running, labels = state.log_joint(), state.found()
        plain = plain_log_joint(state, self.point, labels)
        state.load(self.point, labels)
        return abs(running / plain - 1.0), abs(state.log_joint() / plain - 1.0)


def memory() -> float:
    """Resident memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=15, help="of each model")
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--cells", type=int, default=10_000_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = {
        "features": Run(features(options.objects)),
        "networks": Run(networks(options.cells)),
    }
    seconds = 60.0 * options.minutes / (options.turns * len(runs))
    rows: list[list[float]] = []
    for turn in range(options.turns):
        rates = [run.turn(seconds) for run in runs.values()]
        rows.append([memory(), *rates])
        told = (f"{name} {rate:.3f}/s" for name, rate in zip(runs, rates, strict=True))
        print(f"turn {turn + 1:2d}: {rows[-1][0]:.0f} MB, ", *told, flush=True)
    kept = np.array(rows[WARM_UP:])
    table = [["memory", f"{kept[:, 0].mean():.0f} MB", _drift(kept[:, 0]), "1%"]]
    for name, rates in zip(runs, kept.T[1:], strict=True):
        table.append([f"{name}, iterations", f"{rates.mean():.3f}/s", _drift(rates), "5%"])
    common.print_table("what came of it", ["", "mean", "last third over first", "goal"], table)
    errors = [[name, *(f"{error:.1e}" for error in run.errors())] for name, run in runs.items()]
    common.print_table(
        "relative errors of the log joint, against the plain formula",
        ["", "kept up to date", "rebuilt"],
        errors,
    )


def _drift(values: np.ndarray) -> str:
    """Say by how much a straight line through the values rises, from the first to the last."""
    turns = np.arange(len(values)) - 0.5 * (len(values) - 1)
    slope = turns @ values / max(turns @ turns, 1.0)
    return f"{100.0 * slope * (len(values) - 1) / values.mean():+.2f}%"


if __name__ == "__main__":
    main()
