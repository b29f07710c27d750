"""Collapsed formulas and conditional draws against the declared model's own log density.

For every point, declared log p(x, s, w, alpha, z) = collapsed log p(x, s) + log p(w, alpha, z | x,
s): the first from PyMC, the second from the step, the third from the conditionals that the step
says it draws from. One identity holds the prior, the evidence and the draws against the model at
once.
"""

import numpy as np
import pytest
from scipy import stats

from pm_match.reading.probe import evaluate
from tests.declared.plain import cluster_step, inside, plain_log_prior, random_point, tiny_model

CASES = {
    "plain": {},
    "linked": {"linked": True},
    "missing": {"missing": True},
    "both": {"linked": True, "missing": True},
}


def log_conditional(step, point):
    """Log density of weights, precision, latent vectors and missing values given all else."""
    partition = inside(step)
    model = step.model
    hyper = partition.hyper(point)
    labels = np.concatenate(inside(step).labels(point))
    counts = np.bincount(labels, minlength=partition.truncation)
    natural = {
        name: np.asarray(evaluate(model.rvs_to_transforms[model[name]].backward(point[value])))
        for name, value in (("weights", "weights_simplex__"), ("precision", "precision_log__"))
    }
    weights, alpha = natural["weights"], float(natural["precision"])
    left = np.concatenate([[1.0], 1.0 - np.cumsum(weights)])[: len(weights) - 1]
    sticks = weights[:-1] / left
    after = counts[::-1].cumsum()[::-1][1:]
    # Density of the weights: that of the sticks over the Jacobian of breaking them.
    total = stats.beta.logpdf(sticks, hyper.a + counts[:-1], hyper.b + after).sum()
    total -= np.log(left).sum()

    squares, linear = hyper.rate, np.zeros((partition.truncation, partition.n_factors))
    shape = hyper.shape
    precision = np.array(
        [hyper.latent_precision * np.eye(partition.n_factors)] * partition.truncation
    )
    z = point["latent"]
    for domain, label, w in zip(
        partition.domains, inside(step).labels(point), inside(step).projections(point), strict=True
    ):
        seen = domain.data.observed
        seen = np.ones(domain.data.values.shape, bool) if seen is None else seen
        for n, j in enumerate(label):
            x, rows = domain.data.values[n, seen[n]], w[seen[n]]
            linear[j] += rows.T @ x
            precision[j] += rows.T @ rows
            squares += 0.5 * x @ x
            shape += 0.5 * len(x)
        if domain.missing:
            mean = (z[label] @ w.T)[~seen]
            total += stats.norm.logpdf(point[domain.missing], mean, alpha**-0.5).sum()
    covariance = np.linalg.inv(precision)
    mean = np.einsum("jkl,jl->jk", covariance, linear)
    rate = squares - 0.5 * np.einsum("jk,jk->", mean, linear)
    total += stats.gamma.logpdf(alpha, shape, scale=1.0 / rate)
    for j in range(partition.truncation):
        total += stats.multivariate_normal.logpdf(z[j], mean[j], covariance[j] / alpha)
    return total


def collapsed(step, point):
    hyper = inside(step).hyper(point)
    labels = np.concatenate(inside(step).labels(point))
    counts = np.bincount(labels, minlength=inside(step).truncation)
    return plain_log_prior(hyper.a, hyper.b, counts) + inside(step).log_marginal(point, labels)


def declared(model, projections=False):
    """PyMC's log density, without the projections unless told: the step conditions on those."""
    variables = [
        rv for rv in model.basic_RVs if projections or not rv.name.startswith("projection")
    ]
    return model.compile_fn(
        model.logp(vars=variables, jacobian=False), mode="FAST_COMPILE", on_unused_input="ignore"
    )


@pytest.mark.parametrize("case", CASES)
def test_declared_equals_collapsed_times_conditional(case):
    model = tiny_model(**CASES[case])
    step = cluster_step(model)
    log_density = declared(model)
    rng = np.random.default_rng(3)
    for _ in range(5):
        point = random_point(model, rng)
        expected = float(log_density(point))
        assert collapsed(step, point) + log_conditional(step, point) == pytest.approx(
            expected, rel=1e-9
        )


@pytest.mark.parametrize("case", CASES)
def test_each_step_changes_its_log_joint_as_the_model_does(case):
    model = tiny_model(**CASES[case])
    step = cluster_step(model)
    log_density = declared(model, projections=True)
    point = random_point(model, np.random.default_rng(4))
    reported, from_model = [], []
    for _ in range(20):
        point, (stats_,) = step.step(point)
        reported.append(stats_["log_joint"])
        from_model.append(float(log_density(point)) - log_conditional(step, point))
    np.testing.assert_allclose(np.diff(reported), np.diff(from_model), atol=1e-8)
    np.testing.assert_allclose(reported, from_model, rtol=1e-9)
    assert np.ptp(reported) > 0.1
