"""Real tables whose classes are known, in domains that share no objects or no columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match import datasets


@dataclass(frozen=True)
class RealTables:
    """A kind of data.

    Attributes
    ----------
    load : callable
        From a folder with files (or None) and a seed to domains with true labels.
    same_units : bool
        Whether columns are of one kind, such as pixels: other methods then get them as they are,
        ours a few principal components. Otherwise columns are standardised.
    needs_folder : bool
        Whether the data are in a file that is not part of this project.
    """

    load: Callable[[Path | None, int], Mapping[str, xr.DataArray]]
    same_units: bool
    needs_folder: bool = False


def breast_cancer(random_seed: int) -> dict[str, xr.DataArray]:
    """Load breast cancers: each half of them is seen by another half of the thirty features.

    Parameters
    ----------
    random_seed : int

    Returns
    -------
    dict of str to DataArray, shapes (284, 15) and (285, 15)
    """
    from sklearn.datasets import load_breast_cancer

    bunch, rng = load_breast_cancer(), np.random.default_rng(random_seed)
    return _other_halves(pd.DataFrame(bunch.data, columns=bunch.feature_names), bunch.target, rng)


def csv_table(file: Path, random_seed: int, n_objects: int = 400) -> dict[str, xr.DataArray]:
    """Load a table: each half of its objects is seen by another half of its columns of numbers.

    Parameters
    ----------
    file : Path
        Comma-separated, with names of columns; the last column is the class.
    random_seed : int
    n_objects : int
        No more are taken. Those with missing values are left out.

    Returns
    -------
    dict of str to DataArray, shapes (N / 2, M / 2)
    """
    rng = np.random.default_rng(random_seed)
    table = pd.read_csv(file).dropna()
    table = table.iloc[rng.permutation(len(table))[:n_objects]].reset_index(drop=True)
    numbers = table.iloc[:, :-1].select_dtypes("number").astype(float)
    classes = pd.factorize(table.iloc[:, -1])[0]
    return _other_halves(numbers.loc[:, numbers.nunique() > 1], classes, rng)


def _other_halves(table: pd.DataFrame, classes: Any, rng) -> dict[str, xr.DataArray]:
    domains = datasets.split_features(table, classes, rng)
    halves = np.array_split(rng.permutation(len(table)), 2)
    return {
        name: own[half] for (name, own), half in zip(domains.items(), halves[::-1], strict=True)
    }


def image_halves(
    random_seed: int, digits: Sequence[int] = (0, 1, 2, 3), n_objects: int = 200
) -> dict[str, xr.DataArray]:
    """Load the left halves of some images of digits, and the right halves of others.

    Parameters
    ----------
    random_seed : int
    digits : sequence of int
    n_objects : int
        Images in each domain.

    Returns
    -------
    dict of str to DataArray, shape (n_objects, pixels that vary)
    """
    turned = datasets.rotated_digits(n_objects, digits, random_seed)
    found = {}
    # Turned by 180 degrees, the right half of an image is its left.
    for name, turn in (("left", "upright"), ("right", "half")):
        table = turned[turn]
        objects, pixels = table.dims
        half = [str(pixel).endswith(tuple("0123")) for pixel in table[pixels].to_numpy()]
        found[name] = table[:, half].rename({objects: f"{name}_object", pixels: f"{name}_feature"})
    return found


def digit_features(
    folder: Path | None,
    random_seed: int,
    names: tuple[str, str],
    digits: Sequence[str] = "0123",
    n_objects: int = 200,
) -> dict[str, xr.DataArray]:
    """Load one set of features of some handwritten digits, and another set of others.

    Parameters
    ----------
    folder : Path
        With the file that `pm_match.datasets.load_multiple_features` describes.
    random_seed : int
    names : tuple of str
        The sets of features.
    digits : sequence of str
    n_objects : int
        Digits in each domain.

    Returns
    -------
    dict of str to DataArray, shape (n_objects, features that vary)
    """
    assert folder is not None
    data = datasets.load_multiple_features(folder, names)
    inside = np.flatnonzero(np.isin(np.array(data.label_names)[data.labels], list(digits)))
    inside = np.random.default_rng(random_seed).permutation(inside)
    found = {}
    for number, name in enumerate(names):
        rows = inside[number * n_objects : (number + 1) * n_objects]
        table, own = data.views[name][rows], f"{name}_object"
        table = table[:, np.ptp(table.to_numpy(), axis=0) > 0].rename({table.dims[0]: own})
        found[name] = table.assign_coords({own: rows, "label": (own, data.labels[rows])})
    return found


def cluster_missing(random_seed: int) -> dict[str, xr.DataArray]:
    """Draw Synth5 without the first cluster in the second domain.

    Parameters
    ----------
    random_seed : int

    Returns
    -------
    dict of str to DataArray, shapes (200, 50) and (160, 50)
    """
    domains = datasets.synthetic(random_seed=random_seed)
    second = datasets.true_labels(domains)["b"] > 0
    return {"a": domains["a"], "b": domains["b"][second]}


def _glass(folder: Path | None, random_seed: int) -> Mapping[str, Any]:
    assert folder is not None
    return datasets.load_glass(folder, random_seed)


def _features(*names: str) -> Callable[..., Mapping[str, Any]]:
    return partial(digit_features, names=names)


def without_folder(make: Callable[..., Mapping[str, Any]]) -> Callable[..., Mapping[str, Any]]:
    """Give what loads data that need no folder, as `RealTables.load` does.

    Parameters
    ----------
    make : callable
        From a seed to domains.

    Returns
    -------
    callable
    """
    return lambda folder, random_seed: make(random_seed=random_seed)


DATA: dict[str, RealTables] = {
    "iris": RealTables(without_folder(datasets.iris), False),
    "wine": RealTables(without_folder(datasets.wine), False),
    "glass": RealTables(_glass, False, needs_folder=True),
    "breast-cancer": RealTables(without_folder(breast_cancer), False),
    "image-halves": RealTables(without_folder(image_halves), True),
    "digits-0-3": RealTables(without_folder(datasets.rotated_digits), True),
    "ten-digits": RealTables(
        without_folder(partial(datasets.rotated_digits, digits=range(10))), True
    ),
    "cluster-missing": RealTables(without_folder(cluster_missing), True),
    "fourier-karhunen": RealTables(_features("fou", "kar"), True, needs_folder=True),
    "karhunen-pixels": RealTables(_features("kar", "pix"), True, needs_folder=True),
}
