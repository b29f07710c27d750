"""The probability that two objects match."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal, overload

import pandas as pd
import xarray as xr

from pm_match.checks import check_count
from pm_match.matching.chance import probability_together
from pm_match.matching.draws import SAMPLE_DIMS, coords_along, read_draws, relevance_of
from pm_match.matching.landmarks import landmark_counts, match_landmarks
from pm_match.matching.memory import check_size
from pm_match.matching.pair_counts import apart, best_partners, together
from pm_match.matching.set_draws import SetDraws, full_names, read_one_set


@overload
def match_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    relevance: Literal["auto"] | tuple[str | None, str | None] | None = ...,
    top: None = ...,
    group: str = ...,
    sample_dims: Sequence[Hashable] = ...,
) -> xr.DataArray: ...


@overload
def match_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    relevance: Literal["auto"] | tuple[str | None, str | None] | None = ...,
    top: int,
    group: str = ...,
    sample_dims: Sequence[Hashable] = ...,
) -> pd.DataFrame: ...


def match_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    relevance: Literal["auto"] | tuple[str | None, str | None] | None = "auto",
    top: int | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> xr.DataArray | pd.DataFrame:
    r"""Compute the probability that an object of one domain and one of another share a cluster.

    .. math:: P(s_{an} = s_{bm}, r_{an} = r_{bm} = 1 \mid X) \approx \frac{1}{S} \sum_{t=1}^{S}
              r_{an}^{(t)} r_{bm}^{(t)} I(s_{an}^{(t)} = s_{bm}^{(t)})

    An object that is irrelevant in a draw matches nothing in it, not even itself. In a model
    without relevance all r are 1.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    a, b : str
        Names of two domains, such as ``"upright"`` and ``"half"``, or of their assignment
        variables, ``"cluster_upright"``. With the same name twice, the co-clustering within a
        domain. Of a run that recorded landmarks (`sample`), partners are the landmarks of b.
    relevance : "auto", tuple of str or None, or None
        Names of the relevance variables of a and b (0 for irrelevant objects, else 1). "auto"
        takes ``relevance_<name>`` beside ``cluster_<name>``, where there is one; None takes every
        object as relevant.
    top : int, optional
        Give only the `top` most likely partners of each object of a. The matrix of all pairs is
        never built: memory grows with the number of objects, times draws or times `top`.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    DataArray, shape (objects of a, objects of b)
        Dims and coordinates are those of the variables. If both have the same dim, the second
        one's name ends in ``"_other"``.
    DataFrame with columns object, partner, probability
        With `top`: at most so many rows for each object of a, which come in the order of the
        objects, then from the most to the least likely partner; of equally likely ones the first
        come first. Partners of probability 0 are left out, and so is the object itself.

    In the ``attrs`` of either, ``chance`` is the probability that two objects taken at random share
    a cluster. A match probability that is no larger says nothing about the two.

    Raises
    ------
    KeyError
        If there is no such group or variable; the message lists those that there are.
    ValueError
        If a variable is not an assignment: one whole number for each object and draw; the clusters
        of a and b are of different sets; a relevance variable does not fit its assignment; or `top`
        is not positive.
    MemoryError
        If the matrix of all pairs would take more than 4 GiB (or what the environment variable
        ``PM_MATCH_MEMORY`` says), before it is made.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> pmm.match_probability(posterior, "a", "b").values
    array([[0.75, 0.25],
           [0.75, 0.25],
           [0.5 , 1.  ]])
    >>> pmm.match_probability(posterior, "a", "b", top=1)
       object  partner  probability
    0       0        0         0.75
    1       1        0         0.75
    2       2        1         1.00
    """
    flags: tuple[str | None, str | None] | None = None
    if relevance is not None and relevance != "auto":
        if isinstance(relevance, str) or len(relevance) != 2:
            raise ValueError(
                f'relevance: expected "auto", None or the names of two variables; '
                f"found {relevance!r}"
            )
        flags = relevance
    counts = landmark_counts(idata, group)
    if counts is not None:
        if relevance != "auto":
            raise ValueError('relevance: expected "auto", as objects were counted; found others')
        return match_landmarks(idata, counts, a, b, top)
    a, b = full_names(idata, [a, b], group)
    own = "auto" if relevance == "auto" else None
    draws = read_pair(idata, a, b, group, sample_dims, own, whole=top is None)
    first, second = draws.variables[0], draws.variables[-1]
    relevant = [draws.relevant[0], draws.relevant[-1]]
    if flags is not None:
        posterior = read_draws(idata, group)
        relevant = [
            relevance_of(posterior, variable, name, sample_dims)
            for variable, name in zip((first, second), flags, strict=True)
        ]
    labels = apart([draws.labels[0], draws.labels[-1]], relevant)
    rows, columns = first.dims[-1], second.dims[-1]
    n = len(draws.labels)
    # By the labels that are in memory now.
    chance = probability_together(replace(draws, labels=labels[:n], relevant=relevant[:n]))
    if top is not None:
        check_count("top", top)
        object_, partner, count = best_partners(labels[0], labels[1], top, same=a == b)
        table = pd.DataFrame(
            {
                "object": draws.objects[0][object_],
                "partner": draws.objects[-1][partner],
                "probability": count / len(labels[0]),
            }
        )
        table.attrs["chance"] = chance
        return table
    if rows == columns:
        # All that is along it, levels of an index too.
        along = {columns, *coords_along(second, columns)}
        second = second.rename({name: f"{name}_other" for name in along})
        columns = f"{columns}_other"
    return xr.DataArray(
        together(*labels) / len(labels[0]),
        coords={**coords_along(first, rows), **coords_along(second, columns)},
        dims=(rows, columns),
        name="match_probability",
        attrs={"chance": chance},
    )


def read_pair(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    group: str,
    sample_dims: Sequence[Hashable],
    relevance: str | None = "auto",
    *,
    whole: bool = True,
) -> SetDraws:
    """Read two assignments of one set; of the `whole`, refuse a matrix that is too large."""
    draws = read_one_set(idata, [a, b], group, sample_dims, relevance)
    if whole:
        check_size(
            f"match_probability: a matrix of all pairs of {a!r} and {b!r},",
            (draws.sizes[0], draws.sizes[-1]),
            "Ask for the likeliest partners alone (top=5), or for pairs above a threshold (decide)",
        )
    return draws
