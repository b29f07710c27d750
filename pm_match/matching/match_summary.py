"""What is sure about each cluster of an estimate, and about each object."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import sparse

from pm_match.matching.contingency import contingency
from pm_match.matching.draws import SAMPLE_DIMS, SET
from pm_match.matching.given_labels import given_labels
from pm_match.matching.partition_estimate import partition_estimate
from pm_match.matching.set_draws import SetDraws, read_sets

# An object with a confidence above this is called sure.
SURE = 0.9
# Entries of one-hot labels that are multiplied at a time: 16 MB of indices and values.
_BATCH = 2**20


class MatchSummary(NamedTuple):
    """What `match_summary` returns: one table of clusters, one of objects."""

    clusters: pd.DataFrame
    objects: pd.DataFrame


def match_summary(
    idata: xr.DataTree | xr.Dataset,
    labels: xr.Dataset | None = None,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> MatchSummary:
    r"""Summarise how sure each cluster of an estimate is, and each object's place in it.

    No matrix of pairs is built, and nothing depends on how clusters are numbered. Below, C is a
    cluster of the estimate, :math:`A_j` those of a draw (their relevant objects), and expectations
    are over draws. An irrelevant object is in no :math:`A_j`.

    Of a cluster:

    - ``expected_size``: :math:`E\,|C|^{-1} \sum_{n \in C} |A_{s_n}|`, the size of the cluster that
      a member is in, 0 where it is irrelevant;
    - ``cohesion``: the mean of the co-clustering probability over pairs of members;
    - ``together``: :math:`P(C \subseteq A_j \text{ for some } j)`;
    - ``stays``: :math:`P(\max_j J(C, A_j) > 1/2)`, with J Jaccard's index
      :math:`|C \cap A| / |C \cup A|`. At most one cluster of a draw can be that near C, and it is
      then that near no other C: the cluster is found again. Below, Hennig calls a cluster
      dissolved;
    - ``jaccard``: :math:`E \max_j J(C, A_j)`;
    - ``exact``: :math:`P(C = A_j \text{ for some } j)`;
    - ``entropy``: the mean of its members' (below).

    Of an object n, whose partners in a draw are the others in its cluster:

    - ``relevance``: the probability that it is in a cluster at all;
    - ``confidence``: the mean probability of sharing a cluster with the others of its C, NaN if it
      is alone there; of an object that the estimate calls irrelevant, the probability that it is;
    - ``alone``: the probability that it has no partner in any domain, its own included;
    - ``unmatched``: that it has none in another domain (see `unmatched_probability`), NaN if there
      is one domain only;
    - ``entropy``: in nats, of where a partner is found: :math:`-\sum_C q_C \log q_C`, over
      clusters of the estimate (its irrelevant objects counting as one) and none at all, where
      :math:`q_C = E[\text{share of n's partners that are in C}]`, and q of none is
      ``alone``. These sum to 1; the entropy is 0 where it is certain which cluster is matched,
      however many partners there are in it;
    - ``partners_<domain>``: the expected number of partners in each domain.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    labels : Dataset, optional
        The estimate: one variable for each assignment, labels 0, 1, …, -1 for irrelevant objects,
        which may be in any order if they have names. Default: `partition_estimate`'s.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.
    var_names : sequence of str, optional
        Assignment variables. Default: all whose name starts with ``cluster_``.

    Returns
    -------
    MatchSummary
        ``clusters``: one row for each cluster, with its size in each domain (``size_<domain>``, and
        ``size`` in all) and the columns above. ``objects``: one row for each object, with its
        ``domain``, ``object`` (its label), ``cluster`` in the estimate, and the columns above. With
        several sets of clusters (see `assignment_sets`) rows are set by set, those of clusters
        labelled so.

    Raises
    ------
    KeyError
        If there is no such group or variable, no assignment at all, or no labels of one.
    ValueError
        If a variable is not an assignment, or labels do not fit it.

    References
    ----------
    C. Hennig (2007), "Cluster-wise assessment of cluster stability", Computational Statistics &
    Data Analysis 52, 258-271.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> summary = pmm.match_summary(posterior)
    >>> summary.clusters[["size_a", "size_b", "exact"]]
             size_a  size_b  exact
    cluster
    0             2       1    0.5
    1             1       1    0.5
    >>> summary.objects[["domain", "object", "cluster", "partners_b"]]
      domain object  cluster  partners_b
    0      a      0        0         1.0
    1      a      1        0         1.0
    2      a      2        1         1.5
    3      b      0        0         0.5
    4      b      1        1         0.5
    """
    sets = read_sets(idata, var_names, group, sample_dims)
    names = [name for draws in sets for name in draws.names]
    if labels is None:
        labels = partition_estimate(idata, var_names=names, group=group, sample_dims=sample_dims)
    clusters, objects = [], []
    for draws in sets:
        own_clusters, own_objects = _summary(draws, given_labels(labels, draws))
        clusters.append(own_clusters)
        objects.append(own_objects)
    table = pd.concat(objects, ignore_index=True)
    if len(sets) == 1:
        return MatchSummary(clusters[0], table)
    keys = [draws.title or "" for draws in sets]
    whole = pd.concat(clusters, keys=keys, names=[SET, "cluster"])
    sizes = [column for column in map(str, whole.columns) if column.startswith("size_")]
    # Domains of another set have no objects in a set's clusters.
    whole[sizes] = whole[sizes].fillna(0).astype(np.int64)
    return MatchSummary(whole[[*sizes, *clusters[0].columns[len(sets[0].sizes) :]]], table)


def _summary(draws: SetDraws, estimate: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    inside = estimate >= 0
    titles, compact = np.unique(estimate[inside], return_inverse=True)
    member = np.full(len(estimate), len(titles))  # irrelevant objects come last
    member[inside] = compact.reshape(-1)
    n_clusters, n_objects, n_domains = len(titles), len(member), len(draws.sizes)
    size = np.bincount(member, minlength=n_clusters + 1)[:n_clusters]

    sums = {
        name: np.zeros(n_clusters)
        for name in ("expected_size", "cohesion", "together", "stays", "jaccard", "exact")
    }
    relevance, alone, unmatched, company = (np.zeros(n_objects) for _ in range(4))
    partners = np.zeros((n_objects, n_domains))
    shares = _Shares(member, n_clusters)
    for labels, sizes in draws:
        relevant = np.flatnonzero(labels >= 0)
        label, own = labels[relevant], member[relevant]
        relevance[relevant] += 1
        by_domain = np.bincount(
            label * n_domains + draws.domain_of[relevant], minlength=len(sizes) * n_domains
        ).reshape(-1, n_domains)
        partners[relevant] += by_domain[label]
        lonely = np.ones(n_objects, dtype=bool)
        lonely[relevant] = sizes[label] == 1
        alone += lonely
        abroad = np.ones(n_objects, dtype=bool)
        abroad[relevant] = sizes[label] == by_domain[label, draws.domain_of[relevant]]
        unmatched += abroad

        cells = contingency(own, label)
        company[relevant] += cells.number[cells.cell] - 1
        shares.add(relevant, label, sizes, cells)
        known = cells.row < n_clusters
        row, column, count = cells.row[known], cells.column[known], cells.number[known]
        jaccard = count / (size[row] + sizes[column] - count)
        nearest = np.zeros(n_clusters)
        np.maximum.at(nearest, row, jaccard)
        sums["expected_size"] += np.bincount(row, count * sizes[column], n_clusters)
        sums["cohesion"] += np.bincount(row, count * (count - 1), n_clusters)
        sums["together"] += np.bincount(row, count == size[row], n_clusters)
        sums["stays"] += nearest > 0.5
        sums["jaccard"] += nearest
        sums["exact"] += nearest == 1
    partners -= relevance[:, None] * (np.arange(n_domains) == draws.domain_of[:, None])

    n_draws = draws.n_draws
    entropy = shares.entropy(n_draws, alone / n_draws)
    others = np.append(size, 0)[member] - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        confidence = np.where(others > 0, company / (others * n_draws), np.nan)
        confidence[~inside] = 1 - relevance[~inside] / n_draws
        pairs = np.where(size > 1, size * (size - 1.0), np.nan)
        means = {name: total / n_draws for name, total in sums.items()}
        means["expected_size"] /= size
        means["cohesion"] /= pairs
        means["entropy"] = np.bincount(member, entropy, n_clusters + 1)[:n_clusters] / size

    by_domain = np.bincount(
        member * n_domains + draws.domain_of, minlength=(n_clusters + 1) * n_domains
    ).reshape(-1, n_domains)[:n_clusters]
    clusters = pd.DataFrame(
        {f"size_{domain}": by_domain[:, i] for i, domain in enumerate(draws.domains)}
        | {"size": size}
        | means,
        index=pd.Index(titles, name="cluster"),
    )
    names = [pd.Series(own, dtype=object) for own in draws.objects]
    objects = pd.DataFrame(
        {
            "domain": np.repeat(draws.domains, draws.sizes),
            "object": pd.concat(names, ignore_index=True),
            "cluster": estimate,
            "relevance": relevance / n_draws,
            "confidence": confidence,
            "alone": alone / n_draws,
            "unmatched": unmatched / n_draws if n_domains > 1 else np.nan,
            "entropy": entropy,
        }
        | {f"partners_{d}": partners[:, i] / n_draws for i, d in enumerate(draws.domains)}
    )
    return clusters, objects


class _Shares:
    """In which clusters of the estimate an object's partners are: a sparse matrix, summed up.

    In one draw it is H T: H (objects, clusters of the draw) is one-hot, T the shares of each of the
    draw's clusters; less the object's own share, since it is no partner of itself.
    """

    def __init__(self, member: np.ndarray, n_clusters: int):
        self.member = member
        self.shape = (len(member), n_clusters + 1)
        self.total = sparse.csr_array(self.shape)
        self.own = np.zeros(len(member))
        self._one_hot: list[sparse.csr_array] = []
        self._tables: list[sparse.csr_array] = []
        self._waiting = 0

    def add(self, relevant, label, sizes, cells) -> None:
        """Add one draw."""
        matched = sizes[label] > 1
        rows, columns = relevant[matched], label[matched]
        self.own[rows] += 1 / (sizes[columns] - 1)
        count = np.zeros(self.shape[0] + 1, dtype=np.int32)
        count[rows + 1] = 1
        self._one_hot.append(
            sparse.csr_array(
                (np.ones(len(rows)), columns, np.cumsum(count)), (self.shape[0], len(sizes))
            )
        )
        kept = sizes[cells.column] > 1
        row, column = cells.column[kept], cells.row[kept]
        self._tables.append(
            sparse.csr_array(
                (cells.number[kept] / (sizes[row] - 1), (row, column)), (len(sizes), self.shape[1])
            )
        )
        self._waiting += len(rows) + self.shape[0]
        if self._waiting >= _BATCH:
            self._multiply()

    def _multiply(self) -> None:
        if self._one_hot:
            self.total = self.total + sparse.hstack(self._one_hot, "csr") @ sparse.vstack(
                self._tables, "csr"
            )
            self._one_hot, self._tables, self._waiting = [], [], 0

    def entropy(self, n_draws: int, alone: np.ndarray) -> np.ndarray:
        """Entropy of where a partner is, or that there is none, shape (n_objects,)."""
        self._multiply()
        places = np.arange(len(self.member))
        self.total = self.total - sparse.csr_array((self.own, (places, self.member)), self.shape)
        # A difference of equal sums may leave a rounding error.
        q = np.clip(self.total.data / n_draws, 0.0, 1.0)
        self.total.data = _surprise(q)
        return np.asarray(self.total.sum(axis=1)).reshape(-1) + _surprise(alone)


def _surprise(q: np.ndarray) -> np.ndarray:
    """Compute -q log q, 0 at 0."""
    return -q * np.log(np.where(q > 0, q, 1.0))
