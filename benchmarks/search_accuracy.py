"""What `pmm.find_matching` finds on the synthetic networks of Iwata & Ishiguro's Table 2.

For every data set the best of some starts is compared with a chain that is started at the truth and
brought to the top of its mode in the same way: a log joint below that one's is a failure of the
search, an index below it with a log joint that is not is the model's. Both types are averaged.
"""

import common  # noqa: I001  (before numpy)

import argparse
import time
import warnings

import numpy as np

import pm_match as pmm
from case_studies.truth_start import truth_start

TARGETS = {"noisy-dirichlet": 0.95, "noisy-partial": 0.94, "dirichlet": 0.95}
TYPES = ("row", "column")


def index(data, labels) -> float:
    """Compute the matching index, averaged over types, of labels (-1: irrelevant) by name."""
    scores = []
    for number, t in enumerate(TYPES):
        true = {name: data.clusters[name][number] for name in data.networks}
        found = {name: labels[f"cluster_{name}_{t}"] for name in data.networks}
        scores.append(pmm.metrics.matching_adjusted_rand_index(true, found))
    return float(np.mean(scores))


def from_truth(data, model, seed: int):
    """Compute index and log joint of the mode that a chain started at the truth is in."""
    true = {
        f"cluster_{name}_{t}": labels
        for name in data.networks
        for t, labels in zip(TYPES, data.clusters[name], strict=True)
    }
    labels, log_joint = truth_start(model, true, seed)
    return index(data, labels), log_joint


def run(kind: str, seed: int, starts: int):
    """Return the index, that of the truth-start, the difference of log joints, and CPU seconds."""
    data = pmm.datasets.synthetic_networks(kind, random_seed=seed)
    model = pmm.models.relational_clusters(data.networks)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only one of")
        found = pmm.find_matching(model, starts=starts, random_seed=seed, progressbar=False)
    seconds = time.process_time() - begin
    best = found["starts"].isel(start=int(found["starts"]["log_joint"].to_numpy().argmax()))
    reached = float(found["sample_stats"]["log_joint"].squeeze())
    score, height = from_truth(data, model, seed)
    labels = {name: best[name].to_numpy() for name in best.data_vars if "cluster_" in str(name)}
    first = float(index(data, {k: v[0] for k, v in _labels(found).items()}))
    return index(data, labels), first, score, reached - height, seconds


def _labels(found):
    starts = found["starts"]
    return {
        name: v.to_numpy() for name, v in starts.data_vars.items() if name.startswith("cluster")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-sets", type=int, default=20)
    parser.add_argument("--first", type=int, default=5000, help="seed of the first data set")
    parser.add_argument("--starts", type=int, default=4)
    options = parser.parse_args()
    run("dirichlet", 0, 1)  # compiles
    rows = []
    for kind, target in TARGETS.items():
        done = np.array(
            [run(kind, options.first + i, options.starts) for i in range(options.data_sets)]
        )
        error = done[:, 0].std(ddof=1) / np.sqrt(len(done))
        means = done.mean(axis=0)
        rows.append(
            [
                kind,
                f">= {target:.2f}",
                f"{means[0]:.3f} +- {error:.3f}",
                f"{means[1]:.3f}",
                f"{means[2]:.3f}",
                f"{means[3]:.1f}",
                f"{done[:, 3].min():.1f}",
                int((done[:, 3] < -3.0).sum()),
                f"{means[4]:.2f}",
            ]
        )
    header = ["data", "target", "index", "one start", "from truth"]
    header += ["log joint - truth's", "least", "below by 3", "CPU s"]
    common.print_table(
        f"{options.data_sets} data sets, the best of {options.starts} starts", header, rows
    )


if __name__ == "__main__":
    main()
