"""What networks say of new objects: their cells with the networks' objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import type_name
from pm_match.matching.memory import check_size
from pm_match.matching.objects import in_order
from pm_match.networks.data import as_network
from pm_match.networks.draws import cell_parameters
from pm_match.networks.edges import NewCells, log_edges
from pm_match.networks.parts import NetworkCells, Relation
from pm_match.networks.state import RelationState
from pm_match.prediction.mixture import LEAST, NUMBERS, Law, NormalLaw
from pm_match.prediction.predictor import Holes, Place, Predictor, coords


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
        self._index: dict[str, NDArray[np.int64]] = {}  # unknown cells (C, A), by network

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
        """Keep point and labels: the state is at the draw already."""
        self._point, self._labels = point, labels

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

    # -- unknown cells ----------------------------------------------------------------------------

    def holes(self, place: Place, seen: NewEdges | None = None) -> list[Holes]:
        """Give the networks with unknown cells whose first axis is the assignment's objects.

        What is shown of a network is a matrix; of a variable with missing cells, its own shape.
        """
        if seen is not None:
            return []
        found, relation = [], self.relation
        for name, cells in relation.networks.items():
            if _axis_of(place, relation, cells) != 0:
                continue
            missing = relation.missing.get(name)
            if missing is not None:
                given = missing.whole, self._law, NUMBERS, False
                found.append(Holes(name, name, *given))
            elif len(cells.unknown) or not cells.full:
                found += self._unknown(place, name, cells)
        return found

    def _unknown(self, place: Place, name: str, cells: NetworkCells) -> list[Holes]:
        """Describe the unknown cells of a network: none if all are known after all."""
        symmetric = self.relation.symmetric
        check_size(f"the cells of network {name!r},", (3, *cells.shape), "Predict fewer")
        table = cells.table(symmetric, self.relation.self_loops or not self.relation.one_mode)
        unknown = np.isnan(np.triu(table) if symmetric else table)
        index = np.argwhere(unknown)
        if not len(index):
            return []
        self._index[name] = index

        def whole(values: NDArray[np.float64]) -> NDArray[np.float64]:
            shown = table.copy()
            shown[tuple(index.T)] = values
            if symmetric:
                shown[tuple(index.T[::-1])] = values
            return shown

        axes = tuple(_assignment(place, self.relation, cells, n) for n in range(table.ndim))
        values = np.full(len(index), np.nan)
        return [Holes(name, name, values, self._law, axes=axes, whole=whole)]

    def _law(self, parameters: NDArray[np.float64]) -> Law:
        """Make the distributions of cells from exposures and densities (C, M, h)."""
        exposure, *density = np.moveaxis(parameters, -1, 0)
        match self.relation.family:
            case "bernoulli":
                return Law(scipy.stats.bernoulli, *density)
            case "poisson":
                return Law(scipy.stats.poisson, exposure * density[0])
            case "negative-binomial":
                # Without exposure it is zero.
                given = np.maximum(exposure, LEAST), np.maximum(density[0], LEAST)
                return Law(scipy.stats.nbinom, *given)
        return NormalLaw(density[0], density[1] ** -0.5)

    def of_missing(
        self, rng: np.random.Generator, place: Place, holes: Holes, wanted: slice
    ) -> NDArray[np.float64]:
        """Draw the densities of unknown cells from their conditional given the labels."""
        relation, (site, evidence) = self.relation, (self._state.site, self._state.evidence)
        cells = relation.networks[holes.variable]
        missing = relation.missing.get(holes.variable)
        index = (self._index[holes.variable] if missing is None else missing.index)[wanted]
        exposure = (cells if missing is None else missing).exposure
        slot_of = [site.slot_of(axis) for axis in relation.axes]
        drawn = evidence.prior.natural(evidence.draw(rng, slot_of))
        if noise := self._noise(rng):
            # The last is that of irrelevant objects, whose label is -1.
            drawn = [
                np.pad(theta, (0, 1), constant_values=float(phi))
                for theta, phi in zip(drawn, noise, strict=True)
            ]
        labels = [
            self._labels[home][first:][:n]
            for home, first, n in zip(relation.axes, cells.first, cells.shape, strict=True)
        ]
        clusters = [
            np.where(own < 0, size - 1, own)
            for own, size in zip(labels, drawn[0].shape, strict=True)
        ]
        found = cell_parameters(relation.symmetric, index, clusters, drawn, exposure)
        return np.stack(found, axis=-1)

    def _noise(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Draw the parameters of noise, or return them if they are known; none without noise."""
        prior = self.relation.prior(self._point)[1]
        if self.relation.noise:
            evidence = self._state.evidence
            return evidence.prior.natural(evidence.draw_noise(rng))
        if prior is None:
            return []
        known = prior[::2] if self.relation.family == "normal" else prior[:1]
        return [np.asarray(value) for value in known]

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


def _assignment(place: Place, relation: Relation, cells: NetworkCells, axis: int) -> str:
    """Return the name of the assignment whose objects are on a network's axis."""
    slices = place.component.clusterings[relation.axes[axis]].slices
    return next(name for name, own in slices.items() if own.start == cells.first[axis])


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
    for number, a in enumerate(others, 1):
        names = coords(model, _assignment(place, relation, cells, a), 0)
        expected = None if names is None else pd.Index(names)
        observed = in_order(observed, expected, axis=number, where=repr(where), whose="the network")
    shape = shape[0], *(cells.shape[a] for a in others)
    network = as_network(
        where,
        observed,
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
    by_degree = np.allclose(own, factor * degree, atol=0.0)
    if np.ptp(own) == 0.0:
        # One number for all, as a dispersion is. Equal degrees would not tell it from theirs.
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
