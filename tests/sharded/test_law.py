"""The law of labels on tiny data in two shards, against enumeration."""

import numpy as np
import pytest
from scipy.stats import gamma

from tests.sharded import models
from tests.sharded.chains import check_choices, run
from tests.sharded.enumeration import CASES, enumerated


def check_law(case, alphas=(1.3,), weights=(1.0,), n=2400, **options):
    """Compare functions of the labels with their expectations, by batch means."""
    model, data, log_evidence = case
    states, p = enumerated(log_evidence, alphas, weights)
    drawn = [np.concatenate(list(labels.values())) for _, labels in run(model, data, n, **options)]
    found = functions(np.array(drawn))
    batches = found.reshape(30, -1, found.shape[1]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    away = np.abs(found.mean(axis=0) - p @ functions(states))
    # Of rare events too few may have been seen for an error of their own.
    floor = np.sqrt(p @ functions(states) / n)
    bound = 4.5 * np.maximum(error, 0.5 * floor) + 1e-9
    assert (away < bound).all(), (away / bound).max()


def functions(states):
    """Every object's labels, which pairs are together, and how large clusters are."""
    n = states.shape[1]
    one = [states == j for j in range(models.T)]
    together = [(states[:, i] == states[:, j])[:, None] for i in range(n) for j in range(i)]
    sizes = np.sort(np.stack([(states == j).sum(axis=1) for j in range(models.T)], 1), axis=1)
    return np.concatenate([*one, *together, sizes == 0, sizes == n - 1], axis=1).astype(float)


@pytest.mark.parametrize("case", CASES)
def test_objects_choose_by_the_declared_density(case, monkeypatch):
    """What chains of this length do not see: densities to the power of .9, say."""
    model, data, _ = CASES[case]()
    check_choices(monkeypatch, model, data)


# Held with moves of whole clusters, which are no help to wrong draws of labels.
MOVED = ("Poisson", "features", "normals", "normals of one precision")


@pytest.mark.parametrize("case", [case for case in CASES if case not in MOVED])
def test_labels_have_their_law(case):
    check_law(CASES[case]())


@pytest.mark.parametrize("family", ["Poisson", "Normal"])
def test_labels_of_coarsened_columns_have_their_law(family):
    check_law(models.columns(family, power=0.4))


@pytest.mark.parametrize("case", MOVED)
def test_labels_have_their_law_with_splits_and_merges(case):
    check_law(CASES[case](), n=4800, moves=True)


def test_labels_have_their_law_with_a_free_concentration():
    alphas = np.linspace(0.02, 14.0, 200)
    weights = gamma.pdf(alphas, 2.0)
    check_law(models.columns("Poisson", alpha=None), alphas, weights / weights.sum())
