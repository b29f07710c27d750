"""Reads relations: networks that share their densities, and the priors of those."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.networks import BlockNetworkParts
from pm_match.networks.data import PROBABILITIES, as_network, cell_numbers
from pm_match.networks.families import FAMILIES, PRIORS
from pm_match.networks.parts import MissingCells, NetworkCells, Relation
from pm_match.reading.ancestry import RV, Refusal, a_kind, kind, names
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, common_prior
from pm_match.reading.evidence import Point
from pm_match.reading.laws import Law


def relevance_of(networks: Mapping[RV, BlockNetworkParts]) -> dict[RV, RV]:
    """Return the relevance flags of every assignment that has some.

    They are the same in all networks, and no other assignment's.
    """
    found: dict[RV, RV | None] = {}
    for parts in networks.values():
        for assignment, flag in zip(parts.axes, parts.relevance, strict=True):
            if found.setdefault(assignment, flag) is not flag:
                raise Refusal(
                    f"the relevance of {assignment.name!r} is not the same in all networks over "
                    "it; expected the same variable in each"
                )
    flags = {assignment: flag for assignment, flag in found.items() if flag is not None}
    owner: dict[RV, RV] = {}
    for assignment, flag in flags.items():
        if owner.setdefault(flag, assignment) is not assignment:
            raise Refusal(
                f"{flag.name!r} is the relevance of {owner[flag].name!r} and of "
                f"{assignment.name!r}; expected a variable for each"
            )
    return flags


@dataclass(frozen=True, eq=False)
class RelationCandidate:
    """Networks that share their densities, by what they are declared with."""

    networks: Mapping[RV, BlockNetworkParts]
    missing: Mapping[RV, BlockNetworkParts]  # what holds missing cells of theirs

    @property
    def covered(self) -> list[RV]:
        """The claimed variables that it is evidence of."""
        return [*self.networks, *self.missing]

    @property
    def checked(self) -> list[RV]:
        """Means of blocks, whose prior depends on the precision."""
        parts = [own for own in self.networks.values() if own.family == "normal"]
        means = dict.fromkeys(rv for own in parts for rv in (*own.density[:1], *own.noise[:1]))
        return [rv for rv in means if kind(rv) == "Normal"]

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Relation:
        """Read the networks and their priors."""
        networks = self.networks
        parts = next(iter(networks.values()))
        home = {rv: number for number, c in enumerate(clusterings) for rv in c.assignments}
        axes = tuple(home[rv] for rv in parts.axes)
        for rv, other in (*networks.items(), *self.missing.items()):
            if tuple(home[a] for a in other.axes) != axes:
                raise Refusal(
                    f"{rv.name!r}: its axes are {names(other.axes)}, whose clusters are not those "
                    f"of {names(parts.axes)}, though they share the density {names(parts.density)}"
                )
        truncations = tuple(clusterings[number].truncation for number in axes)
        for rv in parts.density:
            if context.shapes[str(rv.name)] != truncations:
                raise Refusal(
                    f"{rv.name!r}: expected the shape {truncations}, the clusters of "
                    f"{names(parts.axes)}; found {context.shapes[str(rv.name)]}"
                )
        _check_one_axis_each(networks)
        _check_no_link_across(clusterings, networks, home)
        noise = next((p.noise for p in networks.values() if p.noise), ())
        priors = [_prior_function(context, parts.family, parts.density, check)]
        known = _known(context, noise) if noise else None
        if known is not None:
            first_number, *others = known
            constant = (first_number, np.inf, *others, 1.0, 1.0)[:4]
            priors.append(lambda point: constant)
        elif noise:
            priors.append(_prior_function(context, parts.family, noise, check))
        first = {
            rv: number
            for c in clusterings
            for rv, number in zip(
                c.assignments,
                np.cumsum([0, *(context.shapes[a.name][0] for a in c.assignments)]),
                strict=False,
            )
        }

        def prior(point: Point):
            return priors[0](point), priors[1](point) if noise else None

        seen = {context.whole_name(rv): rv for rv in networks}
        return Relation(
            family=parts.family,
            density=tuple(str(rv.name) for rv in parts.density),
            noise=() if known is not None else tuple(str(rv.name) for rv in noise),
            axes=axes,
            networks={
                context.whole_name(rv): _cells(context, rv, p, first) for rv, p in networks.items()
            },
            missing={
                context.whole_name(rv): MissingCells(
                    rv.name,
                    context.shapes[rv.name],
                    _whole(context, seen[context.whole_name(rv)]),
                    p.cells,
                    p.symmetric,
                    p.exposure,
                )
                for rv, p in self.missing.items()
                if p.cells is not None
            },
            one_mode=parts.one_mode,
            symmetric=parts.symmetric,
            self_loops=parts.self_loops,
            prior=prior,
        )


def _whole(context: Context, rv: RV) -> NDArray[np.float64]:
    """Return the values of a variable that is observed in part, NaN where it is not."""
    values = context.observed([rv])
    order = context.order(rv, values.shape)
    return np.where(order < 0, np.nan, values.ravel()[np.maximum(order, 0)])


def relation_candidates(
    context: Context,
    clusterings: Sequence[ClusteringCandidate],
    networks: Mapping[RV, BlockNetworkParts],
) -> list[RelationCandidate]:
    """Find the relations of a component, and refuse what looks like one only."""
    assignments = [rv for clustering in clusterings for rv in clustering.assignments]
    for network, parts in networks.items():
        strangers = [rv for rv in parts.axes if rv not in assignments]
        if strangers:
            found = ", ".join(
                sorted({repr(rv.name) if rv.name else _what(context, rv) for rv in strangers})
            )
            raise Refusal(
                f"{network.name!r} has {found} on an axis; expected free pm.Categorical assignments"
            )
    # By the densities that they share.
    groups: dict[tuple[RV, ...], dict[RV, BlockNetworkParts]] = {}
    for rv, parts in networks.items():
        groups.setdefault(parts.density, {})[rv] = parts
    relations = []
    for own in groups.values():
        missing = {rv: parts for rv, parts in own.items() if context.is_missing(rv)}
        seen = {rv: parts for rv, parts in own.items() if rv not in missing}
        _check_relation(context, seen, missing)
        relations.append(RelationCandidate(seen, missing))
    return relations


def _check_relation(
    context: Context,
    networks: Mapping[RV, BlockNetworkParts],
    missing: Mapping[RV, BlockNetworkParts],
) -> None:
    """Refuse networks that share densities and differ in what else they should share."""
    whole = {context.whole_name(rv): own for rv, own in networks.items()}
    for rv, other in missing.items():
        seen = whole.get(context.whole_name(rv))
        if seen is None or seen.axes != other.axes:
            raise Refusal(f"{rv.name!r}: what is observed of it is no network like it")
        context.ancestry.only_children(rv, [], drawn=True)
    parts = next(iter(networks.values()))
    for what in ("family", "one_mode", "symmetric", "self_loops"):
        if len({getattr(p, what) for p in networks.values()}) > 1:
            raise Refusal(f"{names(networks)} share their density and differ in {what}")
    noises = {p.noise for p in networks.values() if p.noise}
    known = [_known(context, noise) for noise in noises]
    if len(noises) > 1 and (None in known or len({*known}) > 1):
        raise Refusal(
            f"{names(networks)} share their density and not their noise; expected both or neither"
        )
    for values in known:
        _check_known(networks, parts.family, values)
    free = [noise for noise, values in zip(noises, known, strict=True) if values is None]
    for declared in (parts.density, *free):
        for rv, law in zip(declared, _laws(parts.family), strict=True):
            if rv not in context.model.basic_RVs or not law.has(rv):
                own = rv in context.model.basic_RVs
                raise Refusal(
                    (f"{rv.name!r}, " if rv.name else "") + f"a parameter of {names(networks)}, is "
                    f"{a_kind(rv) if own else _what(context, rv)}; "
                    f"expected a {law.name}, the {parts.family} family's conjugate prior"
                )
            context.must_be_free(rv)
            context.must_be_plain(rv, law.transform(rv))
        for rv in declared:
            others = [*networks, *missing, *(declared[:-1] if rv is declared[-1] else ())]
            context.ancestry.only_children(rv, others)


def _laws(family: str) -> list[Law]:
    """Give the laws that the parameters of a family are declared with."""
    return [own.law for own in PRIORS[FAMILIES[family]].parameters]


def _what(context: Context, graph: RV) -> str:
    """Say what is no random variable itself."""
    parents = context.ancestry.of([graph])
    return f"an expression of {names(parents)}" if parents else "a constant"


def _known(context: Context, noise: tuple[RV, ...]) -> tuple[float, ...] | None:
    """Return the parameters of noise that depends on no random variable, None of any other."""
    if context.ancestry.of(noise):
        return None
    return tuple(float(value) for value in context.at(noise)({}))


def _check_known(
    networks: Mapping[RV, BlockNetworkParts], family: str, values: tuple[float, ...] | None
) -> None:
    """Refuse known noise under which some cells are impossible."""
    most = 1.0 if family in PROBABILITIES else np.inf
    if values is not None and not 0.0 < values[-1] < most:
        what = "precision of the noise" if family == "normal" else "noise"
        raise Refusal(
            f"the {what} of {names(networks)} is {values[-1]}; expected a number above 0"
            + (" and below 1" if family in PROBABILITIES else "")
        )


def _cells(context: Context, rv: RV, parts: BlockNetworkParts, first) -> NetworkCells:
    table, n_axes = context.observed([rv]), len(parts.axes)
    if parts.cells is not None:
        table = np.column_stack([parts.cells, table.ravel()])
    table = table[table[:, 0] >= 0]
    shape = tuple(int(context.shapes[str(a.name)][0]) for a in parts.axes)
    try:
        # `BlockNetwork` has checked what it was given; a table may have come another way, and
        # what is declared in plain PyMC is checked nowhere else.
        network = as_network(
            str(rv.name),
            (table[:, :n_axes].astype(np.int64), table[:, n_axes]),
            shape=shape,
            absent=parts.absent,
            family=parts.family,
            symmetric=parts.symmetric,
            self_loops=parts.self_loops,
            one_mode=parts.one_mode,
        )
    except (ValueError, TypeError) as error:
        raise Refusal(str(error)) from error
    cells = NetworkCells(
        shape=shape,
        index=network.index,
        values=network.values,
        full=parts.absent == "zero",
        unknown=np.asarray(parts.unknown, np.int64).reshape(-1, n_axes),
        exposure=parts.exposure,
        first=tuple(int(first[a]) for a in parts.axes),
    )
    _check_listed(rv, cells)
    return cells


def _check_listed(rv: RV, cells: NetworkCells) -> None:
    """Refuse listed cells that are declared unknown, or that can hold nothing but zero."""
    listed, unknown = cell_numbers(cells.shape, cells.index, cells.unknown)
    impossible = (cells.cell_exposures(cells.index) == 0.0) & (cells.values != 0.0)
    for wrong, why in (
        (np.isin(listed, unknown), "is declared unknown"),
        (impossible, "has an exposure of zero"),
    ):
        if wrong.any():
            cell = tuple(cells.index[wrong][0].tolist())
            raise Refusal(f"{rv.name!r} lists cell {cell}, which {why}")


def _check_one_axis_each(networks: Mapping[RV, BlockNetworkParts]) -> None:
    """Refuse an assignment that is on several axes: its objects' cells would share blocks."""
    axis_of: dict[RV, int] = {}
    for rv, parts in networks.items():
        if parts.one_mode:
            continue
        for axis, assignment in enumerate(parts.axes):
            if axis_of.setdefault(assignment, axis) != axis:
                raise Refusal(
                    f"{assignment.name!r} is on different axes of {names(networks)}, which share "
                    f"the density {names(parts.density)}; at {rv.name!r} expected a density of "
                    "its own"
                )


def _check_no_link_across(clusterings, networks, home) -> None:
    """Refuse links between the two axes of a network: their cell would move with both its ends."""
    for rv, parts in networks.items():
        if parts.one_mode:
            continue
        for number in {home[a] for a in parts.axes}:
            clustering = clusterings[number]
            mine = [a for a in parts.axes if home[a] == number]
            if len(mine) > 1 and clustering.constraints:
                raise Refusal(
                    f"{names(clustering.constraints, 'links')} objects of clusters that are on "
                    f"several axes of {rv.name!r} ({names(mine)})"
                )


def _prior_function(context: Context, family: str, declared: tuple[RV, ...], check: DensityCheck):
    """Parameters of the prior at a point (see `families`)."""
    read = common_prior(context, declared, _laws(family)[0], check)

    def prior(point: Point) -> tuple[float, float, float, float]:
        a, b, c, d = [*map(float, read(point)), 1.0, 1.0][:4]
        return a, b, c, d

    return prior
