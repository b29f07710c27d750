"""Effective draws a second on the same declared model: pm_match against PyMC's own samplers.

The model is `projected_clusters(..., projection="normal")` on Synth5, of which both samplers target
the whole posterior. Both start at the truth, so that neither is charged for finding it. PyMC runs
NUTS on the continuous variables and CategoricalGibbsMetropolis on the assignments: what it has.

Compared are quantities that no relabelling changes: the model's log joint, the number of occupied
clusters and the precision; for each sampler the worst of them counts. Effective sample sizes are
arviz's (bulk), capped at the number of draws. They overstate a chain too short to have seen a
quantity vary, as PyMC's may be: its number of occupied clusters moves rarely. A quantity that
never moved is left out of PyMC's worst, and the last column, for which every one of PyMC's draws
counts as effective, is a bound that leans on no estimate. Time is CPU time; pm_match is charged
with its start-up and warm-up, PyMC with neither.
"""

import common  # noqa: I001  (before numpy)

import argparse
import logging
import time
import warnings
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pm_match as pmm

WARM_UP = 500
QUANTITIES = ("log joint", "occupied clusters", "precision")


def truth(domains, model: pm.Model) -> dict[str, Any]:
    """Start at the true clusters, with latent vectors and projections that fit their means."""
    labels = pmm.datasets.true_labels(domains)
    start = common.start(model, {f"cluster_{name}": label for name, label in labels.items()})
    n_clusters = 1 + max(int(label.max()) for label in labels.values())
    means = [
        np.stack([table.to_numpy()[labels[name] == j].mean(0) for j in range(n_clusters)])
        for name, table in domains.items()
    ]
    left, singular, right = np.linalg.svd(np.hstack(means), full_matrices=False)
    n_factors = start["latent"].shape[1]
    # Of the latent vectors' prior scale; with five true clusters there are five directions.
    size = np.sqrt(len(left))
    start["latent"][:n_clusters] = (size * left)[:, :n_factors]
    w = (right.T * singular / size)[:, :n_factors]
    ends = np.cumsum([mean.shape[1] for mean in means])[:-1]
    for name, part in zip(domains, np.split(w, ends), strict=True):
        start[f"projection_{name}"] = part
    settled, _ = common.last(common.chain(pmm.steps(model), start, 300, 1))
    return settled


def natural(model: pm.Model, point: dict[str, Any]) -> dict[str, Any]:
    """Express a point of the sampled space in the model's variables, as `initvals` must be."""
    names = [variable.name for variable in model.unobserved_value_vars]
    function = model.compile_fn(model.unobserved_value_vars)
    values = dict(zip(names, function(point), strict=True))
    return {rv.name: values[rv.name] for rv in model.free_RVs}


def run(sampler, draws: int, tune: int, **kwargs):
    """Sample one chain; return its points in the sampled space, and CPU seconds."""
    begin = time.process_time()
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
    return list(trace.points()), time.process_time() - begin


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
    return min(float(az.ess(draws[None])), len(draws)) if np.ptp(draws) > 0 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=5000, help="of pm_match")
    parser.add_argument("--pymc-draws", type=int, default=500)
    parser.add_argument("--pymc-tune", type=int, default=300)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)

    domains = pmm.datasets.synthetic()
    model = pmm.models.projected_clusters(domains, projection="normal")
    initvals = natural(model, truth(domains, model))

    points, seconds = run(
        pmm.sample, options.draws, WARM_UP, model=model, initvals=initvals, random_seed=1
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
    peer_found = {name: effective(values) for name, values in theirs.items()}

    n = len(peer_points)
    rows = []
    for name in QUANTITIES:
        rows.append(
            [
                name,
                f"{ours[name].mean():.3f} ± {ours[name].std():.3f}",
                f"{found[name]:.0f}",
                f"{found[name] / seconds:.1f}",
                f"{theirs[name].mean():.3f} ± {theirs[name].std():.3f}",
                "never moved" if np.isnan(peer_found[name]) else f"{peer_found[name]:.1f}",
                "-" if np.isnan(peer_found[name]) else f"{peer_found[name] / peer_seconds:.3f}",
            ]
        )
    header = ["", "pm_match", "ESS", "ESS/s", "PyMC", "ESS", "ESS/s"]
    title = "Effective draws a second, Synth5 with normal projections"
    common.print_table(title, header, rows)
    rate = np.nanmin(list(found.values())) / seconds
    peer_rate = np.nanmin(list(peer_found.values())) / peer_seconds
    header = ["worst ESS/s", "target", "measured", "if each draw of PyMC's were effective"]
    rows = [
        ["pm_match", "", f"{rate:.1f}", ""],
        ["PyMC", "", f"{peer_rate:.3f}", f"{n / peer_seconds:.2f}"],
        ["ratio", ">= 1000", f"{rate / peer_rate:.0f}", f"{rate * peer_seconds / n:.0f}"],
    ]
    common.print_table("Worst quantity of each", header, rows)
    print(f"pm_match: {len(points)} draws and {WARM_UP} of warm-up, {seconds:.1f} s with start-up")
    print(f"PyMC: {n} draws, {peer_seconds:.1f} s ({1e3 * peer_seconds / n:.0f} ms a draw)")


class Clock:
    """A callback of `pm.sample` that times the draws that are kept."""

    def __init__(self, tune: int):
        self._left = tune
        self._begin = time.process_time()
        self.seconds = 0.0

    def __call__(self, trace, draw) -> None:
        """Note the time after a draw."""
        now = time.process_time()
        if self._left > 0:
            self._left -= 1
            self._begin = now
        self.seconds = now - self._begin


if __name__ == "__main__":
    main()
