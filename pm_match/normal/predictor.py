r"""What normal clusters say of new objects.

With means and precisions integrated out, a new vector is multivariate t in every cluster (Murphy
2007, eq. 232; see `normal_wishart` for the posterior),

.. math:: x^* \sim t_{\nu_j - D + 1}\left(m_j,
          \frac{\kappa_j + 1}{\kappa_j (\nu_j - D + 1)} \Psi_j\right)

Where the densities of the data count to a power (`coarsen`), the posterior is the coarsened one,
and the density of a new vector counts in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.normal.conjugate import posterior
from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.normal.parts import Normals, NormalValues
from pm_match.prediction.predictor import NewVectors, Place, Predictor, coords
from pm_match.reading.parts import Clustering, UnservedModelError
from pm_match.tables.domains import as_new_columns


class NormalsPredictor(Predictor):
    """Normal clusters at a draw.

    `normals`: whose vectors are observed.
    """

    def __init__(self, normals: Normals, clustering: Clustering):
        self.normals, slices = normals, clustering.slices
        self._objects = np.concatenate(
            [own.objects + slices[own.assignment].start for own in normals.values]
        )

    def observed(self, place: Place) -> list[str]:
        """Names of the observed variables of an assignment's objects."""
        return [own.name for own in self._of(place)]

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewVectors, list[tuple[str, NDArray]]]:
        """Check a table of new objects: columns with labels are matched by these."""
        own = self._only(place)
        where, d = f"{place.domain}: {own.name}", self.normals.n_features
        values, objects = as_new_columns(where, given[own.name], coords(model, own.name, 1), d)
        # Whole rows may be missing: these objects are not seen here.
        partly = ~np.isfinite(values) & ~np.isnan(values).all(axis=1, keepdims=True)
        missing = np.argwhere(partly)
        if len(missing):
            row, column = missing[0].tolist()
            raise ValueError(
                f"new objects of {where!r}, row {row}, column {column}: expected a finite number "
                f"(some missing values of a row are not served); found {values[row, column]}"
            )
        return NewVectors(values), [(own.name, objects)]

    def deviations(self, place: Place, seen: NewVectors) -> NDArray[np.float64]:
        """Say how many standard deviations new vectors are from the known objects' means."""
        known = self._only(place).data
        assert known is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.abs(seen.values - known.mean(axis=0)) / known.std(axis=0)

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring the clusters to a draw."""
        from scipy.stats import multivariate_t

        own, self._point = self.normals, point
        prior: NormalWishartPrior = own.prior(point)
        held, means, degrees, scales = posterior(
            own.vectors(point),
            labels[own.clustering][self._objects],
            own.truncation,
            prior,
            own.shared,
            own.power,
        )
        strength, free = prior.strength + held, degrees - own.n_features + 1.0
        scales = ((strength + 1.0) / strength / free)[:, None, None] * scales
        free = np.broadcast_to(free, held.shape)
        # Clusters without any vector are all alike.
        self._empty = np.flatnonzero(held == 0.0)
        self._laws = {
            int(j): multivariate_t(means[j], scales[j], free[j])
            for j in (*np.flatnonzero(held), *self._empty[:1])
        }

    def log_predictive(self, place: Place, seen: NewVectors) -> NDArray[np.float64]:
        """Log predictive of the vectors, means and precisions integrated out."""
        alignment, d = self._only(place).alignment, self.normals.n_features
        x, base = seen.values, 0.0
        if alignment is not None:
            to_clusters = alignment.read(self._point, d)
            x, base = to_clusters(x), -d * float(np.log(to_clusters.scale))
        found = np.zeros((len(x), self.normals.truncation + 1))
        for j, law in self._laws.items():
            found[:, j] = law.logpdf(x) + base
        found[:, self._empty] = found[:, self._empty[:1]]
        found[np.isnan(x).all(axis=1)] = 0.0
        return found

    def _of(self, place: Place) -> list[NormalValues]:
        if place.clustering != self.normals.clustering:
            return []
        return [own for own in self.normals.values if own.assignment == place.assignment.name]

    def _only(self, place: Place) -> NormalValues:
        """Return the variable of an assignment's objects."""
        found = self._of(place)
        if len(found) > 1:
            names = ", ".join(repr(own.name) for own in found)
            raise UnservedModelError(
                f"new objects of {place.domain!r}: {names} have the same means and precisions; "
                "predictions of several such variables are not served"
            )
        return found[0]
