"""What evidence has to do for predictions: read what is seen of new objects, and score it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.matching.draws import PREFIX
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
class NewObjects:
    """New objects of one domain.

    Attributes
    ----------
    place : Place
    labels : (N,) array
    seen : dict of int to Seen
        What is seen of them, by the number of the evidence that it is of.
    """

    place: Place
    labels: NDArray
    seen: dict[int, Seen]

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, wanted: slice) -> NewObjects:
        """Return some of the objects."""
        seen = {number: own.rows(wanted) for number, own in self.seen.items()}
        return NewObjects(self.place, self.labels[wanted], seen)


class Predictor:
    """What one evidence says of new objects: the base of every kind's own."""

    def observed(self, place: Place) -> list[str]:
        """Names of the observed variables that it has of the objects of an assignment."""
        raise NotImplementedError

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
        raise NotImplementedError

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring it to a draw, with the labels (N,) of every clustering's objects.

        The state that the kind was given is at the draw only if its evidence has `hyperpriors`.
        """

    def log_predictive(self, place: Place, seen: Any) -> NDArray:
        """Log predictive (N, T + 1) in every cluster, and as irrelevant objects."""
        raise NotImplementedError


def coords(model: Model, name: str, axis: int) -> Any:
    """Labels along a variable's axis, or None."""
    dims = model.named_vars_to_dims.get(name)
    if dims is None or dims[axis] is None:
        return None
    return model.coords.get(dims[axis])
