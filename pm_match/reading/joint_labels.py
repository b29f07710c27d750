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
from pymc.model.core import Model
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.reading.ancestry import RV, connected, parameters
from pm_match.reading.context import Context
from pm_match.reading.known_labels import WEIGHTS
from pm_match.reading.links import read_pairs
from pm_match.reading.own_weights import WEIGHTS_OF
from pm_match.reading.parts import Joint, LabelPart, Structure
from pm_match.reading.with_assignments import with_assignments

# Combinations of labels that an object may have.
_MOST = 1024


def together(model: Model, among: Collection[str]) -> Joint:
    """Find assignments, `among` some, of the same objects that data depend on together.

    And all that are over the same weights as one of these.
    """
    context = Context.of(model)
    constraints = [pairs for rv in model.potentials if (pairs := read_pairs(rv)) is not None]
    linked = {rv for _, assignments, *_ in constraints for rv in assignments}
    every = [
        rv
        for rv in model.free_RVs
        if isinstance(rv.owner.op, CategoricalRV)
        and len(context.shapes[rv.name]) == 1
        and not context.is_missing(rv)
        and rv not in linked
    ]
    own = [rv for rv in every if rv.name in among]
    parents, children = context.ancestry.parents, context.ancestry.children
    groups = [members for _, members in connected({rv: {rv, *children(rv)} for rv in own})]
    sizes = dict(zip(every, _n_labels(context, every), strict=True))
    joint = [members for members in groups if len(members) > 1 and _fit(context, members, sizes)]
    weights = {rv: frozenset(parents[rv]) - {*every} for rv in every}
    inside = {rv for members in joint for rv in members}
    shared = {weights[rv] for rv in inside if weights[rv]}
    joint += [[rv] for rv in every if rv not in inside and weights[rv] in shared]
    found: Joint = {}
    first: dict[frozenset, str] = {}
    for members in joint:
        name, parts = ", ".join(rv.name for rv in members), []
        for rv in members:
            part = LabelPart(
                rv.name,
                sizes[rv],
                weights=_vector(context, weights[rv]),
                first=first.setdefault(weights[rv] or frozenset([rv]), rv.name),
                inside=not parents[rv].isdisjoint(members),
            )
            parts.append(part)
        found[name] = tuple(parts)
    return found


def _n_labels(context: Context, assignments: list[RV]) -> list[int]:
    found = context.at([parameters(rv)[0] for rv in assignments])(context.start)
    return [p.shape[-1] for p in found]


def _fit(context: Context, members: list[RV], sizes: dict[RV, int]) -> bool:
    """Whether assignments are of as many objects, and their labels not too many combinations."""
    shapes = {context.shapes[rv.name] for rv in members}
    return len(shapes) == 1 and prod(sizes[rv] for rv in members) <= _MOST


def _vector(context: Context, weights: frozenset) -> str:
    """Name the vector of random weights that labels are over; empty if it is anything else."""
    if len(weights) != 1:
        return ""
    (own,) = weights
    vector = isinstance(own.owner.op, WEIGHTS) and len(context.shapes[own.name]) == 1
    return own.name if vector else ""


def with_joint_labels(model: Model, joint: Joint) -> Model:
    """Return a model with the same joint density, in which some assignments are one."""
    context = Context.of(model)
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


def as_declared(structure: Structure, joint: Joint) -> Structure:
    """Give the reasons of what was read of such a model for the variables of the declared one."""
    refusals = {
        own: why
        for name, why in structure.refusals.items()
        for own in ([part.name for part in joint[name]] if name in joint else [name])
    }
    notes = {name: why for name, why in structure.notes.items() if name not in joint}
    for name in joint.keys() - structure.refusals.keys():
        own = [part.name for part in joint[name]]
        several = len(own) > 1
        why = f"data depend on {', '.join(map(repr, own))} together" if several else _SHARED
        notes |= dict.fromkeys(own, why)
    return replace(structure, refusals=refusals, notes=notes)


_SHARED = "its weights are those of labels that data depend on together with others"
