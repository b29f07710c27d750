"""What the declared models have in common: priors on the weights of clusters, and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pm_match.reading.links import must_link

__all__ = ["WEIGHTS", "cluster_weights", "declare_links", "link_sets"]

WEIGHTS = ("stick-breaking", "dirichlet", "uniform")


def cluster_weights(
    kind: str, size: int, concentration: Any, name: str = "weights", dim: str = "cluster"
) -> Any:
    """Declare the probabilities of clusters.

    Parameters
    ----------
    kind : {"stick-breaking", "dirichlet", "uniform"}
        Truncated stick-breaking; a symmetric Dirichlet(concentration / size); or known, and equal.
    size : int
        How many clusters there are at most.
    concentration : float or variable
        Uniform weights have none.
    name : str, default "weights"
    dim : str, default "cluster"

    Returns
    -------
    variable, or (size,) array
    """
    each = np.full(size, 1.0 / size)
    if kind == "uniform":
        return each
    # PyTensor keeps a Python float that fits in single precision, and computes with it there.
    alpha = np.float64(concentration) if isinstance(concentration, float | int) else concentration
    if kind == "dirichlet":
        return pm.Dirichlet(name, alpha * each, dims=dim)
    return pm.StickBreakingWeights(name, alpha=alpha, K=size - 1, dims=dim)


def link_sets(links: Any) -> list[Mapping[str, Any]]:
    """Give links as a list of mappings: there may be none, one or several."""
    if links is None:
        return []
    found = [links] if isinstance(links, Mapping) else links
    if not isinstance(found, Sequence) or not all(isinstance(one, Mapping) for one in found):
        raise TypeError(
            "links: expected a mapping from names to positions, or a sequence of such mappings; "
            f"found an object of type {type(links).__name__}"
        )
    return list(found)


def declare_links(linked: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Declare every set of links, between `cluster_<name>` of the names that it has positions of.

    Parameters
    ----------
    linked : sequence of mappings from str to positions
    names : sequence of str
        Those that there are.
    """
    for number, own in enumerate(linked):
        for name in own:
            if name not in names:
                raise ValueError(f"links: expected names among {list(names)}; found {name!r}")
        must_link(
            "links" if number == 0 else f"links_{number}",
            {f"cluster_{name}": positions for name, positions in own.items()},
        )
