"""Which of several models of the same data predicts objects best."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model
from pymc.util import get_random_generator
from scipy.special import logsumexp

from pm_match.checks import check_given_by_name, check_model, check_seed
from pm_match.matching import best_chain
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.prediction.log_predictive import log_predictive
from pm_match.reading.coarsen import coarsenings
from pm_match.reading.probe import evaluate
from pm_match.sampling import sample

# Above this shape of the tail of its weights, an object's estimate is not reliable.
_LONG_TAIL = 0.7
# No tail is fitted to the weights of fewer draws.
_FEWEST = 25
# Relative residuals below this are rounding.
_ROUNDING = 1e-6


def compare_matchings(
    models: Mapping[str, Model],
    idata: Mapping[str, xr.DataTree] | None = None,
    *,
    draws: int = 300,
    tune: int = 300,
    chains: int = 4,
    num_draws: int = 200,
    random_seed: Any = None,
    progressbar: bool = True,
) -> pd.DataFrame:
    r"""Compare models of the same data by how well each predicts objects that it has not seen.

    Of every model the best chain is taken, and of every object its log density given all others,
    its cluster integrated out (see `log_predictive`), by importance sampling with smoothed tails:

    .. math:: \mathrm{elpd} = \sum_n \log p(x_n \mid x_{-n})

    Where densities count to a power (`coarsen`), so do those of the others; the density of the
    object that is left out is told as it is.

    Models need not see the data in the same units: tables may differ by an affine map, as
    standardised ones do from components, and densities are of the first model's. If they keep
    different columns or components, they do not compare.

    It tells how well clusters describe the objects of each domain, the others lending what the
    model has them share. Of two matchings that describe all domains alike it says nothing:
    then the difference is within a few of its standard errors.

    Parameters
    ----------
    models : mapping of str to pymc.Model
        At least two, with the same observed variables.
    idata : mapping of str to DataTree, optional
        What `sample` returned for each. Default: they are sampled.
    draws, tune, chains, random_seed, progressbar
        As in `sample`.
    num_draws : int, default 200
        How many draws of the best chain to take, at most; at least 25.

    Returns
    -------
    DataFrame
        A row for each model, the best first: ``elpd``; ``difference`` from the best, and its
        standard error ``difference_se``, over objects; ``clusters``, the mean number of clusters;
        and ``unsure``, the share of objects whose estimate is not reliable (Pareto k above 0.7).

    Raises
    ------
    UnservedModelError
        As `log_predictive`: networks, and objects with links, have no likelihoods of their own.
    TypeError
        If `models` is no mapping from names to models.
    KeyError
        If `idata` lacks a model's draws.
    ValueError
        If there are fewer than two models, their data or objects differ, or a chain has fewer
        than 25 draws.

    References
    ----------
    A. Vehtari, A. Gelman, J. Gabry (2017), "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC", Statistics and Computing 27, 1413-1432.

    Examples
    --------
    >>> tables = pmm.datasets.synthetic(40, 8, 3, 3, random_seed=3)
    >>> models = {
    ...     k: pmm.models.projected_clusters(tables, n_factors=k, projection="normal")
    ...     for k in (1, 3)
    ... }
    >>> compared = pmm.compare_matchings(
    ...     models, draws=30, tune=30, chains=2, random_seed=1, progressbar=False
    ... )
    >>> list(compared.columns)
    ['elpd', 'difference', 'difference_se', 'clusters', 'unsure']
    """
    check_seed(random_seed)
    check_given_by_name("model", models, "model")
    for model in models.values():
        check_model(model)
    if len(models) < 2:
        raise ValueError(f"models: expected at least two to compare; found {len(models)}")
    first, *others = models
    units = {first: 0.0} | {
        name: _log_units(first, models[first], name, models[name]) for name in others
    }
    found = {}
    for (name, model), seed in zip(
        models.items(), get_random_generator(random_seed).spawn(len(models)), strict=True
    ):
        if idata is None:
            own = sample(
                draws,
                tune=tune,
                chains=chains,
                random_seed=seed,
                progressbar=progressbar,
                quiet=not progressbar,
                compute_convergence_checks=False,
                model=model,
            )
        else:
            own = idata[name]
        found[name] = _left_out(own, model, num_draws, progressbar)
    objects = {name: own.coords["all_objects"].to_index() for name, own in found.items()}
    for name in others:
        if not objects[name].equals(objects[first]):
            raise ValueError(f"models: expected the objects of {first!r} in {name!r}; found others")
    told = {name: own["elpd"].to_numpy() for name, own in found.items()}
    total = {name: float(own.sum()) + units[name] for name, own in told.items()}
    best = max(total, key=lambda name: total[name])
    rows = {
        name: {
            "elpd": total[name],
            "difference": total[name] - total[best],
            "difference_se": float(np.std(own - told[best]) * np.sqrt(len(own))),
            "clusters": found[name].attrs["clusters"],
            "unsure": float((found[name]["k"] > _LONG_TAIL).mean()),
        }
        for name, own in told.items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.sort_values("elpd", ascending=False).rename_axis(index="model")


def _left_out(idata: xr.DataTree, model: Model, num_draws: int, progressbar: bool) -> xr.Dataset:
    """Give every object's log density given the others, and the shape of its weights' tail."""
    own = best_chain(idata)
    kept = min(num_draws, own["posterior"].sizes["draw"])
    if kept < _FEWEST:
        raise ValueError(
            f"expected at least {_FEWEST} draws of the best chain, to tell how long the tails of "
            f"their weights are; found {kept}"
        )
    told = entered = log_predictive(own, model, num_draws=kept, progressbar=progressbar)
    if coarsenings(model, model.observed_RVs):
        # Draws are weighed by what an object has told them, which is less than its density.
        entered = log_predictive(
            own, model, num_draws=kept, coarsened=True, progressbar=progressbar
        )
    densities, counted = (
        of["log_likelihood"]["objects"].stack(sample=SAMPLE_DIMS).to_numpy()
        for of in (told, entered)
    )
    found = [_one_left_out(*rows) for rows in zip(densities, counted, strict=True)]
    elpd, k = np.array(found).T
    return xr.Dataset(
        {"elpd": ("all_objects", elpd), "k": ("all_objects", k)},
        coords={"all_objects": told["log_likelihood"]["all_objects"]},
        attrs={"clusters": float(own["sample_stats"]["n_occupied"].mean())},
    )


def _one_left_out(told: NDArray, entered: NDArray) -> tuple[float, float]:
    """Give an object's log density given the others, from those in draws (S,) given it too."""
    # Importing it takes as long as importing PyMC.
    from arviz_stats.base import array_stats

    try:
        with warnings.catch_warnings():
            # Long tails are told.
            warnings.filterwarnings("ignore", "Estimated shape parameter")
            log_weights, k = array_stats.psislw(entered, r_eff=1.0)
    except ValueError as error:  # the largest weights are all equal: there is no tail
        if "tail values" not in str(error):
            raise
        log_weights, k = -entered - logsumexp(-entered), -np.inf
    return float(logsumexp(log_weights + told)), float(k)


# -- units ----------------------------------------------------------------------------------------


def _log_units(first: str, reference: Model, name: str, model: Model) -> float:
    """Give what turns a model's log density of all data into that of another's units."""
    expected, found = _observed(reference), _observed(model)
    if expected.keys() != found.keys():
        differ = sorted(expected.keys() ^ found.keys())
        raise ValueError(
            f"models: expected the same observed variables in {first!r} and {name!r}; found "
            f"{differ[0]!r} in one of them"
        )
    total = 0.0
    for variable, x in expected.items():
        unit = log_unit(x, found[variable])
        if unit is None:
            few = x.shape == found[variable].shape and x.ndim == 2 and len(x) < x.shape[1] + 2
            raise ValueError(
                f"models: expected the data of {variable!r} in {name!r} to be those in {first!r}, "
                f"or an affine map of them; found others{', or too few rows to tell' * few} "
                "(tables need the same columns, or as many components)"
            )
        total += unit
    return total


def _observed(model: Model) -> dict[str, NDArray]:
    values = {str(rv.name): model.rvs_to_values[rv] for rv in model.observed_RVs}
    return {name: evaluate(value) for name, value in values.items()}


def log_unit(x: NDArray, y: NDArray) -> float | None:
    """Give the log of how much denser all rows of x are than those of y, an affine map of x.

    `x`, `y` (N, M). Return N log |det A| if y = x A + b, 0 if they are equal, and None if it is no
    such map, or not told: of counts, of columns that depend on each other, and where any y would
    be one: of two rows if each column is mapped alone, of M + 1 otherwise.
    """
    if x.shape == y.shape and np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
        return 0.0
    if x.shape != y.shape or x.ndim != 2 or {x.dtype.kind, y.dtype.kind} != {"f"}:
        return None
    if len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    (x, of_x), (y, of_y) = _in_units(x), _in_units(y)
    if not (of_x.all() and of_y.all()):
        return None
    a = np.diag((x * y).sum(axis=0))
    if not _maps(x, y, a):
        if len(x) < len(a) + 2:
            return None
        a = np.linalg.lstsq(x, y)[0]
        ranks = np.linalg.matrix_rank(x), np.linalg.matrix_rank(a)
        if min(ranks) < len(a) or not _maps(x, y, a):
            return None
    log_det = np.linalg.slogdet(a)[1] + np.log(of_y).sum() - np.log(of_x).sum()
    return float(len(x) * log_det)


def _in_units(x: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bring columns around 0, with squares that sum to 1; return them, and their units."""
    x = x - x.mean(axis=0)
    unit = np.sqrt(np.square(x).sum(axis=0))
    return np.divide(x, unit, out=np.zeros_like(x), where=unit > 0.0), unit


def _maps(x: NDArray, y: NDArray, a: NDArray) -> bool:
    """Whether y is x A, but for rounding."""
    return bool(np.abs(y - x @ a).max() <= _ROUNDING)
