"""What networks say of new objects: their cells with the networks' objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import type_name
from pm_match.networks.data import as_network
from pm_match.networks.edges import NewCells, log_edges
from pm_match.networks.parts import NetworkCells, Relation
from pm_match.networks.state import RelationState
from pm_match.prediction.predictor import Place, Predictor, coords


@dataclass(frozen=True, eq=False)
class NewEdges:
    """Cells of new objects in the networks of a relation."""

    axis: int  # of the new objects
    # forward, backward: One for each network. In directed one-mode networks, the cells from the new
    # objects, and those towards them; otherwise all are in the first.
    forward: list[NewCells]
    backward: list[NewCells]

    def rows(self, wanted: slice) -> NewEdges:
        """Return the cells of some of the objects."""
        return NewEdges(
            self.axis,
            [cells.rows(wanted) for cells in self.forward],
            [cells.rows(wanted) for cells in self.backward],
        )


class RelationPredictor(Predictor):
    """What the networks of a relation say of new objects."""

    def __init__(self, model: Model, relation: Relation, state: RelationState):
        self.relation, self._state = relation, state

    def observed(self, place: Place) -> list[str]:
        """Names of the networks with an axis of the assignment's objects."""
        return [
            name
            for name, cells in self.relation.networks.items()
            if _axis_of(place, self.relation, cells) is not None
        ]

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewEdges, list[tuple[str, NDArray]]]:
        """Check the cells of new objects in some of the networks."""
        relation = self.relation
        forward: list[NewCells] = []
        backward: list[NewCells] = []
        labels, axis = [], 0
        for name, observed in given.items():
            cells = relation.networks[name]
            found = _axis_of(place, relation, cells)
            assert found is not None
            axis = found
            directed = relation.one_mode and not relation.symmetric
            if not directed:
                new, objects = _cells(model, place, relation, name, axis, observed)
                forward.append(new)
                labels.append((name, objects))
                continue
            if not isinstance(observed, tuple) or len(observed) != 2:
                raise TypeError(
                    f"new objects of network {name!r}: it is directed; expected a pair, the cells "
                    "from the new objects and those towards them (None if they are unknown), both "
                    f"with a row for each new object; found {type_name(observed)}"
                )
            if observed[0] is None and observed[1] is None:
                raise ValueError(f"new objects of network {name!r}: expected cells; found none")
            for side, (matrix, into) in enumerate(zip(observed, (forward, backward), strict=True)):
                if matrix is not None:
                    new, objects = _cells(model, place, relation, name, side, matrix)
                    into.append(new)
                    labels.append((name, objects))
        return NewEdges(axis, forward, backward), labels

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Keep the labels: the state is at the draw already."""
        self._labels = labels

    def log_predictive(self, place: Place, seen: NewEdges) -> NDArray[np.float64]:
        """Log predictive of the cells, all densities and noise integrated out."""
        relation, evidence, site = self.relation, self._state.evidence, self._state.site
        slot_of = [site.slot_of(axis) for axis in relation.axes]
        forward, backward = (self._sums(side) for side in (seen.forward, seen.backward))
        if backward is not None and forward is None:
            forward = np.zeros_like(backward)
        assert forward is not None
        noisy = place.assignment.relevance is not None
        found = log_edges(evidence, slot_of, seen.axis, forward, backward, noisy)
        constants = [cells.constant(evidence.family) for cells in (*seen.forward, *seen.backward)]
        return found + np.add.reduce(constants)[:, None]

    def _sums(self, sides: Sequence[NewCells]) -> NDArray[np.float64] | None:
        """Sum the cells of new objects in all networks of a relation."""
        clusterings, origin = self._state.site.clusterings, self._state.evidence.origin
        found = []
        for own in sides:
            homes = [self.relation.axes[axis] for axis in own.others]
            labels = [
                self._labels[home][first:][:n]
                for home, first, n in zip(homes, own.first[1:], own.shape[1:], strict=True)
            ]
            found.append(own.sums(labels, [clusterings[home].truncation for home in homes], origin))
        return np.sum(found, axis=0) if found else None


def _axis_of(place: Place, relation: Relation, cells: NetworkCells) -> int | None:
    """Return the (first) axis of a network that has the assignment's objects."""
    for axis, (home, first) in enumerate(zip(relation.axes, cells.first, strict=True)):
        if home == place.clustering and first == place.first:
            return axis
    return None


def _cells(model: Model, place: Place, relation: Relation, name: str, axis: int, observed: Any):
    """Check the cells of new objects on one axis of a network; return their labels too."""
    where = f"new objects of {name}"
    cells = relation.networks[name]
    others = [a for a in range(len(cells.shape)) if a != axis]
    shape: tuple[int, ...] = getattr(observed, "shape", ())
    if len(shape) != len(cells.shape):
        raise TypeError(
            f"{where!r}: expected a matrix (array, DataFrame, sparse) with a row for each new "
            f"object and axes of {[cells.shape[a] for a in others]} objects; found "
            f"{type_name(observed)} and shape {shape}"
        )
    labels = _other_labels(model, place, relation, cells, others)
    shape = shape[0], *(cells.shape[a] for a in others)
    network = as_network(
        where,
        _ordered(where, observed, labels),
        shape=shape,
        absent="zero" if cells.full else "unknown",
        family=relation.family,  # type: ignore[arg-type]
    )
    unknown = network.unknown
    if cells.full and network.absent == "unknown":
        # Listed by what is known: the unknown cells are the rest.
        everything = np.ones(network.shape, bool)
        everything[tuple(network.index.T)] = False
        unknown = np.argwhere(everything)
    own = _exposure(where, relation, cells, axis, network)
    new = NewCells(
        shape,
        network.index,
        network.values,
        cells.full,
        unknown,
        (own, *(cells.exposure[a] for a in others)),
        (0, *(cells.first[a] for a in others)),
        others,
    )
    impossible = (new.cell_exposures(new.index) == 0.0) & (new.values != 0.0)
    if impossible.any():
        cell = tuple(new.index[impossible][0].tolist())
        raise ValueError(f"{where!r}: expected zeros where the exposure is 0; found cell {cell}")
    objects = network.labels[0]
    return new, np.asarray(objects)


def _other_labels(model: Model, place: Place, relation: Relation, cells, others) -> list[Any]:
    """Labels of the objects on a network's other axes, None where they have none."""
    found = []
    for axis in others:
        clustering = place.component.clusterings[relation.axes[axis]]
        starts = {where.start: name for name, where in clustering.slices.items()}
        own = coords(model, starts[cells.first[axis]], 0)
        found.append(None if own is None else pd.Index(own))
    return found


def _ordered(where: str, observed: Any, labels: list[Any]) -> Any:
    """Bring labelled axes into the order of the model's objects."""
    if isinstance(observed, pd.DataFrame):
        observed = xr.DataArray(observed)
    if not isinstance(observed, xr.DataArray):
        return observed
    for dim, expected in zip(observed.dims[1:], labels, strict=True):
        own = observed.indexes.get(dim)
        if own is None or expected is None or isinstance(own, pd.RangeIndex):
            continue
        order = own.get_indexer(expected) if own.is_unique else np.array([-1])
        if (order < 0).any() or len(own) != len(expected):
            missing = [label for label in expected if label not in own]
            raise ValueError(
                f"{where!r}: expected the labels of the network's objects along {dim!r}; "
                + (f"found no {missing[0]!r}" if missing else f"found {len(own)} labels")
            )
        observed = observed.isel({dim: order})
    return observed


def _exposure(where: str, relation: Relation, cells: NetworkCells, axis: int, network):
    """Exposures of new objects: by their degrees, if those of the network's objects are."""
    n = network.shape[0]
    own = cells.exposure[axis]
    if own is None:
        return np.ones(n)
    ends = (0, 1) if relation.symmetric else (axis,)
    degree = np.zeros(cells.shape[axis])
    for end in ends:
        degree += np.bincount(cells.index[:, end], cells.values, cells.shape[axis])
    factor = own.sum() / degree.sum() if degree.any() else 0.0
    by_degree = np.allclose(own, factor * degree)
    if relation.family == "negative-binomial" and np.ptp(own) == 0.0:
        # One number for all, the dispersion. Equal degrees would not tell it from theirs.
        if by_degree:
            raise ValueError(
                f"{where!r}: expected objects of different degrees, which tell whether exposures "
                "are degrees; found equal degrees and equal exposures"
            )
        return np.full(n, own[0])
    if not by_degree:
        raise ValueError(
            f"{where!r}: expected exposure='degree', or none, as others are not known of new "
            "objects; found exposures that are not the objects' degrees"
        )
    return factor * np.bincount(network.index[:, 0], network.values, n)
