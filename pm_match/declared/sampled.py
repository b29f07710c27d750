"""What likelihoods of one object, and of pairs, have in common: their declared densities."""

import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.evidence import EvidenceState, Point
from pm_match.declared.parts import Sampled
from pm_match.reading import as_read
from pm_match.reading.label_tables import LabelDensities
from pm_match.reading.owners import OTHER_STEPS, close
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import value_density


class SampledAccess:
    """What is compiled of a model for likelihoods whose parameters are not integrated out.

    `by_use`: as of `LabelDensities`.
    """

    def __init__(self, model: Model, evidence: Sampled, by_use: bool = False):
        model = as_read(model)
        assignments = [model[name] for name in evidence.assignments]
        factors = [model[name] for name in evidence.factors]
        self.keys = [model.rvs_to_values[rv].name for rv in assignments]
        self.densities = LabelDensities(model, factors, assignments, by_use=by_use)
        # What depends on labels itself is a factor, and counted as such.
        own = [model[name] for name in evidence.parameters if name not in evidence.factors]
        self.log_prior = value_density(model, own)
        self._model, self.evidence = weakref.ref(model), evidence

    @property
    def model(self) -> Model:
        """The model, which is not kept."""
        model = self._model()
        assert model is not None
        return model

    @cached_property
    def log_density(self) -> Callable[[Any], float]:
        """The declared log density of all factors at a point, for tests."""
        return value_density(self.model, [self.model[name] for name in self.evidence.factors])


class SampledState(EvidenceState):
    """Likelihoods whose parameters are not integrated out, for the units of a site."""

    evidence: Sampled
    access: SampledAccess
    _ends: NDArray[np.int64]  # where the objects of the second and of later assignments begin

    @property
    def _named(self) -> str:
        return ", ".join(map(repr, self.evidence.factors))

    def _of_nobody(self, entries: NDArray) -> float:
        """Sum entries (B, E) that no label changes.

        Raise `UnservedModelError` if one does after all.
        """
        if not close(entries, entries[:1]).all():
            raise UnservedModelError(
                f"{self._named}: expected log densities in which labels matter where they did "
                f"when the model was read; found a draw where they matter elsewhere. {OTHER_STEPS}"
            )
        return float(entries[0].sum())

    def log_prior(self, point: Point) -> float:
        """Log density of the parameters, on the scale that is sampled."""
        return self.access.log_prior(point)

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log density of the factors, as it is declared."""
        own = np.concatenate([labels[number] for number in self.evidence.clusterings])
        given = zip(self.access.keys, np.split(own, self._ends), strict=True)
        return self.access.log_density({**point, **dict(given)})

    def log_conditional(self, point: Point) -> float:
        """Nothing is integrated out."""
        return 0.0
