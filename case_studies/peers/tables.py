"""What a peer is given, checked, and the optional packages it needs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from pm_match.checks import check_count

_DISTRIBUTIONS = {"ot": "POT", "sklearn": "scikit-learn"}


def check_tables(domains: Mapping[str, ArrayLike], n_clusters: int) -> dict[str, np.ndarray]:
    """Read the domains' values, and refuse what no peer can use.

    Parameters
    ----------
    domains : mapping of str to array_like, shape (n_objects, n_features)
        At least two tables without missing values. Labels are not looked at.
    n_clusters : int
        Number of clusters in every domain.

    Returns
    -------
    dict of str to ndarray, shape (n_objects, n_features)

    Raises
    ------
    TypeError
        If `domains` is no mapping.
    ValueError
        If there are fewer than two domains, a table is not 2-D, has values that are missing or not
        finite, or fewer different objects than clusters; or if there is no cluster.
    """
    if not isinstance(domains, Mapping):
        raise TypeError(
            f"domains: expected a mapping from a domain's name to its table; "
            f"found an object of type {type(domains).__name__}"
        )
    if len(domains) < 2:
        raise ValueError(f"domains: expected at least two to match; found {len(domains)}")
    check_count("n_clusters", n_clusters)
    tables = {name: np.asarray(table, dtype=float) for name, table in domains.items()}
    for name, values in tables.items():
        if values.ndim != 2 or values.shape[1] == 0:
            raise ValueError(
                f"domain {name!r}: expected a table of objects by features; "
                f"found shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"domain {name!r}: expected finite values only; "
                f"found {int((~np.isfinite(values)).sum())} that are missing or infinite"
            )
        distinct = len(np.unique(values, axis=0))
        if distinct < n_clusters:
            raise ValueError(
                f"domain {name!r}: {n_clusters} clusters need as many different objects; "
                f"found {distinct}"
            )
    return tables


def optional_module(name: str) -> ModuleType:
    """Import a module of a package that pm_match does not need itself.

    Parameters
    ----------
    name : str
        The module's full name.

    Raises
    ------
    ImportError
        If the package is not installed, with how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this peer needs {_DISTRIBUTIONS[name.partition('.')[0]]}, which is not installed: "
            'pip install "pm_match[examples]"'
        ) from error
