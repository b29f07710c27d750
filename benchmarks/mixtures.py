"""Effective draws a second of mixtures: pm_match, PyMC's own samplers, and NUTS without labels.

Two mixtures of N objects, declared in plain PyMC:

- *conjugate*: four columns of counts, Poisson with Gamma rates, which pm_match integrates out;
- *declared*: a Student-t column with free locations and scales, and a Poisson column with normal
  log rates. Nothing is conjugate: NUTS draws the parameters, given labels that pm_match draws.

PyMC's own is what a plain `pm.sample` would take without pm_match: NUTS for what is continuous and
CategoricalGibbsMetropolis for the labels. The marginalised model has no labels: the log likelihood
of an object is a `logsumexp` over clusters. Weights are Dirichlet(1 / T), so that labels are
exchangeable. Chains start at draws of pm_match, which starts at the truth: none is charged for
finding it, and a chain that stays where it starts is seen to differ from the others.

Compared are quantities that no relabelling changes, and that all three have: the log joint of
weights and parameters with labels summed out, the entropy of the weights, and the number of
occupied clusters (without labels: of labels drawn given the rest). For each sampler the worst of
them counts, of those that it changed at all. Effective sample sizes are arviz's (bulk), capped at
the number of draws. A sampler stops after `--seconds`. Chains that hardly move still seem to have
an effective draw or two each, which flatters a sampler that has made few draws. If it has made too
few for an effective sample size, each is taken to be as effective as with fewer objects. The ratio
if all of its draws were effective, a lower bound, is printed too.

Time is CPU time of the draws after warm-up. Before that: the cost of a sweep by itself, and that of
the table of log densities beside the bare compiled log density, one call for each label.
"""

import common  # noqa: I001  (before numpy)

import argparse
import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit, logsumexp, softmax

import pm_match as pmm
from pm_match.clusters.collapsed import Collapsed
from pm_match.reading import read

TRUNCATION = 8
COLUMNS = 20
WORDS = 1000
# With fewer draws a chain nothing is said of how effective they are.
FEW = 10
CHAINS = 4
OURS, THEIRS, NUTS = "pm_match", "PyMC's own", "NUTS, no labels"
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
        weights = pm.Dirichlet("weights", np.full(TRUNCATION, 1.0 / TRUNCATION))
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


@dataclass
class Run:
    """Draws of a sampler.

    Attributes
    ----------
    chains : list of list of dict
        Points, as many in every chain.
    seconds : float
        CPU time of a draw.
    """

    chains: list[list[dict[str, Any]]]
    seconds: float

    @property
    def n_draws(self) -> int:
        """Draws of all chains."""
        return len(self.chains) * len(self.chains[0])


def drive(steps: Sequence[Any], starts: Sequence[Any], tune: int, draws: int, most: float) -> Run:
    """Draw from several starts after one warm-up, for `most` seconds of CPU time at most.

    Steps that adapt keep what they have adapted to; warm-up takes at most four times as long.
    """
    for step, rng in zip(steps, np.random.default_rng(1).spawn(len(steps)), strict=True):
        step.setup_chain(rng, tune, 1)
    _follow(steps, starts[0], tune, 4.0 * most)
    for step in steps:
        step.stop_tuning()
    begin = time.process_time()
    share = len(starts)
    chains = [_follow(steps, start, draws // share, most / share) for start in starts]
    spent, drawn = time.process_time() - begin, sum(map(len, chains))
    shortest = min(map(len, chains))
    return Run([chain[:shortest] for chain in chains], spent / drawn)


def _follow(steps: Sequence[Any], point: dict[str, Any], draws: int, most: float) -> list[Any]:
    points, begin = [], time.process_time()
    while len(points) < draws and (not points or time.process_time() - begin < most):
        for step in steps:
            point, _ = step.step(point)
        points.append(point)
    return points


class Quantities:
    """What is compared, from points of either model."""

    def __init__(self, marginal: pm.Model):
        self.logp = marginal.compile_logp()
        self.names = [value.name for value in marginal.value_vars]
        graphs = marginal.replace_rvs_by_values([marginal["weights"], marginal["table"]])
        self.natural = marginal.compile_fn(graphs)

    def of(self, run: Run) -> dict[str, np.ndarray]:
        """Compute them for every point of every chain."""
        rng, found = np.random.default_rng(2), []
        for point in chain.from_iterable(run.chains):
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
        columns = np.transpose(found).reshape(len(names), len(run.chains), -1)
        return dict(zip(names, columns, strict=True))


def effective(draws: np.ndarray) -> float:
    """Effective draws a draw, of chains; nan if nothing changes, or they are too short to tell."""
    if draws.shape[1] < FEW or np.ptp(draws) == 0:
        return float("nan")
    return min(float(az.ess(draws)), draws.size) / draws.size


def samplers(kind: str, data: dict[str, np.ndarray]) -> dict[str, Callable[[], list[Any]]]:
    """Make what makes the steps of every sampler."""
    model, marginal = declared(kind, data, True), declared(kind, data, False)

    def ours() -> list[Any]:
        steps = pmm.steps(model)
        taken = {value for step in steps for value in step.vars}
        left = [rv for rv in model.free_RVs if model.rvs_to_values[rv] not in taken]
        with model:
            return [*steps, *([pm.NUTS(left)] if left else [])]

    def theirs() -> list[Any]:
        others = [rv for rv in model.free_RVs if rv.name != "cluster"]
        with model:
            return [pm.NUTS(others), pm.CategoricalGibbsMetropolis([model["cluster"]])]

    def nuts() -> list[Any]:
        with marginal:
            return [pm.NUTS()]

    return {OURS: ours, THEIRS: theirs, NUTS: nuts}


def compare(
    kind: str, n: int, options: argparse.Namespace, known: dict[str, dict[str, float]]
) -> None:
    """Run the three samplers on a mixture of `n` objects, and print what they do.

    Keeps in `known` how effective a draw of each is.
    """
    data, label = simulated(kind, n)
    model, marginal = declared(kind, data, True), declared(kind, data, False)
    quantities = Quantities(marginal)
    without = [value.name for value in marginal.value_vars]
    lengths = {
        OURS: (200, options.draws),
        THEIRS: (5, options.pymc_draws),
        NUTS: (options.nuts_tune, options.nuts_draws),
    }
    starts = [truth(kind, model, label)]
    rows, seconds, found = [], {}, {}
    for name, make in samplers(kind, data).items():
        steps = make()
        if name == OURS:
            first = drive(steps, starts, 200, options.draws // 2, options.seconds).chains[0]
            starts = [
                first[i] for i in np.linspace(len(first) // 4, len(first) - 1, CHAINS, dtype=int)
            ]
        own = starts if name != NUTS else [{k: start[k] for k in without} for start in starts]
        run = drive(steps, own, *lengths[name], options.seconds)
        values = quantities.of(run)
        each = {quantity: effective(own) for quantity, own in values.items()}
        for quantity, drawn in values.items():
            rows.append(
                [
                    f"{name}: {quantity}",
                    f"{drawn.mean():.3f} ± {drawn.std():.3f}",
                    drawn.size,
                    f"{each[quantity]:.4f}",
                    f"{each[quantity] / run.seconds:.2f}",
                ]
            )
        found[name] = len(run.chains[0]) >= FEW
        if found[name] or name not in known:
            known[name] = each if found[name] else dict.fromkeys(each, 1.0)
        seconds[name] = run.seconds
    title = f"{kind}, {n} objects"
    common.print_table(title, ["", "mean ± sd", "draws", "ESS/draw", "ESS/s"], rows)

    goals = dict(zip((THEIRS, NUTS), TARGETS[kind], strict=True))
    rates = {
        name: {quantity: e / seconds[name] for quantity, e in own.items()}
        for name, own in known.items()
    }
    worst = {name: float(np.nanmin(list(own.values()))) for name, own in rates.items()}
    rows = [
        [
            name,
            f"{1e3 * seconds[name]:.2f} ms",
            f"{worst[name]:.3g}",
            *(f"{rates[OURS][q] / rate:.1f}" for q, rate in rates[name].items()),
            f"{worst[OURS] / worst[name]:.1f}",
            f"{worst[OURS] * seconds[name]:.1f}",
            f">= {goals[name]}" if name in goals else "",
            "" if found[name] else "too few draws",
        ]
        for name in rates
    ]
    header = ["pm_match's ESS/s over theirs", "a draw", "worst ESS/s", *rates[OURS]]
    header += ["worst", "if all draws count", "goal", ""]
    common.print_table(title, header, rows)


# -- what a sweep costs ---------------------------------------------------------------------------


def sweep_cost(model: pm.Model, label: np.ndarray, cells: int) -> tuple[float, int, float]:
    """Return nanoseconds of a sweep by cell and candidate, candidates, and the share that moves."""
    (component,) = read(model).components
    state, rng = Collapsed.of(model, component), np.random.default_rng(0)
    state.load(model.initial_point(0), [label])
    moved = [state.sweep(rng) for _ in range(5)]
    candidates = int(state.partitions[0].n_slots[0])
    each = common.cpu_seconds(lambda: state.sweep(rng)) / (cells * candidates)
    return 1e9 * each, candidates, moved[-1] / len(label)


def columns_model(kind: str, label: np.ndarray, spread: float, rng) -> tuple[pm.Model, int]:
    """Simulate columns around clusters that differ by `spread`; return a model, and its cells."""
    n, n_clusters = len(label), label.max() + 1
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(n_clusters + 2))
        cluster = pm.Categorical("cluster", p=weights, shape=n)
        shape = (n_clusters, COLUMNS)
        if kind == "Poisson":
            x = rng.poisson(np.exp(1.0 + spread * rng.normal(size=shape))[label])
            rates = pm.Gamma("rates", 1.0, 0.3, shape=(n_clusters + 2, COLUMNS))
            pm.Poisson("x", rates[cluster], observed=x)
            return model, x.size
        if kind == "Bernoulli":
            x = rng.random((n, COLUMNS)) < expit(2.0 * spread * rng.normal(size=shape))[label]
            p = pm.Beta("p", 1.0, 1.0, shape=(n_clusters + 2, COLUMNS))
            pm.Bernoulli("x", p[cluster], observed=x.astype(int))
            return model, x.size
        words = softmax(2.0 * spread * rng.normal(size=(n_clusters, WORDS)), axis=1)[label]
        length = 20 + rng.poisson(40.0, n)
        bags = rng.multinomial(length, words)
        p = pm.Dirichlet("p", np.full(WORDS, 0.5), shape=(n_clusters + 2, WORDS))
        pm.Multinomial("x", n=length, p=p[cluster], observed=bags)
        return model, np.count_nonzero(bags)


def sweeps() -> None:
    """Print the cost of sweeps over columns and bags of words."""
    rows = []
    for kind, n, goal in (("Poisson", 20_000, 4), ("Bernoulli", 20_000, 4), ("bags", 4000, 6)):
        for spread in (1.0, 0.4, 0.2):
            rng = np.random.default_rng(0)
            label = rng.integers(10, size=n)
            model, cells = columns_model(kind, label, spread, rng)
            each, candidates, moved = sweep_cost(model, label, cells)
            name = f"{kind}, {cells} cells, {candidates} candidates, {100 * moved:.0f}% move"
            rows.append([name, f"{each:.2f} ns", f"<= {goal} ns"])
    common.print_table("a sweep, by stored cell and candidate", ["", "", "goal"], rows)


def tables(sizes: Sequence[int]) -> None:
    """Print the cost of tables of log densities."""
    rows = []
    for n in sizes:
        data, label = simulated("declared", n)
        model = declared("declared", data, True)
        (component,) = read(model).components
        state = Collapsed.of(model, component)
        point = truth("declared", model, label)
        state.load(point, [label])
        (evidence,) = state.evidence
        bare = model.compile_logp(vars=model.observed_RVs, jacobian=False)
        inputs = [v.name for v in model.value_vars]
        given = [
            {name: point[name] for name in inputs} | {"cluster": np.full_like(point["cluster"], t)}
            for t in range(TRUNCATION)
        ]
        call = partial(_each, bare, given)
        call()
        seconds = (
            common.cpu_seconds(partial(evidence.load, point), 20),
            common.cpu_seconds(call, 20),
        )
        rows.append(
            [
                f"{n} objects",
                *(f"{1e3 * s:.2f} ms" for s in seconds),
                f"{seconds[0] / seconds[1]:.2f}",
                "<= 1.5",
            ]
        )
    header = ["", "table", "bare log density, all labels", "ratio", "goal"]
    common.print_table(f"tables of log densities, {TRUNCATION} labels", header, rows)


def _each(function: Callable, given: Sequence[dict[str, Any]]) -> None:
    for point in given:
        function(point)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[2000, 20_000])
    parser.add_argument("--draws", type=int, default=1000, help="of pm_match")
    parser.add_argument("--nuts-draws", type=int, default=300)
    parser.add_argument("--nuts-tune", type=int, default=300)
    parser.add_argument("--pymc-draws", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=120.0, help="of drawing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    sweeps()
    tables(options.sizes)
    for kind in options.kinds:
        known: dict[str, dict[str, float]] = {}
        for n in sorted(options.sizes):
            compare(kind, n, options, known)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
