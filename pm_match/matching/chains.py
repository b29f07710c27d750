"""Which chain found the highest mode, and whether the chains agree."""

import numpy as np
import scipy
import xarray as xr

from pm_match.matching.draws import log_joint_of, needs_tree

# Chains with distances below this agree, whatever their noise.
_NEAR = 0.1
# By how much chains' distance has to exceed what their own halves lead one to expect.
_BEYOND = 2.0


def best_chain(idata: xr.DataTree) -> xr.DataTree:
    """Keep only the chain with the highest mean of the collapsed log joint.

    Clusters of chains that settle in different modes have no average. The papers run several and
    keep the one with the highest likelihood. The result says nothing about the other modes, so that
    its probabilities are mostly too sure.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.

    Returns
    -------
    DataTree
        With one chain, which keeps its number. Groups of draws from the prior are left as they are.

    Raises
    ------
    TypeError
        If `idata` is not a DataTree.
    KeyError
        If it has no sampler statistics with a log joint.
    ValueError
        If a group has other chains than the log joint, as where some were taken out of it alone.

    Examples
    --------
    >>> idata = xr.DataTree.from_dict({
    ...     "posterior": xr.Dataset({"weight": (["chain", "draw"], [[0.1, 0.2], [0.3, 0.4]])}),
    ...     "sample_stats": xr.Dataset({"log_joint": (["chain", "draw"], [[-9, -8], [-5, -6]])}),
    ... })
    >>> pmm.best_chain(idata)["posterior"]["weight"].values
    array([[0.3, 0.4]])
    """
    needs_tree(idata)
    log_joint = log_joint_of(idata)
    best = int(log_joint.mean("draw").argmax("chain"))
    groups = {}
    for path, node in idata.subtree_with_keys:
        group = groups[path] = node.to_dataset(inherit=False)
        if "chain" in group.dims and not path.startswith("prior"):
            _check_chains(path, group, log_joint)
            groups[path] = group.isel(chain=[best])
    return xr.DataTree.from_dict(groups, name=idata.name)


def _check_chains(path: str, group: xr.Dataset, log_joint: xr.DataArray) -> None:
    """Refuse a group of other chains than the log joint is of, as far as they are numbered."""
    numbered = "chain" in group.indexes and "chain" in log_joint.indexes
    expected, found = log_joint["chain"].to_numpy(), group["chain"].to_numpy()
    if len(expected) != len(found) or (numbered and (expected != found).any()):
        raise ValueError(
            f"group {path!r}: expected the chains of the log joint, {expected.tolist()}; "
            f"found {found.tolist()}"
        )


def log_joint_rhat(idata: xr.DataTree) -> float:
    """Compute R-hat of the collapsed log joint: near 1 when the chains agree.

    `idata`: what `pm_match.sample` returns. Return NaN with fewer than two chains or four draws,
    which cannot disagree.
    """
    log_joint = log_joint_of(idata)
    if log_joint.sizes["chain"] < 2 or log_joint.sizes["draw"] < 4:
        return float("nan")
    # Importing it takes as long as importing PyMC.
    from arviz_stats import rhat

    return float(rhat(log_joint))


def chain_distances(together: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Compare the co-clustering probabilities of chains, and of each chain's halves.

    .. math:: d_{cd} = \sum_p |P_{cp} - P_{dp}| \Big/ \sum_p (P_{cp} + P_{dp})

    over pairs p of objects, with :math:`P_c` the probabilities by chain c alone: the mean absolute
    difference of co-clustering matrices, relative to their size (Bray and Curtis). 0 if chains
    say the same, 1 if no pair shares a cluster in both.

    `together` (n_chains, n_draws, n_pairs), booleans. Return the distances of chains
    (n_chains, n_chains), and the distance (n_chains,) that a chain of the same law would have from
    each, by its own halves: theirs divided by the square root of 2, as halves have half the draws.
    0 with one draw.
    """
    probability = together.mean(axis=1)
    half = together.shape[1] // 2
    expected = np.zeros(len(together))
    if half:
        first, second = together[:, :half].mean(axis=1), together[:, -half:].mean(axis=1)
        expected = _relative(first, second) / np.sqrt(2)
    return _relative(probability[:, None], probability[None]), expected


def _relative(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    total = (one + other).sum(axis=-1)
    return np.abs(one - other).sum(axis=-1) / np.where(total > 0, total, 1)


def groups_of_chains(distance: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Give the chains (n_chains,) that agree, directly or through others, the same number."""
    noise = (expected[:, None] + expected[None]) / 2
    near = distance <= np.maximum(_NEAR, _BEYOND * noise)
    return scipy.sparse.csgraph.connected_components(near, directed=False)[1]
