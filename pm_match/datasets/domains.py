"""Domains with known true clusters: their objects have no key, or feature, in common.

Functions return a plain dictionary from a domain's name to its table, an xarray DataArray (objects
by features) whose object dimension carries the true clusters as the coordinate ``"label"``. A model
sees only the values; `true_labels` gives the labels.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from pm_match.checks import check_counts, check_positive, type_name
from pm_match.datasets.files import labelled_table, read_arrays, sklearn_datasets

_LABEL = "label"
_SIDE = 8  # scikit-learn's digits are 8 x 8 pixels
_PIXEL = re.compile(r"r(\d+)c(\d+)")


def rotated_digits(
    n_objects: int = 200,
    digits: Sequence[int] = (0, 1, 2, 3),
    random_seed: int | np.random.Generator | None = 0,
) -> dict[str, xr.DataArray]:
    """Load handwritten digits in three domains: upright, and turned by 90° and 180° clockwise.

    No image is in two domains, so nothing but the shapes themselves says which objects match.
    The values are the raw pixels (0 to 16) of scikit-learn's 8 x 8 digits. Pixels that are the
    same in all of a domain's images are left out; the others keep their position in the turned
    image as column label, such as ``"r3c4"``, from which `images` draws them again.

    Parameters
    ----------
    n_objects : int
        Number of images in each domain.
    digits : sequence of int
        Which digits to use, each from 0 to 9.
    random_seed : int, Generator or None
        Which images are drawn, and into which domain.

    Returns
    -------
    dict of str to DataArray
        ``"upright"``, ``"quarter"`` and ``"half"``, each of shape (n_objects, n_pixels) with
        the digit as coordinate ``"label"`` and the image's number in scikit-learn's set as
        object label.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.
    ValueError
        If there are fewer than ``3 * n_objects`` images of the digits, or a digit is not one.

    Examples
    --------
    >>> domains = pmm.datasets.rotated_digits(50)
    >>> {name: table.shape for name, table in domains.items()}
    {'upright': (50, 52), 'quarter': (50, 50), 'half': (50, 50)}
    """
    digits = tuple(digits)
    if not digits or not set(digits) <= set(range(10)):
        raise ValueError(f"digits: expected one or more of the digits 0 to 9; found {digits}")
    if n_objects < 1:
        raise ValueError(f"n_objects: expected at least 1 image in each domain; found {n_objects}")
    everything = sklearn_datasets().load_digits()
    pool = np.flatnonzero(np.isin(everything.target, digits))
    turns = {"upright": 0, "quarter": 1, "half": 2}
    if n_objects * len(turns) > len(pool):
        raise ValueError(
            f"n_objects: expected at most {len(pool) // len(turns)} images a domain, as there are "
            f"{len(pool)} of the digits {sorted(set(digits))}, for {len(turns)} domains; found "
            f"{n_objects}"
        )

    chosen = np.random.default_rng(random_seed).permutation(pool)[: n_objects * len(turns)]
    pixels = np.array([f"r{r}c{c}" for r in range(_SIDE) for c in range(_SIDE)])
    domains = {}
    for (name, turn), index in zip(turns.items(), chosen.reshape(len(turns), -1), strict=True):
        turned = np.rot90(everything.images[index], k=-turn, axes=(1, 2)).reshape(n_objects, -1)
        # A pixel that never changes tells no object from another, and the models refuse it.
        varies = np.ptp(turned, axis=0) > 0 if n_objects > 1 else np.ones(len(pixels), bool)
        domains[name] = _table(
            name, turned[:, varies], everything.target[index], index, pixels[varies]
        )
    return domains


def images(table: Any) -> np.ndarray:
    """Turn rows of pixels back into images.

    Parameters
    ----------
    table : DataArray or DataFrame, shape (n_objects, n_pixels)
        With pixel positions such as ``"r3c4"`` as column labels, as `rotated_digits` and
        `pm_match.map_objects` give them.

    Returns
    -------
    ndarray, shape (n_objects, 8, 8)
        Pixels that the table lacks are 0.

    Raises
    ------
    TypeError
        If `table` has no labels.
    ValueError
        If a column label is not the position of a pixel.

    Examples
    --------
    >>> domains = pmm.datasets.rotated_digits(50)
    >>> pmm.datasets.images(domains["upright"]).shape
    (50, 8, 8)
    """
    if isinstance(table, xr.DataArray):
        labels = table[table.dims[-1]].to_numpy()
    elif isinstance(table, pd.DataFrame):
        labels = table.columns.to_numpy()
    else:
        raise TypeError(
            f"expected a DataArray or a DataFrame whose column labels are positions of pixels; "
            f"found {type_name(table)}"
        )
    values = np.asarray(table, dtype=float)
    result = np.zeros((len(values), _SIDE, _SIDE))
    for column, label in enumerate(labels):
        match = _PIXEL.fullmatch(str(label))
        if match is None or max(row_column := [int(i) for i in match.groups()]) >= _SIDE:
            raise ValueError(
                f"expected columns named by pixels' positions, such as 'r3c4'; found {str(label)!r}"
            )
        result[:, row_column[0], row_column[1]] = values[:, column]
    return result


def synthetic(
    n_objects: int = 200,
    n_features: int = 50,
    n_clusters: int = 5,
    n_factors: int = 5,
    n_domains: int = 2,
    *,
    noise_precision: float = 1.0,
    missing: float = 0.0,
    random_seed: int | np.random.Generator | None = 0,
) -> dict[str, xr.DataArray]:
    r"""Draw domains from the model, as the papers' Synth data.

    .. math::

        z_j \sim N(0, I_K), \quad (W_d)_{mk} \sim N(0, 1), \quad
        x_{dn} \sim N(W_d z_{s_{dn}}, \alpha^{-1} I),

    with the same number of objects in every cluster (Iwata, Hirao & Ueda 2016, section on
    experiments).

    Parameters
    ----------
    n_objects, n_features : int
        Number of rows and columns of each domain.
    n_clusters, n_factors : int
        Number of true clusters, and of latent dimensions.
    n_domains : int
        Number of domains, named ``"a"``, ``"b"``, ….
    noise_precision : float
        Precision α of the noise.
    missing : float
        Fraction of the values that are missing (NaN), at random.
    random_seed : int, Generator or None
        Seed.

    Returns
    -------
    dict of str to DataArray, shape (n_objects, n_features)
        With the true clusters as coordinate ``"label"``.

    Raises
    ------
    ValueError
        If a count is not positive, there are more than 26 domains, the precision is not
        positive, or `missing` is not in [0, 1).

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(100, 10, n_clusters=3, n_factors=2, random_seed=1)
    >>> {name: table.shape for name, table in domains.items()}
    {'a': (100, 10), 'b': (100, 10)}
    """
    check_counts(
        n_objects=n_objects,
        n_features=n_features,
        n_clusters=n_clusters,
        n_factors=n_factors,
        n_domains=n_domains,
    )
    if n_domains > 26:
        raise ValueError(f"n_domains: expected at most 26; found {n_domains}")
    check_positive("noise_precision", noise_precision)
    if not 0 <= missing < 1:
        raise ValueError(f"missing: expected a fraction in [0, 1); found {missing}")

    rng = np.random.default_rng(random_seed)
    latent = rng.normal(size=(n_clusters, n_factors))
    domains = {}
    for name in ascii_lowercase[:n_domains]:
        projection = rng.normal(size=(n_features, n_factors))
        label = rng.permutation(np.arange(n_objects) % n_clusters)
        noise = rng.normal(scale=noise_precision**-0.5, size=(n_objects, n_features))
        values = latent[label] @ projection.T + noise
        if missing:
            values[rng.random(values.shape) < missing] = np.nan
        domains[name] = _table(name, values, label, np.arange(n_objects), np.arange(n_features))
    return domains


def split_features(
    table: Any,
    labels: ArrayLike,
    random_seed: int | np.random.Generator | None = 0,
    *,
    names: tuple[str, str] = ("a", "b"),
) -> dict[str, xr.DataArray]:
    """Split a table's features at random into two domains of the same objects.

    The two have no feature in common, so no similarity between their objects can be computed:
    how Iwata, Hirao & Ueda (2016) make matching problems from ordinary data sets.

    Parameters
    ----------
    table : DataFrame or array_like, shape (n_objects, n_features)
        At least two features; with an odd number the first domain has one more.
    labels : array_like, shape (n_objects,)
        True clusters.
    random_seed : int, Generator or None
        Which features go where.
    names : tuple of str
        Names of the two domains.

    Returns
    -------
    dict of str to DataArray
        With the true clusters as coordinate ``"label"``. Features keep their order within a
        domain, and their names.

    Raises
    ------
    ValueError
        If the table is not 2-D, has fewer than two features, or not one label for each object.

    Examples
    --------
    >>> x = np.arange(12.0).reshape(3, 4)
    >>> domains = pmm.datasets.split_features(x, [0, 0, 1])
    >>> domains["a"].shape, domains["b"].shape
    ((3, 2), (3, 2))
    """
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))
    labels = np.asarray(labels)
    n_objects, n_features = frame.shape
    if n_features < 2:
        raise ValueError(f"table: expected at least two features to split; found {n_features}")
    if labels.shape != (n_objects,):
        raise ValueError(
            f"labels: expected one for each of the {n_objects} objects; found shape {labels.shape}"
        )
    order = np.random.default_rng(random_seed).permutation(n_features)
    first = (n_features + 1) // 2
    return {
        name: _table(
            name,
            frame.iloc[:, columns].to_numpy(dtype=float),
            labels,
            frame.index.to_numpy(),
            frame.columns[columns].to_numpy(),
        )
        for name, columns in zip(names, map(np.sort, (order[:first], order[first:])), strict=True)
    }


def iris(random_seed: int | np.random.Generator | None = 0) -> dict[str, xr.DataArray]:
    """Load Fisher's Iris data, the four features split at random into two domains of two.

    Parameters
    ----------
    random_seed : int, Generator or None
        Which features go where.

    Returns
    -------
    dict of str to DataArray, shape (150, 2)
        With the species (0, 1, 2) as coordinate ``"label"``.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.

    Examples
    --------
    >>> {name: table.shape for name, table in pmm.datasets.iris().items()}
    {'a': (150, 2), 'b': (150, 2)}
    """
    bunch = sklearn_datasets().load_iris(as_frame=True)
    return split_features(bunch.data, bunch.target, random_seed)


def wine(random_seed: int | np.random.Generator | None = 0) -> dict[str, xr.DataArray]:
    """Load the Wine data, the thirteen features split at random into domains of seven and six.

    The features are in units of their own, from hundredths to thousands: standardise them.

    Parameters
    ----------
    random_seed : int, Generator or None
        Which features go where.

    Returns
    -------
    dict of str to DataArray, shapes (178, 7) and (178, 6)
        With the cultivar (0, 1, 2) as coordinate ``"label"``.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.

    Examples
    --------
    >>> {name: table.shape for name, table in pmm.datasets.wine().items()}
    {'a': (178, 7), 'b': (178, 6)}
    """
    bunch = sklearn_datasets().load_wine(as_frame=True)
    return split_features(bunch.data, bunch.target, random_seed)


def load_glass(
    folder: str | Path, random_seed: int | np.random.Generator | None = 0
) -> dict[str, xr.DataArray]:
    """Load the Glass Identification data, the nine features split into domains of five and four.

    The refractive index and eight elements' shares of the weight, in very different ranges:
    standardise them.

    Parameters
    ----------
    folder : str or Path
        Holds ``glass.npz``: ``X`` (214 pieces of glass by nine features), ``y`` (the type of glass:
        1, 2, 3, 5, 6 or 7) and ``columns`` (the features' names).
    random_seed : int, Generator or None
        Which features go where.

    Returns
    -------
    dict of str to DataArray, shapes (214, 5) and (214, 4)
        With the type of glass as coordinate ``"label"``.

    Raises
    ------
    FileNotFoundError
        If the folder has no such file.
    ValueError
        If the file lacks an array.

    Examples
    --------
    >>> data = pmm.datasets.load_glass("data")  # doctest: +SKIP
    """
    file = read_arrays(folder, "glass.npz", ["X", "y", "columns"], [])
    table = pd.DataFrame(file["X"], columns=file["columns"])
    return split_features(table, file["y"], random_seed)


def true_labels(domains: Mapping[str, xr.DataArray]) -> dict[str, np.ndarray]:
    """Give the true clusters of the domains' objects, for `pm_match.metrics`.

    Parameters
    ----------
    domains : mapping of str to DataArray
        As this module's functions return them.

    Returns
    -------
    dict of str to ndarray, shape (n_objects,)

    Raises
    ------
    ValueError
        If a domain carries no labels.

    Examples
    --------
    >>> labels = pmm.datasets.true_labels(pmm.datasets.iris())
    >>> np.bincount(labels["a"])
    array([50, 50, 50])
    """
    for name, table in domains.items():
        if _LABEL not in getattr(table, "coords", ()):
            raise ValueError(
                f"domain {name!r}: expected a table with a coordinate {_LABEL!r}; found none"
            )
    return {name: table[_LABEL].to_numpy() for name, table in domains.items()}


def _table(
    name: str, values: np.ndarray, labels: np.ndarray, objects: np.ndarray, features: np.ndarray
) -> xr.DataArray:
    rows = f"{name}_object"
    return labelled_table(name, values, rows, objects, features, **{_LABEL: (rows, labels)})
