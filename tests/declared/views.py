"""A tiny max-margin model of two views: values, a whole row and a label are missing."""

import numpy as np
import pymc as pm

from pm_match.models import max_margin_views

LABELS = [1.0, -1.0, None, 1.0, -1.0]


def tiny_views(labels=LABELS, m: int = 1, n_private=None, **kwargs) -> pm.Model:
    rng = np.random.default_rng(4)
    n = len(labels)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    y[1] = np.nan
    y[0, 1] = np.nan
    return max_margin_views(
        {"x": x, "y": y},
        labels,
        n_factors=m,
        n_frequencies=2,
        n_components=2,
        n_private={"x": 1, "y": 0} if n_private is None else n_private,
        **{"C": 0.8, "column_prior": (3.0, 3.0), "precision_prior": (3.0, 3.0)} | kwargs,
    )
