"""Reads independent columns: what each cell of a variable is of, and that it is what it looks like.

A variable is read (`look`) by what its parameters are at chosen labels, and chosen parameters of
clusters. Two values of these tell which object's label each cell depends on, and on which entry of
the cluster's row, digit by digit of their numbers. Then the parameters are held against that at
every label of every object, and the declared densities against the family's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.distribution import PartialObservedRV
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.clusters.conjugate import NORMAL
from pm_match.columns.families import FAMILIES, Family
from pm_match.columns.parts import Cells, Columns, Missing, RowLayout
from pm_match.reading import laws
from pm_match.reading.ancestry import RV, Refusal, a_kind, kind, mean, names, parameters, scale
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.coarsen import coarsened, powers
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, common_prior
from pm_match.reading.owners import binary_digits, from_digits
from pm_match.reading.probe import compiled, stand_in

_SEED = 20130713
# Random labels at which parameters are looked at: cells, and rows of labels.
_RANDOM_CELLS, _MOST_RANDOM = 2**17, 64
# PyMC has some constants in single precision.
_CLOSE = 1e-7
# Counts below minus this are larger ones of which bits were lost.
_LARGE_COUNT = 1e6
_WRAPPED = " (of whole numbers, PyMC keeps 32 bits: give larger ones as floats)"

# From a point, labels and parameters of clusters to those of every cell, and what is known of it.
CellReader = Callable[..., tuple[list[NDArray], NDArray]]


class _Other(Exception):
    """Why a variable is none of independent columns, in words."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What was found out of one variable, or of the observed or the missing part of one."""

    rv: RV
    assignment: RV
    family: Family
    theta: tuple[RV, ...]  # the parameters of clusters
    # object, column, known: of every cell, in the variable's shape
    object: NDArray[np.int64]
    column: NDArray[np.int64]
    known: NDArray[np.float64]
    noise: RV | None  # what is known, where that depends on free variables


def look(context: Context, rv: RV) -> Reading | str:
    """Read a variable, or say in words why it is none of independent columns.

    Raise `Refusal` if it looks like one that cannot be.
    """
    found = context.once(_looked, rv)
    if isinstance(found, Refusal):
        raise found
    return found


def _looked(context: Context, rv: RV) -> Reading | Refusal | str:
    try:
        return _look(context, rv)
    except _Other as other:
        return str(other)
    except Refusal as refusal:
        return refusal


def why_not(context: Context, rv: RV) -> str | None:
    """Say why a variable is none of independent columns; None if it is one.

    All that depends on its parameters has to be one too.

    Raise `Refusal` as `look`.
    """
    found = look(context, rv)
    if isinstance(found, str):
        return found
    for theta in found.theta:
        for child in context.ancestry.strangers(theta, [rv, *found.theta]):
            if context.once(coarsened, child):  # as what it coarsens, which is looked at itself
                continue
            own = None if child in context.model.potentials else look(context, child)
            if not isinstance(own, Reading) or own.theta != found.theta:
                return (
                    f"{child.name!r} depends on {theta.name!r} too, which could then not be "
                    f"integrated out{f': {own}' if isinstance(own, str) else ''}"
                )
    return None


def is_family(rv: RV) -> bool:
    """Whether a variable has the distribution of one of the families."""
    return any(family.name == kind(rv) for family in FAMILIES)


# -- one variable ---------------------------------------------------------------------------------


def _look(context: Context, rv: RV) -> Reading:
    if isinstance(rv.owner.op, PartialObservedRV):
        raise _Other(f"rows of {context.whole_name(rv)!r} are missing in part")
    if not is_family(rv):
        raise _Other(f"{rv.name!r} is {a_kind(rv)}")
    if rv in context.model.free_RVs and not context.is_missing(rv):
        raise _Other(f"{rv.name!r} is free")
    missing = rv if context.is_missing(rv) else context.missing_part(rv)
    if missing is not None and (others := context.ancestry.children(missing)):
        raise _Other(f"{names(others, 'depends')} on the missing values {missing.name!r}")
    assignment, family, theta, noise = _declared(context, rv)
    if len(context.shapes[assignment.name]) != 1:
        raise _Other(f"{assignment.name!r} is no vector of labels")
    for own, kind_of in zip(theta, family.prior.parameters, strict=True):
        _check_parameter(context, own, theta, family, kind_of.law.transform(own))
    read = _cell_reader(context, rv, assignment, family, theta)
    vector, whole = family.prior.vector, context.shapes[theta[0].name]
    row = whole[1:-1] if vector else whole[1:]
    n_objects, n_columns = context.shapes[assignment.name][0], int(np.prod(row))
    one, other = family.prior.parameters[0].two(whole)
    rest = [np.ones(whole) for _ in theta[1:]]
    nobody, by_label = np.zeros(n_objects, np.int64), np.concatenate([one[:1], other[1:]])

    def value(labels, first) -> NDArray:
        return read(context.start, labels, [first, *rest])[0][0]

    low, high = value(nobody, by_label), value(nobody + 1, by_label)

    def digit(labels, first) -> NDArray[np.bool_]:
        """Tell which cells have the second of the two values."""
        found = value(labels, first)
        is_low, is_high = _same(found, low, vector), _same(found, high, vector)
        if (is_low == is_high).any():
            raise _Other(_unlike(rv, assignment, theta))
        return is_high

    def by_column(bits) -> NDArray:
        bits = bits.reshape(row) == 1
        return np.where(bits[..., None] if vector else bits, other, one)

    found_object = from_digits(digit(own, by_label) for own in binary_digits(np.arange(n_objects)))
    found_column = from_digits(
        digit(nobody, by_column(own)) for own in binary_digits(np.arange(n_columns))
    )
    if found_object.max(initial=0) >= n_objects or found_column.max(initial=0) >= n_columns:
        raise _Other(_unlike(rv, assignment, theta))
    # The first of the two values is 1 where the parameter may be multiplied.
    known = low if family.scaled else read(context.start, nobody, [one, *rest])[1]
    found = Reading(
        rv, assignment, family, theta, found_object, found_column, np.array(known), noise
    )
    _check_every_label(context, found, read)
    return found


def _unlike(rv: RV, assignment: RV, theta: Sequence[RV]) -> str:
    return (
        f"the parameters of {rv.name!r} are not those entries of {names(theta)} that the labels "
        f"{assignment.name!r} of its objects choose"
    )


def _same(found: NDArray, expected: NDArray, vector: bool) -> NDArray[np.bool_]:
    same = np.isclose(found, expected, rtol=_CLOSE, atol=0.0)
    return same.all(axis=-1) if vector else same


def _declared(context: Context, rv: RV) -> tuple[RV, Family, tuple[RV, ...], RV | None]:
    """Find the assignment of a variable, its family, parameters and free noise, by ancestry."""
    parents = context.ancestry.parents[rv]
    free = [p for p in parents if p in context.model.free_RVs]
    assignments = [
        p for p in free if isinstance(p.owner.op, CategoricalRV) and not context.is_missing(p)
    ]
    if len(assignments) != 1:
        raise _Other(f"{rv.name!r} depends on {names(parents)}; expected one assignment")
    (assignment,) = assignments
    families = [family for family in FAMILIES if family.name == kind(rv)]
    law = families[0].prior.parameters[0].law
    found = [p for p in free if law.has(p)]
    if families[0].prior.code == NORMAL:
        return assignment, *_declared_normal(context, rv, assignment, families)
    if len(found) != 1 or len(parents) != 2:
        raise _Other(
            f"{rv.name!r} depends on {names(parents)}; expected one assignment, and one "
            f"{law.name} variable, its conjugate prior"
        )
    return assignment, families[0], (found[0],), None


def _declared_normal(context: Context, rv: RV, assignment: RV, families: Sequence[Family]):
    """Find the mean of a normal variable, its precision if that has a prior, or its noise."""
    ancestry = context.ancestry
    centre, width = ancestry.of([mean(rv)]), ancestry.of([scale(rv)])
    means = [p for p in centre if laws.NORMAL.has(p) and p in context.model.free_RVs]
    if len(means) != 1 or centre != {assignment, means[0]}:
        raise _Other(
            f"the mean of {rv.name!r} depends on {names(centre)}; expected one assignment, and one "
            "Normal variable"
        )
    if assignment not in width:
        if width and len(context.shapes[means[0].name]) > 1:
            # Feature vectors draw it with the means integrated out.
            raise _Other(f"the noise of {rv.name!r} is free; expected it to be known")
        if context.discrete([scale(rv)]) or means[0] in width:
            raise _Other(f"the noise of {rv.name!r} depends on {names(width)}")
        return families[0], (means[0],), scale(rv) if width else None
    free = context.model.free_RVs
    precisions = [p for p in width if laws.GAMMA.has(p) and p in free]
    if len(precisions) != 1 or width != {assignment, precisions[0]}:
        raise _Other(
            f"the noise of {rv.name!r} depends on {names(width)}; expected it to be known, or one "
            "Gamma precision for each cluster"
        )
    if precisions[0] not in ancestry.parents[means[0]]:
        raise _Other(
            f"{means[0].name!r} does not depend on {precisions[0].name!r}; expected the conjugate "
            f"prior, Normal(m, tau=kappa * {precisions[0].name})"
        )
    return families[1], (means[0], precisions[0]), None


def _check_parameter(context: Context, own: RV, theta, family: Family, transforms) -> None:
    shape = context.shapes[own.name]
    if len(shape) < 1 + family.prior.vector or shape != context.shapes[theta[0].name]:
        raise _Other(f"{own.name!r} has shape {shape}; expected a row for each cluster")
    if shape[0] < 2:
        raise _Other(f"{own.name!r} has one row; expected several clusters")
    try:
        context.must_be_plain(own, transforms)
    except Refusal as refusal:
        raise _Other(str(refusal)) from refusal


def _cell_reader(
    context: Context, rv: RV, assignment: RV, family: Family, theta: Sequence[RV]
) -> CellReader:
    """Make what reads the parameters of every cell, in the cells' shape."""
    labels, stands = stand_in(assignment), [stand_in(own) for own in theta]
    replaced = {assignment: labels, **dict(zip(theta, stands, strict=True))}
    call, _ = compiled(context.model, parameters(rv), replaced, [labels, *stands])
    missing, rows = context.is_missing(rv), family.rows
    values = context.shapes[rv.name] if missing else context.observed([rv]).shape
    shape = values[:-1] if rows else values
    categories = context.shapes[theta[0].name][-1:] if family.prior.vector else ()
    name = context.whole_name(rv)
    if rows and values[-1:] != categories:
        raise Refusal(
            f"{name!r} has {values[-1]} categories, and {theta[0].name!r} {categories[0]}"
        )

    def read(point, own_labels, own_theta) -> tuple[list[NDArray], NDArray]:
        try:
            with np.errstate(all="ignore"):
                found = call(point, own_labels, *own_theta)
                values, known = family.read(*(np.asarray(f, np.float64) for f in found))
        except (ValueError, IndexError) as error:
            raise _Other(
                f"{name!r}: expected parameters for every label of {assignment.name!r}; found that "
                f"they cannot be computed ({str(error).splitlines()[0]})"
            ) from error
        try:
            return (
                [np.broadcast_to(value, (*shape, *categories)) for value in values],
                np.broadcast_to(known, shape),
            )
        except ValueError:
            raise Refusal(
                f"{name!r} has the shape {shape}, and its parameters {values[0].shape}; expected "
                f"them to be the same ({assignment.name!r} has {len(own_labels)} labels)"
            ) from None

    return read


def _check_every_label(context: Context, found: Reading, read: CellReader) -> None:
    """Hold the parameters of cells against what they are to be, at every label of every object."""
    prior, scaled = found.family.prior, found.family.scaled
    shape = context.shapes[found.theta[0].name]
    n_objects = context.shapes[found.assignment.name][0]
    rng = np.random.default_rng(_SEED)
    some = [own.random(rng, shape) for own in prior.parameters]
    # What is cut off far away does not show at random values.
    turns = [(np.arange(n_objects) + label) % shape[0] for label in range(shape[0])]
    trials = [(labels, some) for labels in turns]
    ones = [np.ones(shape) for _ in prior.parameters]
    for n, parameter in enumerate(prior.parameters):
        trials += [(turns[0], [*ones[:n], far, *ones[n + 1 :]]) for far in parameter.far(shape)]
    # Nor does what labels do together: how many objects a cluster has, say.
    n_random = int(np.clip(_RANDOM_CELLS // max(found.object.size, 1), 0, _MOST_RANDOM))
    drawn = np.random.default_rng(_SEED).integers(shape[0], size=(n_random, n_objects))
    trials += [(labels, some) for labels in drawn]
    for labels, theta in trials:
        cells, known = read(context.start, labels, theta)
        fine = scaled or np.allclose(known, found.known, rtol=_CLOSE, atol=0.0)
        for own, cell in zip(theta, cells, strict=True):
            rows = own.reshape(shape[0], -1, *(shape[-1:] if prior.vector else ()))
            expected = rows[labels[found.object], found.column]
            expected = expected * found.known if scaled else expected
            fine = fine and np.allclose(cell, expected, rtol=_CLOSE, atol=0.0)
        if not fine:
            raise _Other(_unlike(found.rv, found.assignment, found.theta))


# -- what belongs together ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ColumnsCandidate:
    """Variables whose parameters are the same variables."""

    clustering: int
    readings: list[Reading]  # of observed variables, and of what holds their missing values
    # by the coarsened ones of these, the potential that says so, and the power
    powers: dict[RV, tuple[RV, float]] = field(default_factory=dict)

    @property
    def covered(self) -> list[RV]:
        """The claimed variables that it is evidence of."""
        return [*(own.rv for own in self.readings), *(one for one, _ in self.powers.values())]

    @property
    def checked(self) -> list[RV]:
        """The variables whose declared densities are looked at."""
        theta = self.readings[0].theta
        return [*(own.rv for own in self.readings), *(theta[:1] if len(theta) > 1 else ())]

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Columns:
        """Hold it against the declared densities."""
        theta, prior = self.readings[0].theta, self.readings[0].family.prior
        hyper = _hyper_function(context, theta, self.readings[0].family, check)
        for own in self.readings:
            _check_density(check, own)
        missing = {
            context.whole_name(own.rv): own for own in self.readings if context.is_missing(own.rv)
        }
        return Columns(
            clustering=self.clustering,
            prior=prior,
            parameters=tuple(str(rv.name) for rv in theta),
            shapes=tuple(context.shapes[rv.name] for rv in theta),
            cells=tuple(
                _cells(
                    context,
                    own,
                    missing.get(context.whole_name(own.rv)),
                    self.powers[own.rv][1] if own.rv in self.powers else 1.0,
                )
                for own in self.readings
                if not context.is_missing(own.rv)
            ),
            _hyper=hyper,
        )


def columns_candidates(
    context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
) -> list[ColumnsCandidate]:
    """Group variables by the parameters that they share."""
    found: dict[tuple, ColumnsCandidate] = {}
    coarse = powers(context, values)
    for rv in (rv for rv in values if rv not in context.model.potentials):
        own = look(context, rv)
        assert isinstance(own, Reading)
        number = next(n for n, c in enumerate(clusterings) if own.assignment in c.assignments)
        truncation, first = clusterings[number].truncation, own.theta[0]
        if context.shapes[first.name][0] != truncation:
            raise Refusal(
                f"{first.name!r} has shape {context.shapes[first.name]}; expected a row for each "
                f"of the {truncation} labels of {own.assignment.name!r}"
            )
        if not context.is_missing(rv):
            _values(context, own)
        key = (number, *own.theta)
        candidate = found.setdefault(key, ColumnsCandidate(number, []))
        candidate.readings.append(own)
        if rv in coarse:
            candidate.powers[rv] = coarse[rv]
    for candidate in found.values():
        theta = candidate.readings[0].theta
        for rv in theta:
            context.ancestry.only_children(rv, [*candidate.covered, *theta])
    return list(found.values())


def _values(context: Context, own: Reading) -> NDArray[np.float64]:
    """Return the observed values (C,) or (C, K); refuse those that the family does not have."""
    name, n_cells = context.whole_name(own.rv), own.object.size
    values = context.table([own.rv], "; missing values are NaN or masked")[0]
    values = context.uncast(own.rv, values).reshape(n_cells, *values.shape[own.object.ndim :])
    known = own.known.ravel()
    for fine, expected, found in (
        (known >= 0.0, "a known factor, or number of trials, of 0 or more", known),
        (np.asarray(own.family.supports(values, known)), own.family.expects, values),
    ):
        if fine.all():
            continue
        first = int(np.flatnonzero(~fine.reshape(n_cells, -1).all(axis=1))[0])
        place = np.argwhere(context.order(own.rv, own.object.shape) == first)[0].tolist()
        where = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), place, strict=False))
        raise Refusal(
            f"{name!r}, {where}: expected {expected}; found {found[first].tolist()}"
            + (_WRAPPED if np.min(found[first]) < -_LARGE_COUNT else "")
        )
    return values


def _cells(context: Context, own: Reading, missing: Reading | None, power: float) -> Cells:
    """Make the record of an observed variable, and of what holds its missing values."""
    values, known = _values(context, own), own.known.ravel()
    family, order = own.family, context.order(own.rv, own.object.shape)
    whole = np.full((*order.shape, *values.shape[1:]), np.nan)
    whole[order >= 0] = values[order[order >= 0]]
    read = None
    if own.noise is not None:
        both = [own] if missing is None else [own, missing]
        at = context.at([reading.noise for reading in both])
        shapes = [reading.object.shape for reading in both]

        def read(point) -> list[NDArray[np.float64]]:
            return [
                np.broadcast_to(sd, shape).ravel() ** -2.0
                for sd, shape in zip(at(point), shapes, strict=True)
            ]

    statistics, log_base = family.coarsened(values, known, power)
    return Cells(
        name=context.whole_name(own.rv),
        assignment=own.assignment.name,
        family=family,
        object=own.object.ravel(),
        column=own.column.ravel(),
        known=known,
        statistics=statistics,
        log_base=log_base,
        layout=_layout(context, own, missing, order),
        missing=None
        if missing is None
        else Missing(
            missing.rv.name,
            context.shapes[missing.rv.name],
            missing.object.ravel(),
            missing.column.ravel(),
            missing.known.ravel(),
            whole,
            -1 - order[order < 0],
        ),
        varying=read,
        values=None if read is None else values,
        power=power,
    )


def _layout(
    context: Context, own: Reading, missing: Reading | None, order: NDArray[np.int64]
) -> RowLayout | None:
    """Find out whether a variable is a table with a row for each object, and what its columns are.

    What is known of a column may differ between rows: NaN then.
    """
    whole = []
    for part in ("object", "column", "known"):
        found = np.zeros(order.shape)
        found[order >= 0] = getattr(own, part).ravel()[order[order >= 0]]
        if missing is not None:
            found[order < 0] = getattr(missing, part).ravel()[-1 - order[order < 0]]
        whole.append(found.reshape(len(order), -1))
    objects, columns, known = whole
    n_objects = context.shapes[own.assignment.name][0]
    if len(objects) != n_objects or (objects != np.arange(n_objects)[:, None]).any():
        return None
    if (columns != columns[0]).any():
        return None
    same = (known == known[0]).all(axis=0)
    return RowLayout(order.shape, columns[0].astype(np.int64), np.where(same, known[0], np.nan))


# -- densities ------------------------------------------------------------------------------------


def _check_density(check: DensityCheck, own: Reading) -> None:
    """Hold declared densities against the family's, at random points."""
    expected = []
    shape = own.object.shape
    noise = None if own.noise is None else check.at([own.noise])
    values, natural = check.natural(own.rv), check.at(own.theta)
    for number, (x, theta) in enumerate(zip(values, natural, strict=True)):
        labels = check.value(number, own.assignment)[own.object.ravel()]
        rows = [
            t.reshape(len(t), -1, *(t.shape[-1:] if own.family.prior.vector else ())) for t in theta
        ]
        cells = [row[labels, own.column.ravel()] for row in rows]
        known = own.known
        if noise is not None:
            known = np.broadcast_to(noise[number][0], shape) ** -2.0
        x = np.asarray(x, np.float64)
        x = x.reshape(own.object.size, *x.shape[len(shape) :])
        expected.append(own.family.log_density(x, cells, known.ravel()).reshape(shape))
    if not check.agrees(own.rv, expected):
        raise Refusal(
            f"the declared density of {own.rv.name!r} is not {own.family.name} with the parameters "
            f"{names(own.theta)} of its objects' clusters"
        )


def _hyper_function(context: Context, theta: Sequence[RV], family: Family, check: DensityCheck):
    """Make a reader of the prior at a point, (M, h), or (M, K) for probabilities."""
    row = context.shapes[theta[0].name][1:]
    read = common_prior(context, theta, family.prior.parameters[0].law, check, len(row))

    def hyper(point) -> NDArray[np.float64]:
        found = read(point)
        if family.prior.vector:
            return found[0].reshape(-1, row[-1])
        return np.stack([value.ravel() for value in found], axis=1)

    return hyper
