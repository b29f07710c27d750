"""Writes points of value variables, for networks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer, from_log_odds
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
            mean, log_precision = drawn
            precision = names[1]
            value = log_precision if self.transformed[precision] else np.exp(log_precision)
            self.write(point, {names[0]: mean, precision: value})
            return
        (name,), (value,) = names, drawn
        if self.relation.family in PROBABILITIES:
            value = from_log_odds(value, self.transformed[name])
        elif not self.transformed[name]:
            value = np.exp(value)
        self.write(point, {name: value})
