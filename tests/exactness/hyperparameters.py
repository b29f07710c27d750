"""The law of hyperparameters that a kind of step draws, against numerical integration."""

import numpy as np
from arviz_stats import ess
from scipy import stats

from tests.declared.networks import network_model, plain_log_joint


def law_distances(kind):
    """Compare draws with prior times collapsed joint on a grid, all else fixed.

    Returns Kolmogorov-Smirnov distances times the root of effective sample sizes.
    """
    found = {}
    model = network_model(hyperpriors=True, truncation=3)
    point = model.initial_point(0)
    rng = np.random.default_rng(5)
    for name in ("density_prior", "concentration_0"):
        step = kind([model[name]], model=model, rng=rng)
        for label in [n for n in point if n.startswith("cluster_")]:
            point[label] = rng.integers(3, size=point[label].shape)
        labels = step._collapsed.labels(point)
        grid = np.linspace(np.log(0.02), np.log(8.0), 400)
        logs = []
        for x in grid:
            at = point | {f"{name}_log__": np.array(x)}
            logs.append(
                stats.gamma.logpdf(np.exp(x), 5.0, scale=0.2)
                + x
                + plain_log_joint(step, at, labels)
            )
        law = np.exp(np.array(logs) - max(logs))
        cumulative = np.cumsum(law) / law.sum()
        draws, here = [], point
        for _ in range(2_500):
            here, _ = step.step(here)
            draws.append(float(here[f"{name}_log__"]))
            # Irrelevant objects' labels are drawn anew, and nothing here depends on them.
        spread = np.interp(draws, grid, cumulative)
        n_effective = float(ess(np.array(spread)[None]))
        distance = stats.kstest(spread, "uniform").statistic
        assert n_effective > 300
        found[name] = distance * np.sqrt(n_effective)
    return found
