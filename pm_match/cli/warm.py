"""Compiles the kernels of common models, so that nobody waits for them later."""

import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm

from pm_match import models
from pm_match.front.cells import InputError
from pm_match.sampling import sample


def _tables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.arange(20) % 2
    return {name: 4.0 * label[:, None] + rng.standard_normal((20, 2)) for name in "ab"}


def _network() -> np.ndarray:
    label = np.arange(12) % 2
    return (label[:, None] == label).astype(int)


def _mixture() -> pm.Model:
    import pandas as pd

    label = np.arange(20) % 2
    values = _tables()["a"][:, 0]
    plan = pd.Categorical(np.array(["x", "y"])[label])
    return models.mixture(
        pd.DataFrame({"count": 5 * label, "flag": label > 0, "plan": plan, "value": values})
    )


def _any_likelihood() -> pm.Model:
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        cluster = pm.Categorical("cluster", p=weights, shape=20)
        centre = pm.Normal("centre", 0.0, 5.0, shape=2)
        pm.StudentT("x", nu=4.0, mu=centre[cluster], sigma=1.0, observed=_tables()["a"][:, 0])
    return model


# How small data are makes no difference to what is compiled.
MODELS: dict[str, Callable[[], pm.Model]] = {
    "projected_clusters": lambda: models.projected_clusters(_tables(), 2, 3),
    "table_clusters": lambda: models.table_clusters(_tables(), 3),
    "normal_clusters": lambda: models.normal_clusters(_tables(), 3),
    "aligned_clusters": lambda: models.aligned_clusters(_tables(), 3),
    "relational_clusters": lambda: models.relational_clusters({"a": _network(), "b": _network()}),
    "max_margin_views": lambda: models.max_margin_views(_tables(), [-1, 1] * 10),
    "mixture": _mixture,
    "any likelihood": _any_likelihood,
}


def warm(names: Sequence[str] = ()) -> None:
    """Search and draw once with tiny models, and say how long each took.

    Kernels are kept where numba keeps its cache (`NUMBA_CACHE_DIR`), until pm_match or numba
    changes: make an image with them, or keep the folder from one run of tests to the next.

    `names`: of `MODELS`. Default: all. Raise `InputError` if there is no such model.
    """
    for name in names:
        if name not in MODELS:
            raise InputError(f"warm: expected any of {', '.join(MODELS)}; found {name!r}")
    for name in names or MODELS:
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sample(
                draws=1,
                tune=1,
                chains=1,
                cores=1,
                random_seed=0,
                progressbar=False,
                quiet=True,
                compute_convergence_checks=False,
                model=MODELS[name](),
            )
        print(f"{name:20}  {time.perf_counter() - begin:5.1f} s", flush=True)
