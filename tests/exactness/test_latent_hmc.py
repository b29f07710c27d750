"""Latent vectors drawn by `LatentHMC`, against the declared conditional on a grid."""

import numpy as np
import pytest
from arviz_stats import ess

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.probe import PLAIN
from pm_match.views.factors.recognise import FactorModel
from pm_match.views.hinge import latent_hmc
from tests.declared.views import tiny_views


def step_of(model, kind, seed=0):
    step = next(step for step in pmm.steps(model) if isinstance(step, kind))
    step.setup_chain(np.random.default_rng(seed), 0, 0)
    step.started = True
    return step


def some_point(model):
    """A point at which views and labels both say something."""
    rng = np.random.default_rng(1)
    start = model.initial_point(0)
    point = {
        name: np.asarray(v + rng.normal(0.0, 0.4, v.shape) if v.dtype.kind == "f" else v)
        for name, v in start.items()
    }
    point["coefficients"] = np.array([1.5, -2.0, 1.0, 2.5, 0.3])
    point["frequencies"] = np.array([[1.2], [-2.1]])
    return point


def functions(h, u):
    return np.stack([h, h * h, u, h * u, np.sin(2.0 * h), np.cos(3.0 * h), (h > 0.2) * 1.0])


def on_grid(model, point):
    """Expected functions (7, N), of the declared conditional of h and u of every object."""
    seen = [model[name] for name in ("latent", "private_latent_x", "x", "y_observed", "label")]
    log_densities = model.compile_logp(vars=seen, jacobian=False, sum=False, mode=PLAIN)
    n = len(point["latent"])
    row = np.nonzero(~np.isnan(_values(model)))[0]
    h_axis, u_axis = np.linspace(-4.5, 4.5, 80), np.linspace(-4.5, 4.5, 40)
    total = np.empty((len(h_axis), len(u_axis), n))
    for i, h in enumerate(h_axis):
        for j, u in enumerate(u_axis):
            at = point | {
                "latent": np.full((n, 1), h),
                "private_latent_x": np.full((n, 1), u),
            }
            *parts, y, label = log_densities(at)
            total[i, j] = sum(part.sum(axis=1) for part in parts) + label
            np.add.at(total[i, j], row, y)
    weight = np.exp(total - total.max(axis=(0, 1)))
    weight /= weight.sum(axis=(0, 1))
    h, u = np.meshgrid(h_axis, u_axis, indexing="ij")
    return np.einsum("fij,ijn->fn", functions(h, u), weight)


def _values(model):
    (part,) = [p for p in read(model).parts if isinstance(p, FactorModel)]
    (view,) = [view for view in part.views if view.name == "y"]
    return np.where(view.table.observed, view.table.values, np.nan)


def chain_scores(model, point, expected, n_draws=3000):
    # Given frequencies and projections: these are not to trade scale with the latent vectors.
    step = pmm.LatentHMC([model["latent"]], model=model, exchange=False)
    step.setup_chain(np.random.default_rng(3), 0, 0)
    step.started = True
    draws = []
    for _ in range(n_draws):
        point, _ = step.step(point)
        draws.append(functions(point["latent"][:, 0], point["private_latent_x"][:, 0]))
    draws = np.array(draws[100:])
    found = np.empty(expected.shape)
    for index in np.ndindex(expected.shape):
        x = draws[:, *index]
        error = x.std() / np.sqrt(min(float(ess(x[None])), len(x)))
        found[index] = (x.mean() - expected[index]) / error
    return found


def test_draws_follow_the_declared_conditional():
    model = tiny_views()
    point = some_point(model)
    expected = on_grid(model, point)
    found = chain_scores(model, point, expected)
    assert np.abs(found).max() < 4.5, found


@pytest.mark.slow
def test_a_wrong_term_is_seen(monkeypatch):
    model = tiny_views()
    point = some_point(model)
    expected = on_grid(model, point)
    right = latent_hmc.HingeTerm
    monkeypatch.setattr(
        latent_hmc, "HingeTerm", lambda w, b, y, penalty: right(w, b, y, 2.5 * penalty)
    )
    found = chain_scores(model, point, expected, 1500)
    # Objects 1, 2 and 4 to 5 are labelled, the third is not.
    assert np.abs(found).max() > 6.0
    assert np.abs(found[:, 2]).max() < 4.5


def test_missing_values_follow():
    model = tiny_views()
    point = some_point(model)
    step = step_of(model, pmm.LatentHMC, seed=2)
    tau = float(np.exp(point["precision_y_log__"]))
    missing, residuals = np.isnan(_values(model)), []
    for _ in range(1500):
        point, _ = step.step(point)
        mean = point["latent"] @ point["projection_y"].T + point["intercept_y"]
        residuals.append((point["y_unobserved"] - mean[missing]) * np.sqrt(tau))
    residuals = np.array(residuals)
    assert np.abs(residuals.mean(axis=0)).max() < 0.12
    assert np.abs(residuals.std(axis=0) - 1.0).max() < 0.12
