"""Recognises a declared model's components: candidates by ancestry, their meaning by numbers."""

from collections.abc import Sequence
from dataclasses import replace

from pymc.model.core import Model
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.reading.ancestry import RV, Refusal, connected, kind, names
from pm_match.reading.clusterings import (
    ClusteringCandidate,
    clustering_candidate,
    verified_clustering,
)
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck
from pm_match.reading.kinds import Candidate, Kind, kinds
from pm_match.reading.parts import Component, Part, Structure

# Assignments that share their weights: what these depend on, and the assignments.
Group = tuple[frozenset, list[RV]]


class Reader:
    """One reading of one model."""

    def __init__(self, model: Model):
        self.model = model
        self.context = Context.of(model)
        self.kinds = kinds()
        # The assignments that parts draw, or refuse, are none of a component's.
        self.taken: set[str] = set()

    def read(self) -> Structure:
        """Try to recognise every part."""
        parts: list[Part] = []
        components: list[Component] = []
        refusals: dict[str, str] = {}
        for own in self.kinds:
            found, refused = own.parts(self.context)
            parts += found
            refusals |= refused
        self.taken = {name for part in parts for name in part.names} | set(refusals)
        try:
            found_groups = self._components(self._groups())
        except Refusal as refusal:
            found_groups = []
            refusals |= {rv.name: str(refusal) for rv in self._free_assignments()}
        for groups in found_groups:
            try:
                components.append(self._component(groups))
            except Refusal as refusal:
                refusals |= {rv.name: str(refusal) for _, group in groups for rv in group}
        return Structure(tuple(components), refusals, tuple(parts))

    # -- what belongs together --------------------------------------------------------------------

    def _seen(self, assignment: RV) -> list[RV]:
        """Return the variables that depend on an assignment, constraints apart."""
        children = self.context.ancestry.children(assignment)
        return [rv for rv in children if rv not in self.model.potentials]

    def _kind_of(self, rv: RV) -> Kind | None:
        """Return the kind that claims a variable over assignments."""
        return next((own for own in self.kinds if own.claims(self.context, rv)), None)

    def _free_assignments(self) -> list[RV]:
        """Return the assignments that parts leave to components."""
        return [
            rv
            for rv in self.model.free_RVs
            if isinstance(rv.owner.op, CategoricalRV) and rv.name not in self.taken
        ]

    def _groups(self) -> list[Group]:
        """Group the assignments by their weights, or if those are constant by what they name."""
        parents = self.context.ancestry.parents
        known: dict[RV, set] = {}
        groups: dict[frozenset, list[RV]] = {}
        for rv in self._free_assignments():
            if parents[rv]:
                groups.setdefault(frozenset(parents[rv]), []).append(rv)
            else:
                # Constant weights say nothing; what the labels number does: the same axis of the
                # same density, or the same latent vectors.
                known[rv] = self._numbered(rv)
        found: list[Group] = [*groups.items()]
        for _, members in connected(known):
            if known[members[0]]:
                found.append((frozenset(), members))
        return found

    def _numbered(self, assignment: RV) -> set:
        """Return what an assignment's labels number: as kinds say, or other parents of data."""
        found: set = set()
        ancestry = self.context.ancestry
        for child in self._seen(assignment):
            own = self._kind_of(child)
            axes = None if own is None else own.axes(self.context, child, assignment)
            if axes is None:
                shared = ancestry.parents[child] - {assignment}
                axes = {(rv, None) for rv in shared if len(ancestry.children(rv)) > 1}
                axes |= {(child, None)}
            found |= axes
        return found

    def _components(self, groups: list[Group]) -> list[list[Group]]:
        """Group what evidence connects."""
        touched = {}
        for number, (_, members) in enumerate(groups):
            # A group that nothing connects is alone.
            ties: set = {number}
            for rv in {rv: None for assignment in members for rv in self._seen(assignment)}:
                own = self._kind_of(rv)
                ties |= {rv} if own is None else {rv, *own.ties(self.context, rv)}
            touched[number] = ties
        return [[groups[number] for number in numbers] for _, numbers in connected(touched)]

    # -- one component ----------------------------------------------------------------------------

    def _component(self, groups: list[Group]) -> Component:
        context = self.context
        assignments = [rv for _, members in groups for rv in members]
        claimed = self._claimed(assignments)
        flags: dict[RV, RV] = {}
        for own, values in claimed.items():
            flags = own.relevance(context, values) | flags
        clusterings = [
            clustering_candidate(
                context, weights, members, {rv: flags[rv] for rv in members if rv in flags}
            )
            for weights, members in groups
        ]
        candidates = [
            candidate
            for own, values in claimed.items()
            for candidate in own.candidates(context, clusterings, values)
        ]
        values = [rv for own in claimed.values() for rv in own]
        self._all_covered(candidates, values)
        self._flags_enter(clusterings)
        self._only_expected_children(clusterings, values)
        check = self._density_check(clusterings, candidates)
        component = Component(
            clusterings=tuple(verified_clustering(context, c, check) for c in clusterings),
            evidence=tuple(c.verified(context, clusterings, check) for c in candidates),
            hyperparameters=(),
        )
        return replace(component, hyperparameters=self._hyperparameters(component))

    def _claimed(self, assignments: list[RV]) -> dict[Kind, list[RV]]:
        """Sort the variables over some assignments by the kinds that claim them."""
        found: dict[Kind, list[RV]] = {}
        for assignment in assignments:
            children = self._seen(assignment)
            if not children:
                raise Refusal(f"no observed variable depends on {assignment.name!r}")
            for rv in children:
                own = self._kind_of(rv)
                if own is None:
                    known = [name for k in reversed(self.kinds) for name in k.expects]
                    raise Refusal(
                        f"{rv.name!r} is a {'free ' if rv in self.model.free_RVs else ''}"
                        f"{kind(rv)}; expected an observed {' or '.join(known) or 'variable'}"
                    )
                if rv not in found.setdefault(own, []):
                    found[own].append(rv)
        # In the order of registration, whatever the order of the variables.
        return {own: found[own] for own in reversed(self.kinds) if own in found}

    def _all_covered(self, candidates: Sequence[Candidate], values: Sequence[RV]) -> None:
        """Refuse what a kind has claimed and then made no evidence of."""
        covered = [rv for candidate in candidates for rv in candidate.covered]
        lost = [rv for rv in values if rv not in covered]
        if lost:
            raise Refusal(f"{names(lost)}: expected evidence of a kind that claims it; found none")

    def _flags_enter(self, clusterings: list[ClusteringCandidate]) -> None:
        """Refuse data of objects that may be irrelevant, and which that does not change."""
        for clustering in clusterings:
            for assignment, flag in clustering.flags.items():
                for rv in self._seen(assignment):
                    if flag not in self.context.ancestry.parents[rv]:
                        raise Refusal(
                            f"{rv.name!r} depends on {assignment.name!r}, whose relevance "
                            f"{flag.name!r} does not enter it; expected all that is seen of an "
                            "object to depend on whether it is relevant, or nothing"
                        )

    def _only_expected_children(self, clusterings: list[ClusteringCandidate], values) -> None:
        for candidate in clusterings:
            for rv in candidate.assignments:
                self.context.ancestry.only_children(rv, [*values, *candidate.constraints])
            for flag in candidate.flags.values():
                self.context.ancestry.only_children(flag, values)

    def _density_check(
        self, clusterings: list[ClusteringCandidate], candidates: Sequence[Candidate]
    ) -> DensityCheck:
        labels = {rv: n for clustering in clusterings for rv, n in clustering.labels.items()}
        variables = [rv for candidate in candidates for rv in candidate.checked]
        return DensityCheck(self.context, list(dict.fromkeys(variables)), labels)

    def _hyperparameters(self, component: Component) -> tuple[str, ...]:
        """Free numbers that only the priors of what is integrated out depend on."""
        priors = {c.weights for c in component.clusterings}
        priors |= {name for c in component.clusterings for name in c.probabilities if name}
        priors |= {name for evidence in component.evidence for name in evidence.hyperpriors}
        collapsed = set(component.collapsed)
        found = []
        for rv in self.model.free_RVs:
            children = self.context.ancestry.children(rv)
            if (
                rv.name not in collapsed
                and rv.ndim == 0
                and rv.dtype.startswith("float")
                and children
                and all(child.name in priors for child in children)
                and not any(p.name in collapsed for p in self.context.ancestry.parents[rv])
            ):
                found.append(rv.name)
        return tuple(found)
