"""How fast pm_match is on one core: kernels, iterations of `pm_match.sample`, first calls, import.

Run it as ``python benchmarks/speed.py``. Everything is CPU time, the least of several repeats where
it can be repeated; first calls and imports are measured in processes of their own.
"""

import common  # noqa: I001  (before numpy)

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from numba import njit

import pm_match as pmm
from pm_match.clusters.protocol import collect
from pm_match.numerics.masked import MaskedTable
from pm_match.features.emission import Emission
from pm_match.features.projected_normal import ProjectedNormalEvidence
from pm_match.clusters.sweep import new_partition, place, sweep
from pm_match.clusters.units import units


class Kernel:
    """A partition at the truth, ready for sweeps: no PyMC.

    Parameters
    ----------
    n_objects, n_clusters, n_factors, n_features : int
        Objects in all of the domains together; clusters; latent and feature dimensions.
    truncation : int
        Labels there are.
    n_domains : int
    """

    def __init__(
        self,
        n_objects: int,
        n_clusters: int,
        n_factors: int,
        n_features: int,
        truncation: int,
        n_domains: int = 2,
    ):
        rng = np.random.default_rng(0)
        self.rng = rng
        latent = rng.standard_normal((n_clusters, n_factors))
        projections, domains, labels = [], [], []
        for _ in range(n_domains):
            w = rng.standard_normal((n_features, n_factors))
            label = rng.permutation(np.arange(n_objects // n_domains) % n_clusters)
            noise = rng.standard_normal((len(label), n_features))
            projections.append(w)
            labels.append(label)
            domains.append(MaskedTable(latent[label] @ w.T + noise))
        self.emissions = [Emission.of_projection(w) for w in projections]
        self.truth = np.concatenate(labels)
        grouped = units(len(self.truth), np.zeros((0, 2), np.int64))
        self.evidence = ProjectedNormalEvidence(domains, grouped, truncation, n_factors)
        self.partition = new_partition(grouped.size, truncation)
        self.terms = collect([self.evidence.term])
        self.a, self.b = np.ones(truncation - 1), np.ones(truncation - 1)
        self.n_products = n_factors * (n_factors + 1) // 2 + n_factors + 1
        self.load(self.truth)
        self.sweep()

    def load(self, labels) -> None:
        """Set the partition to `labels`, and the evidence to it."""
        place(self.partition, labels)
        slots = self.partition.slot_of[self.partition.label]
        self.evidence.load(self.emissions, slots, 1.0, (1.0, 1.0))

    def sweep(self) -> int:
        """Sweep once."""
        return sweep(self.rng, self.a, self.b, self.partition, self.terms)

    def settled(self, repeats: int = 7, number: int = 1) -> float:
        """Seconds of a sweep from the truth."""
        return common.cpu_seconds(self.sweep, repeats, number)

    def from_random(self, repeats: int = 5, n_labels: int = 10) -> float:
        """Seconds of the first sweep from random labels, given the true projections."""
        least = np.inf
        for _ in range(repeats):
            self.load(self.rng.integers(n_labels, size=len(self.truth)))
            begin = time.process_time()
            self.sweep()
            least = min(least, time.process_time() - begin)
        self.load(self.truth)
        return least

    def multiply_adds(self) -> int:
        """Multiply-adds that a settled sweep cannot do without."""
        return len(self.truth) * int(self.partition.n_slots[0]) * self.n_products


@njit(fastmath=True)
def dot_loop(x, y, times):
    total = 0.0
    for _ in range(times):
        for i in range(x.shape[0]):
            total += x[i] * y[i]
        x[0] = -x[0]
    return total


def dot_rate() -> float:
    """Multiply-adds a second of a bare dot loop over vectors that lie in the first cache."""
    length, times = 1024, 20_000
    # Aligned to whole cache lines: by chance otherwise, and up to 1.6 times slower where not.
    room = np.random.default_rng(0).standard_normal(2 * length + 8)
    x, y = room[-room.ctypes.data % 64 // 8 :][: 2 * length].reshape(2, length)
    dot_loop(x, y, 1)
    return length * times / common.cpu_seconds(lambda: dot_loop(x, y, times), 3)


def kernels(quick: bool) -> list[list[Any]]:
    rows = []
    small = Kernel(400, 5, 5, 50, 25)
    settled = small.settled(20, 50)
    rows.append(["settled sweep, Synth5", "<= 0.15 ms", f"{1e3 * settled:.3f} ms"])
    rows.append(["sweep from random labels, Synth5", "", f"{1e3 * small.from_random(20):.3f} ms"])
    del small
    n_large = 20_000 if quick else 100_000
    large = Kernel(n_large, 50, 10, 20, 64)
    # Clocks wander: the two that are compared take turns, and the fraction is a median.
    turns = [(large.settled(3), dot_rate()) for _ in range(7)]
    settled, dot = min(turn[0] for turn in turns), max(turn[1] for turn in turns)
    fraction = np.median([large.multiply_adds() / seconds / rate for seconds, rate in turns])
    target = "" if quick else "<= 100 ms"
    name = f"{n_large:,} objects, J=50, K=10"
    random = large.from_random(1, 50)
    rate = large.multiply_adds() / settled
    rows.append([f"settled sweep, {name}", target, f"{1e3 * settled:.1f} ms"])
    rows.append(["... from 50 random labels", "", f"{1e3 * random:.0f} ms"])
    rows.append(["... multiply-adds a second", "", f"{rate / 1e9:.2f}e9"])
    rows.append(["bare dot loop beside it", "", f"{dot / 1e9:.2f}e9"])
    rows.append(["... as a fraction of the dot loop", ">= 40%", f"{fraction:.0%}"])
    return rows


def growth() -> list[list[Any]]:
    rows = []
    for n_objects, n_clusters in [
        (5_000, 50),
        (10_000, 50),
        (20_000, 50),
        (40_000, 50),
        (20_000, 10),
        (20_000, 25),
        (20_000, 100),
        (20_000, 200),
    ]:
        # As many labels as a user would declare; n_slots counts the empty slot too.
        kernel = Kernel(n_objects, n_clusters, 10, 20, n_clusters + 14)
        seconds = kernel.settled(7)
        slots = int(kernel.partition.n_slots[0])
        rows.append(
            [
                f"{n_objects:,}",
                n_clusters,
                f"{1e3 * seconds:.2f}",
                f"{1e9 * seconds / n_objects:.0f}",
                f"{1e9 * seconds / (n_objects * slots):.2f}",
            ]
        )
    return rows


def iterations() -> list[list[Any]]:
    """Fit seconds = start-up + draws x iteration to runs of two lengths."""
    rows = []
    domains = pmm.datasets.synthetic()
    for projection, target in (("map", "<= 1.5 ms"), ("normal", "")):

        def run(draws, projection=projection):
            # A new model every time: what is known of one is kept.
            model = pmm.models.projected_clusters(domains, projection=projection)
            begin = time.process_time()
            pmm.sample(
                draws,
                tune=100,
                model=model,
                chains=1,
                cores=1,
                random_seed=0,
                init="dispersed",
                progressbar=False,
                quiet=True,
                compute_convergence_checks=False,
            )
            return time.process_time() - begin

        run(10)
        few, many = 200, 2200
        short, long = (min(run(draws) for _ in range(3)) for draws in (few, many))
        each = (long - short) / (many - few)
        name = f'iteration of pmm.sample, Synth5, "{projection}"'
        rows.append([name, target, f"{1e3 * each:.2f} ms"])
        rows.append(["... its start-up", "<= 4 s", f"{short - (few + 100) * each:.2f} s"])
    return rows


_FIRST_CALL = """
import json, time
import pm_match as pmm
model = pmm.models.projected_clusters(pmm.datasets.synthetic())
steps, point = pmm.steps(model), model.initial_point(0)
begin = time.process_time()
for step in steps:
    step.setup_chain(0, 0, 1)
    point, _ = step.step(point)
print(json.dumps(time.process_time() - begin))
"""

_IMPORT = """
import json, time
begin = time.process_time()
import pymc
middle = time.process_time()
import pm_match
print(json.dumps([middle - begin, time.process_time() - middle]))
"""


def in_process(code: str, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def first_calls() -> list[list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        cold = in_process(_FIRST_CALL, NUMBA_CACHE_DIR=folder)
        warm = min(in_process(_FIRST_CALL, NUMBA_CACHE_DIR=folder) for _ in range(2))
    return [
        ["first step of all kernels, cold cache", "<= 15 s", f"{cold:.1f} s"],
        ["... warm cache", "<= 1 s", f"{warm:.2f} s"],
    ]


def imports() -> list[list[Any]]:
    times = [in_process(_IMPORT) for _ in range(4)]
    pymc, ours = (min(column) for column in zip(*times, strict=True))
    return [
        ["import pymc", "", f"{pymc:.2f} s"],
        ["import pm_match after it", "<= 0.5 s", f"{ours:.2f} s"],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller problems, no cold cache")
    quick = parser.parse_args().quick
    rows = kernels(quick)
    rows += iterations()
    if not quick:
        rows += first_calls()
    rows += imports()
    common.print_table("Speed, one core", ["", "target", "measured"], rows)
    if not quick:
        header = ["objects", "clusters", "ms a sweep", "ns an object", "ns an object and slot"]
        common.print_table("Growth of a settled sweep (K=10)", header, growth())


if __name__ == "__main__":
    main()
