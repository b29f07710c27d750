"""Reads a declared model: which variables form a partition, and which may be integrated out.

Candidates are found by ancestry (who depends on whom); that they mean what they seem to mean is then
checked *numerically*, on the declared log densities at random points, so that every way of writing the
same model is accepted and no other model is. What is not recognised is refused with a reason that
names the variable.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import StickBreakingWeightsRV
from pymc.initial_point import make_initial_point_fn
from pymc.model.core import Model
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs, walk
from pytensor.tensor.random.basic import BetaRV, CategoricalRV, DirichletRV, GammaRV, NormalRV

from pm_match.evidence.projected_normal import DomainData
from pm_match.links import read_links
from pm_match.partition.stick_breaking import dirichlet_sticks, log_weights

# Interpreted and hardly rewritten: these graphs are tiny or run a handful of times, and compiling them
# would take longer than everything else in a start-up.
_PLAIN = Mode(linker="py", optimizer="fast_compile")
_TEST_POINTS = 3


class UnservedModelError(ValueError):
    """The model is not one that the steps can serve; the message says which variable, and why."""


@dataclass(frozen=True, eq=False)
class Projected:
    """One domain: an observed variable that is normal around projected latent vectors.

    Attributes
    ----------
    name : str
        The observed variable, as the user named it.
    assignment, projection : str
        The free variables that its mean depends on, besides the latent vectors.
    transposed : bool
        Whether the projection is declared as (K, M_d) rather than (M_d, K).
    data : DomainData
    missing : str or None
        The free variable that holds the missing values, in the order of the array.
    update : {"map", "normal", None}
        What serves the projection: MAP sub-steps for a flat prior, Gibbs draws for a normal one, and
        nothing of ours for any other (its own step can still be PyMC's).
    why_not : str
        If `update` is None, the reason.
    """

    name: str
    assignment: str
    projection: str
    transposed: bool
    data: DomainData
    missing: str | None
    update: str | None
    why_not: str = ""


@dataclass(frozen=True)
class Hyper:
    """The hyperparameters at a point, as numbers: sticks' Beta(a, b), Gamma(shape, rate), and r."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    shape: float
    rate: float
    latent_precision: float


@dataclass(frozen=True, eq=False)
class ProjectedPartition:
    """A recognised model: one partition of the objects of all domains, with its evidence.

    Attributes
    ----------
    weights : str
        The variable with the prior on weights: stick-breaking weights, a Dirichlet, or Beta sticks.
    sticks : bool
        Whether `weights` holds sticks rather than weights.
    finite : bool
        Whether the number of clusters is declared (a Dirichlet) rather than a truncation.
    precision, latent : str
    latent_transposed : bool
        Whether the latent vectors are declared as (K, T) rather than (T, K).
    truncation, n_factors : int
    domains : tuple of Projected
    links : (L, 2) array
        Pairs of objects that share a cluster, numbered domain after domain.
    """

    weights: str
    sticks: bool
    finite: bool
    precision: str
    latent: str
    latent_transposed: bool
    truncation: int
    n_factors: int
    domains: tuple[Projected, ...]
    links: NDArray[np.int64]
    _hyper: Callable[[Mapping[str, NDArray]], Hyper] = field(repr=False)
    _priors: Mapping[str, Callable] = field(repr=False)

    @property
    def n_objects(self) -> int:
        """Objects of all domains together."""
        return sum(len(domain.data.values) for domain in self.domains)

    @property
    def collapsed(self) -> list[str]:
        """The variables that `ClusterGibbs` draws."""
        missing = [domain.missing for domain in self.domains if domain.missing]
        assignments = [domain.assignment for domain in self.domains]
        return [self.weights, self.precision, self.latent, *assignments, *missing]

    def hyper(self, point: Mapping[str, NDArray]) -> Hyper:
        """Evaluate the hyperparameters at a `point` of value variables."""
        return self._hyper(point)

    def projection_prior(self, domain: Projected, point) -> tuple[NDArray, NDArray]:
        """Mean and precision (M_d, K) of a normal prior on the domain's projection."""
        return self._priors[domain.projection](point)


@dataclass(frozen=True, eq=False)
class Structure:
    """What was read from a model.

    Attributes
    ----------
    partitions : tuple of ProjectedPartition
    refusals : dict of str to str
        For every assignment that is not served, the reason.
    """

    partitions: tuple[ProjectedPartition, ...]
    refusals: dict[str, str]

    def explain(self) -> str:
        """Say why nothing, or not everything, is served."""
        if not self.refusals:
            return "it has no assignment (a pm.Categorical over random weights)"
        grouped: dict[str, list[str]] = {}
        for name, reason in self.refusals.items():
            grouped.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in grouped.items())


_CACHE: WeakKeyDictionary[Model, tuple[tuple, Structure]] = WeakKeyDictionary()


def read(model: Model) -> Structure:
    """Read a model. The result is kept until the model gets another variable.

    Parameters
    ----------
    model : pymc.Model

    Returns
    -------
    Structure
    """
    state = (tuple(map(id, model.basic_RVs)), tuple(map(id, model.potentials)))
    known = _CACHE.get(model)
    if known is None or known[0] != state:
        known = (state, _Reader(model).read())
        _CACHE[model] = known
    return known[1]


class _Refusal(Exception):
    """Why a partition is not served."""


class _Reader:
    """One reading of one model."""

    def __init__(self, model: Model):
        self.model = model
        self.random = set(model.basic_RVs)
        self.parents = {
            rv: self._random_ancestors(rv.owner.inputs)
            for rv in model.basic_RVs
            if rv.owner is not None
        }
        self.parents |= {p: self._random_ancestors([p]) for p in model.potentials}

    def _random_ancestors(self, variables: Iterable[Variable]) -> set[Variable]:
        """The random variables that `variables` depend on directly."""

        def expand(variable):
            if variable in self.random or variable.owner is None:
                return None
            return variable.owner.inputs

        return {v for v in walk(list(variables), expand) if v in self.random}

    def children(self, rv: Variable) -> list[Variable]:
        """Random variables and potentials that depend on `rv` directly."""
        return [v for v, parents in self.parents.items() if rv in parents]

    def read(self) -> Structure:
        groups: dict[frozenset, list[Variable]] = {}
        for rv in self.model.free_RVs:
            if isinstance(rv.owner.op, CategoricalRV) and self.parents[rv]:
                groups.setdefault(frozenset(self.parents[rv]), []).append(rv)
        partitions, refusals = [], {}
        for weights, assignments in groups.items():
            try:
                partitions.append(self._partition(weights, assignments))
            except _Refusal as refusal:
                refusals |= {rv.name: str(refusal) for rv in assignments}
        return Structure(tuple(partitions), refusals)

    # -- candidates, by ancestry ------------------------------------------------------------------

    def _partition(self, weights_from, assignments) -> ProjectedPartition:
        if len(weights_from) != 1:
            raise _Refusal(
                f"its probabilities depend on {_names(weights_from)}; expected one variable, "
                "StickBreakingWeights, Dirichlet, or the Beta sticks of a stick-breaking"
            )
        (weights,) = weights_from
        if not isinstance(weights.owner.op, StickBreakingWeightsRV | DirichletRV | BetaRV):
            raise _Refusal(
                f"{weights.name!r} is a {_kind(weights)}; expected StickBreakingWeights, Dirichlet, "
                "or the Beta sticks of a stick-breaking"
            )
        self._must_be_free(weights)
        found = [self._domain_candidate(assignment) for assignment in assignments]
        observed = [rv for _, rvs in found for rv in rvs]
        precision = self._one(
            {p for rv in observed for p in self._random_ancestors([_scale(rv)])},
            "the noise of",
            "precision",
            observed,
        )
        if not isinstance(precision.owner.op, GammaRV):
            raise _Refusal(
                f"the noise of {_names(observed)} comes from {precision.name!r}, a "
                f"{_kind(precision)}; expected a Gamma precision"
            )
        latents = set.intersection(
            *({p for p in self._random_ancestors([_mean(rv)])} for rv in observed)
        )
        latents = {
            rv
            for rv in latents
            if isinstance(rv.owner.op, NormalRV) and precision in self.parents[rv]
        }
        if len(latents) != 1:
            raise _Refusal(
                f"no latent variable is shared by the means of {_names(observed)} and normal with a "
                f"precision that is a multiple of {precision.name!r}"
                if not latents
                else f"{_names(latents)} could each be the latent vectors; expected one"
            )
        (latent,) = latents
        links = self._links(assignments)
        constraints = [p for p in self.model.potentials if read_links(p) is not None]
        self._no_other_children(weights, [*assignments])
        self._no_other_children(precision, [latent, *observed])
        self._no_other_children(latent, observed)
        for (_, rvs), assignment in zip(found, assignments, strict=True):
            self._no_other_children(assignment, [*rvs, *constraints])
        for rv in (precision, latent):
            self._must_be_free(rv)
        return self._verified(weights, assignments, precision, latent, found, links)

    def _domain_candidate(self, assignment) -> tuple[str, list[Variable]]:
        """The observed variable over an assignment: its name, and its one or two random variables."""
        rvs = [v for v in self.children(assignment) if v in self.random]
        if not rvs:
            raise _Refusal(f"no observed variable depends on {assignment.name!r}")
        for rv in rvs:
            if not isinstance(rv.owner.op, NormalRV):
                raise _Refusal(f"{rv.name!r} is a {_kind(rv)}; expected a Normal")
        names = {rv.name.removesuffix("_observed").removesuffix("_unobserved") for rv in rvs}
        split = len(rvs) == 2 and len(names) == 1
        if len(rvs) > 1 and not split:
            raise _Refusal(
                f"{_names(rvs)} all depend on {assignment.name!r}; put the features of one assignment "
                "side by side in one observed variable"
            )
        if split:
            # PyMC splits data with missing values into an observed and a free variable.
            rvs = sorted(rvs, key=lambda rv: rv in self.model.free_RVs)
            if rvs[0] in self.model.free_RVs or rvs[1] not in self.model.free_RVs:
                raise _Refusal(f"{_names(rvs)} are not one observed variable with missing values")
            self._no_other_children(rvs[1], [])
        elif rvs[0] in self.model.free_RVs:
            raise _Refusal(f"{rvs[0].name!r} is not observed")
        return names.pop() if split else rvs[0].name, rvs

    def _one(self, candidates, what, expected, observed) -> Variable:
        if len(candidates) != 1:
            raise _Refusal(
                f"{what} {_names(observed)} depends on {_names(candidates) or 'no variable'}; "
                f"expected one {expected} shared by all"
            )
        return next(iter(candidates))

    def _must_be_free(self, rv) -> None:
        if rv not in self.model.free_RVs:
            raise _Refusal(f"{rv.name!r} is observed; expected a free variable")

    def _no_other_children(self, rv, expected) -> None:
        others = [v for v in self.children(rv) if v not in expected]
        if others:
            raise _Refusal(
                f"{_names(others)} depends on {rv.name!r} too, which could then not be integrated out"
            )

    def _links(self, assignments) -> NDArray[np.int64]:
        sizes = [int(self._initial[rv.name].size) for rv in assignments]
        start = dict(zip(assignments, np.cumsum([0, *sizes]), strict=False))
        pairs = []
        for potential in self.model.potentials:
            linked = read_links(potential)
            if linked is None or not any(rv in start for rv in linked[0]):
                continue
            strangers = [rv for rv in linked[0] if rv not in start]
            if strangers:
                raise _Refusal(
                    f"{potential.name!r} links it with {_names(strangers)}, which "
                    "does not share its weights: their clusters are not the same clusters"
                )
            first, *others = [
                start[rv] + index for rv, index in zip(linked[0], linked[1], strict=True)
            ]
            pairs += [np.stack([first, other], axis=1) for other in others]
        return np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)

    # -- what the candidates mean, by numbers -----------------------------------------------------

    @property
    def _initial(self) -> dict[str, NDArray]:
        """A point in the space of the variables, for shapes."""
        if not hasattr(self, "_initial_point"):
            self._initial_point = make_initial_point_fn(model=self.model, return_transformed=False)(
                0
            )
            self._initial_point = {k: np.asarray(v) for k, v in self._initial_point.items()}
        return self._initial_point

    def _verified(self, weights, assignments, precision, latent, found, links):
        sticks = isinstance(weights.owner.op, BetaRV)
        shape = self._initial[weights.name].shape
        if len(shape) != 1:
            raise _Refusal(f"{weights.name!r} has shape {shape}; expected one vector of weights")
        truncation = shape[0] + int(sticks)
        shape = self._initial[latent.name].shape
        if len(shape) != 2 or truncation not in shape:
            raise _Refusal(
                f"{latent.name!r} has shape {shape}; expected one vector for each of the "
                f"{truncation} clusters"
            )
        for assignment in assignments:
            n = self._initial[assignment.name].shape
            if len(n) != 1:
                raise _Refusal(f"{assignment.name!r} has shape {n}; expected one vector of labels")
        data = [self._data(name, rvs) for name, rvs in found]
        projections = [self._projection(rvs, a, latent) for (_, rvs), a in zip(found, assignments)]
        hyper = self._hyper_function(weights, precision, latent, truncation)
        points = _RandomPoints(self.model, assignments, truncation)
        checker = _Checker(self, weights, sticks, precision, latent, hyper)
        points_values = [points.draw() for _ in range(_TEST_POINTS)]
        checker.check_latent(points_values)
        checker.check_assignments(assignments, points_values)
        # A square array of latent vectors can be read both ways: the means decide.
        for transposed in [flip for flip in (False, True) if shape[int(flip)] == truncation]:
            n_factors = shape[int(not transposed)]
            checker.read_latent(transposed, n_factors)
            try:
                flips = [
                    checker.projection_orientation(name, rvs, d, assignment, w, points_values)
                    for (name, rvs), d, assignment, w in zip(
                        found, data, assignments, projections, strict=True
                    )
                ]
                break
            except _Refusal as refusal:
                why = refusal
        else:
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
        priors = {d.projection: self._prior_function(d) for d in domains if d.update == "normal"}
        return ProjectedPartition(
            weights=weights.name,
            sticks=sticks,
            finite=isinstance(weights.owner.op, DirichletRV),
            precision=precision.name,
            latent=latent.name,
            latent_transposed=transposed,
            truncation=truncation,
            n_factors=n_factors,
            domains=tuple(domains),
            links=links,
            _hyper=hyper,
            _priors=priors,
        )

    def _data(self, name, rvs) -> DomainData:
        model = self.model
        observed = np.asarray(_evaluate(model.rvs_to_values[rvs[0]]), dtype=np.float64)
        if len(rvs) == 2:
            holes = np.full(self._initial[rvs[1].name].shape, np.nan)
            joined = graph_replace(
                model[name],
                {rvs[0]: pt.constant(observed), rvs[1]: pt.constant(holes)},
                strict=False,
            )
            values = np.asarray(_evaluate(joined), dtype=np.float64)
        else:
            values = observed
        if values.ndim != 2:
            raise _Refusal(f"{name!r} has shape {values.shape}; expected (objects, features)")
        seen = np.isfinite(values)
        if len(rvs) == 1 and not seen.all() or len(rvs) == 2 and not np.isfinite(observed).all():
            bad = values[~seen][0] if len(rvs) == 1 else observed[~np.isfinite(observed)][0]
            raise _Refusal(
                f"{name!r} holds {bad} where nothing is declared missing; mask the missing values "
                "(PyMC masks NaN itself, except in pm.Data)"
            )
        if seen.all():
            return DomainData(np.ascontiguousarray(values))
        return DomainData(np.ascontiguousarray(np.where(seen, values, 0.0)), seen)

    def _projection(self, rvs, assignment, latent) -> Variable:
        candidates = {p for rv in rvs for p in self._random_ancestors([_mean(rv)])} - {
            assignment,
            latent,
        }
        name = rvs[0].name
        if len(candidates) != 1:
            raise _Refusal(
                f"the mean of {name!r} depends on {_names(candidates) or 'nothing'} besides "
                f"{assignment.name!r} and {latent.name!r}; expected one projection"
            )
        (projection,) = candidates
        self._must_be_free(projection)
        return projection

    def _update(self, projection, rvs) -> tuple[str | None, str]:
        """Which of our steps serves a projection, or why none does."""
        name = projection.name
        others = [v for v in self.children(projection) if v not in rvs]
        if others:
            return None, f"{_names(others)} depends on {name!r} too"
        if self.model.rvs_to_transforms[projection] is not None:
            return None, f"{name!r} has a transform"
        if _kind(projection) == "Flat":
            return "map", ""
        if isinstance(projection.owner.op, NormalRV):
            return "normal", ""
        return None, f"{name!r} is a {_kind(projection)}; expected Flat or Normal"

    def _hyper_function(self, weights, precision, latent, truncation):
        parameters = [p for p in weights.owner.op.dist_params(weights.owner)]
        shape, scale = precision.owner.op.dist_params(precision.owner)
        # r = tau_z / alpha; that it does not depend on alpha is checked, and alpha then drops out.
        ratio = 1.0 / (_scale(latent) ** 2 * precision)
        kind = weights.owner.op
        if isinstance(kind, StickBreakingWeightsRV):
            parameters = parameters[:1]
        evaluate = self._point_function([*parameters, shape, 1.0 / scale, ratio], {precision: 1.0})

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
        mean, scale = projection.owner.op.dist_params(projection.owner)
        evaluate = self._point_function([mean, scale], {})
        shape = self._initial[domain.projection].shape

        def prior(point):
            mean, scale = (np.broadcast_to(p, shape).astype(float) for p in evaluate(point))
            precision = scale**-2.0
            return (mean.T, precision.T) if domain.transposed else (mean, precision)

        return prior

    def _point_function(self, outputs, givens):
        """Compile `outputs` as a function of a point; constants are evaluated once."""
        model = self.model
        replaced = graph_replace(
            outputs,
            {rv: pt.constant(value, dtype=rv.dtype) for rv, value in givens.items()},
            strict=False,
        )
        replaced = model.replace_rvs_by_values([pt.as_tensor(v) for v in replaced])
        values = set(model.value_vars)
        inputs = [v for v in explicit_graph_inputs(replaced) if v in values]
        function = pytensor.function(inputs, replaced, mode=_PLAIN, on_unused_input="ignore")
        names = [v.name for v in inputs]
        if not names:
            constant = [np.asarray(v) for v in function()]
            return lambda point: constant
        return lambda point: [np.asarray(v) for v in function(*[point[name] for name in names])]


class _RandomPoints:
    """Random points of a model's value variables, none of them special."""

    def __init__(self, model, assignments, truncation):
        self.rng = np.random.default_rng(20160401)
        self.start = model.initial_point(0)
        self.labels = {model.rvs_to_values[rv].name for rv in assignments}
        self.truncation = truncation

    def draw(self) -> dict[str, NDArray]:
        point = {}
        for name, value in self.start.items():
            value = np.asarray(value)
            if name in self.labels:
                new = self.rng.integers(self.truncation, size=value.shape)
            elif value.dtype.kind == "f":
                new = self.rng.normal(0.0, 0.7, size=value.shape)
            else:
                new = value
            point[name] = np.asarray(new, dtype=value.dtype)
        return point


class _Checker:
    """Holds the declared log densities against the ones that the steps assume."""

    def __init__(self, reader, weights, sticks, precision, latent, hyper):
        self.reader = reader
        self.model = reader.model
        self.weights, self.sticks = weights, sticks
        self.precision, self.latent = precision, latent
        self.hyper = hyper
        self.backward = _natural_function(self.model, [weights, precision])

    def _log_densities(self, rvs):
        logps = self.model.logp(vars=rvs, jacobian=False, sum=False)
        inputs = self.model.value_vars
        function = pytensor.function(inputs, logps, mode=_PLAIN, on_unused_input="ignore")
        return lambda point: function(*[point[v.name] for v in inputs])

    def check_latent(self, points) -> None:
        """Check the prior of the latent vectors, and that r is a constant."""
        if self.model.rvs_to_transforms[self.latent] is not None:
            raise _Refusal(f"{self.latent.name!r} has a transform; expected none")
        declared = self._log_densities([self.latent])
        name = self.model.rvs_to_values[self.latent].name
        for point in points:
            hyper = self.hyper(point)
            _, alpha = self.backward(point)
            expected = _log_normal(point[name], 0.0, alpha * hyper.latent_precision)
            if not _same(declared(point)[0], expected):
                raise _Refusal(
                    f"{self.latent.name!r}: its declared log density is not that of independent "
                    f"Normal(0, tau = r * {self.precision.name}) with a constant r"
                )

    def read_latent(self, transposed: bool, n_factors: int) -> None:
        """Decide how the latent vectors are laid out, for the checks that follow."""
        self.transposed, self.n_factors = transposed, n_factors

    def check_assignments(self, assignments, points) -> None:
        """Check that every assignment is Categorical over the weights."""
        declared = self._log_densities(assignments)
        for point in points:
            natural, _ = self.backward(point)
            logs = log_weights(natural) if self.sticks else np.log(natural)
            for assignment, found in zip(assignments, declared(point), strict=True):
                label = point[self.model.rvs_to_values[assignment].name]
                if not _same(found, logs[label]):
                    raise _Refusal(
                        f"{assignment.name!r}: its declared probabilities are not "
                        + (
                            f"the weights that the sticks {self.weights.name!r} break, the last "
                            "cluster taking what is left"
                            if self.sticks
                            else f"{self.weights.name!r}"
                        )
                    )

    def projection_orientation(self, name, rvs, data, assignment, w, points) -> bool:
        """Check the likelihood of one domain; return whether its projection is (K, M_d)."""
        model = self.model
        n_objects, n_features = data.values.shape
        n_labels = self.reader._initial[assignment.name].shape[0]
        if n_labels != n_objects:
            raise _Refusal(
                f"{name!r} has {n_objects} objects and {assignment.name!r} {n_labels} labels"
            )
        backward = _natural_function(model, [w])
        declared = self._log_densities(rvs)
        shape = self.reader._initial[w.name].shape
        k = self.n_factors
        possible = [
            flip
            for flip in (False, True)
            if shape == ((k, n_features) if flip else (n_features, k))
        ]
        if not possible:
            raise _Refusal(
                f"{w.name!r} has shape {shape}; expected ({n_features} features, {k} factors)"
            )
        for point in points:
            (projection,) = backward(point)
            z = point[model.rvs_to_values[self.latent].name]
            z = z.T if self.transposed else z
            label = point[model.rvs_to_values[assignment].name]
            _, alpha = self.backward(point)
            found = declared(point)
            values = data.values
            if len(rvs) == 2:
                values = values.copy()
                values[~data.observed] = point[model.rvs_to_values[rvs[1]].name]
            agreed = []
            for flip in possible:
                mean = z[label] @ (projection if flip else projection.T)
                expected = _log_normal(values, mean, alpha)
                if len(rvs) == 2:
                    same = _same(found[0], expected[data.observed]) and _same(
                        found[1], expected[~data.observed]
                    )
                else:
                    same = _same(found[0], expected)
                if same:
                    agreed.append(flip)
            possible = agreed
            if not possible:
                raise _Refusal(
                    f"{name!r}: its declared log density is not that of Normal({self.latent.name}"
                    f"[{assignment.name}] @ {w.name}.T, tau={self.precision.name})"
                )
        return possible[0]


def natural_function(model: Model, names: Iterable[str]):
    """Compile the map from a point of value variables to the variables `names` themselves."""
    return _natural_function(model, [model[name] for name in names])


def _natural_function(model, rvs):
    values = [model.rvs_to_values[rv] for rv in rvs]
    outputs = []
    for rv, value in zip(rvs, values, strict=True):
        transform = model.rvs_to_transforms[rv]
        outputs.append(value if transform is None else transform.backward(value, *rv.owner.inputs))
    outputs = model.replace_rvs_by_values(outputs)
    inputs = [v for v in explicit_graph_inputs(outputs) if v in set(model.value_vars)]
    function = pytensor.function(inputs, outputs, mode=_PLAIN, on_unused_input="ignore")
    return lambda point: [np.asarray(v) for v in function(*[point[v.name] for v in inputs])]


def value_function(model: Model, name: str):
    """Compile the map from the variable `name` to its value in the space that is sampled."""
    rv = model[name]
    natural = rv.type()
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return lambda value: value
    output = transform.forward(natural, *rv.owner.inputs)
    return pytensor.function([natural], output, mode=_PLAIN, on_unused_input="ignore")


def _evaluate(variable):
    return pytensor.function([], variable, mode=_PLAIN)()


def _log_normal(x, mean, tau):
    return 0.5 * (np.log(tau) - np.log(2.0 * np.pi)) - 0.5 * tau * (x - mean) ** 2


def _same(found, expected) -> bool:
    found = np.asarray(found)
    if found.shape != np.shape(expected):
        return False
    return bool(np.allclose(found, expected, rtol=1e-6, atol=1e-6))


def _mean(rv):
    return rv.owner.op.dist_params(rv.owner)[0]


def _scale(rv):
    return rv.owner.op.dist_params(rv.owner)[1]


def _kind(rv) -> str:
    printed = getattr(rv.owner.op, "_print_name", None)
    return printed[0] if printed else type(rv.owner.op).__name__.removesuffix("RV")


def _names(variables) -> str:
    return ", ".join(sorted(repr(v.name) for v in variables))
