"""The search for feature vectors: index, log joint against the truth-started search's, seconds.

Prints, for fresh data sets of several kinds, the adjusted Rand index over the objects of all
domains of what one search finds; its log joint (projections fitted) less that of a search that
starts at the true clusters and does everything but the start; and the CPU seconds of the search
(without reading the model, and without compilation). Where K is chosen, it is by BIC, over 3, 4, 5,
and the seconds are those of the three searches.
"""

import common  # noqa: I001  (before numpy)

import logging
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

import pm_match as pmm
from case_studies.uneven import uneven
from pm_match.features.parts import Features
from pm_match.features.search.plain import find_mode, problem_of, refine
from pm_match.reading import read

CHOSEN = (3, 4, 5)


def synthetic(**kwargs):
    return lambda seed: pmm.datasets.synthetic(random_seed=seed, **kwargs)


# What to make, the number of factors (None: chosen), and what is aimed at.
KINDS = {
    "Synth5": (synthetic(), 5, ">= .99"),
    "Synth5, K chosen": (synthetic(), None, ""),
    "Synth3, K chosen": (synthetic(n_factors=3), None, ">= .98"),
    "Synth3, K = 5": (synthetic(n_factors=3), 5, ""),
    "Synth10, K = 5": (synthetic(n_factors=10), 5, ">= .86"),
    "3 domains": (synthetic(n_domains=3), 5, ">= .97"),
    "4 domains": (synthetic(n_domains=4), 5, ">= .97"),
    "5 domains": (synthetic(n_domains=5), 5, ">= .97"),
    "10 to 100 objects a cluster": (uneven, 5, ">= .97"),
    "20% missing": (synthetic(missing=0.2), 5, ""),
    "12 clusters": (synthetic(n_clusters=12, n_objects=240), 5, ""),
}


def read_problem(domains, n_factors: int):
    model = pmm.models.projected_clusters(domains, n_factors=n_factors)
    (component,) = read(model).components
    features = component.of(Features)[0]
    return problem_of(component.clusterings[0], features, model.initial_point(0))[0]


def bic(problem, mode) -> float:
    k, n_features = problem.n_factors, sum(d.values.shape[1] for d in problem.domains)
    n_objects = sum(len(d.values) for d in problem.domains)
    return -2.0 * mode.log_joint + (k * n_features - k * (k - 1) / 2) * np.log(n_objects)


def one_set(make, n_factors, seed: int) -> tuple[float, float, float, int]:
    domains = make(seed)
    truth = pmm.datasets.true_labels(domains)
    problems = [read_problem(domains, k) for k in ([n_factors] if n_factors else CHOSEN)]
    begin = time.process_time()
    modes = [find_mode(problem, np.random.default_rng(seed)) for problem in problems]
    seconds = time.process_time() - begin
    problem, mode = min(zip(problems, modes, strict=True), key=lambda pair: bic(*pair))
    labels = np.unique(np.concatenate(list(truth.values())), return_inverse=True)[1].reshape(-1)
    start = refine(problem, np.random.default_rng([seed, 1]), labels[problem.units.first])
    found = dict(zip(domains, mode.labels, strict=True))
    return (
        pmm.metrics.adjusted_rand_index(truth, found),
        mode.log_joint - problem.fit(start)[0],
        seconds,
        problem.n_factors,
    )


def mean(values) -> str:
    values = np.asarray(values, float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.3f} ± {error:.3f}"


def main() -> None:
    options = common.options_of_sets(__doc__, KINDS).parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    summary, rows = [], []
    with threadpool_limits(1, user_api="blas"):
        for missing in (0.0, 0.2):
            # Compilation is not what is measured.
            one_set(synthetic(missing=missing, n_objects=50), 5, 0)
        for name in options.only or KINDS:
            make, n_factors, target = KINDS[name]
            seeds = range(options.first, options.first + options.sets)
            found = [one_set(make, n_factors, seed) for seed in seeds]
            index, joint, seconds, _ = zip(*found, strict=True)
            rows += [
                [name, seed, f"{i:.3f}", f"{j:.2f}", f"{s:.2f}", k]
                for seed, (i, j, s, k) in zip(seeds, found, strict=True)
            ]
            summary.append(
                [name, target, mean(index), mean(joint), f"{min(joint):.2f}", mean(seconds)]
            )
            print(*summary[-1], flush=True)
    if options.every:
        header = ["data", "seed", "index", "log joint - truth's", "seconds", "K"]
        common.print_table("Every data set", header, rows)
    header = ["data", "target", "index", "log joint - truth-started", "least", "CPU s"]
    common.print_table(f"{options.sets} data sets of each kind, one search each", header, summary)


if __name__ == "__main__":
    main()
