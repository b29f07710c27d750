"""Labels that are observed: a model that is read as if they were free, and which they are.

A known label is evidence for what it numbers, and for the weights, as a label that is drawn is
evidence in an iteration. So what is read of a model with observed labels is the model without their
observation; the clustering keeps what they are (`parts.Assignment.known`), and no move changes it.
"""

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.discrete import Categorical
from pymc.distributions.multivariate import StickBreakingWeightsRV
from pymc.model.core import Model
from pytensor.tensor.random.basic import BetaRV, CategoricalRV, DirichletRV

from pm_match.reading.ancestry import RV, Ancestry, missing_part, parameters
from pm_match.reading.probe import compiled, evaluate
from pm_match.reading.with_assignments import with_assignments

# What the prior on weights may be declared with.
WEIGHTS = (StickBreakingWeightsRV, DirichletRV, BetaRV)
# The label of an object whose label is not known: none that anybody declares.
UNKNOWN = np.iinfo(np.int64).min

Known = dict[str, NDArray[np.int64]]


def with_free_labels(model: Model, complete: bool = True) -> tuple[Model, Known]:
    """Return a model in which labels that are observed are free.

    `complete`: whether those assignments are freed too of which all labels are observed. Return
    `model`: the same one if no labels are observed; `known` dict of str to (N,): the observed
    labels of its assignments, `UNKNOWN` where they are not.
    """
    ancestry, known = Ancestry(model), Known()
    # What takes the place of the variables of the model's assignments.
    whole: dict[str, RV] = {}
    for rv in model.observed_RVs:
        if not _categorical(rv):
            continue
        rest = missing_part(model, rv)
        if rest is not None and [*ancestry.children(rv), *ancestry.children(rest)]:
            name = rv.name.removesuffix("_observed")
            n_left = int(evaluate(rest.shape[0]))
            call, _ = compiled(model, [model[name]], {rest: np.full(n_left, UNKNOWN)})
            known[name] = np.asarray(call({})[0], np.int64)
            whole[name] = _joined(name, known[name], rv, rest)
        elif rest is None and complete and ancestry.children(rv) and _over_weights(ancestry, rv):
            known[rv.name] = np.asarray(evaluate(model.rvs_to_values[rv]), np.int64)
            whole[rv.name] = rv
    return (with_assignments(model, whole), known) if known else (model, known)


def _categorical(rv: RV) -> bool:
    return rv.owner is not None and isinstance(rv.owner.op, CategoricalRV) and rv.type.ndim == 1


def _over_weights(ancestry: Ancestry, rv: RV) -> bool:
    """Whether a variable's probabilities are weights, or constants."""
    return all(isinstance(parent.owner.op, WEIGHTS) for parent in ancestry.parents[rv])


def _joined(name: str, labels: NDArray[np.int64], observed: RV, rest: RV) -> RV:
    """Make one Categorical of the two that PyMC makes of labels some of which are missing."""
    missing = labels == UNKNOWN
    rows = [
        parameters(rv)[0] + pt.zeros((int(n), 1))
        for rv, n in ((observed, (~missing).sum()), (rest, missing.sum()))
    ]
    order = np.argsort(np.concatenate([np.flatnonzero(~missing), np.flatnonzero(missing)]))
    found = Categorical.dist(p=pt.concatenate(rows)[order], shape=(len(labels),))
    found.name = name
    return found
