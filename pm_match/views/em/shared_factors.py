r"""Factors that views share, and private ones: probabilistic canonical correlation analysis.

.. math::

    z, z_v \sim N(0, I), \quad x_v \sim N(a_v + W_v z + B_v z_v, \sigma_v^2 I),

Klami & Kaski, "Generative models that discover dependencies between data sets", section 3, for two
views or more. With :math:`\Psi_v = B_v B_v^\top + \sigma_v^2 I`, the EM that augments by z alone
has its maximisation in closed form: W by regression of x on z, and :math:`\Psi_v` as the
probabilistic principal components (Tipping & Bishop 1999) of what that regression leaves,

.. math:: R_v = S_{vv} - S_{vz} S_{zz}^{-1} S_{zv}.

So no iteration lowers the likelihood. The paper's figure 2 updates :math:`B_v` and
:math:`\sigma_v^2` from the view's own marginal covariance instead, with a moment estimate of the
latter, and may lower it. The covariance of z is estimated too and then moved into W (parameter
expansion, Liu, Rubin & Wu 1998), which takes fewer iterations to the same maximum.

With as many private factors as features, or one less, :math:`\Psi_v` is any covariance and the
model classical canonical correlation analysis (Bach & Jordan 2005). :math:`\sigma_v^2` is then
not identified; it is the least eigenvalue of :math:`\Psi_v`, the most it can be.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_factor, cho_solve, eigh

from pm_match.views.em.ascent import Ascent, Fit, best_of
from pm_match.views.em.views import check_numbers, named
from pm_match.views.factors.linear_factors import Array, MaskedTable, likelihood

# Noise variances below this share of a view's mean variance are taken for zero.
_NO_NOISE = 1e-12


class SharedFactors(NamedTuple):
    """Parameters of the model."""

    intercepts: tuple[Array, ...]  # tuple of (D_v,)
    projections: tuple[Array, ...]  # tuple of (D_v, m): W
    privates: tuple[Array, ...]  # tuple of (D_v, K_v): B
    variances: Array  # (V,): of the noise


class _Data(NamedTuple):
    """All views side by side."""

    names: list[str]
    table: MaskedTable  # (N, D), about `centre`
    centre: Array  # (D,)
    ends: NDArray[np.int64]  # (V - 1,): where the second view and later ones begin
    mean: Array  # (D,): of complete values
    moment: Array  # (D, D): of complete values, about the mean
    intercept: bool
    n_private: list[int]

    @property
    def slices(self) -> list[slice]:
        bounds = [0, *self.ends, len(self.centre)]
        return [slice(a, b) for a, b in pairwise(bounds)]


class _State(NamedTuple):
    """Parameters in the form in which they are climbed: mean (D,), W (D, m), Psi by view."""

    mean: Array
    w: Array
    psi: tuple[Array, ...]


def fit_shared_factors(
    views: Mapping[str, Any] | Sequence[Any],
    n_shared: int,
    n_private: Sequence[int],
    *,
    intercept: bool = True,
    **options: Unpack[Ascent],
) -> Fit[SharedFactors]:
    """Maximise the likelihood of intercepts, projections, private factors and noise by EM.

    By default there are 5 starts: the first from the canonical correlations of the views, the rest
    random. NaN is a missing value, taken to be missing at random; every pattern of missing values
    costs a factorisation an iteration.

    `views`, arrays (N, D_v); `n_shared`: m; `n_private`: K_v of each, from 0 to D_v (with D_v
    or D_v - 1 the covariance of a view is free); `intercept`: whether views have intercepts; they
    are 0 otherwise; `**options`: see `Ascent`. Raise `ValueError` if the likelihood has no maximum
    (its noise goes to zero), or a setting is none.
    """
    data = _read(views, n_private, intercept)
    options.setdefault("starts", 5)
    found = best_of(
        lambda state: _step(data, state),
        lambda rng, number: (
            _canonical_start(data, n_shared) if number == 0 else _start(rng, data, n_shared)
        ),
        **options,
    )
    return found._replace(parameters=_parameters(data, found.parameters))


def latent_means(
    views: Mapping[str, Any] | Sequence[Any], parameters: SharedFactors
) -> tuple[Array, list[Array]]:
    """Posterior means (N, m) of the shared factors, and (N, K_v) of every view's own."""
    m = parameters.projections[0].shape[1]
    sizes = [b.shape[1] for b in parameters.privates]
    loadings = np.concatenate(
        [np.concatenate(parameters.projections), block_diag(*parameters.privates)], axis=1
    )
    noise = np.repeat(1.0 / parameters.variances, [len(w) for w in parameters.projections])
    x = np.concatenate(list(named(views).values()), axis=1)
    form = likelihood(MaskedTable.of(x), loadings, noise, np.concatenate(parameters.intercepts))
    found = form.with_prior(np.zeros(1), np.ones(1)).mean
    return found[:, :m], np.split(found[:, m:], np.cumsum(sizes)[:-1], axis=1)


def _read(views, n_private, intercept) -> _Data:
    arrays = named(views)
    n_features = {name: x.shape[1] for name, x in arrays.items()}
    check_numbers("n_private", n_private, 0, n_features, "features")
    x = np.concatenate(list(arrays.values()), axis=1)
    centre = np.nanmean(x, axis=0) if intercept else np.zeros(x.shape[1])
    table = MaskedTable.of(x - centre)
    values = table.values
    return _Data(
        list(arrays),
        table,
        centre,
        np.cumsum(list(n_features.values()))[:-1],
        np.zeros(x.shape[1]),
        values.T @ values / len(values),
        intercept,
        list(n_private),
    )


def _step(data: _Data, state: _State) -> tuple[float, _State]:
    """Return the log likelihood of a state, and one iteration's better state."""
    m = state.w.shape[1]
    factors = [cho_factor(psi, lower=True) for psi in state.psi]
    whitened = np.concatenate(
        [cho_solve(f, state.w[own]) for f, own in zip(factors, data.slices, strict=True)]
    )
    inner = np.eye(m) + state.w.T @ whitened
    posterior = np.linalg.inv(inner)
    if data.table.observed is not None:
        log_likelihood, mean, moment = _expected(data, state)
    else:
        mean, moment = data.mean, data.moment
        half = 0.5 * np.linalg.slogdet(inner)[1]
        half += sum(np.log(np.diag(f[0])).sum() for f in factors)
        fit = sum(
            np.trace(cho_solve(f, moment[own, own]))
            for f, own in zip(factors, data.slices, strict=True)
        )
        fit -= np.sum(posterior * (whitened.T @ moment @ whitened))
        n, d = data.table.values.shape
        log_likelihood = -n * (half + 0.5 * fit + 0.5 * d * np.log(2.0 * np.pi))
    to_z = posterior @ whitened.T
    with_z = moment @ to_z.T
    of_z = posterior + to_z @ with_z
    of_z = 0.5 * (of_z + of_z.T)
    slopes = np.linalg.solve(of_z, with_z.T).T
    psi = []
    for own, k, name in zip(data.slices, data.n_private, data.names, strict=True):
        left = moment[own, own] - slopes[own] @ with_z[own].T
        psi.append(_principal(left, k, name)[0])
    return float(log_likelihood), _State(mean, slopes @ np.linalg.cholesky(of_z), tuple(psi))


def _expected(data: _Data, state: _State) -> tuple[float, Array, Array]:
    """Log likelihood, and expected mean and moment of values some of which are missing."""
    covariance = block_diag(*state.psi) + state.w @ state.w.T
    n, d = data.table.values.shape
    filled = np.zeros((n, d)) + state.mean
    extra = np.zeros((d, d))
    log_likelihood = 0.0
    for number, seen in enumerate(data.table.patterns):
        rows = np.flatnonzero(data.table.index == number)
        if not seen.any():
            # Samples of which nothing is seen say nothing; their moments are the model's.
            extra += len(rows) * covariance
            continue
        factor = cho_factor(covariance[np.ix_(seen, seen)], lower=True)
        x = data.table.values[np.ix_(rows, seen)] - state.mean[seen]
        scaled = cho_solve(factor, x.T)
        log_likelihood -= 0.5 * np.sum(x.T * scaled)
        log_likelihood -= len(rows) * (
            np.log(np.diag(factor[0])).sum() + 0.5 * seen.sum() * np.log(2.0 * np.pi)
        )
        across = covariance[np.ix_(~seen, seen)]
        filled[np.ix_(rows, seen)] += x
        filled[np.ix_(rows, ~seen)] += (across @ scaled).T
        own = covariance[np.ix_(~seen, ~seen)] - across @ cho_solve(factor, across.T)
        extra[np.ix_(~seen, ~seen)] += len(rows) * own
    mean = filled.mean(axis=0) if data.intercept else np.zeros(d)
    about = filled - mean
    return log_likelihood, mean, (about.T @ about + extra) / n


def _principal(moment: Array, n_private: int, name: str) -> tuple[Array, Array, float]:
    """Maximise over B and the noise given a view's expected moment (D, D).

    Returns Psi (D, D), B (D, K) and the variance: probabilistic principal components.
    """
    d = len(moment)
    values, vectors = eigh(moment)
    k = min(n_private, d - 1)
    variance = float(values[: d - k].mean())
    if not variance > _NO_NOISE * max(values.mean(), np.finfo(float).tiny):
        raise ValueError(
            f"view {name!r}: expected noise; found that the noise goes to zero, so that the "
            "likelihood has no maximum; use fewer private factors or features, or more samples."
        )
    lengths = np.sqrt(np.maximum(values[d - k :] - variance, 0.0))
    private = np.zeros((d, n_private))
    private[:, :k] = (vectors[:, d - k :] * lengths)[:, ::-1]
    return private @ private.T + variance * np.eye(d), private, variance


def _canonical_start(data: _Data, n_shared: int) -> _State:
    """Start from the leading directions of the views' correlations, each view whitened.

    Of two views these are the canonical correlations.
    """
    roots, inverses = [], []
    for own in data.slices:
        values, vectors = eigh(data.moment[own, own])
        kept = np.maximum(values, 1e-10 * values.max())
        roots.append((vectors * np.sqrt(kept)) @ vectors.T)
        inverses.append((vectors / np.sqrt(kept)) @ vectors.T)
    whiten = block_diag(*inverses)
    correlations = whiten @ data.moment @ whiten
    values, vectors = eigh(correlations)
    n_views = max(len(data.slices), 2)
    top = slice(None, -n_shared - 1, -1)
    share = np.zeros(n_shared)
    found = values[top]
    # Two whitened views share between none and all of their variance in every direction.
    share[: len(found)] = np.clip((found - 1.0) / (n_views - 1.0), 0.01, 0.99)
    directions = np.zeros((len(values), n_shared))
    directions[:, : len(found)] = vectors[:, top]
    w = block_diag(*roots) @ directions * np.sqrt(n_views * share)
    return _with_private(data, w)


def _start(rng: np.random.Generator, data: _Data, n_shared: int) -> _State:
    """Start from random projections that explain about half of a view's variance."""
    w = rng.standard_normal((len(data.moment), n_shared))
    w *= np.sqrt(0.5 * np.diag(data.moment) / n_shared)[:, None]
    return _with_private(data, w)


def _with_private(data: _Data, w: Array) -> _State:
    psi = []
    for own, k, name in zip(data.slices, data.n_private, data.names, strict=True):
        moment = data.moment[own, own]
        values, vectors = eigh(moment - w[own] @ w[own].T)
        # What is left must be a covariance: at least some of every direction's variance.
        least = 1e-3 * np.trace(moment) / len(moment)
        left = (vectors * np.maximum(values, least)) @ vectors.T
        psi.append(_principal(left, k, name)[0])
    return _State(np.zeros(len(w)), w, tuple(psi))


def _parameters(data: _Data, state: _State) -> SharedFactors:
    privates, variances = [], []
    for psi, k, name in zip(state.psi, data.n_private, data.names, strict=True):
        _, private, variance = _principal(psi, k, name)
        privates.append(private)
        variances.append(variance)
    return SharedFactors(
        tuple(np.split(state.mean + data.centre, data.ends)),
        tuple(np.split(state.w, data.ends)),
        tuple(privates),
        np.array(variances),
    )
