import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.features.parts import Features
from pm_match.features.search import tables
from pm_match.features.search.match_shapes import common_shape, match_shapes
from pm_match.features.search.mixture_path import mixture_path
from pm_match.numerics.polar import polar_factor
from pm_match.reading import read
from pm_match.search.chain import Chain
from pm_match.starts import Search


def orthogonal(rng, n):
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


@pytest.mark.parametrize(("n_domains", "n"), [(2, 5), (2, 8), (3, 7)])
def test_turned_shapes_are_matched(n_domains, n):
    rng = np.random.default_rng([n_domains, n])
    latent = rng.normal(size=(n, 3))
    maps = [rng.permutation(n) for _ in range(n_domains)]
    means = [
        scale * latent[m] @ orthogonal(rng, 4)[:3] + rng.normal(size=4)
        for scale, m in enumerate(maps, 1)
    ]
    sizes = [np.full(n, 30.0)] * n_domains
    (found,) = match_shapes(rng, means, sizes, 3)
    for own, truth in zip(found, maps, strict=True):
        assert (truth[own] == maps[0]).all()


def test_sizes_decide_where_the_shape_does_not():
    rng = np.random.default_rng(0)
    # A square looks the same from four sides, and in a mirror.
    square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    sizes = np.array([10.0, 20.0, 40.0, 80.0])
    order = np.array([1, 2, 3, 0])
    (found,) = match_shapes(rng, [square, square[order]], [sizes, sizes[order]], 2)
    assert (order[found[1]] == np.arange(4)).all()


def test_common_shape_fits_what_is_a_shape():
    rng = np.random.default_rng(1)
    latent = rng.normal(size=(6, 2))
    means = [2.0 * latent @ orthogonal(rng, 3)[:2], 0.5 * latent @ orthogonal(rng, 5)[:2]]
    found, projections = common_shape(means, [np.full(6, 20.0)] * 2, 2)
    for m, w in zip(means, projections, strict=True):
        np.testing.assert_allclose(found @ w.T, m - m.mean(axis=0), atol=1e-8)
        np.testing.assert_allclose(w.T @ w, (w.T @ w)[0, 0] * np.eye(2), atol=1e-8)


def test_path_passes_through_plain_clusters():
    rng = np.random.default_rng(2)
    centres = 12.0 * rng.normal(size=(4, 3))
    truth = np.repeat(np.arange(4), 25)
    x = centres[truth] + rng.normal(size=(100, 3))
    path = mixture_path(rng, x, 8)
    assert set(path) >= {2, 3, 4}
    assert all(int(own.labels.max()) == n - 1 for n, own in path.items())
    assert pmm.metrics.adjusted_rand_index({"x": truth}, {"x": path[4].labels}) == 1.0


X = np.random.default_rng(6).normal(size=(12, 2))
TABLES = {
    "few objects": (X[:3], X[:2]),
    "no two rows differ": (np.ones((12, 2)), X),
    "a column of one value": (X * [1.0, 0.0] + 1.0, X),
    "far from zero": (1e9 + X, X),
    "nothing observed": (np.full((5, 2), np.nan), X),
}


@pytest.mark.parametrize("case", TABLES)
@pytest.mark.parametrize("n_labels", [1, 3])
def test_tables_without_clusters_of_their_own_have_a_start(case, n_labels):
    """Nothing can be proposed for them but one cluster, and it is."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(n_labels))
        z = pm.Normal("z", shape=(n_labels, 2))
        for name, x in zip("ab", TABLES[case], strict=True):
            c = pm.Categorical(f"c_{name}", p=weights, shape=len(x))
            mean = pm.Normal(f"mean_{name}", 0.0, 1e10, shape=2)
            w = pm.Normal(f"w_{name}", shape=(2, 2))
            pm.Normal(name, mean + z[c] @ w.T, 1.0, observed=x)
    assert read(model).components[0].of(Features)
    (found,) = pmm.initial_points(model, 1, random_seed=0, progressbar=False)
    assert all(np.isfinite(value).all() for value in found.values())
    assert max(found["c_a"].max(), found["c_b"].max()) < n_labels


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(5)
    return {name: rng.permutation(np.repeat(np.arange(4), (10, 15, 25, 30))) for name in "ab"}


@pytest.fixture(scope="module")
def model(truth):
    rng = np.random.default_rng(4)
    latent = rng.normal(size=(4, 3))
    tables_ = {
        name: (latent @ orthogonal(rng, 4)[:3])[own] + 0.1 * rng.normal(size=(len(own), 4))
        for name, own in truth.items()
    }
    # Principal components keep the shape that columns of equal variance would not.
    return pmm.models.table_clusters(tables_, 7, n_components=4)


def chain_of(model, seed):
    rng = np.random.default_rng(seed)
    point = Search(model).dispersed(rng)
    return Chain(model, pmm.steps(model), point, rng)


def test_judge_prefers_the_truth(truth, model):
    chain = chain_of(model, 0)
    features = chain.components[0].of(Features)[0]
    values = [d.data.values for d in features.domains]
    truth = list(truth.values())
    mismatched = [truth[0], (truth[1] + 1) % 4]
    merged = [np.minimum(own, 2) for own in truth]
    rng = np.random.default_rng(0)
    mixed = [np.where(rng.random(len(own)) < 0.1, rng.permutation(own), own) for own in truth]
    proposals = []
    for labels in (mismatched, merged, truth, mixed):
        proposals.append(tables._proposal(chain, 0, features, labels, values))
    best = tables.judged(chain, 0, features, proposals)
    everything = np.concatenate(truth)
    assert pmm.metrics.adjusted_rand_index({"": everything}, {"": best.labels[0]}) == 1.0
    # The point that is kept is of the labels that were judged.
    chain.point = best.point
    assert (chain.labels(0)[0] == best.labels[0]).all()


def test_proposals_begin_with_projections_of_their_own_labels(model, monkeypatch):
    chain = chain_of(model, 0)
    features = chain.components[0].of(Features)[0]
    values = [d.data.values for d in features.domains]
    where = chain.components[0].clusterings[0].slices
    begun = {}

    def climb(chain, number, maximiser, proposal, steps):
        begun.setdefault(id(proposal), (proposal.labels[0], proposal.point))
        proposal.value = 0.0

    monkeypatch.setattr(tables, "_climb", climb)
    proposals = tables.propose(chain, 0, features, np.random.default_rng(0))
    tables.judged(chain, 0, features, proposals)
    found, expected = [], []
    for labels, point in (begun[id(own)] for own in proposals):
        means, sizes = [], []
        for domain, x in zip(features.domains, values, strict=True):
            own = labels[where[domain.assignment]]
            used = np.unique(labels)
            sizes.append(np.array([(own == k).sum() for k in used], float))
            means.append(np.array([x[own == k].sum(axis=0) for k in used]))
            means[-1] /= np.maximum(sizes[-1], 1.0)[:, None]
        # Axes have no sign of their own.
        projections = common_shape(means, sizes, features.n_factors)[1]
        a, b = (w / np.linalg.norm(w, 2) for w in projections)
        expected.append(a @ b.T)
        a, b = (polar_factor(point[f"orientation_{name}"]) for name in "ab")
        found.append(a @ b.T)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    # Those of others differ.
    assert sum(np.abs(found[0] - own).max() > 0.1 for own in found) > len(found) / 2


def test_names_are_in_the_order_that_the_prior_likes(model):
    chain = chain_of(model, 1)
    features = chain.components[0].of(Features)[0]
    sizes = (5, 10, 15, 50)
    labels = [np.repeat(np.arange(4), sizes)] * 2
    values = [d.data.values for d in features.domains]
    proposal = tables._proposal(chain, 0, features, labels, values)
    assert np.bincount(proposal.labels[0]).tolist() == [100, 30, 20, 10]


@pytest.mark.slow
def test_search_finds_plain_clusters_and_repeats_itself(truth, model):
    # One start in a few ends at a matching whose parameters mixed better: hence three.
    found = [pmm.find_matching(model, starts=3, random_seed=3, progressbar=False) for _ in range(2)]
    for draw in found:
        labels = {name: draw["posterior"][f"cluster_{name}"][0, 0] for name in truth}
        assert pmm.metrics.adjusted_rand_index(truth, labels) > 0.95
    first, again = (draw["starts"].to_dataset().drop_vars("seconds") for draw in found)
    assert first.equals(again)


def test_known_labels_name_the_clusters_that_are_proposed():
    """Of a regular polygon all turns have the same shape: labels alone tell them apart."""
    rng, corners = np.random.default_rng(0), 2.0 * np.pi * np.arange(7) / 7
    centre = 4.0 * np.column_stack([np.cos(corners), np.sin(corners), np.zeros(7)])
    turn = orthogonal(rng, 3)
    truth = {name: np.append(np.arange(7), rng.integers(7, size=80)) for name in "ab"}
    domains = {"a": centre[truth["a"]], "b": centre[truth["b"]] @ turn}
    domains = {name: x + 0.5 * rng.normal(size=x.shape) for name, x in domains.items()}
    known = {name: np.where(np.arange(len(own)) < 7, own, -1) for name, own in truth.items()}
    model = pmm.models.table_clusters(domains, n_clusters=10, known=known)
    found = pmm.find_matching(model, starts=3, random_seed=1, progressbar=False)
    assert np.ptp(found["starts"]["log_joint"].to_numpy()) < 1.0
    labels = {name: found["posterior"][f"cluster_{name}"].to_numpy()[0, 0] for name in truth}
    assert all((own[:7] == np.arange(7)).all() for own in labels.values())
    assert pmm.metrics.adjusted_rand_index(truth, labels) > 0.95
