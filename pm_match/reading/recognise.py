"""Recognises a declared model's components: candidates by ancestry, their meaning by numbers."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pymc.model.core import Model
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.features.recognise import feature_flags, features_candidate, verified_features
from pm_match.networks import BlockNetworkParts, read_block_network
from pm_match.networks.recognise import (
    check_relation,
    parameters_of,
    relation_groups,
    relevance_of,
    verified_relation,
)
from pm_match.normal.recognise import normals_candidates, verified_normals
from pm_match.reading.ancestry import RV, Refusal, names
from pm_match.reading.clusterings import clustering_candidate, verified_clustering
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck
from pm_match.reading.parts import Component, Part, Structure
from pm_match.views.factors.recognise import read_factor_models
from pm_match.views.hierarchy.recognise import hierarchies
from pm_match.views.hinge.labelled_latents import labelled_latents
from pm_match.views.hinge.recognise import hinge_models

# Assignments that share their weights: what these depend on, and the assignments.
Group = tuple[frozenset, list[RV]]

# Readers of what is not a component: the parts that they find, and by variable what they refuse.
_READERS: tuple[Callable[[Context], tuple[list[Part], dict[str, str]]], ...] = (
    hinge_models,
    hierarchies,
    read_factor_models,
)


class Reader:
    """One reading of one model."""

    def __init__(self, model: Model):
        self.model = model
        self.context = Context.of(model)
        found = {rv: read_block_network(rv) for rv in model.observed_RVs}
        self.claimed: set[str] = set()
        self.networks = {rv: parts for rv, parts in found.items() if parts is not None}

    def read(self) -> Structure:
        """Try to recognise every part."""
        parts: list[Part] = []
        components: list[Component] = []
        refusals: dict[str, str] = {}
        for reader in _READERS:
            found, refused = reader(self.context)
            parts += found
            refusals |= refused
        # What hinges say of the latents of factor models takes both.
        latents, refused = labelled_latents(self.context, parts)
        parts += latents
        refusals |= refused
        self.claimed = {name for part in parts for name in part.names} | set(refusals)
        for groups, networks in self._components(self._groups()):
            try:
                components.append(self._component(groups, networks))
            except Refusal as refusal:
                refusals |= {rv.name: str(refusal) for _, group in groups for rv in group}
        return Structure(tuple(components), refusals, tuple(parts))

    # -- what belongs together --------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        """Group the assignments by their weights, or if those are constant by what they name."""
        parents = self.context.ancestry.parents
        known: dict[RV, set] = {}
        groups: dict[frozenset, list[RV]] = {}
        for rv in self.model.free_RVs:
            if not isinstance(rv.owner.op, CategoricalRV) or rv.name in self.claimed:
                continue
            if parents[rv]:
                groups.setdefault(frozenset(parents[rv]), []).append(rv)
            else:
                # Constant weights say nothing; what the labels number does: the same axis of the
                # same density, or the same latent vectors.
                known[rv] = self._numbered(rv)
        found: list[Group] = [*groups.items()]
        for _, members in _connected(known):
            if known[members[0]]:
                found.append((frozenset(), members))
        return found

    def _numbered(self, assignment: RV) -> set:
        """Return what an assignment's labels number: axes of densities, other parents of data."""
        found: set = set()
        for child in self.context.ancestry.children(assignment):
            if child in self.networks:
                parts = self.networks[child]
                found |= {
                    (parts.density, 0 if parts.one_mode else axis)
                    for axis, rv in enumerate(parts.axes)
                    if rv is assignment
                }
            elif child in self.model.basic_RVs:
                shared = self.context.ancestry.parents[child] - {assignment}
                found |= {
                    (rv, None) for rv in shared if len(self.context.ancestry.children(rv)) > 1
                }
                found |= {(child, None)}
        return found

    def _components(
        self, groups: list[Group]
    ) -> list[tuple[list[Group], dict[RV, BlockNetworkParts]]]:
        """Group what networks connect."""
        touched = {
            number: {
                ("density", p)
                for parts in self.networks.values()
                if any(rv in members for rv in parts.axes)
                for p in [*parts.density, *parts.noise]
            }
            for number, (_, members) in enumerate(groups)
        }
        found = []
        for keys, numbers in _connected(touched):
            parameters = {p for _, p in keys}
            networks = {
                rv: parts
                for rv, parts in self.networks.items()
                if parameters & {*parts.density, *parts.noise}
            }
            found.append(([groups[number] for number in numbers], networks))
        return found

    # -- one component ----------------------------------------------------------------------------

    def _component(
        self, groups: list[Group], networks: Mapping[RV, BlockNetworkParts]
    ) -> Component:
        context = self.context
        assignments = [rv for _, members in groups for rv in members]
        for network, parts in networks.items():
            strangers = [rv for rv in parts.axes if rv not in assignments]
            if strangers:
                raise Refusal(
                    f"{network.name!r} has {names(strangers)} on an axis; expected free "
                    "pm.Categorical assignments"
                )
        flags = feature_flags(context, assignments, list(networks)) | relevance_of(networks)
        candidates = [
            clustering_candidate(
                context, weights, members, {rv: flags[rv] for rv in members if rv in flags}
            )
            for weights, members in groups
        ]
        normals = [normals_candidates(context, c, list(networks)) for c in candidates]
        # What else depends on the assignments is feature vectors, or refused.
        known = [*networks, *(rv for own in normals for one in own for rv in one.values)]
        features = [features_candidate(context, c, known) for c in candidates]
        relations = relation_groups(networks)
        for relation in relations:
            check_relation(context, relation)
        self._only_expected_children(candidates, features, known)
        check = self._density_check(candidates, features, normals, relations)
        verified = tuple(verified_clustering(context, c, check) for c in candidates)
        component = Component(
            clusterings=verified,
            features=tuple(
                verified_features(context, c, f, check) if f else None
                for c, f in zip(candidates, features, strict=True)
            ),
            normals=tuple(
                tuple(verified_normals(context, one, check) for one in own) for own in normals
            ),
            relations=tuple(verified_relation(context, candidates, r, check) for r in relations),
            hyperparameters=(),
        )
        return replace(component, hyperparameters=self._hyperparameters(component))

    def _only_expected_children(self, candidates, features, known) -> None:
        for candidate, feature in zip(candidates, features, strict=True):
            observed = feature.observed if feature else []
            for rv in candidate.assignments:
                expected = [*observed, *candidate.constraints, *known]
                self.context.ancestry.only_children(rv, expected)
            for flag in candidate.flags.values():
                self.context.ancestry.only_children(flag, [*observed, *known])

    def _density_check(self, candidates, features, normals, relations) -> DensityCheck:
        labels = {rv: n for candidate in candidates for rv, n in candidate.labels.items()}
        variables: list[RV] = []
        for feature in features:
            if feature is not None:
                variables += feature.checked
        for own in normals:
            variables += [rv for one in own for rv in one.checked]
        for relation in relations:
            if next(iter(relation.values())).family == "normal":
                # Means of blocks, whose prior depends on the precision.
                variables += [rv for rv in parameters_of(relation) if _is_mean(rv, relation)]
        return DensityCheck(self.context, variables, labels)

    def _hyperparameters(self, component: Component) -> tuple[str, ...]:
        """Free numbers that only the priors of what is integrated out depend on."""
        priors = {c.weights for c in component.clusterings}
        priors |= {name for c in component.clusterings for name in c.probabilities if name}
        priors |= {name for r in component.relations for name in r.names}
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


def _is_mean(rv, relation) -> bool:
    return any(rv in (*p.density[:1], *p.noise[:1]) for p in relation.values())


def _connected(keys: Mapping) -> list[tuple[set, list]]:
    """Group the items of a mapping whose sets of keys overlap; with the union of the keys."""
    found: list[tuple[set, list]] = []
    for item, own in keys.items():
        joined, members = set(own), [item]
        rest = []
        for others, items in found:
            if joined & others:
                joined |= others
                members = [*items, *members]
            else:
                rest.append((others, items))
        found = [*rest, (joined, members)]
    return found
