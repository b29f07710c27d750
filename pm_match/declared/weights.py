"""Probabilities of labels that are not integrated out: which of their numbers labels choose."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, prod

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.multivariate import StickBreakingWeightsRV
from pymc.logprob.transforms import SimplexTransform

from pm_match.clusters.points import log_density_of_weights
from pm_match.reading.ancestry import RV, Refusal
from pm_match.reading.clusterings import sticks_function
from pm_match.reading.context import Context
from pm_match.reading.evidence import Point
from pm_match.reading.laws import BETA, DIRICHLET
from pm_match.reading.own_weights import WEIGHTS_OF
from pm_match.reading.owners import close
from pm_match.reading.probe import natural_function

# Further points at which numbers are looked at, and how far from 0 log odds are there: weights
# from some 1e-8 to 1.
_N_WIDE, _WIDE = 3, 6.0


@dataclass(frozen=True, eq=False)
class Weights:
    """A free variable of which every object's label chooses one number: the label's probability.

    It is an array (..., C) of Dirichlet or `StickBreakingWeights` vectors: weights of all objects,
    of each object or of groups of them, or of the parts of every cluster. Or it is one of Beta
    probabilities (...), which make vectors of two numbers, themselves and the rest.
    """

    name: str
    simplex: bool  # whether it is an array of vectors, not of probabilities
    # the axis along which its numbers are those of all labels, in order; None if there is none
    axis: int | None
    free_prior: bool  # whether its prior depends on free variables
    shape: tuple[int, ...]  # (..., C)
    # owner, cell (E,), (E, T): of the entries of log densities that it enters, the object, and the
    # place of the number that each label chooses, in the flat array
    owner: NDArray[np.int64]
    cell: NDArray[np.int32]
    # from a point to the parameters a, b (..., C - 1) of the sticks that break each vector
    prior: Callable[[Point], tuple[NDArray, NDArray]] = field(repr=False)

    def counts(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count how many labels (N,) choose each number: (..., C)."""
        chosen = self.cell[np.arange(len(self.owner)), labels[self.owner]]
        return np.bincount(chosen, minlength=prod(self.shape)).reshape(self.shape)

    def log_density(self, value: NDArray, point: Point, labels: NDArray[np.int64]) -> float:
        """Log density of a value of the variable at a point, and of the labels (N,) given it."""
        logs = log_numbers(value, self.simplex)
        counts, own = self.counts(labels), log_density_of_weights(logs, *self.prior(point))
        return float(own.sum() + np.where(counts, counts * logs, 0.0).sum())


def log_numbers(value: NDArray, simplex: bool) -> NDArray[np.float64]:
    """Return the logs (..., C) of the numbers of a value of `Weights`."""
    value = np.asarray(value, np.float64)
    with np.errstate(divide="ignore"):
        logs = np.log(value)
        return logs if simplex else np.stack([logs, np.log1p(-value)], axis=-1)


def find_weights(
    context: Context,
    assignments: Collection[RV],
    entries: Mapping[RV, NDArray[np.int64]],
    owner: NDArray[np.int64],
    points: Sequence[Point],
    table: Callable[[Point], NDArray[np.float64]],
) -> Iterator[Weights]:
    """Find the weights among the free variables.

    Parameters
    ----------
    context : Context
    assignments : collection of variables
    entries : mapping of variables to array
        What depends on labels, and the places of its entries among all.
    owner : (E,) array
        The object of every entry.
    points : sequence of points
        There is nothing special about them.
    table : callable
        From a point to the log densities (T, E) of all entries under each label.
    """
    rng = np.random.default_rng(20130208)
    free, parents = context.model.free_RVs, context.ancestry.parents
    # One value of many, by which numbers are chosen too, is not seen at a few points.
    whole = {rv for rv in free if not rv.dtype.startswith("float")} - {*assignments}
    for rv in free:
        below = context.ancestry.children(rv)
        simplex = DIRICHLET.has(rv) or isinstance(rv.owner.op, StickBreakingWeightsRV)
        if not (simplex or BETA.has(rv)) or not below or not entries.keys() >= {*below}:
            continue
        if any(whole & {own, *parents[own]} for own in below):
            continue
        try:
            context.must_be_plain(rv, (SimplexTransform,) if simplex else BETA.transform(rv))
        except Refusal:
            continue
        which = np.concatenate([entries[own] for own in below])
        if not context.transformed(rv) or (owner[which] < 0).any():
            continue
        shape, key = context.shapes[rv.name], context.key(rv)
        shape = shape if simplex else (*shape, 2)
        # Weights are relative to equal ones (see `own_weights`), other probabilities are not.
        constants = [log(shape[-1]) if own.name.startswith(WEIGHTS_OF) else 0.0 for own in below]
        constant = np.repeat(constants, [len(entries[own]) for own in below])
        read = natural_function(context.model, [rv.name])
        wide = rng.normal(0.0, _WIDE, (_N_WIDE, *np.shape(points[0][key])))
        every = (*points, *({**points[0], key: own} for own in wide))
        numbers = (log_numbers(read(point)[0], simplex).ravel() for point in every)
        cell = _cells(numbers, ((table(point)[:, which] - constant).T for point in every))
        if cell is not None:
            n = shape[-1]
            in_order = n == cell.shape[1] and (cell % n == np.arange(n)).all()
            yield Weights(
                name=rv.name,
                simplex=simplex,
                axis=len(shape) - 1 if simplex and in_order else None,
                free_prior=bool(parents[rv]),
                shape=shape,
                owner=owner[which],
                cell=cell,
                prior=sticks_function(context, rv, shape),
            )


def _cells(numbers: Iterable[NDArray], worth: Iterable[NDArray]) -> NDArray[np.int32] | None:
    """Find the places (E, T) of the numbers (M,) that others (E, T) are, wherever they are.

    Return None if there are none.
    """
    cell = None
    for own, wanted in zip(numbers, worth, strict=True):
        if cell is None:
            order = np.argsort(own).astype(np.int32)
            between = 0.5 * (own[order][:-1] + own[order][1:])
            cell = order[np.searchsorted(between, wanted)]
        if not close(own[cell], wanted).all():
            return None
    return cell
