"""What EMs of mixtures share: views of the same samples, one covariance a view, and shares."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from pm_match.checks import is_count

Array = NDArray[np.float64]


class SeenView(NamedTuple):
    """The samples that one view has seen."""

    name: str
    # (N_v, D): about their mean: variances within clusters are differences, which would lose
    # precision far from zero
    values: Array
    rows: Any  # (N_v,) or slice: which samples they are: all of them if a slice
    centre: Array  # (D,)
    scatter: Array  # (D, D): sum of squares and products of `values`


def named(views: Mapping[str, Any] | Sequence[Any]) -> dict[str, Array]:
    """Give views as arrays (N, D_v) of floats, by name or by number."""
    pairs = views.items() if isinstance(views, Mapping) else enumerate(views)
    return {str(name): np.asarray(values, np.float64) for name, values in pairs}


def check_number(name: str, value: Any, least: int, most: int, what: str) -> None:
    """Refuse what is no whole number from `least` to `most`, of which there are `what`."""
    if not is_count(value, least) or value > most:
        raise ValueError(
            f"{name}: expected a whole number from {least} to {most}, the number of {what}; "
            f"found {value!r}"
        )


def check_numbers(
    name: str, numbers: Sequence[int], least: int, most: Mapping[str, int], what: str
) -> None:
    """Refuse numbers that are not from `least` to each view's `most`."""
    for number, (view, own) in zip(numbers, most.items(), strict=True):
        check_number(f"{name} of view {view!r}", number, least, own, what)


def see(views: Mapping[str, Any] | Sequence[Any]) -> tuple[list[SeenView], int]:
    """Read views (N, D_v), and N; a row of NaN is a sample that the view has not seen."""
    found = []
    arrays = named(views)
    everywhere = np.zeros(len(next(iter(arrays.values()))), bool)
    for name, array in arrays.items():
        seen = ~np.isnan(array).all(axis=1)
        everywhere |= seen
        values = array[seen]
        if len(values) <= array.shape[1]:
            raise ValueError(
                f"view {name!r}: expected more samples than features, without which its covariance "
                f"cannot be estimated; found {len(values)} samples of {array.shape[1]} features"
            )
        centre = values.mean(axis=0)
        values = np.ascontiguousarray(values - centre)
        scatter = values.T @ values
        if np.linalg.cond(scatter) > 1e14:
            raise ValueError(
                f"view {name!r}: expected linearly independent features; found linearly dependent "
                "ones, so that the likelihood has no maximum; leave some out, or reduce them to "
                "principal components."
            )
        rows = slice(None) if seen.all() else np.flatnonzero(seen)
        found.append(SeenView(name, values, rows, centre, scatter))
    if not everywhere.all():
        row = int(np.flatnonzero(~everywhere)[0])
        raise ValueError(f"sample {row}: expected a view that has seen it; found none")
    return found, len(everywhere)


def log_normals(values: Array, means: Array, covariance: Array, name: str = "") -> Array:
    """Log densities (N, T) of values (N, D) under normals with means (T, D), one covariance."""
    try:
        factor = cholesky(covariance, lower=True)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"view {name!r}: expected features that vary within clusters; found one that does not, "
            "so that the likelihood has no maximum; use fewer clusters, or fewer features."
        ) from error
    x = solve_triangular(factor, values.T, lower=True).T
    m = solve_triangular(factor, means.T, lower=True).T
    found = x @ m.T
    found -= 0.5 * np.einsum("ij,ij->i", m, m)
    found -= 0.5 * np.einsum("ij,ij->i", x, x)[:, None]
    found -= np.log(np.diag(factor)).sum() + 0.5 * values.shape[1] * np.log(2.0 * np.pi)
    return found


def log_normals_of_views(
    views: Mapping[str, Any] | Sequence[Any],
    all_means: Sequence[Array],
    all_covariances: Sequence[Array],
) -> list[Array]:
    """Log densities (N, T_v) of every view's values under its normals; 0 where it is not seen."""
    found = []
    for (name, x), means, covariance in zip(
        named(views).items(), all_means, all_covariances, strict=True
    ):
        held = ~np.isnan(x).any(axis=1)
        own = np.zeros((len(x), len(means)))
        centre = means.mean(axis=0)
        own[held] = log_normals(x[held] - centre, means - centre, covariance, name)
        found.append(own)
    return found


def log_weights(weights: Array) -> Array:
    """Take logs of weights (T,), kept from minus infinity: no sample is impossible everywhere."""
    return np.log(np.maximum(weights, 1e-300))


def normalised(logs: Array) -> tuple[float, Array]:
    """Sum of the logs of rows' sums of exponentials, and the rows' shares."""
    top = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - top)
    sums = shares.sum(axis=1, keepdims=True)
    shares /= sums
    return float((top + np.log(sums)).sum()), shares


def softened(labels: NDArray[np.integer], n_clusters: int) -> Array:
    """Probabilities (N, T) to start from: not quite hard, so that samples can leave a cluster."""
    return 0.9 * np.eye(n_clusters)[labels] + 0.1 / n_clusters


def uncentred(parameters: Any, seen: Sequence[SeenView]) -> Any:
    """Parameters with the `means` of the values that were given, not of those about centres."""
    means = tuple(own + view.centre for own, view in zip(parameters.means, seen, strict=True))
    return parameters._replace(means=means)


def normal_step(view: SeenView, probabilities: Array, means: Array) -> tuple[Array, Array]:
    """Means (T, D) and their shared covariance (D, D) given the probabilities (N_v, T) of clusters.

    A cluster without samples keeps its mean, which nothing depends on.
    """
    counts = probabilities.sum(axis=0)
    sums = probabilities.T @ view.values
    held = counts > 1e-300
    means = np.where(held[:, None], sums / np.where(held, counts, 1.0)[:, None], means)
    between = (means * np.where(held, counts, 0.0)[:, None]).T @ means
    covariance = (view.scatter - between) / len(view.values)
    return means, 0.5 * (covariance + covariance.T)


def whitened(view: SeenView) -> Array:
    """Values (N_v, D) with unit covariance."""
    factor = cholesky(view.scatter / len(view.values), lower=True)
    return solve_triangular(factor, view.values.T, lower=True).T


def side_by_side(seen: Sequence[SeenView], n: int) -> Array:
    """All views whitened, in one table (N, sum of D_v); what was not seen is at the mean."""
    parts = []
    for view in seen:
        part = np.zeros((n, view.values.shape[1]))
        part[view.rows] = whitened(view)
        parts.append(part)
    return np.concatenate(parts, axis=1)
