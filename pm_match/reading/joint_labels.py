r"""Assignments that data depend on together: a model that is read in its place.

What is observed of an object may depend on several labels that it has: those of a cluster and of a
part of it, or of clusterings that cross. None of them can then be drawn without the others. The
same joint density is read as that of one assignment to all combinations of labels,

.. math:: l_n = (s_n, t_n), \quad p(l_n) = \frac{1}{S T}

and of a potential for every object and assignment, such as :math:`\log p_{n s_n} + \log S`, which
is evidence about the combination like any other (see `own_weights`).
"""

from collections.abc import Collection
from dataclasses import replace
from math import prod

import numpy as np
from pymc.distributions.multivariate import StickBreakingWeightsRV
from pymc.model.core import Model
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, DirichletRV

from pm_match.reading.ancestry import RV, Ancestry, connected, depends, parameters
from pm_match.reading.context import Context
from pm_match.reading.known_labels import Known
from pm_match.reading.links import read_pairs
from pm_match.reading.parts import Joint, LabelPart, Structure

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
        if isinstance(rv.owner.op, CategoricalRV | BernoulliRV)
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
    sizes = {rv: context.n_labels(rv) for rv in every}
    parents = context.ancestry.parents
    joint: list[list[RV]] = []
    why: dict[str, str] = {}
    for members in groups:
        held = [rv.name for rv in members if rv.name in known or rv in linked]
        short = [own.name for rv in members for own in parents[rv] if own.dtype == "float32"]
        reason = _reason(held, prod(sizes[rv] for rv in members), short)
        names = [rv.name for rv in members]
        if reason:
            why |= dict.fromkeys(names, f"data depend on {_list(names)} together, {reason}")
        else:
            joint.append(members)
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


def _reason(held: list[str], n: int, short: list[str]) -> str:
    """Say why labels that are held, or have `n` combinations, are not joined; empty if they are."""
    if held:
        return f"{_list(held)}: expected neither links nor observed labels there"
    if n > _MOST:
        return f"expected at most {_MOST} combinations of labels; found {n:,}"
    return f"{_list(short[:1])} is float32; expected float64 (PyTensor's floatX)" if short else ""


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
        seen = {*ancestry.children(*(model[name] for name in others))}
        seen |= {model[name] for part in structure.parts for name in part.names}
        for own in (model[name] for name in joint.keys() & {*inside}):
            if any(depends(rv, [own]) for rv in seen - {own}):
                found.add(own.name)
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
