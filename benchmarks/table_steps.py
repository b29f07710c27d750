"""Steps of `table_clusters` on digits of three rotations, 3 x 200 x 10: time, and what it buys.

Milliseconds of each step, and effective draws a CPU second of the slowest parameter while labels
stay as a search leaves them. To compare two versions, run it with each.
"""

import common  # noqa: I001  (before numpy)

import argparse
import time
import warnings

import arviz as az
import numpy as np

import pm_match as pmm
from pm_match.reading.probe import initial_point


def chain(seed: int):
    """Return the steps of the model, and a point that a search has found."""
    domains = pmm.datasets.rotated_digits(n_objects=200, digits=(0, 1, 2, 3), random_seed=0)
    model = pmm.models.table_clusters(domains, n_components=10)
    steps = pmm.steps(model)
    for step, rng in zip(steps, np.random.default_rng(seed).spawn(len(steps)), strict=True):
        step.setup_chain(rng, 0, 1)
    return steps, initial_point(model) | pmm.initial_points(model, 1, random_seed=seed)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    steps, point = chain(0)
    seconds = dict.fromkeys((type(step).__name__ for step in steps), 0.0)
    n = 200
    for _ in range(n):
        for step in steps:
            begin = time.process_time()
            point, _ = step.step(point)
            seconds[type(step).__name__] += time.process_time() - begin
    rows = [[name, f"{1e3 * total / n:.2f} ms"] for name, total in seconds.items()]
    common.print_table("a step", ["", "CPU time"], rows)

    (step,) = (step for step in steps if isinstance(step, pmm.FeatureGibbs))
    kept: dict[str, list] = {p.name: [] for p in step.part.parameters if p.update != "normal"}
    names = {name: step.model.rvs_to_values[step.model[name]].name for name in kept}
    begin = time.process_time()
    for _ in range(options.draws):
        point, _ = step.step(point)
        for name, draws in kept.items():
            draws.append(np.ravel(point[names[name]]))
    took = time.process_time() - begin
    effective = {
        name: min(float(az.ess(column[None])) for column in np.array(draws).T)
        for name, draws in kept.items()
    }
    rows = [
        [name, f"{1e3 * ess / options.draws:.0f}", f"{ess / took:.1f}"]
        for name, ess in sorted(effective.items(), key=lambda pair: pair[1])
    ]
    title = "effective draws of the slowest number of each parameter, labels fixed"
    common.print_table(title, ["", "of 1000", "a second"], rows)


if __name__ == "__main__":
    main()
