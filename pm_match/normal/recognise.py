"""Reads normal clusters: variables that are normal around their cluster's mean.

Means and precisions have conjugate priors, and every cluster has a precision of its own, or all
share one. What varies around the means may be observed or a free variable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.multivariate import WishartRV
from pymc.distributions.transforms import CholeskyCovTransform
from pytensor.tensor.random.basic import MvNormalRV

from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.normal.parts import Normals, NormalValues
from pm_match.reading.ancestry import RV, Refusal, mean, names, parameters, scale
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, common
from pm_match.reading.evidence import Point
from pm_match.reading.probe import chosen_objects

# What is said of values that are not finite.
_INSTEAD = (
    "; expected finite numbers: let objects that are not seen have no row, as in "
    "mean[assignment[seen]]"
)
# How far from each other means are put to see which objects they are of: means that are cut off
# do not look like means then.
_FAR = 1e6


@dataclass(frozen=True, eq=False)
class NormalsCandidate:
    """What looks like normal clusters, by ancestry.

    Attributes
    ----------
    clustering : int
    mean, precision : variables
    truncation : int
    values, assignments : list of variables
        What varies around the means, and the assignment of each.
    """

    clustering: int
    mean: RV
    precision: RV
    truncation: int
    values: list[RV]
    assignments: list[RV]

    @property
    def covered(self) -> list[RV]:
        """The claimed variables that it is evidence of."""
        return list(self.values)

    @property
    def checked(self) -> list[RV]:
        """All random variables whose declared densities are looked at."""
        return [self.mean, *self.values]

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Normals:
        """Hold it against the declared densities."""
        return verified_normals(context, self, check)


def normals_candidates(
    context: Context, number: int, clustering: ClusteringCandidate, values: Sequence[RV]
) -> list[NormalsCandidate]:
    """Find the normal clusters of a clustering, and refuse what only looks like some."""
    found: dict[RV, NormalsCandidate] = {}
    for assignment in clustering.assignments:
        for rv in context.ancestry.children(assignment):
            if rv not in values:
                continue
            pair = mean_and_precision(context, rv)
            assert pair is not None
            if pair[0] not in found:
                found[pair[0]] = NormalsCandidate(number, *pair, clustering.truncation, [], [])
            _check_values(context, rv, assignment, *pair)
            found[pair[0]].values.append(rv)
            found[pair[0]].assignments.append(assignment)
    flagged = [rv for c in found.values() for rv in c.assignments if rv in clustering.flags]
    if flagged:
        raise Refusal(
            f"{names(flagged)} has normal clusters, which its relevance "
            f"{clustering.flags[flagged[0]].name!r} does not enter"
        )
    for candidate in found.values():
        _check_candidate(context, candidate)
    return list(found.values())


def mean_and_precision(context: Context, rv: RV) -> tuple[RV, RV] | None:
    """Return the means and precisions that a variable varies around, if it looks like that."""
    parents = context.ancestry.parents[rv]
    if not isinstance(rv.owner.op, MvNormalRV):
        return None
    for candidate in parents:
        if candidate in context.model.free_RVs and isinstance(candidate.owner.op, MvNormalRV):
            for precision in context.ancestry.parents[candidate] & parents:
                if isinstance(precision.owner.op, WishartRV):
                    return candidate, precision
    return None


def _check_values(context: Context, rv, assignment, centers, precision) -> None:
    others = context.ancestry.parents[rv] - {assignment, centers, precision}
    if others:
        raise Refusal(
            f"{rv.name!r} depends on {names(others)} too; expected vectors that are normal around "
            f"{centers.name!r} with precision {precision.name!r}, and nothing else"
        )
    context.must_be_plain(rv, (), discrete=[assignment])


def _check_candidate(context: Context, candidate: NormalsCandidate) -> None:
    centers, precision, n = candidate.mean, candidate.precision, candidate.truncation
    for rv, transforms in ((centers, ()), (precision, (CholeskyCovTransform,))):
        context.must_be_free(rv)
        context.must_be_plain(rv, transforms)
    shape = context.shapes[centers.name]
    if len(shape) != 2 or shape[0] != n:
        raise Refusal(
            f"{centers.name!r} has shape {shape}; expected one mean for each of {n} clusters"
        )
    d = shape[1]
    if context.shapes[precision.name] not in ((d, d), (n, d, d)):
        raise Refusal(
            f"{precision.name!r} has shape {context.shapes[precision.name]}; expected one "
            f"precision ({d}, {d}), or one for each cluster ({n}, {d}, {d})"
        )
    context.ancestry.only_children(centers, candidate.values)
    context.ancestry.only_children(precision, [centers, *candidate.values])


# -- what the candidates mean, by numbers --------------------------------------------------------


def verified_normals(context: Context, candidate: NormalsCandidate, check: DensityCheck) -> Normals:
    """Hold a candidate against its declared densities."""
    centers, precision = candidate.mean, candidate.precision
    shared = len(context.shapes[precision.name]) == 2
    prior = _prior_function(context, centers, precision)
    values = tuple(
        NormalValues(
            rv.name,
            assignment.name,
            _objects(context, rv, assignment, candidate),
            None if rv in context.model.free_RVs else context.table([rv], _INSTEAD)[0],
        )
        for rv, assignment in zip(candidate.values, candidate.assignments, strict=True)
    )
    expected: dict[RV, list[NDArray]] = {rv: [] for rv in candidate.checked}
    natural = check.at([centers, precision])
    for number, (point, (own_mean, own_precision)) in enumerate(
        zip(check.points, natural, strict=True)
    ):
        one = prior(point)
        expected[centers].append(log_mv_normal(own_mean - one.center, one.strength * own_precision))
        for rv, assignment, own in zip(
            candidate.values, candidate.assignments, values, strict=True
        ):
            x = point[rv.name] if own.data is None else own.data
            labels = check.value(number, assignment)[own.objects]
            rows = own_precision if shared else own_precision[labels]
            expected[rv].append(log_mv_normal(x - own_mean[labels], rows))
    if not check.agrees(centers, expected[centers]):
        raise Refusal(
            f"the declared density of {centers.name!r} is not that of means whose precision is a "
            f"multiple of {precision.name!r}, around one centre for all clusters"
        )
    for rv in candidate.values:
        if not check.agrees(rv, expected[rv]):
            raise Refusal(
                f"the declared density of {rv.name!r} is not normal around {centers.name!r} of its "
                f"clusters with their precision {precision.name!r}"
            )
    return Normals(
        clustering=candidate.clustering,
        mean=centers.name,
        precision=precision.name,
        shared=shared,
        truncation=candidate.truncation,
        n_features=context.shapes[centers.name][1],
        values=values,
        prior=prior,
    )


def log_mv_normal(away: NDArray, precision: NDArray) -> NDArray[np.float64]:
    """Log density (N,) of normal vectors at distances (N, D) from their means.

    Their precision is (D, D), or (N, D, D).
    """
    log_det = np.linalg.slogdet(precision)[1]
    squares = np.einsum("...i,...ij,...j->...", away, precision, away)
    return 0.5 * (log_det - away.shape[-1] * np.log(2.0 * np.pi) - squares)


def _prior_function(context: Context, centers: RV, precision: RV):
    """Make a reader of the prior at a point; refuse priors that differ between clusters."""
    n, d = context.shapes[centers.name]
    identity = np.broadcast_to(np.eye(d), context.shapes[precision.name])
    # With precision 1, the covariance of the means is 1 over their strength.
    of_means = context.at([mean(centers), scale(centers)], {precision: identity})
    of_precision = context.at(parameters(precision))
    (center, _), (nu, lower) = of_means(context.start), of_precision(context.start)
    for rv, values, ndim in ((centers, center, 1), (precision, nu, 0), (precision, lower, 2)):
        if common(values, ndim) is None:
            raise Refusal(
                f"the prior of {rv.name!r} differs between clusters; expected the same for all"
            )

    # Of the context, only this: what is read must not keep its model.
    def prior(point: Point) -> NormalWishartPrior:
        (center, covariance), (nu, lower) = of_means(point), of_precision(point)
        inverse = np.linalg.inv(lower.reshape(-1, d, d)[0])
        return NormalWishartPrior(
            np.array(np.broadcast_to(center, (n, d))[0], dtype=float),
            float(1.0 / covariance.flat[0]),
            float(nu.flat[0]),
            inverse.T @ inverse,
        )

    return prior


def _objects(
    context: Context, rv: RV, assignment: RV, candidate: NormalsCandidate
) -> NDArray[np.int64]:
    """Find which object each row of a variable is of, by the means that objects' labels choose."""
    centers, precision = candidate.mean, candidate.precision
    n_objects = context.shapes[assignment.name][0]
    n_clusters, d = context.shapes[centers.name]
    if n_clusters < 2:
        raise Refusal(f"{centers.name!r} has one mean; expected several clusters")
    # PyMC may give the mean the shape of the covariance, and with it a dependence on that.
    identity = np.broadcast_to(np.eye(d), context.shapes[precision.name])
    numbered = np.repeat(_FAR * np.arange(n_clusters)[:, None], d, axis=1)
    givens = {centers: numbered, precision: identity}
    found = chosen_objects(context.model, mean(rv), assignment, givens, n_objects, _FAR)
    if found is None:
        raise Refusal(
            f"the mean of {rv.name!r} is not {centers.name!r} of the clusters of some of the "
            f"objects of {assignment.name!r}"
        )
    if found.max(initial=0) >= n_objects:
        raise Refusal(f"the mean of {rv.name!r} is not made of rows of {centers.name!r}")
    return found
