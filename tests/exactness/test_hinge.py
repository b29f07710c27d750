"""Steps of a hinge against quadrature of the declared posterior, and chains that redraw labels.

The pseudo-likelihood L(y | f) has no normaliser, and so no data to draw. But prior times L is a
measure on parameters and labels together: a chain that alternates the steps with labels drawn from
L(y | f) / sum over y has the law of parameters proportional to prior times that sum, which the
prior's own draws have with weights. Every step must leave it alone (after Geweke 2004).
"""

import numpy as np
import pymc as pm
import pytest
from arviz_stats import ess
from scipy import stats

import pm_match as pmm
from pm_match.reading.probe import natural_function
from pm_match.views.hinge import fourier_values
from tests.exactness.chains import run
from tests.exactness.hinge import FIXED, X, frequency_scores, kernel_model, z_score
from tests.exactness.simulate import look_away
from tests.exactness.simulate_views import log_weights


@pytest.mark.parametrize("classes", [False, True])
def test_the_law_of_coefficients_is_the_posterior(classes):
    """With an offset, an object without a label, and a free precision."""
    offset = np.array([0.3, -0.2, 0.0, 0.5])
    labels = np.array([1.0, -1.0, np.nan, 1.0])
    with pm.Model() as model:
        v = pm.Gamma("v", 3.0, 2.0)
        if classes:
            # One feature, two columns.
            w = pm.Normal("w", 0.0, tau=v, shape=(1, 2))
            score = X[:, :1] @ w + offset[:, None]
            pmm.Hinge("label", score, 0.8, observed=np.array([0, 1, -1, 0]))
        else:
            w = pm.Normal("w", 0.0, tau=v, shape=2)
            pmm.Hinge("label", X @ w + offset, 0.8, observed=labels)
    grid, logs = np.linspace(-6.0, 6.0, 121), np.linspace(-4.0, 3.0, 71)
    one, other, log_v = np.meshgrid(grid, grid, logs, indexing="ij", sparse=True)
    precision = np.exp(log_v)
    log_p = stats.gamma(3.0, scale=0.5).logpdf(precision) + log_v
    log_p = log_p + np.log(precision) - 0.5 * precision * (one**2 + other**2)
    known = [0, 1, 3]
    for n in known:
        if classes:
            code = {0: 0, 1: 1, 3: 0}[n]
            for k, beta in enumerate((one, other)):
                sign = 1.0 if k == code else -1.0
                f = X[n, 0] * beta + offset[n]
                log_p = log_p - 1.6 * np.maximum(0.0, 1.0 - sign * f)
        else:
            f = X[n, 0] * one + X[n, 1] * other + offset[n]
            log_p = log_p - 1.6 * np.maximum(0.0, 1.0 - labels[n] * f)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    (step,) = pmm.steps(model)
    draws = [
        np.append(point["w"].ravel(), point["v_log__"])
        for point in run([step], model.initial_point(), 8_000)
    ]
    draws = np.array(draws)[100:]
    functions = {
        "first": lambda a, b, t: a,
        "second": lambda a, b, t: b,
        "squares": lambda a, b, t: np.minimum(a**2 + b**2, 30.0),
        "product": lambda a, b, t: np.clip(a * b, -5.0, 5.0),
        "precision": lambda a, b, t: t,
        # Its edges are between the points of the grid, each of which stands for a cell around it.
        "corner": lambda a, b, t: 1.0 * ((a > 0.55) & (t > 0.05)),
    }
    scores = {
        name: z_score(f(*draws.T), (p * f(one, other, log_v)).sum())
        for name, f in functions.items()
    }
    assert max(map(abs, scores.values())) < 4.0, scores


@pytest.mark.parametrize(
    "n_leapfrog",
    [
        pytest.param(0, id="one by one"),
        pytest.param(3, id="all at once", marks=pytest.mark.slow),
    ],
)
def test_the_law_of_a_frequency_is_the_posterior(n_leapfrog):
    model, vectors = kernel_model(v=0.7)
    step = pmm.FrequencyMetropolis([model["frequencies"]], model=model, n_leapfrog=n_leapfrog)
    scores = frequency_scores(model, vectors, [step])
    assert np.abs(scores).max() < 4.0, scores


# -- labels redrawn ------------------------------------------------------------------------------


def quantities(vectors, draw):
    frequencies, beta = draw.get("frequencies", FIXED), draw["coefficients"]
    beta = beta if beta.ndim == 2 else beta[:, None]
    scores = fourier_values(vectors, frequencies) @ beta
    angles = vectors @ frequencies.T
    found = {
        "v": draw["v"],
        "log v": np.log(draw["v"]),
        "coefficients": np.tanh(beta[0, 0]),
        "norm": np.log(np.square(beta).mean()),
        "scores": np.log(np.square(scores).mean()),
        "first score": np.tanh(scores[0, 0]),
    }
    if "frequencies" in draw:
        found["frequency"] = np.tanh(frequencies[0, 0])
        found["spread"] = np.log(np.square(angles).mean())
        found["wave"] = np.cos(angles[0, 0])
    if "precision" in draw:
        component = draw["component"]
        found["occupied"] = len(np.unique(component))
        found["mean"] = np.tanh(draw["mean"][0, 0])
        found["precision"] = np.linalg.slogdet(draw["precision"])[1].sum()
        found["own"] = np.log(draw["precision"][component[0], 0, 0])
        found["away"] = np.tanh((draw["frequencies"] - draw["mean"][component])[0, 0])
    return found, log_weights(scores, beta.shape[1] > 1, C=0.9)


def scores_of(model, vectors, labels, steps, n_prior, n_chain):
    """Compare a chain with the prior."""
    names = [rv.name for rv in model.free_RVs]
    drawn = pm.draw([model[name] for name in names], n_prior, random_seed=5)
    prior = [
        quantities(vectors, dict(zip(names, values, strict=True)))
        for values in zip(*drawn, strict=True)
    ]
    weights = np.array([np.exp(np.logaddexp.reduce(w, axis=1).sum()) for _, w in prior])
    weights /= weights.sum()
    rng = np.random.default_rng(6)
    natural = natural_function(model, names)
    for number, step in enumerate(steps):
        step.setup_chain(np.random.default_rng([7, number]), 200, n_chain)
        step.started = True
    look_away(*steps)
    classes = max(labels) > 1
    point, chain = model.initial_point(), []
    for i in range(n_chain):
        if i == 200:
            for step in steps:
                step.stop_tuning()
        for step in steps:
            point, _ = step.step(point)
        found, log_w = quantities(vectors, dict(zip(names, natural(point), strict=True)))
        chain.append(found)
        # The largest of log weights with Gumbel noise is a draw.
        code = (log_w + rng.gumbel(size=log_w.shape)).argmax(axis=1)
        new = np.where(code[:, None] == np.arange(max(labels) + 1), 1.0, -1.0)
        new = new if classes else 2.0 * code[:, None] - 1.0
        for step in steps:
            if not isinstance(step, pmm.ClusterGibbs):
                step._points.labels[:] = new
    result = {}
    for name in chain[0]:
        p = np.array([found[name] for found, _ in prior], float)
        c = np.array([found[name] for found in chain[200:]], float)
        mean = weights @ p
        error = (weights**2) @ (p - mean) ** 2 + c.var() / float(ess(c[None]))
        result[name] = float((c.mean() - mean) / np.sqrt(error))
    return result


CASES = {
    "coefficients": {"prior": "fixed"},
    "one score": {"n_frequencies": 2, "m": 2},
    "classes": {"labels": (0, 2, 1, 1), "n_frequencies": 2, "m": 2},
    "mixture": {"prior": "mixture", "n_frequencies": 3, "m": 2, "labels": (1, -1, 1, -1)},
}


LONG = ("classes", "mixture")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow) if c in LONG else c for c in CASES]
)
def test_steps_leave_the_law_with_redrawn_labels_alone(case):
    labels = CASES[case].get("labels", (1, -1, 1))
    model, vectors = kernel_model(**{"labels": labels} | CASES[case])
    n_chain = 10_000 if case in LONG else 4_000
    found = scores_of(model, vectors, labels, pmm.steps(model), 10_000, n_chain)
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
def test_a_mixture_is_redrawn_with_its_frequencies():
    """Scale moves draw what they integrate out, moves of one frequency its cluster: none else."""
    labels = (1, -1, 1)
    model, vectors = kernel_model(
        "mixture", labels, n_frequencies=3, m=2, weights=np.array([0.7, 0.3])
    )
    steps = [
        pmm.FrequencyMetropolis([model["frequencies"]], model=model, n_leapfrog=4),
        pmm.HingeGibbs([model["coefficients"]], model=model),
    ]
    found = scores_of(model, vectors, labels, steps, 100_000, 40_000)
    assert max(map(abs, found.values())) < 4.0, found
