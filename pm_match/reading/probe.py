"""Looks into the graphs of a model: what is read at points, and by putting values in their place.

All access to graphs that readers need is here: what they ask for is what a graph says with some of
its variables replaced, so that every way of writing the same model says the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray
from pymc.initial_point import convert_str_to_rv_dict, make_initial_point_expression
from pymc.model.core import Model
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, get_default_mode
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, graph_replace, vectorize_graph
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.link.basic import PerformLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.scalar.basic import Cast
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape
from pytensor.tensor.variable import TensorConstant

from pm_match.reading.ancestry import RV
from pm_match.reading.interpret import Interpreted, NotInterpretedError
from pm_match.reading.kept import Kept
from pm_match.reading.owners import binary_digits, from_digits


@contextmanager
def without_c(if_default: bool = False) -> Iterator[None]:
    """Let PyTensor compile no C meanwhile (a decorator, too).

    It does to fold constants, or to find initial points, and waits some seconds each time. Nor does
    it note in which line every variable was made: a sixth of the time of reading a model.

    `if_default`: whether it compiles none either if that is what it does by default.
    """
    flags: dict[str, Any] = {"traceback__limit": 0}
    if if_default or isinstance(get_default_mode().linker, NumbaLinker):
        flags["cxx"] = ""
    with pytensor.config.change_flags(**flags):
        yield


def float_type() -> str:
    """Return the type of numbers that PyTensor computes in."""
    return pytensor.config.floatX


def computing_in(float_type: str) -> AbstractContextManager[None]:
    """Let PyTensor compute in numbers of this type meanwhile."""
    return pytensor.config.change_flags(floatX=float_type)


class _Interpreter(PerformLinker):
    """PyTensor's, which would compile graphs inside of operations, as all stick-breaking has."""

    def make_all(self, *args: Any, **kwargs: Any) -> Any:
        with without_c(if_default=True):
            return super().make_all(*args, **kwargs)


class _Mode(Mode):
    """PyTensor's, which would look up all rewrites again for every graph: a fifth of the time.

    Rewrites keep what operations they have seen, and so are not kept for ever themselves.
    """

    _rewrites: Any = None
    _graphs_left = 0

    @property
    def optimizer(self) -> Any:
        """Rewrites of the mode."""
        if self._graphs_left <= 0:
            self._rewrites, self._graphs_left = super().optimizer, 30
        self._graphs_left -= 1
        return self._rewrites


# Interpreted and hardly rewritten: these graphs are tiny or run a handful of times, and compiling
# them would take longer than everything else in a start-up.
PLAIN = _Mode(linker=_Interpreter(), optimizer="fast_compile")

# From a point of value variables to the values of graphs there.
Reader = Callable[[Any], list[Any]]


_STARTS: Kept[dict[str, NDArray]] = Kept()


def initial_point(model: Model) -> dict[str, NDArray]:
    """Return the point of value variables that PyMC starts from."""
    point = _STARTS.of(model)
    if point is None:
        with without_c():
            point = _STARTS.keep(model, starts(model)(0))
    return {name: np.array(value) for name, value in point.items()}


def starts(
    model: Model, jittered: Iterable[RV] = (), given: Mapping[str, Any] | None = None
) -> Callable[[int], dict[str, NDArray]]:
    """Make a function of a seed that gives PyMC's initial points, some variables jittered.

    PyMC's own rewrites the graph at length, to evaluate it once. Where starts are drawn from priors
    of several variables, the same seed may give another of them. `given`: values of variables, as
    PyMC takes them in place of those that models are declared with.
    """
    own = {} if given is None else convert_str_to_rv_dict(model, dict(given))
    graphs = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies={**model.rvs_to_initial_values, **own},
        jitter_rvs=set(jittered),
        return_transformed=True,
    )
    draw, names = seeded([], graphs), [str(model.rvs_to_values[rv].name) for rv in model.free_RVs]
    return lambda seed: dict(zip(names, draw(seed), strict=True))


def seeded(inputs: Sequence[RV], outputs: Sequence[RV]) -> Callable[..., list[NDArray]]:
    """Make a function of the values of variables that draws what is random.

    It is given a seed first, and then draws as PyMC does, or a generator.
    """
    outputs = replace_rng_nodes(outputs)
    generators, draw = find_rng_nodes(outputs), function(inputs, outputs)

    def drawn(by: int | np.random.Generator, *values: Any) -> list[NDArray]:
        if isinstance(by, np.random.Generator):
            for own in generators:
                seed: Any = _Seed(by)
                own.set_value(np.random.Generator(np.random.PCG64(seed)), borrow=True)
        else:
            reseed_rngs(generators, by)
        return draw(*values)

    return drawn


class _Seed(ISeedSequence):
    """What a generator begins with, drawn by another one.

    An operation draws by a copy of the generator that it is given. What NumPy keeps to make others
    of is the slow part of that, and here there is nothing to copy.
    """

    def __init__(self, rng: np.random.Generator):
        self._bytes = rng.bytes(32)

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint32) -> NDArray:
        """Return the words that a generator asks for."""
        return np.frombuffer(self._bytes, dtype, n_words)

    def __deepcopy__(self, memo: dict) -> "_Seed":
        return self


def evaluate(variable: RV) -> NDArray:
    """Evaluate a variable that depends on nothing."""
    held = held_value(variable)
    if held is not None:
        return np.array(held)
    # Rewritten, a shape follows from others: nothing has to be drawn for it.
    return _rewritten([], [variable])()[0]


def n_entries(variable: RV) -> int:
    """Count the entries of a variable along its first axis."""
    known = variable.type.shape[0]
    return int(evaluate(variable.shape[0])) if known is None else known


def uncast(variable: RV) -> RV:
    """Return what a variable is a copy of with another type of numbers, or itself."""
    while variable.owner is not None and isinstance(
        getattr(variable.owner.op, "scalar_op", None), Cast
    ):
        (variable,) = variable.owner.inputs
    return variable


def held_value(variable: RV) -> NDArray | None:
    """Return what a constant or a shared variable holds; None if it is neither."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    return variable.get_value(borrow=True) if isinstance(variable, SharedVariable) else None


def compiled(
    model: Model,
    outputs: Sequence[RV],
    replaced: Mapping[RV, Any] | None = None,
    inputs: Sequence[RV] = (),
) -> tuple[Callable[..., list[NDArray]], list[str]]:
    """Compile graphs of random and value variables.

    `replaced`: random variables, and what takes their place; `inputs`: what the graphs depend on
    besides, or in place of these. Return `function`: of a point of value variables, and of values
    of the inputs; `names`: what is read of the point.
    """
    outputs = [pt.as_tensor(v) for v in outputs]
    stands = {
        rv: v if isinstance(v, Variable) else pt.constant(v, dtype=rv.dtype)
        for rv, v in (replaced or {}).items()
    }
    values = set(model.value_vars)
    try:
        call: Any = Interpreted(inputs, outputs, _instead(model, stands))
        found = call.others
        if not values.issuperset(found):
            raise NotInterpretedError
    except NotInterpretedError:
        if stands:
            outputs = graph_replace(outputs, [*stands.items()], strict=False)
        outputs = model.replace_rvs_by_values(outputs)
        found = [v for v in explicit_graph_inputs(outputs) if v in values]
        call = _rewritten([*inputs, *found], outputs)
    names = [str(v.name) for v in found]
    dtypes = [v.dtype for v in (*inputs, *found)]

    def at(point, *given) -> list[NDArray]:
        values = (*given, *[point[name] for name in names])
        return call(*map(np.asarray, values, dtypes))

    return at, names


def _instead(model: Model, stands: Mapping[RV, RV]) -> Callable[[RV], RV]:
    """Say what stands for variables, in terms of values."""

    def instead(variable: RV) -> RV:
        found = stands.get(variable, model.rvs_to_values.get(variable, variable))
        transform = model.rvs_to_transforms.get(variable)
        if transform is not None and variable not in stands:
            found = transform.backward(found, *variable.owner.inputs)
        if found is not variable:
            own, other = variable.type, found.type
            alike = (own.dtype, own.broadcastable) == (other.dtype, other.broadcastable)
            # What is made of other variables may lead back to this one.
            if not alike or (variable in stands and found.owner is not None):
                raise NotInterpretedError(variable)
        return found

    return instead


def function(inputs: Sequence[RV], outputs: Sequence[RV]) -> Callable[..., list[NDArray]]:
    """Make a function of the values of variables, for which nothing is compiled if that can be.

    The state of its random number generators does not change.
    """
    try:
        found = Interpreted(inputs, outputs)
    except NotInterpretedError:
        return _rewritten(inputs, outputs)
    return _rewritten(inputs, outputs) if found.others else found


def _rewritten(inputs: Sequence[RV], outputs: Sequence[RV]) -> Callable[..., list[NDArray]]:
    """Make a function of the values of variables that PyTensor makes ready."""
    made = pytensor.function([*inputs], [*outputs], mode=PLAIN, on_unused_input="ignore")
    # Half of the time of a call is that PyTensor looks at what it is given.
    made.trust_input = True

    def call(*values: Any) -> list[NDArray]:
        return [*map(np.asarray, made(*values))]

    return call


def rejoined(whole: RV, parts: Mapping[RV, tuple[RV, tuple[int, ...]]]) -> RV:
    """Return a variable that PyMC has split, with other graphs in the place of its parts.

    Each comes with the shape that it is broadcast to.
    """
    own = [
        (rv, pt.broadcast_to(graph, shape).astype(rv.dtype)) for rv, (graph, shape) in parts.items()
    ]
    return graph_replace([whole], own, strict=False)[0]


def stand_in(rv: RV, shape: tuple[int | None, ...] | None = None) -> RV:
    """Make an input that takes a variable's place, of its shape or another one."""
    return rv.type() if shape is None else pt.tensor(dtype=rv.dtype, shape=shape)


def point_function(
    model: Model, outputs: Sequence[RV], givens: Mapping[RV, Any] | None = None
) -> Reader:
    """Make a function of a point of value variables that evaluates `outputs`.

    `givens` are random variables set to constants. What depends on no free variable is evaluated
    once.
    """
    read, names = compiled(model, outputs, givens)
    if names:
        return read
    constant = read({})
    return lambda point: [np.array(v) for v in constant]


def over_points(
    model: Model, outputs: Sequence[RV], point: Mapping[str, NDArray]
) -> tuple[Callable[[Mapping[str, NDArray]], list[NDArray]], list[NDArray]]:
    """Make a function of many points at once, interpreted: nothing is compiled for it.

    `outputs`: graphs of value variables; `point`: a point of value variables. Return `function`: of
    the value variables at n points, each stacked along a first axis: the outputs there, likewise;
    `values`: the outputs at `point`.
    """
    flat: Any = rewrite_graph([*outputs], include=(), custom_rewrite=out2in(opened))
    outputs = _with_known_shapes(flat)
    inputs: list[Any] = [v for v in explicit_graph_inputs(outputs) if v in set(model.value_vars)]
    names = [str(v.name) for v in inputs]
    one = function(inputs, outputs)

    def cast(points: Mapping[str, NDArray]) -> list[NDArray]:
        return [np.asarray(points[name], v.dtype) for name, v in zip(names, inputs, strict=True)]

    values = one(*cast(point))

    def one_by_one(points: Mapping[str, NDArray]) -> list[NDArray]:
        found = [one(*own) for own in zip(*cast(points), strict=True)]
        return [np.array(own) for own in zip(*found, strict=True)]

    if not names:
        return lambda points: [own[None] for own in values], values
    stacks = {v: pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in inputs}
    try:
        graphs = vectorize_graph(outputs, stacks)
        together = function([*stacks.values()], graphs)

        def at_once(points: Mapping[str, NDArray]) -> list[NDArray]:
            return together(*cast(points))

        twice = at_once({name: np.stack([point[name]] * 2) for name in names})
        same = [
            np.allclose(v, own, equal_nan=True) and v.ndim in (own.ndim, own.ndim + 1)
            for v, own in zip(twice, values, strict=True)
        ]
    except Exception:
        # PyTensor, or an operation from elsewhere, cannot make it of stacks: it says so in any way.
        return one_by_one, values
    return at_once if all(same) else one_by_one, values


@node_rewriter([OpFromGraph])
def opened(fgraph: Any, node: Any) -> list[Variable]:
    """Put a graph within a graph in its place: of stacks, it is evaluated one by one."""
    return inline_ofg_node(node)


def _with_known_shapes(graphs: Sequence[RV]) -> list[RV]:
    """Put shapes that types have: of stacks, PyTensor takes long to see that they are all alike."""
    known = [
        (found, pt.constant(np.array(found.owner.inputs[0].type.shape, np.int64)))
        for found in ancestors(graphs)
        if found.owner is not None
        and isinstance(found.owner.op, Shape)
        and None not in found.owner.inputs[0].type.shape
    ]
    return graph_replace(list(graphs), known, strict=False)


def natural_function(model: Model, names: Iterable[str]) -> Reader:
    """Make the map from a point of value variables to the variables `names` themselves."""
    return point_function(model, [model[name] for name in names])


def sampled_function(model: Model, name: str) -> Callable[[Any, Any], NDArray]:
    """Make the map from a point, and a value of a variable, to that on the scale that is sampled.

    Of the point, it takes what the variable's transform depends on.
    """
    rv = model[name]
    transform, dtype = model.rvs_to_transforms[rv], model.rvs_to_values[rv].dtype
    if transform is None:
        return lambda point, value: np.asarray(value, dtype)
    natural = stand_in(rv)
    forward, _ = compiled(model, [transform.forward(natural, *rv.owner.inputs)], inputs=[natural])
    return lambda point, value: np.asarray(forward(point, value)[0], dtype)


def with_values(
    model: Model, point: Mapping[str, NDArray], values: Mapping[str, Any]
) -> dict[str, NDArray]:
    """Put values of free variables, by name, into a copy of a point: bounds before what they bound.

    What depends on others is brought to the scale that is sampled by what these are then.
    """
    found = dict(point)
    for name, value in values.items():
        found[model.rvs_to_values[model[name]].name] = sampled_function(model, name)(found, value)
    return found


def density_graphs(
    model: Model, variables: Sequence[RV], jacobian: bool = True, sum: bool = True
) -> Any:
    """Make the graphs of declared log densities, as `model.logp` does, any number of times.

    They are kept, and shared: not to be changed in place.
    """
    graphs = _densities(model, jacobian)
    if not variables or not set(variables) <= set(graphs):
        with untraced(model):
            return model.logp(vars=list(variables), jacobian=jacobian, sum=sum)
    found = [graphs[rv] for rv in variables]
    return pt.add(*[graph.sum() for graph in found]) if sum else found


def value_density(
    model: Model, variables: Sequence[RV], jacobian: bool = True
) -> Callable[[Any], float]:
    """Compile the declared log density of variables and potentials together, at a point.

    `jacobian`: whether it is the density on the scale that is sampled.
    """
    read, _ = compiled(model, [density_graphs(model, variables, jacobian)])
    return lambda point: float(read(point)[0])


def random_density(model: Model, variable: RV) -> bool:
    """Whether the log density of a variable may differ from one evaluation to the next."""
    try:
        graphs = density_graphs(model, [variable], jacobian=False, sum=False)
    except Exception:
        # What else is wrong, others say.
        return False
    return any(isinstance(own.type, RandomType) for own in ancestors(graphs))


def entered_density(model: Model, variables: Iterable[RV]) -> RV:
    """Make the graph of the declared log density of all that any of some variables enters."""
    every = [*model.basic_RVs, *model.potentials]
    return pt.add(*[graph.sum() for graph in entered_densities(model, variables, every)])


def entered_densities(
    model: Model, variables: Iterable[RV], of: Sequence[RV], jacobian: bool = True
) -> list[RV]:
    """Make the graphs of those densities `of` variables that any of some others enters."""
    values = {model.rvs_to_values[rv] for rv in variables}
    graphs = density_graphs(model, of, jacobian=jacobian, sum=False) if of else []
    return [graph for graph in graphs if values & set(ancestors([graph]))]


def in_double(graphs: Sequence[RV]) -> list[RV]:
    """Make graphs compute in double precision throughout, as far as operations take it.

    PyTensor holds Python's numbers in the smallest type that has them, and computes in single
    precision what depends on these alone, such as the log gamma functions of a prior.
    """
    own: dict[Variable, Variable] = {
        v: pt.constant(v.data, dtype="float64" if v.dtype.startswith("float") else "int64")
        for v in ancestors(graphs)
        if isinstance(v, TensorConstant) and v.dtype in _SMALL
    }
    try:
        return clone_replace([*graphs], own, rebuild_strict=False)
    except TypeError:
        # An operation that asks for its inputs as they are.
        return [*graphs]


_SMALL = ("float16", "float32", "int8", "int16", "uint8", "uint16")
_DENSITIES: Kept[tuple[dict[RV, Any], dict[RV, Any]]] = Kept()


def _densities(model: Model, jacobian: bool) -> dict[RV, Any]:
    """Make the graphs of all variables' log densities: PyMC works them all out for any of them.

    There are none if one of them cannot be made.
    """
    found = _DENSITIES.of(model)
    if found is None:
        variables = [*model.basic_RVs, *model.potentials]
        try:
            with untraced(model):
                graphs = model.logp(vars=variables, sum=False)
                plain = [
                    graph if model.rvs_to_transforms.get(rv) is None else _without_jacobian(graph)
                    for rv, graph in zip(variables, graphs, strict=True)
                ]
                if None in plain:
                    plain = model.logp(vars=variables, jacobian=False, sum=False)
        except Exception:
            # PyMC's, or a variable's own.
            variables = graphs = plain = []
        without, whole = (dict(zip(variables, each, strict=True)) for each in (plain, graphs))
        found = _DENSITIES.keep(model, (without, whole))
    return found[jacobian]


def _without_jacobian(graph: RV) -> RV | None:
    """Return what PyMC has added the log Jacobian of a transform to; None if it does not show."""
    node = graph.owner
    if node is None or node.op != pt.add or len(node.inputs) != 2:
        return None
    own, jacobian = node.inputs
    return own if str(jacobian.name).endswith("_jacobian") else None


@contextmanager
def untraced(model: Model) -> Iterator[None]:
    """Let the log density of a model be asked for any number of times meanwhile.

    PyTensor notes with the constants of a model where what replaces them comes from, and copies the
    notes with every call, up to ninefold: gigabytes after nine calls. So there are none meanwhile.
    """
    tags = [v.tag for v in ancestors([*model.basic_RVs, *model.potentials, *model.value_vars])]
    traces = [(tag, tag.trace) for tag in tags if hasattr(tag, "trace")]
    for tag, _ in traces:
        tag.trace = []
    try:
        yield
    finally:
        for tag, trace in traces:
            tag.trace = trace


def log_densities(model: Model, variables: Sequence[RV]) -> Callable[[Any], dict[RV, NDArray]]:
    """Compile the declared log densities of `variables`, entry by entry, at a point."""
    outputs = density_graphs(model, variables, jacobian=False, sum=False)
    function, _ = compiled(model, outputs)
    return lambda point: dict(zip(variables, function(point), strict=True))


def chosen_objects(
    model: Model,
    chosen: RV,
    assignment: RV,
    givens: Mapping[RV, Any],
    n_objects: int,
    unit: float,
) -> NDArray[np.int64] | None:
    """Find which object each row of a table is of, by what the objects' labels choose.

    Every object's number is written in binary digits, and each digit used as a label.

    `chosen`: the table (R, D): rows that the labels of some objects choose; `assignment`: these
    labels; `givens`: constants for other variables, among them what rows are chosen from: row j is
    to hold `unit` times j. Return (R,), or None: None if rows are something else; numbers of
    `n_objects` or more if they are of no object.
    """
    labels = stand_in(assignment)
    digit_of, _ = compiled(model, [chosen], {assignment: labels, **givens}, [labels])
    found = []
    for digits in binary_digits(np.arange(n_objects)):
        (rows,) = digit_of({}, digits)
        if rows.ndim != 2 or not np.isin(rows, (0.0, unit)).all():
            return None
        found.append(rows[:, 0] > 0.0)
    return from_digits(found)


def held_matrices(graph: RV, n_columns: int) -> list[NDArray[np.float64]]:
    """Return the constant matrices of so many columns that a graph is made with."""
    held = [held_value(variable) for variable in ancestors([graph])]
    return [
        np.ascontiguousarray(v, np.float64)
        for v in held
        if isinstance(v, np.ndarray) and v.ndim == 2 and v.shape[1] == n_columns
    ]


def at_each(graph: RV, rv: RV, values: NDArray) -> RV:
    """Express a graph with a variable set to constants, one after another, along a first axis."""
    return vectorize_graph(graph, {rv: pt.constant(values)})
