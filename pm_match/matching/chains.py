"""Which chain found the highest mode, and whether the chains agree."""

from __future__ import annotations

import xarray as xr

from pm_match.matching.draws import log_joint_of

__all__ = ["best_chain", "log_joint_rhat"]


def best_chain(idata: xr.DataTree) -> xr.DataTree:
    """Keep only the chain with the highest mean of the collapsed log joint.

    Chains that settle in different modes are better compared than averaged: the papers run
    several and keep the one with the highest likelihood. What is left says nothing about the
    other modes.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.

    Returns
    -------
    DataTree
        With one chain, which keeps its number.
    """
    log_joint = log_joint_of(idata)
    best = int(log_joint.mean("draw").argmax("chain"))
    return idata.map_over_datasets(
        lambda dataset: dataset.isel(chain=[best]) if "chain" in dataset.dims else dataset
    )


def log_joint_rhat(idata: xr.DataTree) -> float:
    """Compute R-hat of the collapsed log joint: near 1 when the chains agree.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.

    Returns
    -------
    float
        NaN with fewer than two chains or four draws, which cannot disagree.
    """
    log_joint = log_joint_of(idata)
    if log_joint.sizes["chain"] < 2 or log_joint.sizes["draw"] < 4:
        return float("nan")
    # Importing it takes as long as importing PyMC.
    from arviz_stats import rhat

    return float(rhat(log_joint))
