"""Reads networks that are declared in plain PyMC: entries of a matrix that two labels choose.

``pm.Bernoulli("edge", p=density[row[:, None], column], observed=x)`` is a network, and so is a list
of its cells, ``density[row[i], column[j]]``.
"""

import numpy as np
import scipy
from numpy.typing import NDArray
from pytensor.tensor.random.basic import BernoulliRV, NegBinomialRV, NormalRV, PoissonRV
from scipy.sparse.linalg import lsqr

from pm_match.networks.data import Family, count_cells
from pm_match.networks.op import BlockNetworkParts, read_block_network
from pm_match.reading.ancestry import RV, parameters
from pm_match.reading.choices import CLOSE, n_label_indices, precision, read_choice
from pm_match.reading.context import Context

_FAMILIES: dict[type, Family] = {
    BernoulliRV: "bernoulli",
    PoissonRV: "poisson",
    NegBinomialRV: "negative-binomial",
    NormalRV: "normal",
}
# Rounds after which exposures are products of numbers of objects, or never.
_MOST_ROUNDS = 1000

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def read_network(context: Context, rv: RV) -> BlockNetworkParts | None:
    """Read a network back from its variable, whichever way it is declared; None if it is none."""
    return read_block_network(rv) or context.once(_read_plain, rv)


def _read_plain(context: Context, rv: RV) -> BlockNetworkParts | None:
    family = _FAMILIES.get(type(rv.owner.op))
    if family is None:
        return None
    graphs, number = parameters(rv), None
    if family == "normal":
        graphs = [graphs[0], precision(graphs[1])]
    elif family == "negative-binomial":
        number, *graphs = graphs
    if not all(n_label_indices(context, graph) >= 2 for graph in graphs):
        return None
    missing = context.is_missing(rv)
    shape = context.shapes[rv.name] if missing else context.observed([rv]).shape
    found = [read_choice(context, graph, shape) for graph in graphs]
    choices = [choice for choice in found if choice is not None]
    if len(choices) < len(found) or not all(map(choices[0].is_like, choices)):
        return None
    if family != "poisson" and not all(_is_one(choice.factor) for choice in choices):
        return None
    first = choices[0]
    exposure = first.factor
    if number is not None:
        if context.ancestry.of([number]):
            return None
        exposure = np.broadcast_to(context.at([number])({})[0], shape).ravel().astype(np.float64)
    sizes = [context.shapes[own.name][0] for own in first.axes]
    exposures = _by_axis(exposure, first.cells, sizes, first.symmetric)
    if exposures is None:
        return None
    loops = first.one_mode and bool((first.cells[:, 0] == first.cells[:, 1]).any())
    n_cells = count_cells(sizes, first.one_mode, first.symmetric, loops)
    return BlockNetworkParts(
        density=tuple(choice.density for choice in choices),
        noise=(),
        axes=first.axes,
        relevance=(None,) * len(sizes),
        exposure=exposures,
        unknown=first.cells[:0],
        family=family,
        one_mode=first.one_mode,
        symmetric=first.symmetric,
        self_loops=loops,
        # Cells that are there twice are refused later, in words.
        absent="zero" if len(first.cells) >= n_cells else "unknown",
        cells=first.cells,
    )


def _by_axis(
    exposure: Array, cells: Integers, sizes: list[int], symmetric: bool
) -> tuple[Array | None, ...] | None:
    """Find exposures of objects whose products are those of cells; None if there are none.

    Those of both axes of a symmetric network are the same.
    """
    if _is_one(exposure):
        return (None,) * len(sizes)
    if not (np.isfinite(exposure) & (exposure > 0.0)).all():
        return None
    first = np.cumsum([0, *sizes[:-1]]) * (not symmetric)
    rows, n = np.arange(len(cells)).repeat(len(sizes)), int(first[-1]) + sizes[-1]
    ends = (np.ones(cells.size), (rows, (cells + first).ravel()))
    products = scipy.sparse.csr_array(ends, shape=(len(cells), n))
    logs = np.log(exposure)
    if np.ptp(logs) == 0.0:  # as a dispersion: of objects without cells, too
        found = np.full(n, logs[0] / len(sizes))
    else:
        found = lsqr(products, logs, atol=0.0, btol=0.0, conlim=0.0, iter_lim=_MOST_ROUNDS)[0]
    if np.abs(products @ found - logs).max() > CLOSE:
        return None
    each = np.exp(found)
    return tuple(each[start : start + size] for start, size in zip(first, sizes, strict=True))


def _is_one(factor: Array) -> bool:
    return bool((np.abs(factor - 1.0) < CLOSE).all())
