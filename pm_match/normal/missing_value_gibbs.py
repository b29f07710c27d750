"""Draws of missing values of normal vectors, and of the labels of their objects with them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType
from pymc.model.core import Model

from pm_match.clusters.points import ClusteringPoints, Writer
from pm_match.clusters.step import PartitionStep
from pm_match.clusters.units import units
from pm_match.normal.given_observed import Incomplete
from pm_match.normal.parts import Normals, NormalValues
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component, Structure
from pm_match.reading.probe import natural_function


class MissingValueGibbs(PartitionStep):
    r"""Draw missing values of normal vectors, jointly with the labels of their objects.

    Given weights, means and precisions, an object's label depends on its observed values
    :math:`x_{nO}` alone, and its missing values on these and on the label:

    .. math:: p(s_n = j \mid x_{nO}, \ldots) \propto
              \theta_j \, N(x_{nO} \mid \mu_{jO}, (\Lambda_j^{-1})_{OO}), \quad
              x_{nM} \sim p(x_{nM} \mid x_{nO}, \mu_{s_n}, \Lambda_{s_n})

    which is normal; precisions may have a factor for every vector (`PrecisionFactorGibbs`). Objects
    that are linked have a label in common. Labels of objects that cannot be linked to others, that
    are known, or of which data of another kind are seen, stay as they are; so do all in the first
    step of a chain, which `ClusterGibbs` may have to begin. It draws all labels given the vectors,
    without means and precisions.

    Parameters
    ----------
    vars : sequence of variables
        What holds the missing values.
    model, rng : optional
        As of `ClusterGibbs`.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the steps can serve.

    Examples
    --------
    >>> tables = {name: table.copy() for name, table in pmm.datasets.iris(random_seed=0).items()}
    >>> tables["a"][3, 1] = np.nan
    >>> pmm.steps(pmm.models.normal_clusters(tables, tails=None))[0]
    MissingValueGibbs(a_unobserved)
    """

    name = "missing_value_gibbs"
    order = 45

    @classmethod
    def served(cls, part: Component) -> list[str]:
        """Names of what holds the missing values."""
        return [name for normals in part.of(Normals) for name in normals.missing]

    @classmethod
    def writes(cls, structure: Structure, part: Component) -> list[str]:
        """Names of the labels that it draws too."""
        numbers = {normals.clustering for normals in part.of(Normals) if normals.missing}
        drawn = [part.clusterings[number] for number in numbers if _alone(part, number)]
        return [name for c in drawn for own in c.assignments for name in own.drawn]

    def _prepare(self) -> None:
        super()._prepare()
        numbers = dict.fromkeys(n.clustering for n in self.part.of(Normals) if n.missing)
        self._incomplete = [_Incomplete(self.model, self.part, number) for number in numbers]

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new = dict(point)
        for own in self._incomplete:
            own.draw(self.rng, point, new, labels_too=self.started)
        self.started = True
        return new, [{}]


def _alone(component: Component, number: int) -> bool:
    """Whether all that is seen of a clustering's objects is normal, and counts in full."""
    seen = component.about(number)
    return all(isinstance(own, Normals) and own.power == 1.0 for own in seen)


class _Vectors(NamedTuple):
    """The vectors of one variable."""

    values: NormalValues
    number: int  # whose means and precisions they have
    # unit, objects (R,): the place of each one's unit among those whose labels are drawn, -1 if it
    # has none; its object, as the clustering numbers them
    unit: NDArray[np.int64]
    objects: NDArray[np.int64]
    incomplete: Incomplete  # those that are looked at


class _Incomplete:
    """The objects of a clustering of which something is missing, and those linked to them."""

    def __init__(self, model: Model, component: Component, number: int):
        clustering, normals = component.clusterings[number], component.of(Normals, number)
        self._points = ClusteringPoints(model, clustering)
        self._parameters = [natural_function(model, own.names) for own in normals]
        self._writer = Writer(model, [name for own in normals for name in own.missing])
        grouped = units(clustering.n_objects, clustering.links)
        found = [
            (values, place, objects)
            for place, own in enumerate(normals)
            for values, objects in zip(own.values, own.objects(clustering), strict=True)
        ]
        drawn = np.zeros(len(grouped.size), bool)
        for values, _, objects in found:
            drawn[grouped.of_object[objects[values.incomplete]]] = True
        drawn &= ~grouped.fixed(clustering.known) & _alone(component, number)
        drawn[grouped.of_object[clustering.apart]] = False
        self._size = grouped.size[drawn]
        # (N,): the place of every object's unit among those that are drawn, -1 if it is not.
        self._place = np.where(drawn, np.cumsum(drawn) - 1, -1)[grouped.of_object]
        self._vectors = []
        for values, place, objects in found:
            d, looked_at = normals[place].n_features, self._place[objects] >= 0
            looked_at[values.incomplete] = True
            x = np.zeros((len(objects), d)) if values.data is None else values.data
            own = Incomplete.of(x, np.flatnonzero(looked_at))
            self._vectors.append(_Vectors(values, place, self._place[objects], objects, own))

    def draw(
        self, rng: np.random.Generator, point: Point, new: dict[str, NDArray], labels_too: bool
    ) -> None:
        """Draw labels (if `labels_too`), then missing values, and write them to a `new` point."""
        parameters = [read(point) for read in self._parameters]
        parts = []
        for own in self._vectors:
            incomplete = own.incomplete
            if not own.values.missing:
                incomplete = incomplete._replace(values=own.values.vectors(point))
            factor = own.values.factor
            factors = None if factor is None else factor.read(point)
            means, precisions = parameters[own.number]
            parts.append(list(incomplete.given(means, precisions, factors)))
        labels = self._points.labels(point)
        if labels_too and len(self._size):
            logs = self._size[:, None] * self._points.log_weights(point)
            for own, found in zip(self._vectors, parts, strict=True):
                for part in found:
                    unit = own.unit[part.rows]
                    np.add.at(logs, unit[unit >= 0], part.log_density()[unit >= 0])
            drawn = (logs + rng.gumbel(size=logs.shape)).argmax(axis=1)
            labels = np.where(self._place < 0, labels, drawn[self._place])
            self._points.write_labels(new, labels)
        for own, found in zip(self._vectors, parts, strict=True):
            if own.values.missing and own.values.data is not None:
                x = own.values.data.copy()
                for part in found:
                    x[part.rows] = part.drawn(rng, labels[own.objects[part.rows]])
                self._writer.write(new, own.values.missing_of(x, point))
