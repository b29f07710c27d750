"""HMC of frequencies given the coefficients: its gradient, its law, and what it is as a step."""

import copy

import cloudpickle
import numpy as np
import pytest

import pm_match as pmm
from case_studies.frequency_hmc import FrequencyHMC, FrequencyTerm
from pm_match.reading import read
from pm_match.views.hinge import fourier_values
from tests.exactness.hinge import frequency_scores, kernel_model


def differences(term, frequencies):
    """Differentiate a term by every frequency."""
    gradient = np.empty_like(frequencies)
    for at in np.ndindex(frequencies.shape):
        away = np.zeros_like(frequencies)
        away[at] = 1e-6
        gradient[at] = (term(frequencies + away)[0][0] - term(frequencies - away)[0][0]) / 2e-6
    return gradient


def test_gradient_given_the_coefficients():
    rng = np.random.default_rng(11)
    latent, n = rng.normal(size=(7, 2)), 3
    labels = np.sign(rng.normal(size=(7, 2)))
    labels[0] = 0.0
    coefficients = rng.normal(size=(2 * n + 1, 2))
    term = FrequencyTerm(latent, labels, 0.8, coefficients)
    frequencies = rng.normal(size=(1, n, 2))
    (value,), gradient = term(frequencies)
    scores = fourier_values(latent, frequencies[0]) @ coefficients
    loss = np.maximum(0.0, 1.0 - labels * scores)[1:].sum()
    assert value == pytest.approx(-1.6 * loss)
    np.testing.assert_allclose(gradient, differences(term, frequencies), atol=1e-5)


def test_moves_given_the_coefficients_know_the_declared_density():
    model, vectors = kernel_model(labels=(0, 2, 1, 1), n_frequencies=3, m=2)
    (part,) = (p for p in read(model).parts)
    declared = model.compile_logp(mode="FAST_COMPILE")
    rng = np.random.default_rng(3)
    point = {name: rng.normal(size=np.shape(v)) for name, v in model.initial_point().items()}
    term = FrequencyTerm(vectors, part.labels, part.C(point), point["coefficients"])
    prior = part.frequency_prior(point)
    differences = []
    for _ in range(4):
        point["frequencies"] = rng.normal(size=(3, 2))
        (found,), _ = term(point["frequencies"][None])
        found -= 0.5 * np.square(prior.whitened(point["frequencies"])).sum()
        differences.append(found - declared(point))
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)


@pytest.mark.slow
def test_the_law_of_a_frequency_is_the_posterior():
    model, vectors = kernel_model(v=0.7)
    steps = [
        FrequencyHMC([model["frequencies"]], model=model),
        pmm.HingeGibbs([model["coefficients"]], model=model),
    ]
    scores = frequency_scores(model, vectors, steps)
    assert np.abs(scores).max() < 4.0, scores


def test_a_step_moves_frequencies_alone_and_goes_on_when_pickled():
    model, _ = kernel_model(labels=(1, -1, 1), n_frequencies=3, m=2)
    step = FrequencyHMC([model["frequencies"]], model=model)
    step.setup_chain(np.random.default_rng(2), 10, 10)
    first, point = step.log_step_size, model.initial_point()
    new, (stats,) = step.step(point)
    assert {name for name in new if not np.array_equal(new[name], point[name])} == {"frequencies"}
    assert 0.0 < stats["accepted_joint"] <= 1.0
    assert np.isnan(stats["accepted_scale"])
    assert step.log_step_size != first
    other = cloudpickle.loads(cloudpickle.dumps(step))
    other.sampling_state = copy.deepcopy(step.sampling_state)
    np.testing.assert_array_equal(
        step.step(new)[0]["frequencies"], other.step(new)[0]["frequencies"]
    )
    with pytest.raises(ValueError, match="n_leapfrog: expected a whole number of at least 1"):
        FrequencyHMC([model["frequencies"]], model=model, n_leapfrog=0)
