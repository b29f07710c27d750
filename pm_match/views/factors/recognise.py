"""Reads linear factor models: views whose means are products of free latents and free loadings.

A view is an observed normal variable (N, D) with mean ``latent @ loading.T`` summed over pairs of
free variables, plus an intercept. Which variable plays which part is found by what the mean does
when they are moved, so that any way of writing it is understood; then the declared log densities
are held against these parts, entry by entry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.tensor.random.basic import (
    CauchyRV,
    LaplaceRV,
    MvNormalRV,
    NormalRV,
    StudentTRV,
)

from pm_match.reading.ancestry import RV, Refusal, a_kind, connected, mean, names, read_each, scale
from pm_match.reading.context import Context, Prior
from pm_match.reading.densities import DensityCheck, common, log_normal, same, still_common
from pm_match.reading.operations import not_analytic
from pm_match.reading.parts import Part, Point
from pm_match.views.factors.linear_factors import Array, MaskedTable
from pm_match.views.factors.starts import factor_start

# How far from zero means and precisions are looked at too.
_FAR = 1e4
# Of variables whose values may be any numbers, those that latents are declared as.
_UNBOUNDED = (NormalRV, MvNormalRV, LaplaceRV, StudentTRV, CauchyRV)


@dataclass(frozen=True, eq=False)
class Factor:
    """Latents or loadings: a free variable with one row for each object or feature.

    An intercept is the loadings of a latent that is 1.
    """

    name: str
    transposed: bool  # whether it is declared with one column for each object or feature
    shape: tuple[int, int]  # (int, int): objects or features, and factors
    declared: tuple[int, ...]  # its shape as it is declared
    # whether it is given, as something that is not of the factor model depends on it, or as it is
    # not declared normal
    foreign: bool
    unbounded: bool  # whether its values may be any numbers, as those of principal components are
    # from a point to mean and precision, both of `shape`, of its independent normal prior; None if
    # it is `foreign`
    prior: Prior = field(repr=False)
    value: Any = field(repr=False)  # from a point to its value, of `shape`, if it is `foreign`

    def arranged(self, value: NDArray) -> Array:
        """Bring an array that is arranged as the variable into `shape`."""
        return value.T if self.transposed else value.reshape(self.shape)

    def as_declared(self, value: NDArray) -> Array:
        """Bring an array of `shape` into the arrangement of the variable."""
        return np.ascontiguousarray(value.T if self.transposed else value).reshape(self.declared)


@dataclass(frozen=True, eq=False)
class FactorView:
    """One view."""

    name: str  # the observed variable, as the user named it
    table: MaskedTable  # its values (N, D)
    latents: tuple[int, ...]  # numbers, in the model, of the latents that enter its mean
    loadings: tuple[Factor, ...]  # of each of these
    intercept: Factor | None
    # the free variable that holds the missing values, in the order of the array
    missing: str | None
    # from a point to the noise precision (D,) of every feature
    noise: Callable[[Point], Array] = field(repr=False)

    @property
    def declared(self) -> list[str]:
        """The variables that PyMC holds it in: what is observed, and what is missing."""
        return [f"{self.name}_observed", self.missing] if self.missing else [self.name]

    @property
    def factors(self) -> list[Factor]:
        """All that its rows are free in: the loadings, and the intercept."""
        return [*self.loadings, *([self.intercept] if self.intercept else [])]


@dataclass(frozen=True, eq=False)
class GammaPrecision:
    """A free Gamma variable to which the precision of noise or of loadings is proportional."""

    name: str
    # tuple of (int, int): what its conditional depends on: the number of a view, and that of one of
    # its loadings, or -1 for the view's noise
    of: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]
    # its shape with axes added so that it broadcasts to the noise (D,) or loadings, as declared
    aligned: tuple[int, ...]
    prior: Prior = field(repr=False)  # from a point to shape and rate, both of the variable's shape

    def by_factor(self, loading: Factor) -> bool:
        """Whether the precision of loadings is the same for all features."""
        n_factors = loading.shape[1]
        two = (1,) * (2 - len(self.aligned)) + self.aligned
        features, factors = two[::-1] if loading.transposed else two
        return features == 1 and factors in (1, n_factors)


@dataclass(frozen=True, eq=False)
class FactorModel(Part):
    """Views that latents (or precisions) connect."""

    latents: tuple[Factor, ...]
    views: tuple[FactorView, ...]
    precisions: tuple[GammaPrecision, ...]

    @property
    def n_objects(self) -> int:
        """Number of objects."""
        return len(self.views[0].table.values)

    @property
    def own(self) -> list[int]:
        """Numbers of the latents that are ours to draw."""
        return [number for number, latent in enumerate(self.latents) if not latent.foreign]

    def private(self, number: int) -> bool:
        """Whether a latent enters one view only."""
        return len(self.entered(number)) == 1

    def entered(self, number: int) -> dict[tuple[int, int], Factor]:
        """Find the loadings that a latent enters views with, by numbers of view and loading."""
        return {
            (v, n): loading
            for v, view in enumerate(self.views)
            for n, (own, loading) in enumerate(zip(view.latents, view.loadings, strict=True))
            if own == number
        }

    def scaled_with(self, number: int) -> tuple[list[Factor], list[GammaPrecision]]:
        """Find what can take back a scaling of a latent, without a change of likelihood.

        `number`: of the latent. Return `loadings`: all that the latent enters with; `precisions`:
        those that the priors of these are proportional to, each one number or one for each factor;
        none if some of the loadings lack one, or if one is of something else too.
        """
        entered = self.entered(number)
        found = [p for p in self.precisions if entered.keys() & {*p.of}]
        covered = {key for p in found for key in p.of}
        whole = covered == entered.keys() and all(
            p.by_factor(entered[key]) for p in found for key in p.of
        )
        return list(entered.values()), found if whole else []

    @property
    def relabelled(self) -> list[str]:
        """Variables that signs, order or rotations of the factors change."""
        found = [latent.name for latent in self.latents]
        found += [loading.name for view in self.views for loading in view.loadings]
        return found + [p.name for p in self.precisions if p.of[0][1] >= 0]

    @property
    def names(self) -> list[str]:
        """The variables that `FactorGibbs` draws."""
        found = [self.latents[number].name for number in self.own]
        for view in self.views:
            found += [factor.name for factor in view.factors]
        found += [precision.name for precision in self.precisions]
        return found + [view.missing for view in self.views if view.missing]

    def start(self, rng: np.random.Generator, point: Point) -> dict[str, NDArray]:
        """Make values to start a chain from: principal components, and least squares."""
        return factor_start(self, rng, point)


def read_factor_models(context: Context) -> tuple[list[Part], dict[str, str]]:
    """Find the linear factor models of a model, and say which views look like one but are not."""
    linear = [own for own in _observed(context).items() if _looks_linear(context, own[1])]
    found, refused = read_each(linear, lambda one: _candidate(context, *one), lambda one: [one[0]])
    parts, more = read_each(
        _connected(context, found),
        lambda candidates: _model(context, candidates),
        lambda candidates: [candidate.name for candidate in candidates],
    )
    return parts, refused | more


# -- candidates, by ancestry and by what their means do -------------------------------------------


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A view as random variables: pairs are (latent, transposed, loading, transposed)."""

    name: str
    rvs: list[RV]
    table: MaskedTable
    pairs: list[tuple[RV, bool, RV, bool]]
    intercept: RV | None

    @property
    def latents(self) -> list[RV]:
        return [pair[0] for pair in self.pairs]

    @property
    def loadings(self) -> list[RV]:
        return [pair[2] for pair in self.pairs]


def _observed(context: Context) -> dict[str, list[RV]]:
    """Group normal variables that are observed, or hold the missing values of one, by name."""
    found: dict[str, list[RV]] = {}
    for rv in context.model.observed_RVs:
        if isinstance(rv.owner.op, NormalRV):
            missing = context.missing_part(rv)
            found[context.whole_name(rv)] = [rv] if missing is None else [rv, missing]
    return found


def _looks_linear(context: Context, rvs: list[RV]) -> bool:
    """Whether a mean depends on two arrays that could be multiplied, and on no assignment."""
    parents = context.ancestry.of([mean(rvs[0])])
    if not all(rv.dtype.startswith("float") for rv in parents):
        return False
    tables = [
        rv for rv in parents if rv in context.model.free_RVs and len(context.shapes[rv.name]) == 2
    ]
    if len(tables) < 2:
        return False
    shape = context.observed(rvs).shape
    return len(shape) == 2 and any(
        _orientations(context, (a, b), shape) for a, b in combinations(tables, 2)
    )


def _orientations(context, pair: tuple[RV, RV], shape) -> list[tuple[RV, bool, RV, bool]]:
    """Return how two arrays could be latents and loadings of a table of that shape."""
    found = []
    for latent, loading in (pair, pair[::-1]):
        a, b = context.shapes[latent.name], context.shapes[loading.name]
        for flip in (False, True):
            for turn in (False, True):
                (n, k), (d, m) = a[:: -1 if flip else 1], b[:: -1 if turn else 1]
                if (n, d) == tuple(shape) and k == m:
                    found.append((latent, flip, loading, turn))
    return found


def _table(context: Context, name: str, rvs: list[RV]) -> MaskedTable:
    table = MaskedTable(*context.table(rvs))
    empty = np.flatnonzero(table.n_of_feature == 0)
    if len(empty):
        raise Refusal(f"{name!r}: its column number {empty[0]} (from 0) has no observed value")
    return table


def _candidate(context: Context, name: str, rvs: list[RV]) -> _Candidate:
    """Find which variable plays which part in a view's mean."""
    table = _table(context, name, rvs)
    if len(rvs) == 2:
        context.ancestry.only_children(rvs[1], [])
    parents = sorted(context.ancestry.of([mean(rv) for rv in rvs]), key=lambda rv: rv.name)
    for rv in parents:
        context.must_be_free(rv)
        if rv.dtype != "float64":
            raise Refusal(f"{rv.name!r} is {rv.dtype}; expected float64 (PyTensor's floatX)")
    see = _mean_function(context, rvs, parents, table)
    rng = np.random.default_rng(20060901)
    some = {rv: rng.normal(size=context.shapes[rv.name]) for rv in parents}
    zero = {rv: np.zeros(context.shapes[rv.name]) for rv in parents}
    origin = see(zero)
    if not same(origin, np.zeros_like(origin)):
        raise Refusal(f"the mean of {name!r} is not zero where all of {names(parents)} are")
    n_features = table.values.shape[1]
    rest: list[RV] = []
    intercepts: list[RV] = []
    for rv in parents:
        flat = context.shapes[rv.name] in ((n_features,), (1, n_features))
        row = np.broadcast_to(some[rv].reshape(-1), origin.shape) if flat else None
        added = row is not None and same(see(zero | {rv: some[rv]}), row)
        (intercepts if added else rest).append(rv)
    pairs = []
    for one, other in combinations(rest, 2):
        if len(context.shapes[one.name]) != 2 or len(context.shapes[other.name]) != 2:
            continue
        possible = _orientations(context, (one, other), table.values.shape)
        if not possible:
            continue
        found = see(zero | {one: some[one], other: some[other]})
        pairs += [p for p in possible if same(found, _product(p, some))][:1]
    placed = [rv for pair in pairs for rv in (pair[0], pair[2])]
    strangers = [rv for rv in rest if placed.count(rv) != 1]
    if strangers or not pairs or len(intercepts) > 1:
        raise Refusal(
            f"the mean of {name!r} depends on {names(strangers or intercepts)} in a way that is "
            f"not served; expected a sum of products latent @ loading.T of free variables, and at "
            "most one intercept"
        )
    # At two scales: what is cut off far from zero is linear near it.
    for values in (some, {rv: _FAR * value for rv, value in some.items()}):
        total = sum(_product(pair, values) for pair in pairs)
        total = total + sum((values[rv].reshape(-1) for rv in intercepts), np.zeros(n_features))
        if not same(see(values), total):
            raise Refusal(f"the mean of {name!r} is not the sum of products of {names(placed)}")
    in_noise = context.ancestry.of([scale(rv) for rv in rvs]) & {*placed, *intercepts}
    if in_noise:
        raise Refusal(f"the noise of {name!r} depends on {names(in_noise)}, as its mean does")
    # Which may be one for each object: noise is read once for all of them.
    discrete = context.discrete([scale(rv) for rv in rvs])
    if discrete:
        verb = "is" if len(discrete) == 1 else "are"
        raise Refusal(f"the noise of {name!r} depends on {names(discrete)}, which {verb} discrete")
    for rv in [*(pair[2] for pair in pairs), *intercepts]:
        if not isinstance(rv.owner.op, NormalRV):
            raise Refusal(f"{rv.name!r} is {a_kind(rv)}; expected a Normal")
        context.must_be_untransformed(rv)
        context.ancestry.only_children(rv, rvs, drawn=True)
    return _Candidate(name, rvs, table, pairs, intercepts[0] if intercepts else None)


def _product(pair, values) -> Array:
    latent, flip, loading, turn = pair
    z, w = values[latent], values[loading]
    return (z.T if flip else z) @ (w if turn else w.T)


def _mean_function(context: Context, rvs, parents, table: MaskedTable):
    """Compile a view's mean (N, D) as a function of values of its parents."""
    means = context.function([mean(rv) for rv in rvs], parents)

    def see(values: Mapping[RV, Array]) -> Array:
        found = means(values)
        if table.observed is None:
            return np.broadcast_to(found[0], table.values.shape)
        # Observed and missing values have means of their own.
        joined = np.empty(table.values.shape)
        joined[table.observed], joined[~table.observed] = found
        return joined

    return see


def _connected(context: Context, candidates: list[_Candidate]) -> list[list[_Candidate]]:
    """Group views that share a latent, or a parent of their noise's or loadings' densities."""
    keys = {}
    for candidate in candidates:
        own = {*candidate.latents} | {
            parent
            for rv in (*candidate.rvs[:1], *candidate.loadings)
            for parent in context.ancestry.parents[rv]
        }
        own -= {candidate.intercept, *candidate.loadings}
        # Objects must be the same for one part to hold both.
        keys[candidate] = {(rv, len(candidate.table.values)) for rv in own}
    return [members for _, members in connected(keys)]


# -- what the candidates mean, by numbers --------------------------------------------------------


def _model(context: Context, candidates: list[_Candidate]) -> FactorModel:
    """Read the parts of connected views, and hold them against the declared densities."""
    views = [rv for candidate in candidates for rv in candidate.rvs]
    latents: list[tuple[RV, bool]] = []
    for candidate in candidates:
        for rv, flip, _, _ in candidate.pairs:
            in_noise = [c.name for c in candidates if rv in context.ancestry.of([scale(c.rvs[0])])]
            if in_noise:
                raise Refusal(f"the noise of {in_noise[0]!r} depends on {rv.name!r}")
            if (rv, flip) not in latents:
                if rv in [other for other, _ in latents]:
                    raise Refusal(f"{rv.name!r} is used both as it is and transposed")
                latents.append((rv, flip))
    checked = [rv for c in candidates for rv in (*c.rvs, *c.loadings)]
    checked += [c.intercept for c in candidates if c.intercept is not None]
    own = {rv for rv, _ in latents if _ours(context, rv, views)}
    checked += [rv for rv, _ in latents if rv in own]
    # Scales are read at every point, whatever they depend on.
    check = DensityCheck(context, checked, {}, lambda rv: [mean(rv)])
    factors = [_factor(context, rv, flip, rv not in own) for rv, flip in latents]
    found = []
    for candidate in candidates:
        loadings = tuple(_factor(context, rv, turn, False) for _, _, rv, turn in candidate.pairs)
        numbers = tuple(latents.index((rv, flip)) for rv, flip, _, _ in candidate.pairs)
        shift, rv = None, candidate.intercept
        if rv is not None:
            # It may be declared as a row.
            shape = candidate.table.values.shape[1], 1
            prior = context.normal_prior(rv, lambda own: own.reshape(-1, 1))
            declared = context.shapes[rv.name]
            shift = Factor(rv.name, False, shape, declared, False, True, prior, None)
        missing = candidate.rvs[1].name if len(candidate.rvs) == 2 else None
        noise = _noise_function(context, candidate, check)
        view = FactorView(candidate.name, candidate.table, numbers, loadings, shift, missing, noise)
        _check_view(check, candidate, view)
        found.append(view)
    for rv in checked:
        if rv not in views and not check.is_normal(rv, map(context.normal_prior(rv), check.points)):
            raise Refusal(f"{rv.name!r}: its declared log density is not that of a Normal")
    precisions = _precisions(context, check, candidates, found)
    return FactorModel(tuple(factors), tuple(found), precisions)


def _ours(context: Context, rv: RV, views: list[RV]) -> bool:
    """Whether a latent is normal, and nothing but views depends on it."""
    return (
        isinstance(rv.owner.op, NormalRV)
        and not context.transformed(rv)
        and not context.ancestry.strangers(rv, views)
    )


def _factor(context: Context, rv: RV, flip: bool, foreign: bool) -> Factor:
    arrange = np.transpose if flip else np.asarray
    declared = context.shapes[rv.name]
    n, k = declared[:: -1 if flip else 1]
    unbounded = isinstance(rv.owner.op, _UNBOUNDED) and not context.transformed(rv)
    prior: Any = None if foreign else context.normal_prior(rv, arrange)
    read = context.at([rv]) if foreign else None
    value = None if read is None else lambda point: arrange(read(point)[0])
    return Factor(rv.name, flip, (n, k), declared, foreign, unbounded, prior, value)


def _noise_function(
    context: Context, candidate: _Candidate, check: DensityCheck
) -> Callable[[Point], Array]:
    """Make a function for the noise precision (D,) of every feature, and check that it is one."""
    rv, table = candidate.rvs[0], candidate.table
    evaluate_at = context.at([scale(rv)])
    shape = table.values.shape
    place, n_observed = None, int(table.n_of_feature.sum())
    if table.observed is not None:
        # Observed values are in one row. What is missing stands for the first one of its feature.
        order = np.full(shape, -1)
        order[table.observed] = np.arange(n_observed)
        first = order[table.observed.argmax(axis=0), np.arange(shape[1])]
        place = np.where(table.observed, order, first)

    def widths(point: Point) -> NDArray:
        width = np.asarray(evaluate_at(point)[0], np.float64)
        if place is None or width.size == 1:
            return np.broadcast_to(width.reshape(()) if width.size == 1 else width, shape)
        return np.broadcast_to(width, (n_observed,))[place]

    for point in (*check.points, context.start):
        if common(widths(point), 1) is None:
            raise Refusal(
                f"the noise of {candidate.name!r} differs between objects; expected one for each "
                "feature"
            )
    of = f"the noise of {candidate.name!r}"
    return lambda point: still_common(widths(point), 1, of, "Sample by pm.sample()") ** -2.0


def _check_view(check: DensityCheck, candidate: _Candidate, view: FactorView) -> None:
    """Hold the declared log density of a view's entries against that of its parts."""
    placed = [rv for pair in candidate.pairs for rv in pair[::2]]
    # Given latents may have transforms.
    for number, (point, natural) in enumerate(zip(check.points, check.at(placed), strict=True)):
        values = dict(zip(placed, natural, strict=True))
        centre = np.sum([_product(pair, values) for pair in candidate.pairs], axis=0)
        if candidate.intercept is not None:
            centre = centre + check.value(number, candidate.intercept).reshape(-1)
        noise = np.broadcast_to(view.noise(point), centre.shape)
        for rv, seen in zip(candidate.rvs, _masks(view.table), strict=True):
            x = view.table.values[seen] if rv is candidate.rvs[0] else check.value(number, rv)
            expected = log_normal(x, centre[seen], noise[seen])
            if not same(np.ravel(check.declared(rv)[number]), np.ravel(expected)):
                raise Refusal(
                    f"{view.name!r}: its declared log density is not that of a Normal around "
                    f"products of {names([*candidate.latents, *candidate.loadings])} with one "
                    "noise for each feature"
                )


def _masks(table: MaskedTable) -> list[NDArray[np.bool_]]:
    if table.observed is None:
        return [np.ones(table.values.shape, bool)]
    return [table.observed, ~table.observed]


def _precisions(
    context: Context, check: DensityCheck, candidates: list[_Candidate], views: list[FactorView]
) -> tuple[GammaPrecision, ...]:
    """Find Gamma variables whose conditionals are Gamma; others are left to other steps."""
    readers: dict[tuple[int, int], tuple[RV, Callable[[Point], Array], tuple[int, ...]]] = {}
    for v, (candidate, view) in enumerate(zip(candidates, views, strict=True)):
        readers[v, -1] = candidate.rvs[0], view.noise, view.table.values.shape[1:]
        for n, rv in enumerate(candidate.loadings):
            prior = context.normal_prior(rv)
            second = lambda point, prior=prior: prior(point)[1]  # noqa: E731
            readers[v, n] = rv, second, context.shapes[rv.name]
    # Of what is missing, the noise is that of the view.
    holes = {c.rvs[1]: (v, -1) for v, c in enumerate(candidates) if len(c.rvs) == 2}
    children = {rv: key for key, (rv, _, _) in readers.items()} | holes
    taken: set[tuple[int, int]] = set()
    found = []
    for rv in context.model.free_RVs:
        below = context.ancestry.children(rv)
        if not (context.is_gamma(rv) and below and all(child in children for child in below)):
            continue
        keys = sorted({children[child] for child in below})
        means = context.ancestry.of([mean(readers[key][0]) for key in keys])
        if taken & set(keys) or len({key[1] >= 0 for key in keys}) > 1 or rv in means:
            continue
        scales = [scale(readers[key][0]) for key in keys]
        # A label or a flag may switch it off, or something cut it off.
        if context.discrete(scales) or not_analytic(context.model, scales):
            continue
        for aligned in (context.shapes[rv.name], (*context.shapes[rv.name], 1)):
            if all(_proportional(context, check, rv, aligned, *readers[key][1:]) for key in keys):
                shape, prior = context.shapes[rv.name], context.gamma_prior(rv)
                found.append(GammaPrecision(rv.name, tuple(keys), shape, aligned, prior))
                taken |= set(keys)
                break
    return tuple(found)


def _proportional(context, check: DensityCheck, rv: RV, aligned, read, shape) -> bool:
    """Whether a precision is proportional to a variable, entry by entry, and nothing else moves."""
    if len(aligned) > len(shape) or any(
        own not in (1, n) for own, n in zip(aligned[::-1], shape[::-1], strict=False)
    ):
        return False
    rng = np.random.default_rng(7)
    for point, far in product(check.points, (1.0, _FAR, 1.0 / _FAR)):
        factor = far * np.exp(rng.normal(size=context.shapes[rv.name]))
        before, after = read(point), read(context.multiplied(point, rv, factor))
        if not np.allclose(after, before * factor.reshape(aligned), rtol=1e-8, atol=0.0):
            return False
    return True
