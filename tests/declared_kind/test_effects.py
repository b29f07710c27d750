"""Random effects of objects: which they are, and that labels drawn with them have the right law."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered
from scipy import stats
from scipy.special import digamma, logsumexp

import pm_match as pmm
from pm_match import testing
from pm_match.declared import state
from pm_match.declared.parts import Likelihoods
from pm_match.declared.state import LikelihoodState
from pm_match.reading import read
from tests.declared.plain import plain_log_prior, sampling_noise, total_variation

N, J = 6, 3
RNG = np.random.default_rng(11)
X = RNG.normal(size=(N, J))
COUNTS = RNG.poisson(3.0, size=(N, J))
OWNERS = np.array([0, 3, 3, 1, 5, 2, 0, 4])
LONG = RNG.normal(size=len(OWNERS))


def normal(name="own", shape=N, **given):
    return pm.Normal(name, 0.0, pm.HalfNormal(f"{name}_scale"), shape=shape, **given)


def observe(mean, x=X):
    pm.StudentT("x", nu=5.0, mu=mean, sigma=1.0, observed=x)


def of_long_data(mu, c):
    observe((mu[c] + 0.3 * normal())[OWNERS], LONG)


def of_rows(mu, c):
    observe((mu[c] + normal(shape=(2, N)).sum(axis=0))[:, None])


def of_entries(mu, c):
    observe(mu[c][:, None] + normal(shape=(N, J)))


def positive(mu, c):
    pm.Poisson(
        "x", pt.exp(mu[c])[:, None] * pm.Gamma("own", 2.0, 2.0, shape=(N, 1)), observed=COUNTS
    )


def loaded(mu, c):
    observe(mu[c][:, None] + normal(shape=(N, 2)) @ pm.Normal("loading", shape=(2, J)))


def of_choices(mu, c):
    logits = mu[c][:, None] * np.arange(J) + normal(shape=(N, J))
    pm.Categorical("x", pm.math.softmax(logits, axis=1), observed=COUNTS[:, 0] % J)


def under_one_label(mu, c):
    means = pt.stack([mu[0] + normal(), pt.zeros(N) + mu[1]])
    observe(means[c, np.arange(N)][:, None])


def two_together(mu, c):
    observe((mu[c] + normal())[:, None] + normal("slope")[:, None] * np.arange(J))


def two_apart(mu, c):
    observe(mu[c] + normal(), X[:, 0])
    pm.Normal("y", mu[c] - normal("other"), 1.0, observed=X[:, 1])


def part_without_labels(mu, c):
    """Of each object, a number that its label does not change."""
    own = normal()
    apart = pt.stack([mu[c] + own, own], axis=1)
    observe(apart, X[:, :2])


def of_effects(mu, c):
    """The effects that vary have others as their mean, which enter no data."""
    own = normal("mean")
    observe((mu[c] + pm.Normal("own", own, 1.0, shape=N))[:, None])


def of_some(mu, c):
    observe(mu[c] + pt.concatenate([normal(shape=4), np.zeros(2)]), X[:, 0])


EFFECTS = {
    of_long_data: (["own"], N),
    of_rows: (["own"], N),
    of_entries: (["own"], N * J),
    positive: (["own"], N),
    loaded: (["own"], N),
    of_choices: (["own"], N),
    under_one_label: (["own"], N),
    two_together: (["own", "slope"], N),
    two_apart: (["own", "other"], 2 * N),
    part_without_labels: (["own"], N),
    of_effects: (["own"], N),
    of_some: (["own"], 4),
}


def shared(mu, c):
    """Of two objects each."""
    observe((mu[c] + normal(shape=3)[np.arange(N) // 2])[:, None])


def of_columns(mu, c):
    observe(mu[c][:, None] + normal(shape=J))


def sum_to_zero(mu, c):
    observe((mu[c] + pm.ZeroSumNormal("own", shape=N))[:, None])


def correlated(mu, c):
    observe((mu[c] + pm.MvNormal("own", np.zeros(N), 0.5 + 0.5 * np.eye(N)))[:, None])


def in_order(mu, c):
    observe((mu[c] + normal(transform=ordered, initval=np.arange(N) / N))[:, None])


def without_draws(mu, c):
    observe((mu[c] + pm.Flat("own", shape=N))[:, None])


def seen_elsewhere(mu, c):
    own = normal()
    observe((mu[c] + own)[:, None])
    pm.Normal("y", own, 1.0, observed=X[:, 0])


def held_together(mu, c):
    own = normal()
    observe((mu[c] + own)[:, None])
    pm.Potential("smooth", -((own[1:] - own[:-1]) ** 2))


def far_from_where_it_is_read(mu, c):
    """What the next object has enters if it is much larger."""
    own = normal()
    observe((mu[c] + pt.maximum(own, pt.roll(own, 1) - 50.0))[:, None])


def selected(mu, c):
    """Where there are none, those that are larger may be others."""
    own = normal()
    observe((mu[c] + own + own[own > 50.0].sum())[:, None])


def joined_where_no_label_enters(mu, c):
    """Two of one object each, which together are of several."""
    own, other = normal(), normal("other")
    observe(pt.concatenate([mu[c] + own, mu[c] - other, own[1:] + other[:-1]]), X.ravel()[:-1])


def of_labels(mu, c):
    """They depend on labels themselves: these are drawn given them, as is right."""
    observe(pm.Normal("own", mu[c], 1.0, shape=N)[:, None])


NONE = [
    shared,
    of_columns,
    sum_to_zero,
    correlated,
    in_order,
    without_draws,
    seen_elsewhere,
    held_together,
    far_from_where_it_is_read,
    selected,
    joined_where_no_label_enters,
    of_labels,
]


def declared(declare):
    with pm.Model() as model:
        c = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=N)
        declare(pm.Normal("mu", 0.0, 2.0, shape=2), c)
    return model


def effects(declare):
    (evidence,) = read(declared(declare)).of(Likelihoods)
    return evidence.effects


@pytest.mark.parametrize("declare", EFFECTS)
def test_effects_are_found(declare):
    found = effects(declare)
    names, n_groups = EFFECTS[declare]
    assert list(found.names) == names
    assert len(found.owner) == n_groups
    for place in found.places:
        assert {*place.ravel()} <= {*range(n_groups)}
    assert (np.bincount(found.owner, minlength=N) == n_groups / N).all() or declare is of_some


@pytest.mark.parametrize("declare", NONE)
def test_other_variables_are_none(declare):
    assert effects(declare) is None


def linked(mu, c):
    """Two objects share their label, and have an effect each."""
    of_long_data(mu, c)
    pmm.must_link("links", {"cluster": [[0, 3]]})


@pytest.mark.parametrize("declare", [*(own for own in EFFECTS if own is not of_entries), linked])
def test_labels_are_worth_the_sum_over_all_that_is_tried(declare, monkeypatch):
    """Of all combinations of two values for every group."""
    monkeypatch.setattr(state, "N_TRIED", 2)
    model, rng = declared(declare), np.random.default_rng(3)
    own = testing.collapsed_of(model)
    (evidence,) = own.evidence
    found = evidence.evidence.effects
    point = testing.random_point(model, rng, own)
    labels = own.labels(point)
    own.load(point, labels)
    own.pool(rng, point)
    _, other = evidence._tried

    def mixed(groups):
        """Return a point with the other value of some groups."""
        which = np.append(groups, False)
        return point | {
            key: np.where(which[place], other[key], point[key])
            for key, place in zip(found.keys, found.places, strict=True)
        }

    n_groups = len(found.owner)
    every = [mixed(np.array(own)) for own in product([False, True], repeat=n_groups)]
    expected = logsumexp([evidence.log_marginal(here, labels) for here in every])
    np.testing.assert_allclose(evidence.log_evidence(), expected, rtol=1e-9)
    chosen = own.choose(point)
    same = [all(np.array_equal(here[key], chosen[key]) for key in found.keys) for here in every]
    assert sum(same) == 1
    expected = evidence.log_marginal(chosen, labels)
    np.testing.assert_allclose(evidence.log_evidence(), expected, rtol=1e-9)


# Three objects with two counts each, whose rates a factor of each object multiplies.
Y, RATES, SHAPE = np.array([[1, 0], [3, 5], [6, 2]]), np.array([0.8, 3.0]), 2.5


def overdispersed() -> pm.Model:
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=1)
        c = pm.Categorical("cluster", p=w, shape=3)
        own = pm.Gamma("own", SHAPE, SHAPE, shape=3)
        pm.Poisson("y", (pt.constant(RATES)[c] * own)[:, None], observed=Y)
    return model


def distances(monkeypatch, n_steps=1500) -> tuple[float, float]:
    """Hold draws against the law of labels, and means of logs of effects, as multiples of noise.

    Labels of all objects are enumerated, and given these effects are Gamma variables. No other step
    draws the effects.
    """
    monkeypatch.setattr(state, "N_TRIED", 4)
    model = overdispersed()
    step = pmm.ClusterGibbs([model["cluster"]], n_sweeps=1, model=model, rng=0)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    a, b = read(model).clusterings[0].prior(model.initial_point(0))
    shape, rate = SHAPE + Y.sum(axis=1), SHAPE + Y.shape[1] * RATES
    marginal = (
        stats.poisson.logpmf(Y[:, None], RATES[:, None]).sum(axis=-1)
        + stats.gamma.logpdf(1.0, SHAPE, scale=1.0 / SHAPE)
        - stats.gamma.logpdf(1.0, shape[:, None], scale=1.0 / rate)
    )
    labels = [*product(range(2), repeat=3)]
    law = np.array(
        [
            plain_log_prior(a, b, np.bincount(s, minlength=2)) + marginal[range(3), s].sum()
            for s in labels
        ]
    )
    law = np.exp(law - logsumexp(law))
    visits, logs, means, point = np.zeros(8), [], [], model.initial_point(0)
    for _ in range(n_steps):
        point, _ = step.step(point)
        label = point["cluster"]
        visits[labels.index(tuple(label))] += 1
        logs.append(point["own_log__"])
        means.append(digamma(shape) - np.log(rate[label]))
    # Batches of draws, which depend on each other.
    errors = (np.array(logs) - means).reshape(50, -1, 3).mean(axis=1)
    off = abs(errors.mean(axis=0)) / errors.std(axis=0) * np.sqrt(len(errors))
    return total_variation(visits, law) / sampling_noise(law, n_steps), float(off.max())


def test_law_of_labels_and_effects(monkeypatch):
    of_labels, of_effects = distances(monkeypatch)
    assert of_labels < 2.0
    assert of_effects < 4.0


def kept(self, point):
    """Keep the present effects, whatever labels were drawn with."""
    self.load(point)
    return point


def test_effects_that_are_not_drawn_are_caught(monkeypatch):
    monkeypatch.setattr(LikelihoodState, "choose", kept)
    assert max(distances(monkeypatch)) > 6.0


class MeansOfLogs:
    def __getattr__(self, name):
        return getattr(np, name)

    def logaddexp(self, one, other):
        return 0.5 * (one + other)


def test_means_of_logs_are_caught(monkeypatch):
    monkeypatch.setattr(state, "np", MeansOfLogs())
    assert max(distances(monkeypatch)) > 6.0


def test_effects_stay_where_they_have_a_density():
    """Of what is drawn from its prior, much rounds to 0 or 1, whose log odds are not finite."""
    with pm.Model() as model:
        c = pm.Categorical("cluster", p=np.array([0.5, 0.5]), shape=N)
        own = pm.Beta("own", 0.05, 0.05, shape=N)
        pm.Binomial("y", 2, p=pt.constant([0.5, 0.9])[c] * own, observed=np.arange(N) % 3)
    step = pmm.ClusterGibbs([model["cluster"]], model=model, rng=0)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    point, found = model.initial_point(0), []
    for _ in range(30):
        point, _ = step.step(point)
        found.append(point["own_logodds__"])
    assert np.isfinite(found).all()
    assert len(np.unique(found, axis=0)) > 20
