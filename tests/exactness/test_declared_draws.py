"""What chains look at while they sample: the declared density of what they have drawn."""

from collections import Counter
from functools import partialmethod

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.evidence import EvidenceState
from pm_match.clusters.step import PartitionStep
from pm_match.columns.parts import Columns
from pm_match.features.state import FeatureState
from pm_match.networks.block_evidence import BlockEvidence
from pm_match.normal.conjugate import NormalEvidence
from pm_match.reading import read
from pm_match.reading.declared_draws import DeclaredDensity
from pm_match.reading.parts import Clustering
from pm_match.views.factors.recognise import FactorModel
from pm_match.views.hierarchy.recognise import Hierarchy
from pm_match.views.hinge.labelled_latents import LabelledLatent
from pm_match.views.hinge.recognise import HingeModel
from tests.declared import columns, factors, features, hierarchies, networks, normals, plain, views
from tests.exactness.chains import run


def known_labels():
    """Over constant weights, those of some objects, and those of all of another domain."""
    y, labels = np.random.default_rng(0).normal(size=6), np.arange(6) % 3
    with pm.Model() as model:
        weights, mean = np.array([0.5, 0.3, 0.2]), pm.Normal("mean", shape=3)
        known = pm.Categorical("known", weights, observed=labels)
        some = pm.Categorical("some", weights, observed=np.ma.masked_array(labels, labels == 1))
        pm.Normal("x", mean[known], 1.0, observed=y)
        pm.Normal("y", mean[some], 1.0, observed=y)
    return model


def known_labels_of_own_weights():
    y, labels = np.random.default_rng(0).normal(size=6), np.arange(6) % 3
    with pm.Model() as model:
        p = pm.math.softmax(y[:, None] * pm.Normal("slope", shape=3), axis=1)
        own = pm.Categorical("own", p, observed=np.ma.masked_array(labels, labels == 2))
        pm.Poisson("count", pt.constant([1.0, 3.0, 8.0])[own], observed=np.arange(6))
    return model


def sticks_next_to_one():
    """So near that no float tells them from it, and the density of weights is not finite."""
    with pm.Model() as model:
        sticks = pm.Beta("sticks", 1.0, 1e-3, shape=3)
        rests = pt.concatenate([[1.0], pt.extra_ops.cumprod(1.0 - sticks)])
        weights = pt.concatenate([sticks, [1.0]]) * rests
        cluster = pm.Categorical("cluster", weights, shape=6)
        rate = pm.Gamma("rate", 2.0, 1.0, shape=(4, 2))
        counts = np.random.default_rng(0).poisson(3.0, size=(6, 2))
        pm.Poisson("count", rate[cluster], observed=counts)
    return model


MODELS = {
    "known labels": known_labels,
    "plain": plain.tiny_model,
    "plain, missing": lambda: plain.tiny_model(linked=True, missing=True),
    "deviations": lambda: features.feature_model(
        features.Kind(deviations="vector", noise="wishart", projection="rigid")
    ),
    "missing, relevance": lambda: features.feature_model(
        features.Kind(missing=True, relevance="first")
    ),
    "missing, dependent": lambda: features.feature_model(
        features.Kind(
            missing=True, relevance="all", noise="wishart", deviations="one", sizes=((2, 2), (2, 3))
        )
    ),
    "tied": lambda: features.feature_model(
        features.Kind(tied=True, noise="vector", projection="transposed", missing=True)
    ),
    "bernoulli": networks.network_model,
    "poisson": lambda: networks.network_model(family="poisson", exposure=True, unknown=True),
    "negative binomial": lambda: networks.network_model(
        kind="undirected", family="negative-binomial", exposure=True, loops=True
    ),
    "normal": lambda: networks.network_model(family="normal", unknown=True),
    "columns": lambda: columns.declared("normal"),
    **{f"normals, {case}": lambda case=case: normals.normals_model(case) for case in normals.CASES},
    "aligned": normals.aligned_model,
}


QUICK = ("plain, missing", "deviations", "poisson", "normals, shared")


@pytest.mark.parametrize(
    "name", [own if own in QUICK else pytest.param(own, marks=pytest.mark.slow) for own in MODELS]
)
def test_the_packages_kinds_pass_what_others_are_asked_for(name):
    """All checks that kinds from elsewhere have, but the law: `check_law` is for fewer states."""
    model = MODELS[name]()
    testing.check_scores(model, n_points=3)
    testing.check_running_state(model, n_moves=1000)
    testing.check_declared_density(model)
    if name != "missing, dependent":
        # Its gradient has more terms than PyTensor adds up where it compiles nothing.
        testing.check_draws(model, n_draws=1500)
    testing.check_hyperparameters(model)


def two_hinges():
    """Of the same latent vectors, with coefficients of one precision for each class."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        latent, loading = pm.Normal("latent", 0.2, 0.9, shape=(6, 2)), pm.Normal("w", shape=(3, 2))
        pm.Normal("x", latent @ loading.T, 0.6, observed=rng.normal(size=(6, 3)))
        for name, labels in (("a", [1, -1, 1, -1, 1, -1]), ("b", [-1, -1, 1, 1, 1, -1])):
            frequencies = pm.Normal(f"frequencies_{name}", 0.3, 0.8, shape=(4, 2))
            beta = pm.Normal(f"beta_{name}", 0.0, 0.7, shape=9)
            score = pmm.fourier_features(latent, frequencies) @ beta
            pmm.Hinge(f"labels_{name}", score, C=0.6, observed=labels)
    return model


VIEWS = {
    "max margin": views.tiny_views,
    "max margin, classes": lambda: views.tiny_views([0, 1, None, 2, 1], n_private=None),
    "two hinges": two_hinges,
    "hierarchy": hierarchies.declared,
    "hierarchy, some objects": lambda: hierarchies.declared(
        seen=np.array([6, 0, 3, 1, 7, 2]), observed=hierarchies.X[:6]
    ),
    "factors": lambda: factors.factor_kind_model(factors.FactorKind()),
    "factors, of features": lambda: factors.factor_kind_model(
        factors.FactorKind(n_shared=2, columns="shared", private="gamma", noise="features")
    ),
    "factors, transposed": lambda: factors.factor_kind_model(
        factors.FactorKind(transposed=True, noise="known", intercept="first", seen=True)
    ),
}


def counted(self, looked, check, declared, point):
    looked[self] += 1
    check(self, declared, point)


@pytest.mark.parametrize("name", [*MODELS, "known labels, own weights", *VIEWS])
def test_draws_have_the_declared_density(monkeypatch, name):
    """Of chains, whose weights and parameters move far from where a model is read."""
    model = (MODELS | VIEWS).get(name, known_labels_of_own_weights)()
    looked = Counter()
    for own in (PartitionStep, pmm.ClusterGibbs, pmm.HierarchyGibbs):
        monkeypatch.setattr(own, "_check_draw", partialmethod(counted, looked, own._check_draw))
    steps, point = pmm.steps(model), model.initial_point()
    (*_, point) = run(steps, point, 8)
    ours = [own for own in steps if own.__class__ is pmm.ClusterGibbs or name in VIEWS]
    assert ours
    assert all(looked[own] == 3 for own in ours)
    for own in ours:
        own.setup_chain(2, 0, 8)
        for n_looks in (3, 4):
            own.step(point)
            assert looked[own] == n_looks


def declared_with_large_numbers():
    """PyTensor computes log gamma functions of such constants, 200.0 and 3000, in single precision.

    As it does of 20.0 and 3, where there are columns enough.
    """
    y = np.random.default_rng(0).integers(2, size=(6, 40))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 3)
        cluster = pm.Categorical("cluster", weights, shape=6)
        share = pm.Beta("share", 200.0, 200.0, shape=(4, 40))
        pm.Bernoulli("seen", share[cluster], observed=y)
        rate = pm.Gamma("rate", 3000, 1000, shape=(4, 40))
        pm.Poisson("count", rate[cluster], observed=3 * y)
    return model


def declared_with_vague_precisions():
    """Those of empty clusters are too near zero for a float, half of the time."""
    y = np.random.default_rng(0).normal(size=(6, 2))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 3)
        cluster = pm.Categorical("cluster", weights, shape=6)
        precision = pm.Gamma("precision", 1e-3, 1e-3, shape=(4, 2))
        mean = pm.Normal("mean", 0.0, tau=0.1 * precision, shape=(4, 2))
        pm.Normal("x", mean[cluster], tau=precision[cluster], observed=y)
    return model


def declared_near_bounds():
    """Probabilities next to 1, of which PyMC's own density keeps no digits."""
    y = np.random.default_rng(0).random((200, 30)) < 0.01
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 0.01, 19)
        cluster = pm.Categorical("cluster", weights, shape=200)
        share = pm.Beta("share", 0.01, 0.01, shape=(20, 30))
        pm.Bernoulli("x", share[cluster], observed=y)
    return model


def declared_far_from_zero():
    """Where sums of squares keep no digits."""
    y = 1e8 + np.random.default_rng(0).normal(size=(30, 4))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 3)
        cluster = pm.Categorical("cluster", weights, shape=30)
        tau = pm.Gamma("tau", 1.0, 1.0)
        latent = pm.Normal("latent", 0.0, tau=0.5 * tau, shape=(4, 2))
        projection = pm.Normal("projection", shape=(4, 2))
        mean = latent[cluster] @ projection.T + pm.Normal("intercept", 1e8, 1.0, shape=4)
        pm.Normal("x", mean, tau=tau, observed=y)
    return model


def declared_with_large_counts():
    """Their log densities are differences of numbers as large as 3e14, in all."""
    y = np.random.default_rng(0).poisson(1e9, size=(5000, 3))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 3)
        cluster = pm.Categorical("cluster", weights, shape=5000)
        rate = pm.Gamma("rate", 1.0, 1e-9, shape=(4, 3))
        pm.Poisson("x", rate[cluster], observed=y)
    return model


def declared_with_names_like_missing_labels():
    """PyMC calls the known part of labels so; these are data."""
    y = np.random.default_rng(0).normal(size=6)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 3)
        cluster = pm.Categorical("cluster", weights, shape=6)
        mean = pm.Normal("mean", shape=4)
        pm.Normal("cluster_observed", mean[cluster], 1.0, observed=y)
    return model


def declared_with_effects_above_zero():
    """Objects' own, drawn by NUTS as logs: their densities count on that scale."""
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 3)
        cluster = pm.Categorical("cluster", weights, shape=6)
        rate = pm.Gamma("rate", 2.0, 1.0, shape=4)
        effect = pm.Gamma("effect", 4.0, rate[cluster], shape=6)
        pm.Poisson("x", effect, observed=[0, 1, 3, 3, 8, 20])
    return model


def declared_with_times_left_out():
    times = np.random.default_rng(0).weibull(1.5, size=(6, 2))
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.0, 3)
        cluster = pm.Categorical("cluster", weights, shape=6)
        shape = pm.Uniform("shape", 0.5, 3.0, shape=4)
        known = np.ma.masked_array(times, times > 1.2)
        pm.Gamma("x", shape[cluster][:, None], 1.0, observed=known)
    return model


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    "declared",
    [
        declared_with_large_numbers,
        declared_with_vague_precisions,
        declared_near_bounds,
        declared_far_from_zero,
        declared_with_large_counts,
        declared_with_names_like_missing_labels,
        declared_with_effects_above_zero,
        declared_with_times_left_out,
    ],
)
def test_no_model_is_taken_for_another_one(declared):
    quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    pmm.sample(8, tune=8, chains=1, model=declared(), random_seed=1, **quiet)


def test_rounding_of_large_counts_is_far_from_what_is_allowed(monkeypatch):
    """Of blocks whose counts are all about the same, which no density makes up for."""
    ratios = []

    def look(self, point, *found):
        total, expected = self(point), sum(map(sum, found))
        if np.isfinite([total, expected]).all():
            ratios.append(abs(total - expected) / self.rounding)

    monkeypatch.setattr(DeclaredDensity, "check", look)
    monkeypatch.setattr("pm_match.clusters.step.looked_at", lambda number: True)
    tables = {d: np.random.default_rng(0).poisson(1e11, size=(20, 20)) for d in "ab"}
    model = pmm.models.relational_clusters(tables, n_clusters=6, family="poisson")
    steps, point = pmm.steps(model), model.initial_point()
    run(steps, point, 60)
    assert len(ratios) > 30
    assert max(ratios) < 0.3


def test_new_data_are_looked_at_by_a_rounding_of_their_own():
    small = np.random.default_rng(0).poisson(3.0, size=(300, 3))
    with pm.Model() as model:
        counts = pm.Data("counts", small)
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(4)), shape=300)
        pm.Poisson("x", pm.Gamma("rate", 1.0, 1e-9, shape=(4, 3))[cluster], observed=counts)
    steps = pmm.steps(model)
    run(steps, model.initial_point(0), 2)
    (before,) = {step._declared.rounding for step in steps}
    counts.set_value(np.int32(10**8) * (1 + small.astype(np.int32)))
    run(steps, model.initial_point(0), 2)
    assert all(step._declared.rounding > 2.0 * before for step in steps)


def test_angles_have_an_identity_of_their_own():
    """Half of these are next to where they wrap."""
    mean, kappa = 3.0, 1.5
    x = np.random.default_rng(0).vonmises(mean, kappa, (100_000, 1))
    sine, slope = testing._stein(x, True)
    for claimed in (kappa, 1.1 * kappa):
        moment = sine * -claimed * np.sin(x - mean) + slope
        z = abs(moment.mean()) / (moment.std() / np.sqrt(len(x)))
        assert (z < 4.0) == (claimed == kappa)


def wrong_columns(monkeypatch):
    right = Columns.hyper
    monkeypatch.setattr(Columns, "hyper", lambda self, point: 1.1 * right(self, point))


def wrong_features(monkeypatch):
    right = FeatureState._rest

    def wrong(self, point):
        latent_precision, *rest = right(self, point)
        return 1.1 * latent_precision, *rest

    monkeypatch.setattr(FeatureState, "_rest", wrong)


def wrong_networks(monkeypatch):
    right = BlockEvidence._moved_prior

    def wrong(self, prior):
        return tuple(1.1 * x for x in right(self, prior))

    monkeypatch.setattr(BlockEvidence, "_moved_prior", wrong)


def wrong_normals(monkeypatch):
    right = NormalEvidence.load

    def wrong(self, values, slots, prior, *rest):
        right(self, values, slots, prior._replace(strength=1.1 * prior.strength), *rest)

    monkeypatch.setattr(NormalEvidence, "load", wrong)


def wrong_weights(monkeypatch):
    right = Clustering.prior

    def wrong(self, point):
        a, b = right(self, point)
        return a, 1.1 * b

    monkeypatch.setattr(Clustering, "prior", wrong)


def wrong_relevance(monkeypatch):
    right = Clustering.relevance_prior
    monkeypatch.setattr(Clustering, "relevance_prior", lambda *given: 1.1 * right(*given))


WRONG = {
    "columns": wrong_columns,
    "sticks next to 1": wrong_columns,
    "tied": wrong_weights,
    "missing, relevance": wrong_relevance,
    "plain": wrong_features,
    "bernoulli": wrong_networks,
    "normals, own": wrong_normals,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_chain_stops_where_it_samples_another_model(monkeypatch, name):
    """Priors that are a tenth too large, as if they had been read so."""
    model = MODELS.get(name, sticks_next_to_one)()
    WRONG[name](monkeypatch)
    quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    with pytest.raises(pmm.UnservedModelError, match="expected draws whose declared log density"):
        pmm.sample(4, tune=4, chains=1, model=model, random_seed=1, **quiet)


def of_views(structure):
    model, hinge, latent = (
        next(own for own in structure.parts if isinstance(own, record))
        for record in (FactorModel, HingeModel, LabelledLatent)
    )
    private = next(own for own in model.latents if not own.foreign)
    return {
        "noise": (model.views[0], "noise"),
        "loadings": (model.views[0].loadings[0], "prior"),
        "intercept": (model.views[1].intercept, "prior"),
        "private": (private, "prior"),
        "precision": (model.precisions[0], "prior"),
        "latent": (latent, "prior"),
        "C": (hinge, "_C"),
        "coefficients": (hinge, "_prior"),
        "their precision": (hinge, "_gamma"),
        "frequencies": (hinge, "frequency_prior"),
    }


def of_hierarchy(structure):
    ((view,),) = (own.views for own in structure.parts if isinstance(own, Hierarchy))
    return {"links": (view, "concentration"), "normals": (view.normals, "prior")}


def larger(found):
    """Multiply everything that was read by 1.1."""
    if not isinstance(found, tuple | list):
        return 1.1 * found
    make = getattr(type(found), "_make", type(found))
    return make(larger(own) for own in found)


@pytest.mark.parametrize(
    ("declared", "records", "what"),
    [
        *[
            (views.tiny_views, of_views, what)
            for what in (
                "noise",
                "loadings",
                "intercept",
                "private",
                "precision",
                "latent",
                "C",
                "coefficients",
                "their precision",
                "frequencies",
            )
        ],
        *[(hierarchies.declared, of_hierarchy, what) for what in ("links", "normals")],
    ],
)
def test_a_step_of_views_stops_where_it_samples_another_model(declared, records, what):
    model = declared()
    record, attribute = records(read(model))[what]
    right = getattr(record, attribute)
    object.__setattr__(record, attribute, lambda point: larger(right(point)))
    quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    with pytest.raises(pmm.UnservedModelError, match="expected draws whose declared log density"):
        pmm.sample(4, tune=4, chains=1, model=model, random_seed=1, **quiet)


def test_a_chain_stops_where_scores_are_not_those_of_the_evidence(monkeypatch):
    model, right = MODELS["columns"](), Collapsed.scores
    monkeypatch.setattr(Collapsed, "scores", lambda *given: 1.1 * right(*given))
    quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    with pytest.raises(RuntimeError, match="this is a fault of pm_match"):
        pmm.sample(40, tune=40, chains=1, cores=1, model=model, random_seed=1, **quiet)


def test_kinds_without_a_conditional_are_sampled_all_the_same(monkeypatch):
    for state in EvidenceState.__subclasses__():
        monkeypatch.delattr(state, "log_conditional")
    model = MODELS["columns"]()
    pmm.sample(4, tune=4, chains=1, model=model, random_seed=1, progressbar=False, quiet=True)
    with pytest.raises(NotImplementedError):
        testing.check_declared_density(model)
    right = Collapsed.scores
    monkeypatch.setattr(Collapsed, "scores", lambda *given: 1.1 * right(*given))
    with pytest.raises(RuntimeError, match="this is a fault of pm_match"):
        pmm.sample(40, tune=40, chains=1, cores=1, model=model, random_seed=1, quiet=True)
