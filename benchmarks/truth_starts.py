"""What `pmm.find_matching` finds in synthetic networks, beside a climb from the true clusters.

A search with a log joint below that of the climb from the truth has failed; where it is not below,
what the index lacks is the model's. Kinds of networks: those of Iwata & Ishiguro's Table 2, with
and without relevance, and rectangular ones drawn from other models that are served: clusters that
a network lacks, counts, weights, degrees, and one-mode networks, of which one is on its own.

Run ``python benchmarks/truth_starts.py --sets 100 --only partial "one mode"``.
"""

import common  # noqa: I001  (before numpy)

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import pm_match as pmm
from case_studies.truth_start import truth_start

# A search within so many nats of the truth's climb has found its mode, or one as good.
NEAR = 1.0


class Drawn(NamedTuple):
    """Networks with known clusters, and how they are declared."""

    networks: dict[str, Any]
    types: tuple[str, ...]
    clusters: dict[str, tuple[np.ndarray, ...]]  # for every network, of every type; -1: irrelevant
    options: dict[str, Any]  # of `pmm.models.relational_clusters`


def papers(kind: str, **options):
    """Networks of Iwata & Ishiguro: 100 relevant and 20 irrelevant objects of each type."""

    def draw(seed: int) -> Drawn:
        sizes = {"n_irrelevant": 20 if options.get("relevance", True) else 0}
        data = pmm.datasets.synthetic_networks(kind, **sizes, random_seed=seed)
        return Drawn(data.networks, data.types, data.clusters, options)

    return draw


def blocks(
    shape: tuple[int, ...] = (60, 40),
    *,
    family: str = "bernoulli",
    n_clusters: int = 5,
    n_networks: int = 2,
    lacking: int = 0,
    irrelevant: float = 0.0,
    degrees: float = 0.0,
    symmetric: bool = False,
):
    """Networks of equally large clusters, one number in `shape` for one mode.

    `lacking`: clusters of each type that a network has nothing of, others in every network;
    `irrelevant`: the share of irrelevant objects; `degrees`: the standard deviation of log factors
    of the rates of rows and columns, which are then corrected for.
    """

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(seed)
        size = (n_clusters + 1,) * 2  # the last is that of irrelevant objects
        if family == "bernoulli":
            density = rng.beta(0.5, 0.5, size)
        elif family == "poisson":
            density = rng.gamma(1.0, 1.0, size)
        else:
            density = rng.normal(size=size)
        if symmetric:
            density = np.triu(density) + np.triu(density, 1).T
        density[-1, :] = density[:, -1] = density[-1, -1]
        networks, clusters = {}, {}
        for place, name in enumerate("abc"[:n_networks]):
            gone = (place * lacking + np.arange(lacking)) % n_clusters
            present = np.setdiff1d(np.arange(n_clusters), gone)
            own = []
            for n in shape:
                n_noise = round(irrelevant * n)
                relevant = present[np.arange(n - n_noise) % len(present)]
                own.append(rng.permutation(np.append(relevant, np.full(n_noise, -1))))
            factors = [np.exp(degrees * rng.normal(size=n)) for n in shape]
            mean = density[np.ix_(own[0], own[-1])] * np.outer(factors[0], factors[-1])
            if family == "bernoulli":
                x = (rng.random(mean.shape) < mean).astype(float)
            else:
                x = rng.poisson(mean) if family == "poisson" else mean + rng.normal(size=mean.shape)
            if len(shape) == 1:
                np.fill_diagonal(x, 0)
                x = np.triu(x) + np.triu(x).T if symmetric else x
            networks[name], clusters[name] = x, tuple(own)
        types = ("row", "column")[: len(shape)]
        options = {"family": family, "relevance": irrelevant > 0.0, "symmetric": symmetric}
        if degrees:
            options |= {"exposure": "degree", "weights": "uniform", "n_clusters": n_clusters}
        return Drawn(networks, types, clusters, options)

    return draw


KINDS: dict[str, Callable[[int], Drawn]] = {
    "noisy-dirichlet": papers("noisy-dirichlet"),
    "noisy-partial": papers("noisy-partial"),
    "dirichlet": papers("dirichlet"),
    "noisy-partial, ReMatch": papers("noisy-partial", relevance=False),
    "dirichlet, ReMatch": papers("dirichlet", relevance=False),
    "full": blocks(),
    "partial": blocks(lacking=1),
    "half": blocks(n_clusters=6, lacking=2),
    "subset": blocks(lacking=1, irrelevant=0.2),
    "counts": blocks(family="poisson", lacking=1),
    "weights": blocks(family="normal", lacking=1),
    "degrees": blocks((120, 80), family="poisson", degrees=0.7),
    "degrees, subset": blocks((120, 80), family="poisson", degrees=0.7, irrelevant=0.2),
    "ten clusters": blocks((150, 120), n_clusters=10, lacking=3),
    "ten clusters, counts": blocks((150, 120), n_clusters=10, lacking=3, family="poisson"),
    "ten clusters, weights": blocks((150, 120), n_clusters=10, lacking=3, family="normal"),
    "ten clusters, one mode": blocks((150,), n_clusters=10, lacking=3, symmetric=True),
    "one mode": blocks((60,), lacking=1),
    "one mode, symmetric": blocks((80,), lacking=1, symmetric=True),
    "one mode, subset": blocks((80,), lacking=1, irrelevant=0.2),
    "three networks": blocks(n_networks=3, lacking=1),
    "one network": blocks((300,), n_clusters=12, n_networks=1, symmetric=True),
}


def index(drawn: Drawn, labels: dict[str, np.ndarray]) -> float:
    """Compute the matching index of labels (-1: irrelevant) by name, averaged over types.

    That of a single network is the adjusted Rand index.
    """
    scores = []
    for number, t in enumerate(drawn.types):
        true = {name: own[number] for name, own in drawn.clusters.items()}
        found = {name: labels[f"cluster_{name}_{t}"] for name in true}
        several = len(true) > 1
        metrics = pmm.metrics
        score = metrics.matching_adjusted_rand_index if several else metrics.adjusted_rand_index
        scores.append(score(true, found))
    return float(np.mean(scores))


def run(drawn: Drawn, starts: int, seed: int) -> tuple[float, ...]:
    """Compare search and truth.

    Return the indices of the best start and of the truth's climb, by how much the log joint is
    above the latter's, the share of starts that are near it or above, and CPU seconds.
    """
    model = pmm.models.relational_clusters(drawn.networks, types=drawn.types, **drawn.options)
    begin = time.process_time()
    found = pmm.find_matching(model, starts=starts, random_seed=seed, progressbar=False, cores=1)
    seconds = time.process_time() - begin
    joints = found["starts"]["log_joint"].to_numpy()
    best = found["starts"].isel(start=int(joints.argmax()))
    true = {
        f"cluster_{name}_{t}": labels
        for name, own in drawn.clusters.items()
        for t, labels in zip(drawn.types, own, strict=True)
    }
    labels, height = truth_start(model, true, seed)
    names = {name: best[name].to_numpy() for name in true}
    near = float(np.mean(joints >= height - NEAR))
    return index(drawn, names), index(drawn, labels), joints.max() - height, near, seconds


def main() -> None:
    parser = common.options_of_sets(__doc__, KINDS)
    parser.add_argument("--starts", type=int, default=4, help="searches, the best of which counts")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    rows = []
    for kind in options.only or KINDS:
        run(KINDS[kind](0), 1, 0)  # compiles
        done = []
        for seed in range(options.first, options.first + options.sets):
            done.append(run(KINDS[kind](seed), options.starts, seed))
            if options.every:
                print(kind, seed, *(f"{value:.3f}" for value in done[-1]), flush=True)
        table = np.array(done)
        score, at_truth, gap, near, seconds = table.mean(axis=0)
        reached, worst = np.mean(table[:, 2] >= -NEAR), table[:, 2].min()
        row = [kind, f"{reached:.0%}", f"{near:.0%}", f"{worst:.1f}", f"{gap:.1f}"]
        rows.append([*row, f"{score:.3f}", f"{at_truth:.3f}", f"{seconds:.2f}"])
        print(*rows[-1], flush=True)
    header = ["data", "reached", "by a start", "least", "mean", "index", "from truth", "CPU s"]
    common.print_table(
        f"{options.sets} data sets, the best of {options.starts} starts: log joint less the "
        "truth's climb",
        header,
        rows,
    )


if __name__ == "__main__":
    main()
