"""Iterations over shards leave the prior alone: projections, noise and all else that is drawn.

Every start is a draw of everything, data included, from the declared model, so that it matters not
how slowly a chain mixes (see `ModelSimulator.scores`).
"""

import numpy as np
import pytest

import pm_match as pmm
from tests.sharded import models
from tests.sharded.simulate import ShardSimulator


def projected(projection):
    """Feature vectors of two domains, in projections that are drawn."""
    rng = np.random.default_rng(3)
    data = {name: rng.normal(size=(n, 3)) for name, n in (("a", 4), ("b", 3))}
    options = {"n_factors": 2, "n_clusters": 3, "projection": projection}
    return pmm.models.projected_clusters(data, **options), data


CASES = {
    "normal projections": lambda: projected("normal"),
    "isometric projections": lambda: projected("isometric"),
    "normals": lambda: models.normals()[:2],
    "normals of one precision": lambda: models.normals(shared=True)[:2],
    "counts": lambda: models.columns("Poisson", alpha=None)[:2],
    "any likelihood": models.spreads,
    "means and precisions": lambda: models.columns("NormalGamma")[:2],
}


@pytest.mark.parametrize(
    ("case", "n"),
    [
        ("normal projections", 400),
        ("any likelihood", 200),
        *(pytest.param(case, 4000, marks=pytest.mark.slow) for case in CASES),
    ],
)
def test_updates_leave_the_prior_alone(case, n):
    found = ShardSimulator(*CASES[case](), seed=5).scores(n)
    assert len(found) > 12
    assert max(map(abs, found.values())) < 4.0, found
