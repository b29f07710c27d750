"""Missing values, predicted."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import check_seed, warn
from pm_match.matching.draws import MISSING, SAMPLE_DIMS
from pm_match.matching.interval_levels import interval_levels
from pm_match.prediction.components import Components, draw_weights, predicted
from pm_match.prediction.new_objects import find_place, places, read_new_objects
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictive import Predictive, check_possible
from pm_match.prediction.predictor import Holes, NewObjects, Place, Predictor
from pm_match.prediction.summaries import summary_dataset
from pm_match.reading.probe import without_c


@without_c()
def impute(
    idata: xr.DataTree | xr.Dataset,
    model: Model,
    new_data: Mapping[str, Any] | None = None,
    *,
    ci_prob: float | None = None,
    reweight: bool = True,
    num_draws: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    r"""Predict missing values, in the shape of their tables, with intervals.

    Each is a mixture of distributions over draws: for the objects of the data one a draw, given
    their clusters in it, and for new objects one for each draw and cluster, given what is observed
    of them, weighted as in `assign`. Features are normal, with latent vectors integrated out,

    .. math:: x_{dnm} \mid s \sim N(w_{dm}^\top \mu_j,\; \alpha^{-1} + w_{dm}^\top C_j w_{dm}),
              \quad j = s_{dn}

    (eq. 23–26 of Iwata, Hirao & Ueda 2016). Independent columns have the distribution that they are
    declared with, with parameters that are drawn from their conditional in each draw; so have
    vectors of normal clusters, but new ones are t: parameters are integrated out, or, where
    precisions have factors, these are, and parameters are those of the draw. Unknown cells of
    networks have the family of the network, with the drawn density of their block: their means
    predict links; those of new objects are not predicted. Mean and quantiles are those of the
    mixture, so that they are steadier than those of the recorded draws ``<name>_unobserved``, which
    say the same. Columns of log-normal, exponential, geometric and negative binomial values get the
    median instead of the mean, which may be infinite. So do normal ones if any of their precisions
    has a Gamma prior of shape 1/2 or less, and vectors that have a t of one degree in a cluster.
    Those of any other likelihood, and of columns whose missing values something else depends on,
    are left out: these draws alone say what they are.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` or `find_matching` returns, or its posterior.
    model : pymc.Model
        The model that was sampled.
    new_data : mapping, optional
        From domains to what is seen of new objects, as `assign` takes it; their missing features
        or cells are predicted. Default: those of the data.
    ci_prob : float, optional
        The probability of the equal-tailed intervals. Default: ArviZ's
        ``rcParams["stats.ci_prob"]``.
    reweight, num_draws, progressbar, group, sample_dims
        As in `assign`.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
        Of the draws of parameters.
    var_names : sequence of str, optional
        Without new data, the domains, or variables, to predict. Default: all that have missing
        values.

    Returns
    -------
    Dataset
        For every domain with features, every variable with columns, and every network, ``<name>``,
        ``<name>_lower`` and ``<name>_upper``, in its shape (networks as matrices; of several axes
        with the same objects, the dims of all but the first end in "_other"): mean (or median) and
        ends of the interval where a value is missing, and the value itself where it is not. For
        categories ``<name>``, the code of the most probable one, and ``<name>_probability``. All
        are as the model has them: `models.table_clusters` and `models.normal_clusters` standardise
        tables, which ``found * table.std(ddof=0) + table.mean()`` undoes.

    Raises
    ------
    UnservedModelError, KeyError, TypeError
        As `assign`.
    ValueError
        If there are no missing values in the data, or they cannot be predicted; and as `assign`.
    MemoryError
        If the matrix of a network would take more than 4 GiB (or what the environment variable
        ``PM_MATCH_MEMORY`` says).

    Warns
    -----
    UserWarning
        If there are missing values that only draws say something of.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, missing=0.1, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> filled = pmm.impute(idata, model, ci_prob=0.9, progressbar=False)
    >>> filled["a"].shape, int(filled["a"].isnull().sum())
    ((60, 20), 0)
    """
    check_seed(random_seed)
    levels = interval_levels(ci_prob)
    points = RecordedPoints(idata, model, group, sample_dims, num_draws)
    rng = np.random.default_rng(random_seed)
    found = []
    if new_data is None:
        for place, predictive, predictor, holes in _with_missing(model, points, var_names):
            blocks = _of_data(rng, points, predictive, predictor, place, holes, levels, progressbar)
            objects = holes.axes or ((place.assignment.name,) if holes.by_object else ())
            found.append(summary_dataset(model, points, holes.variable, blocks, objects))
        return xr.merge(found)
    if var_names is not None:
        raise ValueError(
            "var_names: expected none with new_data, which names its domains itself; found some"
        )
    for domain, given in new_data.items():
        place = find_place(points.structure, domain)
        predictive = Predictive(model, place.component)
        new = read_new_objects(model, predictive, place, given)
        some = [
            (n, own)
            for n, seen in new.seen.items()
            for own in _predictor(predictive, n).holes(place, seen)
        ]
        if not some:
            raise ValueError(
                f"new_data: expected features or columns of domain {domain!r}, some of them "
                "missing; found none"
            )
        for number, holes in some:
            whole = _of_new(
                rng, points, predictive, new, number, holes, levels, reweight, progressbar
            )
            found.append(summary_dataset(model, points, holes.variable, whole, new))
    return xr.merge(found)


def _predictor(predictive: Predictive, number: int) -> Predictor:
    found = predictive.predictors[number]
    assert found is not None
    return found


def _with_missing(
    model: Model, points: RecordedPoints, var_names: Sequence[str] | None
) -> list[tuple[Place, Predictive, Predictor, Holes]]:
    """Find the variables with missing values."""
    found: list[tuple[Place, Predictive, Predictor, Holes]] = []
    made: dict[int, Predictive] = {}
    for place in places(points.structure):
        predictive = made.setdefault(id(place.component), Predictive(model, place.component))
        for predictor in predictive.predictors:
            if predictor is not None:
                found += [(place, predictive, predictor, own) for own in predictor.holes(place)]
    if var_names is not None:
        chosen = []
        for name in var_names:
            own = [
                f
                for f in found
                if name in (f[3].name, f[3].variable, f[0].domain, f[0].assignment.name)
            ]
            if not own:
                domain = find_place(points.structure, name).domain
                raise ValueError(f"var_names: expected missing values in {domain!r}; found none")
            chosen += own
        return chosen
    known = {place.assignment.name for place in places(points.structure)}
    known |= {own.variable.removesuffix("_observed") for *_, own in found}
    free = {str(rv.name) for rv in model.free_RVs} - {f"{name}{MISSING}" for name in known}
    drawn = ", ".join(sorted(repr(name) for name in free if name.endswith(MISSING)))
    if not found:
        raise ValueError(
            "expected a domain with missing values that are integrated out; found "
            + (f"{drawn}, which draws have" if drawn else "none")
            + ". pm_match.impute takes new_data, which may have some"
        )
    if drawn:
        warn(f"impute does not predict {drawn}: only their draws say what they may be.")
    return found


def _of_data(
    rng: np.random.Generator,
    points: RecordedPoints,
    predictive: Predictive,
    predictor: Predictor,
    place: Place,
    holes: Holes,
    levels: NDArray,
    progressbar: bool,
) -> dict[str, NDArray]:
    """Predict the missing values of a variable of the data."""
    whole = _known(holes)
    missing, weight = np.flatnonzero(np.isnan(holes.values)), np.ones(points.n_draws)
    for wanted, draws in predicted(points, predictive, len(missing), 1, progressbar):
        law = holes.law(np.stack([predictor.of_missing(rng, place, holes, wanted) for _ in draws]))
        for table, own in zip(whole.values(), law.summaries(weight, levels), strict=True):
            table.ravel()[missing[wanted]] = own
    return {name: holes.whole(own) if holes.whole else own for name, own in whole.items()}


def _known(holes: Holes) -> dict[str, NDArray[np.float64]]:
    """Make the tables of what is said of every value, as far as it is known."""
    return {
        f"{holes.name}{end}": np.where(
            np.isnan(holes.values), np.nan, holes.values if known is None else known
        )
        for end, known in holes.summarised
    }


def _of_new(
    rng: np.random.Generator,
    points: RecordedPoints,
    predictive: Predictive,
    new: NewObjects,
    number: int,
    holes: Holes,
    levels: NDArray,
    reweight: bool,
    progressbar: bool,
) -> dict[str, NDArray]:
    """Predict the missing values of new objects."""
    predictor, whole = _predictor(predictive, number), _known(holes)
    n_values = holes.values[0].size
    for rows, draws in predicted(points, predictive, len(new), n_values, progressbar):
        own = new.rows(rows)
        collected: dict[bytes, tuple[NDArray, NDArray, Components]] = {}
        top = np.full(len(own), -np.inf)
        for _ in draws:
            log_weight = draw_weights(predictive, own, reweight)
            top = np.maximum(top, log_weight.max(axis=1))
            for members, hidden, weight, parameters in predictor.of_new(
                rng, new.place, own.seen[number], holes, log_weight
            ):
                key = hidden.tobytes()
                if key not in collected:
                    components = Components(len(members), int(hidden.sum()), holes.law)
                    collected[key] = members, hidden, components
                collected[key][2].add(np.arange(len(members)), weight, parameters)
        check_possible(own, top, "some draw")
        for members, hidden, components in collected.values():
            tables = zip(whole.values(), components.summaries(levels), strict=True)
            for table, found in tables:
                table.reshape(len(new), -1)[np.ix_(rows.start + members, hidden)] = found
    return whole
