"""New objects of a domain, checked: what is seen of them, in the order of the model's objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.matching.draws import PREFIX
from pm_match.networks.block_evidence import NetworkCells
from pm_match.networks.data import as_network
from pm_match.networks.edges import NewCells
from pm_match.networks.parts import Relation
from pm_match.reading.parts import Assignment, Component, Structure, UnservedModelError
from pm_match.tables.domains import as_new_objects


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
    def feature_domain(self) -> int | None:
        """The number of its feature vectors among the clustering's, if it has any."""
        features = self.component.features[self.clustering]
        names = [] if features is None else [d.assignment for d in features.domains]
        return names.index(self.assignment.name) if self.assignment.name in names else None


@dataclass(frozen=True, eq=False)
class Edges:
    """Cells of new objects in the networks of a relation.

    Attributes
    ----------
    relation : int
        Its number in the component.
    axis : int
        Of the new objects.
    forward, backward : list of NewCells
        One a network. In directed one-mode networks, the cells from the new objects, and those
        towards them; otherwise all are in the first.
    """

    relation: int
    axis: int
    forward: list[NewCells]
    backward: list[NewCells]


@dataclass(frozen=True, eq=False)
class NewObjects:
    """New objects of one domain.

    Attributes
    ----------
    place : Place
    labels : (N,) array
    values : (N, M) array or None
        Their features, NaN where missing; None if none are given.
    edges : list of Edges
    """

    place: Place
    labels: NDArray
    values: NDArray[np.float64] | None
    edges: list[Edges]

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, wanted: slice) -> "NewObjects":
        """Return some of the objects."""
        edges = [
            Edges(
                own.relation,
                own.axis,
                [cells.rows(wanted) for cells in own.forward],
                [cells.rows(wanted) for cells in own.backward],
            )
            for own in self.edges
        ]
        values = None if self.values is None else self.values[wanted]
        return NewObjects(self.place, self.labels[wanted], values, edges)


def find_place(structure: Structure, domain: str) -> Place:
    """Find the assignment of a domain.

    Raises
    ------
    KeyError
        If there is none; the message lists the domains.
    """
    known = []
    for component in structure.components:
        for number, clustering in enumerate(component.clusterings):
            for place, assignment in enumerate(clustering.assignments):
                found = Place(component, number, assignment, place)
                if domain in (found.domain, assignment.name):
                    return found
                known.append(found.domain)
    raise KeyError(f"no domain {domain!r} in the model; there are {known}")


def read_new_objects(model: Model, structure: Structure, domain: str, given: Any) -> NewObjects:
    """Check what is given of the new objects of a domain.

    Parameters
    ----------
    model : pymc.Model
    structure : Structure
    domain : str
    given : table, network, or mapping of str to these
        By the names of the observed variables, if there are several over the domain's objects;
        those that are left out are not seen.

    Returns
    -------
    NewObjects

    Raises
    ------
    KeyError
        If there is no such domain or observed variable.
    TypeError, ValueError
        If what is given does not fit the model; the message says which, what was expected, and
        what was found.
    UnservedModelError
        If the domain has normal clusters.
    """
    place = find_place(structure, domain)
    clusters = place.component.normals[place.clustering]
    if clusters:
        raise UnservedModelError(
            f"new objects of domain {domain!r}: its clusters have means {clusters[0].mean!r} of "
            "their own, and predictions of those are not served; expected projected clusters or "
            "networks."
        )
    features, networks = _sources(place)
    names = [*features, *networks]
    if not isinstance(given, Mapping):
        if len(names) > 1:
            raise ValueError(
                f"new objects of domain {domain!r}: expected a mapping from some of {names}, which "
                "are observed of its objects, to tables; found one table"
            )
        given = {names[0]: given}
    strangers = [name for name in given if name not in names]
    if strangers or not given:
        raise KeyError(
            f"new objects of domain {domain!r}: expected some of {names}, which are observed of "
            f"its objects; found {strangers[0] if strangers else 'nothing'!r}"
        )
    values, labels, found = None, [], []
    for name, number in features.items():
        if name in given:
            part = place.component.features[place.clustering]
            assert part is not None
            n_features = part.domains[number].data.values.shape[1]
            columns = _coords(model, name, 1)
            columns = np.arange(n_features) if columns is None else np.asarray(columns)
            # Columns without labels in the model are matched by their order.
            table = as_new_objects(domain, _bare(given[name], columns), columns)
            values = np.asarray(table.values)
            labels.append((name, table.objects))
    for number, relation in enumerate(place.component.relations):
        own = [name for name in relation.networks if networks.get(name) == number and name in given]
        if own:
            edges, objects = _edges(model, place, number, {name: given[name] for name in own})
            found.append(edges)
            labels += objects
    first, objects = labels[0]
    for name, other in labels[1:]:
        if len(other) != len(objects):
            raise ValueError(
                f"new objects of domain {domain!r}: expected as many in {name!r} as in {first!r}, "
                f"{len(objects)}; found {len(other)}"
            )
    named = [own for _, own in labels if not np.array_equal(own, np.arange(len(own)))]
    return NewObjects(place, named[0] if named else objects, values, found)


def _sources(place: Place) -> tuple[dict[str, int], dict[str, int]]:
    """Names of what is observed of an assignment's objects: features, and networks.

    With the number of the feature vectors' domain, and of the network's relation.
    """
    features, networks = {}, {}
    number = place.feature_domain
    if number is not None:
        part = place.component.features[place.clustering]
        assert part is not None
        features[part.domains[number].name] = number
    for which, relation in enumerate(place.component.relations):
        for name, cells in relation.networks.items():
            if _axis_of(place, relation, cells) is not None:
                networks[name] = which
    return features, networks


def _axis_of(place: Place, relation: Relation, cells: NetworkCells) -> int | None:
    """Return the (first) axis of a network that has the assignment's objects."""
    clustering = place.component.clusterings[place.clustering]
    start = int(np.append(0, clustering.ends)[place.number])
    for axis, (home, first) in enumerate(zip(relation.axes, cells.first, strict=True)):
        if home == place.clustering and first == start:
            return axis
    return None


def _coords(model: Model, name: str, axis: int) -> Any:
    """Labels along a variable's axis, or None."""
    dims = model.named_vars_to_dims.get(name)
    if dims is None or dims[axis] is None:
        return None
    return model.coords.get(dims[axis])


def _bare(table: Any, columns: NDArray) -> Any:
    """Drop a table's column labels where the model has none but numbers, and the table names."""
    if isinstance(table, pd.DataFrame) and np.array_equal(columns, np.arange(len(columns))):
        whole = table.columns.dtype.kind in "iu"
        return table if whole else table.set_axis(range(table.shape[1]), axis=1)
    return table


# -- networks -------------------------------------------------------------------------------------


def _edges(model: Model, place: Place, number: int, given: Mapping[str, Any]):
    """Check the cells of new objects in networks of one relation."""
    relation = place.component.relations[number]
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
                f"new objects of network {name!r}: it is directed; expected a pair, the cells from "
                "the new objects and those towards them (None if they are unknown), both with a "
                f"row for each new object; found an object of type {type(observed).__name__}"
            )
        if observed[0] is None and observed[1] is None:
            raise ValueError(f"new objects of network {name!r}: expected cells; found none")
        for side, (matrix, into) in enumerate(zip(observed, (forward, backward), strict=True)):
            if matrix is not None:
                new, objects = _cells(model, place, relation, name, side, matrix)
                into.append(new)
                labels.append((name, objects))
    return Edges(number, axis, forward, backward), labels


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
            f"an object of type {type(observed).__name__} and shape {shape}"
        )
    labels = _other_labels(model, place, relation, cells, others)
    network = as_network(
        where,
        _ordered(where, observed, labels),
        shape=(shape[0], *(cells.shape[a] for a in others)),
        absent="zero" if cells.full else "unknown",
        family=relation.family,  # type: ignore[arg-type]
    )
    unknown = network.unknown
    if cells.full and network.absent == "unknown":
        # Listed by what is known: the unknown cells are the rest.
        everything = np.ones(network.shape, bool)
        everything[tuple(network.index.T)] = False
        unknown = np.argwhere(everything)
    new = NewCells(
        cells,
        axis,
        network.index,
        network.values,
        unknown,
        _exposure(where, relation, cells, axis, network),
    )
    impossible = (new.exposures(new.index) == 0.0) & (new.values != 0.0)
    if impossible.any():
        cell = tuple(new.index[impossible][0].tolist())
        raise ValueError(f"{where!r}: lists cell {cell}, which has an exposure of zero")
    objects = network.labels[0]
    return new, np.asarray(objects)


def _other_labels(model: Model, place: Place, relation: Relation, cells, others) -> list[Any]:
    """Labels of the objects on a network's other axes, None where they have none."""
    found = []
    for axis in others:
        clustering = place.component.clusterings[relation.axes[axis]]
        starts = np.append(0, clustering.ends).tolist()
        assignment = clustering.assignments[starts.index(cells.first[axis])]
        coords = _coords(model, assignment.name, 0)
        found.append(None if coords is None else pd.Index(coords))
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
    if not np.allclose(own, factor * degree):
        raise ValueError(
            f"{where!r}: the network's exposures are not its objects' degrees, so that those of "
            "new objects are not known; expected exposure='degree', or none"
        )
    return factor * np.bincount(network.index[:, 0], network.values, n)
