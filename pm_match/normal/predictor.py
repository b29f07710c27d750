r"""What normal clusters say of new objects.

With means and precisions integrated out, a new vector is multivariate t in every cluster (Murphy
2007, eq. 232; see `normal_wishart` for the posterior),

.. math:: x^* \sim t_{\nu_j - D + 1}\left(m_j,
          \frac{\kappa_j + 1}{\kappa_j (\nu_j - D + 1)} \Psi_j\right)

Of a vector some of whose values are missing, the observed ones are t with the entries that are
theirs; and with M missing and O observed,

.. math:: x^*_M \mid x^*_O \sim t_{\nu + |O|}\left(m_M + S_{MO} S_{OO}^{-1} (x^*_O - m_O),
          \frac{\nu + (x^*_O - m_O)^\top S_{OO}^{-1} (x^*_O - m_O)}{\nu + |O|}
          (S_{MM} - S_{MO} S_{OO}^{-1} S_{OM})\right)

for a t of :math:`\nu` degrees, place m and scale S (M. Roth 2013, "On the multivariate t
distribution", section 4).

Where the densities of the data count to a power (`coarsen`), the posterior is the coarsened one,
and the density of a new vector counts in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.normal.conjugate import draw_posterior, posterior
from pm_match.normal.given_observed import Incomplete
from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.normal.parts import Normals, NormalValues
from pm_match.prediction.mixture import Law, NormalLaw
from pm_match.prediction.predictor import Holes, NewVectors, Place, Predictor, coords
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
        partly = np.isnan(values) & ~np.isnan(values).all(axis=1, keepdims=True)
        missing = np.argwhere(partly)
        if len(missing) and own.alignment is not None:
            row, column = missing[0].tolist()
            raise ValueError(
                f"new objects of {where!r}, row {row}, column {column}: expected a finite number "
                "(some missing values of a row are not served where a domain is seen through a "
                f"map); found {values[row, column]}"
            )
        return NewVectors(values), [(own.name, objects)]

    def deviations(self, place: Place, seen: NewVectors) -> NDArray[np.float64]:
        """Say how many standard deviations new vectors are from the known objects' means."""
        known = self._only(place).data
        assert known is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.abs(seen.values - np.nanmean(known, axis=0)) / np.nanstd(known, axis=0)

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring the clusters to a draw."""
        own, self._point = self.normals, point
        prior: NormalWishartPrior = own.prior(point)
        self._labels = labels[own.clustering][self._objects]
        given = own.vectors(point), self._labels, own.truncation, prior, own.shared, own.power
        self._posterior = held, means, degrees, scales = posterior(*given)
        strength, free = prior.strength + held, degrees - own.n_features + 1.0
        scales = ((strength + 1.0) / strength / free)[:, None, None] * scales
        self._means, self._scales = means, scales
        self._free = np.broadcast_to(free, held.shape)
        # Clusters without any vector are all alike.
        self._empty = np.flatnonzero(held == 0.0)
        self._different = np.append(np.flatnonzero(held), self._empty[:1])

    def log_predictive(self, place: Place, seen: NewVectors) -> NDArray[np.float64]:
        """Log predictive of the vectors, means and precisions integrated out."""
        from scipy.stats import multivariate_t

        alignment, d = self._only(place).alignment, self.normals.n_features
        x, base = seen.values, 0.0
        if alignment is not None:
            to_clusters = alignment.read(self._point, d)
            x, base = to_clusters(x), -d * float(np.log(to_clusters.scale))
        found = np.zeros((len(x), self.normals.truncation + 1))
        for rows, hidden in seen.patterns():
            if not hidden.all():
                known = np.flatnonzero(~hidden)
                for j in self._different:
                    scale = self._scales[j][np.ix_(known, known)]
                    law = multivariate_t(self._means[j, known], scale, self._free[j])
                    found[rows, j] = law.logpdf(x[np.ix_(rows, known)]) + base
        found[:, self._empty] = found[:, self._empty[:1]]
        return found

    # -- missing values ---------------------------------------------------------------------------

    def holes(self, place: Place, seen: NewVectors | None = None) -> list[Holes]:
        """Give the vectors of an assignment's objects with missing values, or new ones."""
        if seen is not None:
            new = self._only(place)
            holed = np.isnan(seen.values).any() and new.alignment is None
            return [Holes(new.name, new.name, seen.values, _t_law)] if holed else []
        found = []
        for own in self._of(place):
            if own.data is not None and own.missing:
                n = place.assignment.n_objects
                whole = np.array_equal(own.objects, np.arange(n))
                found.append(Holes(own.name, own.name, own.data, NormalLaw.of, by_object=whole))
        return found

    def of_missing(self, rng, place, holes, wanted):
        """Return means and standard deviations, given draws of means and precisions."""
        normals, start = self.normals, 0
        prior = normals.prior(self._point)
        drawn = draw_posterior(rng, *self._posterior, prior, normals.shared)
        for own in normals.values:
            if own.name == holes.variable:
                break
            start += len(own.objects)
        labels, found = self._labels[start:], np.zeros((*holes.values.shape, 2))
        for part in Incomplete.of(holes.values, own.incomplete).given(*drawn):
            label = labels[part.rows]
            both = part.expected(label), part.deviations(label)
            found[part.rows] = np.stack(both, axis=-1)
        return found[np.isnan(holes.values)][wanted]

    def of_new(self, rng, place, seen, holes, log_weight):
        """Return places, scales and degrees of what is missing, by what that is."""
        for rows, hidden in seen.patterns():
            if not hidden.any():
                continue
            known = ~hidden
            across = self._scales[:, hidden][:, :, known]
            inverse = np.linalg.inv(self._scales[:, known][:, :, known])
            slopes = across @ inverse
            left = self._scales[:, hidden][:, :, hidden] - slopes @ np.swapaxes(across, 1, 2)
            away = seen.values[rows][:, None, known] - self._means[:, known]
            middle = self._means[:, hidden] + np.einsum("tmo,rto->rtm", slopes, away)
            degrees = np.broadcast_to((self._free + known.sum())[:, None], middle.shape)
            squares = self._free + np.einsum("rto,top,rtp->rt", away, inverse, away)
            variances = np.diagonal(left, axis1=1, axis2=2)
            scale = np.sqrt((squares[:, :, None] / degrees) * variances)
            parameters = np.stack([degrees, middle, scale], axis=-1)
            yield rows, hidden, log_weight[rows, :-1], parameters

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


def _t_law(parameters: NDArray) -> Law:
    from scipy.stats import t

    return Law(t, *np.moveaxis(parameters, -1, 0))
