"""Reads feature vectors with marginals of their own: intercepts, noise, deviations, relevance.

What a domain looks like is read from the declared graphs by numbers: its mean, with the latent
vectors replaced by unit vectors, gives the projection and the intercept, however they are written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.continuous import Flat
from pymc.distributions.multivariate import WishartRV
from pymc.logprob.basic import logp
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pm_match.evidence.marginals import Marginal, with_deviations
from pm_match.evidence.projected_normal import DomainData
from pm_match.structure.ancestry import RV, Refusal, kind, mean, names, scale
from pm_match.structure.context import Context
from pm_match.structure.densities import DensityCheck, log_normal, same
from pm_match.structure.functions import PLAIN, natural_function
from pm_match.structure.parts import Parameter, View

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
    model = context.model
    labels = pt.lvector()
    rows = pt.matrix(dtype=candidate.dtype)
    try:
        replaced = _replace([mean(rv)], {assignment: labels, candidate: rows})
        (graph,) = model.replace_rvs_by_values(replaced)
        inputs = [v for v in explicit_graph_inputs([graph]) if v in set(model.value_vars)]
        function = pytensor.function(
            [labels, rows, *inputs], graph, mode=PLAIN, on_unused_input="ignore"
        )
        start = model.initial_point(0)
        given = [start[v.name] for v in inputs]
        shape = context.shapes[candidate.name]
        label = np.arange(context.shapes[assignment.name][0]) % shape[0]
        some = np.random.default_rng(1).normal(size=shape)
        zero = function(label, np.zeros(shape), *given)
        moved = function(label, some, *given)
    except Exception:
        return False
    return moved.shape[1:] == shape[1:] and np.allclose(moved - zero, some[label])


def _replace(outputs: Sequence[RV], replacements: dict[RV, Any]) -> list[RV]:
    return list(graph_replace(list(outputs), list(replacements.items()), strict=False))


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
        self._data = data
        self._shapes = [domain.values.shape for domain in data]
        smallest = min(n for n, _ in self._shapes)
        self._n_rows = min(context.shapes[graphs.latent.name][0], smallest)
        self._function, self._probed, self._inputs = self._compile(context)
        self._idle = [
            _idle_function(context, rv, flag) if flag is not None else None
            for rv, flag in zip(graphs.observed, graphs.flags, strict=True)
        ]

    def _compile(self, context):
        graphs, model = self.graphs, context.model
        shapes = {rv: context.shapes[rv.name] for rv in self._replaced if rv is not None}
        stands = {rv: pt.tensor(dtype=rv.dtype, shape=shape) for rv, shape in shapes.items()}
        outputs = [scale(graphs.latent)]
        outputs += [scale(v) if v is not None else pt.constant(0.0) for v in graphs.deviations]
        outputs += [p for rv in graphs.observed for p in (mean(rv), scale(rv))]
        try:
            replaced = _replace(outputs, stands)
            replaced = model.replace_rvs_by_values([pt.as_tensor(v) for v in replaced])
            inputs = [v for v in explicit_graph_inputs(replaced) if v in set(model.value_vars)]
            function = pytensor.function(
                [*stands.values(), *inputs], replaced, mode=PLAIN, on_unused_input="ignore"
            )
            probes = self._probes(shapes)
            function(*probes[0], *[model.initial_point(0)[v.name] for v in inputs])
        except Exception as error:
            raise Refusal(
                f"the means of {names(graphs.observed)} are not functions of their objects' "
                f"clusters alone ({type(error).__name__})"
            ) from error
        return function, probes, [v.name for v in inputs]

    @property
    def _replaced(self) -> list[RV | None]:
        graphs = self.graphs
        return [
            graphs.latent,
            graphs.precision,
            *graphs.assignments,
            *graphs.deviations,
            *graphs.flags,
        ]

    def _probes(self, shapes) -> list[list[NDArray]]:
        """Return values in place of latent vectors and labels.

        They put a cluster at the origin and one at each unit vector, in as many goes as there are
        rows for.
        """
        graphs, k = self.graphs, self.graphs.n_factors
        corners = np.vstack([np.zeros((1, k)), np.eye(k)])
        found = []
        for first in range(0, k + 1, self._n_rows):
            rows = corners[first : first + self._n_rows]
            probe = []
            for rv, shape in shapes.items():
                value = np.zeros(shape, rv.dtype)
                if rv is graphs.latent:
                    value[: len(rows)] = rows
                elif rv in graphs.assignments:
                    value[: len(rows)] = np.arange(len(rows))
                elif rv is graphs.precision or rv in graphs.flags:
                    value = np.ones(shape, rv.dtype)
                probe.append(value)
            found.append(probe)
        return found

    def __call__(self, point) -> View:
        """Read the view at a point of value variables."""
        graphs = self.graphs
        given = [point[name] for name in self._inputs]
        passes = [[np.asarray(v) for v in self._function(*p, *given)] for p in self._probed]
        found = passes[0]
        n = len(graphs.observed)
        latent_precision = _one_number(graphs.latent, found[0]) ** -2.0
        scales: list[NDArray | None] = [
            None if deviation is None else _one_row(deviation, width, shape[1])
            for deviation, width, shape in zip(
                graphs.deviations, found[1 : n + 1], self._shapes, strict=True
            )
        ]
        projections, intercepts, roots = [], [], []
        for d, (rv, (n_objects, m)) in enumerate(zip(graphs.observed, self._shapes, strict=True)):
            place = n + 1 + 2 * d
            if found[place].shape != (n_objects, m):
                raise Refusal(f"the mean of {rv.name!r} has not one row for each object")
            rows = np.concatenate([values[place][: self._n_rows] for values in passes])
            centre, width = rows[: graphs.n_factors + 1], found[place + 1]
            intercepts.append(centre[0].copy())
            projections.append((centre[1:] - centre[0]).T)
            roots.append(_root(rv, width, m))
        whole = with_deviations(projections, scales, latent_precision)
        marginals = tuple(
            Marginal(np.ascontiguousarray(w), a, root)
            for w, a, root in zip(whole, intercepts, roots, strict=True)
        )
        return View(marginals, tuple(scales), latent_precision)

    def idle(self, point) -> list[NDArray[np.float64] | None]:
        """Log density of every object (N_d,) as an irrelevant one; None where all are relevant."""
        return [
            None if function is None else function(point, domain.values)
            for function, domain in zip(self._idle, self._data, strict=True)
        ]


def _idle_function(context: Context, rv: RV, flag: RV) -> Callable:
    """Compile the log density of irrelevant objects as a function of a point and the data."""
    model = context.model
    data = pt.matrix(dtype=rv.dtype)
    zeros = pt.constant(np.zeros(context.shapes[flag.name], dtype=flag.dtype))
    (irrelevant,) = _replace([rv], {flag: zeros})
    (log_density,) = model.replace_rvs_by_values([logp(irrelevant, data)])
    inputs = [v for v in explicit_graph_inputs([log_density]) if v in set(model.value_vars)]
    function = pytensor.function([data, *inputs], log_density, mode=PLAIN, on_unused_input="ignore")

    def idle(point, values) -> NDArray[np.float64]:
        found = np.asarray(function(values, *[point[v.name] for v in inputs]), np.float64)
        return found.sum(axis=1) if found.ndim == 2 else found

    return idle


def _one_number(rv: RV, value: NDArray) -> float:
    if not np.allclose(value, value.flat[0], rtol=1e-12):
        raise Refusal(f"the scale of {rv.name!r} is not one number")
    return float(value.flat[0])


def _one_row(rv: RV, value: NDArray, n: int) -> NDArray[np.float64]:
    rows = value.reshape(1, -1) if value.ndim < 2 else value
    if not (rows == rows[0]).all() or rows.shape[1] not in (1, n):
        raise Refusal(
            f"the scale of {rv.name!r} differs between clusters; expected one for each feature"
        )
    return np.broadcast_to(rows[0], (n,)).astype(float)


def _root(rv: RV, width: NDArray, n: int) -> NDArray[np.float64]:
    """Return L, with noise precision L L', from a standard deviation or a covariance."""
    if isinstance(rv.owner.op, MvNormalRV):
        width = width.reshape(-1, *width.shape[-2:])
        if width.shape[1:] != (n, n) or not (width == width[0]).all():
            raise Refusal(f"the covariance of {rv.name!r} differs between objects; expected one")
        # The inverse of the transposed factor of the covariance is a root of the precision.
        lower = np.linalg.cholesky(width[0])
        return np.ascontiguousarray(np.linalg.inv(lower).T)
    rows = width.reshape(1, -1) if width.ndim < 2 else width
    if not (rows == rows[0]).all() or rows.shape[1] not in (1, n):
        raise Refusal(
            f"the noise of {rv.name!r} differs between objects; expected one for each feature"
        )
    return 1.0 / np.broadcast_to(rows[0], (n,)).astype(float)


# -- what they mean, by numbers -------------------------------------------------------------------


def check_marginals(
    context: Context, check: DensityCheck, graphs: Graphs, data, reader: ViewReader
) -> None:
    """Refuse if the declared densities are not those of the views that are read."""
    for number, point in enumerate(check.points):
        try:
            view = reader(point)
        except np.linalg.LinAlgError as error:
            raise Refusal(
                f"the noise of {names(graphs.observed)} is not positive definite"
            ) from error
        alpha = 1.0
        if graphs.precision is not None:
            alpha = float(natural_function(context.model, [graphs.precision.name])(point)[0])
        latent = check.value(number, graphs.latent)
        expected = log_normal(latent, 0.0, alpha * view.latent_precision)
        if not same(check.declared(graphs.latent)[number], expected):
            raise Refusal(
                f"{graphs.latent.name!r}: its declared log density is not that of independent "
                "Normal(0, sigma) with one sigma"
            )
        idle = reader.idle(point)
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
                for v in (graphs.assignments[d], graphs.latent):
                    key = context.model.rvs_to_values[v].name
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
        if rv not in entering or strangers or not rv.dtype.startswith("float"):
            continue
        if any(not p.dtype.startswith("float") for p in ancestry.parents[rv]):
            continue
        update, domain = _update(context, check, graphs, reader, rv)
        if update:
            found.append(Parameter(rv.name, update, domain))
    served = {p.name for p in found}
    for rv in model.free_RVs:
        children = ancestry.children(rv)
        if (
            children
            and rv not in known | home
            and rv.name not in served
            and rv.dtype.startswith("float")
            and int(np.prod(context.shapes[rv.name])) <= _MOST_SLICED
            and all(child.name in served for child in children)
        ):
            found.append(Parameter(rv.name, "prior", -1))
    return tuple(found)


def _update(context, check, graphs, reader, rv) -> tuple[str, int]:
    """Say which draw a parameter gets, and for which domain; an empty string for none of ours."""
    model = context.model
    plain = model.rvs_to_transforms[rv] is None
    homes = [d for d, o in enumerate(graphs.observed) if rv in context.ancestry.parents[o]]
    elsewhere = set(context.ancestry.children(rv)) - {graphs.observed[d] for d in homes}
    if len(homes) == 1 and not elsewhere:
        (d,) = homes
        conjugate = not _moves_idle(context, check, reader, rv, d)
        natural = natural_function(model, [rv.name])
        pairs = [(natural(p)[0], reader(p).marginals[d]) for p in check.points]
        k = graphs.n_factors
        if conjugate and plain and isinstance(rv.owner.op, NormalRV):
            if all(np.array_equal(v, m.intercept) for v, m in pairs):
                return "intercept", d
            for update, flip in (("projection", False), ("transposed", True)):
                if all(
                    v.ndim == 2
                    and (v.T if flip else v).shape == m.projection[:, :k].shape
                    and np.allclose(v.T if flip else v, m.projection[:, :k], rtol=1e-12)
                    for v, m in pairs
                ):
                    return update, d
        if (
            conjugate
            and graphs.precision is None
            and isinstance(rv.owner.op, WishartRV)
            and all(v.shape == m.precision.shape and same(v, m.precision) for v, m in pairs)
        ):
            return "wishart", d
    if kind(rv) == "Flat" or isinstance(rv.owner.op, Flat):
        raise Refusal(
            f"{rv.name!r} is flat; where the noise is not one shared precision, or there are "
            "intercepts, expected projections with a proper prior"
        )
    if plain and isinstance(rv.owner.op, NormalRV):
        return "normal", -1
    if int(np.prod(context.shapes[rv.name])) <= _MOST_SLICED:
        return "slice", -1
    return "", -1


def _moves_idle(context, check, reader, rv, d) -> bool:
    """Whether the density of a domain's irrelevant objects depends on a variable."""
    before = [reader.idle(point)[d] for point in check.points]
    if before[0] is None:
        return False
    key = context.model.rvs_to_values[rv].name
    for point, old in zip(check.points, before, strict=True):
        new = reader.idle(point | {key: point[key] + 0.1})[d]
        if not np.array_equal(old, new):
            return True
    return False
