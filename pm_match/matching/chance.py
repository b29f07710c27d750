r"""What matches are worth beside chance.

Of two objects taken at random, each of another domain if there are several, let :math:`c` be the
probability that they share a cluster in a draw, and :math:`r` that two which share one in a draw
share one in another draw. Where all objects are alike to the posterior, :math:`r = c`; where it is
sure of the clusters, :math:`r = 1`. What there is between them is Cohen's kappa of two draws,

.. math:: \kappa = \frac{r - c}{1 - c}.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.set_draws import SetDraws, read_sets

# Pairs of draws that are compared.
_MOST_PAIRS = 200
# Below this kappa clusters hardly tell objects apart: noise has up to 0.17, and clear clusters 0.8
# or more.
_LEAST_KAPPA = 0.2
# Where two objects taken at random are together more often than not, clusters tell little.
MOST_TOGETHER = 0.5


class Chance(NamedTuple):
    """How often objects are together."""

    together: float  # the probability that two objects taken at random share a cluster
    # that two which share one in a draw share one in another; NaN of one draw, or if none do
    again: float

    @property
    def kappa(self) -> float:
        """Agreement of two draws beyond chance; 0 if all objects are always together."""
        return (self.again - self.together) / (1.0 - self.together) if self.together < 1.0 else 0.0

    @property
    def uninformative(self) -> bool:
        """Whether clusters hardly tell objects apart."""
        if np.isnan(self.again):
            return self.together > MOST_TOGETHER
        return self.kappa < _LEAST_KAPPA


def chance_of(draws: SetDraws) -> Chance:
    """Compare draws with each other, one of the first half with one of the second."""
    alone = _counts(draws)
    half = draws.n_draws // 2
    chosen = np.unique(np.linspace(0, max(half - 1, 0), min(half, _MOST_PAIRS)).astype(int))
    once = alone[[*chosen, *(chosen + half)]].sum() / 2
    twice = 0.0
    for first in chosen:
        one, other = (draws.draw(draw)[0] for draw in (first, first + half))
        both = np.unique(one * (other.max(initial=0) + 1) + other, return_inverse=True)[1]
        twice += _pairs(np.where(np.minimum(one, other) < 0, -1, both.reshape(-1)), draws.sizes)
    return Chance(_share(alone, draws.sizes), twice / once if once else np.nan)


def probability_together(draws: SetDraws) -> float:
    """Give the probability that two objects taken at random share a cluster, over all draws."""
    return _share(_counts(draws), draws.sizes)


def _counts(draws: SetDraws) -> np.ndarray:
    return np.array([_pairs(labels, draws.sizes) for labels, _ in draws])


def _share(counts: np.ndarray, sizes: Sequence[int]) -> float:
    """Give what counts of pairs (n_draws,) are of all pairs."""
    return float(counts.mean() / max(_pairs(np.zeros(sum(sizes), np.int64), sizes), 1))


def _pairs(labels: np.ndarray, sizes: Sequence[int]) -> float:
    """Count the pairs of objects that share a label, of different domains if there are several.

    Labels are 0, 1, …; -1 is shared with none.
    """
    n = int(labels.max(initial=-1)) + 2
    parts = np.split(labels + 1, np.cumsum(sizes)[:-1])
    counts = np.stack([np.bincount(part, minlength=n)[1:] for part in parts]).astype(float)
    total = counts.sum(axis=0)
    less = (counts**2).sum() if len(sizes) > 1 else total.sum()
    return float((total @ total - less) / 2)


def beside_chance(
    idata: xr.DataTree | xr.Dataset,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> list[str]:
    """Say what matches are worth beside chance, in a sentence for each set of clusters.

    `idata`: what `pm_match.sample` returns, or its posterior.
    """
    sets = read_sets(idata, None, group, sample_dims)
    return [_sentence(draws, len(sets) > 1) for draws in sets]


def _sentence(draws: SetDraws, several: bool) -> str:
    found = chance_of(draws)
    where = f" ({', '.join(draws.domains)})" if several else ""
    which = "Two objects of different domains" if len(draws.sizes) > 1 else "Two objects"
    again = (
        ""
        if np.isnan(found.again)
        else f"; two that share one in a draw share one in another with {found.again:.2g}"
    )
    return (
        f"{which}{where}, taken at random, share a cluster with probability {found.together:.2g}"
        f"{again}: match probabilities are to be held against that."
    )
