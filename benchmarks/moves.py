"""Effective draws a second of matchings, with and without the moves that change many labels.

Four chains from dispersed starts, and of what they say of *which* objects match: indicators that an
object of one domain (or network) shares its cluster with one of another, for pairs drawn at random.
Shown are the effective draws of these (ArviZ, all chains together, so that chains which stay in
different modes count for little), the worst and the median pair, those of the number of occupied
clusters, and CPU time an iteration. Pairs that never match or always do say nothing and are left
out: their number is shown, and R-hat of the worst.

The data: domains of 30 objects whose clusters could be matched in several ways (few features and
as many factors as clusters), domains that are settled, and a pair of small networks.
"""

import common  # noqa: I001  (before numpy)

import argparse
import time
import warnings

import numpy as np
from arviz_stats import ess, rhat

import pm_match as pmm

PLAIN = {"n_split_merge": 0, "n_exchanges": 0}
MOVES = {
    "none": (PLAIN, False),
    "split-merge": (PLAIN | {"n_split_merge": 1}, False),
    "exchange": (PLAIN | {"n_exchanges": 1}, False),
    "permute": (PLAIN, True),
    "all": ({}, True),
}


def features(n_objects: int, n_features: int, n_clusters: int, noise_precision: float, seed: int):
    """Declare projected clusters of two synthetic domains."""
    domains = pmm.datasets.synthetic(
        n_objects,
        n_features,
        n_clusters,
        n_clusters,
        noise_precision=noise_precision,
        random_seed=seed,
    )
    return pmm.models.projected_clusters(
        domains, n_factors=n_clusters, n_clusters=10, projection="normal"
    )


def networks(n_relevant: int, n_irrelevant: int, n_clusters: int, seed: int):
    """Declare the robust matching of two synthetic networks."""
    data = pmm.datasets.synthetic_networks(
        n_relevant=n_relevant, n_irrelevant=n_irrelevant, n_clusters=n_clusters, random_seed=seed
    )
    return pmm.models.relational_clusters(data.networks, n_clusters=10)


PROBLEMS = {
    "features, J=3": (features, (30, 5, 3, 1.0, 1)),
    "features, J=4": (features, (30, 6, 4, 1.0, 2)),
    "features, settled": (features, (200, 30, 4, 1.0, 3)),
    "networks": (networks, (20, 5, 3, 1)),
    "networks, settled": (networks, (60, 10, 3, 2)),
}


def make_steps(model, cluster: dict, permute: bool):
    """Make a model's steps, with the moves that are wanted."""
    made = pmm.steps(model)
    for step in made:
        if isinstance(step, pmm.ClusterGibbs):
            for name, value in cluster.items():
                setattr(step, name, value)
        if isinstance(step, pmm.FeatureGibbs) and not permute:
            step._exchanges = None
    return made


def indicators(points, pairs, names):
    """Whether the objects of each pair match, and the clusters that the objects occupy."""
    first, second = (np.array([p[f"cluster_{name}"] for p in points]) for name in names)
    for labels, name in ((first, names[0]), (second, names[1])):
        if f"relevance_{name}" in points[0]:
            flags = np.array([p[f"relevance_{name}"] for p in points])
            labels[flags == 0] = -1 - names.index(name)
    found = first[:, pairs[0]] == second[:, pairs[1]]
    return found.astype(float)


def run(problem: str, move: str, n_chains: int, n_tune: int, n_draws: int, n_pairs: int):
    """Return a row of the table."""
    make, arguments = PROBLEMS[problem]
    model = make(*arguments)
    names = [rv.name.removeprefix("cluster_") for rv in model.free_RVs if "cluster_" in rv.name]
    names = names[:: len(names) // 2][:2]
    steps = make_steps(model, *MOVES[move])
    starts = pmm.initial_points(model, chains=n_chains, random_seed=0)
    rng = np.random.default_rng(0)
    sizes = [model.initial_point(0)[f"cluster_{name}"].shape[0] for name in names]
    pairs = np.array([rng.integers(n, size=n_pairs) for n in sizes])
    values = set(model.initial_point(0))
    matches, occupied, seconds = [], [], 0.0
    accepted: dict[str, list[float]] = {}
    for number, start in enumerate(starts):
        start = {name: value for name, value in start.items() if name in values}
        chain = common.chain(
            steps, common.start(model, start), n_tune + n_draws, [number, len(move)]
        )
        points = []
        for iteration, (point, stats) in enumerate(chain):
            if iteration == n_tune:
                begin = time.process_time()
            if iteration >= n_tune:
                points.append({k: v for k, v in point.items() if k.startswith(("clus", "rel"))})
                occupied.append(stats["n_occupied"])
                for name, value in stats.items():
                    if name.endswith("_accepted"):
                        accepted.setdefault(name, []).append(value)
        seconds += time.process_time() - begin
        matches.append(indicators(points, pairs, names))
    found = np.array(matches)
    varied = [j for j in range(n_pairs) if 0.01 < found[:, :, j].mean() < 0.99]
    counts = [float(ess(found[:, :, j], method="mean")) for j in varied] or [np.nan]
    worst = [float(rhat(found[:, :, j])) for j in varied] or [np.nan]
    clusters = np.reshape(occupied, (n_chains, n_draws)).astype(float)
    of_clusters = float(ess(clusters, method="mean")) if np.ptp(clusters) else np.nan
    rates = [
        np.mean(accepted.get(f"{name}_accepted", [0.0]))
        for name in ("split_merge", "exchange", "permute")
    ]
    return [
        problem,
        move,
        len(varied),
        f"{np.nanmax(worst):.2f}",
        f"{min(counts) / seconds:.1f}",
        f"{np.median(counts) / seconds:.1f}",
        f"{of_clusters / seconds:.1f}",
        f"{1e3 * seconds / (n_chains * n_draws):.2f}",
        *(f"{rate:.3f}" for rate in rates),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--tune", type=int, default=500)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", default="", help="problems and moves whose names begin so")
    parser.add_argument("--moves", nargs="*", default=list(MOVES))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for problem in PROBLEMS:
        if not problem.startswith(options.only):
            continue
        for move in options.moves:
            if move == "permute" and problem.startswith("networks"):
                continue
            settings = options.chains, options.tune, options.draws, options.pairs
            rows.append(run(problem, move, *settings))
            print(*rows[-1], sep="  ", flush=True)
    header = ["problem", "moves", "pairs", "R-hat", "worst/s", "median/s", "clusters/s", "ms"]
    header += ["split", "exchange", "permute"]
    common.print_table("Effective draws a second, and fractions accepted", header, rows)


if __name__ == "__main__":
    main()
