"""Effective draws a second of mixtures: pm_match, PyMC's own samplers, and NUTS without labels.

Two mixtures of N objects, declared in plain PyMC:

- *conjugate*: four columns of counts, Poisson with Gamma rates, which pm_match integrates out;
- *declared*: a Student-t column with free locations and scales, and a Poisson column with normal
  log rates. Nothing is conjugate: NUTS draws the parameters, given labels that pm_match draws.

PyMC's own is NUTS for what is continuous and CategoricalGibbsMetropolis for the labels. The
marginalised model has no labels: the log likelihood of an object is a `logsumexp` over clusters.
All start at the truth, so that none is charged for finding it.

Compared are quantities that no relabelling changes, and that all three have: the log joint of
weights and parameters with labels summed out, the entropy of the weights, and the number of
occupied clusters (without labels: of labels drawn given the rest). For each sampler the worst of
them counts. Effective sample sizes are arviz's (bulk), capped at the number of draws. A sweep of
PyMC's own costs N x T evaluations of the model, so it gets a few draws only, and *each* is taken
to be effective: its ratio is a lower bound.

Time is CPU time of the draws after warm-up.
"""

import common  # noqa: I001  (before numpy)

import argparse
import logging
import time
import warnings
from collections.abc import Sequence
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp

import pm_match as pmm

TRUNCATION = 8
CENTRES = {
    "counts": np.array([[2.0, 9.0, 1.0, 5.0], [7, 2, 4, 1], [1, 4, 9, 9], [9, 9, 2, 3]]),
    "value": np.array([-6.0, -2.0, 2.0, 6.0]),
    "count": np.array([3.0, 12.0, 1.0, 6.0]),
}
TARGETS = {"conjugate": (300, 30), "declared": (40, 3)}


def simulated(kind: str, n: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Simulate columns of four clusters, and the labels behind them."""
    rng = np.random.default_rng(0)
    label = rng.integers(4, size=n)
    if kind == "conjugate":
        return {"counts": rng.poisson(CENTRES["counts"][label])}, label
    values = CENTRES["value"][label] + 0.7 * rng.standard_t(4, size=n)
    return {"value": values, "count": rng.poisson(CENTRES["count"][label])}, label


def declared(kind: str, data: dict[str, np.ndarray], labelled: bool) -> pm.Model:
    """Declare a mixture, with labels or with labels summed out."""
    n = len(next(iter(data.values())))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=np.float64(1.0), K=TRUNCATION - 1)
        # Without labels, every object is held against every cluster: (T, N, ...).
        place: Any = np.arange(TRUNCATION)[:, None]
        if labelled:
            place = pm.Categorical("cluster", p=weights, shape=n)
        table: Any = 0.0

        def observe(name, distribution, *parameters, **named):
            if labelled:
                distribution(name, *parameters, **named, observed=data[name])
                return 0.0
            logs = pm.logp(distribution.dist(*parameters, **named), data[name][None])
            return logs.sum(-1) if data[name].ndim == 2 else logs

        if kind == "conjugate":
            rates = pm.Gamma("rates", 1.5, 0.3, shape=(TRUNCATION, 4))
            table += observe("counts", pm.Poisson, rates[place])
        else:
            middle = pm.Normal("middle", 0.0, 6.0, shape=TRUNCATION)
            scale = pm.LogNormal("scale", -0.3, 0.5, shape=TRUNCATION)
            log_rate = pm.Normal("log_rate", 1.3, 1.0, shape=TRUNCATION)
            table += observe("value", pm.StudentT, nu=4.0, mu=middle[place], sigma=scale[place])
            table += observe("count", pm.Poisson, pt.exp(log_rate[place]))
        if not labelled:
            table = pm.Deterministic("table", pt.log(weights)[:, None] + table)
            pm.Potential("data", pt.logsumexp(table, axis=0).sum())
    return model


def truth(kind: str, model: pm.Model, label: np.ndarray) -> dict[str, Any]:
    """Start at the true clusters: the first four; the others hold nothing."""
    start = dict(model.initial_point(0))
    weights = np.append(np.full(4, 0.249), np.full(TRUNCATION - 4, 0.001))
    values = {"weights": weights}
    if kind == "conjugate":
        values["rates"] = np.vstack([CENTRES["counts"], np.full((TRUNCATION - 4, 4), 5.0)])
    else:
        values["middle"] = np.append(CENTRES["value"], np.zeros(TRUNCATION - 4))
        values["scale"] = np.full(TRUNCATION, 0.7)
        values["log_rate"] = np.append(np.log(CENTRES["count"]), np.ones(TRUNCATION - 4))
    for name, value in values.items():
        rv = model[name]
        transform = model.rvs_to_transforms[rv]
        own = (
            transform.forward(pt.as_tensor(value), *rv.owner.inputs).eval() if transform else value
        )
        start[model.rvs_to_values[rv].name] = own
    if "cluster" in start:
        start["cluster"] = label.astype(start["cluster"].dtype)
    return start


def drive(steps: Sequence[Any], point: dict[str, Any], tune: int, draws: int):
    """Draw after warm-up; return the points and the CPU seconds of a draw."""
    for step, rng in zip(steps, np.random.default_rng(1).spawn(len(steps)), strict=True):
        step.setup_chain(rng, tune, 1)
    points = []
    begin = 0.0
    for number in range(tune + draws):
        if number == tune:
            for step in steps:
                step.stop_tuning()
            begin = time.process_time()
        for step in steps:
            point, _ = step.step(point)
        if number >= tune:
            points.append(point)
    return points, (time.process_time() - begin) / draws


class Quantities:
    """What is compared, from points of either model."""

    def __init__(self, marginal: pm.Model):
        self.logp = marginal.compile_logp()
        self.names = [value.name for value in marginal.value_vars]
        self.natural = marginal.compile_fn([marginal["weights"], marginal["table"]])

    def of(self, points) -> dict[str, np.ndarray]:
        """Compute them for every point."""
        rng, found = np.random.default_rng(2), []
        for point in points:
            own = {name: point[name] for name in self.names}
            weights, table = self.natural(own)
            if "cluster" in point:
                label = point["cluster"]
            else:
                share = np.cumsum(np.exp(table - logsumexp(table, axis=0)), axis=0)
                label = (rng.random(table.shape[1]) > share[:-1]).sum(axis=0)
            entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum()
            found.append([float(self.logp(own)), entropy, float(len(np.unique(label)))])
        names = ("log joint", "entropy of weights", "occupied clusters")
        return dict(zip(names, np.transpose(found), strict=True))


def effective(draws: np.ndarray) -> float:
    """Effective sample size of one chain; nan if it never changes."""
    return min(float(az.ess(draws[None])), len(draws)) if np.ptp(draws) > 0 else float("nan")


def compare(kind: str, n: int, options: argparse.Namespace) -> None:
    """Run the three samplers on a mixture of `n` objects, and print what they do."""
    data, label = simulated(kind, n)
    model, marginal = declared(kind, data, True), declared(kind, data, False)
    quantities = Quantities(marginal)
    start = truth(kind, model, label)

    points, ours = drive(pmm.steps(model), start, 200, options.draws)
    found = {"pm_match": (quantities.of(points), len(points), ours)}

    with marginal:
        nuts = pm.NUTS()
    without = truth(kind, marginal, label)
    points, each = drive([nuts], without, options.nuts_tune, options.nuts_draws)
    found["NUTS, no labels"] = (quantities.of(points), len(points), each)

    rows, worst = [], {}
    for name, (values, draws, each) in found.items():
        sizes = {quantity: effective(own) for quantity, own in values.items()}
        worst[name] = min(sizes.values()) / (draws * each)
        for quantity, size in sizes.items():
            own = values[quantity]
            rows.append(
                [
                    f"{name}: {quantity}",
                    f"{own.mean():.3f} ± {own.std():.3f}",
                    f"{size / draws:.3f}",
                    f"{size / (draws * each):.2f}",
                ]
            )
    title = f"{kind}, {n} objects: effective draws a second"
    common.print_table(title, ["", "mean ± sd", "ESS/draw", "ESS/s"], rows)

    others = [rv for rv in model.free_RVs if rv.name != "cluster"]
    with model:
        own_steps = [pm.NUTS(others), pm.CategoricalGibbsMetropolis([model["cluster"]])]
    _, theirs = drive(own_steps, start, 1, options.pymc_draws)
    least, against_nuts = TARGETS[kind]
    rows = [
        ["pm_match", f"{1e3 * ours:.2f} ms", f"{worst['pm_match']:.2f}", "", ""],
        [
            "PyMC's own, all draws effective",
            f"{1e3 * theirs:.1f} ms",
            f"{1 / theirs:.4f}",
            f"{worst['pm_match'] * theirs:.0f}",
            f">= {least}",
        ],
        [
            "NUTS, no labels",
            f"{1e3 * found['NUTS, no labels'][2]:.1f} ms",
            f"{worst['NUTS, no labels']:.4f}",
            f"{worst['pm_match'] / worst['NUTS, no labels']:.1f}",
            f">= {against_nuts}",
        ],
    ]
    common.print_table(title, ["the worst of each", "a draw", "ESS/s", "ratio", "goal"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[2000, 20_000])
    parser.add_argument("--draws", type=int, default=1000, help="of pm_match")
    parser.add_argument("--nuts-draws", type=int, default=200)
    parser.add_argument("--nuts-tune", type=int, default=300)
    parser.add_argument("--pymc-draws", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for kind in options.kinds:
        for n in options.sizes:
            compare(kind, n, options)


if __name__ == "__main__":
    main()
