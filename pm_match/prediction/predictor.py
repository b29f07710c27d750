"""What evidence has to do for predictions: read what is seen of new objects, and score it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import lacking
from pm_match.matching.draws import PREFIX
from pm_match.prediction.mixture import NUMBERS, CategoryLaw, Law
from pm_match.reading.parts import Assignment, Component


@dataclass(frozen=True, eq=False)
class Place:
    """Where an assignment is in a model.

    Attributes
    ----------
    component : Component
    clustering : int
        The number of its set of clusters in the component.
    assignment : Assignment
    number : int
        Its number in the clustering.
    """

    component: Component
    clustering: int
    assignment: Assignment
    number: int

    @property
    def domain(self) -> str:
        """The name of the domain."""
        return self.assignment.name.removeprefix(PREFIX)

    @property
    def first(self) -> int:
        """The number of the assignment's first object in the clustering."""
        own = self.component.clusterings[self.clustering].assignments[: self.number]
        return sum(assignment.n_objects for assignment in own)


class Seen(Protocol):
    """What is seen of new objects."""

    def rows(self, wanted: slice) -> Any:
        """Return what is seen of some of the objects."""


@dataclass(frozen=True, eq=False)
class NewVectors:
    """Vectors (N, M) of new objects, NaN where missing."""

    values: NDArray[np.float64]

    def rows(self, wanted: slice) -> NewVectors:
        """Return the vectors of some of the objects."""
        return NewVectors(self.values[wanted])

    @cached_property
    def patterns(self) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """By what is missing of them: the objects, and which of their values are hidden (M,)."""
        hidden, which = np.unique(np.isnan(self.values), axis=0, return_inverse=True)
        return [(np.flatnonzero(which.ravel() == number), own) for number, own in enumerate(hidden)]


@dataclass(frozen=True, eq=False)
class NewTables:
    """Arrays (N, ...) of new objects, by variable, NaN where missing; perhaps several of each."""

    arrays: dict[str, tuple[NDArray[np.float64], ...]]

    def rows(self, wanted: slice) -> NewTables:
        """Return the arrays of some of the objects."""
        return NewTables({n: tuple(own[wanted] for own in a) for n, a in self.arrays.items()})


@dataclass(frozen=True, eq=False)
class NewObjects:
    """New objects of one domain."""

    place: Place
    labels: NDArray  # (N,)
    seen: dict[int, Seen]  # what is seen of them, by the number of the evidence that it is of

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, wanted: slice) -> NewObjects:
        """Return some of the objects."""
        seen = {number: own.rows(wanted) for number, own in self.seen.items()}
        return NewObjects(self.place, self.labels[wanted], seen)


@dataclass(frozen=True, eq=False)
class Holes:
    """An observed variable, of a domain's own objects or of new ones, whose values are predicted.

    Attributes
    ----------
    name : str
        What results are named after.
    variable : str
        Its own name.
    values : (N, ...) array
        NaN where they are missing.
    law : callable
        From parameters (C, M, h) to the distributions of M values in each of C components.
    summarised : tuple
        What is said of each: `mixture.NUMBERS` or `mixture.CATEGORIES`.
    by_object : bool
        Whether the first axis is of objects.
    axes : tuple of str
        Of tables that `whole` makes, the assignment whose objects each axis is of.
    whole : callable or None
        From what is said of the values to the table that is shown; None if it is that table.
    """

    name: str
    variable: str
    values: NDArray[np.float64]
    law: Callable[[NDArray[np.float64]], Law | CategoryLaw]
    summarised: tuple[tuple[str, float | None], ...] = NUMBERS
    by_object: bool = True
    axes: tuple[str, ...] = ()
    whole: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None


class Predictor:
    """What one evidence says of new objects: the base of every kind's own.

    It is made of a model, the evidence, and the state of that for the model's objects.
    """

    def observed(self, place: Place) -> list[str]:
        """Names of the observed variables that it has of the objects of an assignment."""
        raise lacking(self, "observed")

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[Seen, list[tuple[str, NDArray]]]:
        """Check what is seen of new objects.

        Parameters
        ----------
        model : pymc.Model
        place : Place
        given : mapping of str to table
            By names of `observed`; at least one.

        Returns
        -------
        seen : Seen
        labels : list of (str, (N,) array)
            The objects' labels in every table.

        Raises
        ------
        TypeError, ValueError
            If a table does not fit the model.
        """
        raise lacking(self, "read")

    def deviations(self, place: Place, seen: Any) -> NDArray[np.float64] | None:
        """Say how many standard deviations new values are from the known objects' means, if it can.

        Returns
        -------
        (N, M) array or None
            NaN where values are missing.
        """
        return None

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring it to a draw, with the labels (N,) of every clustering's objects.

        The state that the kind was given is at the draw only if its evidence has `hyperpriors`.
        """

    def log_weights(self, place: Place) -> NDArray[np.float64] | float:
        """Log weights (T,) of the clusters of new objects, if they are not the clustering's."""
        return 0.0

    def log_predictive(self, place: Place, seen: Any) -> NDArray:
        """Log predictive (N, T + 1) in every cluster, and as irrelevant objects."""
        raise lacking(self, "log_predictive")

    # -- missing values, if it predicts any -------------------------------------------------------

    def holes(self, place: Place, seen: Any = None) -> list[Holes]:
        """Give the variables of an assignment's objects, or of new ones, that have missing values.

        Those of new objects have one row each.
        """
        return []

    def of_missing(
        self, rng: np.random.Generator, place: Place, holes: Holes, wanted: slice
    ) -> NDArray[np.float64]:
        """Return the parameters (E, h) of some of the missing values, in order, in the draw."""
        raise lacking(self, "of_missing")

    def of_new(
        self,
        rng: np.random.Generator,
        place: Place,
        seen: Any,
        holes: Holes,
        log_weight: NDArray[np.float64],
    ) -> Iterator[tuple[NDArray, NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]]:
        """Return the parameters of new objects' missing values in the draw, in every cluster.

        Parameters
        ----------
        rng : numpy.random.Generator
        place : Place
        seen : Seen
        holes : Holes
        log_weight : (N, T + 1) array
            Of the clusters, and of being irrelevant.

        Yields
        ------
        rows : (N',) integer array
            Objects that lack the same values;
        hidden : (M,) boolean array
            which these are, M' of them;
        log_weight : (N', J) array
        parameters : (N', J, M', h) or (1, J, M', h) array
            One component for every cluster; those that are alike may be one.
        """
        raise lacking(self, "of_new")


def coords(model: Model, name: str, axis: int) -> Any:
    """Labels along a variable's axis, or None."""
    dims = model.named_vars_to_dims.get(name)
    if dims is None or dims[axis] is None:
        return None
    return model.coords.get(dims[axis])
