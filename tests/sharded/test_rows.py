"""Parameters that enter more than their own clusters' data, in places only: none is drawn so."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from tests.sharded.chains import calls, drawn, halves

X = np.array([-12.0, -9.0, -10.0, 11.0, 9.0, 10.0])


def mixture(centres=lambda: 0.0, least=20.0):
    """Declare three clusters, the second of which is at least at the first, less `least`."""
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(3)), shape=6)
        mu = pm.Normal("mu", centres(), 20.0, shape=3)
        means = pt.stack([mu[0], pt.maximum(mu[1], mu[0] - least), mu[2]])
        pm.StudentT("x", nu=5, mu=means[cluster], sigma=10.0, observed=X)
    return model


def sampler_of(model):
    """A centre and what asks its shards, after a draw of labels at three means and weights."""
    centre, shards, _ = halves(model, {"x": X}, 2, seed=3)

    def at(means, weights):
        centre.point |= {"mu": np.array(means), "weights": np.array(weights)}
        centre._points[0].log_weights = lambda point: np.log(weights)
        drawn(centre, shards, 0)
        return centre, centre._ask(calls(shards), 0)

    return at


@pytest.fixture
def sampler():
    return sampler_of(mixture())


def total(evidence, ask, point):
    return sum(own[0].sum() for own in ask(evidence.parameters(point)).values())


def test_labels_are_not_swapped_where_the_density_changes(sampler):
    centre, ask = sampler([25.0, 0.0, 5.0], [0.1, 0.8, 0.1])
    (evidence,) = centre.evidence
    turned = np.array([1, 2, 0])
    assert not evidence.relabel(dict(centre.point), turned, ask)
    centre, ask = sampler([10.0, 0.0, 5.0], [0.4, 0.3, 0.3])
    new = dict(centre.point)
    assert evidence.relabel(new, turned, ask)
    assert new["mu"].tolist() == [0.0, 5.0, 10.0]
    for _ in range(20):
        centre, ask = sampler([25.0, 0.0, 5.0], [0.1, 0.8, 0.1])
        counts = centre.counts.copy()
        centre._swap({0: ask})
        assert (centre.counts == counts).all()
        assert (centre.point["mu"] == [25.0, 0.0, 5.0]).all()


def test_labels_are_not_swapped_where_the_prior_changes():
    def centres():
        centre = pm.Normal("centre", 0.0, 20.0)
        return pt.stack([centre, pt.minimum(centre, 150.0), centre])

    sampler = sampler_of(mixture(centres, least=1e9))
    centre, ask = sampler([25.0, 0.0, 5.0], [0.1, 0.8, 0.1])
    (evidence,) = centre.evidence
    for place, same in ((100.0, True), (200.0, False)):
        new = dict(centre.point) | {"centre": np.array(place)}
        assert evidence.relabel(new, np.array([1, 2, 0]), ask) is same
        assert new["mu"].tolist() == ([0.0, 5.0, 25.0] if same else [25.0, 0.0, 5.0])


def test_empty_clusters_are_not_drawn_where_that_matters(sampler):
    rng, moved = np.random.default_rng(1), 0
    for _ in range(40):
        centre, ask = sampler([0.0, 0.0, 0.0], [1e-300, 0.5, 0.5])
        (evidence,) = centre.evidence
        assert centre.counts[0] == 0
        new = dict(centre.point)
        evidence.update(rng, new, centre.counts, ask, tuning=False)
        one = {**new, "mu": np.array([-1000.0, *new["mu"][1:]])}
        assert np.isclose(total(evidence, ask, new), total(evidence, ask, one))
        moved += new["mu"][0] != 0.0
    assert moved > 10


def test_what_enters_other_clusters_while_it_is_drawn_is_refused():
    with pytest.raises(pmm.UnservedModelError, match=r"'mu': over shards, .* those of others"):
        pmm.sample_sharded(
            mixture(), {"x": X}, tune=100, draws=500, random_seed=1, progressbar=False
        )
