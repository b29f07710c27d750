"""Milliseconds of the steps of max-margin views, an iteration of all in turn.

At the size of WebKB Cornell (175 objects, 1703 and 195 features), and of 10,000 objects with 605
features in 5 views, and of half as many, which should take half as long.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

import benchmarks.one_core  # noqa: F401
import pm_match as pmm

SIZES = {
    "175 x (1703 + 195)": (175, (1703, 195)),
    "5000 x 605 in 5 views": (5000, (64, 144, 73, 128, 196)),
    "10000 x 605 in 5 views": (10_000, (64, 144, 73, 128, 196)),
}


def made_up(n: int, widths: tuple[int, ...], rng: np.random.Generator):
    """Make views of eight latent variables up, and labels by the signs of two."""
    latent = rng.standard_normal((n, 8))
    views = {
        f"view_{number}": latent @ rng.standard_normal((8, width)) + rng.standard_normal((n, width))
        for number, width in enumerate(widths)
    }
    return views, np.where(latent[:, 0] * latent[:, 1] > 0.0, 1.0, -1.0)


def main(wanted: list[str]) -> None:
    rng = np.random.default_rng(0)
    for title, (n, widths) in SIZES.items():
        if wanted and not any(own in title for own in wanted):
            continue
        views, labels = made_up(n, widths, rng)
        model = pmm.models.max_margin_views(views, labels, C=1.0)
        steps = pmm.steps(model)
        start = pmm.initial_points(model, 1, random_seed=1, init="dispersed")[0]
        point = {k: np.asarray(v) for k, v in model.initial_point(0).items()}
        names = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
        point |= {
            names[k]: np.asarray(v, point[names[k]].dtype)
            for k, v in start.items()
            if np.shape(v) == point[names[k]].shape and not names[k].endswith("__")
        }
        for step in steps:
            step.setup_chain(np.random.default_rng(2), 1, 1)
        n_warm, n_timed = (60, 100) if n < 1000 else (5, 6)
        spent: dict[str, list[float]] = {step.name: [] for step in steps}
        with threadpool_limits(1, user_api="blas"):
            for number in range(n_warm + n_timed):
                for step in steps:
                    begin = time.perf_counter()
                    point, stats = step.step(point)
                    if number >= n_warm:
                        spent[step.name].append(1e3 * (time.perf_counter() - begin))
                    if step.name == "latent_hmc":
                        said = stats[0]
        print(title)
        for name, times in spent.items():
            print(f"  {name:22} median {np.median(times):8.2f} ms, least {min(times):8.2f}")
        whole = np.sum(list(spent.values()), axis=0)
        print(f"  {'all':22} median {np.median(whole):8.2f} ms, least {whole.min():8.2f}")
        print("  " + ", ".join(f"{k} {v:.3g}" for k, v in said.items()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
