"""Reads feature vectors: observed variables that are normal around projected latent vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pymc.logprob.transforms import LogTransform
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, GammaRV, MvNormalRV, NormalRV

from pm_match.features import recognise_marginals as marginals
from pm_match.features.parts import Features, Hyper, Projected
from pm_match.features.projected_normal import DomainData
from pm_match.reading.ancestry import RV, Refusal, kind, mean, names, scale
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context, Prior
from pm_match.reading.densities import DensityCheck, log_normal, same


@dataclass(frozen=True, eq=False)
class FeaturesCandidate:
    """What looks like feature vectors, by ancestry.

    Attributes
    ----------
    clustering : int
        The number of the clustering whose objects they are of.
    precision, latent : variables
    assignments : list of variables
        Those that have features.
    found : list of (str, list of variables)
        For each of them the observed variable: its name, and its random variables.
    plain : bool
        Whether the noise has one precision, and the means are projections and nothing else.
    deviations, flags : list of (variable or None)
        For each of them, if the features are not plain.
    """

    clustering: int
    precision: RV | None
    latent: RV
    assignments: list[RV]
    found: list[tuple[str, list[RV]]]
    plain: bool
    deviations: list[RV | None]
    flags: list[RV | None]

    @property
    def observed(self) -> list[RV]:
        """All random variables that are observed, or hold missing values."""
        return [rv for _, rvs in self.found for rv in rvs]

    @property
    def checked(self) -> list[RV]:
        """All random variables whose declared densities are looked at."""
        return [self.latent, *(v for v in self.deviations if v is not None), *self.observed]

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Features:
        """Hold it against the declared densities."""
        return verified_features(context, clusterings[self.clustering], self, check)


def features_candidate(
    context: Context, number: int, clustering: ClusteringCandidate, values: Sequence[RV]
) -> FeaturesCandidate | None:
    """Find the feature vectors of a clustering's objects, and refuse what are none."""
    ancestry = context.ancestry
    assignments, found = [], []
    for assignment in clustering.assignments:
        rvs = [v for v in ancestry.children(assignment) if v in values]
        if rvs:
            assignments.append(assignment)
            found.append(_domain_candidate(context, assignment, rvs))
    if not found:
        return None
    observed = [rv for _, rvs in found for rv in rvs]
    if _is_plain(context, found):
        candidate = _plain_candidate(context, number, assignments, found)
    else:
        candidate = _general_candidate(context, number, clustering, assignments, found)
    _check_latent(context, clustering.truncation, candidate.latent)
    given = [rv for rv in (candidate.precision, candidate.latent) if rv is not None]
    discrete = [*clustering.assignments, *clustering.flags.values()]
    for rv in [*given, *observed]:
        # That the latent vectors have no transform is checked with their density.
        own = context.model.rvs_to_transforms.get(rv)
        transforms = (LogTransform,) if rv is candidate.precision else (type(own),)
        context.must_be_plain(rv, transforms, discrete)
    context.ancestry.only_children(candidate.latent, observed)
    if candidate.precision is not None:
        context.ancestry.only_children(candidate.precision, [candidate.latent, *observed])
    for rv in given:
        context.must_be_free(rv)
    flagged = [
        rv
        for rv, flag in zip(assignments, candidate.flags, strict=True)
        if rv in clustering.flags and flag is not clustering.flags[rv]
    ]
    if flagged:
        raise Refusal(
            f"{names(flagged)} has features ({', '.join(repr(name) for name, _ in found)}), which "
            f"its relevance {clustering.flags[flagged[0]].name!r} does not enter"
        )
    return candidate


def feature_flags(context: Context, values: Sequence[RV]) -> dict[RV, RV]:
    """Find the relevance flags that features depend on, by assignment."""
    found = {}
    for rv in values:
        parents = context.ancestry.parents[rv]
        for assignment in parents:
            if not isinstance(assignment.owner.op, CategoricalRV):
                continue
            flags = {
                p
                for p in parents
                if isinstance(p.owner.op, BernoulliRV)
                and context.shapes.get(p.name) == context.shapes.get(assignment.name)
            }
            if len(flags) > 1:
                raise Refusal(
                    f"{rv.name!r} depends on {names(flags)}; expected one relevance variable"
                )
            if flags:
                found[assignment] = flags.pop()
    return found


def _is_plain(context: Context, found) -> bool:
    """Whether features look like nothing but projected latent vectors and one shared noise."""
    observed = [rv for _, rvs in found for rv in rvs]
    if any(isinstance(rv.owner.op, MvNormalRV) for rv in observed):
        return False
    noise = {p for rv in observed for p in context.ancestry.of([scale(rv)])}
    shared = len(noise) == 1 and any(
        noise <= context.ancestry.parents.get(p, set())
        for rv in observed
        for p in context.ancestry.of([mean(rv)])
    )
    return shared and all(len(context.ancestry.of([mean(rv)])) <= 3 for rv in observed)


def _plain_candidate(context, number, assignments, found) -> FeaturesCandidate:
    observed = [rv for _, rvs in found for rv in rvs]
    precision = _one(
        {p for rv in observed for p in context.ancestry.of([scale(rv)])},
        "the noise of",
        "precision",
        observed,
    )
    _check_gamma(context, precision, observed)
    latents = set.intersection(*({p for p in context.ancestry.of([mean(rv)])} for rv in observed))
    latents = {
        rv
        for rv in latents
        if isinstance(rv.owner.op, NormalRV) and precision in context.ancestry.parents[rv]
    }
    if len(latents) != 1:
        raise Refusal(
            f"no latent variable is shared by the means of {names(observed)} and normal with a "
            f"precision that is a multiple of {precision.name!r}"
            if not latents
            else f"{names(latents)} could each be the latent vectors; expected one"
        )
    (latent,) = latents
    shifts = context.ancestry.of([mean(latent)])
    if shifts:
        raise Refusal(f"the mean of {latent.name!r} depends on {names(shifts)}; expected zero")
    nothing: list[RV | None] = [None for _ in assignments]
    return FeaturesCandidate(number, precision, latent, assignments, found, True, nothing, nothing)


def _general_candidate(context, number, clustering, assignments, found) -> FeaturesCandidate:
    """Find latent vectors, deviations and flags of features with marginals of their own."""
    observed = [rv for _, rvs in found for rv in rvs]
    split = [name for name, rvs in found if len(rvs) == 2]
    if split:
        raise Refusal(
            f"{', '.join(map(repr, split))} has missing values, which are served where all noise "
            "has one precision and there are no intercepts"
        )
    deviations = {
        assignment: marginals.deviation_of(context, rv, assignment, clustering.truncation)
        for assignment, rv in zip(assignments, observed, strict=True)
    }
    latents = [
        rv
        for rv in set.intersection(*({*context.ancestry.of([mean(rv)])} for rv in observed))
        if isinstance(rv.owner.op, NormalRV)
        and rv not in deviations.values()
        and len(context.shapes.get(rv.name, ())) == 2
        and context.shapes[rv.name][0] == clustering.truncation
    ]
    if len(latents) != 1:
        raise Refusal(
            f"{names(latents)} could each be the latent vectors; expected one"
            if latents
            else f"no normal variable with one row for each of {clustering.truncation} clusters "
            f"is shared by the means of {names(observed)}"
        )
    (latent,) = latents
    for rv in (v for v in deviations.values() if v is not None):
        context.must_be_free(rv)
        context.ancestry.only_children(rv, observed)
    flags = [clustering.flags.get(rv) for rv in assignments]
    used = [
        flag if flag in context.ancestry.parents[rv] else None
        for flag, rv in zip(flags, observed, strict=True)
    ]
    apart = any(v is not None for v in (*deviations.values(), *used))
    precision = None if apart else _shared_precision(context, latent, observed)
    return FeaturesCandidate(
        number,
        precision,
        latent,
        assignments,
        found,
        False,
        [deviations[rv] for rv in assignments],
        used,
    )


def _shared_precision(context: Context, latent: RV, observed: list[RV]) -> RV | None:
    """Find the Gamma precision that all noise and the latent vectors share, if there is one.

    It is integrated out. Whatever else they share is a parameter like others, and given.
    """
    tied = set.intersection(*({*context.ancestry.of([scale(rv)])} for rv in (latent, *observed)))
    if len(tied) != 1:
        return None
    (precision,) = tied
    gamma = isinstance(precision.owner.op, GammaRV) and context.shapes[precision.name] == ()
    return precision if gamma else None


def _check_gamma(context: Context, precision: RV, observed) -> None:
    if not isinstance(precision.owner.op, GammaRV):
        raise Refusal(
            f"the noise of {names(observed)} comes from {precision.name!r}, a "
            f"{kind(precision)}; expected a Gamma precision"
        )
    shape = context.shapes[precision.name]
    if shape != ():
        raise Refusal(f"{precision.name!r} has shape {shape}; expected one number")


def _domain_candidate(context, assignment, rvs) -> tuple[str, list[RV]]:
    """Find the observed variable over an assignment: its name, and its random variables."""
    free = context.model.free_RVs
    for rv in rvs:
        if not isinstance(rv.owner.op, NormalRV | MvNormalRV):
            raise Refusal(f"{rv.name!r} is a {kind(rv)}; expected a Normal or MvNormal")
    stems = {rv.name.removesuffix("_observed").removesuffix("_unobserved") for rv in rvs}
    split = len(rvs) == 2 and len(stems) == 1
    if len(rvs) > 1 and not split:
        raise Refusal(
            f"{names(rvs)} all depend on {assignment.name!r}; put the features of one "
            "assignment side by side in one observed variable"
        )
    if split:
        # PyMC splits data with missing values into an observed and a free variable.
        rvs = sorted(rvs, key=lambda rv: rv in free)
        if rvs[0] in free or rvs[1] not in free:
            raise Refusal(f"{names(rvs)} are not one observed variable with missing values")
        context.ancestry.only_children(rvs[1], [])
    elif rvs[0] in free:
        raise Refusal(f"{rvs[0].name!r} is not observed")
    return stems.pop() if split else rvs[0].name, rvs


def _one(candidates, what, expected, observed) -> RV:
    if len(candidates) != 1:
        raise Refusal(
            f"{what} {names(observed)} depends on {names(candidates) or 'no variable'}; "
            f"expected one {expected} shared by all"
        )
    return next(iter(candidates))


def _check_latent(context, truncation, latent) -> None:
    shape = context.shapes[latent.name]
    if len(shape) != 2 or truncation not in shape:
        raise Refusal(
            f"{latent.name!r} has shape {shape}; expected one vector for each of the "
            f"{truncation} clusters"
        )


# -- what the candidates mean, by numbers --------------------------------------------------------


def verified_features(
    context: Context,
    clustering: ClusteringCandidate,
    candidate: FeaturesCandidate,
    check: DensityCheck,
) -> Features:
    """Hold a candidate against its declared densities."""
    data = [_data(context, name, rvs) for name, rvs in candidate.found]
    for (name, _), own, assignment in zip(
        candidate.found, data, candidate.assignments, strict=True
    ):
        n_labels = context.shapes[assignment.name][0]
        if n_labels != len(own.values):
            raise Refusal(
                f"{name!r} has {len(own.values)} objects and {assignment.name!r} {n_labels} labels"
            )
    if not candidate.plain:
        return _general_features(context, clustering, candidate, check, data)
    precision, latent = candidate.precision, candidate.latent
    assert precision is not None
    truncation = clustering.truncation
    shape = context.shapes[latent.name]
    projections = [
        _projection(context, rvs, assignment, latent)
        for (_, rvs), assignment in zip(candidate.found, candidate.assignments, strict=True)
    ]
    hyper = _hyper_function(context, precision, latent)
    alphas = [float(alpha) for alpha in check.natural(precision)]
    _check_latent_prior(context, check, precision, latent, hyper, alphas)
    # A square array of latent vectors can be read both ways: the means decide.
    why: Refusal | None = None
    for transposed in [flip for flip in (False, True) if shape[int(flip)] == truncation]:
        n_factors = shape[int(not transposed)]
        try:
            flips = [
                _check_likelihood(
                    context,
                    check,
                    candidate,
                    number,
                    data[number],
                    projections[number],
                    alphas,
                    transposed,
                    n_factors,
                )
                for number in range(len(data))
            ]
            break
        except Refusal as refusal:
            why = refusal
    else:
        assert why is not None
        raise why
    domains = []
    for (name, rvs), d, assignment, w, flip in zip(
        candidate.found, data, candidate.assignments, projections, flips, strict=True
    ):
        update, why_not = _update(context, w, rvs)
        missing = rvs[1].name if len(rvs) == 2 else None
        domains.append(Projected(name, assignment.name, w.name, flip, d, missing, update, why_not))
    drawn = [domain for domain in domains if domain.update == "normal"]
    flat = [w.name for w in projections if kind(w) == "Flat"]
    if flat and any(domain.update != "map" for domain in domains):
        # A flat projection has no posterior of its own, and no other step should find that out.
        others = [d.why_not or f"{d.projection!r} is not flat" for d in domains]
        reason = next(why for d, why in zip(domains, others, strict=True) if d.update != "map")
        raise Refusal(
            f"{flat[0]!r} is flat, and flat projections are found together, all or none: {reason}"
        )
    return Features(
        clustering=candidate.clustering,
        precision=precision.name,
        latent=latent.name,
        latent_transposed=transposed,
        truncation=truncation,
        n_factors=n_factors,
        domains=tuple(domains),
        _hyper=hyper,
        _priors={d.projection: _prior_function(context, d) for d in drawn},
        parameters=tuple(
            marginals.hyperparameters_of(
                context, {d.projection for d in drawn}, {precision.name, latent.name}
            )
        ),
    )


def _general_features(context, clustering, candidate, check, data) -> Features:
    """Hold features with marginals of their own against their declared densities."""
    latent, precision = candidate.latent, candidate.precision
    graphs = marginals.Graphs(
        observed=candidate.observed,
        assignments=candidate.assignments,
        deviations=candidate.deviations,
        flags=candidate.flags,
        latent=latent,
        precision=precision,
        n_factors=context.shapes[latent.name][1],
    )
    reader = marginals.ViewReader(context, graphs, data)
    marginals.check_marginals(context, check, graphs, data, reader)
    domains = tuple(
        Projected(
            name,
            assignment.name,
            "",
            False,
            own,
            None,
            None,
            "it is drawn with what else its features depend on",
            None if deviation is None else deviation.name,
            None if flag is None else flag.name,
        )
        for (name, _), assignment, own, deviation, flag in zip(
            candidate.found,
            candidate.assignments,
            data,
            candidate.deviations,
            candidate.flags,
            strict=True,
        )
    )
    return Features(
        clustering=candidate.clustering,
        precision=None if precision is None else precision.name,
        latent=latent.name,
        latent_transposed=False,
        truncation=clustering.truncation,
        n_factors=graphs.n_factors,
        domains=domains,
        _hyper=None if precision is None else _gamma_function(context.gamma_prior(precision)),
        _priors={},
        parameters=marginals.parameters_of(context, check, graphs, reader),
        _view=reader,
    )


def _gamma_function(prior: Prior):
    def hyper(point) -> Hyper:
        shape, rate = prior(point)
        return Hyper(float(shape), float(rate), np.nan)

    return hyper


def _check_latent_prior(context, check, precision, latent, hyper, alphas) -> None:
    """Refuse if the latent vectors are not Normal(0, tau = r * precision), r a constant."""
    if context.transformed(latent):
        raise Refusal(f"{latent.name!r} has a transform; expected none")
    ratios = [hyper(point).latent_precision for point in check.points]
    if not check.is_normal(latent, [(0.0, a * r) for a, r in zip(alphas, ratios, strict=True)]):
        raise Refusal(
            f"{latent.name!r}: its declared log density is not that of independent "
            f"Normal(0, tau = r * {precision.name}) with a constant r"
        )


def _check_likelihood(
    context, check, candidate, number, data, projection, alphas, latent_transposed, n_factors
) -> bool:
    """Refuse if a domain is not normal around its projected latent vectors.

    Returns
    -------
    bool
        Whether the projection is declared as (K, M_d) rather than (M_d, K).
    """
    (name, rvs), assignment = candidate.found[number], candidate.assignments[number]
    n_features = data.values.shape[1]
    shape = context.shapes[projection.name]
    layouts = {False: (n_features, n_factors), True: (n_factors, n_features)}
    possible = [flip for flip, layout in layouts.items() if shape == layout]
    if not possible:
        raise Refusal(
            f"{projection.name!r} has shape {shape}; expected ({n_features} features, "
            f"{n_factors} factors)"
        )
    assert candidate.precision is not None
    projections = check.natural(projection)
    for place, (w, alpha) in enumerate(zip(projections, alphas, strict=True)):
        z = check.value(place, candidate.latent)
        z = (z.T if latent_transposed else z)[check.value(place, assignment)]
        seen = np.ones(data.values.shape, bool) if data.observed is None else data.observed
        values = data.values.copy()
        if len(rvs) == 2:
            values[~seen] = check.value(place, rvs[1])
        found = np.empty(values.shape)
        for rv, where in zip(rvs, (seen, ~seen), strict=False):
            declared = check.declared(rv)[place]
            if np.size(declared) != where.sum():
                possible = []
            else:
                found[where] = np.ravel(declared)
        possible = [
            flip
            for flip in possible
            if same(found, log_normal(values, z @ (w if flip else w.T), alpha))
        ]
        if not possible:
            raise Refusal(
                f"{name!r}: its declared log density is not that of Normal({candidate.latent.name}"
                f"[{assignment.name}] @ {projection.name}.T, tau={candidate.precision.name})"
            )
    return possible[0]


def _data(context, name, rvs) -> DomainData:
    values, seen = context.table(rvs)
    if values.ndim != 2:
        raise Refusal(f"{name!r} has shape {values.shape}; expected (objects, features)")
    return DomainData(values, seen)


def _projection(context, rvs, assignment, latent) -> RV:
    candidates = {p for rv in rvs for p in context.ancestry.of([mean(rv)])} - {assignment, latent}
    name = rvs[0].name
    if len(candidates) != 1:
        raise Refusal(
            f"the mean of {name!r} depends on {names(candidates) or 'nothing'} besides "
            f"{assignment.name!r} and {latent.name!r}; expected one projection"
        )
    (projection,) = candidates
    context.must_be_free(projection)
    return projection


def _update(context, projection, rvs) -> tuple[str | None, str]:
    """Which of our steps serves a projection, or why none does."""
    name = projection.name
    others = context.ancestry.strangers(projection, rvs)
    if others:
        return None, f"{names(others)} depends on {name!r} too"
    if context.transformed(projection):
        return None, f"{name!r} has a transform"
    parents = context.ancestry.parents[projection]
    discrete = [p for p in parents if not p.dtype.startswith("float")]
    if discrete:
        return None, f"{name!r} depends on {names(discrete)}, which is discrete"
    if kind(projection) == "Flat":
        return "map", ""
    if isinstance(projection.owner.op, NormalRV):
        return "normal", ""
    return None, f"{name!r} is a {kind(projection)}; expected Flat or Normal"


def _hyper_function(context, precision, latent):
    # r = tau_z / alpha; that it does not depend on alpha is checked, and alpha then drops out.
    ratio = 1.0 / (scale(latent) ** 2 * precision)
    prior, read = context.gamma_prior(precision), context.at([ratio], {precision: 1.0})

    def hyper(point) -> Hyper:
        (shape, rate), (r,) = prior(point), read(point)
        return Hyper(float(shape), float(rate), float(r.flat[0]))

    return hyper


def _prior_function(context, domain: Projected):
    arrange = np.transpose if domain.transposed else np.asarray
    return context.normal_prior(context.model[domain.projection], arrange)
