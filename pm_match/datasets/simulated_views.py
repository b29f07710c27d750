"""Drawn objects in several views: what the views share is known."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from pm_match.checks import check_counts
from pm_match.datasets.views import PairedViews, paired_view

_NAMES = ("a", "b")


def xor_views(
    n_objects: int = 300,
    *,
    n_features: int = 10,
    n_private: int = 1,
    noise: float = 0.5,
    random_seed: int | np.random.Generator | None = 0,
) -> PairedViews:
    """Draw two noisy views of two latent numbers, whose classes are told by the product's sign.

    Neither number tells the class by itself, nor does any linear function of the two. Each view is
    x = W h + V u + noise·e with everything on the right standard normal.

    Parameters
    ----------
    n_objects : int
    n_features : int
        Of each view.
    n_private : int
        Numbers u of an object that only one view depends on.
    noise : float
        Standard deviation of the noise of every feature.
    random_seed : int, Generator or None

    Returns
    -------
    PairedViews
        Of ``"a"`` and ``"b"``, with the classes ``"different"`` and ``"same"`` (signs).

    Raises
    ------
    ValueError
        If there are no objects or features, or a negative number is given.

    Examples
    --------
    >>> data = pmm.datasets.xor_views(50)
    >>> {name: view.shape for name, view in data.views.items()}
    {'a': (50, 10), 'b': (50, 10)}
    """
    rng = _checked(random_seed, n_objects, n_features, n_private, noise)
    latent = rng.normal(size=(n_objects, 2))
    labels = (latent.prod(axis=1) > 0).astype(np.int64)
    views = _linear_views(latent, n_features, n_private, noise, rng)
    return PairedViews(views, labels, ("different", "same"))


def ring_views(
    n_objects: int = 300,
    *,
    n_features: int = 10,
    n_private: int = 2,
    noise: float = 0.5,
    random_seed: int | np.random.Generator | None = 0,
) -> PairedViews:
    """Draw two noisy views of points on two rings about the same centre, which are the classes.

    The rings have radius 0.9 and 1.8 and a width of 0.1 (a standard deviation). Each view is
    x = W h + V u + noise·e with W, V, u and e standard normal and h the point.

    Parameters
    ----------
    n_objects, n_features, n_private, noise, random_seed
        As in `xor_views`.

    Returns
    -------
    PairedViews
        Of ``"a"`` and ``"b"``, with the classes ``"inner"`` and ``"outer"``.

    Raises
    ------
    ValueError
        If there are no objects or features, or a negative number is given.

    Examples
    --------
    >>> data = pmm.datasets.ring_views(50)
    >>> {name: view.shape for name, view in data.views.items()}
    {'a': (50, 10), 'b': (50, 10)}
    """
    rng = _checked(random_seed, n_objects, n_features, n_private, noise)
    labels = rng.integers(0, 2, n_objects)
    radius = 0.9 * (1 + labels) + 0.1 * rng.normal(size=n_objects)
    angle = rng.uniform(0, 2 * np.pi, n_objects)
    latent = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    views = _linear_views(latent, n_features, n_private, noise, rng)
    return PairedViews(views, labels, ("inner", "outer"))


def correlated_views(
    n_objects: int = 1000,
    correlations: Sequence[float] = (0.9, 0.8, 0.7),
    *,
    n_noise: int = 3,
    noise_scale: float = 2.0,
    random_seed: int | np.random.Generator | None = 0,
) -> dict[str, xr.DataArray]:
    """Draw two views that are correlated in some dimensions and independent in the others.

    The design of Klami & Kaski, section 5.1: with the default three dimensions are shared and three
    are each view's own. All are normal; the views are turned at random, so that no feature is of
    one kind alone. The noise has a larger scale, so that it is what principal components find.

    Parameters
    ----------
    n_objects : int
    correlations : sequence of float
        True canonical correlations, from 0 to 1.
    n_noise : int
        Dimensions of each view that tell nothing of the other.
    noise_scale : float
        Their standard deviation; that of the correlated dimensions is 1.
    random_seed : int, Generator or None

    Returns
    -------
    dict of str to DataArray, shape (n_objects, len(correlations) + n_noise)
        ``"a"`` and ``"b"``.

    Raises
    ------
    ValueError
        If a correlation is not one, or there are no objects or features.

    Examples
    --------
    >>> views = pmm.datasets.correlated_views(100, correlations=(0.9, 0.5))
    >>> {name: view.shape for name, view in views.items()}
    {'a': (100, 5), 'b': (100, 5)}
    """
    rho = np.asarray(correlations, dtype=float)
    if rho.ndim != 1 or not ((rho >= 0) & (rho <= 1)).all():
        raise ValueError(f"correlations: expected numbers from 0 to 1; found {correlations}")
    rng = _checked(random_seed, n_objects, len(rho) + n_noise, n_noise, noise_scale)
    shared = rng.normal(size=(n_objects, len(rho)))
    views = {}
    for name in _NAMES:
        own = rng.normal(size=shared.shape)
        signal = np.sqrt(rho) * shared + np.sqrt(1 - rho) * own
        noise = noise_scale * rng.normal(size=(n_objects, n_noise))
        turn, _ = np.linalg.qr(rng.normal(size=(len(rho) + n_noise,) * 2))
        views[name] = paired_view(
            name, np.hstack([signal, noise]) @ turn.T, np.arange(len(rho) + n_noise)
        )
    return views


def dependent_clusters(
    kind: Literal["structured", "multimodal"] = "structured",
    n_objects: int = 300,
    *,
    random_seed: int | np.random.Generator | None = 0,
) -> PairedViews:
    """Draw the two toys of Klami & Kaski, figure 4: two views of two features, three clusters.

    The first features of both views depend on the cluster, the second have two modes that depend on
    nothing: structured noise. In the toy ``"multimodal"`` one of the clusters has two modes in the
    first feature of view ``"a"`` too, which ``"b"`` knows nothing of.

    Parameters
    ----------
    kind : {"structured", "multimodal"}
    n_objects : int
    random_seed : int, Generator or None

    Returns
    -------
    PairedViews
        Of ``"a"`` and ``"b"``, with the clusters as classes.

    Raises
    ------
    ValueError
        If there are no objects, or `kind` is neither of these.

    Examples
    --------
    >>> data = pmm.datasets.dependent_clusters("multimodal", 50)
    >>> {name: view.shape for name, view in data.views.items()}
    {'a': (50, 2), 'b': (50, 2)}
    """
    if kind not in ("structured", "multimodal"):
        raise ValueError(f"kind: expected 'structured' or 'multimodal'; found {kind!r}")
    rng = _checked(random_seed, n_objects, 2, 0, 0.0)
    labels = rng.integers(0, 3, n_objects)
    # Centres of the clusters' first features; a second mode of the last cluster in view a.
    centres = {"a": np.array([-3.0, 0.0, 3.0]), "b": np.array([0.0, 3.0, -3.0])}
    views = {}
    for name in _NAMES:
        signal = centres[name][labels]
        if kind == "multimodal" and name == "a":
            signal = np.where((labels == 2) & (rng.random(n_objects) < 0.5), -6.0, signal)
        mode = np.where(rng.random(n_objects) < 0.5, -3.0, 3.0)
        views[name] = paired_view(
            name,
            np.column_stack([signal, mode]) + 0.5 * rng.normal(size=(n_objects, 2)),
            ["signal", "noise"],
        )
    return PairedViews(views, labels, ("1", "2", "3"))


def _linear_views(
    latent: np.ndarray, n_features: int, n_private: int, noise: float, rng: np.random.Generator
) -> dict[str, xr.DataArray]:
    views = {}
    for name in _NAMES:
        own = rng.normal(size=(len(latent), n_private)) @ rng.normal(size=(n_private, n_features))
        seen = latent @ rng.normal(size=(latent.shape[1], n_features)) + own
        seen = seen + noise * rng.normal(size=seen.shape)
        views[name] = paired_view(name, seen, np.arange(n_features))
    return views


def _checked(
    random_seed: int | np.random.Generator | None,
    n_objects: int,
    n_features: int,
    n_private: int,
    scale: float,
) -> np.random.Generator:
    check_counts(n_objects=n_objects, n_features=n_features)
    if n_private < 0 or not 0 <= scale < np.inf:
        raise ValueError(
            f"expected numbers of factors and scales of noise of at least 0; "
            f"found {n_private} and {scale}"
        )
    return np.random.default_rng(random_seed)
