"""How far every draw is from a partition."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.matching.draws import SAMPLE_DIMS, SET, read_draws
from pm_match.matching.given_labels import given_labels
from pm_match.matching.losses import Loss, check_loss, loss_between
from pm_match.matching.set_draws import SetDraws, names_of, read_sets


def partition_loss(
    idata: xr.DataTree | xr.Dataset,
    labels: Mapping[Any, Any],
    *,
    loss: Loss = "vi",
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> xr.DataArray:
    r"""Compute the loss between a partition and every draw; its mean is the expected loss.

    .. math:: \mathrm{VI}(c, c') = 2 H(c, c') - H(c) - H(c')

    (Meila 2007), with the entropies in bits: it is a distance, between 0 and log2 of the number of
    objects. Or Binder's loss: the fraction of pairs of objects that one partition puts together
    and the other apart. An irrelevant object is a cluster of one.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    labels : Dataset or mapping
        From assignment variables to labels, as `partition_estimate` gives them: whole numbers, one
        an object; negative ones for irrelevant objects. Equal numbers are one cluster in all
        variables of a set. A Series or DataArray may have its objects in any order.
    loss : {"vi", "binder"}, default "vi"
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions that number the draws.
    var_names : sequence of str, optional
        Assignment variables that are compared. Default: all that `labels` has.

    Returns
    -------
    DataArray
        With the sample dims. Several sets of clusters (see `assignment_sets`) have a loss each,
        along a first dim ``clusters``.

    Raises
    ------
    KeyError
        If there is no such group or variable.
    ValueError
        If labels are not whole numbers, or not one for every object.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> estimate = pmm.partition_estimate(posterior)
    >>> pmm.partition_loss(posterior, estimate).values.round(2)
    array([[0.  , 0.  , 1.1 , 0.97]])
    """
    check_loss(loss)
    posterior = read_draws(idata, group)
    names = names_of(posterior, list(labels) if var_names is None else var_names, group)
    sets = read_sets(posterior, names, group, sample_dims)
    losses = [losses_of(draws, given_labels(labels, draws), loss) for draws in sets]
    shape = [posterior.sizes[dim] for dim in sample_dims]
    coords = {dim: posterior[dim] for dim in sample_dims if dim in posterior.coords}
    if len(sets) == 1:
        return xr.DataArray(losses[0].reshape(shape), coords, sample_dims, name=loss)
    return xr.DataArray(
        np.reshape(losses, [len(sets), *shape]),
        coords | {SET: [draws.title or "" for draws in sets]},
        (SET, *sample_dims),
        name=loss,
    )


def losses_of(draws: SetDraws, labels: NDArray[np.int64], loss: Loss) -> NDArray[np.float64]:
    """Losses (S,) between labels (N,) of a set's objects and its draws."""
    return np.array([loss_between(labels, draw, loss) for draw, _ in draws])
