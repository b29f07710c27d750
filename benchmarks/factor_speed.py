"""Speed of FactorGibbs: beside NUTS, by the number of objects, and at the size of WebKB Cornell.

Run as ``python benchmarks/factor_speed.py [nuts] [objects] [text] [scale]``; all by default. The
last is of exchanges of scale.
"""

import common  # noqa: F401, I001  (before numpy)

import sys
import time

import numpy as np
import pymc as pm
from arviz_stats import ess
from threadpoolctl import threadpool_limits

import pm_match as pmm


def views_of(n_objects, sizes, n_shared, n_private, missing=0.0, seed=1):
    """Simulate views with shared and private factors."""
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n_objects, n_shared))
    found = {}
    for name, size in zip("abcde", sizes, strict=False):
        u = rng.normal(size=(n_objects, n_private))
        x = h @ rng.normal(size=(n_shared, size)) + u @ rng.normal(size=(n_private, size))
        x += 0.5 * rng.normal(size=x.shape)
        x[rng.random(x.shape) < missing] = np.nan
        found[name] = x
    return found


def timed(model, n=30) -> float:
    """CPU seconds of a step, after a few."""
    (step,) = pmm.steps(model)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    point = model.initial_point(0)
    for _ in range(5):
        point, _ = step.step(point)
    began = time.process_time()
    for _ in range(n):
        point, _ = step.step(point)
    return (time.process_time() - began) / n


def against_nuts(n_draws=1000) -> None:
    """Effective draws a second of what rotations leave alone."""
    model = pmm.models.shared_factors(views_of(60, (6, 5), 2, 1), 2, 1)
    samplers = {"FactorGibbs": lambda kw: pmm.sample(**kw), "NUTS": _nuts}
    for name, sampler in samplers.items():
        began = time.perf_counter()
        idata = sampler(
            {
                "draws": n_draws,
                "tune": n_draws // 2,
                "chains": 2,
                "cores": 1,
                "model": model,
                "random_seed": 1,
                "progressbar": False,
                "compute_convergence_checks": False,
            }
        )
        seconds = time.perf_counter() - began
        draws = idata["posterior"]
        told = {
            "precision": draws["precision_a"].to_numpy(),
            "shared": _squares(draws["projection_a"]),
            "private": _squares(draws["private_a"]),
            "intercept": draws["intercept_a"].to_numpy()[..., 0],
        }
        sizes = {what: float(ess(value)) for what, value in told.items()}
        rates = ", ".join(f"{what} {size / seconds:.1f}" for what, size in sizes.items())
        print(f"{name}: {seconds:.1f} s; effective draws a second: {rates}", flush=True)


def _nuts(kw):
    with kw["model"]:
        step = pm.NUTS(model=kw["model"])
    return pm.sample(step=step, **kw)


def _squares(x):
    return np.square(x.to_numpy()).sum(axis=(2, 3))


def by_objects() -> None:
    """Time steps as objects grow, complete and with values missing at random."""
    for missing in (0.0, 0.1):
        for n_objects in (1000, 2000, 4000):
            model = pmm.models.shared_factors(views_of(n_objects, (80, 40), 5, 3, missing), 5, 3)
            print(f"{n_objects} objects, {missing:.0%} missing: {1e3 * timed(model):.1f} ms")


def as_text() -> None:
    """Time steps at the size of WebKB Cornell: 175 pages, 1703 words and 195 links."""
    views = views_of(175, (1703, 195), 20, 1)
    for n_private in (1, 3, 5):
        model = pmm.models.shared_factors(views, 20, n_private)
        print(f"{n_private} private factors: {1e3 * timed(model):.1f} ms")


class WithoutPrecisions(pmm.FactorGibbs):
    """The step without its exchange of scale with the precisions of loadings."""

    def _exchange_with_precisions(self, point, number) -> None:
        pass


def exchanges_of_scale(n=3000) -> None:
    """Effective draws of the sum of squares of latents, without and with exchanges of scale."""
    variants = {
        "none": lambda model: pmm.FactorGibbs([model["latent"]], model=model, exchange=False),
        "with loadings": lambda model: WithoutPrecisions([model["latent"]], model=model),
        "and their precisions": lambda model: pmm.FactorGibbs([model["latent"]], model=model),
    }
    for n_objects, size in ((100, 10), (175, 300)):
        model = pmm.models.shared_factors(views_of(n_objects, (size, size), 2, 1), 2, 1)
        for name, make in variants.items():
            step = make(model)
            step.setup_chain(np.random.default_rng(1), 0, 0)
            point, drawn = model.initial_point(0), []
            began = time.process_time()
            for _ in range(n):
                point, _ = step.step(point)
                drawn.append(np.square(point["latent"]).sum())
            seconds = time.process_time() - began
            effective = float(ess(np.array(drawn[n // 10 :])[None]))
            print(
                f"{n_objects} objects, {size} features a view, exchange {name}: "
                f"{effective:.0f} effective of {n - n // 10}, {effective / seconds:.0f} a second"
            )


PARTS = {"nuts": against_nuts, "objects": by_objects, "text": as_text, "scale": exchanges_of_scale}

if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        for part in sys.argv[1:] or PARTS:
            PARTS[part]()
