"""The partitions around the estimate that hold most of the posterior."""

from collections.abc import Hashable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from pm_match.matching.draws import SAMPLE_DIMS, SET
from pm_match.matching.given_labels import attrs_of, by_size, given_labels
from pm_match.matching.losses import Loss, check_loss
from pm_match.matching.partition_loss import losses_of
from pm_match.matching.pooled import draw_keys, pool
from pm_match.matching.set_draws import names_of, read_sets

BOUNDS = ("vertical_upper", "vertical_lower", "horizontal")
# Losses are sums of as many terms as there are clusters: nearer than this is equally far.
_ROUNDING = 1e-9


def credible_ball(
    idata: xr.DataTree | xr.Dataset,
    labels: Mapping[Any, Any],
    *,
    prob: float = 0.95,
    loss: Loss = "vi",
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    r"""Compute the bounds of the credible ball around an estimated partition.

    The ball has the least radius such that it holds the posterior probability `prob` (Wade &
    Ghahramani 2018, section 4),

    .. math:: B = \{c : L(c^*, c) \le \epsilon\}, \qquad
        \epsilon = \min \{e : P(L(c^*, c) \le e \mid x) \ge \mathrm{prob}\},

    with the draws for the posterior. Of the draws in the ball, the *horizontal* bound is the
    furthest from the estimate; the *vertical upper* bound is the furthest of those with the fewest
    clusters; the *vertical lower* bound the furthest of those with the most. Irrelevant objects are
    clusters of one. Of several such draws one is chosen, the same for any order of the draws.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    labels : Dataset or mapping
        From assignment variables to labels, as `partition_estimate` gives them.
    prob : float, default 0.95
        The probability that the ball is to hold.
    loss : {"vi", "binder"}, default "vi"
        The distance: see `partition_loss`.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions that number the draws.
    var_names : sequence of str, optional
        Assignment variables. Default: all that `labels` has.

    Returns
    -------
    Dataset
        One variable for each assignment, with dims ``bound`` and the objects', labels as those of
        `partition_estimate`; and coordinates along ``bound``: ``distance`` and ``n_clusters``, of
        which -1 counts none. Attributes: ``loss``, ``prob``, ``radius`` and ``probability``, the
        fraction of the draws in the ball. With several sets of clusters (see `assignment_sets`)
        each has a ball of its own: the last two are lists, and the coordinates have a first dim
        ``clusters``.

    Raises
    ------
    KeyError
        If there is no such group or variable.
    ValueError
        If `prob` is not between 0 and 1, or labels are not those of the objects.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> ball = pmm.credible_ball(posterior, pmm.partition_estimate(posterior))
    >>> ball["cluster_a"].sel(bound="horizontal").values
    array([1, 1, 0])
    """
    check_loss(loss)
    if not isinstance(prob, Real) or not 0.0 < float(prob) <= 1.0:
        raise ValueError(f"prob: expected a probability above 0 and up to 1; found {prob!r}")
    names = names_of(idata, list(labels) if var_names is None else var_names, group)
    sets = read_sets(idata, names, group, sample_dims)
    found: dict[str, xr.DataArray] = {}
    each: list[dict[str, Any]] = []
    distances, sizes = [], []
    for draws in sets:
        distance = losses_of(draws, given_labels(labels, draws), loss)
        pooled = pool(draws.labels, draws.relevant)
        n_clusters = pooled.max(axis=0, initial=0).astype(np.int64)
        n_blocks = n_clusters + np.count_nonzero(pooled == 0, axis=0)
        key = draw_keys(pooled)

        far = np.sort(distance)[max(int(np.ceil(prob * len(distance) - _ROUNDING)), 1) - 1]
        inside = np.flatnonzero(distance <= far + _ROUNDING)
        places = []
        for wanted in (n_blocks[inside].min(), n_blocks[inside].max(), None):
            among = inside if wanted is None else inside[n_blocks[inside] == wanted]
            among = among[distance[among] >= distance[among].max() - _ROUNDING]
            places.append(among[np.argmin(key[among])])
        found |= draws.split(np.stack([by_size(draws.draw(t)[0]) for t in places]), "bound")
        distances.append(distance[places])
        sizes.append(n_clusters[places])
        each.append({"radius": float(far), "probability": len(inside) / len(distance)})
    dims: tuple[str, ...] = ("bound",)
    coords: dict[str, Any] = {"bound": list(BOUNDS)}
    if len(sets) > 1:
        dims = (SET, "bound")
        coords[SET] = [draws.title or "" for draws in sets]
    shape = [len(coords[dim]) for dim in dims]
    coords["distance"] = (dims, np.reshape(distances, shape))
    coords["n_clusters"] = (dims, np.reshape(sizes, shape))
    return xr.Dataset(
        {name: found[name] for name in names},
        coords,
        attrs={"loss": loss, "prob": float(prob)} | attrs_of([draws.title for draws in sets], each),
    )
