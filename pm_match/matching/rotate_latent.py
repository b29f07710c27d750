"""Latent spaces of all draws turned to agree with that of one draw."""

from collections.abc import Hashable, Sequence

import numpy as np
import scipy
import xarray as xr
from numpy.typing import NDArray

from pm_match.numerics.polar import polar_factor

LATENT = "latent"
PROJECTION = "projection_"


def has_latent_space(posterior: xr.Dataset) -> bool:
    """Tell whether there are latent vectors and projections."""
    names = list(map(str, posterior.data_vars))
    return LATENT in names and any(name.startswith(PROJECTION) for name in names)


def rotated(
    posterior: xr.Dataset,
    occupied: NDArray[np.bool_],
    reference: int,
    cluster_dim: Hashable,
    sample_dims: Sequence[Hashable],
) -> xr.Dataset:
    r"""Turn every draw's latent space to that of a reference draw (orthogonal Procrustes).

    Every draw's rotation (or reflection) R is the one that

    .. math:: \min_{R^\top R = I} \|Z R - Z_0\|^2 + \sum_d \|W_d R - W_{d0}\|^2,

    which is R = U Vᵀ with U D Vᵀ the singular value decomposition of
    :math:`Z^\top Z_0 + \sum_d W_d^\top W_{d0}` (Schönemann 1966), over the latent vectors of the
    clusters that are occupied in both draws. It is applied to all that has the dim of the factors
    and another one, so that every W z stays as it is. If a variable has the factors' dim alone, the
    factors differ in more than direction: R is then only a permutation with signs.

    `posterior`: draws whose clusters are numbered alike; `occupied` (S, T): which clusters have
    objects; `reference`: the number of the reference draw; `cluster_dim`: the clusters' dim of the
    latent vectors.
    """
    latent = posterior[LATENT]
    others = [dim for dim in latent.dims if dim not in (*sample_dims, cluster_dim)]
    projections = [str(name) for name in posterior.data_vars if str(name).startswith(PROJECTION)]
    strangers = [p for p in projections if len(others) == 1 and others[0] not in posterior[p].dims]
    if len(others) != 1 or strangers:
        what = strangers[0] if strangers else LATENT
        raise ValueError(
            f"variable {what!r}: expected a dim of factors, the same in {LATENT!r} and in every "
            f"projection; found {posterior[what].dims} and {latent.dims}. "
            "Name the dims in the model, or say rotate=False"
        )
    factor = others[0]
    n_draws, n_factors = len(occupied), posterior.sizes[factor]

    with_factors: dict[str, NDArray] = {}
    alone = []
    for name, variable in posterior.data_vars.items():
        if factor not in variable.dims or not set(sample_dims) <= set(variable.dims):
            continue
        if set(variable.dims) == {*sample_dims, factor}:
            alone.append(str(name))
        ordered = variable.transpose(*sample_dims, ..., factor)
        with_factors[str(name)] = ordered.to_numpy().reshape(n_draws, -1, n_factors)

    both = occupied & occupied[reference]
    vectors = with_factors[LATENT] * both[:, :, None]
    cross = np.einsum("tkf,kg->tfg", vectors, with_factors[LATENT][reference])
    for name in projections:
        w = with_factors[name]
        cross += np.einsum("tmf,mg->tfg", w, w[reference])
    if alone:
        turn = np.zeros_like(cross)
        for t in range(n_draws):
            rows, columns = scipy.optimize.linear_sum_assignment(np.abs(cross[t]), maximize=True)
            turn[t, rows, columns] = np.where(cross[t, rows, columns] < 0, -1.0, 1.0)
    else:
        turn = polar_factor(cross)

    changed = {}
    for name, values in with_factors.items():
        variable = posterior[name]
        ordered = variable.transpose(*sample_dims, ..., factor)
        # What belongs to a factor alone, such as its precision, has no sign to change.
        new = values @ (np.abs(turn) if name in alone else turn)
        changed[name] = ordered.copy(data=new.reshape(ordered.shape)).transpose(*variable.dims)
    return posterior.assign(changed)
