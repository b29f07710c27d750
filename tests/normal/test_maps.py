"""Maps that align domains: moves and their densities against plain formulas, and integrals."""

import numpy as np
import pytest
from numba import njit

from pm_match.normal import maps
from pm_match.normal.conjugate import log_marginal
from pm_match.normal.maps import Maps, draw_maps
from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.numerics.polar import draw_with_polar, polar_factor

N_CLUSTERS = 3
POWER = 0.7


class Problem:
    """Two domains in `d` dimensions, the second of which has a map; labels are known."""

    def __init__(self, d, seed=0, sizes=(7, 6)):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(d, d))
        center = np.linspace(-0.4, 0.5, d)
        self.d = d
        self.prior = NormalWishartPrior(center, 0.6, d + 2.5, root @ root.T + np.eye(d))
        self.x = [rng.normal(size=(n, d)) + rng.normal(size=d) for n in sizes]
        self.labels = [rng.integers(N_CLUSTERS, size=n) for n in sizes]
        self.q = polar_factor(rng.normal(size=(d, d)))
        self.scale, self.intercept = 1.3, rng.normal(size=d)
        self.scale_prior = np.array([0.2, 3.0])
        self.intercept_prior = np.array([rng.normal(size=d), 0.5 + rng.random(d)])

    def log_density(self, q, scale, intercept):
        """Of data and maps given labels, from the definition."""
        y = (self.x[1] - intercept) @ q / scale
        labels = np.concatenate(self.labels)
        total = log_marginal(np.concatenate([self.x[0], y]), labels, self.prior, False, POWER)
        total -= POWER * y.size * np.log(scale)
        middle, precision = self.intercept_prior
        total -= 0.5 * (precision * (intercept - middle) ** 2).sum()
        return total - 0.5 * self.scale_prior[1] * (np.log(scale) - self.scale_prior[0]) ** 2

    def maps(self, drawn=(1, 1, 1)):
        d, sums = self.d, [np.zeros((2, N_CLUSTERS, *(self.d,) * n)) for n in range(3)]
        y = [self.x[0], (self.x[1] - self.intercept) @ self.q / self.scale]
        for e in range(2):
            for j in range(N_CLUSTERS):
                inside = y[e][self.labels[e] == j]
                sums[0][e, j] = POWER * len(inside)
                sums[1][e, j] = POWER * inside.sum(axis=0)
                sums[2][e, j] = POWER * inside.T @ inside
        k, m = self.prior.strength, self.prior.center
        return Maps.of(
            *sums,
            k,
            self.prior.degrees + (sums[0].sum(axis=0)),
            k * m,
            self.prior.inverse_scale + k * np.outer(m, m),
            np.array([np.eye(d), self.q]),
            np.array([1.0, self.scale]),
            np.array([np.zeros(d), self.intercept]),
            np.array([(0, 0, 0), drawn]),
            POWER * np.array([float(len(x)) for x in self.x]),
            np.array([[0.0, 0.0], self.scale_prior]),
            np.array([np.zeros((2, d)), self.intercept_prior]),
        )


@njit
def angles(m, one, two, values, out):
    maps._set_rest(m, 1)
    maps._plane(m, 1, one, two)
    for i in range(len(values)):
        out[i] = maps._log_density(values[i], m, 1, maps._ANGLE, -1)


@njit
def shifts(m, axis, values, out):
    maps._set_rest(m, 1)
    maps._axis(m, 1, axis)
    for i in range(len(values)):
        out[i] = maps._log_density(values[i], m, 1, maps._SHIFT, axis)


@njit
def scales(m, values, out):
    maps._set_rest(m, 1)
    for i in range(len(values)):
        out[i] = maps._log_density(values[i], m, 1, maps._SCALE, -1)


@njit
def move(m, what, one, two, x):
    if what == maps._ANGLE:
        maps._turn(m, 1, one, two, np.cos(x), np.sin(x))
    elif what == maps._SHIFT:
        maps._shift(m, 1, one, x)
    else:
        maps._rescale(m, 1, x)


VALUES = np.array([0.0, 0.3, -0.7, 1.9])


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("what", ["turn", "shift", "scale"])
def test_densities_and_moves(what, d):
    if what == "turn" and d == 1:
        return
    problem, out = Problem(d), np.zeros(len(VALUES))
    one, two = (d - 1, 0) if d > 1 else (0, -1)
    number = ["turn", "shift", "scale"].index(what)
    if what == "turn":
        angles(problem.maps(), one, two, VALUES, out)
    elif what == "shift":
        shifts(problem.maps(), one, VALUES, out)
    else:
        scales(problem.maps(), VALUES, out)
    expected = []
    for value in VALUES:
        m = problem.maps()
        move(m, number, one, two, value)
        own = m.q[1], m.scale[1], m.intercept[1]
        expected.append(problem.log_density(*own))
        # The sums have followed the map.
        moved = Problem(d)
        moved.q, moved.scale, moved.intercept = own
        fresh = moved.maps()
        np.testing.assert_allclose(m.total, fresh.total, atol=1e-10)
        np.testing.assert_allclose(m.square, fresh.square, atol=1e-10)
        np.testing.assert_allclose(own[0] @ own[0].T, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(out - out[0], np.array(expected) - expected[0], atol=1e-9)


def test_law_of_orientations_by_quadrature():
    # In the plane an orientation is an angle and perhaps a reflection.
    problem = Problem(2, seed=1, sizes=(5, 4))
    n_bins, n_inside, n_draws = 24, 10, 40_000
    grid = (np.arange(n_bins * n_inside) + 0.5) * 2.0 * np.pi / (n_bins * n_inside)
    logs = []
    for sign in (1.0, -1.0):
        for t in grid:
            q = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]) * [1.0, sign]
            logs.append(problem.log_density(q, problem.scale, problem.intercept))
    law = np.exp(np.array(logs) - max(logs)).reshape(2 * n_bins, n_inside).sum(axis=1)
    law /= law.sum()
    m, rng = problem.maps(drawn=(1, 0, 0)), np.random.default_rng(2)
    visits = np.zeros(2 * n_bins)
    for _ in range(n_draws):
        draw_maps(rng, m, 20)  # angles move slowly, the law is broad
        angle = np.arctan2(m.q[1, 1, 0], m.q[1, 0, 0]) % (2.0 * np.pi)
        reflected = np.linalg.det(m.q[1]) < 0.0
        visits[n_bins * reflected + int(angle / (2.0 * np.pi) * n_bins)] += 1
    distance = 0.5 * np.abs(visits / n_draws - law).sum()
    noise = 0.5 * np.sqrt(2.0 * law * (1.0 - law) / (np.pi * n_draws)).sum()
    assert distance < 3.0 * noise
    # Of an angle too far by a fifth of a bin, the law would be another one.
    fine = np.exp(np.array(logs) - max(logs)).reshape(2, -1)
    wrong = np.roll(fine, 4, axis=1).reshape(2 * n_bins, n_inside).sum(axis=1)
    assert 0.5 * np.abs(visits / n_draws - wrong / wrong.sum()).sum() > 3.0 * noise


@pytest.mark.parametrize("what", ["scale", "intercept"])
def test_law_of_scales_and_intercepts_by_quadrature(what):
    problem, n_draws = Problem(1, seed=3, sizes=(5, 4)), 30_000
    grid = np.linspace(-3.0, 3.0, 2401)
    if what == "scale":
        rows = [(problem.q, np.exp(t), problem.intercept) for t in grid]
    else:
        rows = [(problem.q, problem.scale, np.array([t])) for t in grid]
    logs = np.array([problem.log_density(*row) for row in rows])
    law = np.exp(logs - logs.max())
    law /= law.sum()
    m, rng = problem.maps(drawn=(0, what == "scale", what == "intercept")), np.random.default_rng(4)
    draws = []
    for _ in range(n_draws):
        draw_maps(rng, m, 0)
        draws.append(np.log(m.scale[1]) if what == "scale" else m.intercept[1, 0])
    ends = grid[np.searchsorted(np.cumsum(law), np.arange(1, 12) / 12)]
    shares = np.histogram(draws, [-np.inf, *ends, np.inf])[0] / n_draws
    # Draws are correlated: a share is wrong by more than this once in thousands of runs.
    np.testing.assert_allclose(shares, 1 / 12, atol=5.0 * np.sqrt(2.0 / 12 / n_draws))


def test_matrices_with_a_polar_factor():
    rng = np.random.default_rng(5)
    q = polar_factor(rng.normal(size=(3, 3)))
    drawn = np.array([draw_with_polar(rng, q, 4.0) for _ in range(20_000)])
    np.testing.assert_allclose(polar_factor(drawn[0]), q, atol=1e-10)
    # Squares of the entries of A have the mean 1 / 4, whatever its directions.
    assert np.einsum("nij,nij->n", drawn, drawn).mean() == pytest.approx(9 / 4, rel=0.01)
