"""Match probabilities beside what was true, over many data sets drawn from the declared model.

If truth and data are drawn from the model, then of all pairs that match with probability p, a
fraction p does match: a posterior's probabilities are calibrated exactly, whatever the data say.
"""

import numpy as np
import pandas as pd
import xarray as xr

import pm_match as pmm
from tests.declared.plain import tiny_data, tiny_model
from tests.exactness.simulate import Simulator

N_OBJECTS = {"a": 9, "b": 5}


def make_simulator(seed: int) -> Simulator:
    """A model of two domains whose projections are normal: one with a prior to draw from."""
    data = tiny_data(n_objects=tuple(N_OBJECTS.values()), n_features=(3, 4))
    return Simulator(tiny_model(data=data, n_clusters=5), seed)


def calibration(
    simulator: Simulator, n_simulations: int, n_draws: int = 150, tune: int = 60
) -> pd.DataFrame:
    """Simulate, sample, and compare.

    Returns
    -------
    DataFrame
        One row an event, with its ``simulation``, ``probability`` and whether it is a ``truth``;
        ``kind`` is "match" (objects of two domains share a cluster), "within" (two of one domain
        do) or "unmatched" (an object has no counterpart).
    """
    truths, starts = simulator.prior(n_simulations), simulator.prior(n_simulations)
    tables = []
    for number, (truth, start) in enumerate(zip(truths, starts, strict=True)):
        simulator.set_data([np.asarray(truth[name]) for name in N_OBJECTS])
        point, labels = simulator.point(start), []
        for step in range(tune + n_draws):
            point = simulator.update(point)
            if step >= tune:
                labels.append({name: point[f"cluster_{name}"] for name in N_OBJECTS})
        found, true = (
            _events(draws)
            for draws in (labels, [{name: truth[f"cluster_{name}"] for name in N_OBJECTS}])
        )
        for kind, probability in found.items():
            tables.append(
                pd.DataFrame({"probability": probability, "truth": true[kind] > 0.5}).assign(
                    kind=kind, simulation=number
                )
            )
    return pd.concat(tables, ignore_index=True)


def _events(draws: list[dict]) -> dict[str, np.ndarray]:
    """Probabilities of all events, by pm_match's own summaries."""
    posterior = xr.Dataset(
        {
            f"cluster_{name}": (("chain", "draw", name), np.array([d[name] for d in draws])[None])
            for name in N_OBJECTS
        }
    )
    within = pmm.match_probability(posterior, "cluster_a", "cluster_a").to_numpy()
    return {
        "match": pmm.match_probability(posterior, "cluster_a", "cluster_b").to_numpy().ravel(),
        "within": within[np.triu_indices(len(within), 1)],
        "unmatched": pmm.unmatched_probability(posterior, "cluster_a").to_numpy(),
    }


def reliability(table: pd.DataFrame, n_bins: int = 10) -> pd.DataFrame:
    """Compare by bins of probability.

    Returns
    -------
    DataFrame
        One row a bin that is not empty: mean ``probability``, ``frequency`` of what was true, its
        ``error`` (standard, the events of a simulation being dependent), ``z`` of their
        difference, and ``n`` events.
    """
    number = np.minimum((table["probability"] * n_bins).astype(int), n_bins - 1)
    rows = []
    for _, part in table.groupby(number):
        difference = part["truth"] - part["probability"]
        # Simulations are independent, the events of one are not: sums of those are added up.
        sums = difference.groupby(part["simulation"]).sum()
        error = np.sqrt((sums**2).sum()) / len(part)
        rows.append(
            {
                "probability": part["probability"].mean(),
                "frequency": part["truth"].mean(),
                "error": error,
                "z": difference.mean() / error if error > 0 else 0.0,
                "n": len(part),
                "simulations": len(sums),
            }
        )
    return pd.DataFrame(rows)
