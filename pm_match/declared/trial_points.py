"""Points at which likelihoods of any kind are read, and how their entries are best evaluated."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV

from pm_match.reading.ancestry import RV, Refusal
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck
from pm_match.reading.label_tables import LabelDensities, lacks_transform, prior_draws
from pm_match.reading.owners import close

# Draws among which are large and small whole numbers.
_DRAWS = 100
SEVERAL = (
    "depends on the labels of more than one object; expected every entry of its log density to "
    "depend on the label of one object, or of two (no sums over objects)"
)
# Points near the start, where what the data allow is likelier than far from it.
_NEAR = 0.3


class Reading:
    """Entries of some factors at points with nothing special about them, inside of their bounds.

    `rng`: draws the points; `by_use`: as of `LabelDensities`. It has `factors`: in the order of
    their entries, of which they have `sizes`; `n_objects`: of every assignment; `points`.
    """

    # How it is refused that entries depend on several objects' labels.
    refusal: type[Refusal] = Refusal

    def __init__(
        self,
        context: Context,
        factors: Sequence[RV],
        assignments: Sequence[RV],
        check: DensityCheck,
        rng: np.random.Generator,
        by_use: bool = False,
    ):
        self.context, self.assignments = context, assignments
        self.n_objects = [context.shapes[rv.name][0] for rv in assignments]
        self.points = [inside(context, rng, p) for p in check.points]
        self.points.append(point_inside(context, rng))
        _switch(context, rng, self.points, assignments)
        self.densities = LabelDensities(context.model, factors, assignments, by_use=by_use)
        self.factors = self.densities.factors
        nobody = [np.zeros(self.n_objects[own], np.int64) for own in self.densities.uses]
        self.shapes = self.densities.shapes(self.points[0], nobody)
        self.sizes = tuple(int(np.prod(shape)) for shape in self.shapes)

    def refuse(self, entries: NDArray[np.bool_], why: str = SEVERAL) -> None:
        """Refuse, naming the factor and the place of the first of some `entries` (E,)."""
        place = int(np.argmax(entries)) if entries.any() else -1
        for rv, shape, size in zip(self.factors, self.shapes, self.sizes, strict=True):
            if 0 <= place < size:
                where = ", ".join(map(str, np.unravel_index(place, shape))) if shape else ""
                raise self.refusal(f"{rv.name!r}{f'[{where}]' if where else ''} {why}")
            place -= size


def _switch(context: Context, rng: np.random.Generator, points, assignments) -> None:
    """Let all switches be on at the first of some points, and off at the second.

    And other whole numbers, as of a change point, large at the first and small at the second.
    """
    whole = []
    for rv in context.model.free_RVs:
        key = context.key(rv)
        if rv in assignments or rv.dtype.startswith("float") or context.is_missing(rv):
            continue
        if isinstance(rv.owner.op, CategoricalRV) and len(context.shapes[rv.name]) == 1:
            continue  # labels of others
        if not isinstance(rv.owner.op, BernoulliRV):
            whole.append(rv)
            continue
        drawn = rng.integers(2, size=(len(points), *points[0][key].shape))
        drawn[0], drawn[1] = 1, 0
        for point, own in zip(points, drawn, strict=True):
            point[key] = np.asarray(own, point[key].dtype)
    if not whole:
        return
    try:
        draw = prior_draws(context, whole)
        found = [draw(rng, context.start) for _ in range(max(_DRAWS, len(points)))]
    except Exception:
        return  # some cannot be drawn
    for key in map(context.key, whole):
        if all(own[key].shape == points[0][key].shape for own in found):
            drawn = np.array([own[key] for own in found])
            drawn[:2] = drawn.max(axis=0), drawn.min(axis=0)
            for point, own in zip(points, drawn, strict=False):
                point[key] = own


def best_way(
    densities: LabelDensities, points: Sequence[dict[str, NDArray]], labels: Sequence[NDArray]
) -> tuple[int, bool]:
    """Choose the fastest way to compile entries that says what the declared graph does.

    `labels` (each 2, ...): two rows of all that are given. Return `batch` and `conditions`, as
    `LabelDensities.compiled` takes them.
    """
    expected = [densities.compiled(1, False)(p, labels) for p in points]
    for conditions in (True, False):
        batch = densities.batch(conditions, points[0], labels)
        try:
            entries = densities.compiled(batch, conditions)
            found = [entries(p, labels) for p in points]
        except Exception:
            continue
        # What conditions rule out is impossible, whatever is declared without them.
        if all(
            f.shape == e.shape and (close(f, e) | (conditions & np.isneginf(f))).all()
            for f, e in zip(found, expected, strict=True)
        ):
            return batch, conditions
    return 1, False


def point_inside(context: Context, rng: np.random.Generator) -> dict[str, NDArray]:
    """Draw a point near the start, but nothing special, where densities are defined."""
    return inside(context, rng, context.near(rng, _NEAR))


def inside(context: Context, rng: np.random.Generator, point) -> dict[str, NDArray]:
    """Bring values at a random point to where their densities are defined."""
    model, found = context.model, dict(point)
    for rv in model.free_RVs:
        key = context.key(rv)
        if rv.dtype.startswith("float"):
            if lacks_transform(model, rv):
                start = context.start[key]
                found[key] = np.asarray(start * np.exp(rng.normal(0.0, _NEAR, start.shape)))
            continue
        if np.array_equal(point[key], context.start[key]):
            # What is whole numbers has no other way to be anything else.
            try:
                draw = prior_draws(context, [rv])
                found |= draw(rng, found)
            except Exception:
                continue
    return found
