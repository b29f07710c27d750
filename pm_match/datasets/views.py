"""Real objects that are seen in several views, with known classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pm_match.datasets.files import labelled_table, read_arrays, sklearn_datasets

UNIVERSITIES = ("cornell", "texas", "washington", "wisconsin")
FEATURE_SETS = ("fac", "fou", "kar", "mor", "pix", "zer")


@dataclass(frozen=True, eq=False)
class PairedViews:
    """The same objects seen in several views, and the class of each.

    Attributes
    ----------
    views : dict of str to DataArray, shape (n_objects, n_features)
        Of dimensions ``"object"``, which all have in common, and ``"<view>_feature"``.
    labels : ndarray of int, shape (n_objects,)
        Which of `label_names` an object is.
    label_names : tuple of str

    Examples
    --------
    >>> data = pmm.datasets.xor_views(50)
    >>> data.label_names, np.bincount(data.labels)
    (('different', 'same'), array([23, 27]))
    """

    views: dict[str, xr.DataArray]
    labels: np.ndarray
    label_names: tuple[str, ...]


def digit_halves() -> PairedViews:
    """Load scikit-learn's 1797 handwritten digits, the left half as one view, the right as other.

    The values are the raw pixels (0 to 16). Pixels that are the same in all images are left out;
    the others are named by their position, such as ``"r3c4"``.

    Returns
    -------
    PairedViews
        Of ``"left"`` and ``"right"``, with the ten digits as classes.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.

    Examples
    --------
    >>> data = pmm.datasets.digit_halves()
    >>> {name: view.shape for name, view in data.views.items()}
    {'left': (1797, 30), 'right': (1797, 31)}
    """
    bunch = sklearn_datasets().load_digits()
    side = bunch.images.shape[1]
    position = np.array([f"r{r}c{c}" for r in range(side) for c in range(side)])
    left = np.tile(np.arange(side) < side // 2, side)
    varies = np.ptp(bunch.data, axis=0) > 0
    return PairedViews(
        {
            name: paired_view(name, bunch.data[:, chosen], position[chosen])
            for name, chosen in {"left": left & varies, "right": ~left & varies}.items()
        },
        np.asarray(bunch.target, dtype=np.int64),
        tuple(map(str, bunch.target_names)),
    )


def load_webkb(folder: str | Path, university: str) -> PairedViews:
    """Load web pages of a computer science department: their words, and their links.

    The pages of Craven et al. (1998). They are told apart into students' pages and others, as
    usual where two classes are wanted.

    Parameters
    ----------
    folder : str or Path
        Holds ``webkb_<university>.npz``: ``content_data``, ``content_indices``, ``content_indptr``
        and ``content_shape`` (a CSR matrix of pages by words, 0 or 1), the same of ``links`` (pages
        by pages that they link to or are linked from), ``y`` (a number for each page's class) and
        ``label_names`` (in the order of y, one of them ``"student"``).
    university : {"cornell", "texas", "washington", "wisconsin"}

    Returns
    -------
    PairedViews
        Of ``"content"`` and ``"links"``, with the classes ``"other"`` and ``"student"``. Words and
        links that no page has are left out.

    Raises
    ------
    FileNotFoundError
        If the folder has no such file.
    ValueError
        If the file lacks an array, or there is no such university.

    Examples
    --------
    >>> data = pmm.datasets.load_webkb("data", "cornell")  # doctest: +SKIP
    """
    if university not in UNIVERSITIES:
        raise ValueError(f"university: expected one of {UNIVERSITIES}; found {university!r}")
    file = read_arrays(
        folder, f"webkb_{university}.npz", ["y", "label_names"], ["content", "links"]
    )
    numbers, place = np.unique(file["y"], return_inverse=True)
    names = file["label_names"]
    if len(names) != len(numbers) or list(names).count("student") != 1:
        raise ValueError(
            f"label_names: expected {len(numbers)} names, 'student' once; found {list(names)}"
        )
    student = names[place.reshape(-1)] == "student"
    views = {}
    for name in ("content", "links"):
        dense = file[name].toarray().astype(float)
        varies = np.ptp(dense, axis=0) > 0
        views[name] = paired_view(name, dense[:, varies], np.flatnonzero(varies))
    return PairedViews(views, student.astype(np.int64), ("other", "student"))


def load_multiple_features(
    folder: str | Path, names: Sequence[str] = ("kar", "zer")
) -> PairedViews:
    """Load sets of features of 2000 handwritten digits (Multiple Features; van Breukelen 1998).

    Parameters
    ----------
    folder : str or Path
        Holds ``mfeat.npz``: ``y`` (the digit) and a table of 2000 rows for each set of features.
    names : sequence of str
        Which sets: ``"fac"`` (216 profile correlations), ``"fou"`` (76 Fourier coefficients),
        ``"kar"`` (64 Karhunen–Loève coefficients), ``"mor"`` (6 morphological features), ``"pix"``
        (240 averages of pixels) or ``"zer"`` (47 Zernike moments).

    Returns
    -------
    PairedViews
        With the ten digits as classes.

    Raises
    ------
    FileNotFoundError
        If the folder has no such file.
    ValueError
        If the file lacks an array, or there is no such set of features.

    Examples
    --------
    >>> data = pmm.datasets.load_multiple_features("data")  # doctest: +SKIP
    """
    unknown = [name for name in names if name not in FEATURE_SETS]
    if unknown or not names:
        raise ValueError(f"names: expected some of {FEATURE_SETS}; found {list(names)}")
    file = read_arrays(folder, "mfeat.npz", ["y", *names], [])
    digits, labels = np.unique(file["y"], return_inverse=True)
    return PairedViews(
        {n: paired_view(n, file[n].astype(float), np.arange(file[n].shape[1])) for n in names},
        labels.reshape(-1),
        tuple(map(str, digits)),
    )


def load_yeast_stress(folder: str | Path) -> PairedViews:
    """Load yeast genes' expression under heat shock and under diamide (Gasch et al. 2000).

    Of the genes measured at all times of both series. What the two treatments have in common should
    be general stress: the classes say whether a gene is of the environmental stress response (ESR).

    Parameters
    ----------
    folder : str or Path
        Holds ``gasch2000.npz``: ``X`` (genes by measurements, log2 ratios, NaN where missing),
        ``genes``, ``columns`` (names of rows and columns), ``col_heat`` and ``col_diamide`` (which
        columns are the two series) and ``esr`` (whether a gene is of the stress response).

    Returns
    -------
    PairedViews
        Of ``"heat"`` and ``"diamide"``, with the classes ``"other"`` and ``"ESR"``, and the genes
        as labels of objects.

    Raises
    ------
    FileNotFoundError
        If the folder has no such file.
    ValueError
        If the file lacks an array.

    Examples
    --------
    >>> data = pmm.datasets.load_yeast_stress("data")  # doctest: +SKIP
    """
    file = read_arrays(
        folder, "gasch2000.npz", ["X", "genes", "columns", "col_heat", "col_diamide", "esr"], []
    )
    series = {"heat": file["col_heat"], "diamide": file["col_diamide"]}
    measured = np.concatenate(list(series.values()))
    complete = ~np.isnan(file["X"][:, measured]).any(axis=1)
    return PairedViews(
        {
            name: paired_view(
                name,
                file["X"][complete][:, columns].astype(float),
                file["columns"][columns],
                file["genes"][complete],
            )
            for name, columns in series.items()
        },
        file["esr"][complete].astype(np.int64),
        ("other", "ESR"),
    )


def add_bimodal_noise(
    views: Mapping[str, xr.DataArray],
    n_features: int = 3,
    *,
    separation: float = 3.0,
    random_seed: int | np.random.Generator | None = 0,
) -> dict[str, xr.DataArray]:
    """Add features of two modes to every view that tell nothing of the others or the classes.

    In each view they are drawn from a fair mixture of two normal distributions, independently for
    every object, and every feature has variance 1 in all: rich variation within a view that models
    of what views have in common should ignore.

    Parameters
    ----------
    views : mapping of str to DataArray, shape (n_objects, n_own_features)
        Of dimensions ``"object"`` and ``"<view>_feature"``.
    n_features : int
        How many are added to every view.
    separation : float
        Distance of the two modes in every feature, in standard deviations of one mode.
    random_seed : int, Generator or None

    Returns
    -------
    dict of str to DataArray, shape (n_objects, n_own_features + n_features)

    Raises
    ------
    ValueError
        If a number is negative.

    Examples
    --------
    >>> views = pmm.datasets.correlated_views(100, correlations=(0.9, 0.5))
    >>> noisy = pmm.datasets.add_bimodal_noise(views, n_features=2)
    >>> {name: view.shape for name, view in noisy.items()}
    {'a': (100, 7), 'b': (100, 7)}
    """
    if n_features < 0 or separation < 0:
        raise ValueError(
            f"expected n_features and separation of at least 0; found {n_features}, {separation}"
        )
    rng = np.random.default_rng(random_seed)
    noisy = {}
    for name, view in views.items():
        side = np.where(rng.random((len(view), 1)) < 0.5, -0.5, 0.5)
        noise = separation * side + rng.normal(size=(len(view), n_features))
        noise /= np.sqrt(1 + separation**2 / 4)
        features = [*map(str, view[f"{name}_feature"].to_numpy())]
        features += [f"noise_{number}" for number in range(n_features)]
        noisy[name] = paired_view(
            name,
            np.hstack([view.to_numpy(), noise]),
            features,
            view["object"].to_numpy(),
        )
    return noisy


def paired_view(
    name: str, values: np.ndarray, features: ArrayLike, objects: ArrayLike | None = None
) -> xr.DataArray:
    """Make a view's table, shape (n_objects, n_features), with labels on both dimensions."""
    labels = np.arange(len(values)) if objects is None else objects
    return labelled_table(name, values, "object", labels, features)
