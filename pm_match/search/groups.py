"""Groups: the objects of one data set in one cluster, which a search moves as one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.units import Units, together
from pm_match.reading.parts import Clustering


@dataclass(frozen=True, eq=False)
class ObjectGroups:
    """The groups of a clustering's objects, at some labels.

    Objects that are linked across assignments are in groups of their own, one for each cluster, so
    that no move of a group breaks a link, and the clusters' other objects are free to move. So are
    those whose label is known.
    """

    units: Units  # the groups, as units that move together
    label: NDArray[np.int64]  # (G,): -1 for a group of irrelevant objects
    # (G,): which assignments the objects are of: groups of one kind never share a label
    kind: NDArray[np.int64]

    def pairs(self) -> NDArray[np.int64]:
        """Pairs (P, 2) of groups of one kind."""
        first, second = np.triu_indices(len(self.kind), 1)
        same = self.kind[first] == self.kind[second]
        return np.stack([first[same], second[same]], axis=1)


def kinds_of_objects(clustering: Clustering, linked: Units) -> NDArray[np.int64]:
    """Give every object (N,) the number of the set of assignments that those it moves with are of.

    Objects of one assignment alone have its number; sets of several come after.
    """
    sizes = [a.n_objects for a in clustering.assignments]
    assignment = np.repeat(np.arange(len(sizes)), sizes)
    touched = np.zeros((len(linked.size), len(sizes)), bool)
    touched[linked.of_object, assignment] = True
    several = touched.sum(axis=1) > 1
    kind = np.argmax(touched, axis=1)
    if several.any():
        sets = np.unique(touched[several], axis=0, return_inverse=True)[1].ravel()
        kind[several] = len(sizes) + sets
    found = kind[linked.of_object]
    return np.where(clustering.known >= 0, found + found.max(initial=0) + 1, found)


def groups(kind_of_object: NDArray[np.int64], labels: NDArray[np.int64]) -> ObjectGroups:
    """Group objects by kind and label (N,)."""
    width = int(labels.max(initial=0)) + 2
    grouped = together(kind_of_object * width + labels + 1)
    return ObjectGroups(grouped, labels[grouped.first], kind_of_object[grouped.first])
