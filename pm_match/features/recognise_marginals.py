"""Reads feature vectors with marginals of their own: intercepts, noise, deviations, relevance.

What a domain looks like is read from the declared graphs by numbers: its mean, with the latent
vectors replaced by unit vectors, gives the projection and the intercept, however they are written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.continuous import Flat
from pymc.distributions.multivariate import WishartRV
from pymc.logprob.basic import logp
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pm_match.features.marginals import Marginal, with_deviations
from pm_match.features.parts import Parameter, View
from pm_match.features.projected_normal import DomainData
from pm_match.reading.ancestry import RV, Refusal, kind, mean, names, scale
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, common, log_normal, same
from pm_match.reading.probe import compiled, stand_in

# More numbers than this in one variable are not drawn one by one.
_MOST_SLICED = 100


@dataclass(frozen=True, eq=False)
class Graphs:
    """The graphs of the features of a clustering, from which `View`s are read.

    Attributes
    ----------
    observed, assignments : list of variables
        For each domain.
    deviations, flags : list of (variable or None)
        For each domain.
    latent : variable
    precision : variable or None
        The precision that all noise shares; None if the noise of the domains is given.
    n_factors : int
    """

    observed: list[RV]
    assignments: list[RV]
    deviations: list[RV | None]
    flags: list[RV | None]
    latent: RV
    precision: RV | None
    n_factors: int


def deviation_of(context: Context, rv: RV, assignment: RV, truncation: int) -> RV | None:
    """Find the deviations of a domain: what its mean has besides, one row for each cluster.

    They are told from a projection that happens to have the same shape by what they do: to a row's
    objects they add the row.
    """
    candidates = [
        p
        for p in context.ancestry.of([mean(rv)])
        if p is not assignment
        and isinstance(p.owner.op, NormalRV)
        and len(context.shapes.get(p.name, ())) == 2
        and context.shapes[p.name][0] == truncation
    ]
    found = [p for p in candidates if _adds_rows(context, rv, assignment, p)]
    if len(found) > 1:
        raise Refusal(
            f"{names(found)} could each be the deviations of {rv.name!r} from its clusters' latent "
            "vectors; expected one"
        )
    return found[0] if found else None


def _adds_rows(context, rv, assignment, candidate) -> bool:
    """Whether the mean is something plus ``candidate[assignment]``."""
    labels, rows = stand_in(assignment), stand_in(candidate)
    shape = context.shapes[candidate.name]
    label = np.arange(context.shapes[assignment.name][0]) % shape[0]
    some = np.random.default_rng(1).normal(size=shape)
    try:
        stands = {assignment: labels, candidate: rows}
        function, _ = compiled(context.model, [mean(rv)], stands, [labels, rows])
        (zero,) = function(context.start, label, np.zeros(shape))
        (moved,) = function(context.start, label, some)
    except Exception:
        return False
    return moved.shape[1:] == shape[1:] and np.allclose(moved - zero, some[label])


class _Part:
    """A graph as a function of a point, evaluated anew only when what enters it has changed.

    Parameters
    ----------
    model : pymc.Model
    graph : variable
    stands : sequence of (variable, variable)
        Random variables, and the inputs that replace them.
    probes : sequence of list of array
        Values of these inputs; one evaluation for each.
    finish : callable
        What is made of the list of values found.
    """

    def __init__(self, model, graph, stands, probes, finish):
        inputs = [stand for _, stand in stands]
        self._function, self.inputs = compiled(model, [graph], dict(stands), inputs)
        self._probes, self._finish = probes, finish
        self._given: list[NDArray] | None = None
        self._found: Any = None

    def __call__(self, point) -> Any:
        given = [point[name] for name in self.inputs]
        if self._given is None or not all(map(np.array_equal, given, self._given)):
            found = [self._function(point, *probe)[0] for probe in self._probes]
            # Copies: points may be written to by those who own them.
            self._found, self._given = self._finish(found), [np.array(v) for v in given]
        return self._found


class ViewReader:
    """Evaluates how features vary, at any point.

    Parameters
    ----------
    context : Context
    graphs : Graphs
    data : sequence of DomainData

    Raises
    ------
    Refusal
        If the mean of a domain is not a function of the label alone.
    """

    def __init__(self, context: Context, graphs: Graphs, data: Sequence[DomainData]):
        self.graphs = graphs
        self._model, self._shapes = context.model, context.shapes
        self._data = data
        latent = graphs.latent
        self._latent = self._part(scale(latent), None, lambda found: _one_number(latent, found[0]))
        self._means, self._noises, self._spreads = [], [], []
        for d, (rv, domain) in enumerate(zip(graphs.observed, data, strict=True)):
            m, deviation = domain.values.shape[1], graphs.deviations[d]
            self._means.append(self._mean(context, d))
            self._noises.append(
                self._part(scale(rv), d, lambda found, rv=rv, m=m: noise_root(rv, found[0], m))
            )
            self._spreads.append(
                None
                if deviation is None
                else self._part(
                    scale(deviation),
                    None,
                    lambda found, rv=deviation, m=m: _one_row(
                        found[0], m, f"the scale of {rv.name!r} differs between clusters"
                    ),
                )
            )
        self._kept: list[tuple] = [() for _ in data]
        self._idle = [
            None if flag is None else _idle_function(context, rv, flag, domain)
            for rv, flag, domain in zip(graphs.observed, graphs.flags, data, strict=True)
        ]
        # A reading must not keep its model alive (see `structure.read`).
        del self._model

    def _part(self, graph: RV, d: int | None, finish) -> _Part:
        """Make a part in which nothing is probed: neither clusters nor latent vectors enter it."""
        stands, values = self._stands(d, None)
        return _Part(self._model, graph, stands, [values], finish)

    def _stands(self, d: int | None, n: int | None) -> tuple[list, list[NDArray]]:
        """Make inputs for what is replaced, and values for them: all relevant, all else zero.

        With `n`, domain `d` is one of so many objects.
        """
        graphs, stands, values = self.graphs, [], []
        for rv in (graphs.latent, graphs.precision, *graphs.deviations):
            if rv is not None:
                shape = self._shapes[rv.name]
                stands.append((rv, stand_in(rv, shape)))
                values.append(np.full(shape, float(rv is graphs.precision), rv.dtype))
        for rv in [] if d is None else [graphs.assignments[d], graphs.flags[d]]:
            if rv is not None:
                shape = self._shapes[rv.name] if n is None else (n,)
                stands.append((rv, stand_in(rv, (None,) if n else shape)))
                values.append(np.full(shape, int(rv in graphs.flags), rv.dtype))
        return stands, values

    def _mean(self, context: Context, d: int) -> _Part:
        """Make the part with a domain's mean: its intercept and its projection.

        Read from a few objects alone if their number does not matter to the graph, as it should.
        """
        graphs, rv = self.graphs, self.graphs.observed[d]
        n_rows = min(self._shapes[graphs.latent.name][0], graphs.n_factors + 1)
        n_objects = self._shapes[graphs.assignments[d].name][0]
        why: Exception | None = None
        for n in (n_rows, None):
            try:
                part = self._probed_mean(d, n, n_objects)
                part(context.start)
                return part
            except Refusal as refusal:
                why = refusal
            except Exception as error:
                why = Refusal(
                    f"the mean of {rv.name!r} is not a function of its objects' clusters alone "
                    f"({type(error).__name__})"
                )
        assert why is not None
        raise why

    def _probed_mean(self, d: int, n: int | None, n_objects: int) -> _Part:
        """Probe a mean: put a cluster at the origin and one at each unit vector.

        They are put there in as many goes as there are rows for.
        """
        graphs, k = self.graphs, self.graphs.n_factors
        rv, m = graphs.observed[d], self._data[d].values.shape[1]
        n_rows = n or min(self._shapes[graphs.latent.name][0], n_objects)
        corners = np.vstack([np.zeros((1, k)), np.eye(k)])
        stands, _ = self._stands(d, n)
        probes = []
        for first in range(0, k + 1, n_rows):
            rows = corners[first : first + n_rows]
            _, values = self._stands(d, n)
            for (replaced, _), value in zip(stands, values, strict=True):
                if replaced is graphs.latent:
                    value[: len(rows)] = rows
                elif replaced is graphs.assignments[d]:
                    value[: len(rows)] = np.arange(len(rows))
            probes.append(values)

        def finish(found):
            for values in found:
                if values.shape != (n or n_objects, m):
                    raise Refusal(f"the mean of {rv.name!r} has not one row for each object")
            rows = np.concatenate([values[:n_rows] for values in found])[: k + 1]
            return rows[0].copy(), np.ascontiguousarray((rows[1:] - rows[0]).T)

        return _Part(self._model, mean(rv), stands, probes, finish)

    def __call__(self, point) -> View:
        """Read the view at a point of value variables.

        The marginal of a domain is the same object as long as nothing of it changes.
        """
        latent_precision = self._latent(point) ** -2.0
        scales = tuple(None if part is None else part(point) for part in self._spreads)
        own = any(s is not None for s in scales)
        for d, (mean_part, noise) in enumerate(zip(self._means, self._noises, strict=True)):
            centre, root = mean_part(point), noise(point)
            key = (centre, root, *((scales[d], latent_precision) if own else ()))
            kept = self._kept[d]
            if kept and len(kept[0]) == len(key) and all(map(_is, kept[0], key)):
                continue
            intercept, projection = centre
            if own:
                projection = with_deviations(projection, d, scales, latent_precision)
            self._kept[d] = key, Marginal(projection, intercept, root)
        return View(tuple(marginal for _, marginal in self._kept), scales, latent_precision)

    def idle(self, point) -> list[NDArray[np.float64] | None]:
        """Log density of every object (N_d,) as an irrelevant one; None where all are relevant."""
        return [None if own is None else own[0](point) for own in self._idle]

    def idle_of(self, number: int) -> tuple[Callable, list[str]] | None:
        """Return the log density of a domain's irrelevant objects, and what enters it."""
        return self._idle[number]


def _is(one, other) -> bool:
    """Whether two keys are the same: one object, or one number."""
    return one is other or (isinstance(one, float) and one == other)


def _idle_function(context: Context, rv: RV, flag: RV, domain: DomainData):
    """Compile the log density of a domain's objects as irrelevant ones; say what enters it."""
    data, values = stand_in(rv), domain.values
    nobody = {flag: np.zeros(context.shapes[flag.name])}
    function, names = compiled(context.model, [logp(rv, data)], nobody, [data])

    def idle(point) -> NDArray[np.float64]:
        found = np.asarray(function(point, values)[0], np.float64)
        return found.sum(axis=1) if found.ndim == 2 else found

    return idle, names


def _one_number(rv: RV, value: NDArray) -> float:
    number = common(value)
    if number is None:
        raise Refusal(f"the scale of {rv.name!r} is not one number")
    return float(number)


def _one_row(value: NDArray, n: int, why: str) -> NDArray[np.float64]:
    row = common(np.atleast_2d(value), 1)
    if row is None or len(row) not in (1, n):
        raise Refusal(f"{why}; expected one for each feature")
    return np.broadcast_to(row, (n,)).astype(float)


def noise_root(rv: RV, width: NDArray, n: int) -> NDArray[np.float64]:
    """Return L, with noise precision L L', from a standard deviation or a covariance."""
    if isinstance(rv.owner.op, MvNormalRV):
        covariance = common(width, 2)
        if covariance is None or covariance.shape != (n, n):
            raise Refusal(f"the covariance of {rv.name!r} differs between objects; expected one")
        # The inverse of the transposed factor of the covariance is a root of the precision.
        lower = np.linalg.cholesky(covariance)
        return np.ascontiguousarray(np.linalg.inv(lower).T)
    return 1.0 / _one_row(width, n, f"the noise of {rv.name!r} differs between objects")


# -- what they mean, by numbers -------------------------------------------------------------------


def check_marginals(
    context: Context, check: DensityCheck, graphs: Graphs, data, reader: ViewReader
) -> None:
    """Refuse if the declared densities are not those of the views that are read."""
    alphas = [1.0] * len(check.points)
    if graphs.precision is not None:
        alphas = [float(alpha) for alpha in check.natural(graphs.precision)]
    for number, (point, alpha) in enumerate(zip(check.points, alphas, strict=True)):
        try:
            view = reader(point)
        except np.linalg.LinAlgError as error:
            raise Refusal(
                f"the noise of {names(graphs.observed)} is not positive definite"
            ) from error
        latent = check.value(number, graphs.latent)
        expected = log_normal(latent, 0.0, alpha * view.latent_precision)
        if not same(check.declared(graphs.latent)[number], expected):
            raise Refusal(
                f"{graphs.latent.name!r}: its declared log density is not that of independent "
                "Normal(0, sigma) with one sigma"
            )
        idle = reader.idle(point)
        deviations = [v for v in graphs.deviations if v is not None]
        for d, rv in enumerate(graphs.observed):
            marginal, deviation = view.marginals[d], graphs.deviations[d]
            label = check.value(number, graphs.assignments[d])
            centre = latent @ marginal.projection[:, : graphs.n_factors].T + marginal.intercept
            if deviation is not None:
                own = check.value(number, deviation)
                centre = centre + own
                tau = np.asarray(view.scales[d]) ** -2.0
                if not same(check.declared(deviation)[number], log_normal(own, 0.0, tau)):
                    raise Refusal(
                        f"{deviation.name!r}: its declared log density is not that of independent "
                        "Normal(0, sigma)"
                    )
            residual = marginal.whiten(data[d].values - centre[label])
            logs = marginal.log_constants(data[d]) - 0.5 * alpha * np.square(residual).sum(axis=1)
            logs += 0.5 * data[d].values.shape[1] * np.log(alpha)
            own_idle, flag = idle[d], graphs.flags[d]
            if own_idle is not None:
                relevant = check.value(number, flag) > 0
                other = dict(point)
                for v in (graphs.assignments[d], graphs.latent, *deviations):
                    key = context.key(v)
                    other[key] = np.zeros_like(point[key])
                if not same(own_idle, reader.idle(other)[d]):
                    raise Refusal(
                        f"{rv.name!r}: objects that are irrelevant by {names([flag])} still depend "
                        "on their cluster"
                    )
                logs = np.where(relevant, logs, own_idle)
            declared = check.declared(rv)[number]
            declared = declared.sum(axis=1) if declared.ndim == 2 else declared
            if not same(declared, logs):
                raise Refusal(
                    f"{rv.name!r}: its declared log density is not that of a normal around the "
                    f"projected vectors {graphs.latent.name!r} of its objects' clusters"
                )


def parameters_of(
    context: Context, check: DensityCheck, graphs: Graphs, reader: ViewReader
) -> tuple[Parameter, ...]:
    """Find the free variables that views depend on, and say how each is drawn."""
    ancestry, model = context.ancestry, context.model
    known = {
        graphs.latent,
        graphs.precision,
        *graphs.assignments,
        *graphs.deviations,
        *graphs.flags,
    }
    home = {graphs.latent, *graphs.observed, *(v for v in graphs.deviations if v is not None)}
    entering: set[RV] = set().union(*(ancestry.parents[rv] for rv in home)) - known
    found = []
    for rv in model.free_RVs:
        strangers = set(ancestry.children(rv)) - home
        if rv not in entering or strangers or _discrete_parents(context, rv):
            continue
        update, domain = _update(context, check, graphs, reader, rv)
        if update:
            found.append(Parameter(rv.name, update, domain))
    taken = {rv.name for rv in known | home if rv is not None}
    return (*found, *hyperparameters_of(context, {p.name for p in found}, taken))


def hyperparameters_of(context: Context, served: set[str], taken: set[str]) -> list[Parameter]:
    """Find the free variables that only the priors of variables `served` by a step depend on.

    Those `taken` are not considered.
    """
    model, ancestry = context.model, context.ancestry
    found = []
    for rv in model.free_RVs:
        children = ancestry.children(rv)
        if (
            children
            and rv.name not in taken | served
            and not _discrete_parents(context, rv)
            and _number_by_number(context, rv)
            and all(child.name in served for child in children)
            and not any(rv in _moved_by(context, child) for child in children)
        ):
            found.append(Parameter(rv.name, "prior", -1))
    return found


def _discrete_parents(context: Context, rv: RV) -> bool:
    """Whether a variable or what it depends on is discrete."""
    return any(not v.dtype.startswith("float") for v in (rv, *context.ancestry.parents[rv]))


def _number_by_number(context: Context, rv: RV) -> bool:
    """Whether the numbers of a variable can be drawn one by one, on the scale that is sampled."""
    op = rv.owner.op
    free = context.transformed(rv) or isinstance(op, MvNormalRV) or getattr(op, "ndim_supp", 1) == 0
    return free and context.start[context.key(rv)].size <= _MOST_SLICED


def _moved_by(context: Context, rv: RV) -> set[RV]:
    """Return what a variable's natural value depends on besides the value that is sampled."""
    transform = context.model.rvs_to_transforms[rv]
    if transform is None:
        return set()
    value = context.model.rvs_to_values[rv]
    return context.ancestry.of([transform.backward(value, *rv.owner.inputs)])


def _update(context, check, graphs, reader, rv) -> tuple[str, int]:
    """Say which draw a parameter gets, and for which domain; an empty string for none of ours."""
    plain = not context.transformed(rv)
    homes = [d for d, o in enumerate(graphs.observed) if rv in context.ancestry.parents[o]]
    elsewhere = set(context.ancestry.children(rv)) - {graphs.observed[d] for d in homes}
    if len(homes) == 1 and not elsewhere and not _moves_idle(context, check, reader, rv, homes[0]):
        (d,) = homes
        own = [reader(p).marginals[d] for p in check.points]
        pairs = [*zip(check.natural(rv), own, strict=True)]
        k = graphs.n_factors
        if plain and isinstance(rv.owner.op, NormalRV):
            if all(np.array_equal(v, m.intercept) for v, m in pairs) and _moves_only(
                context, check, reader, rv, d, "intercept"
            ):
                return "intercept", d
            for update, flip in (("projection", False), ("transposed", True)):
                if all(
                    v.ndim == 2
                    and (v.T if flip else v).shape == m.projection[:, :k].shape
                    and np.allclose(v.T if flip else v, m.projection[:, :k], rtol=1e-12)
                    for v, m in pairs
                ) and _moves_only(context, check, reader, rv, d, "projection"):
                    return update, d
        if (
            graphs.precision is None
            and isinstance(rv.owner.op, WishartRV)
            and all(v.shape == m.precision.shape and same(v, m.precision) for v, m in pairs)
            and _moves_only(context, check, reader, rv, d, "root")
        ):
            return "wishart", d
    if kind(rv) == "Flat" or isinstance(rv.owner.op, Flat):
        raise Refusal(
            f"{rv.name!r} is flat; where the noise is not one shared precision, or there are "
            "intercepts, expected projections with a proper prior"
        )
    if plain and isinstance(rv.owner.op, NormalRV):
        return "normal", -1
    return ("slice", -1) if _number_by_number(context, rv) else ("", -1)


def _moves_only(context, check, reader, rv, d: int, what: str) -> bool:
    """Whether nothing of a domain's marginal depends on a variable but `what`."""
    key = context.key(rv)
    others = {"intercept", "projection", "root"} - {what}
    for point in check.points:
        old = reader(point).marginals[d]
        new = reader(point | {key: point[key] + 0.1}).marginals[d]
        for other in others:
            before, after = getattr(old, other), getattr(new, other)
            # A projection is what is left when an intercept is taken away: up to rounding.
            if not np.allclose(before, after, rtol=1e-9, atol=1e-9):
                return False
    return True


def _moves_idle(context, check, reader, rv, d) -> bool:
    """Whether the density of a domain's irrelevant objects depends on a variable."""
    before = [reader.idle(point)[d] for point in check.points]
    if before[0] is None:
        return False
    key = context.key(rv)
    for point, old in zip(check.points, before, strict=True):
        new = reader.idle(point | {key: point[key] + 0.1})[d]
        if not np.array_equal(old, new):
            return True
    return False
