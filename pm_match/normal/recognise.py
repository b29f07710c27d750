"""Reads normal clusters: variables that are normal around their cluster's mean.

Means and precisions have conjugate priors, and every cluster has a precision of its own, or all
share one. What varies around the means may be observed or a free variable. Observed domains may be
seen through maps of their own, and their densities may count to a power (`coarsen`). The precision
of every vector may have a Gamma factor of its own, which makes it Student's t. Where values are
missing, PyMC observes a part of a variable, and has a free one for the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.multivariate import WishartRV
from pymc.distributions.transforms import CholeskyCovTransform
from pymc.logprob.transforms import LogTransform
from pytensor.tensor.random.basic import GammaRV, LogNormalRV, MvNormalRV, NormalRV

from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.normal.parts import (
    Alignment,
    Normals,
    NormalValues,
    PrecisionFactor,
    ScaleMatrix,
)
from pm_match.numerics.kept import Kept
from pm_match.reading.ancestry import (
    RV,
    Refusal,
    mean,
    names,
    parameters,
    scale,
    undivided,
)
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.coarsen import powers
from pm_match.reading.context import Context
from pm_match.reading.densities import FAR, DensityCheck, common, still_common
from pm_match.reading.probe import chosen_objects

# What is said of values that are not finite.
_INSTEAD = (
    "; expected finite numbers, or NaN or a mask where they are missing; objects that are not seen "
    "need no row, as in mean[assignment[seen]]"
)
# How far from each other means are put to see which objects they are of: means that are cut off
# do not look like means then.
_FAR = 1e6


@dataclass(frozen=True, eq=False)
class NormalsCandidate:
    """What looks like normal clusters, by ancestry."""

    clustering: int
    mean: RV
    precision: RV
    truncation: int
    # values, assignments: what varies around the means, and the assignment of each
    values: list[RV] = field(default_factory=list)
    assignments: list[RV] = field(default_factory=list)
    # by the coarsened ones of these, the potential that says so, and the power
    powers: dict[RV, tuple[RV, float]] = field(default_factory=dict)
    # by those of which something is missing, what holds it
    missing: dict[RV, RV] = field(default_factory=dict)

    @property
    def covered(self) -> list[RV]:
        """The claimed variables that it is evidence of."""
        potentials = [potential for potential, _ in self.powers.values()]
        return [*self.values, *self.missing.values(), *potentials]

    @property
    def checked(self) -> list[RV]:
        """All random variables whose declared densities are looked at."""
        return [self.mean, *self.values, *self.missing.values()]

    def parts(self, rv: RV) -> list[RV]:
        """Return one of the values, and what holds what is missing of it, if something is."""
        return [rv, self.missing[rv]] if rv in self.missing else [rv]

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Normals:
        """Hold it against the declared densities."""
        centers, precision = self.mean, self.precision
        shared = len(context.shapes[precision.name]) == 2
        prior = _prior_function(context, centers, precision, check)
        values = []
        for rv, assignment in zip(self.values, self.assignments, strict=True):
            alignment = _alignment(context, self, rv, assignment)
            data = None if rv in context.model.free_RVs else _table(context, self.parts(rv))
            if alignment is None:
                objects = _objects_of_rows(context, rv, assignment, self, data)
                _check_noise(context, rv, precision)
            else:
                objects = _all_objects(context, rv, assignment)
                _check_alignment(rv, alignment, check)
            missing = self.missing[rv].name if rv in self.missing else None
            factor = _factor(context, self, rv, len(objects))
            name = context.whole_name(rv)
            own = NormalValues(name, assignment.name, objects, data, alignment, missing, factor)
            values.append(own)
        expected: dict[RV, list[NDArray]] = {rv: [] for rv in self.checked}
        natural = check.at([centers, precision])
        for number, (point, (own_mean, own_precision)) in enumerate(
            zip(check.points, natural, strict=True)
        ):
            one = prior(point)
            of_means = log_mv_normal(own_mean - one.center, one.strength * own_precision)
            expected[centers].append(of_means)
            for rv, assignment, own in zip(self.values, self.assignments, values, strict=True):
                labels = check.value(number, assignment)[own.objects]
                rows = own_precision if shared else own_precision[labels]
                if own.factor is not None:
                    rows = own.factor.read(point)[:, None, None] * rows
                found = log_mv_normal(own.vectors(point) - own_mean[labels], rows)
                if own.alignment is not None:
                    d = own_mean.shape[1]
                    found -= d * np.log(own.alignment.read(point, d).scale)
                for part, members in _rows_of_parts(self.parts(rv), own.data):
                    expected[part].append(found[members])
        if not check.agrees(centers, expected[centers]):
            raise Refusal(
                f"the declared density of {centers.name!r} is not that of means whose precision is "
                f"a multiple of {precision.name!r}, around one centre for all clusters"
            )
        for rv in (*self.values, *self.missing.values()):
            if not check.agrees(rv, expected[rv]):
                raise Refusal(
                    f"the declared density of {rv.name!r} is not normal around {centers.name!r} of "
                    f"its clusters with their precision {precision.name!r}"
                )
        power = next((power for _, power in self.powers.values()), 1.0)
        return Normals(
            clustering=self.clustering,
            mean=centers.name,
            precision=precision.name,
            shared=shared,
            truncation=self.truncation,
            n_features=context.shapes[centers.name][1],
            values=tuple(values),
            prior=prior,
            power=power,
            scale_matrix=_scale_matrix(context, precision, prior, check),
        )


def normals_candidates(
    context: Context, number: int, clustering: ClusteringCandidate, values: Sequence[RV]
) -> list[NormalsCandidate]:
    """Find the normal clusters of a clustering, and refuse what only looks like some."""
    found: dict[RV, NormalsCandidate] = {}
    coarse = powers(context, values)
    for assignment in clustering.assignments:
        for rv in context.ancestry.children(assignment):
            if rv not in values or rv in context.model.potentials:
                continue
            pair = mean_and_precision(context, rv)
            assert pair is not None
            if pair[0] not in found:
                found[pair[0]] = NormalsCandidate(number, *pair, clustering.truncation)
            own = found[pair[0]]
            context.must_be_plain(rv, (), discrete=[assignment])
            if context.is_missing(rv):
                # It goes with what is observed.
                context.ancestry.only_children(rv, [])
                continue
            missing = context.missing_part(rv)
            if missing is not None:
                if not context.observed([rv]).size:
                    raise Refusal(f"{context.whole_name(rv)!r}: expected some observed value")
                own.missing[rv] = missing
            if rv in coarse:
                own.powers[rv] = coarse[rv]
            own.values.append(rv)
            own.assignments.append(assignment)
    flagged = [rv for c in found.values() for rv in c.assignments if rv in clustering.flags]
    if flagged:
        raise Refusal(
            f"{names(flagged, 'has')} normal clusters, which its relevance "
            f"{clustering.flags[flagged[0]].name!r} does not enter"
        )
    for candidate in found.values():
        _check_candidate(context, candidate)
    return list(found.values())


def mean_and_precision(context: Context, rv: RV) -> tuple[RV, RV] | None:
    """Return the means and precisions that a variable varies around, if it looks like that."""
    parents = context.ancestry.parents[rv]
    if not isinstance(undivided(rv).owner.op, MvNormalRV):
        return None
    for candidate in parents:
        if candidate in context.model.free_RVs and isinstance(candidate.owner.op, MvNormalRV):
            for precision in context.ancestry.parents[candidate] & parents:
                if isinstance(precision.owner.op, WishartRV):
                    return candidate, precision
    return None


def _alignment(
    context: Context, candidate: NormalsCandidate, rv: RV, assignment: RV
) -> Alignment | None:
    """Find the variables of the map that a domain's clusters are seen through, by their form."""
    centers, precision = candidate.mean, candidate.precision
    d = context.shapes[centers.name][-1]
    others = context.ancestry.parents[rv] - {assignment, centers, precision}
    others -= {_declared_factor(context, rv)}
    forms = (
        ("orientation", NormalRV, (d, d)),
        ("scale", LogNormalRV, ()),
        ("intercept", NormalRV, (d,)),
    )
    found: dict[str, RV] = {}
    for own in others:
        for role, kind, shape in forms:
            free = own in context.model.free_RVs and isinstance(own.owner.op, kind)
            if role not in found and free and context.shapes[own.name] == shape:
                found[role] = own
                break
        else:
            raise Refusal(
                f"{rv.name!r} depends on {own.name!r} too; expected vectors that are normal around "
                f"{centers.name!r} with precision {precision.name!r}, seen through an orientation "
                f"(pm.Normal, {d} x {d}), a scale (pm.LogNormal) and an intercept (pm.Normal, "
                f"{d}), its precision multiplied by a number for each vector (pm.Gamma)"
            )
    if not found:
        return None
    for role, own in found.items():
        context.must_be_plain(own, (LogTransform,) if role == "scale" else ())
        context.ancestry.only_children(own, candidate.covered, drawn=True)
    scale = found.get("scale")
    return Alignment(
        **{role: found[role].name if role in found else None for role, _, _ in forms},
        keys={own.name: context.key(own) for own in found.values()},
        logs=scale is not None and context.transformed(scale),
        priors={own.name: context.normal_prior(own) for own in found.values()},
    )


def _declared_factor(context: Context, rv: RV) -> RV | None:
    """Find the free Gamma variable that a vector's precision is multiplied by, if there is one."""
    found = [
        own
        for own in context.ancestry.parents[rv]
        if own in context.model.free_RVs and isinstance(own.owner.op, GammaRV)
    ]
    if len(found) > 1:
        raise Refusal(f"{rv.name!r} depends on {names(found)}; expected one factor of precisions")
    return found[0] if found else None


def _factor(
    context: Context, candidate: NormalsCandidate, rv: RV, n: int
) -> PrecisionFactor | None:
    """Describe what the precisions of a variable's n vectors are multiplied by, if by anything."""
    own = _declared_factor(context, rv)
    if own is None:
        return None
    if context.shapes[own.name] != (n,):
        raise Refusal(
            f"{own.name!r} has shape {context.shapes[own.name]}; expected a factor for each of the "
            f"{n} vectors of {rv.name!r}"
        )
    context.must_be_plain(own, (LogTransform,))
    if not context.transformed(own):
        raise Refusal(f"{own.name!r} has no transform; expected PyMC's default")
    potential = [candidate.powers[rv][0]] if rv in candidate.powers else []
    context.ancestry.only_children(own, [*candidate.parts(rv), *potential], drawn=True)
    return PrecisionFactor(own.name, context.key(own), context.gamma_prior(own))


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
    context.ancestry.only_children(centers, candidate.covered)
    context.ancestry.only_children(precision, [centers, *candidate.covered])
    pairs = zip(candidate.values, candidate.assignments, strict=True)
    mapped = [_alignment(context, candidate, *pair) is not None for pair in pairs]
    if (candidate.powers or any(mapped)) and len(context.shapes[precision.name]) == 2:
        raise Refusal(
            f"{precision.name!r} is one precision for all clusters; expected one for each where "
            "domains are seen through maps, or coarsened"
        )
    if candidate.missing and (candidate.powers or any(mapped)):
        raise Refusal(
            f"{names(candidate.missing.values(), 'holds')} missing values; expected none where "
            "domains are seen through maps, or coarsened"
        )
    powers = {candidate.powers[rv][1] if rv in candidate.powers else 1.0 for rv in candidate.values}
    if len(powers) > 1:
        raise Refusal(
            f"the densities of {names(candidate.values)} count to the powers {sorted(powers)}; "
            "expected the same one for all that share their clusters' means"
        )


# -- what the candidates mean, by numbers --------------------------------------------------------


def _table(context: Context, rvs: list[RV]) -> NDArray[np.float64]:
    """Return what is observed (R, D), NaN where it is missing."""
    values, seen = context.table(rvs, _INSTEAD)
    return values if seen is None else np.where(seen, values, np.nan)


def _rows_of_parts(rvs: list[RV], data: NDArray | None) -> list[tuple[RV, Any]]:
    """Say which rows (R,) are those of a variable, and of what holds its missing values.

    PyMC takes variables apart by rows if none is missing in part. Otherwise the density of all is
    that of what is observed.
    """
    if len(rvs) == 1 or data is None:
        return [(rvs[0], slice(None))]
    if undivided(rvs[0]) is not rvs[0]:
        return [(rvs[0], slice(None)), (rvs[1], slice(0))]
    missing = np.isnan(data).any(axis=1)
    return [(rvs[0], ~missing), (rvs[1], missing)]


def _all_objects(context: Context, rv: RV, assignment: RV) -> NDArray[np.int64]:
    """Return the objects of the rows of a table that has one for each, in order."""
    n, (n_objects,) = len(context.observed([rv])), context.shapes[assignment.name]
    if n != n_objects:
        raise Refusal(
            f"{rv.name!r} has {n} rows; expected one for each of the {n_objects} objects of "
            f"{assignment.name!r}, where a domain is seen through a map"
        )
    return np.arange(n)


def _check_alignment(rv: RV, alignment: Alignment, check: DensityCheck) -> None:
    """Refuse orientations of which more than directions matter to their prior."""
    if alignment.orientation is None:
        return
    for point in check.points:
        middle, precision = alignment.priors[alignment.orientation](point)
        if np.any(middle) or common(precision) is None:
            raise Refusal(
                f"the entries of {alignment.orientation!r} have different priors, or a mean; "
                f"expected one normal prior around 0, so that {rv.name!r} is turned at random"
            )


def _scale_matrix(
    context: Context, precision: RV, prior, check: DensityCheck
) -> ScaleMatrix | None:
    """Find a free Wishart matrix that the inverse scale of the precisions is a multiple of."""
    for own in context.ancestry.parents[precision]:
        wishart = own in context.model.free_RVs and isinstance(own.owner.op, WishartRV)
        if not wishart or context.ancestry.strangers(own, [precision]):
            continue
        ratios = [
            prior(point).inverse_scale / value
            for point, value in zip(check.points, check.natural(own), strict=True)
        ]
        factor = float(ratios[0].flat[0])
        if np.allclose(ratios, factor, rtol=1e-6, atol=0.0):
            context.must_be_plain(own, (CholeskyCovTransform,))
            return ScaleMatrix(own.name, factor, _wishart_prior(context, own))
    return None


def _wishart_prior(context: Context, rv: RV):
    """Make a reader of degrees of freedom and inverse scale (D, D) of a Wishart matrix."""
    d = context.shapes[rv.name][0]

    def finish(nu, lower) -> tuple[float, NDArray[np.float64]]:
        inverse = np.linalg.inv(lower.reshape(-1, d, d)[0])
        return float(nu.flat[0]), inverse.T @ inverse

    return context.prior(parameters(rv), finish)


def log_mv_normal(away: NDArray, precision: NDArray) -> NDArray[np.float64]:
    """Log density (N,) of normal vectors at distances (N, D) from their means.

    Their precision is (D, D), or (N, D, D).
    """
    log_det = np.linalg.slogdet(precision)[1]
    squares = np.einsum("...i,...ij,...j->...", away, precision, away)
    return 0.5 * (log_det - away.shape[-1] * np.log(2.0 * np.pi) - squares)


def _check_noise(context: Context, rv: RV, precision: RV) -> None:
    """Refuse noise that something is added to: it does not show where precisions are near 1."""
    d = context.shapes[precision.name][-1]
    identity = np.broadcast_to(np.eye(d), context.shapes[precision.name])
    near, *far = (
        t * context.at([scale(undivided(rv))], {precision: t * identity})(context.start)[0]
        for t in (1.0, *FAR)
    )
    if not all(np.allclose(own, near, rtol=1e-7, atol=1e-7 * abs(near).max()) for own in far):
        raise Refusal(
            f"the declared density of {rv.name!r} is not normal around means with a precision that "
            f"is a multiple of {precision.name!r}"
        )


def _prior_function(context: Context, centers: RV, precision: RV, check: DensityCheck):
    """Make a reader of the prior at a point; refuse priors that differ between clusters."""
    n, d = context.shapes[centers.name]
    identity = np.broadcast_to(np.eye(d), context.shapes[precision.name])
    # With precision 1, the covariance of the means is 1 over their strength.
    of_means = context.at([mean(centers), scale(centers)], {precision: identity})
    of_precision = context.at(parameters(precision))
    for point in (context.start, *check.points):
        (center, width), (nu, lower) = of_means(point), of_precision(point)
        parameters_of = (centers, center, 1), (centers, width, 2)
        for rv, values, ndim in (*parameters_of, (precision, nu, 0), (precision, lower, 2)):
            if common(values, ndim) is None:
                raise Refusal(
                    f"the prior of {rv.name!r} differs between clusters; expected the same for all"
                )
    (_, near), point = of_means(context.start), context.start
    for t in FAR:  # what is added to a precision does not show where that is near 1
        (width,) = context.at([scale(centers)], {precision: t * identity})(point)
        if not np.allclose(t * width, near, rtol=1e-7, atol=1e-7 * np.abs(near).max()):
            raise Refusal(
                f"the prior of {centers.name!r} is not that of means whose precision is a multiple "
                f"of {precision.name!r}"
            )
    first, second = (f"the prior of {rv.name!r}" for rv in (centers, precision))

    others = context.ancestry.of([mean(centers), scale(centers)]) - {precision}
    others |= context.ancestry.of(parameters(precision))
    keys = [context.key(rv) for rv in others - {*context.model.observed_RVs}]

    # Of the context, only this: what is read must not keep its model.
    def made(*values: Any) -> NormalWishartPrior:
        point = dict(zip(keys, values, strict=True))
        (center, covariance), (nu, lower) = of_means(point), of_precision(point)
        inverse = np.linalg.inv(still_common(lower, 2, second))
        center = still_common(np.broadcast_to(center, (n, d)), 1, first)
        return NormalWishartPrior(
            np.array(center, dtype=float),
            float(1.0 / still_common(covariance, 2, first)[0, 0]),
            float(still_common(nu, 0, second)),
            inverse.T @ inverse,
        )

    kept = Kept()
    return lambda point: kept.of_values(made, *(point[key] for key in keys))


def _objects_of_rows(
    context: Context, rv: RV, assignment: RV, candidate: NormalsCandidate, data: NDArray | None
) -> NDArray[np.int64]:
    """Find which object each row of a variable is of, those with missing values as well."""
    if data is None or undivided(rv) is not rv:
        return _objects(context, rv, assignment, candidate)
    found = np.zeros(len(data), np.int64)
    for part, members in _rows_of_parts(candidate.parts(rv), data):
        found[members] = _objects(context, part, assignment, candidate)
    return found


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
    factor = _declared_factor(context, rv)
    if factor is not None:
        givens[factor] = np.ones(context.shapes[factor.name])
    found = chosen_objects(context.model, mean(undivided(rv)), assignment, givens, n_objects, _FAR)
    if found is None:
        raise Refusal(
            f"the mean of {rv.name!r} is not {centers.name!r} of the clusters of some of the "
            f"objects of {assignment.name!r}"
        )
    if found.max(initial=0) >= n_objects:
        raise Refusal(f"the mean of {rv.name!r} is not made of rows of {centers.name!r}")
    return found
