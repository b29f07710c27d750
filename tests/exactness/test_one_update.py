"""One update of every step by itself, from exact draws of all variables and data together.

What a right update leaves is as what it found, so that no mean changes. Starts are drawn anew: the
changes are independent, however slowly a chain would mix, and what other steps do cannot hide them.
"""

from functools import partial

import numpy as np
import pytest

import pm_match as pmm
from pm_match.features import feature_gibbs
from pm_match.views.hinge import fourier_values, latent_hmc
from pm_match.views.hinge.carry import LabelledVectors, approximate
from pm_match.views.hinge.frequencies import FrequencyEvidence
from pm_match.views.hinge.labelled_latents import LabelledLatent
from tests.declared.features import ratio_model
from tests.declared.views import tiny_views
from tests.exactness.simulate import ModelSimulator
from tests.exactness.simulate_views import ViewsSimulator

VIEWS = {
    "two classes": {"C": 0.8},
    "sharp labels": {"C": 2.0},
    "three classes": {"labels": [0, 2, None, 1, 0], "C": 0.6},
}
SEES = 4.5


@pytest.fixture(scope="module")
def views():
    return ViewsSimulator(tiny_views(m=2, n_private=1), seed=1)


@pytest.fixture(scope="module")
def ratio():
    return ModelSimulator(ratio_model(np.zeros((4, 2)), np.zeros((2, 2))), seed=3)


def scales_alone(simulator, monkeypatch):
    """Return the step of frequencies, of which none moves by itself."""
    monkeypatch.setattr(
        FrequencyEvidence, "sweep", lambda self, *_: np.zeros(len(self.frequencies), bool)
    )
    return simulator.step(pmm.FrequencyMetropolis)


def carried(simulator):
    """Return moves of the frequencies' step that carry the coefficients along, by themselves."""
    step = simulator.step(pmm.FrequencyMetropolis)

    def move(point):
        new = dict(point)
        for _ in range(3):
            step._carry(new, {})
        return new

    return {"carried": move}


def check(found):
    assert max(map(abs, found.values())) < SEES, found


def moves(*steps):
    return {type(step).__name__: lambda point, step=step: step.step(point)[0] for step in steps}


def test_each_step_of_a_max_margin_model(views):
    found = views.scores(500, moves(*views.steps))
    assert {step for step, _ in found} == {type(step).__name__ for step in views.steps}
    check(found)


@pytest.mark.slow
@pytest.mark.parametrize("case", VIEWS)
def test_each_step_of_a_max_margin_model_at_length(case):
    model = tiny_views(m=2, n_private=1, **VIEWS[case])
    simulator = ViewsSimulator(model, seed=2, n_leapfrog=3)
    check(simulator.scores(4000, moves(*simulator.steps)))


def test_the_scale_of_frequencies(views, monkeypatch):
    check(views.scores(600, moves(scales_alone(views, monkeypatch)), n_updates=3))


@pytest.mark.parametrize("case", ["two classes", "three classes"])
def test_coefficients_carried_along(case):
    simulator = ViewsSimulator(tiny_views(m=2, n_private=1, **VIEWS[case]), seed=6)
    check(simulator.scores(400, carried(simulator)))


def test_a_ratio_of_precisions(ratio):
    check(ratio.scores(800, n_updates=1))


# -- what they see ---------------------------------------------------------------------------------


def labels_that_count_twice(monkeypatch, simulator):
    right = latent_hmc.HingeTerm
    monkeypatch.setattr(latent_hmc, "HingeTerm", lambda w, b, y, C: right(w, b, y, 2.0 * C))
    return simulator.step(pmm.LatentHMC)


def other_labels(monkeypatch, simulator):
    right = latent_hmc.HingeTerm
    monkeypatch.setattr(latent_hmc, "HingeTerm", lambda w, b, y, C: right(w, b, -y, C))
    return simulator.step(pmm.LatentHMC)


def a_wider_prior(monkeypatch, simulator):
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
    return simulator.step(pmm.LatentHMC)


def coefficients_that_stay(monkeypatch, simulator):
    monkeypatch.setattr(latent_hmc, "turn_coefficients", lambda coefficients, angles: coefficients)
    return simulator.step(pmm.LatentHMC)


def an_orbit_without_frequencies(monkeypatch, simulator):
    """In its Jacobian."""
    right = latent_hmc.rescale_axes

    def wrong(rng, quadratic, exponent, rows, *others):
        right(rng, quadratic, exponent + len(rows), rows, *others)

    monkeypatch.setattr(latent_hmc, "rescale_axes", wrong)
    return simulator.step(pmm.LatentHMC)


def scales_without_jacobian(monkeypatch, simulator):
    """The log of a density that falls as the Jacobian grows takes it out."""
    step = scales_alone(simulator, monkeypatch)
    right = step._scaled_log_prior

    def wrong(point, frequencies):
        log_prior = right(point, frequencies)
        return lambda factors: log_prior(factors) - len(frequencies) * np.log(factors).sum()

    monkeypatch.setattr(step, "_scaled_log_prior", wrong)
    return step


def carried_without_jacobian(monkeypatch, simulator):
    scales_without_jacobian(monkeypatch, simulator)
    return carried(simulator)


def carried_without_determinants(monkeypatch, simulator):
    right = LabelledVectors._of

    def wrong(self, frequencies, precision, *given):
        found = right(self, frequencies, precision, *given)
        features = fourier_values(self.latent, frequencies)
        left_out = 0.0
        for labels in self.labels.T:
            seen = np.flatnonzero(labels)
            _, lower = approximate(features[seen] * labels[seen, None], self.C, precision)
            left_out += np.log(lower.diagonal()).sum()
        return found._replace(log_density=found.log_density + left_out)

    monkeypatch.setattr(LabelledVectors, "_of", wrong)
    return carried(simulator)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [carried_without_jacobian, carried_without_determinants])
def test_wrongly_carried_coefficients_are_seen(views, wrong, monkeypatch):
    found = views.scores(1200, wrong(monkeypatch, views))
    assert max(map(abs, found.values())) > 6.0, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        labels_that_count_twice,
        other_labels,
        a_wider_prior,
        coefficients_that_stay,
        an_orbit_without_frequencies,
        scales_without_jacobian,
    ],
)
def test_wrong_views_are_seen(views, wrong, monkeypatch):
    found = views.scores(1800, moves(wrong(monkeypatch, views)), n_updates=3)
    assert max(map(abs, found.values())) > 6.0, found


def without_volume(contributions, r, right, **kwargs):
    """Leave the density of the latent vectors without what it is divided by."""
    (n, k) = contributions[0][1].shape
    return right(contributions, r, **kwargs) - 0.5 * n * k * np.log(r)


def exchanged_by_one(rng, w, mean, precision, z, tau, *others, right):
    """Exchange scales by a latent precision of 1."""
    right(rng, w, mean, precision, z, 1.0, *others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrong"), [("log_evidence", without_volume), ("rescale", exchanged_by_one)]
)
def test_a_wrong_ratio_is_seen(ratio, name, wrong, monkeypatch):
    monkeypatch.setattr(feature_gibbs, name, partial(wrong, right=getattr(feature_gibbs, name)))
    found = ratio.scores(4000, n_updates=1)
    assert max(map(abs, found.values())) > SEES, found
