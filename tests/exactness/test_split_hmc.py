"""Updates of latent vectors leave the exact law of each object alone, and lead to it.

Every object is there many times. A pseudo-likelihood is at most 1, so that exact draws can be made
by rejection from the normal part.
"""

import sys

import numpy as np
import pytest

from pm_match.views.hinge import split_hmc
from pm_match.views.hinge.hinge_latent import HingeTerm
from pm_match.views.hinge.split_hmc import NormalPart, draw_latent, jump_latent

PRECISION = np.array([[[1.5, 0.6], [0.6, 2.0]], [[1.0, 0.0], [0.0, 1.0]], [[3.0, -1.0], [-1.0, 2]]])
# One object a kind: its pattern of missing values, its linear term and its labels.
PATTERN = np.array([0, 1, 0, 2])
LINEAR = np.array([[0.4, -1.0], [0.0, 0.0], [1.0, 0.3], [-0.5, 2.0]])
LABELS = {
    "one score": np.array([[1.0], [-1.0], [0.0], [1.0]]),
    "three": np.array([[1.0, -1.0, -1.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, 1.0]]),
}
FREQUENCIES = np.array([[1.3, 0.4], [-0.6, 1.1], [0.2, -2.0]])
PENALTY = 1.4
COPIES = 12_000


def problem(case, copies):
    rng = np.random.default_rng(3)
    labels = np.repeat(LABELS[case], copies, axis=0)
    coefficients = rng.normal(0.0, 0.8, (7, labels.shape[1])) / labels.shape[1]
    normal = NormalPart.of(PRECISION, np.repeat(LINEAR, copies, 0), np.repeat(PATTERN, copies))
    return normal, HingeTerm(FREQUENCIES, coefficients, labels, PENALTY / labels.shape[1])


def exact_draws(rng, normal, term):
    found = normal.draw(rng)
    left = np.arange(len(found))
    while len(left):
        candidates = normal.take(left).draw(rng)
        accepted = np.log(rng.random(len(left))) < term(left, candidates)[0]
        found[left[accepted]] = candidates[accepted]
        left = left[~accepted]
    return found


def functions(latent):
    x, y = latent.T
    return np.stack([x, y, x * x, y * y, x * y, np.sin(2 * x + y), (x > 0.3) * 1.0, np.abs(y - x)])


def by_quadrature(case):
    """Expected functions (kinds, 8), of the declared density on a grid."""
    axis = np.linspace(-7.0, 7.0, 700)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    _, term = problem(case, 1)
    found = []
    for kind, pattern in enumerate(PATTERN):
        rows = np.full(len(grid), kind)
        log_density = term(rows, grid)[0] + grid @ LINEAR[kind]
        log_density -= 0.5 * np.einsum("ni,ij,nj->n", grid, PRECISION[pattern], grid)
        weight = np.exp(log_density - log_density.max())
        found.append(functions(grid) @ weight / weight.sum())
    return np.array(found)


def scores(changes):
    """Standardised means (kinds, 8) of differences that have to be zero on average."""
    changes = changes.reshape(len(changes), len(PATTERN), -1)
    deviation = changes.std(axis=-1) / np.sqrt(changes.shape[-1])
    return (changes.mean(axis=-1) / np.maximum(deviation, 1e-300)).T


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize(("step_size", "n_steps"), [(1.2, 1), (0.7, 3)])
def test_leaves_the_exact_law_alone(case, step_size, n_steps):
    rng = np.random.default_rng(5)
    normal, term = problem(case, COPIES)
    start = latent = exact_draws(rng, normal, term)
    for _ in range(3):
        latent, probability = draw_latent(
            rng, normal, term, term.labelled, latent, step_size, n_steps
        )
    assert probability.shape == (term.labelled.sum(),)
    assert 0.2 < probability.mean() < 0.97
    found = scores(functions(latent) - functions(start))
    assert np.abs(found).max() < 4.0, found


@pytest.mark.parametrize("case", LABELS)
def test_jumps_leave_the_exact_law_alone(case):
    rng = np.random.default_rng(8)
    normal, term = problem(case, COPIES)
    start = latent = exact_draws(rng, normal, term)
    for _ in range(3):
        latent, probability = jump_latent(rng, normal, term, term.labelled, latent)
    assert 0.05 < probability.mean() < 0.97
    np.testing.assert_array_equal(latent[~term.labelled], start[~term.labelled])
    found = scores(functions(latent) - functions(start))
    assert np.abs(found).max() < 4.0, found


@pytest.mark.parametrize("case", LABELS)
def test_leads_to_the_exact_law(case):
    rng = np.random.default_rng(6)
    normal, term = problem(case, COPIES // 2)
    latent = np.zeros((len(PATTERN) * COPIES // 2, 2))
    for _ in range(40):
        latent, _ = draw_latent(rng, normal, term, term.labelled, latent, 0.9, 2)
    expected = np.repeat(by_quadrature(case), COPIES // 2, axis=0).T
    found = scores(functions(latent) - expected)
    assert np.abs(found).max() < 4.0, found


def together(log_ratio):
    return np.full_like(log_ratio, log_ratio.mean())


def neighbour(log_ratio):
    return np.roll(log_ratio, 1)


def always(log_ratio):
    return np.zeros_like(log_ratio)


@pytest.mark.parametrize("wrong", [together, neighbour, always])
def test_a_broken_correction_is_seen(wrong, monkeypatch):
    right = split_hmc._trajectory

    def broken(*args):
        moved, log_ratio = right(*args)
        return moved, wrong(log_ratio)

    monkeypatch.setattr(split_hmc, "_trajectory", broken)
    rng = np.random.default_rng(5)
    normal, term = problem("one score", COPIES)
    start = exact_draws(rng, normal, term)
    latent = start
    for _ in range(3):
        latent, _ = draw_latent(rng, normal, term, term.labelled, latent, 1.2, 1)
    assert np.abs(scores(functions(latent) - functions(start))).max() > 10.0


def test_objects_do_not_depend_on_the_others():
    """What an object does is the same whoever moves with it."""
    normal, term = problem("one score", 200)
    few = normal.take(np.arange(2))
    momentum = np.random.default_rng(0).standard_normal((800, 2))
    latent = normal.mean + 0.1
    rows = np.arange(800)
    whole = split_hmc._trajectory(normal, lambda h: term(rows, h), latent, momentum, 0.5, 4)
    alone = split_hmc._trajectory(
        few, lambda h: term(rows[:2], h), latent[:2], momentum[:2], 0.5, 4
    )
    for one, other in zip(whole, alone, strict=True):
        np.testing.assert_allclose(one[:2], other, rtol=1e-10)


def scattered(n_patterns):
    """Twelve hundred objects, dealt out among patterns."""
    rng = np.random.default_rng(9)
    roots = rng.normal(size=(n_patterns, 3, 3))
    precision = roots @ roots.transpose(0, 2, 1) + np.eye(3)
    linear, pattern = rng.normal(size=(1200, 3)), rng.permutation(1200) % n_patterns
    return precision, linear, pattern


@pytest.mark.parametrize("n_patterns", [1, 7, 1200])
def test_coordinates_are_those_of_dense_algebra(n_patterns):
    precision, linear, pattern = scattered(n_patterns)
    normal = NormalPart.of(precision, linear, pattern)
    own = precision[pattern]
    np.testing.assert_allclose(normal.mean, np.linalg.solve(own, linear[..., None])[..., 0])
    rng = np.random.default_rng(0)
    latent, gradient = rng.normal(size=(2, 1200, 3))
    alike = np.flatnonzero(pattern == pattern[5])
    for rows in (np.arange(1200), alike, np.arange(9), np.arange(0)):
        some = normal.take(rows)
        z = some.whitened(latent[rows])
        away = latent[rows] - normal.mean[rows]
        expected = np.einsum("ni,nij,nj->n", away, own[rows], away)
        np.testing.assert_allclose(np.square(z).sum(axis=1), expected)
        np.testing.assert_allclose(some.coloured(z), latent[rows], atol=1e-12)
        # The chain rule: a small step in z moves along the gradient alike in both coordinates.
        step = rng.normal(size=z.shape)
        moved = some.coloured(z + step) - latent[rows]
        np.testing.assert_allclose(
            (some.pulled(gradient[rows]) * step).sum(axis=1), (gradient[rows] * moved).sum(axis=1),
            atol=1e-10,
        )  # fmt: skip


def test_no_work_in_python_grows_with_the_patterns():
    """Where cells are missing here and there, nearly every object has a pattern of its own."""

    def n_calls(n_patterns):
        precision, linear, pattern = scattered(n_patterns)
        labelled, count = np.ones(len(linear), bool), 0

        def still(rows, latent):
            return np.zeros(len(latent)), np.zeros_like(latent)

        def called(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        def move():
            rng = np.random.default_rng(1)
            draw_latent(rng, NormalPart.of(precision, linear, pattern), still, labelled, linear,
                        0.3, 4)  # fmt: skip

        move()
        sys.setprofile(called)
        try:
            move()
        finally:
            sys.setprofile(None)
        return count

    assert n_calls(1200) <= n_calls(3)


def test_without_a_term_draws_are_independent():
    rng = np.random.default_rng(7)
    normal, term = problem("one score", 5000)
    nobody = np.zeros(20_000, bool)
    start = normal.draw(rng)
    latent, probability = draw_latent(rng, normal, term, nobody, start, 0.5, 3)
    assert len(probability) == 0
    for kind in range(len(PATTERN)):
        own = slice(5000 * kind, 5000 * (kind + 1))
        covariance = np.linalg.inv(PRECISION[PATTERN[kind]])
        assert np.abs(np.cov(latent[own].T) - covariance).max() < 0.08
        np.testing.assert_allclose(latent[own].mean(0), covariance @ LINEAR[kind], atol=0.06)
        assert np.abs(np.corrcoef(start[own].T, latent[own].T)[:2, 2:]).max() < 0.06
