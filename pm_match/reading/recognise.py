"""Recognises a declared model's components: candidates by ancestry, their meaning by numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from pymc.model.core import Model
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.reading.ancestry import (
    RV,
    Refusal,
    WeightsRefusal,
    a_kind,
    connected,
    names,
)
from pm_match.reading.clusterings import (
    ClusteringCandidate,
    clustering_candidate,
    verified_clustering,
)
from pm_match.reading.coarsen import coarsened
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, random_point
from pm_match.reading.kinds import Candidate, Kind, kinds
from pm_match.reading.known_labels import Known
from pm_match.reading.links import read_pairs
from pm_match.reading.own_weights import WEIGHTS_OF
from pm_match.reading.parts import Component, Joint, Part, Structure
from pm_match.reading.priors import Conditions
from pm_match.reading.probe import random_density

_NO_KNOWN = "its labels are observed, some or all; expected free ones in a model of this kind"
# Of random points at which priors are to be defined, one of them at least.
_WIDTHS = (0.05, 0.7, 3.5)
# How many numbers a hyperparameter may be.
_MOST_NUMBERS = 32

# Assignments that share their weights: what these depend on, and the assignments.
Group = tuple[frozenset, list[RV]]


class Reader:
    """One reading of one model.

    `known`, dict of str to (N,): labels of its assignments that are observed (see `known_labels`);
    `joint`: the parts of those of its assignments that have joint labels (see `joint_labels`).
    """

    def __init__(self, model: Model, known: Known, joint: Joint | None = None):
        self.model = model
        self.known = known
        self.joint = joint or {}
        self.context = Context.of(model)
        self.kinds = kinds()
        # The assignments that parts draw, or refuse, are none of a component's.
        self.taken: set[str] = set()
        self.links = {rv for rv in model.potentials if read_pairs(rv) is not None}
        # Assignments that are refused since their weights cannot be integrated out.
        self.own_weights: set[str] = set()
        # Of the component that is looked at: what kinds have refused, the one that is asked, what
        # they claim, and the clusterings.
        self.passed: set[tuple[Kind, RV]] = set()
        self.asked: Kind | None = None
        self.claimed: dict[Kind, list[RV]] = {}
        self.clusterings: list[ClusteringCandidate] = []

    def read(self) -> Structure:
        """Try to recognise every part."""
        parts: list[Part] = []
        components: list[Component] = []
        refusals: dict[str, str] = {}
        for own in self.kinds:
            found, refused = own.parts(self.context)
            for part in found:
                if why := self._unsteady_part(part):
                    refused |= dict.fromkeys(part.names, why)
                    continue
                named = [name for name in part.names if name in self.known]
                refusals |= dict.fromkeys(named, _NO_KNOWN)
                parts += [] if named else [part]
            refusals |= refused
        self.taken = {name for part in parts for name in part.names} | set(refusals)
        try:
            self._must_be_defined()
            found_groups = self._components(self._groups())
        except Refusal as refusal:
            found_groups = []
            refusals |= {rv.name: str(refusal) for rv in self._free_assignments()}
        notes: dict[str, str] = {}
        for groups in found_groups:
            own_names = [rv.name for _, group in groups for rv in group]
            try:
                component, why = self._served(groups)
            except Refusal as refusal:
                refusals |= dict.fromkeys(own_names, str(refusal))
            else:
                components.append(component)
                notes |= dict.fromkeys(own_names, why) if why else {}
        return Structure(tuple(components), refusals, tuple(parts), notes)

    def _unsteady(self, rv: RV) -> str:
        """Say that a log density is random, if it is."""
        if not random_density(self.model, rv):
            return ""
        return (
            f"the log density of {rv.name!r} is random, as with pm.Simulator or pm.Minibatch; "
            "expected one that is the same whenever it is evaluated"
        )

    def _unsteady_part(self, part: Part) -> str:
        """Say that the log density of something that a part's variables enter is random."""
        own = [self.model[name] for name in part.names]
        found = map(self._unsteady, self.context.ancestry.touched(own))
        return next((why for why in found if why), "")

    def _must_be_defined(self) -> None:
        """Refuse priors that are defined nowhere: formulas have finite results for them, too."""
        if not self._free_assignments():
            return
        rng = np.random.default_rng(20160401)
        points = [random_point(rng, self.context, width) for width in _WIDTHS]
        points.append(self.context.start)
        # What is positive at one of them is negative at another.
        points += [
            {name: -x if x.dtype.kind == "f" else x for name, x in own.items()} for own in points
        ]
        priors = [
            rv
            for rv in self.model.free_RVs
            if rv.dtype.startswith("float") and not self.context.is_missing(rv)
        ]
        unmet = Conditions(self.model, priors).never_met(points)
        if unmet:
            raise Refusal(f"{unmet}, which is nowhere the case")

    def _served(self, groups: list[Group]) -> tuple[Component, str]:
        """Recognise a component; what a kind refuses, kinds that are asked last may take.

        Return `component`; `why`: why kinds that claim what is seen do not serve it, if that is so.
        """
        self.passed = set()
        reasons: list[str] = []
        while True:
            self.asked, self.claimed = None, {}
            try:
                component = self._component(groups)
                return component, "; ".join(dict.fromkeys([*reasons, *self._nearly(component)]))
            except Refusal as refusal:
                if str(refusal) not in reasons:
                    reasons.append(str(refusal))
                left = self._left()
                if not left:
                    raise Refusal("; ".join(reasons)) from refusal
                self.passed |= left

    def _nearly(self, component: Component) -> list[str]:
        """Say what keeps another kind from claiming what kinds that are asked last serve."""
        refused, found = {rv for _, rv in self.passed}, []
        advice = {n: why for own in component.evidence for n, why in own.advice.items()}
        # What draws clusterings together is told of already.
        tied = {rv.name for own, rv in self.passed if own.ties(self.context, rv)}
        for why in dict.fromkeys(advice.values()):
            slower = [repr(n) for n, own in advice.items() if own == why and n not in tied]
            found += [f"{', '.join(slower)}: {why}"] if slower else []
        for own, values in self.claimed.items():
            for rv in values:
                unasked = own.last and rv not in refused and rv.name not in advice
                if unasked and rv not in self.model.potentials:
                    others = (k.why_not(self.context, rv) for k in self.kinds if not k.last)
                    found += [why for why in others if why][:1]
        return found

    def _left(self) -> set[tuple[Kind, RV]]:
        """Find what another kind may take, after a refusal: by the kind that claims it, variables.

        Of a kind that refuses several variables, it is those that it refuses alone, or all.
        """
        asked = self.asked
        if asked is None:
            # No kind's own reason: none of those that could have one is asked again.
            return {(own, rv) for own, rvs in self.claimed.items() for rv in rvs if not own.last}
        if asked.last:
            return set()
        stems: dict[str, list[RV]] = {}
        for rv in self.claimed[asked]:
            # What is missing goes with what is observed, and so does what coarsens it.
            coarse = self.context.once(coarsened, rv)
            name = rv.name if coarse is None else coarse[0].name
            stem = name.removesuffix("_observed").removesuffix("_unobserved")
            stems.setdefault(stem, []).append(rv)
        own = [*stems.values()]
        alone = [rvs for rvs in own if len(own) > 1 and not self._serves(asked, rvs)]
        return {(asked, rv) for rvs in alone or own for rv in rvs}

    def _serves(self, own: Kind, values: list[RV]) -> bool:
        """Whether a kind serves some of the variables that it claims if there are no others."""
        try:
            candidates = own.candidates(self.context, self.clusterings, values)
            check = self._density_check(self.clusterings, candidates)
            for candidate in candidates:
                candidate.verified(self.context, self.clusterings, check)
        except Refusal:
            return False
        return True

    # -- what belongs together --------------------------------------------------------------------

    def _seen(self, assignment: RV) -> list[RV]:
        """Return what depends on an assignment, constraints apart."""
        children = self.context.ancestry.children(assignment)
        return [rv for rv in children if rv not in self.links]

    def _kind_of(self, rv: RV) -> Kind | None:
        """Return the kind that claims a variable over assignments, or a potential."""
        # Whose a variable is that is coarsened, its potential is, too.
        coarse = self.context.once(coarsened, rv)
        whose, potential = coarse[0] if coarse else rv, rv in self.model.potentials
        for own in self.kinds:
            asked = (own, rv) not in self.passed
            asked = asked and (own.last or not potential or (own.potentials and bool(coarse)))
            if asked and own.claims(self.context, whose):
                return own
        return None

    def _free_assignments(self) -> list[RV]:
        """Return the assignments that parts leave to components."""
        return [
            rv
            for rv in self.model.free_RVs
            if isinstance(rv.owner.op, CategoricalRV)
            and rv.name not in self.taken
            and not self.context.is_missing(rv)
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
                # Constant weights say nothing but their number; what the labels number does: the
                # same axis of the same density, or the same latent vectors.
                known[rv] = {(what, self.context.n_labels(rv)) for what in self._numbered(rv)}
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
            if child.name.startswith(WEIGHTS_OF):
                continue
            own = self._kind_of(child)
            axes = None if own is None else own.axes(self.context, child, assignment)
            if not axes:
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
        claimed = self.claimed = self._claimed(assignments)
        flags: dict[RV, RV] = {}
        for own, values in claimed.items():
            with self._asking(own):
                flags = own.relevance(context, values) | flags
        clusterings = []
        for weights, members in groups:
            own_flags = {rv: flags[rv] for rv in members if rv in flags}
            with self._weighing(members):
                clusterings.append(
                    clustering_candidate(
                        context, weights, members, own_flags, self.known, self.joint
                    )
                )
        self.clusterings = clusterings
        candidates: list[tuple[Kind, Candidate]] = []
        for own, values in claimed.items():
            with self._asking(own):
                candidates += [(own, c) for c in own.candidates(context, clusterings, values)]
        values = [rv for own in claimed.values() for rv in own]
        self._all_covered([candidate for _, candidate in candidates], values)
        self._flags_enter(clusterings)
        self._only_expected_children(clusterings, values)
        check = self._density_check(clusterings, [candidate for _, candidate in candidates])
        verified = []
        for clustering in clusterings:
            with self._weighing(clustering.assignments):
                verified.append(verified_clustering(context, clustering, check))
        evidence = []
        for own, candidate in candidates:
            with self._asking(own):
                found = candidate.verified(context, clusterings, check)
                if getattr(found, "kind", None) != own.name:
                    raise TypeError(
                        f"{type(found).__name__}: expected `kind` to be {own.name!r}, as `name` of "
                        f"{type(own).__name__}; found {getattr(found, 'kind', None)!r}"
                    )
                evidence.append(found)
        component = Component(tuple(verified), tuple(evidence), ())
        return replace(component, hyperparameters=self._hyperparameters(component))

    @contextmanager
    def _asking(self, own: Kind) -> Iterator[None]:
        """Keep in mind whose refusal it is if there is one."""
        self.asked = own
        yield
        self.asked = None

    @contextmanager
    def _weighing(self, assignments: list[RV]) -> Iterator[None]:
        """Keep in mind whose weights are refused if they are."""
        try:
            yield
        except WeightsRefusal:
            self.own_weights |= {rv.name for rv in assignments}
            raise

    def _claimed(self, assignments: list[RV]) -> dict[Kind, list[RV]]:
        """Sort the variables over some assignments by the kinds that claim them."""
        found: dict[Kind, list[RV]] = {}
        for assignment in assignments:
            children = self._seen(assignment)
            if not children:
                raise Refusal(f"no observed variable depends on {assignment.name!r}")
            for rv in children:
                if why := self._unsteady(rv):
                    raise Refusal(why)
                own = self._kind_of(rv)
                if own is None:
                    reasons = [k.why_not(self.context, rv) for k in self.kinds]
                    raise Refusal(
                        "; ".join(reason for reason in reasons if reason)
                        or f"{rv.name!r}, {a_kind(rv)}: expected evidence that a kind claims"
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
        """Free variables that only the priors of what is integrated out depend on.

        For each number the whole evidence is computed anew: long vectors are left to PyMC's steps.
        """
        priors = {c.weights for c in component.clusterings}
        priors |= {name for c in component.clusterings for name in c.probabilities if name}
        priors |= {name for evidence in component.evidence for name in evidence.hyperpriors}
        collapsed = set(component.collapsed)
        found = []
        for rv in self.model.free_RVs:
            children = self.context.ancestry.children(rv)
            if (
                rv.name not in collapsed
                and np.prod(self.context.shapes[rv.name], dtype=int) <= _MOST_NUMBERS
                and rv.dtype.startswith("float")
                and children
                and all(child.name in priors for child in children)
                and not any(p.name in collapsed for p in self.context.ancestry.parents[rv])
            ):
                found.append(rv.name)
        return tuple(found)
