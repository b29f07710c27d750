"""The probability that an object has no counterpart."""

from collections.abc import Hashable, Sequence

import numpy as np
import xarray as xr

from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.landmarks import landmark_counts, unmatched_by_landmarks
from pm_match.matching.set_draws import SetDraws, full_names, read_one_set, set_of


def unmatched_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> xr.DataArray:
    r"""Compute the probability that an object's cluster holds no object of other domains.

    .. math:: 1 - P(r_{an} = 1 \text{ and } s_{bm} = s_{an}, r_{bm} = 1 \text{ for some } m
              \mid X)

    An irrelevant object (r = 0) has no counterpart by definition. This cannot be computed from
    `match_probability`, which tells of pairs one by one: it is about all of them at once. No matrix
    of pairs is built.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    a : str
        The assignment variable of the objects, such as ``"cluster_upright"``.
    b : str or sequence of str, optional
        Assignment variables of the counterparts; with several, an object of any of them will do.
        If `a` is among them, an object does not count as its own counterpart. Default: all
        others whose clusters are of the same set.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    DataArray, shape (objects of a,)
        With the dim and the coordinates of `a`.

    Raises
    ------
    KeyError
        If there is no such group or variable.
    ValueError
        If a variable is not an assignment, clusters are of different sets, or there is no other
        domain.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> pmm.unmatched_probability(posterior, "a", "b").values
    array([0.25, 0.25, 0.  ])
    """
    counts = landmark_counts(idata, group)
    if counts is not None:
        return unmatched_by_landmarks(idata, counts, a, b)
    (a,) = full_names(idata, [a], group)
    if b is None:
        others = [name for name in set_of(idata, a, group, sample_dims) if name != a]
        if not others:
            raise ValueError(
                f"a: expected other domains with clusters of the set that {a!r} has; found none "
                f"(b={a!r} looks for counterparts among the objects of {a!r} themselves)"
            )
    else:
        others = full_names(idata, [b] if isinstance(b, str) else b, group)
        if not others:
            raise ValueError("b: expected at least one assignment variable; found none")
    draws = read_one_set(idata, [a, *others], group, sample_dims)
    return draws.along(
        0, probability_alone(draws, 0, [draws.names.index(name) for name in others])
    ).rename("unmatched_probability")


def probability_alone(draws: SetDraws, of: int, among: Sequence[int]) -> np.ndarray:
    """Share of draws in which objects of one assignment have no counterpart, shape (n_objects,)."""
    ends = np.cumsum(draws.sizes)
    own = slice(ends[of] - draws.sizes[of], ends[of])
    counted = np.isin(draws.domain_of, among)
    alone = np.zeros(draws.sizes[of], dtype=np.int64)
    for labels, sizes in draws:
        inside = labels[counted & (labels >= 0)]
        # One entry more, which the irrelevant objects' label -1 finds at the end.
        counterparts = np.bincount(inside, minlength=len(sizes) + 1)
        # Nothing is a counterpart of itself.
        alone += counterparts[labels[own]] <= (of in among)
    return alone / draws.n_draws
