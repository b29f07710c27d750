"""How the features of irrelevant objects vary, read from a model."""

import numpy as np
from pymc.model.core import Model

from pm_match.features.marginals import Marginal
from pm_match.features.parts import Projected
from pm_match.features.recognise_marginals import noise_root
from pm_match.reading.ancestry import Refusal, mean, scale
from pm_match.reading.densities import common
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import point_function


class Background:
    """The marginal of a domain's irrelevant objects, at any point.

    Parameters
    ----------
    model : pymc.Model
    domain : Projected
        One whose objects may be irrelevant.

    Raises
    ------
    UnservedModelError
        On evaluation, if irrelevant objects do not all vary alike: of a new one nothing is known.
    """

    def __init__(self, model: Model, domain: Projected):
        self._rv = model[domain.name]
        self._n_features = domain.data.values.shape[1]
        assignment, flag = model[domain.assignment], model[str(domain.flag)]
        nobody = np.zeros(len(domain.data.values), np.int64)
        # Where the flags are 0, neither the cluster nor its latent vector enters.
        self._read = point_function(
            model, [mean(self._rv), scale(self._rv)], {flag: nobody, assignment: nobody}
        )

    def __call__(self, point) -> Marginal:
        """Return the marginal at a point of value variables."""
        centre, width = self._read(point)
        row = common(np.atleast_2d(centre), 1)
        if row is None:
            raise UnservedModelError(
                f"{self._rv.name!r}: the means of its irrelevant objects differ; expected one, "
                "which a new object would have too"
            )
        intercept = np.broadcast_to(row, (self._n_features,)).astype(float)
        try:
            root = noise_root(self._rv, width, self._n_features)
        except Refusal as refusal:
            raise UnservedModelError(f"irrelevant objects: {refusal}") from refusal
        return Marginal(np.zeros((self._n_features, 0)), intercept, root)
