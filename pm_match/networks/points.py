"""Writes points of value variables, for networks."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.networks.data import PROBABILITIES
from pm_match.networks.parts import Relation


class RelationPoints(Writer):
    """Writes the parameters of blocks and of noise."""

    def __init__(self, model: Model, relation: Relation):
        super().__init__(model, relation.names)
        self.relation = relation

    def write_parameters(
        self, point: dict[str, NDArray], names: Sequence[str], drawn: Sequence[NDArray]
    ) -> None:
        """Write parameters, as `families.draw_parameters` gives them."""
        if self.relation.family == "normal":
            self.write(point, {names[0]: drawn[0]})
        write = (
            self.write_probability if self.relation.family in PROBABILITIES else self.write_positive
        )
        write(point, names[-1], drawn[-1])

    def read_parameters(
        self, point: Mapping[str, NDArray], names: Sequence[str]
    ) -> list[NDArray[np.float64]]:
        """Read parameters, as `families.draw_parameters` gives them; none of no names."""
        found = [np.asarray(self.read(point, name), np.float64) for name in names[:-1]]
        for name in names[-1:]:
            if self.relation.family in PROBABILITIES:
                found.append(self.read_log_odds(point, name))
            else:
                found.append(self.read_log(point, name))
        return found
