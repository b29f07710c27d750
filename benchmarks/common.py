"""What the benchmarks share: driving a model's steps by hand, and a plain table."""

import one_core  # noqa: F401, I001  (first: it has to come before numpy)

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

import pm_match as pmm


def start(model: pm.Model, values: Mapping[str, Any]) -> dict[str, NDArray]:
    """Put `values` of untransformed variables into the model's initial point."""
    point = dict(model.initial_point(0))
    for name, value in values.items():
        value_var = model.rvs_to_values[model[name]]
        if value_var.name != name:
            raise ValueError(f"{name!r} is sampled in another space, as {value_var.name!r}.")
        point[name] = np.asarray(value, dtype=value_var.dtype)
    return point


def chain(steps: Sequence[Any], point: Mapping[str, NDArray], n_iterations: int, seed: Any):
    """Run the steps in turn; yield the point and the merged statistics of every iteration.

    As PyMC does it, with all but the last iteration as warm-up.
    """
    rng = np.random.default_rng(seed)
    for step, own in zip(steps, rng.spawn(len(steps)), strict=True):
        step.setup_chain(own, n_iterations - 1, 1)
    for iteration in range(n_iterations):
        if iteration == n_iterations - 1:
            for step in steps:
                step.stop_tuning()
        stats: dict[str, Any] = {}
        for step in steps:
            point, drawn = step.step(point)
            for part in drawn:
                stats |= part
        yield point, stats


def last(items):
    """Give the last of an iterator."""
    return deque(items, maxlen=1).pop()


def cpu_seconds(function: Callable[[], Any], repeats: int = 5, number: int = 1) -> float:
    """Least CPU time of one call, over `repeats` of `number` calls."""
    least = np.inf
    for _ in range(repeats):
        begin = time.process_time()
        for _ in range(number):
            function()
        least = min(least, (time.process_time() - begin) / number)
    return least


def options_of_sets(doc: str, kinds: Iterable[str]) -> argparse.ArgumentParser:
    """Say which data sets of which kinds a benchmark takes."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--sets", type=int, default=10, help="data sets of each kind (10)")
    parser.add_argument("--first", type=int, default=5000, help="seed of the first (5000)")
    parser.add_argument("--only", nargs="+", choices=list(kinds), help="some kinds only")
    parser.add_argument("--every", action="store_true", help="print every data set too")
    return parser


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below a header, columns as wide as they need to be."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    print(f"\n{title}\n")
    for number, row in enumerate(cells):
        first, *others = zip(row, widths, strict=True)
        line = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        print("  ".join(line).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    print(flush=True)


def match_score(domains, point: Mapping[str, NDArray]) -> float:
    """Pooled adjusted Rand index of the labels in a point."""
    true = pmm.datasets.true_labels(domains)
    return pmm.metrics.adjusted_rand_index(true, {d: point[f"cluster_{d}"] for d in domains})
