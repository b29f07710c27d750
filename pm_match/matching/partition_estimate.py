"""One partition of the objects of all domains, from the draws."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pm_match.checks import check_count, check_seed
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.given_labels import attrs_of, by_size
from pm_match.matching.least_loss import least_loss
from pm_match.matching.losses import ESTIMATED, Estimated, check_loss
from pm_match.matching.pooled import pool
from pm_match.matching.set_draws import names_of, read_sets


def partition_estimate(
    idata: xr.DataTree | xr.Dataset,
    *,
    loss: Estimated = "vi",
    n_starts: int = 16,
    max_clusters: int | None = None,
    random_seed: Any = 0,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    r"""Estimate one partition of the objects of all domains: that of least expected loss.

    The posterior expected loss of a partition c is its mean loss to the S draws,

    .. math:: \frac{1}{S} \sum_t L(c, c^{(t)}), \qquad
        L(c, c') = \frac{1}{C} \Big(\sum_j f(n_j) + \sum_l f(n'_l) - 2 \sum_{jl} f(n_{jl})\Big),

    with n_j and n'_l objects in the clusters of c and c', and n_jl in both. It is computed from
    the draws themselves. For the variation of information [1]_ [2]_ in bits, f(n) = n log2 n and C
    is the number of objects N; for Binder's loss as a fraction of all pairs, those that one
    partition puts together and the other apart, f(n) = n (n - 1) and C = N (N - 1).

    With "ari", the estimate is the partition with the greatest adjusted Rand index, the share of
    pairs on which it agrees with the draws beyond chance, its numerator and its denominator
    replaced by their posterior means [3]_. `expected_loss` is one minus that, which is not the
    mean over draws.

    The search is greedy, with random restarts, after SALSO [4]_: see `matching.least_loss`. The
    estimate is no draw, but no draw that a search starts at has a lower expected loss: these are
    the best of all draws if all can be compared quickly, otherwise the best of those that have the
    lowest loss to some of the draws.

    An object that is irrelevant in a draw shares its cluster with no other: it counts as a
    cluster of one. In the estimate, an object is irrelevant if it is so in more than half of the
    draws (the decision under 0-1 loss), and is then a cluster of one as well, labelled -1. By
    the first two losses nothing is lost: no partition that puts such an object with others has a
    lower expected loss than that which leaves it alone.

    Sets of clusters (see `assignment_sets`), such as those of documents and of words, are
    estimated one by one.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    loss : {"vi", "binder", "ari"}, default "vi"
        Variation of information, Binder's loss, or one minus the adjusted Rand index. Binder's loss
        tends to leave doubtful objects in small clusters of their own. Where draws disagree much,
        the first two may put nearly all objects together, or apart; "ari" puts objects together if
        they share a cluster more often than chance would have it. `partition_loss` and
        `credible_ball` have the first two.
    n_starts : int, default 16
        Searches (with "ari", of each of a few rounds). Half of them start at the best draws, the
        others allocate objects one by one in random order. They run in threads; results are the
        same for any number of these.
    max_clusters : int, optional
        The most clusters there may be, irrelevant objects not counted. Default: any number.
    random_seed : int, Generator or SeedSequence, default 0
        For the order in which objects are looked at.
    progressbar : bool, default True
        Whether to show progress if it takes longer than a second.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions that number the draws.
    var_names : sequence of str, optional
        Assignment variables. Default: all whose name starts with ``cluster_``.

    Returns
    -------
    Dataset
        One variable for each assignment, shape (n_objects,), with labels 0, 1, … by decreasing size
        of the cluster over all domains, and -1 for irrelevant objects. Attributes: ``loss``, its
        name; ``expected_loss``; ``n_starts``; and ``n_starts_at_best``, the searches that ended
        with this expected loss. If it is one of many, more starts may find a better one. With
        several sets of clusters each of these is a list with an entry for each set, and the
        attribute ``clusters`` lists the sets; so does that of every variable name its own.

    Raises
    ------
    KeyError
        If there is no such group or variable, or no assignment at all.
    ValueError
        If a variable is not an assignment, its relevance does not fit it, or an option is none.

    References
    ----------
    .. [1] Meila (2007). Comparing clusterings: an information based distance. Journal of
       Multivariate Analysis 98.
    .. [2] Wade & Ghahramani (2018). Bayesian cluster analysis: point estimation and credible
       balls. Bayesian Analysis 13.
    .. [3] Fritsch & Ickstadt (2009). Improved criteria for clustering based on the posterior
       similarity matrix. Bayesian Analysis 4.
    .. [4] Dahl, Johnson & Müller (2022). Search algorithms and loss functions for Bayesian
       clustering. Journal of Computational and Graphical Statistics 31.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> estimate = pmm.partition_estimate(posterior)
    >>> estimate["cluster_a"].values, estimate["cluster_b"].values
    (array([0, 0, 1]), array([0, 1]))
    >>> float(round(estimate.attrs["expected_loss"], 3))
    0.518
    """
    check_loss(loss, ESTIMATED)
    check_count("n_starts", n_starts)
    check_seed(random_seed)
    if max_clusters is not None:
        check_count("max_clusters", max_clusters)
    sets = read_sets(idata, var_names, group, sample_dims)
    found: dict[str, xr.DataArray] = {}
    each: list[dict[str, Any]] = []
    for draws in sets:
        # A whole number is the same seed for every set: each is estimated as if it were alone.
        rng = np.random.default_rng(random_seed)
        pooled = pool(draws.labels, draws.relevant)
        best = least_loss(pooled, loss, n_starts, max_clusters, rng, progressbar)
        found |= draws.split(by_size(best.labels))
        each.append(
            {
                "loss": loss,
                "expected_loss": best.loss,
                "n_starts": int(n_starts),
                "n_starts_at_best": best.n_at_best,
            }
        )
    names = names_of(idata, var_names, group)
    titles = [draws.title for draws in sets]
    return xr.Dataset({name: found[name] for name in names}, attrs=attrs_of(titles, each))
