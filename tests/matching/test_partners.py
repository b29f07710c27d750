"""The best partners are those of a table of all pairs, and whole tiles are left out of it."""

import numpy as np
import pytest

from pm_match.matching import partners
from pm_match.matching.partners import Tiles, best_of


def drawn(rng, n, n_draws, n_labels, doubt, dtype):
    """Objects with a cluster of their own, which some leave now and then; clusters are renamed."""
    home = rng.integers(n_labels, size=n)
    away = rng.random((n, n_draws)) < np.where(rng.random(n) < 0.5, 0.0, doubt)[:, None]
    labels = np.where(away, rng.integers(n_labels, size=(n, n_draws)), home[:, None])
    names = np.stack([rng.permutation(n_labels) for _ in range(n_draws)])
    return names[np.arange(n_draws), labels].astype(dtype)


def by_table(rows, others, n_best):
    count = (rows[:, None] == others[None]).sum(axis=-1)
    partner = np.argsort(-count, axis=1, kind="stable")[:, :n_best]
    return partner, np.take_along_axis(count, partner, axis=1)


@pytest.mark.parametrize("width", [4, 256])
@pytest.mark.parametrize("n_best", [1, 3, 40])
@pytest.mark.parametrize(
    ("n_labels", "n_draws", "dtype"),
    [(3, 1, np.uint8), (3, 70, np.uint8), (90, 300, np.uint16), (1, 64, np.uint8)],
)
def test_partners_are_those_of_the_table(n_labels, n_draws, dtype, n_best, width, monkeypatch):
    monkeypatch.setattr(partners, "_WIDTH", width)
    rng = np.random.default_rng([n_labels, n_draws, n_best])
    seeds = rng.integers(2**30)
    same = [np.random.default_rng(seeds) for _ in range(2)]  # the same names in every draw
    rows, others = (
        drawn(own, n, n_draws, n_labels, 0.4, dtype) for own, n in zip(same, (50, 40), strict=True)
    )
    found = best_of(rows, others, n_best)
    for own, expected in zip(found, by_table(rows, others, n_best), strict=True):
        np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("doubt", [0.05, 0.5, 1.0])
def test_partners_near_and_far_from_the_centres(doubt, monkeypatch):
    monkeypatch.setattr(partners, "_WIDTH", 8)
    rng = np.random.default_rng(5)
    rows = drawn(rng, 400, 100, 6, doubt, np.uint8)
    found = best_of(rows, rows[::2], 4)
    for own, expected in zip(found, by_table(rows, rows[::2], 4), strict=True):
        np.testing.assert_array_equal(own, expected)


def test_tiles_hold_every_partner_once(monkeypatch):
    monkeypatch.setattr(partners, "_WIDTH", 8)
    rows = drawn(np.random.default_rng(1), 100, 30, 5, 0.3, np.uint8)
    tiles = Tiles.of(rows, partners._centres(rows))
    inside = tiles.partner[tiles.partner >= 0]
    np.testing.assert_array_equal(np.sort(inside), np.arange(100))
    for labels, own in zip(tiles.labels, tiles.partner, strict=True):
        np.testing.assert_array_equal(labels[:, own >= 0].T, rows[own[own >= 0]])
    assert (tiles.near <= tiles.far).all()


def test_nobody_has_no_partners():
    nobody, some = np.zeros((0, 4), np.uint8), np.zeros((3, 4), np.uint8)
    for rows, others in ((some, nobody), (nobody, some), (nobody, nobody)):
        n_best = min(2, len(others))
        assert all(found.shape == (len(rows), n_best) for found in best_of(rows, others, n_best))


def test_says_that_kernels_are_compiled(monkeypatch):
    asked, said = [], []
    monkeypatch.setattr(partners, "compile_ahead", lambda jobs: asked.extend(jobs) is None)
    monkeypatch.setattr(partners, "say", said.append)
    rows = np.array([[0, 1], [1, 1]], np.uint8)
    best_of(rows, rows, 1)
    assert said == ["Compiling (first use only)"]
    # It is the call that comes next.
    ((kernel, signature),) = asked
    assert kernel is partners._measure
    assert signature in kernel.signatures
