"""Graphs that are evaluated operation by operation: what PyTensor's own functions say."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats
from pymc.initial_point import make_initial_point_fn
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.blockwise import Blockwise

from pm_match.reading import interpret
from pm_match.reading.interpret import Interpreted, NotInterpretedError
from pm_match.reading.probe import density_graphs, starts


def declared():
    """Variables of most families that matter here, with all of PyMC's default transforms."""
    with pm.Model() as model:
        share = pm.Beta("share", 2.0, 3.0)
        limit = pm.Uniform("limit", 0.0, 5.0)
        weights = pm.Dirichlet("weights", np.ones(4))
        pm.StickBreakingWeights("sticks", alpha=2.0, K=5)
        tails = pm.StudentT("tails", nu=4.0, mu=0.0, sigma=limit, shape=6)
        spread = pm.Exponential.dist(1.0)
        factor, *_ = pm.LKJCholeskyCov("factor", n=3, eta=2.0, sd_dist=spread)
        rows = pm.MvNormal("rows", np.zeros(3), chol=factor, shape=(7, 3))
        rate = pm.Gamma("rate", 3.0 * share, limit)
        label = pm.Categorical("label", p=weights, shape=8)
        pm.Normal("seen", (tails[:4] + rows.sum())[label], rate, observed=np.arange(8.0))
        pm.Poisson("count", rate, observed=np.arange(3))
    return model


@pytest.fixture(scope="module")
def model():
    return declared()


def some_point(model, seed):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=np.shape(v)) if np.asarray(v).dtype.kind == "f" else v
        for name, v in model.initial_point(seed).items()
    }


@pytest.mark.parametrize("jacobian", [False, True])
def test_densities_are_those_of_compiled_functions(model, jacobian):
    variables = model.basic_RVs
    graphs = density_graphs(model, variables, jacobian, sum=False)
    found = Interpreted([], graphs)
    compiled = pytensor.function(found.others, graphs, mode="FAST_COMPILE")
    assert set(found.others) == set(explicit_graph_inputs(graphs))
    for seed in range(3):
        point = some_point(model, seed)
        values = [np.asarray(point[v.name]) for v in found.others]
        ours, theirs = found(*values), compiled(*values)
        for rv, one, other in zip(variables, ours, theirs, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), rv
            np.testing.assert_allclose(one, other, rtol=1e-9, err_msg=rv.name)


def test_starts_are_those_of_pymc(model):
    for seed in range(2):
        expected = make_initial_point_fn(model=model)(seed)
        found = starts(model)(seed)
        assert list(found) == list(expected)
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-12, err_msg=name)


def test_what_is_found_is_new_and_what_is_given_is_left_as_it_is():
    x, held = pt.vector(), pt.constant(np.arange(3.0))
    found = Interpreted([x], [x, x[:2], held, held + 1.0, x.dimshuffle("x", 0)])
    given = np.arange(3.0)
    for value in found(given):
        value += 5.0
    assert np.array_equal(given, np.arange(3.0))
    assert np.array_equal(found(given)[2], np.arange(3.0))
    assert np.array_equal(found(given)[3], np.arange(1.0, 4.0))


def test_shared_variables_are_read_anew():
    shared = pytensor.shared(np.ones(2))
    found = Interpreted([], [shared * 2.0])
    assert np.array_equal(found()[0], [2.0, 2.0])
    shared.set_value(np.zeros(2))
    assert np.array_equal(found()[0], [0.0, 0.0])


def test_variables_have_others_in_their_place():
    x, y = pt.vector("x"), pt.vector("y")
    graph = pt.exp(x) + x.sum()
    found = Interpreted([y], [graph], lambda v: 2.0 * y if v is x else v)
    assert not found.others
    np.testing.assert_allclose(found(np.ones(2))[0], np.exp(2.0) + 4.0)


def test_what_is_missing_is_named():
    x, y = pt.vector("x"), pt.vector("y")
    found = Interpreted([x], [x + y])
    assert found.others == [y]
    assert np.array_equal(found(np.ones(2), np.ones(2))[0], [2.0, 2.0])


def test_it_can_be_sent_elsewhere_before_and_after_it_is_used(model):
    graphs = density_graphs(model, model.basic_RVs, sum=False)
    found = Interpreted([], graphs)
    values = [np.asarray(some_point(model, 1)[v.name]) for v in found.others]
    sent = [cloudpickle.loads(cloudpickle.dumps(found))]
    expected = found(*values)
    sent.append(cloudpickle.loads(cloudpickle.dumps(found)))
    for own in sent:
        for one, other in zip(own(*values), expected, strict=True):
            assert np.array_equal(one, other)


def test_loops_are_left_to_pytensor():
    x = pt.vector()
    total = pytensor.scan(lambda v, sum: sum + v, x, pt.zeros(()), return_updates=False)
    with pytest.raises(NotInterpretedError):
        Interpreted([x], [total[-1]])


def test_what_is_drawn_follows_the_generator():
    generator = pytensor.shared(np.random.default_rng(3))
    draw = pt.random.normal(size=3, rng=generator)
    found = Interpreted([], [draw, draw + 1.0])
    one, other = found()
    np.testing.assert_allclose(one + 1.0, other)
    # The generator's own state stays as it was.
    assert np.array_equal(found()[0], one)
    assert np.array_equal(one, np.random.default_rng(3).normal(size=3))


def test_half_normal_numbers_are_those_of_scipy_without_it(monkeypatch):
    generator = pytensor.shared(np.random.default_rng(3))
    scale = pt.constant(np.array([[0.5], [2.0]]))
    draws = [
        pt.random.halfnormal(loc, scale, size=size, rng=generator)
        for loc in (0.0, np.array([1.0, 2.0, 3.0]))
        for size in (None, (2, 3), (4, 2, 3))
    ]
    # SciPy asks for no number where there is one choice.
    zero = pt.random.halfnormal(2.0, 0.0, rng=generator)
    draws += [zero, pt.random.normal(rng=zero.owner.outputs[0])]
    expected = pytensor.function([], draws)()
    monkeypatch.delattr(scipy.stats.halfnorm.__class__, "_rvs")
    for one, other in zip(Interpreted([], draws)(), expected, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    with pytest.raises(ValueError, match=r"size: expected \(3,\); found \(1,\)"):
        Interpreted([], [pt.random.halfnormal(np.zeros(3), 1.0, size=(1,), rng=generator)])()
    with pytest.raises(ValueError, match="scale: expected nonnegative numbers"):
        Interpreted([], [pt.random.halfnormal(0.0, -scale, rng=generator)])()


def test_numbers_are_drawn_by_constants_that_became_read_only():
    generator = pytensor.shared(np.random.default_rng(3))
    scale = pt.constant(2.0)
    draws = [
        pt.random.halfcauchy(np.arange(4.0), scale[None], rng=generator),
        pm.Moyal.dist(np.arange(4.0), scale[None], rng=generator),
    ]
    found = Interpreted([], draws)
    before = found()
    scale.data.flags.writeable = False
    assert np.array_equal(found(), before)


def test_an_output_may_be_replaced_and_others_of_its_operation_not():
    first, second = pt.linalg.qr(pt.matrix("x"))
    (x,) = first.owner.inputs
    found = Interpreted([x], [second, first], lambda v: 2.0 * x if v is first else v)
    given = np.array([[2.0, 1.0], [1.0, 3.0]])
    ours, other = found(given)
    np.testing.assert_allclose(ours, np.linalg.qr(given)[1])
    assert np.array_equal(other, 2.0 * given)


def test_graphs_inside_of_operations_on_one_matrix_are_evaluated():
    """PyTensor loops over stacks; of one, there is no loop."""
    diagonal = pt.vector("diagonal", shape=(4,))
    graph = Blockwise(pt.diag(diagonal).owner.op, signature="(n)->(n,n)")(diagonal)
    (found,) = Interpreted([diagonal], [graph])(np.arange(4.0))
    np.testing.assert_array_equal(found, np.diag(np.arange(4.0)))


def quick_graphs():
    """What is evaluated by NumPy's own functions: of each type of numbers, and of each form."""
    numbers = {
        dtype: pt.tensor(dtype=dtype, shape=(None, 3)) for dtype in ("int8", "int64", "float32")
    }
    for x in numbers.values():
        yield from (x + x, x * np.int8(2), x / x, x > 1, pt.eq(x, 2), pt.switch(x > 1, x, 0))
        yield from (pt.exp(x), pt.gammaln(x), pt.sigmoid(x), pt.clip(x, 1, 2), x + x + x)
        yield from (pt.clip(x, 2, 1), pt.clip(x, x[0], np.int8(1)))
        yield from (pt.cast(x, "float64"), pt.cast(x, "int8"), pt.second(x, 1.5), x // 2)
        yield from (pt.alloc(x[0], x.shape[0], 3), pt.alloc(x[0, 0], 2, x.shape[1]))
        yield from (x[1], x[:, 1], x[1, 2], x[1:], x.shape[:-1], x[[0, 0, 1]], x[[1, 0], [0, 2]])
        yield from (x.T, x[:, None], x.dimshuffle(1, "x", 0), x[:1].sum(), pt.tensor_copy(x))
        yield pt.specify_broadcastable(x[:1], 0).dimshuffle(1)
        yield from (x.sum(axis=0), x.prod(axis=1), x.max(), pt.all(x > 1), pt.any(x > 8, axis=1))
    table = pt.tensor(dtype="float64", shape=(9, 9))
    one, two = (pt.tensor(dtype="int64", shape=(4,)) for _ in range(2))
    number = pt.tensor(dtype="int64", shape=())
    taken = [table[one], table[one, two], table[one, number], table[number, two], table[number]]
    taken += [table[number, number], table[one[:, None], two], table[one[:, None], number]]
    for stacks in (((3,), (3,)), ((1,), (3,)), ((3,), (1,)), ((2, 1), (1, 3)), ((2, 3), (2, 3))):
        each = {
            v: pt.tensor(dtype=v.dtype, shape=(*stacks[v is not table], *v.type.shape))
            for v in (table, one, two, number)
        }
        yield from vectorize_graph(taken, each)
    square, chosen = pt.tensor(dtype="float64", shape=(3, 3)), pt.tensor(dtype="bool", shape=(3,))
    each, numbers = (
        pt.tensor(dtype="float64", shape=(3, 3, 3)),
        pt.tensor(dtype="int64", shape=(3,)),
    )
    masks = pt.eq(pt.arange(3)[None, :] + 0 * numbers[:, None], 1)
    yield vectorize_graph(square[chosen], {square: each, chosen: masks})


def batches(dtype):
    """What is evaluated for many matrices at once: factors first, then systems of equations."""
    many, one = (pt.tensor(dtype=dtype, shape=own) for own in ((13, 3, 3), (3, 3)))
    grid = pt.tensor(dtype=dtype, shape=(2, 1, 3, 3))
    vectors = pt.tensor(dtype=dtype, shape=(13, 3))
    definite = many @ many.mT + 20 * pt.eye(3, dtype=dtype)
    triangles = (True, False)
    for lower in triangles:
        yield from (pt.linalg.cholesky(x, lower=lower) for x in (definite, many, grid))
    for lower in triangles:
        for a, b in ((many, many), (one, many), (many, one), (grid, many), (many, grid)):
            yield pt.linalg.solve_triangular(a, b, lower=lower)
        for a in (many, one, grid):
            yield pt.linalg.solve_triangular(a, vectors, lower=lower, b_ndim=1)
        for n in range(1, 9):
            yield pt.linalg.solve_triangular(many - n, vectors, lower=lower, b_ndim=1)
        yield pt.linalg.solve_triangular(many, many, lower=lower, unit_diagonal=True)


def same_as_compiled(graphs, rtol, atol):
    """Compare with PyTensor's own functions, for whole numbers."""
    found = Interpreted([], graphs)
    compiled = pytensor.function(found.others, graphs, mode="FAST_COMPILE")
    shapes = [[n or 3 for n in v.type.shape] for v in found.others]
    rng = np.random.default_rng(0)
    values = [
        rng.integers(1, 9, s).astype(v.dtype) for s, v in zip(shapes, found.others, strict=True)
    ]
    for graph, one, other in zip(graphs, found(*values), compiled(*values), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), graph.owner
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=str(graph.owner))
        yield one


def test_quick_functions_give_what_those_of_pytensor_do():
    assert [*same_as_compiled([*quick_graphs()], 1e-6, 0)]


@pytest.fixture
def together(monkeypatch):
    """Operations that were tried on many matrices at once, and whether that gave a result."""
    tried = []

    def counted(op, own=interpret._together):
        made = own(op)
        if made is None:
            return None

        def at_once(*given):
            found = made(*given)
            tried.append((type(op.core_op).__name__, found is not None))
            return found

        return at_once

    monkeypatch.setattr(interpret, "_together", counted)
    return tried


@pytest.mark.parametrize(
    ("dtype", "eps"), [("float64", 1e-13), ("float32", 1e-5), ("int64", 1e-13)]
)
def test_many_matrices_are_factored_and_solved_as_pytensor_does_each(dtype, eps, together):
    found = [*same_as_compiled([*batches(dtype)], eps, eps)]
    # Some have no factor, some no solution: PyTensor is asked of each then.
    lacking = [np.isnan(own) for own in found]
    assert any(own.any() and not own.all() for own in lacking[:6])
    assert any(own.any() and not own.all() for own in lacking[6:])
    assert together.count(("Cholesky", True)) == 2
    assert together.count(("SolveTriangular", True)) == 2 * 9


def test_few_matrices_large_ones_and_wrong_shapes_are_left_to_pytensor(together):
    rng = np.random.default_rng(0)
    a, b = pt.tensor3("a"), pt.tensor3("b")
    solve = Interpreted([a, b], [pt.linalg.solve_triangular(a, b, lower=True)])
    factor = Interpreted([a], [pt.linalg.cholesky(a)])
    for count, n in ((2, 4), (60, 55)):
        triangles = np.tril(rng.normal(size=(count, n, n)), -1) / n + 2 * np.eye(n)
        right = rng.normal(size=(count, n, 2))
        np.testing.assert_allclose(solve(triangles, triangles @ right)[0], right, atol=1e-9)
        products = triangles @ triangles.swapaxes(1, 2)
        np.testing.assert_allclose(factor(products)[0], triangles, atol=1e-9)
    for wrong in (rng.normal(size=(20, 3, 4)), rng.normal(size=(20, 4, 4))):
        with pytest.raises(ValueError, match=r"square|incompatible"):
            solve(wrong, rng.normal(size=(20, 3, 1)))
    assert together
    assert not any(at_once for _, at_once in together)
