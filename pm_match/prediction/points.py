"""Recorded draws as points of their model: what the readers of a model's structure evaluate at."""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import check_count, no_such
from pm_match.matching.draws import (
    MISSING,
    NOT_RECORDED,
    PREFIX,
    RENUMBERED,
    SET,
    check_dims,
    draws_as_they_are,
    not_recorded,
)
from pm_match.matching.objects import order_of
from pm_match.reading import read
from pm_match.reading.ancestry import missing_part
from pm_match.reading.parts import Structure, UnservedModelError
from pm_match.reading.probe import (
    compiled,
    evaluate,
    initial_point,
    natural_function,
    sampled_function,
    stand_in,
)


class RecordedPoints:
    """The draws of a DataTree, one after the other, as points of value variables.

    What every draw's other variables leave to be integrated out (weights, latent vectors,
    densities, missing values but for those of normal clusters) need not have been recorded, and is
    left at its initial value; if `everything` is asked for, it is read all the same. The attribute
    `posterior` has the draws that are taken: `num_draws` along the last of `sample_dims`, evenly
    spaced, or all; `kept` says which.

    Raise `UnservedModelError` if no part of the model is one that the steps can serve; `KeyError`
    if the draws lack a variable; `ValueError` if a variable has another shape than the model's, or
    other labels, there is no draw, or `num_draws` is less than 1; or, unless `everything` is asked
    for, if draws were sampled with other data, or their clusters have been renumbered. Where the
    labels of draws are in another order than the model's, they are brought to that.
    """

    def __init__(
        self,
        idata: xr.DataTree | xr.Dataset,
        model: Model,
        group: str,
        sample_dims: Sequence[Hashable],
        num_draws: int | None,
        everything: bool = False,
    ):
        self.structure = read(model)
        if self.structure.empty:
            raise UnservedModelError(
                f"nothing to predict from in this model: {self.structure.explain()}."
            )
        draws = _as_in_model(draws_as_they_are(idata, group), model)
        if not everything:
            _check_numbers(draws)
            if isinstance(idata, xr.DataTree):
                _check_data(idata, model)
        self.kept = _evenly_spaced(draws, sample_dims, num_draws)
        taken = draws.isel({sample_dims[-1]: self.kept})
        self.posterior = taken.assign(_known_labels(taken, model, self.structure, sample_dims))
        self.sample_dims = tuple(sample_dims)
        empty = [dim for dim in sample_dims if self.posterior.sizes[dim] == 0]
        if empty:
            raise ValueError(f"expected at least one draw; found dim {empty[0]!r} of length 0")
        self.n_draws = int(np.prod([self.posterior.sizes[dim] for dim in sample_dims]))
        self._start = {name: np.asarray(v) for name, v in initial_point(model).items()}
        names = [str(rv.name) for rv in model.free_RVs]
        initial = dict(zip(names, natural_function(model, names)(self._start), strict=True))
        free = set() if everything else _integrated_out(self.structure)
        # In the order of their declaration: bounds of some may depend on what comes before.
        self._variables = [
            (
                model.rvs_to_values[model[name]].name,
                self._values(name, value),
                sampled_function(model, name),
            )
            for name, value in initial.items()
            if name not in free
        ]

    def object_dim(self, name: str) -> Hashable:
        """Return the dim of an assignment's objects."""
        (dim,) = (d for d in self.posterior[name].dims if d not in self.sample_dims)
        return dim

    def _values(self, name: str, like: NDArray) -> NDArray:
        """Values of a variable, draw after draw."""
        if name not in self.posterior.data_vars:
            if name.startswith(PREFIX) and not_recorded(self.posterior.data_vars):
                raise KeyError(f"prediction needs labels: {NOT_RECORDED}")
            there = sorted(map(str, self.posterior.data_vars))
            what = f"variable {name!r} among the draws, which prediction needs"
            raise KeyError(no_such(what, there, name))
        variable = self.posterior[name].transpose(*self.sample_dims, ...)
        values = variable.to_numpy()
        own = values.shape[len(self.sample_dims) :]
        if own != like.shape:
            raise ValueError(
                f"variable {name!r}: expected draws of the model's shape {like.shape}; found {own}"
            )
        return values.reshape(self.n_draws, *own)

    def __len__(self) -> int:
        return self.n_draws

    def __iter__(self) -> Iterator[dict[str, NDArray]]:
        for number in range(self.n_draws):
            point = dict(self._start)
            for key, values, sampled in self._variables:
                point[key] = sampled(point, values[number])
            yield point


def _as_in_model(posterior: xr.Dataset, model: Model) -> xr.Dataset:
    """Bring draws to the order of a model's labels."""
    moved: dict[Hashable, NDArray[np.int64]] = {}
    for dim, labels in model.coords.items():
        if labels is None or dim not in posterior.indexes:
            continue
        where = f"dim {dim!r} of the draws"
        own = order_of(posterior.indexes[dim], pd.Index(labels), where=where, whose="the model")
        if own is not None:
            moved[dim] = own
    if not moved:
        return posterior
    taken = posterior.isel(moved)
    for name in map(str, posterior.data_vars):
        whole = name.removesuffix(MISSING)
        if name == whole or whole not in model or name not in model:
            continue
        if whole not in posterior:
            raise ValueError(
                f"variable {name!r}: expected draws in the order of the model's labels, or those "
                f"of {whole!r} beside them; found another order, and none"
            )
        places = _places_of_missing(model, whole)
        values = taken[whole].transpose(..., *dims_of(model, whole)).to_numpy()
        missing = taken[name]
        taken[name] = missing.copy(data=values.reshape(*missing.shape[:-1], -1)[..., places])
    return taken


def _check_numbers(draws: xr.Dataset) -> None:
    """Refuse clusters that have been renumbered: weights have their prior by number."""
    for name, variable in draws.data_vars.items():
        if RENUMBERED in variable.attrs:
            raise ValueError(
                f"variable {name!r}: expected draws as they were sampled, as the prior of weights "
                "is one of clusters in some order; found clusters that `relabel` has renumbered. "
                "Give the draws from before"
            )


def _known_labels(
    draws: xr.Dataset, model: Model, structure: Structure, sample_dims: Sequence[Hashable]
) -> dict[str, xr.DataArray]:
    """Give labels that are all observed, which PyMC does not record, the same in every draw."""
    sizes = [draws.sizes[dim] for dim in sample_dims]
    found = {}
    for clustering in structure.clusterings:
        mates = [draws[own.name].attrs for own in clustering.assignments if own.name in draws]
        of_set = {key: attrs[key] for attrs in mates for key in attrs if key == SET}
        for own in clustering.assignments:
            if not own.drawn and own.name not in draws:
                (dim,) = dims_of(model, own.name)
                labels = np.broadcast_to(np.asarray(own.known), (*sizes, own.n_objects))
                coords = {dim: list(model.coords[dim])} if dim in model.coords else {}
                found[own.name] = xr.DataArray(labels, coords, (*sample_dims, dim), attrs=of_set)
    return found


def _check_data(idata: xr.DataTree, model: Model) -> None:
    """Refuse a model of other data, observed or not, than those that draws were sampled with."""
    given = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    given |= {data.name: data for data in model.data_vars}
    # Beside missing values, without labels, so that they may be in another order.
    parts = {rv.name for rv in model.observed_RVs if missing_part(model, rv) is not None}
    for group in ("observed_data", "constant_data"):
        if group not in idata.children:
            continue
        kept = _as_in_model(idata[group].to_dataset(), model)
        for name in (name for name in given if name in kept):
            then, now = kept[name].to_numpy(), evaluate(given[name])
            if name in parts:
                then, now = np.sort(then, axis=None), np.sort(now, axis=None)
            if then.shape != now.shape or not np.allclose(then, now, 1e-6, 0.0, equal_nan=True):
                raise ValueError(
                    f"variable {name!r}: expected the data that draws were sampled with; found "
                    "others in the model. Sample it again"
                )


def dims_of(model: Model, name: str) -> list[str]:
    """Return the dims of a variable, as PyMC names them in draws."""
    own = model.named_vars_to_dims.get(name) or [None] * model[name].ndim
    return [dim or f"{name}_dim_{k}" for k, dim in enumerate(own)]


def _places_of_missing(model: Model, name: str) -> NDArray[np.int64]:
    """Find where in a variable, flattened, the values are that are missing of it, in order."""
    rv = model[f"{name}{MISSING}"]
    stand, start = stand_in(rv), initial_point(model)
    read, _ = compiled(model, [model[name]], {rv: stand}, [stand])
    n = int(np.prod(natural_function(model, [rv.name])(start)[0].shape))
    zeros, ones, numbers = (
        np.ravel(read(start, np.asarray(own, rv.dtype))[0])
        for own in (np.zeros(n), np.ones(n), np.arange(n))
    )
    inside = np.flatnonzero(zeros != ones)
    return inside[np.argsort(numbers[inside])]


def _evenly_spaced(
    draws: xr.Dataset, sample_dims: Sequence[Hashable], num_draws: int | None
) -> NDArray[np.int64]:
    """Give places of draws along the last of the sample dims, all of them by default."""
    check_dims(sample_dims)
    absent = [dim for dim in sample_dims if dim not in draws.sizes]
    if absent:
        what = f"dim {absent[0]!r} among the draws"
        raise ValueError(f"sample_dims: {no_such(what, draws.sizes, absent[0])}")
    n = draws.sizes[sample_dims[-1]]
    if num_draws is None:
        return np.arange(n)
    check_count("num_draws", num_draws)
    return np.unique(np.linspace(0, n - 1, min(num_draws, n)).round().astype(int))


def _integrated_out(structure: Structure) -> set[str]:
    """Names of the variables that prediction integrates out: it asks for no draw of them."""
    found: set[str] = set()
    for component in structure.components:
        found |= set(component.collapsed)
        for clustering in component.clusterings:
            for assignment in clustering.assignments:
                found -= {*assignment.variables}
        for own in component.evidence:
            found = (found - set(own.conditioned_on)) | set(own.of_objects)
    return found
