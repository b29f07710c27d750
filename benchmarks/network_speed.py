"""Speed of network models: sweeps, their growth, memory, and effective draws against PyMC's own.

Sweeps are of the compiled kernel, from the true clusters, on networks drawn from the model with
relevance. `--large` adds two networks of 10^5 x 10^5 objects with 10^7 edges in all.
"""

import common  # noqa: I001  (before numpy)

import argparse
import resource
import time
import warnings
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pm_match as pmm
from pm_match.clusters.evidence import Board
from pm_match.networks.block_evidence import BlockEvidence
from pm_match.networks.parts import NetworkCells, Relation
from pm_match.clusters.protocol import collect
from pm_match.clusters.relevance import new_relevance
from pm_match.clusters.sweep import new_partition, place, sweep
from pm_match.clusters.units import units

NOBODY = np.empty((0, 2), np.int64)
TRUNCATION = 40


def networks(shape, n_clusters, density, rng, n_networks=2):
    """Draw bipartite networks, by blocks; `density` scales the edge probabilities' mean."""
    theta = np.minimum(rng.beta(0.5, 0.5, n_clusters) * 2.0 * density, 1.0)
    found, labels, first = [], [], (0, 0)
    for _ in range(n_networks):
        z = [rng.integers(k, size=n) for k, n in zip(n_clusters, shape, strict=True)]
        members = [
            [np.flatnonzero(own == k) for k in range(n)]
            for own, n in zip(z, n_clusters, strict=True)
        ]
        cells = []
        for a, rows in enumerate(members[0]):
            for b, columns in enumerate(members[1]):
                size = len(rows) * len(columns)
                drawn = np.unique(rng.integers(size, size=rng.binomial(size, theta[a, b])))
                cells.append(np.stack([rows[drawn // len(columns)], columns[drawn % len(columns)]]))
        index = np.concatenate(cells, axis=1).T
        ones, nothing = np.ones(len(index)), (None, None)
        found.append(NetworkCells(shape, index, ones, True, NOBODY, nothing, first))
        labels.append(z)
        first = tuple(f + n for f, n in zip(first, shape, strict=True))
    return found, [np.concatenate(z) for z in zip(*labels, strict=True)]


class Kernel:
    """Partitions of both types at the truth, and the networks as evidence: no PyMC."""

    def __init__(self, shape, n_clusters, density, seed=0):
        self.rng = np.random.default_rng(seed)
        found, self.truth = networks(shape, n_clusters, density, self.rng)
        self.n_edges = sum(len(network.index) for network in found)
        self.n_objects = 2 * sum(shape)
        own = [units(len(z), NOBODY) for z in self.truth]
        board = Board(own, [TRUNCATION] * 2)
        self.partitions = [
            new_partition(
                u.size,
                TRUNCATION,
                new_relevance(np.zeros(len(u.size), np.int64)),
                board.slots_of(p),
                board.n_slots[p : p + 1],
            )
            for p, u in enumerate(own)
        ]
        flags = [np.ones(len(z), bool) for z in self.truth]
        named = {str(number): own for number, own in enumerate(found)}
        plain = False, False, False, lambda point: ((1.0,) * 4, None)
        relation = Relation("bernoulli", (), (), (0, 1), named, (), *plain)
        self.evidence = BlockEvidence(relation, board, flags)
        self.evidence.set_prior((1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0))
        self.terms = [
            collect([term for home, term in self.evidence.terms if home == number])
            for number in range(2)
        ]
        self.load()
        self.sweep()

    def load(self) -> None:
        """Bring everything to the true clusters."""
        for partition, z in zip(self.partitions, self.truth, strict=True):
            place(partition, z)
        self.evidence.load()

    def sweep(self) -> None:
        """Sweep once over the objects of both types."""
        ones = np.ones(TRUNCATION - 1)
        for partition, terms in zip(self.partitions, self.terms, strict=True):
            sweep(self.rng, ones, ones, partition, terms)

    def seconds(self, repeats=5) -> float:
        """Return the CPU seconds of a sweep."""
        return common.cpu_seconds(self.sweep, repeats)


def kernels(large: bool) -> list[list[Any]]:
    cases = [
        ("2 x (600 x 600), 5 x 5 clusters", (600, 600), (5, 5), 0.45, "<= 3 ms"),
        ("2 x (507 x 7180), 20 x 30 clusters", (507, 7180), (20, 30), 0.05, "<= 80 ms"),
    ]
    if large:
        cases.append(
            ("2 x (10^5 x 10^5), 10 x 10 clusters", (100_000,) * 2, (10, 10), 0.0005, "<= 1.3 s")
        )
    rows = []
    for name, shape, n_clusters, density, target in cases:
        kernel = Kernel(shape, n_clusters, density)
        edges = f"{kernel.n_edges / 1e6:.2f}M"
        rows.append([name, edges, target, f"{1e3 * kernel.seconds():.1f} ms"])
        rows.append(["... state from scratch", "", "", f"{1e3 * _loading(kernel):.1f} ms"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows.append(["peak memory of all this", "", "<= 4 GB" if large else "", f"{peak:.1f} GB"])
    return rows


def _loading(kernel: Kernel) -> float:
    return common.cpu_seconds(kernel.load, 3)


def growth() -> list[list[Any]]:
    rows = []
    for shape, k, density in (
        ((2000, 2000), 10, 0.01),
        ((2000, 2000), 10, 0.04),
        ((2000, 2000), 10, 0.16),
        ((8000, 8000), 10, 0.0025),
        ((8000, 8000), 10, 0.01),
        ((8000, 8000), 20, 0.01),
        ((8000, 8000), 30, 0.01),
    ):
        kernel = Kernel(shape, (k, k), density)
        seconds = kernel.seconds()
        visits = 2 * kernel.n_edges
        rows.append(
            [
                f"{kernel.n_objects}",
                k,
                f"{kernel.n_edges / 1e6:.2f}M",
                f"{1e3 * seconds:.1f}",
                f"{1e9 * seconds / visits:.2f}",
                f"{1e9 * seconds / kernel.n_objects / k:.1f}",
            ]
        )
    return rows


# -- through the declared model --------------------------------------------------------------------


def declared() -> list[list[Any]]:
    data = pmm.datasets.synthetic_networks(random_seed=0)
    model = pmm.models.relational_clusters(data.networks)
    begin = time.process_time()
    steps = pmm.steps(model)
    made = time.process_time() - begin
    point = common.last(common.chain(steps, model.initial_point(0), 50, 0))[0]
    rows = [["steps made, 2 x (120 x 120), hyperpriors", f"{made:.2f} s"]]
    for step in steps:
        seconds = common.cpu_seconds(lambda step=step, point=point: step.step(point), 5, 20)
        rows.append([f"... a step of {type(step).__name__}", f"{1e3 * seconds:.2f} ms"])
    return rows


def against_pymc(draws: int) -> list[list[Any]]:
    """Effective draws a second of what no relabelling changes, on the paper's small networks.

    PyMC's figures are of few effective draws, and rough; both samplers start at the truth.
    """
    data = pmm.datasets.synthetic_networks(random_seed=2)
    model = pmm.models.relational_clusters(data.networks, hyperpriors=False)
    log_joint = model.compile_logp()
    start = common.start(
        model,
        {
            f"{what}_{name}_{axis}": value
            for name, both in data.clusters.items()
            for axis, labels in zip(("row", "column"), both, strict=True)
            for what, value in (("cluster", np.maximum(labels, 0)), ("relevance", labels >= 0))
        },
    )
    settled, _ = common.last(common.chain(pmm.steps(model), start, 500, 1))

    def quantities(points):
        values = {"log joint": [], "occupied clusters": [], "relevant": [], "noise": []}
        for point in points:
            values["log joint"].append(float(log_joint(point)))
            relevant = [point[f"relevance_{name}_row"] == 1 for name in data.networks]
            rows = [point[f"cluster_{name}_row"] for name in data.networks]
            held = np.concatenate([r[own] for r, own in zip(rows, relevant, strict=True)])
            values["occupied clusters"].append(len(set(held)))
            values["relevant"].append(sum(own.sum() for own in relevant))
            values["noise"].append(float(point["noise_logodds__"]))
        return {
            name: min(float(az.ess(np.array(x, float)[None])), len(x)) for name, x in values.items()
        }

    begin = time.process_time()
    # A step costs Python more than the sweeps: several of them, then.
    steps = [pmm.ClusterGibbs([model["cluster_a_row"]], n_sweeps=5, model=model)]
    points = [p for p, _ in common.chain(steps, settled, 20 * draws, 2)]
    mine = time.process_time() - begin
    ours = {name: n / mine for name, n in quantities(points).items()}

    labels = [rv for rv in model.free_RVs if rv.name.startswith("cluster_")]
    flags = [rv for rv in model.free_RVs if rv.name.startswith("relevance_") and rv.ndim]
    others = [rv for rv in model.free_RVs if rv not in [*labels, *flags]]
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs_steps = [
            pm.NUTS(others),
            pm.CategoricalGibbsMetropolis(labels),
            pm.BinaryGibbsMetropolis(flags),
        ]
    # Tuned first, and not charged for it.
    settled, _ = common.last(common.chain(theirs_steps, settled, 300, 3))
    begin = time.process_time()
    points = []
    for _ in range(draws):
        for step in theirs_steps:
            settled, _ = step.step(settled)
        points.append(settled)
    seconds = time.process_time() - begin
    theirs = {name: n / seconds for name, n in quantities(points).items()}
    rows = [
        [name, f"{ours[name]:.1f}", f"{theirs[name]:.3f}", f"{ours[name] / theirs[name]:.0f} x"]
        for name in ours
    ]
    worst = min(ours.values()), min(theirs.values())
    rows.append(
        ["worst of each", f"{worst[0]:.1f}", f"{worst[1]:.3f}", f"{worst[0] / worst[1]:.0f} x"]
    )
    rows.append(
        ["ms a draw", f"{1e3 * mine / (20 * draws):.2f}", f"{1e3 * seconds / draws:.1f}", ""]
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="10^7 edges too")
    parser.add_argument("--draws", type=int, default=1000, help="of PyMC's samplers")
    options = parser.parse_args()
    header = ["", "edges", "target", "measured"]
    common.print_table("A settled sweep of all objects, one core", header, kernels(options.large))
    header = [
        "objects",
        "clusters",
        "edges",
        "ms a sweep",
        "ns an edge's end",
        "ns object x cluster",
    ]
    common.print_table("Growth of a settled sweep", header, growth())
    common.print_table("Through the declared model", ["", "measured"], declared())
    header = ["effective draws a second", "pm_match", "PyMC", "ratio"]
    title = "Subset ReMatch, Table 2's 2 x (120 x 120), truncation 25, no hyperpriors"
    common.print_table(title, header, against_pymc(options.draws))


if __name__ == "__main__":
    main()
