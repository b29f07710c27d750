"""Log densities of what depends on labels, entry by entry, at many label vectors at once.

What a declared graph says is asked of the graph itself: labels stand for rows of labels, and the
rest is PyTensor's to vectorise, for as many rows as memory is well spent on. Where it cannot, one
row is evaluated after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.transforms import _default_transform
from pymc.logprob.utils import CheckParameterValue, local_remove_check_parameter
from pymc.model.core import Model
from pytensor.compile.mode import get_default_mode
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace, graph_replace, vectorize_graph
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, toposort
from pytensor.scalar.basic import AND, Cast, add, mul, neg, sub
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from pm_match.reading.ancestry import RV, Refusal, names
from pm_match.reading.context import Context
from pm_match.reading.entering import Marks, entering
from pm_match.reading.probe import (
    PLAIN,
    compiled,
    density_graphs,
    function,
    point_function,
    seeded,
    stand_in,
)

# From a point, and rows of labels for every assignment (B, N), and then of what is varied beside
# (B, ...), to log densities (B, E).
Entries = Callable[[Mapping[str, NDArray], Sequence[NDArray[np.int64]]], NDArray[np.float64]]

# Places where labels may enter that are told apart.
MOST_USES = 64
# Numbers in the largest intermediate result of the rows that are evaluated at once.
_MOST_CELLS = 2**20


class LabelDensities:
    """Log densities of `factors` as functions of labels, on the scale that is sampled.

    `factors`: random variables and potentials that depend on labels; `varied`: observed ones whose
    values are given with the labels, after these, rather than as observed; `by_use`: whether labels
    are given anew for every place where they enter. It has `factors`: in the order of the entries:
    potentials last (they do not go to other processes); `uses`: of which assignment every vector of
    labels that is given has them.
    """

    def __init__(
        self,
        model: Model,
        factors: Sequence[RV],
        assignments: Sequence[RV],
        varied: Sequence[RV] = (),
        by_use: bool = False,
    ):
        potentials = [rv for rv in factors if rv in model.potentials]
        self.factors = [*(rv for rv in factors if rv not in potentials), *potentials]
        graphs = map(_unsummed, density_graphs(model, self.factors, sum=False))
        self._graphs: list[RV] = [pt.as_tensor(graph, dtype="float64") for graph in graphs]
        stands = {model.rvs_to_values[rv]: model.rvs_to_values[rv].type(rv.name) for rv in varied}
        if stands:
            # Of variables that observe the same numbers, PyMC keeps one.
            held: dict[RV, RV] = {
                v: stand
                for v in ancestors(self._graphs)
                for value, stand in stands.items()
                if v is value or (isinstance(v, Constant) and v.equals(value))
            }
            self._graphs = [*graph_replace(self._graphs, held, strict=True)]
        self._graphs = [_stable(graph) for graph in self._graphs]
        labels = [model.rvs_to_values[rv] for rv in assignments]
        values = {*model.value_vars} - {*labels}
        self.uses = [*range(len(labels))]
        if by_use:
            self._graphs, own = _by_use(self._graphs, labels)
            if len(own) > MOST_USES:
                raise Refusal(
                    f"{names(self.factors)}: expected labels of "
                    f"{names({v for _, v in own})} to enter in at most {MOST_USES} places; found "
                    f"{len(own)}"
                )
            self.uses, labels = [labels.index(v) for _, v in own], [stand for stand, _ in own]
        labels += stands.values()
        self._labels, self._varied = labels, [*stands.values()]
        self._rows = [pt.tensor(dtype=v.dtype, shape=(None,) * (v.ndim + 1)) for v in labels]
        self._inputs: list[RV] = [v for v in explicit_graph_inputs(self._graphs) if v in values]
        self._compiled: dict[tuple[int, bool, bool], Entries] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the model, and what is compiled."""
        left_out = {"factors", "_plain"}
        state = {name: own for name, own in self.__dict__.items() if name not in left_out}
        return state | {"_compiled": {}}

    @property
    def keys(self) -> list[str]:
        """Names of the values that are read of points."""
        return [str(v.name) for v in self._inputs]

    def shapes(
        self, point: Mapping[str, NDArray], labels: Sequence[NDArray[np.int64]]
    ) -> list[tuple[int, ...]]:
        """Return the shapes of all factors' log densities, at one vector of labels (N,) each.

        Most often, shapes follow from shapes, and nothing else is evaluated.
        """
        read = self._function(self._labels, [graph.shape for graph in self._graphs], PLAIN)
        return [tuple(map(int, shape)) for shape in read(*labels, *self._values(point))]

    def entered_by(
        self,
        conditions: bool,
        point: Mapping[str, NDArray],
        labels: Sequence[NDArray],
        marked: Sequence[Mapping[str, Marks]],
    ) -> list[Marks]:
        """Say of every factor which of its entries (K, ...) each of K sets of numbers enters.

        `conditions`: as of `compiled`; `labels` (each N,): as of `shapes`. Whatever the
        values of what is varied are, nothing else enters. `marked`: by the names of values, which
        of their numbers are marked.
        """
        graphs = [_by_entry(graph, conditions) for graph in self._graphs]
        inputs = [*self._labels, *self._inputs]
        values = dict(zip(inputs, [*labels, *self._values(point)], strict=True))
        named = {str(v.name): v for v in self._inputs}
        # Whatever parameters are: labels alone are as they are given.
        return _entered(graphs, values, named, marked, [*self._varied, *self._inputs])

    def only(self, which: Sequence[bool]) -> "LabelDensities":
        """Return the log densities of some of the factors."""
        found = copy(self)
        found.factors, found._graphs = (
            [*compress(own, which)] for own in (self.factors, self._graphs)
        )
        inputs = {*explicit_graph_inputs(found._graphs)}
        found._inputs = [v for v in self._inputs if v in inputs]
        return found

    @cached_property
    def _plain(self) -> Callable[..., list[NDArray]]:
        """Evaluates the factors at one vector of labels for each assignment."""
        return self._function(self._labels, [_by_entry(g, False) for g in self._graphs])

    def _function(self, labels: Sequence[RV], graphs: Sequence[RV], mode: Any = None) -> Any:
        """Make a function of labels and values: PyTensor's in some mode, or interpreted."""
        inputs = [*labels, *self._inputs]
        if mode is None:
            return function(inputs, graphs)
        found = pytensor.function(inputs, graphs, mode=mode, on_unused_input="ignore")
        found.trust_input = True
        return found

    def _values(self, point) -> list[NDArray]:
        return [np.asarray(point[v.name], v.dtype) for v in self._inputs]

    def batch(
        self, conditions: bool, point: Mapping[str, NDArray], labels: Sequence[NDArray[np.int64]]
    ) -> int:
        """Find how many rows of labels may be evaluated at once: 1 for one after the other.

        As many as keep every intermediate result below a million numbers or so; one if PyTensor
        cannot make one graph of all rows, or one whose intermediate results outgrow the rows.

        `conditions`: as of `compiled`; `labels` (each 2, ...): two rows for every
        assignment, and of what is varied.
        """
        try:
            graphs = self._all_rows(conditions)
            tensors: list[RV] = [
                v
                for node in toposort(graphs)
                for v in node.outputs
                if isinstance(v.type, pt.TensorType)
            ]
            # Every result is asked for its size, and let go of.
            sizes = self._function(self._rows, [pt.prod(v.shape, dtype="int64") for v in tensors])
            with np.errstate(all="ignore"):
                one, two = (
                    np.array(sizes(*self._cast(self._rows, labels, n), *self._values(point)))
                    for n in (1, 2)
                )
        except Exception:
            return 1
        if (two > 2 * one).any():
            return 1
        return max(_MOST_CELLS // max(int((two - one).max(initial=0)), 1), 1)

    def compiled(self, batch: int, conditions: bool, fast: bool = False) -> Entries:
        """Compile the entries.

        `batch`: how many rows of labels PyTensor makes one graph of: 1 for one row after the other;
        `conditions`: whether what parameters have to satisfy is asked of each entry by itself; it
        is not asked at all otherwise, where what they give may be no number; `fast`: whether to
        optimise, which takes seconds, and takes single rows several times as fast.
        """
        given = 1 if fast else batch, conditions, fast
        if given not in self._compiled:
            self._compiled[given] = self._entries(*given)
        return self._compiled[given]

    def _all_rows(self, conditions: bool) -> list[RV]:
        """Make graphs of all rows of labels at once."""
        graphs = [_by_entry(graph, conditions) for graph in self._graphs]
        rows = dict(zip(self._labels, self._rows, strict=True))
        return [*vectorize_graph(graphs, rows)]

    def _cast(self, like: Sequence[RV], rows: Sequence[NDArray], n: int) -> list[NDArray]:
        return [np.asarray(r[:n], v.dtype) for r, v in zip(rows, like, strict=True)]

    def _entries(self, batch: int, conditions: bool, fast: bool) -> Entries:
        mode, single = get_default_mode() if fast else None, batch == 1
        labels = self._labels if single else self._rows
        if not single:
            call = self._function(labels, self._all_rows(conditions), mode)
        elif conditions or fast:
            graphs = [_by_entry(graph, conditions) for graph in self._graphs]
            call = self._function(labels, graphs, mode)
        else:
            call = self._plain

        def entries(point, rows) -> NDArray[np.float64]:
            values, n, found = self._values(point), len(rows[0]), np.empty((0, 0))
            rows = self._cast(labels, rows, n)
            for start in range(0, n, batch):
                some = slice(start, start + batch)
                with np.errstate(all="ignore"):
                    parts = call(*[row[start] if single else row[some] for row in rows], *values)
                own = min(batch, n - start)
                parts = [np.reshape(part, (own, -1)) for part in parts]
                if start == 0:
                    found = np.empty((n, sum(part.shape[1] for part in parts)))
                place = 0
                for part in parts:
                    found[some, place : place + part.shape[1]] = part
                    place += part.shape[1]
            # What has no density at a label is impossible there.
            found[np.isnan(found)] = -np.inf
            return found

        return entries


def _unsummed(graph: RV) -> RV:
    """Return what a log density is the sum of, entry by entry: of a sum, several, or multiples."""
    node = graph.owner
    if node is None or graph.ndim:
        return graph
    if isinstance(node.op, CAReduce):
        return _unsummed(node.inputs[0]) if node.op.scalar_op == add else graph
    scalar = getattr(node.op, "scalar_op", None)
    if scalar not in (add, sub, mul, neg):
        return graph
    entries = [_unsummed(v) for v in node.inputs]
    sums = sum(own is not v for own, v in zip(entries, node.inputs, strict=True))
    if sums and scalar in (add, sub):
        first, *others = [pt.flatten(own) for own in entries]
        return pt.concatenate([first, *(others if scalar == add else map(pt.neg, others))])
    return node.op(*entries) if sums == 1 else graph


def _by_use(graphs: Sequence[RV], labels: Sequence[RV]) -> tuple[list[RV], list[tuple[RV, RV]]]:
    """Give labels a variable of its own for every place where they enter the rest of some graphs.

    Two uses of what depends on one place alone, such as `mean[label]`, are two places. Return the
    new graphs; what stands for labels, and for which.
    """
    found: list[tuple[RV, RV]] = []
    # What depends on labels; on nothing else; on that, or on one place, by one input after another.
    below, pure, apart, done = {*labels}, {*labels}, {*labels}, dict[RV, RV]()

    def own(v: RV) -> RV:
        """Copy what depends on one place, with other labels."""
        if v in labels:
            found.append((v.type(), v))
            return found[-1][0]
        if v not in apart:
            return v
        return v.owner.clone_with_new_inputs([*map(own, v.owner.inputs)]).outputs[v.index]

    for node in toposort(graphs):
        entering = [v for v in node.inputs if v in below]
        if not entering:
            continue
        below |= {*node.outputs}
        if all(v in pure or isinstance(v, Constant) for v in node.inputs):
            pure |= {*node.outputs}
        elif len(entering) > 1 or entering[0] not in apart:
            inputs = [own(v) if v in apart else done.get(v, v) for v in node.inputs]
            outputs = node.clone_with_new_inputs(inputs).outputs
            done |= zip(node.outputs, outputs, strict=True)
            continue
        apart |= {*node.outputs}
    return [own(v) if v in apart else done.get(v, v) for v in graphs], found


def _stable(graph: RV) -> RV:
    """Write a graph so that it is right where it would underflow, as compiled log densities are."""
    (cloned,) = clone_replace([graph])
    return rewrite_graph(cloned, include=("stabilize",), clone=False)


def _by_entry(graph: RV, conditions: bool) -> RV:
    """Let what does not satisfy a condition on its parameters be impossible, entry by entry.

    PyMC asks whether all entries do: a label would then be impossible for all objects if it is for
    one. Of a condition on more than entries have axes for, or on other axes, all along these count.
    """
    own = _EACH if conditions else _NONE
    (cloned,) = clone_replace([graph])
    return rewrite_graph(cloned, include=(), custom_rewrite=own, clone=False)


@node_rewriter([CheckParameterValue])
def _ask_each(fgraph, node):
    found, *conditions = node.inputs
    for condition in conditions:
        for part in parts(condition):
            while not _fits(part, found):
                part = pt.all(part, axis=-1)
            found = pt.switch(part, found, np.array(-np.inf, found.dtype))
    return [found]


def _fits(condition: RV, entries: RV) -> bool:
    """Whether a condition is on the entries' own last axes, or for all along them."""
    lengths = zip(reversed(condition.type.shape), reversed(entries.type.shape), strict=False)
    return condition.ndim <= entries.ndim and all(
        n in (1, None, m) or m is None for n, m in lengths
    )


_EACH, _NONE = out2in(_ask_each), out2in(local_remove_check_parameter)


def parts(condition: RV) -> list[RV]:
    """Take a condition apart that holds if all of some others do."""
    node = condition.owner
    scalar = getattr(node.op, "scalar_op", None) if node is not None else None
    every = isinstance(scalar, AND)
    joins = node is not None and (
        isinstance(node.op, MakeVector | DimShuffle | ScalarFromTensor)
        or (every and isinstance(node.op, CAReduce | Elemwise))
        or (isinstance(node.op, Elemwise) and isinstance(scalar, Cast))
    )
    if node is not None and isinstance(node.op, Join):
        return [part for own in node.inputs[1:] for part in parts(own)]
    if not joins:
        return [condition]
    if isinstance(node.op, DimShuffle) and node.inputs[0].ndim > 0:
        return [condition]
    return [part for own in node.inputs for part in parts(own)]


def prior_draws(
    context: Context, variables: Sequence[RV]
) -> Callable[[np.random.Generator, Mapping[str, NDArray]], dict[str, NDArray]]:
    """Make joint draws of variables from their prior at a point, on the scale that is sampled.

    `variables`: free ones. Return a function of a generator and a point, which returns values by
    the names of the value variables.
    """
    model, outputs = context.model, []
    parents = {p for rv in variables for p in context.ancestry.parents[rv]} - {*variables}
    # What their priors depend on besides each other.
    given = [rv for rv in model.free_RVs if rv in parents]
    for rv in variables:
        transform = model.rvs_to_transforms[rv]
        outputs.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    stands = {rv: stand_in(rv) for rv in given}
    drawn = seeded([*stands.values()], graph_replace(outputs, [*stands.items()], strict=False))
    natural, dtypes = point_function(model, given), [rv.dtype for rv in given]
    values = [model.rvs_to_values[rv] for rv in variables]
    keys = [(str(v.name), v.dtype) for v in values]

    def draw(rng: np.random.Generator, point: Mapping[str, NDArray]) -> dict[str, NDArray]:
        found = drawn(rng, *map(np.asarray, natural(point), dtypes))
        return {key: np.asarray(v, d) for (key, d), v in zip(keys, found, strict=True)}

    return draw


def has_default_transform(model: Model, rv: RV) -> bool:
    """Whether a variable is sampled on the scale that PyMC chooses for it, or on its own."""
    transform = model.rvs_to_transforms[rv]
    return transform is None or type(transform) is type(_default_transform(rv.owner.op, rv))


def lacks_transform(model: Model, rv: RV) -> bool:
    """Whether a variable is sampled on its own scale where PyMC would choose another one."""
    transform = model.rvs_to_transforms[rv]
    return transform is None and _default_transform(rv.owner.op, rv) is not None


def value_densities(model: Model, variables: Sequence[RV]) -> Callable[[Any], list[NDArray]]:
    """Compile the log densities of variables, entry by entry, on the scale that is sampled.

    They are -inf where a condition on parameters does not hold.
    """
    graphs = density_graphs(model, variables, sum=False)
    return compiled(model, [_by_entry(graph, True) for graph in graphs])[0]


def values_entering(
    model: Model,
    variables: Sequence[RV],
    point: Mapping[str, NDArray],
    marked: Sequence[Mapping[str, Marks]],
) -> list[Marks]:
    """Say of `value_densities` which entries (K, ...) each of K sets of numbers enters."""
    graphs = [_by_entry(graph, True) for graph in density_graphs(model, variables, sum=False)]
    named = {str(v.name): v for v in model.value_vars}
    values = {v: np.asarray(point[name], v.dtype) for name, v in named.items()}
    return _entered(graphs, values, named, marked, model.value_vars)


def _entered(
    graphs: Sequence[RV],
    values: Mapping[RV, NDArray],
    named: Mapping[str, RV],
    marked: Sequence[Mapping[str, Marks]],
    changing: Sequence[RV],
) -> list[Marks]:
    """Say of graphs which of their entries (K, ...) each of K sets of numbers enters."""
    sets = [{named[key]: own for key, own in marks.items() if key in named} for marks in marked]
    found = entering(graphs, values, sets, changing)
    return [np.stack(own) for own in zip(*found, strict=True)]


def value_gradient(
    model: Model, factors: Sequence[RV], variables: Sequence[RV]
) -> Callable[[Any], tuple[float, list[NDArray]]]:
    """Compile the joint log density of factors, and its gradient in the values of variables."""
    graph = density_graphs(model, factors)
    slopes: Any = pt.grad(graph, [model.rvs_to_values[rv] for rv in variables])
    read, _ = compiled(model, [graph, *slopes])

    def gradient(point) -> tuple[float, list[NDArray]]:
        found, *own = read(point)
        return float(found), own

    return gradient
