"""Four searches, one after the other, in forked processes, and on a pool of new processes.

Seconds as the clock shows them, and of all processors together, the least of three: what these say
beyond one after the other is the cost of more processes. Kernels are on disk.
"""

import one_core  # noqa: F401, I001  (first: it has to come before numpy)

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import pm_match as pmm


def processors() -> float:
    """Seconds of all processors, of this process and those that it has waited for."""
    return sum(
        getrusage(who).ru_utime + getrusage(who).ru_stime for who in (RUSAGE_SELF, RUSAGE_CHILDREN)
    )


def models():
    """Declare what is searched."""
    tables = pmm.datasets.synthetic(200, 50, n_clusters=8, n_factors=5, random_seed=2)
    yield "projected_clusters", pmm.models.projected_clusters(tables, n_factors=5)
    digits = pmm.datasets.rotated_digits(n_objects=200, digits=(0, 1, 2, 3), random_seed=0)
    yield (
        "aligned_clusters",
        pmm.models.aligned_clusters(digits, n_components=10, n_clusters=20, power=0.6),
    )


def search(model, where: str):
    """Search four times."""
    options = {"starts": 4, "random_seed": 1, "progressbar": False}
    if where == "pool of two":
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            return pmm.find_matching(model, executor=pool, **options)
    return pmm.find_matching(model, cores={"one process": 1, "two, forked": 2}[where], **options)


def main() -> None:
    """Print the table."""
    print(f"{'model':20}{'where':16}{'clock':>8}{'processors':>12}")
    for name, model in models():
        pmm.find_matching(model, starts=1, random_seed=0, progressbar=False)
        for where in ("one process", "two, forked", "pool of two"):
            times = []
            for _ in range(3):
                clock, own = time.perf_counter(), processors()
                search(model, where)
                times.append((time.perf_counter() - clock, processors() - own))
            clock, own = map(min, zip(*times, strict=True))
            print(f"{name:20}{where:16}{clock:8.1f}{own:12.1f}", flush=True)


if __name__ == "__main__":
    main()
