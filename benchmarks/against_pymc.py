"""Effective draws a second on the same declared model: pm_match against PyMC's own samplers.

The model is `projected_clusters(..., projection="normal")` on Synth5, of which both samplers target
the whole posterior. Both start at the truth, so that neither is charged for finding it. PyMC runs
NUTS on the continuous variables and CategoricalGibbsMetropolis on the assignments: what it has.

Compared are quantities that no relabelling changes: the model's log joint, the number of occupied
clusters and the precision; for each sampler the worst of them counts. Effective sample sizes are
arviz's (bulk), capped at the number of draws, except PyMC's for the number of occupied clusters.
That changes so rarely that a chain of thousands of draws may never see it change, from which
nothing can be estimated. So PyMC is also started from draws of pm_match that have more clusters
than usual, and followed: with I that indicator, p its posterior probability and K a lag, the
autocorrelation is (P(I_K = 1 | I_0 = 1) - p) / (1 - p), and its sum gives the effective draws a
draw. The sum stops where the chains stop, to PyMC's advantage.

Time is CPU time; pm_match is charged with its start-up and warm-up, PyMC with neither.
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


def ours(model: pm.Model, initvals, draws: int):
    """Sample one chain through `pm_match.sample`; return its points and CPU seconds."""
    begin = time.process_time()
    trace = pmm.sample(
        draws,
        tune=WARM_UP,
        model=model,
        initvals=initvals,
        random_seed=1,
        chains=1,
        cores=1,
        progressbar=False,
        compute_convergence_checks=False,
        return_inferencedata=False,
    )
    return list(trace.points()), time.process_time() - begin


class PyMC:
    """PyMC's own steps, tuned.

    Parameters
    ----------
    model : pymc.Model
    point : dict
        Where to start, in the sampled space.
    tune : int
        Draws of warm-up.
    """

    def __init__(self, model: pm.Model, point: dict[str, Any], tune: int):
        assignments = [rv for rv in model.free_RVs if rv.name.startswith("cluster_")]
        others = [rv for rv in model.free_RVs if rv not in assignments]
        with model:
            self.steps = [pm.NUTS(others), pm.CategoricalGibbsMetropolis(assignments)]
        for step, rng in zip(self.steps, np.random.default_rng(1).spawn(2), strict=True):
            step.setup_chain(rng, tune, 1)
        self.point = point
        self.draw(tune)
        for step in self.steps:
            step.stop_tuning()

    def draw(self, draws: int, point: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Draw, from where the last draw was or from another point."""
        self.point = self.point if point is None else point
        points = []
        for _ in range(draws):
            for step in self.steps:
                self.point, _ = step.step(self.point)
            points.append(self.point)
        return points


def occupied(model: pm.Model, points) -> np.ndarray:
    """Count the occupied clusters of every point."""
    names = [rv.name for rv in model.free_RVs if rv.name.startswith("cluster_")]
    labels = [np.concatenate([point[name] for name in names]) for point in points]
    return np.array([float(len(np.unique(label))) for label in labels])


def quantities(model: pm.Model, points) -> dict[str, np.ndarray]:
    """Compute what is compared from the points of a chain."""
    logp = model.compile_logp()
    inputs = [value.name for value in model.value_vars]
    return {
        "log joint": np.array([float(logp({k: point[k] for k in inputs})) for point in points]),
        "occupied clusters": occupied(model, points),
        "precision": np.array([float(np.exp(point["precision_log__"])) for point in points]),
    }


def effective(draws: np.ndarray) -> float:
    """Effective sample size of one chain; nan if it never changes."""
    return min(float(az.ess(draws[None])), len(draws)) if np.ptp(draws) > 0 else float("nan")


def occupied_draws(found: np.ndarray, points, peer: PyMC, model, starts: int, length: int):
    """Effective draws a draw of PyMC's for the number of occupied clusters (see above)."""
    more = found > np.median(found)
    chosen = np.flatnonzero(more)
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(starts, len(chosen))).astype(int)]
    inputs = [value.name for value in model.value_vars]
    still = np.zeros(length)
    for number in chosen:
        drawn = peer.draw(length, {name: points[number][name] for name in inputs})
        still += occupied(model, drawn) > np.median(found)
    p = more.mean()
    autocorrelation = (still / len(chosen) - p) / (1.0 - p)
    return 1.0 / (1.0 + 2.0 * np.maximum(autocorrelation, 0.0).sum()), len(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=5000, help="of pm_match")
    parser.add_argument("--pymc-draws", type=int, default=500)
    parser.add_argument("--pymc-tune", type=int, default=300)
    parser.add_argument("--starts", type=int, default=16, help="of PyMC with an extra cluster")
    parser.add_argument("--length", type=int, default=120, help="draws from each of them")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)

    domains = pmm.datasets.synthetic()
    model = pmm.models.projected_clusters(domains, projection="normal")
    start = truth(domains, model)

    points, seconds = ours(model, natural(model, start), options.draws)
    found = quantities(model, points)
    rates = {name: effective(values) / seconds for name, values in found.items()}

    peer = PyMC(model, start, options.pymc_tune)
    begin = time.process_time()
    peer_points = peer.draw(options.pymc_draws)
    each = (time.process_time() - begin) / options.pymc_draws
    theirs = quantities(model, peer_points)
    a_draw = {name: effective(values) / len(values) for name, values in theirs.items()}
    a_draw["occupied clusters"], starts = occupied_draws(
        found["occupied clusters"], points, peer, model, options.starts, options.length
    )

    rows = []
    for name in QUANTITIES:
        rows.append(
            [
                name,
                f"{found[name].mean():.3f} ± {found[name].std():.3f}",
                f"{rates[name] * seconds / options.draws:.3f}",
                f"{rates[name]:.0f}",
                f"{theirs[name].mean():.3f} ± {theirs[name].std():.3f}",
                f"{a_draw[name]:.3f}",
                f"{a_draw[name] / each:.3f}",
                f"{rates[name] * each / a_draw[name]:.0f}",
            ]
        )
    per = "ESS/draw"
    header = ["", "pm_match", per, "ESS/s", "PyMC", per, "ESS/s", "ratio"]
    title = "Effective draws a second, Synth5 with normal projections"
    common.print_table(title, header, rows)
    worst, peer_worst = min(rates.values()), min(a_draw.values()) / each
    rows = [
        ["pm_match", "", f"{worst:.0f}"],
        ["PyMC", "", f"{peer_worst:.3f}"],
        ["ratio", ">= 1000", f"{worst / peer_worst:.0f}"],
        ["ratio if all draws of PyMC's were effective", "", f"{worst * each:.0f}"],
    ]
    common.print_table("Effective draws a second of each one's worst", ["", "target", ""], rows)
    print(f"pm_match: {options.draws} draws and {WARM_UP} of warm-up, {seconds:.1f} s in all")
    print(
        f"PyMC: {options.pymc_draws} draws at {1e3 * each:.0f} ms; {starts} x {options.length} "
        "from starts with an extra cluster"
    )


if __name__ == "__main__":
    main()
