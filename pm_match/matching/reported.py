"""The partition that is reported, where chains may have found different matchings."""

from collections.abc import Hashable, Sequence

import xarray as xr

from pm_match.matching.diagnosis import Diagnosis
from pm_match.matching.draws import SAMPLE_DIMS, read_draws
from pm_match.matching.partition_estimate import partition_estimate


def reported(
    idata: xr.DataTree | xr.Dataset,
    diagnosis: Diagnosis,
    *,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> xr.Dataset:
    """Estimate the partition of all draws; of the best chain's, if chains found several matchings.

    These have no average. `diagnosis`: of all chains. The result's attribute ``chain`` is the chain
    that it is of, if it is of one.
    """
    draws = read_draws(idata, group)
    chains, attrs = diagnosis.chains, {}
    if diagnosis.disagree and "log_joint" in chains:
        attrs["chain"] = chains["log_joint"].idxmax()
        if draws.sizes[sample_dims[0]] == len(chains):
            draws = draws.isel({sample_dims[0]: [int(chains["log_joint"].argmax())]})
    found = partition_estimate(draws, progressbar=progressbar, sample_dims=sample_dims)
    return found.assign_attrs(attrs)
