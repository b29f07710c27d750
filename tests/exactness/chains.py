"""Whole chains of a model's steps, held against the model's own compiled log density.

Of draws x from a density p, and smooth f, Stein's identity has

    E[f(x) d log p(x) / dx_k + df(x) / dx_k] = 0,

and of an entry s of a discrete variable, given all else, whatever g does not depend on it,

    E[(1{s = j} - p(s = j | all else)) g] = 0.

Both sides need nothing but ratios of the declared density at places near a draw. Nothing is known
of what the steps have read, or of how they draw.
"""

from functools import lru_cache

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import local_remove_check_parameter
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.random.basic import BernoulliRV
from pytensor.tensor.shape import Shape
from scipy import stats
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from pm_match.reading.ancestry import parameters
from pm_match.reading.probe import PLAIN, density_graphs, opened, point_function

# Parts of a chain whose means are taken for independent.
N_BATCHES = 50
# Of differences: where values are of order 1, some ten digits of each are right.
STEP = 1e-4
# Random directions that what moves along others is looked at by.
N_DIRECTIONS = 4


def run(steps, point, n, seed=1, n_tune=0):
    """Make a chain of some steps: its points."""
    for number, step in enumerate(steps):
        step.setup_chain(np.random.default_rng([seed, number]), n_tune, n)
    points = []
    with threadpool_limits(1, user_api="blas"):
        for i in range(n_tune + n):
            if i == n_tune:
                for step in steps:
                    step.stop_tuning()
            for step in steps:
                point, _ = step.step(point)
            points.append(point)
    return points[n_tune:]


@node_rewriter([Shape])
def _known_shape(fgraph, node):
    """Put shapes that are known: what has another for every point is evaluated point by point."""
    shape = node.inputs[0].type.shape
    return None if None in shape else [pt.constant(np.array(shape, np.int64))]


_BARE = out2in(local_remove_check_parameter, opened, _known_shape)


def batched(model, logp, names):
    """Compile a log density at G points at once.

    Arrays of the value variables `names` have an axis of points in front; others are the same at
    all of them.
    """
    (copy,) = clone_replace([logp])
    logp = rewrite_graph(copy, include=(), custom_rewrite=_BARE, clone=False)
    inputs = [v for v in explicit_graph_inputs([logp]) if v in set(model.value_vars)]
    stands = {
        v: pt.tensor(dtype=v.dtype, shape=(None, *v.type.shape)) for v in inputs if v.name in names
    }
    graph = vectorize_graph(logp, stands) if stands else logp
    function = pytensor.function([stands.get(v, v) for v in inputs], graph, mode=PLAIN)

    def log_density(points):
        with np.errstate(all="ignore"):
            found = function(*[np.asarray(points[v.name], v.dtype) for v in inputs])
        return np.where(np.isnan(found), -np.inf, found)

    return log_density


@lru_cache(maxsize=1)
def log_densities(model):
    """Compile, by the name of every value variable, what of the declared log density has it."""
    graphs = density_graphs(model, [*model.basic_RVs, *model.potentials], sum=False)
    terms = [(graph.sum(), set(explicit_graph_inputs([graph]))) for graph in graphs]
    names = [value.name for value in model.value_vars]
    found = {}
    for value in model.value_vars:
        first, *others = [term for term, inputs in terms if value in inputs]
        found[value.name] = batched(model, sum(others, start=first), names)
    return found


def check_chain(model, points, least=1e-3):
    """Check the identities: of right draws, one in a thousand fails."""
    every = scores(model, points)
    # Whole variables are few, and so are looked at by themselves.
    for whole in (True, False):
        found = {name: score for name, score in every.items() if (len(name) == 2) == whole}
        worst = max(found, key=lambda name: abs(found[name]))
        p = 2.0 * len(found) * stats.t.sf(abs(found[worst]), N_BATCHES - 1)
        assert p > least / 2, (
            f"{worst}: {found[worst]:.1f} standard errors; p = {p:.1g}, of {len(found)}"
        )


def scores(model, points):
    """Score by how much the draws of a chain fail the identities: Student's t if they do not.

    Parameters
    ----------
    model : pymc.Model
    points : list of dict
        A chain, in its order.

    Returns
    -------
    dict of str to float
        By what was looked at.
    """
    first = points[0]
    points = {name: np.stack([point[name] for point in points]) for name in first}
    log_density = log_densities(model)
    names = [name for name in points if points[name].dtype.kind == "f"]
    places = [(name, place) for name in names for place in np.ndindex(points[name].shape[1:])]
    x = np.stack([points[name][:, *place] for name, place in places], axis=1).astype(float)
    spread = x.std(axis=0)
    assert (spread > 0.0).all(), [p for p, s in zip(places, spread, strict=True) if not s > 0.0]
    z = (x - x.mean(axis=0)) / spread
    bounded = np.tanh(z)
    rng = np.random.default_rng(0)
    ways = rng.standard_normal((len(places), N_DIRECTIONS))
    along = np.tanh(z @ ways / np.sqrt(len(places)))
    found, together = {}, {}
    for k, (name, place) in enumerate(places):
        ends = []
        for sign in (1.0, -1.0):
            moved = points[name].astype(float)
            moved[:, *place] += sign * STEP * spread[k]
            ends.append(log_density[name]({**points, name: moved}))
        # In units of the spread.
        slope = (ends[0] - ends[1]) / (2.0 * STEP)
        functions = np.column_stack([np.ones(len(x)), bounded, along])
        residuals = functions * slope[:, None]
        residuals[:, 1 + k] += 1.0 - bounded[:, k] ** 2
        residuals[:, 1 + len(places) :] += (1.0 - along**2) * ways[k] / np.sqrt(len(places))
        # All entries of a variable moved, and all multiplied, at once.
        around = np.tanh(x[:, k] / spread[k])
        own = np.column_stack([slope / spread[k], around * slope + 1.0 - around**2])
        together[name] = together.get(name, 0.0) + own
        of = ["1", *places, *range(N_DIRECTIONS)]
        found |= {
            (name, place, f): score for f, score in zip(of, _standardised(residuals), strict=True)
        }
    for name, residuals in together.items():
        moved, multiplied = _standardised(residuals)
        found |= {(name, "moved"): moved, (name, "multiplied"): multiplied}
    for name in set(points).difference(names):
        n = _n_values(model, name, first)
        for place in np.ndindex(points[name].shape[1:]):
            logs = []
            for label in range(n):
                moved = points[name].copy()
                moved[:, *place] = label
                logs.append(log_density[name]({**points, name: moved}))
            p = softmax(np.stack(logs, axis=1), axis=1)
            away = (points[name][:, *place, None] == np.arange(n)) - p
            residuals = np.concatenate([away, *(away * along[:, [d]] for d in range(2))], axis=1)
            of = [(f, j) for f in ("1", 0, 1) for j in range(n)]
            found |= {
                (name, place, f): score
                for f, score in zip(of, _standardised(residuals), strict=True)
            }
    return found


def _n_values(model, name, point):
    """Count the values of the labels or flags of a variable, whether the chain was there or not."""
    if isinstance(model[name].owner.op, BernoulliRV):
        return 2
    (probabilities,) = point_function(model, parameters(model[name]))(point)
    return probabilities.shape[-1]


def _standardised(residuals):
    """Standardise means of chains (n, F), by the means of their parts."""
    n = len(residuals) // N_BATCHES * N_BATCHES
    means = residuals[:n].reshape(N_BATCHES, -1, residuals.shape[1]).mean(axis=1)
    error = means.std(axis=0, ddof=1) / np.sqrt(N_BATCHES)
    # What is always zero, as where links decide, is.
    return np.where(error > 1e-12, means.mean(axis=0) / np.maximum(error, 1e-300), 0.0)
