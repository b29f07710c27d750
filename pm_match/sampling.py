"""`pm.sample` with a matching model's steps, starts that differ, and checks that mean something."""

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import pymc as pm
import xarray as xr
from pymc.model.core import Model, modelcontext
from pymc.stats.convergence import log_warnings
from threadpoolctl import threadpool_limits

from pm_match.reading import read
from pm_match.results import annotate, convergence_warnings, warn_if_full
from pm_match.serving import steps
from pm_match.starts import check_init, initial_points

__all__ = ["sample"]

# PyMC's: what it says of its steps is said there.
_log = logging.getLogger("pymc")


def sample(
    draws: int = 1000,
    *,
    model: Model | None = None,
    chains: int | None = 4,
    random_seed: Any = None,
    step: Any = None,
    initvals: Any = None,
    init: str = "search",
    compute_convergence_checks: bool = True,
    **kwargs: Any,
) -> xr.DataTree:
    """Sample a matching model.

    This is `pm.sample` with our steps, searched starts, and convergence checks fit for labels.

    Takes the arguments of `pm.sample`. What differs:

    - our steps sample what they serve (see `steps`), PyMC's own the rest;
    - chains start at `initial_points`, unless `initvals` says otherwise: every chain at the mode
      that a search of its own finds, which takes some seconds;
    - labels mean nothing across draws and chains, so convergence is judged as `diagnose` does, on
      quantities that do not depend on them, and on every variable that our steps do not draw; its
      advice is logged;
    - there are four chains by default, as these checks need.

    Parameters
    ----------
    draws : int, default 1000
    model : pymc.Model, optional
        Default: the model of the context.
    chains : int, default 4
    random_seed : int, sequence of int, Generator or SeedSequence, optional
        The same seed gives the same draws, bit for bit, whatever `cores` is. What NUTS draws may
        differ by rounding if the same model object is sampled again, as PyTensor compiles it anew.
    step : step or list of steps, optional
        Steps of your own; ours take what these leave.
    initvals : dict or list of dict, optional
        Starts, in the form of `pm.sample`.
    init : {"search", "dispersed"}, default "search"
        What chains start from without `initvals`: see `initial_points`. (PyMC's own `init` is of
        models that NUTS samples whole.)
    compute_convergence_checks : bool, default True
    **kwargs
        Passed to `pm.sample`.

    Returns
    -------
    DataTree
        As from `pm.sample`. ``posterior.attrs["projections"]`` says how projections were found:
        ``"map"`` makes the chain the papers' stochastic EM, ``"drawn"`` a Markov chain Monte Carlo
        sample. Every assignment's ``attrs["clusters"]`` names its set of clusters: labels of
        different sets are not to be compared.

    Raises
    ------
    UnservedModelError
        If no part of the model is one that the steps can serve.
    ValueError
        If `init` is neither.

    Warns
    -----
    UserWarning
        If a part of the model is left to PyMC, or if the draws fill the truncation.
    """
    model = modelcontext(model)
    structure = read(model)
    given = [] if step is None else list(step) if isinstance(step, Sequence) else [step]
    ours = steps(model, given=given)
    if structure.refusals:
        warnings.warn(
            f"left to PyMC's own steps: {structure.explain()}.", UserWarning, stacklevel=2
        )
    if structure.notes and not kwargs.get("quiet"):
        _log.info(f"By tables of log densities, which takes longer: {structure.remarks()}.")
    chains = 4 if chains is None else chains
    check_init(init)
    if initvals is None:
        shown = bool(kwargs.get("progressbar", True)) and not kwargs.get("quiet")
        initvals = initial_points(model, chains, random_seed, init=init, progressbar=shown)
    # The steps' matrices are small: threads of BLAS would only get in each other's way.
    with model, threadpool_limits(1, user_api="blas"):
        idata = pm.sample(
            draws,
            step=[*given, *ours],
            chains=chains,
            random_seed=random_seed,
            initvals=initvals,
            compute_convergence_checks=False,
            **kwargs,
        )
    if not isinstance(idata, xr.DataTree):
        return idata
    annotate(idata, structure, [*given, *ours])
    warn_if_full(idata, model)
    if compute_convergence_checks and not kwargs.get("quiet"):
        log_warnings(convergence_warnings(idata, model))
    return idata
