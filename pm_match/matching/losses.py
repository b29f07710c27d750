r"""Two losses between partitions, which both compare sums over the counts of clusters.

With n_j objects in cluster j of one partition, m_l in cluster l of the other, and n_jl in both, the
losses are

.. math:: L = \Big(\sum_j f(n_j) + \sum_l f(m_l) - 2 \sum_{jl} f(n_{jl})\Big) / c

- variation of information, in bits: f(n) = n log2 n, c = N (Meila 2007, eq. 16);
- Binder's loss, as a fraction of all pairs: f(n) = n (n - 1), c = N (N - 1).

A cluster of one adds nothing to either, f(1) = 0. An irrelevant object shares a cluster with
nobody: it is a cluster of one, and adds nothing wherever it is irrelevant.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pm_match.matching.contingency import contingency
from pm_match.matching.set_draws import renumbered

Loss = Literal["vi", "binder"]
LOSSES = ("vi", "binder")
# Losses for estimates: also one minus the adjusted Rand index.
Estimated = Literal["vi", "binder", "ari"]
ESTIMATED = (*LOSSES, "ari")


def check_loss(loss: str, losses: Sequence[str] = LOSSES) -> None:
    """Refuse what is none of the losses."""
    if loss not in losses:
        *first, last = (f'"{own}"' for own in losses)
        raise ValueError(f"loss: expected {', '.join(first)} or {last}; found {loss!r}")


def terms(counts: NDArray, loss: Loss) -> NDArray[np.float64]:
    """Give f of counts of objects, of any shape."""
    n = np.asarray(counts, dtype=np.float64)
    return n * np.log2(np.maximum(n, 1.0)) if loss == "vi" else n * (n - 1.0)


def scale(n_objects: int, loss: Loss) -> float:
    """Give the c that a sum of f is divided by; no object or pair has no loss."""
    return float(max(n_objects if loss == "vi" else n_objects * (n_objects - 1), 1))


def loss_between(first: NDArray, second: NDArray, loss: Loss) -> float:
    """Loss between two partitions of N objects, labels (N,), all irrelevant ones negative.

    The plain formula. The tests hold the search for the best partition against it.
    """
    (rows, n), (columns, m) = (renumbered(labels, labels >= 0) for labels in (first, second))
    both = (first >= 0) & (second >= 0)
    cells = contingency(rows[both], columns[both]).number
    # In order of size, or rounding would depend on how clusters are numbered: ranks, and with
    # them R-hat, see any difference.
    total = sum(terms(np.sort(sizes), loss).sum() for sizes in (n, m))
    total -= 2.0 * terms(np.sort(cells), loss).sum()
    # Rounding could leave less than nothing.
    return max(float(total), 0.0) / scale(len(first), loss)


def whole_terms(n_objects: int, n_draws: int, loss: Loss) -> tuple[NDArray[np.int64], float]:
    """Give f(0), …, f(N) in whole numbers, and what one of them is worth.

    Sums of whole numbers do not depend on their order, so that ties stay ties for any order of
    draws, and the search can compare losses exactly. Binder's are whole anyway; n log2 n is
    rounded to the finest unit in which no sum over the draws can overflow.
    """
    f = terms(np.arange(n_objects + 1), loss)
    if loss == "binder":
        return f.astype(np.int64), 1.0
    # No sum in the search is above 4 S f(N).
    digits = min(40, int(60 - np.ceil(np.log2(4.0 * n_draws * max(f[-1], 1.0)))))
    return np.rint(f * 2.0**digits).astype(np.int64), 2.0**-digits
