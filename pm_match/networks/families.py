r"""Families of block evidence: what all cells between some clusters say, parameters integrated out.

A block is known by three sums over its cells: :math:`S = \sum x`, :math:`C = \sum` exposure (the
number of cells, unless they have exposures) and :math:`Q = \sum x^2`. With the parameters'
conjugate prior (four numbers, as far as a family needs them),

- Bernoulli, :math:`\theta \sim \mathrm{Beta}(c, d)`: the log marginal is
  :math:`\log B(c + S, d + C - S) - \log B(c, d)` (Iwata & Ishiguro, eq. 6);
- Poisson, :math:`\theta \sim \mathrm{Gamma}(c, d)`: :math:`c \log d - \log\Gamma(c) +
  \log\Gamma(c + S) - (c + S) \log(d + C)`, up to what only the data enter;
- negative binomial, cells :math:`\mathrm{NB}(n, \theta)` with their exposures as n,
  :math:`\theta \sim \mathrm{Beta}(c, d)`: :math:`\log B(c + C, d + S) - \log B(c, d)`, up to what
  only the data enter;
- normal, :math:`\tau \sim \mathrm{Gamma}(a, b),\ \theta \sim N(m, 1 / (\kappa\tau))`, prior
  :math:`(m, \kappa, a, b)`: with :math:`\kappa' = \kappa + C`, :math:`a' = a + C / 2` and
  :math:`b' = b + \tfrac12 (Q + \kappa m^2 - (\kappa m + S)^2 / \kappa')`,
  :math:`-\tfrac C2 \log 2\pi + \tfrac12 \log\frac{\kappa}{\kappa'} + a \log b - \log\Gamma(a) +
  \log\Gamma(a') - a' \log b'`.

Parameters that are known have priors with an infinite second number: (p, inf) for Bernoulli's
and the negative binomial's, (rate, inf) for Poisson's and (m, inf, tau) for the normal's.

The kernels ask only for gains, the difference that some cells make. Differences of large log
gammas are taken without cancellation.
"""

from collections.abc import Sequence
from math import lgamma, log, log1p, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, xlog1py, xlogy

from pm_match.clusters.conjugate import BetaPrior, Conjugate, GammaPrior, NormalGammaPrior
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.log_gamma import log_rising
from pm_match.reading.densities import log_normal

BERNOULLI, POISSON, NORMAL, NEGATIVE_BINOMIAL = 0, 1, 2, 3
FAMILIES = {
    "bernoulli": BERNOULLI,
    "poisson": POISSON,
    "negative-binomial": NEGATIVE_BINOMIAL,
    "normal": NORMAL,
}
PRIORS: dict[int, Conjugate] = {
    BERNOULLI: BetaPrior(),
    POISSON: GammaPrior(),
    NEGATIVE_BINOMIAL: BetaPrior(),
    NORMAL: NormalGammaPrior(),
}

# Log gammas of prior + i are looked up for i below this; beyond, Stirling's series needs few terms.
TABLE = 4096
_LOG_2PI = log(2.0 * pi)


@part
def looked_up_log_rising(table, x0, n, h):
    """`log_rising` at x0 + n for whole numbers n and h, by the `table` of log gammas of x0 + i."""
    i = int(n)
    j = int(n + h)
    if i < table.shape[0] and j < table.shape[0]:
        return table[j] - table[i]
    return log_rising(x0 + n, h)


@entry
def fill_tables(family, prior, tables):
    """Fill the tables (3, TABLE) of log gammas for a block's `prior` (4,)."""
    if family == NORMAL:
        return
    for i in range(tables.shape[1]):
        tables[0, i] = lgamma(prior[0] + i)
    if family != POISSON:
        for i in range(tables.shape[1]):
            tables[1, i] = lgamma(prior[1] + i)
            tables[2, i] = lgamma(prior[0] + prior[1] + i)


@part
def known_gain(family, prior, dt, dc, dq):
    """Log likelihood of cells with the sums (dt, dc, dq) under known parameters."""
    if family == BERNOULLI:
        return dt * log(prior[0]) + (dc - dt) * log1p(-prior[0])
    if family == POISSON:
        return dt * log(prior[0]) - dc * prior[0]
    if family == NEGATIVE_BINOMIAL:
        return dc * log(prior[0]) + dt * log1p(-prior[0])
    mean, precision = prior[0], prior[2]
    squares = dq - 2.0 * mean * dt + mean * mean * dc
    return 0.5 * (dc * (log(precision) - _LOG_2PI) - precision * squares)


@part
def gain(family, prior, tables, total, cells, squares, dt, dc, dq):
    """Log marginal of a block with (dt, dc, dq) added to its sums, less that without.

    `prior` (4,); `tables` (3, TABLE): from `fill_tables`, for this prior; `total`, `cells`,
    `squares`: S, C and Q of the block; `dt`, `dc`, `dq`: what is added to them.
    """
    if prior[1] == np.inf:
        return known_gain(family, prior, dt, dc, dq)
    if family == BERNOULLI:
        return (
            looked_up_log_rising(tables[0], prior[0], total, dt)
            + looked_up_log_rising(tables[1], prior[1], cells - total, dc - dt)
            - looked_up_log_rising(tables[2], prior[0] + prior[1], cells, dc)
        )
    if family == POISSON:
        shape, rate = prior[0] + total, prior[1] + cells
        return (
            looked_up_log_rising(tables[0], prior[0], total, dt)
            - shape * log1p(dc / rate)
            - dt * log(rate + dc)
        )
    if family == NEGATIVE_BINOMIAL:
        # Sums of exposures are no whole numbers: no tables for them.
        return (
            log_rising(prior[0] + cells, dc)
            + looked_up_log_rising(tables[1], prior[1], total, dt)
            - log_rising(prior[0] + prior[1] + cells + total, dc + dt)
        )
    mean, kappa, shape, rate = prior[0], prior[1], prior[2], prior[3]
    before = _normal_rate(mean, kappa, rate, total, cells, squares)
    after = _normal_rate(mean, kappa, rate, total + dt, cells + dc, squares + dq)
    return (
        log_rising(shape + 0.5 * cells, 0.5 * dc)
        - 0.5 * dc * _LOG_2PI
        - 0.5 * log1p(dc / (kappa + cells))
        - (shape + 0.5 * (cells + dc)) * log(after)
        + (shape + 0.5 * cells) * log(before)
    )


@part
def _normal_rate(mean, kappa, rate, total, cells, squares):
    """Posterior rate b' of the precision (at least b: below is rounding)."""
    linear = kappa * mean + total
    extra = squares + kappa * mean * mean - linear * linear / (kappa + cells)
    return rate + 0.5 * max(extra, 0.0)


@entry
def log_blocks(family, prior, tables, sums, counted):
    """Sum the log marginals of the blocks that are `counted` (B,); `sums` (3, B): S, C and Q."""
    found = 0.0
    for i in range(sums.shape[1]):
        t, n, q = sums[0, i], sums[1, i], sums[2, i]
        if counted[i] and (n != 0.0 or t != 0.0):
            found += gain(family, prior, tables, 0.0, 0.0, 0.0, t, n, q)
    return found


@entry
def add_gains(family, prior, tables, fixed, moved, out):
    """Add to `out` (G, J) what each group of objects adds to the blocks of each label.

    `prior`, `tables`: see `gain`; `fixed` (3, J, L): S, C and Q of the blocks without the groups;
    `moved` (3, G, L): S, C and Q of the groups.
    """
    for g in range(moved.shape[1]):
        empty = np.nan
        for j in range(fixed.shape[1]):
            vacant = True
            for c in range(fixed.shape[2]):
                vacant = vacant and fixed[1, j, c] == 0.0
            if vacant and empty == empty:
                out[g, j] += empty
                continue
            found = 0.0
            for c in range(fixed.shape[2]):
                dt, dc, dq = moved[0, g, c], moved[1, g, c], moved[2, g, c]
                if dc == 0.0 and dt == 0.0:
                    continue
                t, n, q = fixed[0, j, c], fixed[1, j, c], fixed[2, j, c]
                found += gain(family, prior, tables, t, n, q, dt, dc, dq)
            if vacant:
                empty = found
            out[g, j] += found


def log_block(
    family: int, prior: Sequence[float], total: float, cells: float, squares: float = 0.0
) -> float:
    """Log marginal of one block, by the plain formula: slow and obvious (see the module)."""
    if prior[1] == np.inf:
        return _log_known(family, prior, total, cells, squares)
    own, given = PRIORS[family], _hyper(family, prior)
    more = _statistics(family, total, cells, squares)
    found = own.log_normaliser(own.update(given, more)) - own.log_normaliser(
        own.update(given, 0.0 * more)
    )
    return float(found[0]) - (cells / 2 * _LOG_2PI if family == NORMAL else 0.0)


def _log_known(
    family: int, prior: Sequence[float], total: float, cells: float, squares: float
) -> float:
    if family == BERNOULLI:
        return total * log(prior[0]) + (cells - total) * log(1.0 - prior[0])
    if family == POISSON:
        return total * log(prior[0]) - cells * prior[0]
    if family == NEGATIVE_BINOMIAL:
        return cells * log(prior[0]) + total * log(1.0 - prior[0])
    m, _, tau = prior[:3]
    deviations = squares - 2.0 * m * total + m**2 * cells
    return cells / 2 * log(tau / (2 * pi)) - tau / 2 * deviations


def log_constants(
    family: int, values: NDArray[np.float64], exposed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log probability (E,) of cells, as far as only the data enter.

    `values`, `exposed` (E,): of the cells; a cell without a count adds nothing.
    """
    found = np.zeros(len(values))
    seen = values > 0
    x, n = values[seen], exposed[seen]
    if family == POISSON:
        found[seen] = x * np.log(n) - gammaln(x + 1.0)
    elif family == NEGATIVE_BINOMIAL:
        found[seen] = -np.log(x) - betaln(n, x)
    return found


def _hyper(family: int, prior: Any) -> NDArray[np.float64]:
    """Give the prior of blocks as `clusters.conjugate` takes it: of one column."""
    return np.array([prior[: 4 if family == NORMAL else 2]])


def _statistics(family: int, totals: Any, cells: Any, squares: Any) -> NDArray[np.float64]:
    """Give the sums of blocks as what adds up in the posterior (see `clusters.conjugate`)."""
    parts = {
        BERNOULLI: (totals, cells - totals),
        POISSON: (totals, cells),
        NEGATIVE_BINOMIAL: (cells, totals),
        NORMAL: (cells, totals, 0.5 * cells, 0.5 * squares),
    }[family]
    return np.stack(parts, axis=-1)


def posterior(
    family: int, prior: Any, totals: Any, cells: Any, squares: Any
) -> NDArray[np.float64]:
    """Parameters of the exact conditional of blocks (Iwata & Ishiguro, eq. 16-17).

    `prior` (4,); `totals`, `cells`, `squares`: S, C and Q; zero for blocks without cells, which
    have the prior. `PRIORS` draws by what is returned.
    """
    own = PRIORS[family]
    return own.posterior(
        _hyper(family, prior), own.held(_statistics(family, totals, cells, squares))
    )


def log_values(
    family: str, x: NDArray, exposed: NDArray, *parameters: NDArray
) -> NDArray[np.float64]:
    """Log density (n,) of cells with these exposures (n,) and parameters of their blocks (n,)."""
    if family == "normal":
        return log_normal(x, *parameters)
    (p,) = parameters
    if family == "bernoulli":
        return xlogy(x, p) + xlog1py(1.0 - x, -p)
    found = log_constants(FAMILIES[family], x, exposed)
    if family == "poisson":
        return found + xlogy(x, p) - exposed * p
    return found + xlogy(exposed, p) + xlog1py(x, -p)
