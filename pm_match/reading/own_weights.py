r"""Assignments whose weights cannot be integrated out: a model that is read in its place.

Every object may have weights of its own, such as those of a regression on covariates; or the
weights may have a prior of any kind. The same joint density is then read as that of assignments
over equal weights, and of a potential

.. math:: \log p_{n s_n} + \log T

for every object, which is evidence about its label like any other.
"""

from collections.abc import Collection, Mapping, Sequence
from math import log, prod

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.model.core import Model
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV

from pm_match.reading.ancestry import RV, a_kind, names, parameters
from pm_match.reading.clusterings import no_vector
from pm_match.reading.context import Context
from pm_match.reading.probe import initial_point, point_function, starts
from pm_match.reading.with_assignments import with_assignments

# What the potentials are called, before the assignments' names.
WEIGHTS_OF = "weights of "
# At so many starts besides the first PyMC looks for one with a density.
_N_STARTS = 10


def with_equal_weights(model: Model, groups: Mapping[str, Sequence[str]]) -> Model:
    """Return a model with the same joint density, in which some assignments have equal weights.

    `groups`: an assignment by its own name; or several whose labels are combined to those of one
    assignment (see `joint_labels`), by the name of that. The labels of the last change first.
    """
    context = Context.of(model)
    whole, places, terms = {}, {}, {}
    for name, members in groups.items():
        rvs = [model[own] for own in members]
        sizes = [context.n_labels(rv) for rv in rvs]
        n, dtype = prod(sizes), rvs[0].dtype if len(rvs) == 1 else "int64"
        equal, shape = np.full(n, 1.0 / n), context.shapes[rvs[0].name]
        labels = whole[name] = pm.Categorical.dist(p=equal, shape=shape, dtype=dtype)
        labels.name = name
        for rv, size, own in zip(rvs, sizes, np.unravel_index(np.arange(n), sizes), strict=True):
            # Looked up: PyTensor has no vectorised division of whole numbers.
            one = labels if len(rvs) == 1 else pt.constant(own.astype(rv.dtype))[labels]
            places[rv.name] = one
            if len(rvs) > 1 or not _are_equal(context, rv, size):
                terms[f"{WEIGHTS_OF}{rv.name!r}"] = pm.logp(rv, rv) + log(size)
    return with_assignments(model, whole, terms, places)


def _are_equal(context: Context, rv: RV, n: int) -> bool:
    """Whether the labels of an assignment have equal weights as they are declared."""
    (p,) = context.at([parameters(rv)[0]])(context.start)
    return not context.ancestry.parents[rv] and bool((p == 1.0 / n).all())


def without_sum_of_one(model: Model) -> dict[str, str]:
    """Refuse labels whose probabilities do not sum to 1, for which PyMC has no density.

    As PyMC does, take for 1 what is within 1e-5 of it, and look at some other starts if that is
    not so at the first: of many sticks, none of which takes the rest, hardly any may be left.
    """
    drawn = [rv for rv in model.basic_RVs if isinstance(rv.owner.op, CategoricalRV)]
    if not drawn:
        return {}
    graphs = [parameters(rv)[0] for rv in drawn]
    read, first = point_function(model, graphs), initial_point(model)

    def sums(point: Mapping[str, NDArray]) -> list[NDArray]:
        return [p.sum(axis=-1, dtype=np.float64) for p in read(point)]

    def far(own: NDArray) -> NDArray[np.bool_]:
        return np.abs(own - 1.0) > 1e-5 + 1e-8

    found = sums(first)
    off = [far(own) for own in found]
    if any(own.any() for own in off):
        jittered = starts(model, [rv for rv in model.free_RVs if rv.dtype.startswith("float")])
        for seed in range(_N_STARTS):
            off = [b & far(own) for b, own in zip(off, sums(jittered(seed)), strict=True)]
    known = {*model.named_vars.values()}
    refused = {}
    for rv, p, own, wrong in zip(drawn, graphs, found, off, strict=True):
        if wrong.any():
            place = np.unravel_index(np.argmax(wrong), wrong.shape)
            made_of = known.intersection(ancestors([p], known))
            row = "" if wrong.all() else f" in row {', '.join(map(str, place))}"
            refused[rv.name] = (
                f"expected its probabilities, of {names(made_of)}, to sum to "
                f"1; found a sum of {own[place]:.6g}{row} where chains start, for which PyMC has "
                "no density: let the last label take the rest, as pm.StickBreakingWeights does, or "
                "a last stick of 1"
            )
    return refused


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


def no_labels(context: Context) -> dict[str, str]:
    """Say why the whole numbers of a model without assignments are none, by their names."""
    found = {}
    for rv in context.model.free_RVs:
        shape = context.shapes[rv.name]
        if rv.dtype.startswith("float") or context.is_missing(rv):
            continue
        if not isinstance(rv.owner.op, BernoulliRV):
            found[rv.name] = f"it is {a_kind(rv)}; expected pm.Categorical or pm.Bernoulli labels"
        elif len(shape) != 1:
            found[rv.name] = no_vector(rv.name, shape)
        else:
            found[rv.name] = "expected labels that data depend on; found none that do"
    return found
