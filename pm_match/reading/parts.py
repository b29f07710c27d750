"""What is read from a model: its clusterings, what they are seen by, and what is refused."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_match.reading.evidence import Evidence, Point

E = TypeVar("E", bound=Evidence)
# Names that a message lists.
_MOST_NAMED = 6


class UnservedModelError(ValueError):
    """The model is not one that the steps can serve; the message says which variable, and why.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mean = pm.Normal("mean")
    ...     x = pm.Normal("x", mean, 1.0, observed=[1.0, 2.0])
    ...
    >>> try:
    ...     pmm.steps(model)
    ... except pmm.UnservedModelError as error:
    ...     print(error)
    ...
    pm_match has no step for this model: it has no assignment (a vector of labels,
    pm.Categorical or pm.Bernoulli; pm.Mixture has none). pm.sample() samples it with PyMC's own
    steps.
    """


@dataclass(frozen=True)
class LabelPart:
    """A variable that has one part of every label, where labels are joint (see `joint_labels`)."""

    name: str
    n_labels: int
    weights: str  # the vector of random weights that its labels are over; empty if it is none
    nested: bool  # whether its probabilities depend on another part

    @property
    def title(self) -> str:
        """A name for its set of clusters."""
        return self.weights or f"clusters of {self.name}"


# By the names of assignments that have joint labels.
Joint = dict[str, tuple[LabelPart, ...]]


@dataclass(frozen=True)
class Assignment:
    """The clusters of the objects of one domain, or of one axis of a network."""

    name: str
    n_objects: int
    # the variable that says which objects are relevant; None if all are
    relevance: str | None = None
    group: int = -1  # which probability of being relevant they share, -1 if all are relevant
    # (N,) or None: labels that are observed, -1 where they are not; None if none is
    known: NDArray[np.int64] | None = None
    parts: tuple[LabelPart, ...] = ()  # of joint labels; the last changes first

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Which labels (N,) are drawn."""
        return np.ones(self.n_objects, bool) if self.known is None else self.known < 0

    @property
    def held(self) -> list[str]:
        """The variables that hold all labels, or parts of them."""
        return [part.name for part in self.parts] or [self.name]

    @property
    def drawn(self) -> list[str]:
        """The free variables that hold the labels that are drawn; none if all are observed."""
        if self.known is None:
            return self.held
        return [f"{self.name}_unobserved"] if self.free.any() else []

    def must_be_alone(self) -> None:
        """Raise `UnservedModelError` if labels are joint, where that is not served."""
        if self.parts:
            raise UnservedModelError(
                f"{', '.join(map(repr, self.held))}: not served for labels that data depend on "
                "together, nor for others over the same weights"
            )

    @property
    def variables(self) -> list[str]:
        """The free variables of the labels and of the relevance of its objects."""
        return [*([self.relevance] if self.relevance else []), *self.drawn]

    def by_variable(self, labels: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return labels (..., N) by the variables that have them: of joint ones, their parts."""
        if not self.parts:
            return {self.name: labels}
        own = np.unravel_index(labels, [part.n_labels for part in self.parts])
        return {part.name: values for part, values in zip(self.parts, own, strict=True)}

    def values(self, labels: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return what the free variables of the labels hold when these are `labels` (N,)."""
        return dict(zip(self.drawn, self.by_variable(labels[self.free]).values(), strict=False))

    def n_labels(self, truncation: int) -> dict[str, int]:
        """How many labels there are of each of `drawn`, if there are `truncation` of all."""
        sizes = {part.name: part.n_labels for part in self.parts}
        return sizes or dict.fromkeys(self.drawn, truncation)

    def joined(self, labels: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the labels (N,) that are drawn, given those of the variables that hold them."""
        if not self.parts:
            return labels[self.drawn[0]]
        own = tuple(labels[part.name] for part in self.parts)
        sizes = tuple(part.n_labels for part in self.parts)
        return np.asarray(np.ravel_multi_index(own, sizes), np.int64)


@dataclass(frozen=True, eq=False)
class Clustering:
    """One set of clusters, and the assignments of objects to them."""

    # The variable with the prior on weights: stick-breaking weights, a Dirichlet, or Beta sticks.
    # Empty if the weights are constant.
    weights: str
    sticks: bool  # whether `weights` holds sticks rather than weights
    # whether the number of clusters is declared (a Dirichlet, or constant weights) rather than a
    # truncation
    finite: bool
    free_weights_prior: bool  # whether the prior on weights depends on other free variables
    truncation: int
    assignments: tuple[Assignment, ...]
    # for every group of relevance flags, the variable that is their probability of being relevant;
    # None if it is constant
    probabilities: tuple[str | None, ...]
    # (L, 2): pairs of objects that share a cluster, numbered assignment after assignment
    links: NDArray[np.int64]
    apart: NDArray[np.int64]  # (P, 2): pairs of objects that do not
    # (N,): the labels that are observed, of all objects, and those that links make of them; -1
    # where they are not known
    known: NDArray[np.int64]
    _sticks: Callable[[Point], tuple[NDArray, NDArray]] = field(repr=False)
    _relevance_prior: Callable[[Point], NDArray] = field(repr=False)

    @property
    def n_objects(self) -> int:
        """Objects of all assignments together."""
        return sum(assignment.n_objects for assignment in self.assignments)

    @property
    def title(self) -> str:
        """A name for the set of clusters, which no other set has."""
        return self.weights or f"clusters of {self.assignments[0].name}"

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Where the objects of the second and of later assignments begin."""
        return np.cumsum([assignment.n_objects for assignment in self.assignments])[:-1]

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where the objects of every assignment are among all."""
        starts = [0, *self.ends.tolist()]
        return {
            assignment.name: slice(start, start + assignment.n_objects)
            for assignment, start in zip(self.assignments, starts, strict=True)
        }

    def by_assignment(self, values: NDArray) -> Iterator[tuple[Assignment, NDArray]]:
        """Give every assignment, and its part of what all objects (N, …) have."""
        own = (values[where] for where in self.slices.values())
        return zip(self.assignments, own, strict=True)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        assignments = [name for own in self.assignments for name in own.drawn]
        flags = [assignment.relevance for assignment in self.assignments if assignment.relevance]
        probabilities = [name for name in self.probabilities if name]
        weights = [self.weights] if self.weights else []
        return [*weights, *probabilities, *flags, *assignments]

    @property
    def named(self) -> bool:
        """Whether some labels are observed, so that clusters have names."""
        return bool((self.known >= 0).any())

    def respected(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return labels (N,) with those that are known as they are, and objects apart that must be.

        Raise `UnservedModelError` if objects are not found labels apart from each other.
        """
        if labels.shape != self.known.shape:
            return labels  # whoever takes them says so
        labels = np.where(self.known >= 0, self.known, labels)
        return separated(labels, self) if len(self.apart) else labels

    def prior(self, point: Point) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Beta parameters (T - 1,) of the sticks at a `point` of value variables."""
        return self._sticks(point)

    def relevance_prior(self, point: Point) -> NDArray[np.float64]:
        """Prior (G, 3) of the groups of relevance flags (see `clusters.relevance`)."""
        return self._relevance_prior(point)


def linked_parts(n_objects: int, links: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give what links (L, 2) join, directly or through others, the same number (N,)."""
    if not len(links):
        return np.arange(n_objects, dtype=np.int32)  # SciPy's type
    graph = scipy.sparse.coo_array((np.ones(len(links)), links.T), shape=(n_objects, n_objects))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1]


def separated(labels: NDArray[np.int64], clustering: Clustering) -> NDArray[np.int64]:
    """Give objects that cannot be linked other labels where they share one, few at a time.

    Those that are linked go together. A label that nothing has comes first, then the largest
    cluster that may be joined.
    """
    part = linked_parts(len(labels), clustering.links)
    fixed = np.bincount(part, clustering.known >= 0) > 0
    against: dict[int, set[int]] = {}
    for one, other in part[clustering.apart].tolist():
        against.setdefault(one, set()).add(other)
        against.setdefault(other, set()).add(one)
    labels, label = labels.copy(), np.full(part.max() + 1, -1)
    label[part] = labels
    settled: set[int] = set()
    for own in sorted(against, key=lambda p: (not fixed[p], -len(against[p]))):
        taken = {label[other] for other in against[own] & settled}
        settled.add(own)
        if label[own] < 0 or label[own] not in taken:
            continue
        sizes = np.bincount(labels[labels >= 0], minlength=clustering.truncation)
        free = [k for k in range(clustering.truncation) if k not in taken]
        if not free or fixed[own]:
            raise UnservedModelError(
                f"{clustering.title!r}: no labels were found that keep all objects apart that "
                f"cannot be linked; it has {clustering.truncation} clusters"
            )
        label[own] = max(free, key=lambda k: (sizes[k] == 0, sizes[k], -k))
        labels[part == own] = label[own]
    return labels


@dataclass(frozen=True, eq=False)
class Component:
    """What has to be drawn together: clusterings that are connected by what is observed of them."""

    clusterings: tuple[Clustering, ...]
    evidence: tuple[Evidence, ...]  # what is observed of their objects, of any kinds
    # free numbers that only priors of what is integrated out depend on
    hyperparameters: tuple[str, ...]
    # What the steps keep for the component, as long as it is kept itself.
    workspace: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def collapsed(self) -> list[str]:
        """The variables that `ClusterGibbs` draws."""
        names = [name for clustering in self.clusterings for name in clustering.names]
        return names + [name for evidence in self.evidence for name in evidence.names]

    @property
    def recognised(self) -> bool:
        """Whether it is a matching model for certain, rather than any model with categories.

        Not all labels are observed; and weights are drawn, or a kind knows the data well enough to
        integrate something out.
        """
        assignments = [own for c in self.clusterings for own in c.assignments]
        parts = [part for own in assignments for part in own.parts]
        weights = [own.weights for own in self.clusterings] + [own.weights for own in parts]
        known = not any([*weights, *(own.has_weights for own in self.evidence)])
        drawn = any(own.drawn for own in assignments)
        return drawn and not (known and all(own.anchored for own in self.evidence))

    def about(self, clustering: int) -> list[Evidence]:
        """Return the evidence, of any kind, that is about one clustering."""
        return [evidence for evidence in self.evidence if clustering in evidence.clusterings]

    def of(self, record: type[E], clustering: int | None = None) -> list[E]:
        """Return the evidence of one kind, on request of one clustering alone."""
        return [
            evidence
            for evidence in self.evidence
            if isinstance(evidence, record)
            and (clustering is None or clustering in evidence.clusterings)
        ]


class Part:
    """What steps serve besides components: a record of each kind, read by a reader of its own."""

    @property
    def names(self) -> list[str]:
        """The free variables that our steps draw for it."""
        raise NotImplementedError

    @property
    def relabelled(self) -> list[str]:
        """Variables that mean something else when clusters or factors take other names."""
        return []

    @property
    def unordered(self) -> Collection[str]:
        """Assignments of what has no fixed order, so that no two draws have the same objects."""
        return ()

    def start(self, rng: np.random.Generator, point: Point) -> dict[str, NDArray]:
        """Make values to start a chain from, by variable, at some `point` of value variables."""
        return {}


@dataclass(frozen=True, eq=False)
class Structure:
    """What was read from a model."""

    components: tuple[Component, ...]
    refusals: dict[str, str]  # for every assignment that is not served, the reason
    parts: tuple[Part, ...] = ()  # what else is served
    # for every assignment whose data are served by another kind than looks like theirs, why
    notes: dict[str, str] = field(default_factory=dict)
    binary: bool = False  # whether the labels are variables of zeros and ones

    @property
    def empty(self) -> bool:
        """Whether there is nothing to serve."""
        return not self.components and not self.parts

    @property
    def clusterings(self) -> list[Clustering]:
        """Return the clusterings of all components."""
        return [clustering for c in self.components for clustering in c.clusterings]

    @property
    def evidence(self) -> list[Evidence]:
        """Return the evidence of all components."""
        return [evidence for c in self.components for evidence in c.evidence]

    @property
    def hyperparameters(self) -> list[str]:
        """Return the hyperparameters of all components."""
        return [name for c in self.components for name in c.hyperparameters]

    @property
    def all_clusterings(self) -> list[Clustering]:
        """Return all clusterings, those of other parts too."""
        others = [getattr(part, "clustering", None) for part in self.parts]
        return [*self.clusterings, *(own for own in others if own is not None)]

    @property
    def recognised(self) -> "Structure":
        """What is left without the components that are not matching models for certain."""
        components = [] if self.binary else [c for c in self.components if c.recognised]
        return replace(self, components=tuple(components))

    @property
    def sets(self) -> dict[str, list[str]]:
        """By the sets of clusters, the variables whose labels are of them.

        Labels inside others mean nothing by themselves, unless they have parameters of their own.
        """
        found: dict[str, list[str]] = {}
        apart = {title for evidence in self.evidence for title in evidence.of_parts.values()}
        for clustering in self.all_clusterings:
            first = clustering.assignments[0].parts
            for own in clustering.assignments:
                if not own.parts:
                    found.setdefault(clustering.title, []).append(own.name)
                for part, other in zip_longest(own.parts, first[: len(own.parts)]):
                    # Where labels number the same, so do their parts.
                    same = other and not part.weights and other.n_labels == part.n_labels
                    title = other.title if same else part.title
                    if title in apart or not part.nested:
                        found.setdefault(title, []).append(part.name)
        return found

    @property
    def of_the_same_clusters(self) -> set[str]:
        """Assignments of several clusterings that have parameters of clusters in common."""
        owners: dict[tuple[str, int], list[Clustering]] = {}
        for component in self.components:
            for evidence in component.evidence:
                for name, axes in evidence.of_clusters.items():
                    for axis, number in axes.items():
                        owners.setdefault((name, axis), []).append(component.clusterings[number])
        several = [own for own in owners.values() if len({c.title for c in own}) > 1]
        return {
            assignment.name
            for own in several
            if len({c.truncation for c in own}) == 1
            for c in own
            for assignment in c.assignments
        }

    def clustering_of(self, evidence: Evidence) -> Clustering:
        """Return the first clustering that evidence of a component is about."""
        for component in self.components:
            if any(own is evidence for own in component.evidence):
                return component.clusterings[evidence.clusterings[0]]
        raise ValueError("expected evidence of the structure; found other evidence")

    def of(self, record: type[E]) -> list[E]:
        """Return the evidence of one kind, of all components."""
        return [evidence for c in self.components for evidence in c.of(record)]

    def explain(self) -> str:
        """Say why nothing, or not everything, is served."""
        if not self.refusals:
            return (
                "it has no assignment (a vector of labels, pm.Categorical or pm.Bernoulli; "
                "pm.Mixture has none)"
            )
        return _grouped(self.refusals)

    def remarks(self) -> str:
        """Say why data are served by another kind than looks like theirs."""
        return _grouped(self.notes)


def _grouped(reasons: dict[str, str]) -> str:
    """List reasons, each with the names that it is given for."""
    grouped: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        grouped.setdefault(reason, []).append(name)
    return "; ".join(f"{_some(names)}: {why}" for why, names in grouped.items())


def _some(names: Sequence[str]) -> str:
    """List names, of many the first few."""
    left = len(names) - _MOST_NAMED
    return ", ".join(names if left < 2 else [*names[:_MOST_NAMED], f"{left} more"])
