import importlib
import inspect

import numpy as np
import pytest

from case_studies import peers
from pm_match import metrics

METHODS = [peers.cluster_gromov_wasserstein, peers.object_gromov_wasserstein]
# Distances between these differ, and so do the sizes: one matching is right.
MEANS = np.array([[0.0, 0.0, 0.0], [10.0, 0.0, 0.0], [0.0, 17.0, 0.0], [3.0, 2.0, 26.0]])
SIZES = np.array([14, 20, 9, 17])


def turned_domains(seed=0):
    """Three domains that differ by a rotation, a reflection and a scale, rows shuffled."""
    rng = np.random.default_rng(seed)
    domains, true = {}, {}
    for name, scale in {"a": 1.0, "b": 0.01, "c": 300.0}.items():
        label = rng.permutation(np.repeat(np.arange(4), SIZES))
        turn = np.linalg.qr(rng.normal(size=(5, 3)))[0]
        values = MEANS[label] + rng.normal(scale=0.3, size=(len(label), 3))
        domains[name] = scale * (values @ turn.T + rng.normal(size=5))
        true[name] = label
    return domains, true


@pytest.fixture(params=METHODS, ids=lambda module: module.__name__.rpartition(".")[2])
def peer(request):
    pytest.importorskip("sklearn")
    pytest.importorskip("ot")
    return request.param


def test_isometric_clusters_are_matched(peer):
    domains, true = turned_domains()
    found = peer.match(domains, 4, random_seed=1)
    assert {name: labels.shape for name, labels in found.items()} == {k: (60,) for k in "abc"}
    assert metrics.adjusted_rand_index(true, found) == 1


def test_the_seed_decides(peer):
    rng = np.random.default_rng(3)
    domains = {name: rng.normal(size=(40, 3)) for name in "ab"}  # nothing to find: ends differ
    first, again = (peer.match(domains, 6, random_seed=5) for _ in range(2))
    assert all(np.array_equal(first[name], again[name]) for name in domains)


def test_domains_of_different_sizes(peer):
    domains, true = turned_domains()
    domains["b"], true["b"] = (part["b"][:50] for part in (domains, true))
    found = peer.match(domains, 4, random_seed=0)
    assert len(found["b"]) == 50
    assert metrics.adjusted_rand_index(true, found) > 0.9


def test_distances_do_not_depend_on_units():
    gw = importlib.import_module("case_studies.peers.gromov_wasserstein")
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 2.0]])
    expected = np.array([[0, 25, 4], [25, 0, 13], [4, 13, 0]]) / 25
    np.testing.assert_allclose(gw.squared_distances(points), expected)
    np.testing.assert_allclose(gw.squared_distances(700 * points), expected)
    np.testing.assert_array_equal(gw.squared_distances(np.ones((2, 1))), np.zeros((2, 2)))


def test_random_starts_have_the_right_margins():
    gw = importlib.import_module("case_studies.peers.gromov_wasserstein")
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.1])
    plan = gw._random_coupling(p, q, np.random.default_rng(0))
    np.testing.assert_allclose(plan.sum(axis=1), p, atol=1e-9)
    np.testing.assert_allclose(plan.sum(axis=0), q, atol=1e-9)
    assert np.abs(plan - np.outer(p, q)).max() > 0.01


def test_more_starts_are_never_worse():
    pytest.importorskip("ot")
    gw = importlib.import_module("case_studies.peers.gromov_wasserstein")
    rng = np.random.default_rng(8)
    first, second = (gw.squared_distances(rng.normal(size=(7, 2))) for _ in range(2))
    p = np.full(7, 1 / 7)

    def distortion(plan):
        gap = (first[:, :, None, None] - second[None, None]) ** 2  # i, k, j, l
        return np.einsum("ikjl,ij,kl", gap, plan, plan)

    one, many = (
        distortion(gw.coupling(first, second, p, p, starts=n, rng=np.random.default_rng(0)))
        for n in (1, 20)
    )
    assert many < one


@pytest.mark.parametrize(
    ("change", "n_clusters", "message"),
    [
        (lambda d: {"a": d["a"]}, 2, "at least two to match; found 1"),
        (lambda d: d | {"b": d["b"][0]}, 2, r"domain 'b': expected a table .* found shape \(5,\)"),
        (
            lambda d: d | {"b": d["b"] * np.nan},
            2,
            "domain 'b': expected finite values only; .* 300",
        ),
        (lambda d: d | {"c": d["c"][:3]}, 4, "domain 'c': 4 clusters need .* found 3"),
        (lambda d: d, 0, "n_clusters: expected a whole number of at least 1; found 0"),
    ],
)
def test_what_is_refused(change, n_clusters, message):
    domains, _ = turned_domains()
    for module in METHODS:
        with pytest.raises(ValueError, match=message):
            module.match(change(domains), n_clusters)


def test_domains_need_names():
    with pytest.raises(TypeError, match="found an object of type list"):
        peers.cluster_gromov_wasserstein.match([np.ones((2, 2))], 1)


@pytest.mark.parametrize(("package", "name"), [("sklearn", "scikit-learn"), ("ot", "POT")])
def test_without_an_optional_package(monkeypatch, package, name):
    pytest.importorskip("sklearn")
    original = importlib.import_module

    def without(module, *args):
        if module.partition(".")[0] == package:
            raise ImportError(module)
        return original(module, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    domains, _ = turned_domains()
    for module in METHODS:
        with pytest.raises(ImportError, match=rf"needs {name}.*pm_match\[examples\]"):
            module.match(domains, 2)


def test_one_interface():
    """What one of them has besides is an option."""
    found = [list(inspect.signature(module.match).parameters.values()) for module in METHODS]
    assert len({str(parameters[:3]) for parameters in found}) == 1
    assert all(own.default is not own.empty for parameters in found for own in parameters[3:])
