"""What is counted of labels where their draws are not kept: with which objects all others are."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.reading.parts import Clustering


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Some objects of a set of clusters."""

    clustering: Clustering
    # dict of (L,): which objects of every assignment, in ascending order
    chosen: Mapping[str, NDArray[np.int64]]

    @property
    def variables(self) -> list[str]:
        """The variables of a draw that say where all objects are."""
        own = self.clustering.assignments
        labels = [assignment.name for assignment in own if assignment.drawn]
        return labels + [assignment.relevance for assignment in own if assignment.relevance]

    @property
    def objects(self) -> NDArray[np.int64]:
        """Their numbers among the objects of all assignments."""
        slices = self.clustering.slices
        return np.concatenate([slices[name].start + own for name, own in self.chosen.items()])


class Counts:
    """Counts over the draws of a chain, for all objects of a set of clusters, (N,).

    An object that is irrelevant in a draw is in no cluster. There are `most` draws at most.
    """

    def __init__(self, landmarks: Landmarks, most: int):
        self.landmarks = landmarks
        self.n_draws = 0
        kind = np.int16 if most < 2**15 else np.int32
        own = landmarks.clustering
        self._objects = landmarks.objects
        self._domain = np.repeat(
            np.arange(len(own.assignments)), [each.n_objects for each in own.assignments]
        )
        # (L, N): draws in which an object shares a cluster with a landmark.
        self.together = np.zeros((len(self._objects), own.n_objects), kind)
        # (N,): draws in which it shares none with an object of another assignment.
        self.unmatched: NDArray = np.zeros(own.n_objects, kind)
        # Of every draw, the landmarks' labels (L,), and whether they are relevant (L,); how many
        # objects of every assignment are in every cluster (A, T).
        self.labels: list[NDArray] = []
        self.flags: list[NDArray] = []
        self.sizes: list[NDArray] = []

    def add(self, draw: Mapping[str, NDArray]) -> None:
        """Count a draw of the landmarks' variables."""
        own, n = self.landmarks.clustering, self.landmarks.clustering.truncation
        labels = np.concatenate([draw.get(each.name, each.known) for each in own.assignments])
        relevant = np.concatenate(
            [
                draw[each.relevance] != 0 if each.relevance else np.ones(each.n_objects, bool)
                for each in own.assignments
            ]
        )
        self.labels.append(labels[self._objects].astype(np.int32))
        self.flags.append(relevant[self._objects])
        # No cluster is one more.
        labels = np.where(relevant, labels, n)
        place = self._domain * (n + 1) + labels
        sizes = np.bincount(place, minlength=len(own.assignments) * (n + 1)).reshape(-1, n + 1)
        self.sizes.append(sizes[:, :n].astype(np.int32))
        others = sizes.sum(axis=0) - sizes
        others[:, n] = 0
        self.unmatched += (others == 0).reshape(-1)[place]
        labels = labels.astype(np.min_scalar_type(n))
        for counts, label in zip(self.together, labels[self._objects], strict=True):
            if label < n:
                counts += labels == label
        self.n_draws += 1
