"""What the steps on normal clusters share: points, and the labels of vectors."""

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.points import ClusteringPoints
from pm_match.clusters.step import PartitionStep
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.reading import read
from pm_match.reading.evidence import Point


class NormalsStep(PartitionStep):
    """A step on some variables of normal clusters."""

    record = Normals

    def _prepare(self) -> None:
        super()._prepare()
        self._points = NormalsPoints(self.model, self.part)
        clustering = read(self.model).clustering_of(self.part)
        self._clustering = ClusteringPoints(self.model, clustering)
        self._objects = self.part.objects(clustering)

    def _labels(self, point: Point) -> list[NDArray[np.int64]]:
        """Read the labels (R,) of the vectors of every variable."""
        labels = self._clustering.labels(point)
        return [labels[objects] for objects in self._objects]
