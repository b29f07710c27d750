"""What counts say apart from blocks, against plain formulas."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy import integrate, stats

from pm_match.networks.counts import log_degrees, log_sizes, sample_objects
from pm_match.networks.data import as_network


def test_sizes_are_predicted_one_after_the_other():
    sizes = np.array([1.0, 5.0, 2.0, 6.0, 1.0, 40.0, 7.0, 9000.0])
    digits = [len(f"{int(x):b}") for x in sizes]
    k = max(digits)
    expected, seen = -np.log(k * (k + 1)), np.zeros(k)
    for x, n in zip(sizes, digits, strict=True):
        total = np.sum(1.0 / np.arange(2 ** (n - 1), 2**n))
        expected += np.log((seen[n - 1] + 0.5) / (seen.sum() + 0.5 * k)) - np.log(x * total)
        seen[n - 1] += 1
    assert log_sizes(sizes) == pytest.approx(expected, rel=1e-9)


def test_probabilities_of_sizes_do_not_exceed_one():
    pairs = np.array([*product(np.arange(1.0, 256.0), repeat=2)])
    assert 0.4 < np.exp([log_sizes(pair) for pair in pairs]).sum() < 1.0


def one_degree(d, mean, dispersion, spread):
    def pmf(m):
        if m == 0.0:
            return float(d == 0)
        if np.isinf(dispersion):
            return stats.poisson.pmf(d, m)
        return stats.nbinom.pmf(d, dispersion * m, dispersion / (1.0 + dispersion))

    def weighted(u):
        return pmf(mean * np.exp(spread * u - 0.5 * spread**2)) * stats.norm.pdf(u)

    points = np.linspace(-6.0, 6.0, 13)
    told = sum(integrate.quad(weighted, *ends)[0] for ends in pairwise(points))
    return np.log(told) - np.log(pmf(d))


@pytest.mark.parametrize("dispersion", [np.inf, 0.5])
def test_what_degrees_add_is_an_integral(dispersion, monkeypatch):
    monkeypatch.setattr("pm_match.networks.counts._SPREADS", (0.6,))
    rng = np.random.default_rng(3)
    x = rng.poisson(1.5, size=(6, 5, 3)).astype(float)
    x[2], x[:, 4] = 0.0, np.nan
    clusters = [np.array([0, 2, 2, 0, -1, 0]), np.array([1, 0, 0, 0, 1]), np.array([3, 1, 3])]
    expected = 0.0
    for axis, labels in enumerate(clusters):
        degrees = np.nansum(x, axis=tuple({0, 1, 2} - {axis}))
        expected += sum(
            one_degree(d, degrees[labels == k].mean(), dispersion, 0.6)
            for d, k in zip(degrees, labels, strict=True)
        )
    network = as_network("a", x, family="poisson")
    assert log_degrees(network, clusters, False, dispersion) == pytest.approx(expected, rel=1e-4)


def test_both_ends_of_symmetric_edges_are_of_one_degree(monkeypatch):
    monkeypatch.setattr("pm_match.networks.counts._SPREADS", (0.6,))
    x = np.triu(np.random.default_rng(3).poisson(1.5, size=(6, 6)), 1)
    degrees, one = (x + x.T).sum(0), np.zeros(6, int)
    expected = sum(one_degree(d, degrees.mean(), np.inf, 0.6) for d in degrees)
    network = as_network("a", x, family="poisson", symmetric=True)
    assert log_degrees(network, [one, one], True) == pytest.approx(expected, rel=1e-4)


def test_degrees_that_do_not_differ_add_what_they_were_given():
    """Poisson counts of one mean, with degrees as exposures, are as without, if these are data."""
    x = np.random.default_rng(0).poisson(3.0, size=(40, 50)).astype(float)
    plain = stats.poisson.logpmf(x, x.mean()).sum()
    exposed = np.outer(x.sum(1), x.sum(0)) / x.sum()
    by_degrees = stats.poisson.logpmf(x, exposed).sum()
    one = [np.zeros(n, int) for n in x.shape]
    added = log_degrees(as_network("a", x, family="poisson"), one)
    assert by_degrees - plain > 20.0
    assert by_degrees + added == pytest.approx(plain, abs=3.0)


@pytest.mark.parametrize("one_mode", [False, True])
def test_a_sample_of_objects_has_all_that_is_between_them(one_mode):
    rng = np.random.default_rng(1)
    n = (60, 60) if one_mode else (60, 80)
    x = np.where(rng.random(n) < 0.2, 1.0 + np.arange(np.prod(n)).reshape(n), 0.0)
    np.fill_diagonal(x, 0.0)
    x[:, 7] = np.nan if not one_mode else x[:, 7]
    network = as_network("a", x, family="poisson", one_mode=one_mode)
    assert sample_objects(network, len(network.index), one_mode, rng) is network

    found = sample_objects(network, 100, one_mode, rng)

    assert 60 <= len(found.index) <= 100
    assert [len(own) for own in found.labels] == list(found.shape)
    before = np.column_stack(np.unravel_index(found.values.astype(int) - 1, n))
    objects = []
    for axis in (0, 1):
        pairs = np.unique(np.column_stack([found.index[:, axis], before[:, axis]]), axis=0)
        assert len(np.unique(pairs[:, 0])) == len(pairs) == len(np.unique(pairs[:, 1]))
        assert (np.diff(pairs[:, 1]) > 0).all()  # in the order of before
        objects.append(pairs[:, 1])
    inside = np.isin(network.index[:, 0], objects[0]) & np.isin(network.index[:, 1], objects[1])
    assert inside.sum() == len(found.index)
    if one_mode:
        assert found.shape[0] == found.shape[1] >= len(np.union1d(*objects))
        assert as_network("a", found, family="poisson", one_mode=True).shape == found.shape
    elif 7 in objects[1]:
        assert len(found.unknown) == found.shape[0]
