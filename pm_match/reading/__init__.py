"""Reads a declared model: which variables form a partition, and which may be integrated out.

Candidates are found by ancestry (who depends on whom); that they mean what they seem to mean is
then checked *numerically*, on the declared log densities at random points, so that every way of
writing the same model is accepted and no other model is. What is not recognised is refused with a
reason that names the variable.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pymc.model.core import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, graph_inputs

from pm_match.checks import check_model
from pm_match.numerics.garbage import uncollected
from pm_match.reading.joint_labels import as_declared, entangled, together
from pm_match.reading.kept import Kept
from pm_match.reading.kinds import on_registration
from pm_match.reading.known_labels import with_free_labels
from pm_match.reading.own_weights import (
    WEIGHTS_OF,
    no_labels,
    vectors,
    with_equal_weights,
    without_sum_of_one,
)
from pm_match.reading.parts import Joint, Structure, UnservedModelError
from pm_match.reading.probe import without_c
from pm_match.reading.recognise import Reader

__all__ = ["Structure", "UnservedModelError", "as_read", "read"]


class _Reading(NamedTuple):
    structure: Structure
    model: Model | None
    complete: bool  # whether labels of zeros and ones have been looked for


# What is said of assignments that have weights of their own, and parameters in common.
_SAME_CLUSTERS = "its weights are not those of other objects of the same clusters"
_READ: Kept[_Reading] = Kept()
on_registration(_READ.clear)


@without_c()
def read(model: Model, binary: bool = True) -> Structure:
    """Read a model. The result is kept until the model gets another variable or other data.

    `binary`: whether zeros and ones are taken for labels if nothing else is served. Raise
    `TypeError` if `model` is none.
    """
    check_model(model)
    known = _READ.of(model)
    if known is None or (binary and not known.complete):
        with uncollected():
            structure, seen, complete = _read(model, binary)
        # Of the model itself, nothing is kept that would keep it.
        known = _READ.keep(model, _Reading(structure, None if seen is model else seen, complete))
    return known.structure


def as_read(model: Model) -> Model:
    """Return the model that was read in the place of the one given, or that itself."""
    read(model)
    known = _READ.of(model)
    assert known is not None
    return known.model or model


def _read(model: Model, binary: bool) -> tuple[Structure, Model, bool]:
    """Read a model; return the model too that has been read in its place, or itself.

    And whether all has been tried that may be.
    """
    unread = _masked(model) | _with_named_dims(model)
    if unread := unread or without_sum_of_one(model):
        return Structure((), unread), model, True
    first, structure = _with_known_labels(model)
    if not binary and structure.empty and not structure.refusals:
        return structure, first.model, False
    found, seen = _with_own_weights(first, structure)
    if found.empty and not found.refusals:
        found = replace(found, refusals=no_labels(first.context))
    # Evidence about combinations of labels is of no kind that integrates anything out.
    tables = any(kind.last for kind in first.kinds)
    refused = found.refusals.keys() if tables else set()
    joint, why = together(first.context, refused, first.known)
    # What readers of parts say of assignments that are none of theirs is not all there is to say.
    parts = {name: reason for name, reason in found.refusals.items() if name in first.taken}
    while joint:
        members = {name: [part.name for part in own] for name, own in joint.items()}
        reader = Reader(with_equal_weights(first.model, members), first.known, joint)
        other, other_seen = _with_own_weights(reader, reader.read())
        failed = {name: reason for name, reason in other.refusals.items() if name in joint}
        kept = joint.keys() - failed.keys() - entangled(other_seen, other, joint)
        other = as_declared(other, joint, parts)
        if len(kept) == len(joint):
            if other.components and len(other.refusals) < len(found.refusals):
                found, seen = other, other_seen
            break
        own = {part.name: failed[name] for name in failed for part in joint[name]}
        why |= {name: reason for name, reason in own.items() if name in parts}
        joint = _without(joint, kept)
    refusals = {
        name: f"{reason}; {why[name]}"
        if name in why and name not in parts
        else why.get(name, reason)
        for name, reason in found.refusals.items()
    }
    return replace(found, refusals=refusals), seen, True


def _masked(model: Model) -> dict[str, str]:
    """Refuse data with missing values: what is beneath the mask would be taken for observed."""
    why = (
        "expected no missing values in pm.Data; found some, which PyMC takes for observed (what is "
        "beneath the mask): declare a model with observed= that has them"
    )
    masked = [data for data in model.data_vars if np.ma.is_masked(data.get_value(borrow=True))]
    if not masked:
        return {}
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    used = set(graph_inputs([*model.basic_RVs, *model.potentials, *values]))
    return {data.name: why for data in masked if data in used}


def _with_named_dims(model: Model) -> dict[str, str]:
    """Refuse variables of `pymc.dims`, whose graphs cannot be evaluated as they are."""
    why = "expected variables of pymc, with dims=; found one of pymc.dims, or made of such"
    variables = [*model.basic_RVs, *model.potentials, *model.deterministics]
    if not any(map(_has_named_dims, ancestors(variables))):
        return {}
    return {v.name: why for v in variables if any(map(_has_named_dims, ancestors([v])))}


def _has_named_dims(variable: Variable) -> bool:
    # Their class is not imported where nobody has used it.
    return hasattr(variable.type, "dims")


def _without(joint: Joint, kept: Collection[str]) -> Joint:
    """Leave out some joint labels, and those that only share their weights."""
    several = {name: parts for name, parts in joint.items() if name in kept and len(parts) > 1}
    shared = {part.weights for parts in several.values() for part in parts}
    alone = {
        name: parts
        for name, parts in joint.items()
        if name in kept and len(parts) == 1 and parts[0].weights in shared
    }
    return several | alone


def _with_own_weights(first: Reader, structure: Structure) -> tuple[Structure, Model]:
    """Read a model anew whose weights, of some assignments, cannot be integrated out.

    Return what is read of it, or else of the `first` model, `structure`; and the model.
    """
    nothing = structure.empty and not structure.refusals
    same = structure.of_the_same_clusters
    best, model, refused = structure, first.model, dict[str, str]()

    def some(wanted: Collection[str]) -> list[str]:
        """List those that are no potentials already, as those of joint labels are."""
        return vectors(first.model, {*wanted} - first.joint.keys())

    names = vectors(first.model) if nothing else some(first.own_weights | same)
    while names:
        alone = {name: [name] for name in names}
        reader = Reader(with_equal_weights(first.model, alone), first.known, first.joint)
        found = reader.read()
        if found.components and ((nothing and best is structure) or _left(found) < _left(best)):
            same |= found.of_the_same_clusters
            notes = dict.fromkeys(same & {*names}, _SAME_CLUSTERS) | {
                name: why
                for name, why in structure.refusals.items()
                if name in names and name not in found.refusals
            }
            best, model = replace(found, notes=found.notes | notes, binary=nothing), reader.model
            more = some(same - {*names})
        elif best is structure:
            # Of what is read together, one is refused first.
            more = some(reader.own_weights - {*names})
            # With whatever weights, there is something else, unless it is about the weights again.
            refused = {
                name: why
                for name, why in found.refusals.items()
                if name in {*names} - same and (nothing or WEIGHTS_OF not in why)
            }
        else:
            break
        if not more:
            break
        names = [*names, *more]
    if best is structure:
        best = replace(structure, refusals=structure.refusals | refused)
    return best, model


def _left(structure: Structure) -> tuple[int, bool]:
    """Say how much could be better: what is refused, and clusters that are told apart."""
    return len(structure.refusals), bool(structure.of_the_same_clusters)


def _with_known_labels(model: Model) -> tuple[Reader, Structure]:
    """Read observed labels as labels of clusters; where that fails, as data, if that does not."""
    reader = Reader(*with_free_labels(model))
    structure = reader.read()
    if structure.refusals and reader.known:
        other = Reader(*with_free_labels(model, complete=False))
        found = other.read()
        if not found.refusals and not found.empty:
            return other, found
    return reader, structure
