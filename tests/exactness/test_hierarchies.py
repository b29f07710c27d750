"""Hierarchies of clusters: the step against declared densities, enumeration, and Geweke's test."""

from itertools import product

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import compile
from pytensor.graph.replace import graph_replace
from scipy import stats
from scipy.special import gammaln

import pm_match as pmm
from pm_match.normal.conjugate import log_marginal
from pm_match.reading.probe import PLAIN, natural_function
from pm_match.views.hierarchy.tables import sweep
from tests.exactness.simulate import look_away


def tiny_model(n_objects=5, n_clusters=3, weights="stick-breaking", seed=0, **options):
    """Few objects in a view of two features, and one of one feature that has not seen them all."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n_objects, 2))
    b = 2.0 * rng.standard_normal((n_objects, 1))
    b[1] = np.nan
    options = {"concentration": 0.8, "link_concentration": 1.5, "mean_strength": 0.5} | options
    return pmm.models.dependency_hierarchy(
        {"a": a, "b": b}, n_clusters, {"a": 2, "b": 3}, weights=weights, **options
    )


def made(model):
    (step,) = pmm.steps(model)
    assert isinstance(step, pmm.HierarchyGibbs)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    return step


def log_links(z, w, concentration):
    """Log p(w | z), by gamma functions, for labels w of objects with clusters z."""
    total = 0.0
    for t, a in enumerate(concentration):
        n = np.bincount(w[z == t], minlength=len(a))
        total += gammaln(a.sum()) - gammaln(a.sum() + n.sum())
        total += (gammaln(a + n) - gammaln(a)).sum()
    return total


def log_sticks(a, b, z, n_clusters):
    counts = np.bincount(z, minlength=n_clusters)
    after = counts[::-1].cumsum()[::-1][1:]
    n = counts[:-1]
    beta = gammaln(a + n) + gammaln(b + after) - gammaln(a + b + n + after)
    return (beta - gammaln(a) - gammaln(b) + gammaln(a + b)).sum()


def plain_log_joint(part, point, z, labels):
    """Log p(data, z, w), all else integrated out."""
    total = log_sticks(*part.clustering.prior(point), z, part.clustering.truncation)
    for view, w in zip(part.views, labels, strict=True):
        total += log_links(z[view.objects], w, view.concentration(point))
        total += log_marginal(view.values, w, view.normals.prior(point), shared=True)
    return total


def log_conditional(step, point):
    """Log density of weights, links, means and precisions given the assignments."""
    part, model = step.part, step.model
    natural = dict(zip(part.names, natural_function(model, part.names)(point), strict=True))
    z = natural[part.clustering.assignments[0].name]
    weights = natural["weights"]
    a, b = part.clustering.prior(point)
    counts = np.bincount(z, minlength=len(weights))
    after = counts[::-1].cumsum()[::-1][1:]
    left = np.concatenate([[1.0], 1.0 - np.cumsum(weights)])[: len(weights) - 1]
    total = stats.beta.logpdf(weights[:-1] / left, a + counts[:-1], b + after).sum()
    total -= np.log(left).sum()
    for view in part.views:
        w, x = natural[view.assignment], view.values
        for t, row in enumerate(natural[view.link]):
            n = np.bincount(w[z[view.objects] == t], minlength=len(row))
            total += stats.dirichlet.logpdf(row, view.concentration(point)[t] + n)
        prior = view.normals.prior(point)
        precision, mean = natural[view.normals.precision], natural[view.normals.mean]
        inverse_scale = prior.inverse_scale.copy()
        for u, own in enumerate(mean):
            inside = x[w == u]
            k = prior.strength + len(inside)
            middle = (prior.strength * prior.center + inside.sum(axis=0)) / k
            # Completing the square.
            inverse_scale += inside.T @ inside - k * np.outer(middle, middle)
            inverse_scale += prior.strength * np.outer(prior.center, prior.center)
            covariance = np.linalg.inv(k * precision)
            total += stats.multivariate_normal.logpdf(own, middle, covariance)
        scale = np.linalg.inv(inverse_scale)
        total += stats.wishart.logpdf(precision, prior.degrees + len(x), scale)
    return float(total)


@pytest.mark.parametrize(("weights", "strength"), [("stick-breaking", 0.5), ("dirichlet", 1.0)])
def test_what_is_integrated_out_is_the_declared_density(weights, strength):
    """Declared log density = collapsed log joint + log conditional of all else, at every draw."""
    model = tiny_model(weights=weights, mean_strength=strength)
    step = made(model)
    log_density = model.compile_fn(model.logp(jacobian=False), mode="FAST_COMPILE")
    point = model.initial_point(0)
    reported = []
    for _ in range(10):
        before = {name: np.array(value) for name, value in point.items()}
        new, (found,) = step.step(point)
        for name, value in before.items():
            np.testing.assert_array_equal(point[name], value)
        point = new
        reported.append(found["log_joint"])
        assert found["log_joint"] + log_conditional(step, point) == pytest.approx(
            float(log_density(point)), rel=1e-8
        )
        labels = [point[v.assignment] for v in step.part.views]
        expected = plain_log_joint(step.part, point, point["cluster_object"], labels)
        assert found["log_joint"] == pytest.approx(expected, rel=1e-9)
    assert np.ptp(reported) > 0.1


def log_vectors(x, w, precision, prior):
    """Log p(x | w), the means integrated out: vectors of a cluster are normal together."""
    total = 0.0
    for u in np.unique(w):
        inside = x[w == u]
        between = np.eye(len(inside)) + 1.0 / prior.strength
        covariance = np.kron(between, np.linalg.inv(precision))
        mean = np.tile(prior.center, len(inside))
        total += stats.multivariate_normal.logpdf(inside.ravel(), mean, covariance)
    return total


@pytest.mark.parametrize("n_swaps", [0, 1])
def test_sweeps_visit_assignments_as_often_as_they_are_probable(n_swaps):
    step = made(tiny_model(n_objects=3, n_clusters=2))
    part, state = step.part, step._state
    point = dict(step.model.initial_point(0))
    for name, precision in (("a", [[1.0, 0.4], [0.4, 0.8]]), ("b", [[0.3]])):
        lower = np.linalg.cholesky(precision)
        packed = np.where(np.eye(len(lower)), np.log(np.diag(lower)), lower)
        rv = step.model[f"precision_{name}"]
        point[step.model.rvs_to_values[rv].name] = packed[np.tril_indices(len(lower))]
    step._load(point)
    precisions = [np.array([[1.0, 0.4], [0.4, 0.8]]), np.array([[0.3]])]
    sizes, n_labels = (3, 3, 2), (2, 2, 3)
    labels = [product(range(k), repeat=n) for n, k in zip(sizes, n_labels, strict=True)]
    states = list(product(*labels))
    logs = []
    for z, *w in states:
        total = log_sticks(*part.clustering.prior(point), np.array(z), 2)
        for view, own, precision in zip(part.views, map(np.array, w), precisions, strict=True):
            total += log_links(np.array(z)[view.objects], own, view.concentration(point))
            total += log_vectors(view.values, own, precision, view.normals.prior(point))
        logs.append(total)
    p = np.exp(np.array(logs) - max(logs))
    p /= p.sum()
    assert p.max() < 0.3
    rng = np.random.default_rng(3)
    of_state = {state: i for i, state in enumerate(states)}
    seen = part.views[1].objects
    visits = np.zeros(len(states))
    n_sweeps = 50_000
    for _ in range(n_sweeps):
        _, _, proposed = sweep(rng, state, n_swaps)
        assert proposed == n_swaps
        found = (state.z, state.w[0], state.w[1, seen])
        visits[of_state[tuple(tuple(own.tolist()) for own in found)]] += 1
    visits /= n_sweeps
    # Of labels together, fewer and so more probable: of z alone, of each view, of one object.
    kinds = np.array([sum(state, ()) for state in states])
    for places in ((0, 1, 2), (3, 4, 5), (6, 7), (0, 3, 6), (1, 4), (2, 5, 7), range(8)):
        _, margin = np.unique(kinds[:, places], axis=0, return_inverse=True)
        expected = np.bincount(margin.ravel(), p)
        away = np.bincount(margin.ravel(), visits) - expected
        # Chains of three objects forget in a sweep or two.
        errors = 2.0 * np.sqrt(expected * (1.0 - expected) / n_sweeps)
        assert np.abs(away / errors).max() < 4.0, places


class Simulator:
    """Prior and data drawn by PyMC from a declared model, and its step."""

    def __init__(self, model, seed):
        self.model = model
        self.step = made(model)
        self.step.setup_chain(np.random.default_rng(seed), 0, 0)
        look_away(self.step)
        free = model.free_RVs
        self.names = [rv.name for rv in free]
        self.natural = natural_function(model, self.names)
        self.prior = compile([], free, random_seed=seed + 1, mode=PLAIN)
        stands = {rv: pt.tensor(dtype=rv.dtype, shape=rv.type.shape) for rv in free}
        observed = [model[view.normals.values[0].name] for view in self.step.part.views]
        given = graph_replace(observed, list(stands.items()), strict=False)
        inputs = list(stands.values())
        self.data = compile(inputs, given, random_seed=seed, mode=PLAIN, on_unused_input="ignore")
        values = []
        for rv in free:
            transform = model.rvs_to_transforms[rv]
            values.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
        values = graph_replace(values, list(stands.items()), strict=False)
        self.values = pytensor.function(inputs, values, mode=PLAIN, on_unused_input="ignore")

    def scores(self, n, n_updates=2):
        """Standardised mean changes of quantities in a few updates from prior and data."""
        changes = []
        for _ in range(n):
            draw = self.prior()
            for view, x in zip(self.step.part.views, self.data(*draw), strict=True):
                view.values[:] = x
            point = {
                self.model.rvs_to_values[rv].name: np.asarray(value)
                for rv, value in zip(self.model.free_RVs, self.values(*draw), strict=True)
            }
            before = quantities(dict(zip(self.names, draw, strict=True)))
            for _ in range(n_updates):
                point, _ = self.step.step(point)
            after = quantities(dict(zip(self.names, self.natural(point), strict=True)))
            changes.append([after[name] - before[name] for name in before])
        changes = np.array(changes)
        means = changes.mean(axis=0) / changes.std(axis=0) * np.sqrt(n)
        return dict(zip(before, means, strict=True))


def quantities(draw):
    z, a, b = draw["cluster_object"], draw["marginal_a"], draw["marginal_b"]
    found = {
        "pair": float(z[0] == z[1]),
        "name": float(z[0] == 0),
        "last name": float(z[2] == len(draw["weights"]) - 1),
        "a": float(a[0] == a[1]),
        "b": float(b[0] == b[1]),
        "a, b": float((a[0] == a[2]) and (b[0] == b[1])),
        "first weight": draw["weights"][0],
        "own weight": draw["weights"][z[0]],
        "squared weights": (draw["weights"] ** 2).sum(),
    }
    for view, w in (("a", a), ("b", b)):
        link, mean = draw[f"link_{view}"], draw[f"mean_{view}"]
        precision = draw[f"precision_{view}"]
        found[f"link {view}"] = (link**2).sum()
        found[f"own link {view}"] = link[z[0], w[0]]
        found[f"other link {view}"] = link[z[-1], w[0]]
        found[f"mean {view}"] = np.arcsinh(mean).mean()
        found[f"own mean {view}"] = np.log1p(mean[w[0]] ** 2).sum()
        found[f"all means {view}"] = np.log1p(mean**2).sum()
        found[f"precision {view}"] = np.linalg.slogdet(precision)[1]
        found[f"off {view}"] = np.arcsinh(precision[0, -1])
        found[f"standard mean {view}"] = np.log(mean[w[-1]] @ precision @ mean[w[-1]])
    return found


def test_updates_leave_the_prior_alone():
    found = Simulator(tiny_model(), seed=7).scores(2000)
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["stick-breaking", "dirichlet"])
def test_many_updates_leave_the_prior_alone(weights):
    found = Simulator(tiny_model(weights=weights), seed=8).scores(30_000)
    assert max(map(abs, found.values())) < 4.0, found
