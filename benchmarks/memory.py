"""Memory of `pmm.sample`: what is kept of labels, on 10 features of two domains.

The most memory that a process of its own had when the model was declared, chains had run, and
summaries were made, in GiB; and seconds of its processor for the chains. They start at a dispersed
point: nothing is searched for.
"""

import one_core  # noqa: F401, I001  (first: it has to come before numpy)

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

import pm_match as pmm

N_FEATURES, N_FACTORS, N_CLUSTERS, CHAINS = 10, 3, 20, 2


def sampled(n_objects: int, draws: int, record: str) -> None:
    """Sample, and print a row of the table."""
    rng = np.random.default_rng(0)
    latent = rng.normal(0.0, 2.0, (N_CLUSTERS, N_FACTORS))
    tables = {}
    for name in "ab":
        means = latent @ rng.normal(size=(N_FACTORS, N_FEATURES))
        labels = rng.integers(N_CLUSTERS, size=n_objects // 2)
        tables[name] = means[labels] + rng.standard_normal((n_objects // 2, N_FEATURES))
    model = pmm.models.projected_clusters(
        tables, n_factors=N_FACTORS, n_clusters=N_CLUSTERS, projection="normal"
    )
    before, begin = peak(), time.process_time()
    idata = pmm.sample(
        draws,
        tune=2,
        chains=CHAINS,
        cores=1,
        model=model,
        init="dispersed",
        record="all" if record == "all" else int(record),
        random_seed=1,
        quiet=True,
    )
    seconds = time.process_time() - begin
    after = peak()
    if record != "all":
        # Of labels, the likeliest partners of half a million objects take very long.
        pmm.match_probability(idata, "a", "b", top=3)
    pmm.unmatched_probability(idata, "a")
    print(
        f"{n_objects:>10,}{draws:7}{record:>8}{seconds:9.0f}{before:9.2f}{after:9.2f}{peak():11.2f}",
        flush=True,
    )


def peak() -> float:
    """Return the most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Print the table: a row for each number of objects, of draws, and each record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=float, nargs="+", default=[1e6])
    parser.add_argument("--draws", type=int, nargs="+", default=[10])
    parser.add_argument("--record", nargs="+", default=["all", "20"])
    parser.add_argument("--row", nargs=3)
    given = parser.parse_args()
    if given.row:
        n_objects, draws, record = given.row
        return sampled(int(n_objects), int(draws), record)
    columns = ("objects", "draws", "record", "seconds", "model", "sampled", "summed up")
    print("{:>10}{:>7}{:>8}{:>9}{:>9}{:>9}{:>11}".format(*columns))
    for n_objects in map(int, given.objects):
        for record in given.record:
            for draws in given.draws:
                row = [str(n_objects), str(draws), record]
                subprocess.run([sys.executable, __file__, "--row", *row], check=True)


if __name__ == "__main__":
    main()
