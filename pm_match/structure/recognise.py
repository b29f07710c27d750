"""Recognises partitions in a declared model: candidates by ancestry, their meaning by numbers."""

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import StickBreakingWeightsRV
from pymc.initial_point import make_initial_point_fn
from pymc.logprob.transforms import LogOddsTransform, LogTransform, SimplexTransform
from pymc.model.core import Model
from pytensor.graph.replace import graph_replace
from pytensor.tensor.random.basic import BetaRV, CategoricalRV, DirichletRV, GammaRV, NormalRV

from pm_match.evidence.projected_normal import DomainData
from pm_match.links import read_links
from pm_match.partition.stick_breaking import dirichlet_sticks
from pm_match.structure.ancestry import RV, Ancestry, Refusal, kind, mean, names, scale
from pm_match.structure.densities import DensityCheck
from pm_match.structure.functions import evaluate, point_function
from pm_match.structure.parts import Hyper, Projected, ProjectedPartition, Structure

# What the prior on weights may be declared with.
WEIGHTS = (StickBreakingWeightsRV, DirichletRV, BetaRV)


class Reader:
    """One reading of one model."""

    def __init__(self, model: Model):
        self.model = model
        self.ancestry = Ancestry(model)
        start = make_initial_point_fn(model=model, return_transformed=False)(0)
        self.shapes = {name: np.shape(value) for name, value in start.items()}

    def read(self) -> Structure:
        """Try to recognise the partition behind each group of assignments."""
        groups: dict[frozenset, list[RV]] = {}
        for rv in self.model.free_RVs:
            if isinstance(rv.owner.op, CategoricalRV) and self.ancestry.parents[rv]:
                groups.setdefault(frozenset(self.ancestry.parents[rv]), []).append(rv)
        partitions: list[ProjectedPartition] = []
        refusals: dict[str, str] = {}
        for weights, assignments in groups.items():
            try:
                partitions.append(self._partition(weights, assignments))
            except Refusal as refusal:
                refusals |= {rv.name: str(refusal) for rv in assignments}
        return Structure(tuple(partitions), refusals)

    # -- candidates, by ancestry ------------------------------------------------------------------

    def _partition(self, weights_from, assignments) -> ProjectedPartition:
        if len(weights_from) != 1:
            raise Refusal(
                f"its probabilities depend on {names(weights_from)}; expected one variable, "
                "StickBreakingWeights, Dirichlet, or the Beta sticks of a stick-breaking"
            )
        (weights,) = weights_from
        if not isinstance(weights.owner.op, WEIGHTS):
            raise Refusal(
                f"{weights.name!r} is a {kind(weights)}; expected StickBreakingWeights, Dirichlet, "
                "or the Beta sticks of a stick-breaking"
            )
        self._must_be_free(weights)
        found = [self._domain_candidate(assignment) for assignment in assignments]
        observed = [rv for _, rvs in found for rv in rvs]
        precision = self._one(
            {p for rv in observed for p in self.ancestry.of([scale(rv)])},
            "the noise of",
            "precision",
            observed,
        )
        if not isinstance(precision.owner.op, GammaRV):
            raise Refusal(
                f"the noise of {names(observed)} comes from {precision.name!r}, a "
                f"{kind(precision)}; expected a Gamma precision"
            )
        latents = set.intersection(*({p for p in self.ancestry.of([mean(rv)])} for rv in observed))
        latents = {
            rv
            for rv in latents
            if isinstance(rv.owner.op, NormalRV) and precision in self.ancestry.parents[rv]
        }
        if len(latents) != 1:
            raise Refusal(
                f"no latent variable is shared by the means of {names(observed)} and normal with a "
                f"precision that is a multiple of {precision.name!r}"
                if not latents
                else f"{names(latents)} could each be the latent vectors; expected one"
            )
        (latent,) = latents
        self._layout(weights, isinstance(weights.owner.op, BetaRV), assignments, precision, latent)
        self._plain(weights, assignments, precision, latent, observed)
        links, constraints = self._links(assignments)
        self.ancestry.only_children(weights, [*assignments])
        self.ancestry.only_children(precision, [latent, *observed])
        self.ancestry.only_children(latent, observed)
        for (_, rvs), assignment in zip(found, assignments, strict=True):
            self.ancestry.only_children(assignment, [*rvs, *constraints])
        for rv in (precision, latent):
            self._must_be_free(rv)
        return self._verified(weights, assignments, precision, latent, found, links)

    def _domain_candidate(self, assignment) -> tuple[str, list[RV]]:
        """Find the observed variable over an assignment: its name, and its random variables."""
        rvs = [v for v in self.ancestry.children(assignment) if v not in self.model.potentials]
        if not rvs:
            raise Refusal(f"no observed variable depends on {assignment.name!r}")
        for rv in rvs:
            if not isinstance(rv.owner.op, NormalRV):
                raise Refusal(f"{rv.name!r} is a {kind(rv)}; expected a Normal")
        stems = {rv.name.removesuffix("_observed").removesuffix("_unobserved") for rv in rvs}
        split = len(rvs) == 2 and len(stems) == 1
        if len(rvs) > 1 and not split:
            raise Refusal(
                f"{names(rvs)} all depend on {assignment.name!r}; put the features of one "
                "assignment side by side in one observed variable"
            )
        if split:
            # PyMC splits data with missing values into an observed and a free variable.
            rvs = sorted(rvs, key=lambda rv: rv in self.model.free_RVs)
            if rvs[0] in self.model.free_RVs or rvs[1] not in self.model.free_RVs:
                raise Refusal(f"{names(rvs)} are not one observed variable with missing values")
            self.ancestry.only_children(rvs[1], [])
        elif rvs[0] in self.model.free_RVs:
            raise Refusal(f"{rvs[0].name!r} is not observed")
        return stems.pop() if split else rvs[0].name, rvs

    def _one(self, candidates, what, expected, observed) -> RV:
        if len(candidates) != 1:
            raise Refusal(
                f"{what} {names(observed)} depends on {names(candidates) or 'no variable'}; "
                f"expected one {expected} shared by all"
            )
        return next(iter(candidates))

    def _must_be_free(self, rv) -> None:
        if rv not in self.model.free_RVs:
            raise Refusal(f"{rv.name!r} is observed; expected a free variable")

    def _plain(self, weights, assignments, precision, latent, observed) -> None:
        """Refuse transforms, discrete parents and precisions that the steps do not provide for."""
        for rv, default in (
            (weights, (SimplexTransform, LogOddsTransform)),
            (precision, LogTransform),
        ):
            transform = self.model.rvs_to_transforms[rv]
            if transform is not None and type(transform) not in np.atleast_1d(default):
                raise Refusal(
                    f"{rv.name!r} has the transform {type(transform).__name__}; expected PyMC's "
                    "default or none"
                )
        shifts = self.ancestry.of([mean(latent)])
        if shifts:
            raise Refusal(f"the mean of {latent.name!r} depends on {names(shifts)}; expected zero")
        for rv in (weights, precision, latent, *observed):
            discrete = [
                p
                for p in self.ancestry.parents[rv]
                if p not in assignments and not p.dtype.startswith("float")
            ]
            if discrete:
                raise Refusal(f"{rv.name!r} depends on {names(discrete)}, which is discrete")
            if rv.dtype != "float64":
                raise Refusal(f"{rv.name!r} is {rv.dtype}; expected float64 (PyTensor's floatX)")

    def _links(self, assignments) -> tuple[NDArray[np.int64], list[RV]]:
        sizes = [int(self.shapes[rv.name][0]) for rv in assignments]
        start = dict(zip(assignments, np.cumsum([0, *sizes]), strict=False))
        pairs, constraints = [], []
        for potential in self.model.potentials:
            linked = read_links(potential)
            if linked is None or not any(rv in start for rv in linked[0]):
                continue
            strangers = [rv for rv in linked[0] if rv not in start]
            if strangers:
                raise Refusal(
                    f"{potential.name!r} links it with {names(strangers)}, which "
                    "does not share its weights: their clusters are not the same clusters"
                )
            constraints.append(potential)
            first, *others = [
                start[rv] + index for rv, index in zip(linked[0], linked[1], strict=True)
            ]
            pairs += [np.stack([first, other], axis=1) for other in others]
        return np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64), constraints

    # -- what the candidates mean, by numbers -----------------------------------------------------

    def _verified(self, weights, assignments, precision, latent, found, links):
        sticks = isinstance(weights.owner.op, BetaRV)
        truncation, shape = self._layout(weights, sticks, assignments, precision, latent)
        data = [self._data(name, rvs) for name, rvs in found]
        projections = [
            self._projection(rvs, assignment, latent)
            for (_, rvs), assignment in zip(found, assignments, strict=True)
        ]
        hyper = self._hyper_function(weights, precision, latent, truncation)
        check = DensityCheck(
            self.model,
            weights=weights,
            sticks=sticks,
            precision=precision,
            latent=latent,
            assignments=assignments,
            observed=[rvs for _, rvs in found],
            truncation=truncation,
            hyper=hyper,
        )
        check.latent_prior()
        check.assignments()
        # A square array of latent vectors can be read both ways: the means decide.
        why: Refusal | None = None
        for transposed in [flip for flip in (False, True) if shape[int(flip)] == truncation]:
            n_factors = shape[int(not transposed)]
            try:
                flips = [
                    check.likelihood(name, rvs, d, assignment, w, transposed, n_factors)
                    for (name, rvs), d, assignment, w in zip(
                        found, data, assignments, projections, strict=True
                    )
                ]
                break
            except Refusal as refusal:
                why = refusal
        else:
            assert why is not None
            raise why
        domains = []
        for (name, rvs), d, assignment, w, flip in zip(
            found, data, assignments, projections, flips, strict=True
        ):
            update, why_not = self._update(w, rvs)
            missing = rvs[1].name if len(rvs) == 2 else None
            domains.append(
                Projected(name, assignment.name, w.name, flip, d, missing, update, why_not)
            )
        flat = [w.name for w in projections if kind(w) == "Flat"]
        if flat and any(domain.update != "map" for domain in domains):
            # A flat projection has no posterior of its own, and no other step should find that out.
            others = [d.why_not or f"{d.projection!r} is not flat" for d in domains]
            reason = next(why for d, why in zip(domains, others, strict=True) if d.update != "map")
            raise Refusal(
                f"{flat[0]!r} is flat, and flat projections are found together, all or none: "
                f"{reason}"
            )
        return ProjectedPartition(
            weights=weights.name,
            sticks=sticks,
            finite=isinstance(weights.owner.op, DirichletRV),
            free_weights_prior=bool(self.ancestry.parents[weights]),
            precision=precision.name,
            latent=latent.name,
            latent_transposed=transposed,
            truncation=truncation,
            n_factors=n_factors,
            domains=tuple(domains),
            links=links,
            _hyper=hyper,
            _priors={
                d.projection: self._prior_function(d) for d in domains if d.update == "normal"
            },
        )

    def _layout(
        self, weights, sticks, assignments, precision, latent
    ) -> tuple[int, tuple[int, ...]]:
        """Check shapes; return the truncation, and the shape of the latent vectors."""
        shape = self.shapes[weights.name]
        if len(shape) != 1:
            raise Refusal(f"{weights.name!r} has shape {shape}; expected one vector of weights")
        truncation = shape[0] + int(sticks)
        shape = self.shapes[precision.name]
        if shape != ():
            raise Refusal(f"{precision.name!r} has shape {shape}; expected one number")
        shape = self.shapes[latent.name]
        if len(shape) != 2 or truncation not in shape:
            raise Refusal(
                f"{latent.name!r} has shape {shape}; expected one vector for each of the "
                f"{truncation} clusters"
            )
        for assignment in assignments:
            labels = self.shapes[assignment.name]
            if len(labels) != 1:
                raise Refusal(
                    f"{assignment.name!r} has shape {labels}; expected one vector of labels"
                )
        return truncation, shape

    def _data(self, name, rvs) -> DomainData:
        model = self.model
        observed = np.asarray(evaluate(model.rvs_to_values[rvs[0]]), dtype=np.float64)
        if len(rvs) == 2:
            holes = np.full(self.shapes[rvs[1].name], np.nan)
            joined = graph_replace(
                model[name],
                {rvs[0]: pt.constant(observed), rvs[1]: pt.constant(holes)},
                strict=False,
            )
            values = np.asarray(evaluate(joined), dtype=np.float64)
        else:
            values = observed
        if values.ndim != 2:
            raise Refusal(f"{name!r} has shape {values.shape}; expected (objects, features)")
        seen = np.isfinite(values)
        # With missing values declared, what is observed must still be all there.
        declared, fine = (observed, np.isfinite(observed)) if len(rvs) == 2 else (values, seen)
        if not fine.all():
            raise Refusal(
                f"{name!r} holds {declared[~fine][0]} where nothing is declared missing; missing "
                "values are NaN or masked"
            )
        if seen.all():
            return DomainData(np.ascontiguousarray(values))
        return DomainData(np.ascontiguousarray(np.where(seen, values, 0.0)), seen)

    def _projection(self, rvs, assignment, latent) -> RV:
        candidates = {p for rv in rvs for p in self.ancestry.of([mean(rv)])} - {
            assignment,
            latent,
        }
        name = rvs[0].name
        if len(candidates) != 1:
            raise Refusal(
                f"the mean of {name!r} depends on {names(candidates) or 'nothing'} besides "
                f"{assignment.name!r} and {latent.name!r}; expected one projection"
            )
        (projection,) = candidates
        self._must_be_free(projection)
        return projection

    def _update(self, projection, rvs) -> tuple[str | None, str]:
        """Which of our steps serves a projection, or why none does."""
        name = projection.name
        others = [v for v in self.ancestry.children(projection) if v not in rvs]
        if others:
            return None, f"{names(others)} depends on {name!r} too"
        if self.model.rvs_to_transforms[projection] is not None:
            return None, f"{name!r} has a transform"
        discrete = [p for p in self.ancestry.parents[projection] if not p.dtype.startswith("float")]
        if discrete:
            return None, f"{name!r} depends on {names(discrete)}, which is discrete"
        if kind(projection) == "Flat":
            return "map", ""
        if isinstance(projection.owner.op, NormalRV):
            return "normal", ""
        return None, f"{name!r} is a {kind(projection)}; expected Flat or Normal"

    def _hyper_function(self, weights, precision, latent, truncation):
        parameters = [p for p in weights.owner.op.dist_params(weights.owner)]
        shape, inverse_rate = precision.owner.op.dist_params(precision.owner)
        # r = tau_z / alpha; that it does not depend on alpha is checked, and alpha then drops out.
        ratio = 1.0 / (scale(latent) ** 2 * precision)
        kind = weights.owner.op
        if isinstance(kind, StickBreakingWeightsRV):
            parameters = parameters[:1]
        evaluate = point_function(
            self.model, [*parameters, shape, 1.0 / inverse_rate, ratio], {precision: 1.0}
        )

        def hyper(point) -> Hyper:
            *first, shape, rate, r = evaluate(point)
            if isinstance(kind, StickBreakingWeightsRV):
                a = np.ones(truncation - 1)
                b = np.broadcast_to(first[0].reshape(-1), (truncation - 1,)).astype(float)
            elif isinstance(kind, DirichletRV):
                a, b = dirichlet_sticks(np.broadcast_to(first[0], (truncation,)).astype(float))
            else:
                a, b = (np.broadcast_to(p, (truncation - 1,)).astype(float) for p in first)
            return Hyper(
                np.ascontiguousarray(a),
                np.ascontiguousarray(b),
                float(shape),
                float(rate),
                float(r.flat[0]),
            )

        return hyper

    def _prior_function(self, domain: Projected):
        projection = self.model[domain.projection]
        evaluate = point_function(self.model, [mean(projection), scale(projection)], {})
        shape = self.shapes[domain.projection]

        def prior(point):
            centre, width = (np.broadcast_to(p, shape).astype(float) for p in evaluate(point))
            precision = width**-2.0
            return (centre.T, precision.T) if domain.transposed else (centre, precision)

        return prior
