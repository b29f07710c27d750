r"""Assignments that data depend on together: a model that is read in its place.

What is observed of an object may depend on several labels that it has: those of a cluster and of a
part of it, or of clusterings that cross. None of them can then be drawn without the others. The
same joint density is read as that of one assignment to all combinations of labels,

.. math:: l_n = (s_n, t_n), \quad p(l_n) = \frac{1}{S T}

and of a potential for every object and assignment, such as :math:`\log p_{n s_n} + \log S`, which
is evidence about the combination like any other.
"""

from collections.abc import Collection
from dataclasses import replace
from math import log, prod

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import StickBreakingWeightsRV
from pymc.model.core import Model
from pytensor.tensor.random.basic import CategoricalRV, DirichletRV

from pm_match.reading.ancestry import RV, Ancestry, connected, parameters
from pm_match.reading.context import Context
from pm_match.reading.known_labels import Known
from pm_match.reading.links import read_pairs
from pm_match.reading.own_weights import WEIGHTS_OF
from pm_match.reading.parts import Joint, LabelPart, Structure
from pm_match.reading.with_assignments import with_assignments

# Combinations of labels that an object may have.
_MOST = 256
_SHARED = "its weights are those of labels that data depend on together with others"


def together(
    context: Context, refused: Collection[str], known: Known
) -> tuple[Joint, dict[str, str]]:
    """Find assignments, of those `refused`, of the same objects that data depend on together.

    And all that are over the same weights as one of these.

    `known`: the assignments that have observed labels. Return `joint`; `why` by name, why others
    that data depend on together are none of these.
    """
    if not refused:
        return {}, {}
    model = context.model
    every = [
        rv
        for rv in model.free_RVs
        if isinstance(rv.owner.op, CategoricalRV)
        and len(context.shapes[rv.name]) == 1
        and not context.is_missing(rv)
    ]
    links = {rv: pairs[1] for rv in model.potentials if (pairs := read_pairs(rv)) is not None}
    linked = {rv for assignments in links.values() for rv in assignments}
    data = {rv: {rv, *context.ancestry.children(rv)} - {*links} for rv in every}
    groups = [
        members
        for _, members in connected({rv: data[rv] for rv in every if rv.name in refused})
        if len(members) > 1 and len({context.shapes[rv.name] for rv in members}) == 1
    ]
    p = context.at([parameters(rv)[0] for rv in every])(context.start)
    sizes = {rv: own.shape[-1] for rv, own in zip(every, p, strict=True)}
    parents = context.ancestry.parents
    joint: list[list[RV]] = []
    why: dict[str, str] = {}
    for members in groups:
        n = prod(sizes[rv] for rv in members)
        held = [rv.name for rv in members if rv.name in known or rv in linked]
        short = [own.name for rv in members for own in parents[rv] if own.dtype == "float32"]
        if held:
            reason = f"{_list(held)}: expected neither links nor observed labels there"
        elif n > _MOST:
            reason = f"expected at most {_MOST} combinations of labels; found {n:,}"
        elif short:
            reason = f"{_list(short[:1])} is float32; expected float64 (PyTensor's floatX)"
        else:
            joint.append(members)
            continue
        names = [rv.name for rv in members]
        why |= dict.fromkeys(names, f"data depend on {_list(names)} together, {reason}")
    weights = {rv: _weights(context, rv) for rv in every}
    taken = {rv for members in joint for rv in members}
    shared = {weights[rv] for rv in taken if weights[rv]}
    free = [rv for rv in every if rv not in taken | linked and rv.name not in known]
    joint += [[rv] for rv in free if weights[rv] in shared]
    found: Joint = {}
    for members in joint:
        name = ", ".join(rv.name for rv in members)
        while name in model.named_vars and len(members) > 1:
            name = f"({name})"
        found[name] = tuple(
            LabelPart(rv.name, sizes[rv], weights[rv], not parents[rv].isdisjoint(members))
            for rv in members
        )
    return found, why


def _list(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))


def _weights(context: Context, rv: RV) -> str:
    """Name the vector of random weights that an assignment is over; empty if it is none."""
    parents = context.ancestry.parents[rv]
    if len(parents) != 1:
        return ""
    (own,) = parents
    if not isinstance(own.owner.op, StickBreakingWeightsRV | DirichletRV):
        return ""
    if own not in context.model.free_RVs or len(context.shapes[own.name]) != 1:
        return ""
    point = context.near(np.random.default_rng(20130205), 0.5)
    p, weights = context.at([parameters(rv)[0], own])(point)
    same = p.shape[-1:] == weights.shape and np.allclose(p, weights, rtol=1e-6, atol=1e-12)
    return own.name if same else ""


def with_joint_labels(context: Context, joint: Joint) -> Model:
    """Return a model with the same joint density, in which some assignments are one."""
    model = context.model
    whole, places, terms = {}, {}, {}
    for name, parts in joint.items():
        sizes = [part.n_labels for part in parts]
        n, shape = prod(sizes), context.shapes[parts[0].name]
        labels = whole[name] = pm.Categorical.dist(p=np.full(n, 1.0 / n), shape=shape)
        labels.name = name
        for part, own in zip(parts, np.unravel_index(np.arange(n), sizes), strict=True):
            rv = model[part.name]
            # Looked up: PyTensor has no vectorised division of whole numbers.
            places[part.name] = pt.constant(own.astype(rv.dtype))[labels]
            terms[f"{WEIGHTS_OF}{part.name!r}"] = pm.logp(rv, rv) + log(part.n_labels)
    return with_assignments(model, whole, terms, places)


def entangled(model: Model, structure: Structure, joint: Joint) -> set[str]:
    """Find joint assignments that something else than their own component depends on.

    Its steps would be compiled for the joint labels, which are no variable of the declared model.
    `model`: the one that was read.
    """
    ancestry = Ancestry(model)
    found = set()
    for component in structure.components:
        inside = [own.name for c in component.clusterings for own in c.assignments]
        others = {own.name for c in structure.clusterings for own in c.assignments} - {*inside}
        seen = {rv for name in others for rv in ancestry.children(model[name])}
        seen |= {model[name] for part in structure.parts for name in part.names}
        for name in joint.keys() & {*inside}:
            below: set[RV] = set()
            left = [model[name]]
            while left:
                new = {child for rv in left for child in ancestry.children(rv)} - below
                below, left = below | new, [*new]
            if below & seen:
                found.add(name)
    return found


def as_declared(structure: Structure, joint: Joint, before: dict[str, str]) -> Structure:
    """Give the reasons of what was read of such a model for the variables of the declared one.

    `before`: why they were refused by themselves.
    """
    held = {name: [part.name for part in parts] for name, parts in joint.items()}
    refusals = {
        own: why for name, why in structure.refusals.items() for own in held.get(name, [name])
    }
    notes = {name: why for name, why in structure.notes.items() if name not in joint}
    for name in joint.keys() - structure.refusals.keys():
        several = len(held[name]) > 1
        why = f"data depend on {_list(held[name])} together" if several else _SHARED
        first = before.get(held[name][0])
        notes |= dict.fromkeys(held[name], f"{why} ({first})" if first else why)
    return replace(structure, refusals=refusals, notes=notes)
