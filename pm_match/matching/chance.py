r"""What matches are worth beside chance.

Of two objects taken at random, each of another domain if there are several, let :math:`c` be the
probability that they share a cluster in a draw, and :math:`r` that two which share one in a draw
share one in another draw. Where all objects are alike to the posterior, :math:`r = c`; where it is
sure of the clusters, :math:`r = 1`. What there is between them is Cohen's kappa of two draws,

.. math:: \kappa = \frac{r - c}{1 - c}.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.set_draws import SetDraws, read_sets

# Pairs of draws that are compared.
_MOST_PAIRS = 200
# Below this kappa clusters hardly tell objects apart: noise has up to 0.17, and clear clusters 0.8
# or more. Of one draw, if a larger share of all pairs than this is together.
_LEAST_KAPPA = 0.2
_MOST_TOGETHER = 0.5


class Chance(NamedTuple):
    """How often objects are together.

    Attributes
    ----------
    together : float
        The probability that two objects taken at random share a cluster.
    again : float
        That two which share one in a draw share one in another; NaN of one draw, or if none do.
    """

    together: float
    again: float

    @property
    def kappa(self) -> float:
        """Agreement of two draws beyond chance; 0 if all objects are always together."""
        return (self.again - self.together) / (1.0 - self.together) if self.together < 1.0 else 0.0

    @property
    def idle(self) -> bool:
        """Whether clusters hardly tell objects apart."""
        if np.isnan(self.again):
            return self.together > _MOST_TOGETHER
        return self.kappa < _LEAST_KAPPA


def chance_of(draws: SetDraws) -> Chance:
    """Compare draws with each other, one of the first half with one of the second."""
    half = draws.n_draws // 2
    chosen = np.unique(np.linspace(0, max(half - 1, 0), min(max(half, 1), _MOST_PAIRS)).astype(int))
    once, twice, n = 0.0, 0.0, 0
    for first in chosen:
        labels = [draws.draw(first)[0], *([draws.draw(first + half)[0]] if half else [])]
        once += sum(_pairs(own, draws) for own in labels) / len(labels)
        n += 1
        if half:
            both = labels[0] * (labels[1].max(initial=0) + 1) + labels[1]
            twice += _pairs(np.where(np.minimum(*labels) < 0, -1, both), draws)
    sizes = np.array(draws.sizes)
    several = len(sizes) > 1
    whole = (sizes.sum() ** 2 - (sizes**2).sum() if several else sizes[0] * (sizes[0] - 1)) / 2
    return Chance(float(once / max(n * whole, 1)), twice / once if half and once else np.nan)


def _pairs(labels: np.ndarray, draws: SetDraws) -> float:
    """Count the pairs of objects that share a label, of different domains if there are several."""
    inside = labels >= 0
    names, own = np.unique(labels[inside], return_inverse=True)
    counts = np.zeros((len(draws.sizes), len(names)))
    np.add.at(counts, (draws.domain_of[inside], own.reshape(-1)), 1)
    total = counts.sum(axis=0)
    less = (counts**2).sum() if len(draws.sizes) > 1 else total.sum()
    return float((total @ total - less) / 2)


def beside_chance(
    idata: xr.DataTree | xr.Dataset,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> list[str]:
    """Say what matches are worth beside chance, in a sentence for each set of clusters.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    group : str
    sample_dims : sequence of hashable

    Returns
    -------
    list of str
    """
    sets = read_sets(idata, None, group, sample_dims)
    return [sentence for draws in sets for sentence in _sentences(draws, len(sets) > 1)]


def _sentences(draws: SetDraws, several: bool) -> list[str]:
    found = chance_of(draws)
    where = f" ({', '.join(draws.domains)})" if several else ""
    which = "Two objects of different domains" if len(draws.sizes) > 1 else "Two objects"
    again = (
        ""
        if np.isnan(found.again)
        else f"; two that share one in a draw share one in another with {found.again:.2g}"
    )
    first = (
        f"{which}{where}, taken at random, share a cluster with probability {found.together:.2g}"
        f"{again}: match probabilities are to be held against that."
    )
    if not found.idle:
        return [first]
    return [
        first,
        "The clusters hardly tell objects apart: that two objects match says little of them.",
    ]
