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

Where precisions have factors :math:`u \sim \mathrm{Gamma}(a, b)`, a new vector is t given a draw of
means and precisions, :math:`x^* \sim t_{2a}(\mu_j, (b / a) \Lambda_j^{-1})`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model
from scipy.special import gammaln

from pm_match.normal.conjugate import posterior
from pm_match.normal.given_observed import Incomplete
from pm_match.normal.parts import Normals, NormalValues
from pm_match.normal.state import NormalsState
from pm_match.prediction.mixture import Law, NormalLaw
from pm_match.prediction.predictor import Holes, NewVectors, Place, Predictor, coords
from pm_match.reading.densities import common
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import natural_function
from pm_match.tables.domains import as_new_columns


class _Laws(NamedTuple):
    """How new vectors are distributed in T clusters: multivariate t."""

    means: NDArray[np.float64]  # (T, D)
    scales: NDArray[np.float64]  # (T, D, D)
    degrees: NDArray[np.float64]  # (T,)
    empty: NDArray[np.int64]  # clusters that are all alike: they have no vector

    def log_density(
        self, x: NDArray, known: NDArray[np.int64], some: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Log density (N, t) of `known` features (N, O) of vectors, in `some` clusters (t,)."""
        scale, degrees = self.scales[some][:, known][:, :, known], self.degrees[some]
        # In units of its own for each feature, which may be of very different sizes.
        unit = np.sqrt(np.diagonal(scale, axis1=1, axis2=2))
        root = np.linalg.cholesky(scale / (unit[:, :, None] * unit[:, None, :]))
        away = (x - self.means[some][:, None, known]) / unit[:, None, :]
        squares = np.square(np.linalg.solve(root, away.mT)).sum(axis=1).T
        half = 0.5 * (degrees + len(known))
        logs = np.log(unit).sum(axis=1) + np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        logs += 0.5 * len(known) * np.log(np.pi * degrees)
        logs += gammaln(0.5 * degrees) - gammaln(half)
        return -half * np.log1p(squares / degrees) - logs


class NormalsPredictor(Predictor):
    """Normal clusters at a draw.

    `normals`: whose vectors are observed.
    """

    def __init__(self, model: Model, normals: Normals, state: NormalsState):
        self.normals = normals
        self._parameters = natural_function(model, normals.names) if normals.factors else None
        clustering = state.site.clusterings[normals.clustering]
        self._objects = np.concatenate(normals.objects(clustering))

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
        if own.of_objects:
            return  # the laws are those of the draw's means and precisions
        prior = own.prior(point)
        self._labels = labels[own.clustering][self._objects]
        given = own.vectors(point), self._labels, own.truncation, prior, own.shared, own.power
        self._posterior = posterior(*given, own.precision_factors(point))
        found, weights = self._posterior, self._posterior.weights
        strength, free = prior.strength + weights, found.degrees - own.n_features + 1.0
        scales = ((strength + 1.0) / strength / free)[:, None, None] * found.inverse_scales
        free, empty = np.broadcast_to(free, weights.shape), np.flatnonzero(weights == 0.0)
        self._laws = _Laws(found.means, scales, free, empty)

    def _laws_of(self, values: NormalValues) -> _Laws:
        """Say how new vectors of a variable are distributed."""
        factor, n = values.factor, self.normals.truncation
        if factor is None:
            return self._laws
        a, b = (common(value) for value in factor.prior(self._point))
        if a is None or b is None:
            raise UnservedModelError(
                f"new objects of {values.name!r}: the prior of {factor.name!r} differs between "
                "objects; expected the same for all"
            )
        assert self._parameters is not None
        means, precisions = self._parameters(self._point)
        scales = np.linalg.inv(precisions) * (b / a)
        scales = np.broadcast_to(scales, (n, *scales.shape[-2:]))
        return _Laws(means, scales, np.full(n, 2.0 * a), np.zeros(0, np.int64))

    def log_predictive(self, place: Place, seen: NewVectors) -> NDArray[np.float64]:
        """Log predictive, with means and precisions, or factors of these, integrated out."""
        own, d = self._only(place), self.normals.n_features
        alignment, laws = own.alignment, self._laws_of(own)
        different = np.setdiff1d(np.arange(self.normals.truncation), laws.empty[1:])
        x, base = seen.values, 0.0
        if alignment is not None:
            to_clusters = alignment.read(self._point, d)
            x, base = to_clusters(x), -d * float(np.log(to_clusters.scale))
        found = np.zeros((len(x), self.normals.truncation + 1))
        for rows, hidden in seen.patterns:
            if not hidden.all():
                known = np.flatnonzero(~hidden)
                logs = laws.log_density(x[np.ix_(rows, known)], known, different)
                found[np.ix_(rows, different)] = logs + base
        found[:, laws.empty] = found[:, laws.empty[:1]]
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
        normals, drawn = self.normals, self._posterior.draw(rng)
        number = [own.name for own in normals.values].index(holes.variable)
        own, labels = normals.values[number], self._labels[normals.rows[number]]
        found = np.zeros((*holes.values.shape, 2))
        factors = None if own.factor is None else own.factor.read(self._point)
        for part in Incomplete.of(holes.values, own.incomplete).given(*drawn, factors):
            label = labels[part.rows]
            both = part.expected(label), part.deviations(label)
            found[part.rows] = np.stack(both, axis=-1)
        return found[np.isnan(holes.values)][wanted]

    def of_new(self, rng, place, seen, holes, log_weight):
        """Return places, scales and degrees of what is missing, by what that is."""
        laws = self._laws_of(self._only(place))
        for rows, hidden in seen.patterns:
            if not hidden.any():
                continue
            known = ~hidden
            across = laws.scales[:, hidden][:, :, known]
            inverse = np.linalg.inv(laws.scales[:, known][:, :, known])
            slopes = across @ inverse
            left = laws.scales[:, hidden][:, :, hidden] - slopes @ np.swapaxes(across, 1, 2)
            away = seen.values[rows][:, None, known] - laws.means[:, known]
            middle = laws.means[:, hidden] + np.einsum("tmo,rto->rtm", slopes, away)
            degrees = np.broadcast_to((laws.degrees + known.sum())[:, None], middle.shape)
            squares = laws.degrees + np.einsum("rto,top,rtp->rt", away, inverse, away)
            variances = np.diagonal(left, axis1=1, axis2=2)
            scale = np.sqrt((squares[:, :, None] / degrees) * variances)
            parameters = np.stack([degrees, middle, scale], axis=-1)
            yield rows, hidden, log_weight[rows, :-1], parameters

    def _of(self, place: Place) -> list[NormalValues]:
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

    degrees = parameters[..., 0]
    return Law(t, *np.moveaxis(parameters, -1, 0), median=bool((degrees <= 1.0).any()))
