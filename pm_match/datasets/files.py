"""Where data come from that are not drawn: files in a folder of the user's, and scikit-learn."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse


def read_arrays(
    folder: str | Path, name: str, arrays: Sequence[str], matrices: Sequence[str]
) -> dict[str, Any]:
    """Read a file of arrays, and put together its CSR matrices."""
    path = Path(folder) / name
    if not path.is_file():
        raise FileNotFoundError(
            f"no file {name!r} in the folder {str(folder)!r}: this data set is not part of "
            f"pm_match; the function's documentation says what the file must hold"
        )
    parts = ("data", "indices", "indptr", "shape")
    needed = [*arrays, *(f"{matrix}_{part}" for matrix in matrices for part in parts)]
    with np.load(path, allow_pickle=False) as file:
        lacking = [array for array in needed if array not in file]
        if lacking:
            raise ValueError(f"file {str(path)!r}: expected arrays {lacking}; found {file.files}")
        read: dict[str, Any] = {array: file[array] for array in needed}
        read |= {array: file[array] for array in file.files if array.endswith("_translated")}
    for matrix in matrices:
        data, indices, indptr, shape = (read.pop(f"{matrix}_{part}") for part in parts)
        read[matrix] = sparse.csr_array((data, indices, indptr), shape=tuple(map(int, shape)))
    return read


def sklearn_datasets() -> ModuleType:
    """Import scikit-learn's data sets, or say what to install."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise ImportError(
            "this data set comes with scikit-learn, which is not installed: "
            'pip install "pm_match[examples]"'
        ) from error
    return sklearn.datasets


def labelled_table(
    name: str,
    values: np.ndarray,
    rows: str,
    objects: ArrayLike,
    features: ArrayLike,
    **coords: Any,
) -> xr.DataArray:
    """Make a table (objects by features) with labels on both dimensions, `rows` the first."""
    columns = f"{name}_feature"
    labels = {rows: np.asarray(objects), columns: np.asarray(features)} | coords
    return xr.DataArray(values, coords=labels, dims=(rows, columns), name=name)
