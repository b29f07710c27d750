"""Latent vectors drawn by `LatentHMC`: against the declared conditional on a grid, and Geweke.

A pseudo-likelihood has no normaliser, so that data cannot be drawn from the model. For Geweke's
test it is given one: the hinge normalised over the label, whose log normaliser enters the term of
the latent vectors, and as a correction by Metropolis' rule the draws of coefficients.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from arviz_stats import ess
from pymc.pytensorf import compile
from pytensor.graph.replace import graph_replace
from scipy.special import expit

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.probe import PLAIN, natural_function
from pm_match.views.factors.recognise import FactorModel
from pm_match.views.hinge import latent_hmc
from pm_match.views.hinge.hinge_latent import HingeTerm
from pm_match.views.hinge.labelled_latents import LabelledLatent
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


# -- Geweke ----------------------------------------------------------------------------------------


def log_normaliser(scores, penalty):
    loss = np.stack([np.maximum(0.0, 1.0 - scores), np.maximum(0.0, 1.0 + scores)])
    return np.logaddexp(*(-2.0 * penalty * loss))


class ProperTerm(HingeTerm):
    """The hinge normalised over the label."""

    def __call__(self, rows, latent):
        value, gradient = super().__call__(rows, latent)
        penalty = 0.5 * self._penalty
        angles = latent @ self._frequencies.T
        scores = np.cos(angles) @ self._cosines + np.sin(angles) @ self._sines + self._constant
        labelled = self.labels[rows] != 0.0
        value = value - (labelled * log_normaliser(scores, penalty)).sum(axis=1)
        upper = expit(_log_odds(scores, penalty))
        slope = 2.0 * penalty * (upper * (scores < 1.0) - (1.0 - upper) * (scores > -1.0))
        waves = np.cos(angles) * self._sines[:, 0] - np.sin(angles) * self._cosines[:, 0]
        return value, gradient - labelled * slope * (waves @ self._frequencies)


def _log_odds(scores, penalty):
    return 2.0 * penalty * (np.maximum(0.0, 1.0 + scores) - np.maximum(0.0, 1.0 - scores))


def test_gradient_of_the_proper_term():
    rng = np.random.default_rng(0)
    h, w, b = rng.normal(size=(30, 2)), rng.normal(size=(3, 2)), rng.normal(0, 2, (7, 1))
    labels = rng.integers(-1, 2, (30, 1))
    term, rows = ProperTerm(w, b, labels, 0.8), np.arange(30)
    for k in range(2):
        step = 1e-6 * np.eye(2)[k]
        slope = (term(rows, h + step)[0] - term(rows, h - step)[0]) / 2e-6
        np.testing.assert_allclose(term(rows, h)[1][:, k], slope, atol=1e-6)


class Simulator:
    """The whole model with a proper likelihood: prior, data, and updates by the steps."""

    def __init__(self, model, seed):
        self.model, self.rng = model, np.random.default_rng(seed)
        self.steps = {type(step): step for step in pmm.steps(model)}
        for step in self.steps.values():
            step.setup_chain(self.rng, 0, 0)
            step.started = True
        self.hinge = self.steps[pmm.HingeGibbs].part
        self.steps[pmm.HingeGibbs]._draw_scale = lambda *_: 0.0
        self.factors = self.steps[pmm.FactorGibbs].part
        free = model.free_RVs
        self.names = [rv.name for rv in free]
        self._prior = compile([], free, random_seed=seed + 1, mode=PLAIN)
        stands = {rv: pt.tensor(dtype=rv.dtype, shape=rv.type.shape) for rv in free}
        observed = [model[name] for name in ("x", "y_observed", "label")]
        self._data = compile(
            list(stands.values()),
            graph_replace(observed, list(stands.items()), strict=False),
            random_seed=seed,
            mode=PLAIN,
            on_unused_input="ignore",
        )
        values = []
        for rv in free:
            transform = model.rvs_to_transforms[rv]
            values.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
        self._values = pytensor.function(
            list(stands.values()),
            graph_replace(values, list(stands.items()), strict=False),
            mode=PLAIN,
            on_unused_input="ignore",
        )
        self._natural = natural_function(model, self.names)

    def draw(self):
        """A draw from the prior, as a point."""
        natural = self._prior()
        found = {
            self.model.rvs_to_values[rv].name: value
            for rv, value in zip(self.model.free_RVs, self._values(*natural), strict=True)
        }
        self.new_data(natural)
        return {v.name: np.asarray(found[v.name], v.dtype) for v in self.model.value_vars}

    def new_data(self, natural):
        x, y, label = self._data(*natural)
        for view, values in zip(self.factors.views, (x, y), strict=True):
            seen = view.table.observed
            if seen is None:
                view.table.values[:] = values
            else:
                view.table.values[seen] = values
        labels = self.hinge.labels
        labels[:] = np.where(labels == 0.0, 0.0, label[:, None])
        own = self.steps[pmm.HingeGibbs]._points
        own.labels[:] = labels[own.rows]

    def log_likelihood(self, point):
        C, labels = self.hinge.C(point), self.hinge.labels
        scores = self.hinge.design(point)[0] @ point["coefficients"][:, None]
        loss = np.maximum(0.0, 1.0 - labels * scores)
        return float(((labels != 0.0) * (-2.0 * C * loss - log_normaliser(scores, C))).sum())

    def log_total_normaliser(self, point):
        scores = self.hinge.design(point)[0] @ point["coefficients"][:, None]
        return float(
            ((self.hinge.labels != 0.0) * log_normaliser(scores, self.hinge.C(point))).sum()
        )

    def update(self, point):
        rng = self.rng
        for kind in (pmm.FactorGibbs, pmm.LatentHMC):
            point, _ = self.steps[kind].step(point)
        # Scales and coefficients in turn are reversible under the hinge, given their precision: the
        # normaliser corrects.
        drawn, _ = self.steps[pmm.HingeGibbs].step(point)
        proposed = point | {"coefficients": drawn["coefficients"]}
        ratio = self.log_total_normaliser(point) - self.log_total_normaliser(proposed)
        if np.log(rng.random()) < ratio:
            point = proposed
        beta = point["coefficients"]
        v = rng.gamma(0.5 + 0.5 * len(beta)) / (0.5 + 0.5 * beta @ beta)
        point = point | {"coefficient_precision_log__": np.asarray(np.log(v))}
        # Frequencies from their prior, by Metropolis' rule.
        means, lower = self.hinge.frequency_prior(point)
        fresh = means + np.einsum("jkl,jl->jk", lower, rng.standard_normal(means.shape))
        proposed = point | {"frequencies": fresh}
        if np.log(rng.random()) < self.log_likelihood(proposed) - self.log_likelihood(point):
            point = proposed
        return self.steps[pmm.ClusterGibbs].step(point)[0]

    def quantities(self, point):
        natural = dict(zip(self.names, self._natural(point), strict=True))
        found = {}
        for name, value in natural.items():
            x = np.asarray(value, float)
            found[f"{name} mean"] = np.arcsinh(x).mean()
            found[f"{name} spread"] = np.log1p(np.square(x)).mean()
        h, w = natural["latent"], natural["projection_x"]
        scores = self.hinge.design(point)[0] @ natural["coefficients"]
        for n in range(len(h)):
            found[f"score {n}"] = np.tanh(scores[n])
            found[f"margin {n}"] = self.hinge.labels[n, 0] * np.tanh(scores[n])
            found[f"score {n}, h"] = np.tanh(scores[n]) * np.arcsinh(h[n, 0])
            found[f"h, u {n}"] = np.tanh(
                (h[n] @ w[0]) * (natural["private_latent_x"][n] @ natural["private_x"][0])
            )
            found[f"h square {n}"] = np.log1p(h[n] @ h[n])
        hole = natural["y_unobserved"][0] - h[0] @ natural["projection_y"][1]
        found["missing"] = np.arcsinh(hole)
        return found

    def scores(self, n, n_updates=2):
        """Standardised mean changes in a few updates from prior draws: all zero if right."""
        changes = []
        for _ in range(n):
            point = self.draw()
            before = self.quantities(point)
            # Signs of factors are free: what is new is compared with what was, in means.
            for _ in range(n_updates):
                point = self.update(point)
            after = self.quantities(point)
            changes.append([after[name] - before[name] for name in before])
        changes = np.array(changes)
        moved = np.ptp(changes, axis=0) > 0.0
        found = np.zeros(changes.shape[1])
        found[moved] = (changes.mean(0) / (changes.std(0) + 1e-300) * np.sqrt(n))[moved]
        return dict(zip(before, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 8000])
def test_geweke(n, monkeypatch):
    monkeypatch.setattr(latent_hmc, "HingeTerm", ProperTerm)
    found = Simulator(tiny_views(m=2, n_private=1), seed=n).scores(n)
    assert max(map(abs, found.values())) < 4.5, found


def _wider_prior(monkeypatch):
    monkeypatch.setattr(latent_hmc, "HingeTerm", ProperTerm)

    class Wider:
        """In the place of the record's field."""

        def __set__(self, part, prior):
            part.__dict__["prior"] = prior

        def __get__(self, part, kind=None):
            def wrong(point):
                mean, precision = part.__dict__["prior"](point)
                return mean, 0.5 * precision

            return wrong

    monkeypatch.setattr(LabelledLatent, "prior", Wider(), raising=False)


def _other_labels(monkeypatch):
    monkeypatch.setattr(
        latent_hmc, "HingeTerm", lambda w, b, labels, penalty: ProperTerm(w, b, -labels, penalty)
    )


@pytest.mark.slow
@pytest.mark.parametrize("break_it", [_wider_prior, _other_labels])
def test_geweke_sees_what_is_wrong(break_it, monkeypatch):
    break_it(monkeypatch)
    found = Simulator(tiny_views(m=2, n_private=1, C=2.0), seed=2).scores(400, n_updates=4)
    assert max(map(abs, found.values())) > 5.0, found
