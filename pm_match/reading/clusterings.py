"""Reads clusterings: weights, assignments, links and relevance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.multivariate import StickBreakingWeightsRV
from pymc.logprob.transforms import LogOddsTransform, SimplexTransform
from pymc.model.core import Model
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, BetaRV, CategoricalRV, DirichletRV

from pm_match.checks import plain
from pm_match.numerics.stick_breaking import dirichlet_sticks, known_sticks, log_weights
from pm_match.reading.ancestry import RV, Refusal, WeightsRefusal, a_kind, names, parameters
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, common, must_be_analytic
from pm_match.reading.known_labels import UNKNOWN, WEIGHTS, Known
from pm_match.reading.laws import BETA
from pm_match.reading.links import MustLink, read_pairs
from pm_match.reading.parts import (
    Assignment,
    Clustering,
    Joint,
    LabelPart,
    UnservedModelError,
    linked_parts,
)


@dataclass(frozen=True, eq=False)
class ClusteringCandidate:
    """What looks like a clustering, by ancestry.

    Attributes
    ----------
    weights : variable or None
        None if the weights are constant.
    known : (T,) array or None
        The constant weights.
    truncation : int
    assignments : list of variables
    flags : dict of variables to variables
        Relevance flags of some assignments.
    probabilities : list of (variable or None, list of variables)
        Groups of relevance flags that share a probability of being relevant; None if constant.
    links, apart : (L, 2) array
    constraints : list of potentials
    observed : dict of variables to (N,) integer array
        Labels that are observed, -1 where they are not, of the assignments that have some.
    fixed : (N,) array
        Those of all objects, and those that links make of them.
    parts : dict of variables to tuple of LabelPart
        Of the assignments that have joint labels.
    """

    weights: RV | None
    known: NDArray[np.float64] | None
    truncation: int
    assignments: list[RV]
    flags: dict[RV, RV]
    probabilities: list[tuple[RV | None, list[RV]]]
    links: NDArray[np.int64]
    apart: NDArray[np.int64]
    constraints: list[RV]
    observed: dict[RV, NDArray[np.int64]]
    fixed: NDArray[np.int64]
    parts: dict[RV, tuple[LabelPart, ...]] = field(default_factory=dict)

    @property
    def sticks(self) -> bool:
        """Whether the weights are declared as sticks."""
        return self.weights is not None and isinstance(self.weights.owner.op, BetaRV)

    @property
    def labels(self) -> dict[RV, int]:
        """How many values each discrete variable has."""
        return dict.fromkeys(self.assignments, self.truncation) | dict.fromkeys(
            self.flags.values(), 2
        )


def clustering_candidate(
    context: Context,
    weights_from: frozenset,
    assignments: list[RV],
    flags: dict[RV, RV],
    observed: Known,
    joint: Joint | None = None,
) -> ClusteringCandidate:
    """Find what belongs to a clustering, and refuse what is not one."""
    for assignment in assignments:
        labels = context.shapes[assignment.name]
        if len(labels) != 1:
            raise Refusal(no_vector(assignment.name, labels))
        if labels[0] == 0:
            raise Refusal(f"{assignment.name!r} has no objects; expected one at least")
    if len(weights_from) > 1:
        raise WeightsRefusal(
            f"its probabilities depend on {names(weights_from)}; expected one variable, "
            "StickBreakingWeights, Dirichlet, or the Beta sticks of a stick-breaking"
        )
    weights, known = None, None
    if weights_from:
        (weights,) = weights_from
        if not isinstance(weights.owner.op, WEIGHTS):
            raise WeightsRefusal(
                f"{weights.name!r} is {a_kind(weights)}; expected StickBreakingWeights, Dirichlet, "
                "or the Beta sticks of a stick-breaking"
            )
        try:
            context.must_be_free(weights)
            context.must_be_plain(weights, (SimplexTransform, LogOddsTransform))
            for assignment in assignments:
                must_be_analytic(context, assignment)
        except Refusal as refusal:
            if weights.dtype != "float64":
                raise
            raise WeightsRefusal(str(refusal)) from refusal
        shape = context.shapes[weights.name]
        if len(shape) != 1:
            raise WeightsRefusal(
                f"{weights.name!r} has shape {shape}; expected one vector of weights"
            )
        truncation = shape[0] + int(isinstance(weights.owner.op, BetaRV))
        try:
            context.ancestry.only_children(weights, assignments)
        except Refusal as refusal:
            raise WeightsRefusal(str(refusal)) from refusal
    else:
        known = _known_weights(context, assignments)
        truncation = len(known)
    own = {
        rv: _observed_labels(rv, observed[rv.name], truncation, flags.get(rv))
        for rv in assignments
        if rv.name in observed
    }
    sizes = [(rv, context.shapes[rv.name][0]) for rv in assignments]
    links, apart, constraints = _pairs(context, assignments)
    if constraints and flags:
        raise Refusal(
            f"{names(constraints, 'is')} about objects of which {names(flags.values())} may "
            "be irrelevant; such objects must be relevant"
        )
    return ClusteringCandidate(
        weights,
        known,
        truncation,
        assignments,
        flags,
        _probabilities(context, flags),
        links,
        apart,
        constraints,
        own,
        _spread(
            np.concatenate([own[rv] if rv in own else np.full(n, -1) for rv, n in sizes]),
            links,
            apart,
            lambda i: _titled(context.model, sizes, i),
        ),
        {rv: joint[rv.name] for rv in assignments if joint and rv.name in joint},
    )


def no_vector(name: str, shape: tuple[int, ...]) -> str:
    """Say how labels of some other shape are declared as a vector."""
    if not shape:
        return (
            "expected a vector of labels, one for each object; found a single label: declare those "
            "of all objects in one variable (shape=)"
        )
    return (
        f"{name!r} has shape {shape}; expected one vector of labels: declare {prod(shape)} with "
        f"shape=, and use {name}.reshape({shape}) where it is used now"
    )


def _observed_labels(
    rv: RV, labels: NDArray[np.int64], truncation: int, flag: RV | None
) -> NDArray[np.int64]:
    """Check the labels that are observed of an assignment; return -1 where they are not."""
    seen = labels[labels != UNKNOWN]
    bad = seen[(seen < 0) | (seen >= truncation)]
    if len(bad):
        raise Refusal(
            f"the observed labels of {rv.name!r} hold {bad[0]}; expected 0 to {truncation - 1}, "
            "and NaN or a mask (np.ma.masked_array) where they are not known"
        )
    if flag is not None and len(seen):
        raise Refusal(
            f"labels of {rv.name!r} are observed, and {flag.name!r} says whether its objects are "
            "relevant; expected objects of known clusters to be relevant"
        )
    return np.where(labels == UNKNOWN, -1, labels)


def _titled(model: Model, sizes: Sequence[tuple[RV, int]], place: int) -> str:
    """Name an object by its assignment, and its label or its place there."""
    ends = np.cumsum([n for _, n in sizes])
    own = int(np.searchsorted(ends, place, side="right"))
    rv, n = sizes[own]
    (dim,) = model.named_vars_to_dims.get(rv.name, (None,))
    labels = model.coords.get(dim) or range(n)
    return f"{rv.name}[{plain(labels[place - ends[own] + n])!r}]"


def _spread(
    known: NDArray[np.int64],
    links: NDArray[np.int64],
    apart: NDArray[np.int64],
    titled: Callable[[int], str],
) -> NDArray[np.int64]:
    """Give the objects that are linked to one whose label is known its label."""
    part = linked_parts(len(known), links)
    label = np.full(part.max(initial=-1) + 1, -1)
    seen = known >= 0
    label[part[seen]] = known[seen]
    differs = np.flatnonzero(label[part] != np.where(seen, known, label[part]))
    if differs.size:
        raise UnservedModelError(
            f"{titled(differs[0])}: expected links to objects with the same observed label; found "
            "one with another"
        )
    one, other = label[part[apart]].T
    for where, what in (
        (part[apart[:, 0]] == part[apart[:, 1]], "a link"),
        ((one == other) & (one >= 0), "the same observed label"),
    ):
        if where.any():
            pair = " and ".join(map(titled, apart[where][0]))
            raise UnservedModelError(
                f"{pair} are kept apart: expected them in different clusters; found {what}"
            )
    return label[part]


def _known_weights(context: Context, assignments) -> NDArray[np.float64]:
    """Read constant weights, which must be the same for all objects of all assignments."""
    found = context.at([parameters(rv)[0] for rv in assignments])({})
    same = len({p.shape[-1] for p in found}) == 1
    rows = np.concatenate([p.reshape(-1, p.shape[-1]) for p in found]) if same else found[0]
    weights = common(rows, 1) if same else None
    if weights is None:
        raise WeightsRefusal(
            f"the constant probabilities of {names(assignments)} differ between objects; "
            "expected one vector of weights"
        )
    if not (weights > 0.0).all():
        raise Refusal(
            f"the constant probabilities of {names(assignments)} hold {weights.min()}; expected "
            "positive ones: leave out clusters that cannot be"
        )
    return weights.astype(np.float64)


def _probabilities(context: Context, flags: dict[RV, RV]) -> list[tuple[RV | None, list[RV]]]:
    groups: dict[RV, list[RV]] = {}
    for assignment, flag in flags.items():
        if flag not in context.model.free_RVs or not isinstance(flag.owner.op, BernoulliRV):
            seen = flag in context.model.observed_RVs
            raise Refusal(
                f"the relevance of {assignment.name!r} is {names([flag])}, "
                f"{'which is observed' if seen else a_kind(flag)}; expected a free Bernoulli"
            )
        if context.shapes[flag.name] != context.shapes[assignment.name]:
            raise Refusal(
                f"{flag.name!r} has shape {context.shapes[flag.name]}, and {assignment.name!r} "
                f"{context.shapes[assignment.name]}"
            )
        parents = context.ancestry.parents[flag]
        if len(parents) > 1:
            raise Refusal(
                f"{flag.name!r} depends on {names(parents)}; expected one Beta probability"
            )
        groups.setdefault(next(iter(parents), flag), []).append(flag)
    found: list[tuple[RV | None, list[RV]]] = []
    for probability, members in groups.items():
        if probability in members:
            found.append((None, members))
            continue
        if not BETA.has(probability):
            raise Refusal(
                f"the probability {probability.name!r} of {names(members)} is "
                f"{a_kind(probability)}; expected a Beta"
            )
        context.must_be_free(probability)
        context.must_be_plain(probability, BETA.transform(probability))
        if context.shapes[probability.name] != ():
            raise Refusal(
                f"{probability.name!r} has shape {context.shapes[probability.name]}; expected one "
                "number"
            )
        strangers = [v for v in context.ancestry.children(probability) if v not in members]
        if strangers:
            raise Refusal(
                f"{names(strangers, 'depends')} on {probability.name!r} too, the probability of "
                f"{names(members)}; expected one for the relevance of each set of clusters"
            )
        found.append((probability, members))
    return found


def _pairs(context: Context, assignments) -> tuple[NDArray[np.int64], NDArray[np.int64], list[RV]]:
    """Read which objects are linked, which cannot be, and the potentials that say so."""
    sizes = [int(context.shapes[rv.name][0]) for rv in assignments]
    start = dict(zip(assignments, np.cumsum([0, *sizes]), strict=False))
    links, apart, constraints = [], [], []
    for potential in context.model.potentials:
        found = read_pairs(potential)
        if found is None or not any(rv in start for rv in found[1]):
            continue
        strangers = [rv for rv in found[1] if rv not in start]
        if strangers:
            raise Refusal(
                f"{potential.name!r} links it with {names(strangers)}, which "
                "does not share its weights: their clusters are not the same clusters"
            )
        constraints.append(potential)
        kind, *declared = found
        objects = [start[rv] + index for rv, index in zip(*declared, strict=True)]
        if kind is MustLink:
            links += [np.stack([objects[0], other], axis=1) for other in objects[1:]]
        else:
            apart += [np.stack(pair, axis=1) for pair in combinations(objects, 2)]
    none = np.empty((0, 2), np.int64)
    return np.concatenate([none, *links]), np.concatenate([none, *apart]), constraints


def verified_clustering(
    context: Context, candidate: ClusteringCandidate, check: DensityCheck
) -> Clustering:
    """Hold a candidate against its declared densities."""
    _check_assignments(candidate, check)
    _check_flags(candidate, check)
    group_of = {
        flag: number for number, (_, flags) in enumerate(candidate.probabilities) for flag in flags
    }
    assignments = []
    for rv in candidate.assignments:
        flag = candidate.flags.get(rv)
        assignments.append(
            Assignment(
                rv.name,
                context.shapes[rv.name][0],
                None if flag is None else flag.name,
                -1 if flag is None else group_of[flag],
                candidate.observed.get(rv),
                candidate.parts.get(rv, ()),
            )
        )
    weights = candidate.weights
    return Clustering(
        weights="" if weights is None else weights.name,
        sticks=candidate.sticks,
        finite=weights is None or isinstance(weights.owner.op, DirichletRV),
        free_weights_prior=weights is not None and bool(context.ancestry.parents[weights]),
        truncation=candidate.truncation,
        assignments=tuple(assignments),
        probabilities=tuple(None if rv is None else rv.name for rv, _ in candidate.probabilities),
        links=candidate.links,
        apart=candidate.apart,
        known=candidate.fixed,
        _sticks=_sticks_function(context, candidate),
        _relevance_prior=_relevance_function(context, candidate.probabilities),
    )


def _check_assignments(candidate, check) -> None:
    """Refuse if an assignment is not Categorical over the weights."""
    weights = candidate.weights
    if weights is None:
        return  # `_known_weights` has looked at all there is
    declared = check.at([parameters(rv)[0] for rv in candidate.assignments])
    for values, found in zip(check.natural(weights), declared, strict=True):
        if candidate.sticks:
            values = np.exp(log_weights(np.log(values), np.log1p(-values)))
        for assignment, p in zip(candidate.assignments, found, strict=True):
            if p.shape[-1:] != values.shape or not np.allclose(p, values, rtol=1e-6, atol=1e-12):
                raise WeightsRefusal(
                    f"{assignment.name!r}: its declared probabilities are not "
                    + (
                        f"the weights that the sticks {weights.name!r} break, the last "
                        "cluster taking what is left"
                        if candidate.sticks
                        else f"{weights.name!r}"
                    )
                )


def _check_flags(candidate, check) -> None:
    """Refuse if relevance flags are not Bernoulli with their probability."""
    for probability, flags in candidate.probabilities:
        if probability is None:
            continue
        declared = check.at([parameters(flag)[0] for flag in flags])
        for value, found in zip(check.natural(probability), declared, strict=True):
            for flag, p in zip(flags, found, strict=True):
                if not np.allclose(p, value, rtol=1e-6, atol=1e-12):
                    raise Refusal(
                        f"{flag.name!r}: its declared probability is not {probability.name!r}"
                    )


def _sticks_function(context: Context, candidate: ClusteringCandidate):
    truncation, weights = candidate.truncation, candidate.weights
    if weights is None:
        known = tuple(np.ascontiguousarray(v) for v in known_sticks(candidate.known))
        return lambda point: known
    return sticks_function(context, weights, (truncation,))


def sticks_function(context: Context, weights: RV, shape: tuple[int, ...]):
    """Make a function of a point: the parameters a, b (..., T - 1) of the sticks of some weights.

    `shape`: (..., T), of weights, a Dirichlet or `StickBreakingWeights`; or of what Beta sticks
    break.
    """
    op = weights.owner.op
    of_sticks = (*shape[:-1], shape[-1] - 1)

    def finish(first, *others) -> tuple[NDArray, NDArray]:
        if isinstance(op, DirichletRV):
            found = dirichlet_sticks(np.broadcast_to(first, shape))
        elif isinstance(op, StickBreakingWeightsRV):
            found = np.ones(()), first[..., None]
        else:
            own = context.shapes[weights.name]
            found = [np.broadcast_to(value, own).reshape(of_sticks) for value in (first, *others)]
        a, b = (np.ascontiguousarray(np.broadcast_to(own, of_sticks)) for own in found)
        return a, b

    arguments = BETA.arguments(weights) if BETA.has(weights) else parameters(weights)
    return context.prior(arguments, finish)


def _relevance_function(context: Context, probabilities: Sequence[tuple[RV | None, list[RV]]]):
    parts = []
    for probability, flags in probabilities:
        if probability is not None:
            read = context.at(BETA.arguments(probability))
            parts.append(
                lambda point, read=read: np.array([*(float(v.flat[0]) for v in read(point)), 1.0])
            )
            continue
        p = np.unique(context.at([parameters(flags[0])[0]])({})[0])
        if len(p) != 1 or not 0.0 < p[0] < 1.0:
            raise Refusal(
                f"the constant probability of {names(flags)} is {p}; expected one number "
                "between 0 and 1"
            )
        row = np.array([p[0], 1.0 - p[0], 0.0])
        parts.append(lambda point, row=row: row)
    return lambda point: np.array([part(point) for part in parts]).reshape(-1, 3)


def over_weights(variable: Any) -> bool:
    """Whether a variable is an assignment over random weights: all that shows without its model."""
    node = getattr(variable, "owner", None)
    if node is None or not isinstance(node.op, CategoricalRV):
        return False
    return any(
        v.owner is not None and isinstance(v.owner.op, WEIGHTS)
        for v in ancestors([node.inputs[-1]])
    )
