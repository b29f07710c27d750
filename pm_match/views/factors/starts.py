"""Where chains of linear factor models start: principal components, and least squares.

The latents that views share are the first principal components of all views side by side, each
scaled to the same total variance; private ones those of what these leave of their view. Missing
values are their column's mean meanwhile. Latents that cannot have such values, positive ones for
example, stay where they are. Loadings follow by ridge regression, precisions by moments.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.reading.parts import Point
from pm_match.views.factors.linear_factors import Array, summed_to

# How far starts of chains differ, in standard deviations of a latent.
_JITTER = 0.1
# Of the randomised range finder: more directions than are wanted, and rounds.
_MORE, _ROUNDS = 10, 4


def factor_start(model: Any, rng: np.random.Generator, point: Point) -> dict[str, NDArray]:
    """Make starting values of a factor model's variables.

    `point`: the point of value variables where what is not ours starts. Return values by variable,
    as it is declared; of latents that are given to our steps too, if their values may be any
    numbers.
    """
    n_objects = model.n_objects
    filled, middles = [], []
    for view in model.views:
        middle = view.table.values.sum(axis=0) / view.table.n_of_feature
        centred = view.table.residuals(np.broadcast_to(middle, view.table.values.shape))
        filled.append(centred)
        middles.append(middle)
    found: dict[str, NDArray] = {}
    latents: dict[int, Array] = {}
    left = list(filled)
    for private in (False, True):
        for number, latent in enumerate(model.latents):
            if model.private(number) != private:
                continue
            seen = [v for v, view in enumerate(model.views) if number in view.latents]
            if latent.foreign and not latent.unbounded:
                latents[number] = latent.value(point)
            else:
                scaled = [left[v] / (np.sqrt(np.square(left[v]).sum()) or 1.0) for v in seen]
                latents[number] = _components(rng, np.hstack(scaled), latent.shape[1])
            left = [_less(x, latents[number]) if v in seen else x for v, x in enumerate(left)]
    for number, latent in enumerate(model.latents):
        if latent.foreign and not latent.unbounded:
            continue
        z = latents[number] + _JITTER * rng.standard_normal((n_objects, latent.shape[1]))
        latents[number] = z
        found[latent.name] = latent.as_declared(z)
    squares: dict[tuple[int, int], Array] = {}
    for v, view in enumerate(model.views):
        design = np.hstack([latents[number] for number in view.latents])
        target = filled[v] if view.intercept else view.table.values
        gram = design.T @ design
        gram[np.diag_indices_from(gram)] += 1.0 + 1e-6 * np.trace(gram)
        rows = np.linalg.solve(gram, design.T @ target).T
        ends = np.cumsum([loading.shape[1] for loading in view.loadings])[:-1]
        for n, (loading, w) in enumerate(
            zip(view.loadings, np.split(rows, ends, axis=1), strict=True)
        ):
            found[loading.name] = loading.as_declared(w)
            squares[v, n] = np.square(found[loading.name])
        if view.intercept:
            found[view.intercept.name] = view.intercept.as_declared(middles[v])
        means = design @ rows.T + (middles[v] if view.intercept else 0.0)
        residuals = view.table.residuals(means)
        squares[v, -1] = np.square(residuals).sum(axis=0) / view.table.n_of_feature
        if view.missing and view.table.observed is not None:
            found[view.missing] = means[~view.table.observed]
    for precision in model.precisions:
        a, b = precision.prior(point)
        total, count = np.zeros(precision.shape), np.zeros(precision.shape)
        for key in precision.of:
            total += summed_to(squares[key], precision.aligned).reshape(precision.shape)
            count += summed_to(np.ones_like(squares[key]), precision.aligned).reshape(
                precision.shape
            )
        # The mean of the conditional, kept from zero and infinity.
        found[precision.name] = (a + 0.5 * count) / (b + 0.5 * total + 1e-12)
    return found


def _components(rng: np.random.Generator, x: Array, k: int) -> Array:
    """Return `k` principal components (N, k), each of variance one, by a randomised range finder.

    N. Halko, P. Martinsson & J. Tropp (2011), "Finding structure with randomness", SIAM Review 53.
    """
    n_objects, n_features = x.shape
    q = x @ rng.standard_normal((n_features, min(k + _MORE, n_features)))
    for _ in range(_ROUNDS):
        q, _ = np.linalg.qr(x @ (x.T @ np.linalg.qr(q)[0]))
    u, s, _ = np.linalg.svd(q.T @ x, full_matrices=False)
    found = np.zeros((n_objects, k))
    kept = min(k, int((s > 1e-10 * max(s[0], 1e-300)).sum()))
    found[:, :kept] = (q @ u[:, :kept]) * np.sqrt(n_objects)
    # Directions that the data do not have start as the prior says.
    found[:, kept:] = rng.standard_normal((n_objects, k - kept))
    return found


def _less(x: Array, z: Array) -> Array:
    """Return what a least-squares fit to latents leaves."""
    gram = z.T @ z + 1e-9 * len(z) * np.eye(z.shape[1])
    return x - z @ np.linalg.solve(gram, z.T @ x)
