"""How long `pm_match.partition_estimate` takes, and how good what it finds is.

Run it as ``python benchmarks/partition_estimate.py``; with ``--large`` for 100,000 objects and 1000
draws, in a process of its own if the peak of memory is to mean anything. Beside it are the best of
some draws, and what one expected loss costs by the plain formula. Draws are made up: a partition
from which some objects stray half the time, and all objects now and then.
"""

import argparse
import resource
import time

import numpy as np
import xarray as xr

import pm_match as pmm


def made_up(n_objects: int, n_draws: int, n_clusters: int, doubtful: float) -> xr.Dataset:
    rng = np.random.default_rng(0)
    base, other = rng.integers(0, n_clusters, (2, n_objects), dtype=np.int16)
    strays = rng.random(n_objects) < doubtful
    labels = np.empty((1, n_draws, n_objects), dtype=np.int64)
    for draw in range(n_draws):
        chance = rng.random(n_objects)
        own = np.where(strays & (chance < 0.5), other, base)
        own[chance > 0.98] = rng.integers(0, n_clusters, np.sum(chance > 0.98))
        labels[0, draw] = rng.permutation(n_clusters)[own]
    return xr.Dataset({"cluster_a": (("chain", "draw", "a_object"), labels)})


def memory() -> float:
    """Peak memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="100,000 objects x 1,000 draws")
    parser.add_argument("--starts", type=int, default=None)
    parser.add_argument("--doubtful", type=float, default=0.1, help="share of objects that stray")
    parser.add_argument("--loss", nargs="*", choices=["vi", "binder"], default=["vi", "binder"])
    options = parser.parse_args()
    n_objects, n_draws, n_clusters = (100_000, 1000, 30) if options.large else (2000, 4000, 20)
    starts = options.starts or (4 if options.large else 16)
    posterior = made_up(n_objects, n_draws, n_clusters, options.doubtful)
    for loss in options.loss:
        # Compile first.
        small = posterior.isel(draw=slice(4), a_object=slice(2**16 + 1 if options.large else 50))
        pmm.partition_estimate(small, loss=loss, n_starts=2, max_clusters=30, progressbar=False)
        before = memory()
        begin = time.perf_counter()
        estimate = pmm.partition_estimate(posterior, loss=loss, n_starts=starts)
        seconds = time.perf_counter() - begin
        after = memory()

        begin = time.perf_counter()
        plain = float(pmm.partition_loss(posterior, estimate, loss=loss).mean())
        one = time.perf_counter() - begin
        draws = [
            {"cluster_a": posterior["cluster_a"].to_numpy()[0, draw]}
            for draw in np.linspace(0, n_draws - 1, 5, dtype=int)
        ]
        best = min(float(pmm.partition_loss(posterior, d, loss=loss).mean()) for d in draws)
        print(
            f"{loss}: {n_objects} objects, {n_draws} draws, {starts} starts: {seconds:.1f} s, "
            f"expected loss {estimate.attrs['expected_loss']:.6f} (plain formula {plain:.6f}, "
            f"in {one:.1f} s), found by {estimate.attrs['n_starts_at_best']}; "
            f"{int(estimate['cluster_a'].max()) + 1} clusters; best of 5 draws {best:.6f}; "
            f"peak memory {before:.2f} GB before, {after:.2f} GB after"
        )


if __name__ == "__main__":
    main()
