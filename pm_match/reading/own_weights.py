r"""Assignments whose weights cannot be integrated out: a model that is read in its place.

Every object may have weights of its own, such as those of a regression on covariates; or the
weights may have a prior of any kind. The same joint density is then read as that of assignments
over equal weights, and of a potential

.. math:: \log p_{n s_n} + \log T

for every object, which is evidence about its label like any other.
"""

from collections.abc import Collection
from math import log

import numpy as np
import pymc as pm
from pymc.model.core import Model
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV

from pm_match.reading.ancestry import parameters
from pm_match.reading.context import Context
from pm_match.reading.with_assignments import with_assignments

# What the potentials are called, before the assignments' names.
WEIGHTS_OF = "weights of "


def with_equal_weights(model: Model, names: Collection[str]) -> Model:
    """Return a model with the same joint density, in which some assignments have equal weights."""
    context = Context.of(model)
    whole, terms = {}, {}
    for name in names:
        rv, n_labels = model[name], 2
        if isinstance(rv.owner.op, CategoricalRV):
            (p,) = context.at([parameters(rv)[0]])(context.start)
            n_labels = p.shape[-1]
        equal = np.full(n_labels, 1.0 / n_labels)
        whole[name] = pm.Categorical.dist(p=equal, shape=context.shapes[name], dtype=rv.dtype)
        whole[name].name = name
        terms[f"{WEIGHTS_OF}{name!r}"] = pm.logp(rv, rv) + log(n_labels)
    return with_assignments(model, whole, terms)


def vectors(model: Model, names: Collection[str] | None = None) -> list[str]:
    """List the assignments, of those in `names`, that are vectors of labels with data.

    By default, of all vectors of zeros and ones, which may be assignments to two clusters.
    """
    context = Context.of(model)
    return [
        rv.name
        for rv in model.free_RVs
        if (isinstance(rv.owner.op, BernoulliRV) if names is None else rv.name in names)
        and len(context.shapes[rv.name]) == 1
        and not context.is_missing(rv)
        and any(context.is_seen(child) for child in context.ancestry.children(rv))
    ]
