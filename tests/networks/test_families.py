"""Families of block evidence: log gammas where numbers are large, gains, and draws."""

from math import fsum, log

import numpy as np
import pytest
from numba import njit
from scipy import special, stats

from pm_match.clusters import protocol
from pm_match.clusters.evidence import Board
from pm_match.clusters.protocol import collect
from pm_match.clusters.relevance import new_relevance
from pm_match.clusters.sweep import log_evidence_of, new_partition, place, reassign
from pm_match.clusters.units import units
from pm_match.networks import families
from pm_match.networks.block_evidence import BlockEvidence
from pm_match.networks.parts import NetworkCells, Relation
from pm_match.numerics.log_gamma import draw_log_gamma, log_rising, near_log_rising


@njit
def rises(x, h):
    return log_rising(x, h)


@njit
def near_log_risings(x, h):
    return near_log_rising(x, np.log(x), h)


@pytest.mark.parametrize("x", [0.3, 1.0, 7.5, 15.9, 16.0, 50.3, 4096.7, 1e6, 3.3e9])
@pytest.mark.parametrize("h", [1, 2, 9, 60, 1000])
def test_rise_is_a_sum_of_logs(x, h):
    expected = fsum(log(x + i) for i in range(h))
    assert rises(x, float(h)) == pytest.approx(expected, rel=1e-13, abs=1e-13)
    assert rises(x + h, -float(h)) == pytest.approx(-expected, rel=1e-13, abs=1e-13)
    assert rises(x, 0.0) == 0.0
    if x > 4000:
        assert near_log_risings(x, float(h)) == pytest.approx(expected, rel=1e-13)
        assert near_log_risings(x + h, -float(h)) == pytest.approx(-expected, rel=1e-13)


def test_rise_beside_certainty():
    """Known weights are sticks with parameters so large that counts vanish beside them."""
    assert rises(1e40, 5.0) == pytest.approx(5.0 * log(1e40), rel=1e-15)


@njit
def gains(family, prior, tables, sums, more):
    return families.gain(family, prior, tables, *sums, *more)


PRIORS = {
    "bernoulli": (0.7, 1.3, 1.0, 1.0),
    "poisson": (0.7, 1.3, 1.0, 1.0),
    "negative-binomial": (0.7, 1.3, 1.0, 1.0),
    "normal": (0.4, 0.6, 1.7, 1.1),
}


@pytest.mark.parametrize("family", PRIORS)
@pytest.mark.parametrize("size", [0, 5, 3000, 20_000])
@pytest.mark.parametrize("tabulated", [True, False])
def test_gains_are_differences_of_the_plain_formula(family, size, tabulated):
    rng = np.random.default_rng(size)
    prior = PRIORS[family]
    x, y = (
        {
            "bernoulli": lambda n: (rng.random(n) < 0.3) * 1.0,
            "poisson": lambda n: rng.poisson(1.2, n) * 1.0,
            "negative-binomial": lambda n: rng.negative_binomial(0.6, 0.3, n) * 1.0,
            "normal": lambda n: rng.normal(1.0, 2.0, n),
        }[family](n)
        for n in (size, 40)
    )
    # Sums of exposures need not be whole numbers.
    exposure = 1.37 if family in ("poisson", "negative-binomial") else 1.0
    sums, more = ((v.sum(), exposure * len(v), (v**2).sum()) for v in (x, y))
    number = families.FAMILIES[family]
    tables = np.zeros((3, families.TABLE))
    families.fill_tables(number, np.array(prior), tables)
    tables = tables if tabulated else tables[:, :0]
    before = families.log_block(number, prior, *sums)
    both = [a + b for a, b in zip(sums, more, strict=True)]
    after = families.log_block(number, prior, *both)
    found = gains(number, np.array(prior), tables, sums, more)
    assert found == pytest.approx(after - before, rel=1e-9, abs=1e-9)
    blocks = np.array([[0.0, a, b, b] for a, b in zip(sums, both, strict=True)])
    counted = np.array([True, True, True, False])
    assert families.log_blocks(number, np.array(prior), tables, blocks, counted) == pytest.approx(
        before + after, rel=1e-10, abs=1e-10
    )


def test_negative_binomial_blocks_are_integrals_over_their_probability():
    rng = np.random.default_rng(0)
    number = families.FAMILIES["negative-binomial"]
    x, n = rng.negative_binomial(1.0, 0.4, 8) * 1.0, rng.gamma(2.0, 0.5, 8)
    c, d, *_ = prior = PRIORS["negative-binomial"]
    # Nodes of the Beta prior itself.
    nodes, weights = special.roots_jacobi(200, d - 1.0, c - 1.0)
    p = 0.5 * (1.0 + nodes)
    each = np.exp(stats.nbinom.logpmf(x[:, None], n[:, None], p).sum(axis=0))
    constant = families.log_constants(number, x, n)
    found = families.log_block(number, prior, x.sum(), n.sum()) + constant.sum()
    assert found == pytest.approx(np.log(weights @ each / weights.sum()), rel=1e-10)
    # What only the data enter, cell by cell, and nothing for a cell without count or exposure.
    without = x * np.log1p(-0.3) + n * np.log(0.3)
    np.testing.assert_allclose(constant, stats.nbinom.logpmf(x, n, 0.3) - without, atol=1e-12)
    assert families.log_constants(number, np.zeros(1), np.zeros(1)) == 0.0
    # Known probabilities.
    known = (0.3, np.inf, 1.0, 1.0)
    assert families.log_block(number, known, x.sum(), n.sum()) == pytest.approx(without.sum())
    sums, none = (x.sum(), n.sum(), 0.0), np.zeros((3, 0))
    found = gains(number, np.array(known), none, (3.0, 2.5, 0.0), sums)
    assert found == pytest.approx(without.sum())


@pytest.mark.parametrize("family", PRIORS)
def test_drawn_parameters_have_their_exact_law(family):
    rng, prior, n = np.random.default_rng(1), PRIORS[family], 4000
    s, c, q = np.full(n, 7.0), np.full(n, 12.0), np.full(n, 9.0)
    number = families.FAMILIES[family]
    drawn = families.PRIORS[number].draw(rng, families.posterior(number, prior, s, c, q))
    if family == "bernoulli":
        law = stats.beta(prior[0] + 7.0, prior[1] + 5.0)
        values = 1.0 / (1.0 + np.exp(-drawn[0]))
    elif family == "negative-binomial":
        law = stats.beta(prior[0] + 12.0, prior[1] + 7.0)
        values = 1.0 / (1.0 + np.exp(-drawn[0]))
    elif family == "poisson":
        law, values = stats.gamma(prior[0] + 7.0, scale=1.0 / (prior[1] + 12.0)), np.exp(drawn[0])
    else:
        m, kappa, a, b = prior
        mean = (kappa * m + 7.0) / (kappa + 12.0)
        rate = b + 0.5 * (9.0 + kappa * m**2 - (kappa + 12.0) * mean**2)
        law, values = stats.gamma(a + 6.0, scale=1.0 / rate), np.exp(drawn[1])
        scaled = (drawn[0] - mean) * np.sqrt((kappa + 12.0) * values)
        assert stats.kstest(scaled, "norm").pvalue > 1e-3
    assert stats.kstest(values, law.cdf).pvalue > 1e-3


def test_log_gamma_variates_too_small_for_a_float():
    drawn = draw_log_gamma(np.random.default_rng(0), np.full(1000, 1e-4))
    assert np.isfinite(drawn).all()
    assert drawn.min() < -1000.0


def of_two_axes(family, cells):
    return Relation(family, (), (), (0, 1), {"x": cells}, (), False, False, False, lambda _: None)


def test_values_far_from_zero_keep_their_digits():
    """Years, say: sums of squares would lose what is said of a unit."""
    rng = np.random.default_rng(0)
    index = np.argwhere(np.ones((40, 30)))
    x = rng.normal(size=len(index))
    own = [units(n, index[:0]) for n in (40, 30)]
    found = []
    for far in (0.0, 1e6):
        board = Board(own, [3, 3])
        cells = NetworkCells((40, 30), index, far + x, True, index[:0], (None, None), (0, 0))
        flags = [np.zeros(n, bool) for n in (40, 30)]
        evidence = BlockEvidence(of_two_axes("normal", cells), board, flags)
        partitions = [
            new_partition(u.size, 3, None, board.slots_of(p), board.n_slots[p : p + 1])
            for p, u in enumerate(own)
        ]
        evidence.set_prior((far, 0.5, 2.0, 1.0), None)
        for partition in partitions:
            place(partition, np.arange(len(partition.label)) % 3)
        evidence.load()
        out = np.zeros(len(partitions[0].scores))
        scores(partitions[0], evidence.terms[0][1], 5, out)
        drawn = evidence.draw(np.random.default_rng(1), [p.slot_of for p in partitions])
        found.append((out, log_evidence(evidence), drawn[0] - far))
    for near, far in zip(*found, strict=True):
        np.testing.assert_allclose(far, near, atol=1e-6)


def log_evidence(evidence):
    (_, term), *_ = evidence.terms
    return log_evidence_of(collect([term]), 0)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e7, 3e8])
def test_evidence_of_large_values_is_that_of_their_blocks(scale):
    """What rounding leaves of their squares is no noise."""
    index = np.argwhere(np.ones((40, 30)))
    x = scale * np.random.default_rng(0).normal(size=len(index))
    own = [units(n, index[:0]) for n in (40, 30)]
    board = Board(own, [3, 3])
    cells = NetworkCells((40, 30), index, x, True, index[:0], (None, None), (0, 0))
    flags = [np.zeros(n, bool) for n in (40, 30)]
    evidence, prior = (
        BlockEvidence(of_two_axes("normal", cells), board, flags),
        (0, 0.5, 2, scale**2),
    )
    evidence.set_prior(prior, None)
    for p, u in enumerate(own):
        place(
            new_partition(u.size, 3, None, board.slots_of(p), board.n_slots[p : p + 1]),
            np.arange(len(u.size)) % 3,
        )
    evidence.load()
    found = log_evidence_of(collect([evidence.terms[0][1]]), board.n_slots[0])
    labels = [np.arange(n) % 3 for n in (40, 30)]
    assert found == pytest.approx(evidence.log_marginal(labels, prior, None), rel=1e-12)


@njit
def scores(partition, term, unit, out):
    protocol.score(term, unit, partition.slot[unit], partition.n_slots[0], out)


def test_scores_of_blocks_far_beyond_the_tables():
    rng = np.random.default_rng(0)
    shape, density = (400, 300), np.array([[0.6, 0.02], [0.3, 0.9]])
    truth = [rng.integers(2, size=n) for n in shape]
    x = rng.random(shape) < density[truth[0]][:, truth[1]]
    index = np.argwhere(x)
    cells = NetworkCells(shape, index, np.ones(len(index)), True, index[:0], (None, None), (0, 0))
    own = [units(n, index[:0]) for n in shape]
    board = Board(own, [4, 4])
    partitions = [
        new_partition(
            u.size, 4, new_relevance(np.zeros(n, int)), board.slots_of(p), board.n_slots[p : p + 1]
        )
        for p, (u, n) in enumerate(zip(own, shape, strict=True))
    ]
    flags = [np.ones(n, bool) for n in shape]
    evidence = BlockEvidence(of_two_axes("bernoulli", cells), board, flags)
    assert evidence.plain
    prior, noise = PRIORS["bernoulli"], (1.1, 0.8, 1.0, 1.0)
    evidence.set_prior(prior, noise)
    for partition, labels in zip(partitions, truth, strict=True):
        place(partition, np.where(rng.random(len(labels)) < 0.2, -1, labels))
    evidence.load()
    assert evidence.relation.sums[0].max() > families.TABLE
    for home, term in evidence.terms:
        partition, terms = partitions[home], collect([term])
        for unit in range(0, shape[home], 40):
            out = np.zeros(len(partition.scores))
            n_slots = int(partition.n_slots[0])
            old, slot_of = int(partition.label[unit]), partition.slot_of.copy()
            here = log_evidence(evidence)
            for label in {-1, 0, 1, 2} - {old}:
                out[:] = 0.0
                scores(partition, term, unit, out)
                reassign(partition, terms, unit, label)
                there = log_evidence(evidence)
                candidate = n_slots if label < 0 else slot_of[label]
                start = n_slots if old < 0 else slot_of[old]
                assert out[candidate] - out[start] == pytest.approx(there - here, abs=2e-8)
                reassign(partition, terms, unit, old)
