"""What every object's data are worth under a model, its cluster integrated out."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model
from scipy.special import logsumexp

from pm_match.matching.draws import PREFIX, SAMPLE_DIMS, needs_tree
from pm_match.prediction.points import RecordedPoints
from pm_match.progress import PATIENCE, SearchProgress
from pm_match.reading import as_read
from pm_match.reading.ancestry import RV, Ancestry, depends, missing_part
from pm_match.reading.coarsen import coarsenings
from pm_match.reading.evidence import Evidence, Point
from pm_match.reading.label_tables import LabelDensities
from pm_match.reading.own_weights import WEIGHTS_OF
from pm_match.reading.owners import Owned, check_owners, each_label, find_owners, mixed_labels
from pm_match.reading.parts import Assignment, UnservedModelError
from pm_match.reading.probe import without_c

# Draws that are looked at to find whose an entry is.
_LOOKED_AT = 5


@without_c()
def log_predictive(
    idata: xr.DataTree,
    model: Model,
    *,
    num_draws: int | None = None,
    coarsened: bool = False,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Compute the log likelihood of every object, with its cluster integrated out.

    Given a draw of all parameters :math:`\theta` (weights too), objects are independent, and

    .. math:: \log p(x_n \mid \theta) =
              \log \sum_k p(s_n = k \mid \theta) \, p(x_n \mid s_n = k, \theta) .

    Labels are what differs most from draw to draw, and an object's likelihood given its own label
    is no measure of how well it is predicted: this is what `arviz.loo` and `arviz.compare` should
    be given, to choose between models of the same data. Objects that may be irrelevant are so with
    their prior probability. Factors of normal vectors' precisions, which make these Student's t,
    are integrated out. Other effects and flags of single objects are given, as parameters are. Of
    missing values nothing is asked. Powers to which densities count (`coarsen`) are left out,
    unless `coarsened`: what predicts is the density itself.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns, with all its variables.
    model : pymc.Model
        The model that was sampled.
    num_draws : int, optional
        How many draws of each chain to take, evenly spaced. Default: all. Models that are compared
        should have about as many.
    coarsened : bool, default False
        Whether densities are to count as they do in the posterior. What is told is then what each
        object has told the draws, which weighs them when it is left out (see `compare_matchings`).
    progressbar : bool, default True

    Returns
    -------
    DataTree
        A copy of `idata` with the group ``log_likelihood``, in which the variable ``objects`` has
        dims (chain, draw, all_objects): all objects of all assignments, called ``domain: label``.
        With `num_draws`, ``posterior`` and ``sample_stats`` have the draws taken.

    Raises
    ------
    TypeError
        If `idata` is not a DataTree.
    UnservedModelError
        If no object has a likelihood of its own: in networks, whose cells depend on the labels of
        two; where objects are linked, or labels known; where a row of several variables is missing
        in part; or where a potential, or data by way of another variable, depend on labels.
    KeyError
        If the draws lack a variable.

    References
    ----------
    A. Vehtari, A. Gelman, J. Gabry (2017), "Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC", Statistics and Computing 27, 1413-1432.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> pointwise = pmm.log_predictive(idata, model, progressbar=False)
    >>> sorted(pointwise["log_likelihood"])
    ['objects']
    """
    needs_tree(idata)
    points = RecordedPoints(idata, model, "posterior", SAMPLE_DIMS, num_draws, everything=True)
    tables = [
        _Objects(model, assignment, clustering.truncation, component.evidence, points, coarsened)
        for component in points.structure.components
        for clustering in component.clusterings
        for assignment in _free(clustering)
    ]
    if not tables:
        raise UnservedModelError(f"no objects to predict: {points.structure.explain()}.")
    found = []
    with SearchProgress(len(points), progressbar, after=PATIENCE, title="Predicting") as progress:
        for point in points:
            found.append(np.concatenate([table.log_likelihood(point) for table in tables]))
            progress.advance()
    shape = tuple(points.posterior.sizes[dim] for dim in SAMPLE_DIMS)
    names = [name for table in tables for name in table.labels(points)]
    told = xr.DataArray(
        np.array(found).reshape(*shape, -1),
        dims=(*SAMPLE_DIMS, "all_objects"),
        coords={dim: points.posterior[dim] for dim in SAMPLE_DIMS} | {"all_objects": names},
    )
    result = idata.copy()
    result["log_likelihood"] = xr.DataTree(xr.Dataset({"objects": told}))
    if num_draws is not None:
        result["posterior"] = xr.DataTree(points.posterior)
        if "sample_stats" in result.children:
            stats = result["sample_stats"].to_dataset()
            # Runs that were put together repeat numbers of draws.
            same = stats["draw"].to_index().equals(idata["posterior"]["draw"].to_index())
            taken = (
                stats.isel(draw=points.kept) if same else stats.sel(draw=points.posterior["draw"])
            )
            result["sample_stats"] = xr.DataTree(taken)
    return result


def _free(clustering: Any) -> Sequence[Assignment]:
    """Give the assignments of a clustering, of which nothing is known."""
    if len(clustering.links) or len(clustering.apart) or (clustering.known >= 0).any():
        names = ", ".join(repr(own.name) for own in clustering.assignments)
        raise UnservedModelError(
            f"{names}: expected objects that are independent given the parameters; found links or "
            "known labels"
        )
    return clustering.assignments


class _Objects:
    """The log densities of one assignment's objects, under every label."""

    def __init__(
        self,
        model: Model,
        own: Assignment,
        truncation: int,
        evidence: Sequence[Evidence],
        points: RecordedPoints,
        coarsened: bool,
    ):
        self.name, self.n, self._evidence = own.held[0], own.n_objects, evidence
        self._coarsened = coarsened
        if own.parts:
            model = as_read(model)
        assignment = model[own.name]
        weights = [model[f"{WEIGHTS_OF}{part.name!r}"] for part in own.parts]
        relevance = None if own.relevance is None else model[own.relevance]
        self._flags = None if relevance is None else model.rvs_to_values[relevance].name
        observed = [rv for rv in model.observed_RVs if depends(rv, [assignment])]
        every = {
            other.name
            for component in points.structure.components
            for clustering in component.clusterings
            for other in clustering.assignments
        }
        parents = Ancestry(model).parents
        for rv in observed:
            _check_whole(model, rv)
            others = parents[rv] - {assignment}
            by_way = [own for own in others if depends(own, [assignment])]
            if by_way or assignment not in parents[rv]:
                between = ", ".join(sorted(repr(own.name) for own in by_way or others))
                raise UnservedModelError(
                    f"{self.name!r}: expected data that depend on its labels themselves; found "
                    f"{rv.name!r}, which depends on {between}"
                )
            # Given the labels of one end, an edge looks like what is seen of the other.
            if len(every & {parent.name for parent in parents[rv]}) > 1:
                raise self._of_several()
        powers = coarsenings(model, observed)
        for potential in model.potentials:
            if depends(potential, [assignment]) and potential not in (*powers, *weights):
                raise UnservedModelError(
                    f"{self.name!r}: expected nothing but observed data to depend on its labels; "
                    f"found the potential {potential.name!r}, which may be data or a prior"
                )
        factors = [assignment, *observed, *(powers if coarsened else []), *weights]
        densities = LabelDensities(model, factors, [assignment])
        self._relevance = None
        if relevance is not None:  # which labels do not enter
            self._relevance = LabelDensities(model, [relevance], [assignment]).compiled(1, True)
        some = next(iter(points))
        shapes = densities.shapes(some, [np.zeros(self.n, np.int64)])
        sizes = dict(zip(densities.factors, map(prod, shapes), strict=True))
        self._labels = each_label(truncation, self.n)
        self._mixed = mixed_labels(np.random.default_rng(20130205), truncation, self.n)
        batch = densities.batch(True, some, [self._mixed[[0, -1]]])
        self._entries = densities.compiled(batch, True)
        known = [
            np.arange(self.n) if rv is assignment else np.full(sizes[rv], -1)
            for rv in densities.factors
        ]
        owner, start = self._find(np.concatenate(known), points), 0
        for rv, shape in zip(densities.factors, shapes, strict=True):
            entries = owner[start:][: prod(shape)]
            start += prod(shape)
            in_part = f"{str(rv.name).removesuffix('_observed')}_unobserved" in model
            if shape[:1] == (self.n,) and not in_part:
                _own_rows(entries, self.n)
        if (owner < 0).any():
            raise UnservedModelError(
                f"{self.name!r}: there are data over it that no cluster tells anything of"
            )
        self._owned = Owned(owner, self.n)

    def _of_several(self) -> UnservedModelError:
        return UnservedModelError(
            f"{self.name!r}: expected data of one object each; found some that depend on the "
            "clusters of several, as edges of networks do"
        )

    def _find(self, owner: NDArray, points: RecordedPoints) -> NDArray:
        """Find whose every entry is, by some draws."""
        for number, point in enumerate(points):
            if number == _LOOKED_AT:
                break
            point = self._at(point, 1)

            def entries(labels, point=point):
                return self._entries(point, [labels])

            table = entries(self._labels)
            owner = find_owners(entries, table, owner, self.n)
            if (owner == -2).any() or not check_owners(entries, table, owner, self._mixed)[
                owner >= 0
            ].all():
                raise self._of_several()
        return owner

    def _at(self, point: dict[str, NDArray], flag: int) -> dict[str, NDArray]:
        """Give a point at which all objects are relevant, or none."""
        if self._flags is None:
            return point
        return point | {self._flags: np.full(self.n, flag, point[self._flags].dtype)}

    def log_likelihood(self, point: dict[str, NDArray]) -> NDArray[np.float64]:
        """Give the log likelihood of every object (N,) at a point."""
        if self._relevance is None:
            return self._sum(point)
        found = []
        for flag in (0, 1):
            point = self._at(point, flag)
            prior = self._relevance(point, [self._labels[:1]])[0]
            found.append(self._sum(point) + prior)
        return np.logaddexp(*found)

    def _sum(self, point: dict[str, NDArray]) -> NDArray[np.float64]:
        """Sum over clusters, all objects being relevant or not as the point says."""

        def table(point: Point) -> NDArray[np.float64]:
            return self._owned.total(self._entries(point, [self._labels]))

        for evidence in self._evidence:
            table = partial(evidence.integrated, self.name, table, coarsened=self._coarsened)
        return np.asarray(logsumexp(table(point), axis=1))

    def labels(self, points: RecordedPoints) -> list[str]:
        """Name the objects."""
        dim, title = points.object_dim(self.name), self.name.removeprefix(PREFIX)
        return [f"{title}: {label}" for label in points.posterior[dim].to_numpy()]


def _own_rows(owner: NDArray, n: int) -> None:
    """Give entries that no label enters, such as zeros of a hurdle, to the objects of their rows.

    `owner` (E,): whose the entries of a variable with `n` rows are, -1 of nobody. If all others are
    of the object that has the number of their row, rows are of objects.
    """
    rows, known = np.repeat(np.arange(n), len(owner) // n), owner >= 0
    if known.any() and np.array_equal(owner[known], rows[known]):
        owner[:] = rows


def _check_whole(model: Model, rv: RV) -> None:
    """Refuse rows of several variables some of which are missing."""
    several = getattr(rv.owner.op, "ndim_supp", 0) > 0
    if missing_part(model, rv) is not None and (
        several or type(rv.owner.op).__name__.startswith("PartialObserved")
    ):
        raise UnservedModelError(
            f"{str(rv.name).removesuffix('_observed')!r}: expected rows of variables that depend "
            "on each other to have all values; found missing ones"
        )
