"""Speed of sweeps over independent columns, family by family.

A settled sweep, from true clusters: nanoseconds an object, candidate (every
cluster, and an empty one) and column; for bags of words, for every stored cell and candidate. CPU
time, which other work on the machine changes least. Run it as
``python benchmarks/column_speed.py``.
"""

import common  # noqa: I001  (before numpy)

import argparse
import sys

import numpy as np
import pymc as pm

from pm_match.clusters.collapsed import Collapsed
from pm_match.reading import read

N, T, J, WORDS, LENGTH = 2000, 20, 10, 2000, 60
GOALS = {"Poisson": 4.0, "Bernoulli": 4.0, "bags of words": 6.0}


def declared(family: str, m: int) -> tuple[pm.Model, np.ndarray, int]:
    """Declare a table; return the model, true labels, and how many cells are stored."""
    rng = np.random.default_rng(0)
    label, n_cells = rng.integers(J, size=N), N * m
    mean = rng.normal(0.0, 3.0, (J, m))
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.0, K=T - 1)
        cluster = pm.Categorical("cluster", p=w, shape=N)
        if family in ("Poisson", "exponential"):
            rate = pm.Gamma("rate", 1.5, 0.3, shape=(T, m))[cluster]
            true = rng.gamma(1.0, 5.0, (J, m))[label]
            if family == "Poisson":
                pm.Poisson("x", rate, observed=rng.poisson(true))
            else:
                pm.Exponential("x", rate, observed=rng.exponential(1.0 / true))
        elif family == "Bernoulli":
            chance = pm.Beta("chance", 1.0, 1.0, shape=(T, m))[cluster]
            pm.Bernoulli("x", chance, observed=rng.binomial(1, rng.beta(0.4, 0.4, (J, m))[label]))
        elif family == "categorical":
            p = pm.Dirichlet("p", np.ones(5), shape=(T, m, 5))[cluster]
            true = rng.dirichlet(np.full(5, 0.4), (J, m)).cumsum(axis=-1)[label]
            x = (rng.random((N, m, 1)) > true[..., :-1]).sum(axis=-1)
            pm.Categorical("x", p=p, observed=x)
        elif family == "normal, known noise":
            own = pm.Normal("mean", 0.0, 3.0, shape=(T, m))[cluster]
            pm.Normal("x", own, 1.0, observed=mean[label] + rng.normal(size=(N, m)))
        elif family == "normal":
            precision = pm.Gamma("precision", 2.0, 2.0, shape=(T, m))
            own = pm.Normal("mean", 0.0, tau=0.1 * precision, shape=(T, m))
            x = mean[label] + rng.normal(size=(N, m))
            pm.Normal("x", own[cluster], tau=precision[cluster], observed=x)
        else:
            p = pm.Dirichlet("p", np.full(WORDS, 0.1), shape=(T, WORDS))[cluster]
            true = rng.dirichlet(np.full(WORDS, 0.05), J)
            x = np.array([rng.multinomial(LENGTH, true[j]) for j in label])
            pm.Multinomial("x", LENGTH, p, observed=x)
            n_cells = int(np.count_nonzero(x))
    return model, label, n_cells


FAMILIES = (
    *("Poisson", "Bernoulli", "categorical", "bags of words"),
    *("normal, known noise", "normal", "exponential"),
)


def measure(family: str, m: int) -> list[str]:
    """Time settled sweeps."""
    model, label, n_cells = declared(family, m)
    (component,) = read(model).components
    state, point = Collapsed.of(model, component), model.initial_point(0)
    state.load(point, [label])
    rng, moved = np.random.default_rng(1), []
    for _ in range(5):
        state.sweep(rng)
    candidates = int(state.partitions[0].n_slots[0])
    seconds = common.cpu_seconds(lambda: moved.append(state.sweep(rng)), 15, 2)
    goal = f"<= {GOALS[family]:g}" if family in GOALS else ""
    each = 1e9 * seconds / (n_cells * candidates)
    return [family, goal, f"{each:.1f}", f"{100 * np.mean(moved) / N:.1f} %", str(candidates)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--columns", type=int, default=20, help="the fewer, the more objects move")
    options = parser.parse_args()
    rows = [measure(family, options.columns) for family in options.families]
    common.print_table(
        f"Settled sweeps of {N} objects, {options.columns} columns or {WORDS} words",
        ["", "goal, ns", "ns", "moved", "candidates"],
        rows,
    )


if __name__ == "__main__":
    sys.exit(main())
