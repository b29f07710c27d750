"""Accuracy by the papers' recipe: five dispersed starts, 100 iterations each, best by log joint.

Prints the adjusted Rand index over the objects of all domains for every data set, and means with
standard errors beside what Iwata, Hirao and Ueda (2016) report. An iteration is one step on the
projections and one Gibbs sweep; the steps are driven in this process. `--sample` adds the same
recipe through `pm_match.sample(draws=1, tune=99, chains=5)`, and `--truth` a chain that starts at
the true clusters, which tells a failure of search from a limit of the model.

The data: Synth3 and Synth5 (two domains of 200 objects and 50 features, 5 clusters, 3 or 5 true
latent dimensions, noise precision 1; the model has 5), Iris (features split at random into two
domains of 150 objects; raw), Synth5 with 5% of each domain's objects linked to one of the same
cluster, and Synth5 with 20% of the entries missing at random.
"""

import common  # noqa: I001  (before numpy)

import argparse
import logging
import time
import warnings
from collections.abc import Mapping

import numpy as np

import pm_match as pmm

STARTS = 5
ITERATIONS = 100
PAPER = {"Synth5": 0.893, "Synth3": 0.875, "Iris": 0.383}


def random_links(domains, fraction: float, rng: np.random.Generator) -> dict[str, list[int]]:
    """Link a fraction of each domain's objects, at random, to one of the same true cluster."""
    (first, label), (second, other) = pmm.datasets.true_labels(domains).items()
    chosen = rng.permutation(len(label))[: round(fraction * len(label))]
    left = list(rng.permutation(len(other)))
    partners = []
    for i in chosen:
        partner = next(j for j in left if other[j] == label[i])
        left.remove(partner)
        partners.append(int(partner))
    return {first: chosen.tolist(), second: partners}


def problem(name: str, seed: int):
    """Make a data set and its model."""
    links = None
    if name == "Iris":
        domains = pmm.datasets.iris(random_seed=seed)
    else:
        domains = pmm.datasets.synthetic(
            n_factors=3 if name == "Synth3" else 5,
            missing=0.2 if name.endswith("missing") else 0.0,
            random_seed=seed,
        )
    if name.endswith("linked"):
        links = random_links(domains, 0.05, np.random.default_rng([seed, 1]))
    return domains, pmm.models.projected_clusters(domains, n_factors=5, links=links)


def last(steps, model, values: Mapping, seed, n_iterations: int = ITERATIONS):
    """Run one chain from `values`, all but its last iteration as warm-up."""
    return common.last(common.chain(steps, common.start(model, values), n_iterations, seed))


def by_steps(domains, model, seed: int, truth: bool):
    """Apply the recipe, driving the steps; return its score, log joint, and the truth-start's."""
    steps = pmm.steps(model)
    starts = pmm.initial_points(model, chains=STARTS, random_seed=seed, init="dispersed")
    ends = [last(steps, model, start, [seed, number]) for number, start in enumerate(starts)]
    best, stats = max(ends, key=lambda end: end[1]["log_joint"])
    result = [common.match_score(domains, best), stats["log_joint"]]
    if truth:
        labels = pmm.datasets.true_labels(domains)
        start = starts[0] | {f"cluster_{name}": label for name, label in labels.items()}
        point, stats = last(steps, model, start, [seed, STARTS])
        result += [common.match_score(domains, point), stats["log_joint"]]
    return result


def by_sample(domains, model, seed: int) -> float:
    """Apply the recipe through `pm_match.sample`; return its score."""
    idata = pmm.sample(
        draws=1,
        tune=ITERATIONS - 1,
        model=model,
        chains=STARTS,
        cores=1,
        random_seed=seed,
        init="dispersed",
        progressbar=False,
        quiet=True,
    )
    chain = int(idata["sample_stats"]["log_joint"].isel(draw=-1).argmax())
    end = idata["posterior"].isel(chain=chain, draw=-1)
    names = [f"cluster_{name}" for name in domains]
    return common.match_score(domains, {name: end[name].to_numpy() for name in names})


def mean(scores) -> str:
    scores = np.asarray(scores)
    error = scores.std(ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.nan
    return f"{scores.mean():.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=10, help="data sets of each kind (10)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (0)")
    parser.add_argument("--sample", action="store_true", help="also through pm_match.sample")
    parser.add_argument("--truth", action="store_true", help="also from the true clusters")
    kinds = ["Synth5", "Synth3", "Iris", "Synth5, 5% linked", "Synth5, 20% missing"]
    short = {"synth5": 0, "synth3": 1, "iris": 2, "linked": 3, "missing": 4}
    parser.add_argument("--only", nargs="+", choices=list(short), help="some kinds only")
    options = parser.parse_args()
    if options.only:
        kinds = [kinds[short[name]] for name in options.only]
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)

    seeds = range(options.first, options.first + options.sets)
    scores: dict[str, dict[str, list[float]]] = {}
    rows = []
    for name in kinds:
        found: dict[str, list[float]] = {"steps": [], "sample": [], "truth": [], "seconds": []}
        scores[name] = found
        for seed in seeds:
            kind = "Synth5 linked" if "linked" in name else name
            kind = "Synth5 missing" if "missing" in name else kind
            domains, model = problem(kind, seed)
            begin = time.process_time()
            score, joint, *truth = by_steps(domains, model, seed, options.truth)
            found["seconds"].append(time.process_time() - begin)
            found["steps"].append(score)
            row = [name, seed, f"{score:.3f}", f"{joint:.1f}"]
            if options.truth:
                found["truth"].append(truth[0])
                row += [f"{truth[0]:.3f}", f"{truth[1]:.1f}"]
            if options.sample:
                found["sample"].append(by_sample(domains, model, seed))
                row.append(f"{found['sample'][-1]:.3f}")
            rows.append(row)
    header = ["data", "seed", "score", "log joint"]
    header += ["from the truth", "log joint"] if options.truth else []
    header += ["pmm.sample"] if options.sample else []
    common.print_table("Adjusted Rand index of every data set", header, rows)

    summary = []
    for name in kinds:
        found = scores[name]
        target = {
            "Synth5, 5% linked": ">= .95",
            "Synth5, 20% missing": "complete - .05",
        }.get(name, "")
        if name in PAPER:
            target = f"{PAPER[name]:.3f} (paper)"
        row = [name, target, mean(found["steps"])]
        row += [mean(found["sample"])] if options.sample else []
        row += [mean(found["truth"])] if options.truth else []
        summary.append([*row, f"{np.mean(found['seconds']):.2f}"])
    header = ["data", "target", "mean ± s.e."]
    header += ["pmm.sample"] if options.sample else []
    header += ["from the truth"] if options.truth else []
    title = f"{options.sets} data sets of each kind: {STARTS} starts x {ITERATIONS} iterations"
    common.print_table(title, [*header, "CPU s a set"], summary)


if __name__ == "__main__":
    main()
