"""Effective draws a second on the same declared model: pm_match against PyMC's own samplers.

The model is `projected_clusters(..., projection="normal")` on Synth5, of which both samplers target the
whole posterior. Both start at the truth, so that neither is charged for finding it. PyMC runs NUTS on
the continuous variables and CategoricalGibbsMetropolis on the assignments: what it has for them.

Compared are quantities that no relabelling changes: the model's log joint, the number of occupied
clusters and the precision; the worst of them counts. PyMC's few draws are too few to estimate an
effective sample size from, so it is given the benefit of the doubt: as many effective draws as draws,
after a warm-up that is not charged. The ratio is then a lower bound. pm_match is charged with all of its
time, start-up included.
"""

# ruff: noqa: I001  (common sets the number of threads before numpy is loaded)
import common

import argparse
import logging
import time
import warnings
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pm_match as pmm

QUANTITIES = ("log joint", "occupied clusters", "precision")


def truth(domains, model: pm.Model) -> dict[str, Any]:
    """Give the true assignments, and for the rest a draw from its conditional after a few iterations."""
    values = pmm.initial_points(model, chains=1, random_seed=0)[0]
    for name, label in pmm.datasets.true_labels(domains).items():
        values[f"cluster_{name}"] = label
    for point, _ in common.chain(pmm.steps(model), common.start(model, values), 300, 1):
        pass
    return point


def natural(model: pm.Model, point: dict[str, Any]) -> dict[str, Any]:
    """Express a point of the sampled space in the model's variables, as `initvals` must be."""
    names = [variable.name for variable in model.unobserved_value_vars]
    function = model.compile_fn(model.unobserved_value_vars)
    values = dict(zip(names, function(point), strict=True))
    return {rv.name: values[rv.name] for rv in model.free_RVs}


def run(sampler, draws: int, tune: int, **kwargs):
    """Sample one chain; return its points in the sampled space, and wall-clock seconds."""
    begin = time.perf_counter()
    trace = sampler(
        draws,
        tune=tune,
        chains=1,
        cores=1,
        progressbar=False,
        compute_convergence_checks=False,
        return_inferencedata=False,
        **kwargs,
    )
    return list(trace.points()), time.perf_counter() - begin


def quantities(model: pm.Model, points) -> dict[str, np.ndarray]:
    """Compute what is compared from the points of a chain."""
    logp = model.compile_logp()
    inputs = [value.name for value in model.value_vars]
    assignments = [name for name in inputs if name.startswith("cluster_")]
    values = [{name: point[name] for name in inputs} for point in points]
    labels = [np.concatenate([point[name] for name in assignments]) for point in values]
    return {
        "log joint": np.array([float(logp(point)) for point in values]),
        "occupied clusters": np.array([float(len(np.unique(label))) for label in labels]),
        "precision": np.array([float(np.exp(point["precision_log__"])) for point in values]),
    }


def effective(draws: np.ndarray) -> float:
    """Effective sample size of one chain; nan if it never changes."""
    return float(az.ess(draws[None])) if np.ptp(draws) > 0 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=5000, help="of pm_match")
    parser.add_argument("--pymc-draws", type=int, default=20)
    parser.add_argument("--pymc-tune", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)

    domains = pmm.datasets.synthetic()
    model = pmm.models.projected_clusters(domains, projection="normal")
    initvals = natural(model, truth(domains, model))

    points, seconds = run(
        pmm.sample, options.draws, 500, model=model, initvals=initvals, random_seed=1
    )
    ours = quantities(model, points)
    found = {name: effective(values) for name, values in ours.items()}

    assignments = [model[f"cluster_{name}"] for name in domains]
    others = [rv for rv in model.free_RVs if rv not in assignments]
    with model:
        step = [pm.NUTS(others), pm.CategoricalGibbsMetropolis(assignments)]
        clock = Clock(options.pymc_tune)
        peer_points, _ = run(
            pm.sample,
            options.pymc_draws,
            options.pymc_tune,
            step=step,
            initvals=initvals,
            random_seed=1,
            callback=clock,
        )
    theirs = quantities(model, peer_points)
    peer_seconds = clock.seconds

    n = len(peer_points)
    rows = []
    ratios = []
    for name in QUANTITIES:
        rate = found[name] / seconds
        bound = n / peer_seconds
        ratios.append(rate / bound)
        rows.append(
            [
                name,
                f"{ours[name].mean():.2f} ± {ours[name].std():.2f}",
                f"{found[name]:.0f}",
                f"{rate:.0f}",
                f"{theirs[name].mean():.2f} ± {theirs[name].std():.2f}",
                f"<= {n}",
                f"<= {bound:.3f}",
                f">= {rate / bound:.0f}",
            ]
        )
    header = ["", "pm_match", "ESS", "ESS/s", "PyMC", "ESS", "ESS/s", "ratio"]
    common.print_table("Effective draws a second, Synth5, projection='normal'", header, rows)
    print(f"pm_match: {len(points)} draws and 500 of warm-up in {seconds:.1f} s, start-up included")
    print(f"PyMC: {n} draws in {peer_seconds:.1f} s ({peer_seconds / n:.2f} s a draw), after warm-up")
    print(f"worst ratio: at least {min(ratios):.0f} (target 1000)")


class Clock:
    """A callback of `pm.sample` that times the draws that are kept."""

    def __init__(self, tune: int):
        self._left = tune
        self._begin = time.perf_counter()
        self.seconds = 0.0

    def __call__(self, trace, draw) -> None:
        now = time.perf_counter()
        if self._left > 0:
            self._left -= 1
            self._begin = now
        self.seconds = now - self._begin


if __name__ == "__main__":
    main()
