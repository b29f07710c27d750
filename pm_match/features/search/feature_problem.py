"""Feature vectors to be clustered and matched, as arrays, and what an assignment of them scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lgamma, log, pi

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.units import Units
from pm_match.features.emission import Emission
from pm_match.features.feature_sums import ClusterSums, contribution, log_evidence
from pm_match.features.projection_fit import ClusterTable, Groups
from pm_match.numerics.masked import MaskedTable

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FeatureProblem:
    """One clustering seen by feature vectors alone, all numbers of the model given."""

    domains: tuple[MaskedTable, ...]
    units: Units  # what moves together: objects are numbered domain after domain
    n_factors: int
    # shape, rate: gamma prior of the noise precision
    shape: float
    rate: float
    latent_precision: float  # precision of the latent vectors over that of the noise
    # a, b (T - 1,): beta parameters of the sticks; T is the most labels there are
    a: NDArray[np.float64]
    b: NDArray[np.float64]

    @property
    def truncation(self) -> int:
        """T, the most labels there are."""
        return len(self.a) + 1

    @cached_property
    def order(self) -> Labels:
        """The labels (T,), the one with the largest prior weight first."""
        mean = np.append(self.a / (self.a + self.b), 1.0)
        mean[1:] *= np.cumprod(self.b / (self.a + self.b))
        return np.argsort(-mean, kind="stable")

    @cached_property
    def domain_of(self) -> Labels:
        """The domain of every object."""
        sizes = [len(domain.values) for domain in self.domains]
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def homes(self) -> Labels:
        """The domain that holds all of a unit, D for units that links spread over several."""
        home = self.domain_of[self.units.first]
        spread = np.bincount(
            self.units.of_object,
            self.domain_of != home[self.units.of_object],
            minlength=len(home),
        )
        return np.where(spread > 0, len(self.domains), home)

    def split(self, of_object: NDArray) -> list[NDArray]:
        """Split what there is for every object by domains."""
        return np.split(of_object, np.flatnonzero(np.diff(self.domain_of)) + 1)

    def only(self, chosen: Sequence[int]) -> tuple["FeatureProblem", Labels]:
        """Leave some domains only; also return which unit of the whole each unit is part of."""
        objects = np.flatnonzero(np.isin(self.domain_of, chosen))
        whole, first, of_object, size = np.unique(
            self.units.of_object[objects],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        domains = tuple(self.domains[d] for d in sorted(chosen))
        left = replace(self, domains=domains, units=Units(of_object.reshape(-1), size, first))
        return left, whole

    def with_data(self, domains: Sequence[MaskedTable]) -> "FeatureProblem":
        """Return the same problem about other values of the same objects and features."""
        return replace(self, domains=tuple(domains))

    def grouped(self, labels: Labels) -> Groups:
        """Group the units by home and by their `labels` (U,)."""
        codes, of_unit = np.unique(self.homes * self.truncation + labels, return_inverse=True)
        of_unit, n_groups = of_unit.reshape(-1), len(codes)
        of_object = of_unit[self.units.of_object]
        sums, counts, blocks = [], [], []
        bases: list[NDArray[np.float64] | None] = []
        squares = 0.0
        for domain, group in zip(self.domains, self.split(of_object), strict=True):
            summed = ClusterSums.of(domain, group, n_groups)
            squares += float(summed.scatter.sum())
            own, seen = summed.sums, np.broadcast_to(summed.counts, summed.sums.shape)
            widths, basis = [1] * own.shape[1], None
            if domain.observed is None and widths:
                # Other domains' groups have no sums here, and need no rows.
                here = np.flatnonzero(seen[:, 0])
                basis, triangle = np.linalg.qr(own[here].T)
                own, seen, widths = (
                    np.zeros((n_groups, len(triangle))),
                    seen[:, :1],
                    [len(triangle)],
                )
                own[here] = triangle.T
            sums.append(own)
            counts.append(seen)
            blocks += widths
            bases.append(basis)
        n_values = sum(domain.n_values for domain in self.domains)
        posterior = self.shape + 0.5 * n_values
        normaliser = self.shape * log(self.rate) - lgamma(self.shape) + lgamma(posterior)
        normaliser -= 0.5 * n_values * log(2.0 * pi)
        whole, seen = np.hstack(sums), np.hstack(counts)
        t, first = self.truncation, np.cumsum([0, *blocks])
        hyper = np.array([posterior, self.rate + 0.5 * squares, self.latent_precision, normaliser])
        room = np.empty((t, whole.shape[1])), np.empty((t, seen.shape[1])), np.empty(t, np.int64)
        table = ClusterTable.of(first, hyper, *room, np.empty((whole.shape[1], self.n_factors)))
        return Groups(
            table,
            whole,
            np.ascontiguousarray(seen),
            np.bincount(of_object, minlength=n_groups),
            np.stack([self.a, self.b]),
            self.order,
            bases,
            np.cumsum([own.shape[1] for own in sums])[:-1],
            of_unit,
            *np.divmod(codes, t),
        )

    def fit(self, labels: Labels) -> tuple[float, list[NDArray[np.float64]]]:
        """Log joint of units' `labels` (U,) with projections fitted, and these.

        The log joint is log p(labels) + max log p(data | labels, projections), latent vectors,
        precision and weights integrated out, with the labels in the order that makes it largest.
        """
        return self.grouped(labels).fit()

    def log_evidence(self, labels: Labels, projections: Sequence[NDArray]) -> float:
        """Log p(data | labels of units, projections), latent vectors and precision integrated out.

        Iwata, Hirao & Ueda (2016), eq. (4).
        """
        by_domain = self.split(labels[self.units.of_object])
        own = [
            contribution(ClusterSums.of(data, label, self.truncation), Emission.of_projection(w))
            for data, label, w in zip(self.domains, by_domain, projections, strict=True)
        ]
        n_values = sum(domain.n_values for domain in self.domains)
        return log_evidence(own, self.latent_precision, (self.shape, self.rate), n_values)

    def in_order(self, labels: Labels) -> Labels:
        """Rename labels (U,) so that the larger a cluster is, the heavier its label by the prior.

        It is the order in which `fit` scores them.
        """
        counts = np.bincount(labels, self.units.size, minlength=self.truncation)
        renamed = np.empty(self.truncation, np.int64)
        renamed[np.argsort(-counts, kind="stable")] = self.order
        return renamed[labels]
