"""Whether chains have found the posterior, judged on what no relabelling changes, in words too."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.checks import check_count, no_such
from pm_match.matching.advice import convergence_advice, not_agreed, truncation_advice
from pm_match.matching.chains import chain_distances, groups_of_chains
from pm_match.matching.diagnosis import Diagnosis
from pm_match.matching.draws import PREFIX, SAMPLE_DIMS, assignment_names, read_draws, weights_dim
from pm_match.matching.given_labels import given_labels
from pm_match.matching.landmarks import landmark_counts
from pm_match.matching.mixing import mixing, worst_of
from pm_match.matching.set_draws import names_of, read_sets
from pm_match.matching.traces import choose_pairs, pair_name, pair_traces, partition_traces
from pm_match.matching.unbounded import unbounded

_MOVES = (
    "moved",
    "swap_accepted",
    "split_merge_accepted",
    "exchange_accepted",
    "permute_accepted",
)

# If fewer of the pairs that share a cluster are of different domains, they do not tell of
# matchings: rare ones differ between any two chains.
_ENOUGH = 0.25


def diagnose(
    idata: xr.DataTree | xr.Dataset,
    labels: xr.Dataset | None = None,
    *,
    n_pairs: int = 200,
    random_seed: int = 0,
    also: Sequence[str] = (),
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> Diagnosis:
    """Judge whether chains have found the posterior, and say what to do if not.

    R-hat of labels means nothing, as the same cluster has other numbers in other chains. Judged are
    the collapsed log joint; the number of occupied clusters, the entropy
    of their sizes and the distance (variation of information) from one partition; whether
    pairs of objects share a cluster, the worst of them; and all single numbers of the
    posterior, such as a noise precision. None of these depends on how clusters are numbered. No
    model is needed. The log joint and the acceptance of moves come from the group ``sample_stats``,
    if it is there and has the draws of the posterior. Of a run that recorded landmarks (`sample`),
    the partition is that of the landmarks.

    Chains whose co-clustering probabilities, of all pairs or of those of different domains, differ
    by more than their own halves lead one to expect have found different matchings. They are listed
    by group, with their log joints. Chains that end where a cluster has equal values, and a scale
    next to zero, are pointed out.

    Time and memory grow with objects times draws; no matrix of pairs is built.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    labels : Dataset, optional
        The partition that distances are from, such as `partition_estimate`'s. Default: the draw
        with the highest log joint, or the last one if there is no log joint.
    n_pairs : int, default 200
        How many pairs of objects of every set of clusters are looked at: all if there are not more,
        else a random half of any two, and one of two that share a cluster in some draw.
    random_seed : int, default 0
        Seed of the choice of pairs.
    also : sequence of str
        Further variables of the posterior that no relabelling changes, to be judged by their worst
        entries. Single numbers are judged anyway.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of two hashables
        The dimensions that number chains and draws.
    var_names : sequence of str, optional
        Assignment variables. Default: all whose name starts with ``cluster_``; there may be none.

    Returns
    -------
    Diagnosis
        `print` it. In its table R-hat is 1 for what is constant, infinite for what is stuck at
        different values in different chains, and NaN ("-") with one chain or less than four draws.

    Raises
    ------
    KeyError
        If there is no such group or variable, nothing to judge, or no labels of an assignment.
    ValueError
        If a variable is not an assignment, labels do not fit it, or a parameter is not as
        described.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> posterior = xr.Dataset({  # the chains have found two different matchings
    ...     "cluster_a": (["chain", "draw", "a"], np.tile([0, 0, 1, 1], (2, 200, 1))),
    ...     "cluster_b": (["chain", "draw", "b"], np.tile([[[0, 0, 1]], [[1, 1, 0]]], (1, 200, 1))),
    ... })
    >>> print(pmm.diagnose(posterior))
                                  mean       sd r_hat ess_bulk ess_tail                       note
    quantity
    occupied clusters                2        0 1.000      400      400
    constant
    entropy of sizes            0.6829 1.11e-16 1.000      400      400
    constant
    distance from a partition    0.965    0.965   inf        -        -  stuck at different
    values
    worst of 21 pairs: a 0, b 0    0.5      0.5   inf        -        -  stuck at different
    values
    <BLANKLINE>
           group  within
    chain
    0          0       0
    1          1       0
    <BLANKLINE>
    - The chains found different matchings: chain 0; chain 1. Chains in different modes do not
    mix by being longer: look for the best mode with more searches (find_matching), tune for
    longer, or take clusters of the best chain (best_chain).
    - R-hat is larger than 1.01 for distance from a partition (inf), worst of 21 pairs: a 0, b 0
    (inf): the chains do not agree (inf: stuck at different values).
    """
    if len(sample_dims) != 2:
        raise ValueError(f"sample_dims: expected chains and draws; found {sample_dims!r}")
    also = [also] if isinstance(also, str) else list(also)
    check_count("n_pairs", n_pairs)
    posterior = read_draws(idata, group)
    counts = landmark_counts(idata, group)
    if counts is not None:
        drawn = [name for name in counts if set(sample_dims) <= set(counts[name].dims)]
        posterior = posterior.merge(counts[drawn])
    if var_names is None and not assignment_names(posterior):
        var_names = []
    assignments = var_names if var_names == [] else names_of(posterior, var_names, group)
    # Without assignments, the log joint and single numbers can still be judged.
    sets = read_sets(posterior, assignments, group, sample_dims) if assignments else []
    shape = tuple(posterior.sizes[dim] for dim in sample_dims)
    dim = sample_dims[0]
    names = posterior[dim].to_numpy() if dim in posterior.coords else np.arange(shape[0])
    stats = _statistics(idata, posterior, sample_dims) if group == "posterior" else {}
    log_joint = stats.get("log_joint")
    best = int(np.argmax(log_joint)) if log_joint is not None else -1

    rows: dict[str, dict[str, Any]] = {}
    worst: list[str] = []
    if log_joint is not None:
        _add(rows, "log_joint", log_joint)
    by_set: list[np.ndarray] = []
    matched: list[np.ndarray] = []  # pairs of different domains
    for draws in sets:
        which = f" ({draws.title})" if len(sets) > 1 else ""
        which += "" if counts is None else " (landmarks)"
        reference = draws.draw(best)[0] if labels is None else given_labels(labels, draws)
        for title, trace in partition_traces(draws, reference).items():
            _add(rows, title + which, trace.reshape(shape))
        pairs = choose_pairs(draws, n_pairs, np.random.default_rng(random_seed))
        if len(pairs):
            together = pair_traces(draws, pairs).reshape(*shape, -1)
            place = worst_of(together)
            worst.append(f"worst of {len(pairs)} pairs{which}: {pair_name(draws, pairs[place])}")
            _add(rows, worst[-1], together[..., place])
            by_set.append(together)
            one, other = draws.domain_of[pairs].T
            across = together[..., one != other]
            if across.sum() > _ENOUGH * together.sum():
                matched.append(across)
    for title, trace in _numbers(posterior, sample_dims, also):
        _add(rows, title, trace)
    if not rows:
        raise KeyError(
            f"nothing to judge: no log joint, no assignment variable (its name starts with "
            f"{PREFIX!r}) and no single number; there are {sorted(map(str, posterior.data_vars))}"
        )
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(index="quantity")

    together = np.concatenate(by_set, axis=2) if by_set else np.zeros((*shape, 0), bool)
    distance, within = chain_distances(together)
    # The chains of a group agree on all sets of clusters, and on what matches between domains.
    groups = _relabelled(
        np.column_stack([groups_of_chains(*chain_distances(p)) for p in [*by_set, *matched]])
        if by_set
        else np.zeros((shape[0], 1), int)
    )
    chains = pd.DataFrame({"group": groups}, index=pd.Index(names.tolist(), name="chain"))
    if log_joint is not None:
        chains["log_joint"] = log_joint.mean(axis=1)
    chains["within"] = within
    for move in _MOVES:
        if move in stats:
            chains[move] = stats[move].mean(axis=1)
    filled = _filled(posterior, sets if counts is None else [], stats, sample_dims)
    high = not_agreed(table, worst, shape[1])
    endless = (
        unbounded(idata, posterior, sets, names.tolist(), sample_dims) if counts is None else []
    )
    return Diagnosis(
        table,
        chains,
        pd.DataFrame(distance, index=chains.index, columns=chains.index),
        filled,
        list(high.index),
        convergence_advice(table, worst, chains, shape[1], high, endless),
        truncation_advice(filled),
    )


def _statistics(
    idata: Any, posterior: xr.Dataset, sample_dims: Sequence[Hashable]
) -> dict[str, np.ndarray]:
    """Read what is known of the sampler's statistics of these draws, shape (chains, draws) each.

    With several components there is one entry for each: log joints add up, the fullest of
    truncations counts, and moves are averaged.
    """
    if not isinstance(idata, xr.DataTree) or "sample_stats" not in idata.children:
        return {}
    stats = idata.children["sample_stats"].to_dataset()
    for dim in sample_dims:
        # A posterior that was thinned alone has draws of its own.
        if stats.sizes.get(dim) != posterior.sizes[dim]:
            return {}
        both = dim in stats.indexes and dim in posterior.indexes
        if both and not stats.indexes[dim].equals(posterior.indexes[dim]):
            return {}
    how: dict[str, Callable[..., np.ndarray]] = {"log_joint": np.sum, "filled": np.max}
    found = {}
    for name in ("log_joint", "filled", *_MOVES):
        if name in stats and set(sample_dims) <= set(stats[name].dims):
            values = stats[name].transpose(*sample_dims, ...).to_numpy()
            values = values.reshape(*values.shape[:2], -1).astype(float)
            if np.isfinite(values).all():
                found[name] = how.get(name, np.mean)(values, axis=2)
    return found


def _numbers(
    posterior: xr.Dataset, sample_dims: Sequence[Hashable], also: Sequence[str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield titles and traces of single numbers, and of the worst entries of `also`.

    What is not finite in a draw, such as the log of an empty block's density, cannot be judged.
    """
    for name in also:
        if name not in posterior:
            raise KeyError(no_such(f"variable {name!r} among the draws", posterior, name))
    for key, variable in posterior.data_vars.items():
        if variable.dtype.kind not in "iuf" or not set(sample_dims) <= set(variable.dims):
            continue
        values = variable.transpose(*sample_dims, ...).to_numpy()
        if values.ndim == len(sample_dims):
            if np.isfinite(values).all():
                yield str(key), values
        elif key in also:
            finite = np.isfinite(values).all(axis=(0, 1))
            entries = np.argwhere(finite)
            if len(entries):
                place = _worst(values[:, :, finite])
                entry = ", ".join(map(str, entries[place]))
                yield f"worst of {key}: [{entry}]", values[:, :, finite][..., place]


def _add(rows: dict[str, dict[str, Any]], title: str, trace: np.ndarray) -> None:
    found = mixing(trace)
    rows[title] = {"mean": trace.mean(), "sd": trace.std()} | found._asdict()


def _worst(traces: np.ndarray) -> int:
    """Which of several quantities, shape (n_chains, n_draws, n), mixes worst."""
    judged = [mixing(traces[..., i]) for i in range(traces.shape[2])]
    # R-hats below 1 are as good as 1, and so is a single chain's NaN: then effective draws tell.
    key = [(-np.fmax(m.r_hat, 1.0), np.nan_to_num(m.ess_bulk, nan=0.0)) for m in judged]
    return min(range(len(judged)), key=key.__getitem__)


def _relabelled(keys: np.ndarray) -> np.ndarray:
    """Give equal rows (n_rows,) the same number 0, 1, …, in the order in which they appear."""
    return pd.factorize(np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1))[0]


def _filled(posterior, sets, stats, sample_dims) -> float:
    """Share of draws that use all clusters of some set, as far as their number is known."""
    if "filled" in stats:
        return float((stats["filled"] >= 1).mean())
    full = None
    for draws in sets:
        dim = weights_dim(posterior, draws.title or "weights", sample_dims)
        if dim is not None:
            own = np.array([len(sizes) >= posterior.sizes[dim] for _, sizes in draws])
            full = own if full is None else full | own
    return float("nan") if full is None else float(full.mean())
