"""Which pairs to link: decisions that are optimal for a stated utility."""

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy
import xarray as xr
from scipy import sparse

from pm_match.checks import check_count, warn
from pm_match.matching.chance import MOST_TOGETHER, probability_together
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.memory import limit
from pm_match.matching.pair_counts import apart, best_partners, counts_together
from pm_match.matching.set_draws import SetDraws, full_names, read_one_set, set_of
from pm_match.matching.unmatched_probability import probability_alone

_RULES = ("one-to-one", "many-to-many")
# Bytes that a pair takes at most, until it is in a table.
_OF_A_PAIR = 144


class _Pairs(NamedTuple):
    """Pairs of objects by position, and in how many draws they share a cluster."""

    row: np.ndarray
    column: np.ndarray
    number: np.ndarray


def decide(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    rule: Literal["many-to-many", "one-to-one"] = "many-to-many",
    threshold: float = 0.5,
    abstain: float = 0.0,
    keep_unmatched: bool = False,
    reject: float | None = None,
    top: int | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> pd.DataFrame:
    r"""Decide which objects of two domains to link, and say how sure each decision is.

    A right link gains 1 - t, a wrong one costs t, and no link is worth 0, where t is the
    `threshold`. With t = 1/2 both count alike; with t = 0.9 a wrong link is nine times as bad as a
    right one is good. A link is right if the two
    share a cluster. With :math:`P_{nm}` the probability of that (see `match_probability`), the
    expected utility of a set L of links is

    .. math:: U(L) = \sum_{(n, m) \in L} P_{nm} (1 - t) - (1 - P_{nm}) t
                   = \sum_{(n, m) \in L} (P_{nm} - t),

    and the L that is returned maximises it:

    - ``"many-to-many"``: over all sets of pairs. These are the pairs with P > t.
    - ``"one-to-one"``: over the sets in which no object is linked twice, by linear assignment
      of the pairs with P > t. Between objects of large clusters, whose pairs are all equally
      probable, which is linked to which is arbitrary: this rule is for clusters of about one object
      a domain, as in linking of records.

    Of several best sets, any is returned.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    a, b : str
        Assignment variables, such as ``"cluster_upright"``. With the same name twice, duplicates
        within the domain (many-to-many; every pair once).
    rule : {"many-to-many", "one-to-one"}, default "many-to-many"
    threshold : float, default 0.5
        t, from 0 to less than 1.
    abstain : float, default 0.0
        Decisions whose probability of being right is lower are left open: a link with P below
        it, or an unmatched object that has no counterpart with a probability below it, is called
        "abstain". An object whose link is left open stays reserved.
    keep_unmatched : bool, default False
        Whether to list objects of a and of b that are in no link, too.
    reject : float, optional
        Objects that are unlike everything with at least this probability are in no link: each is in
        no cluster, or in one without any other known object, of whichever domain. With
        `keep_unmatched` they are listed, and called "reject". Where all clusters that there may be
        are occupied, nothing is unlike everything: see `log_predictive` of `assign`.
    top : int, optional
        Look only at the `top` most likely partners of each object of a. The result is then
        optimal if ``attrs["exact"]`` is True: no pair with P > t was left out. Default: all pairs
        with P > t are found, whatever the size; memory grows with their number, time with all
        pairs and draws.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    DataFrame with columns object, partner, probability, decision
        One row for each link, in the order of the objects of a, and of partners: labels of both, P,
        and "link" or "abstain". With `keep_unmatched`, rows without a partner (None) follow, then
        rows without an object, whose probability is that of having no counterpart in the other
        domain (see `unmatched_probability`), and whose decision is "unmatched" or "abstain"; or, if
        it is "reject", that of being unlike everything. Under
        "one-to-one" an object may be left over that surely has counterparts: its probability is
        then near 0.
        ``attrs``: `rule`, `threshold`, ``utility`` (U of all links, those left open included),
        ``exact``, and ``chance``, the probability that two objects taken at random share a cluster.

    Raises
    ------
    KeyError
        If there is no such group or variable.
    ValueError
        If a variable is not an assignment; clusters of a and b are of different sets; or a
        parameter is not as described.
    MemoryError
        If, without `top`, the pairs would take more than 4 GiB (or what the environment variable
        ``PM_MATCH_MEMORY`` says), at 144 bytes each.

    Warns
    -----
    UserWarning
        If two objects taken at random share a cluster with a probability above the threshold, and
        above 1/2, so that links say little; or if there is only one draw.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [2, 1], [2, 0]]]),
    ... })
    >>> pmm.decide(posterior, "a", "b", rule="one-to-one", keep_unmatched=True)
      object partner  probability   decision
    0      2       1         0.75       link
    1      0    None         0.25  unmatched
    2      1    None         0.25  unmatched
    3   None       0         0.50  unmatched
    """
    if rule not in _RULES:
        raise ValueError(f"rule: expected 'one-to-one' or 'many-to-many'; found {rule!r}")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold: expected a number from 0 to less than 1; found {threshold}")
    if not 0 <= abstain <= 1:
        raise ValueError(f"abstain: expected a probability; found {abstain}")
    if reject is not None and not 0 <= reject <= 1:
        raise ValueError(f"reject: expected a probability; found {reject}")
    if top is not None:
        check_count("top", top)
    a, b = full_names(idata, [a, b], group)
    if a == b and rule == "one-to-one":
        raise ValueError(
            f"rule: expected 'many-to-many' within a domain; found 'one-to-one', and {a!r} twice"
        )
    draws = read_one_set(idata, [a, b], group, sample_dims)
    labels = apart([draws.labels[0], draws.labels[-1]], [draws.relevant[0], draws.relevant[-1]])
    chance = probability_together(draws)
    _warn_if_uninformative(draws.n_draws, chance, threshold)
    pairs, exact = _worth_it(draws, labels, threshold, top)
    unlike = [np.full(n, -1.0) for n in draws.sizes]
    if reject is not None:
        unlike = [_unlike_all(idata, name, group, sample_dims) for name in draws.names]
        kept = (unlike[0][pairs.row] < reject) & (unlike[-1][pairs.column] < reject)
        pairs = _Pairs(*(part[kept] for part in pairs))
    if rule == "one-to-one":
        pairs = _assigned(pairs, draws, threshold)
    names = draws.objects
    probability = pairs.number / draws.n_draws
    table = pd.DataFrame(
        {
            "object": names[0][pairs.row],
            "partner": names[-1][pairs.column],
            "probability": probability,
            "decision": np.where(probability < abstain, "abstain", "link").astype(object),
        }
    )
    if keep_unmatched:
        table = pd.concat(
            [table, *_unmatched(draws, pairs, names, abstain, reject, unlike)], ignore_index=True
        )
    table.attrs = {
        "rule": rule,
        "threshold": threshold,
        "utility": float((probability - threshold).sum()),
        "exact": exact,
        "chance": chance,
    }
    return table


def _unlike_all(
    idata: xr.DataTree | xr.Dataset, name: str, group: str, sample_dims: Sequence[Hashable]
) -> np.ndarray:
    """Probability of having no known object for company, shape (n_objects,)."""
    there = set_of(idata, name, group, sample_dims)
    known = [own for own in there if own.removesuffix("_new") not in {*there} - {own}]
    draws = read_one_set(idata, list(dict.fromkeys([name, *known])), group, sample_dims)
    return probability_alone(draws, 0, [draws.names.index(own) for own in known])


def _warn_if_uninformative(n_draws: int, chance: float, threshold: float) -> None:
    """Warn of probabilities that decide nothing."""
    if n_draws == 1:
        warn(
            "one draw: its probabilities are 0 and 1, and say nothing of how sure a link is. "
            "Sample (pm_match.sample) to know."
        )
    elif chance > max(threshold, MOST_TOGETHER):
        warn(
            f"any two objects share a cluster with probability {chance:.2f}, above the threshold "
            f"of {threshold:g}: the clusters hardly tell objects apart, and a link says little of "
            "the objects linked."
        )


def _worth_it(
    draws: SetDraws, labels: Sequence[np.ndarray], threshold: float, top: int | None
) -> tuple[_Pairs, bool]:
    """Pairs with a probability above the threshold, and whether all of them were found."""
    twice = len(draws.labels) == 1
    first, second = labels
    if top is None:
        blocks, n_found, most = [], 0, int(limit() * 2**30 / _OF_A_PAIR)
        for rows, counts in counts_together(first, second):
            row, column = np.nonzero(counts / draws.n_draws > threshold)
            if twice:
                once = column > row + rows.start
                row, column = row[once], column[once]
            n_found += len(row)
            if n_found > most:
                raise MemoryError(
                    f"decide: expected at most {most:,} pairs of {draws.names[0]!r} and "
                    f"{draws.names[-1]!r} above the threshold of {threshold:g}, which take "
                    f"{limit():g} GiB; found more. Ask for the likeliest partners alone (top=5), "
                    "or for a higher threshold, or let the environment variable PM_MATCH_MEMORY "
                    "say more GiB."
                )
            blocks.append((row + rows.start, column, counts[row, column]))
        pairs = _Pairs(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
        exact = True
    else:
        pairs = _Pairs(*best_partners(first, second, top, same=twice))
        good = pairs.number / draws.n_draws > threshold
        n_partners = draws.sizes[-1] - twice
        # Where even the last of `top` partners is worth it, one that was left out may be, too.
        full = np.bincount(pairs.row[good], minlength=draws.sizes[0]) == top
        exact = top >= n_partners or not full.any()
        pairs = _Pairs(*(part[good] for part in pairs))
    if twice:
        # Every pair once; with `top`, it may be among the best of one of the two only.
        low, high = np.minimum(pairs.row, pairs.column), np.maximum(pairs.row, pairs.column)
        key, first = np.unique(low * draws.sizes[0] + high, return_index=True)
        row, column = np.divmod(key, draws.sizes[0])
        other = row != column
        return _Pairs(row[other], column[other], pairs.number[first][other]), exact
    order = np.lexsort((pairs.column, pairs.row))
    return _Pairs(*(part[order] for part in pairs)), exact


def _assigned(pairs: _Pairs, draws: SetDraws, threshold: float) -> _Pairs:
    """Choose the pairs, no object twice, with the largest sum of P - t.

    Every object of a is assigned either a partner or a stand-in of its own, which is worth nothing:
    a full matching, of maximal weight, of a sparse graph. Connected parts are solved one by one.
    """
    n, m = draws.sizes
    if not len(pairs.row):
        return pairs
    graph = sparse.coo_array((np.ones(len(pairs.row)), (pairs.row, n + pairs.column)), (n + m,) * 2)
    part = scipy.sparse.csgraph.connected_components(graph, directed=False)[1][pairs.row]
    order = np.argsort(part, kind="stable")
    chosen = []
    for own in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
        if len(own) == 1:
            chosen.append(own)
            continue
        rows, row = np.unique(pairs.row[own], return_inverse=True)
        columns, column = np.unique(pairs.column[own], return_inverse=True)
        k = len(rows)
        # One is added to all weights, since the solver takes 0 for no edge: to each matching the
        # same, as all have one edge for every object of a.
        gain = 1 + pairs.number[own] / draws.n_draws - threshold
        weights = sparse.csr_array(
            (
                np.concatenate([gain, np.ones(k)]),
                (
                    np.concatenate([row, np.arange(k)]),
                    np.concatenate([column, len(columns) + np.arange(k)]),
                ),
            ),
            (k, len(columns) + k),
        )
        # SciPy 1.13 takes no other indices here.
        weights.indices, weights.indptr = weights.indices.astype("i4"), weights.indptr.astype("i4")
        found_row, found_column = scipy.sparse.csgraph.min_weight_full_bipartite_matching(
            weights, maximize=True
        )
        partner = np.empty(k, dtype=np.int64)
        partner[found_row] = found_column
        chosen.append(own[partner[row] == column])
    kept = np.sort(np.concatenate(chosen))
    return _Pairs(*(values[kept] for values in pairs))


def _unmatched(
    draws: SetDraws,
    pairs: _Pairs,
    names: list[np.ndarray],
    abstain: float,
    reject: float | None,
    unlike: list[np.ndarray],
) -> list[pd.DataFrame]:
    """Tables of the objects that are in no link, of a and then of b."""
    if len(draws.sizes) == 1:
        sides = [("object", 0, 0, np.concatenate([pairs.row, pairs.column]))]
    else:
        sides = [("object", 0, 1, pairs.row), ("partner", 1, 0, pairs.column)]
    tables = []
    for column, of, among, linked in sides:
        left = np.setdiff1d(np.arange(draws.sizes[of]), linked)
        alone = probability_alone(draws, of, [among])[left]
        decision = np.where(alone < abstain, "abstain", "unmatched").astype(object)
        if reject is not None:
            rejected = unlike[of][left] >= reject
            alone = np.where(rejected, unlike[of][left], alone)
            decision[rejected] = "reject"
        table = pd.DataFrame(
            {
                "object": None,
                "partner": None,
                "probability": alone,
                "decision": decision,
            },
            index=range(len(left)),
        ).astype({"object": object, "partner": object})
        table[column] = names[of][left].astype(object)
        tables.append(table)
    return tables
