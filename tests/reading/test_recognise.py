"""What is recognised, however it is written, and what is refused, by name."""

import gc
import itertools
import warnings
import weakref
from importlib import import_module

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from pymc.step_methods.compound import Competence

import pm_match as pmm
from pm_match.features.parts import Features
from pm_match.reading import read
from pm_match.reading.parts import UnservedModelError
from tests.declared.plain import inside, tiny_data, tiny_model

pytestmark = pytest.mark.usefixtures("only_collapsed")

T, K = 4, 2


def declare(
    data=None,
    weights=lambda: pm.StickBreakingWeights("weights", alpha=1.3, K=T - 1),
    precision=lambda: pm.Gamma("precision", 2.0, 1.5),
    latent=lambda precision: pm.Normal("latent", 0.0, tau=0.7 * precision, shape=(T, K)),
    projection=lambda name, m: pm.Normal(f"projection_{name}", 0.0, 1.0, shape=(m, K)),
    mean=lambda latent, cluster, w: latent[cluster] @ w.T,
    observe=lambda name, mu, precision, x: pm.Normal(name, mu=mu, tau=precision, observed=x),
    extra=lambda model: None,
):
    data = tiny_data() if data is None else data
    with pm.Model() as model:
        w = weights()
        tau = precision()
        z = latent(tau)
        for name, x in data.items():
            cluster = pm.Categorical(f"cluster_{name}", p=w, shape=len(x))
            observe(name, mean(z, cluster, projection(name, x.shape[1])), tau, x)
        extra(model)
    return model


def beta_sticks():
    sticks = pm.Beta("sticks", 1.0, 1.3, shape=T - 1)
    left = pt.concatenate([[1.0], pt.cumprod(1.0 - sticks)])
    return pm.Deterministic("weights", pt.concatenate([sticks, [1.0]]) * left)


def stable_sticks():
    sticks = pm.Beta("sticks", 1.0, 1.3, shape=T - 1)
    log_left = pt.concatenate([[0.0], pt.cumsum(pt.log1p(-sticks))])
    return pt.exp(pt.concatenate([pt.log(sticks), [0.0]]) + log_left)


def softmax_sticks():
    return pm.math.softmax(pt.log(stable_sticks()))


EQUAL = {
    "as declared": {},
    "dot": {"mean": lambda z, s, w: pt.dot(z[s], w.T)},
    "einsum": {"mean": lambda z, s, w: pt.einsum("nk,mk->nm", z[s], w)},
    "project first": {"mean": lambda z, s, w: (z @ w.T)[s]},
    "transposed mean": {"mean": lambda z, s, w: (w @ z.T).T[s]},
    "broadcast and sum": {"mean": lambda z, s, w: (z[s][:, None, :] * w[None, :, :]).sum(axis=-1)},
    "transposed projection": {
        "projection": lambda name, m: pm.Normal(f"projection_{name}", shape=(K, m)),
        "mean": lambda z, s, w: z[s] @ w,
    },
    "transposed latent": {
        "latent": lambda tau: pm.Normal("latent", 0.0, tau=0.7 * tau, shape=(K, T)),
        "mean": lambda z, s, w: z.T[s] @ w.T,
    },
    "sigma": {
        "latent": lambda tau: pm.Normal("latent", 0.0, 1.0 / pt.sqrt(0.7 * tau), shape=(T, K)),
        "observe": lambda name, mu, tau, x: pm.Normal(name, mu, tau**-0.5, observed=x),
    },
    "beta sticks": {"weights": beta_sticks},
    "stable beta sticks": {"weights": stable_sticks},
    "sticks by softmax": {"weights": softmax_sticks},
    "dirichlet": {"weights": lambda: pm.Dirichlet("weights", np.full(T, 0.8))},
    "known weights": {"weights": lambda: np.array([0.4, 0.3, 0.2, 0.1])},
}


@pytest.mark.parametrize("way", EQUAL)
def test_recognised_however_it_is_written(way):
    model = declare(**EQUAL[way])
    structure = read(model)
    assert not structure.refusals
    (partition,) = structure.of(Features)
    assert (partition.truncation, partition.n_factors) == (T, K)
    steps = pmm.steps(model)
    point = model.initial_point()
    for _ in range(3):
        for step in steps:
            point, _ = step.step(point)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))


def test_equal_models_have_equal_chains():
    """Ways of writing that leave every variable as it is give the same draws, bit for bit."""
    ends = []
    for way in ("as declared", "einsum", "project first", "sigma"):
        model = declare(**EQUAL[way])
        (step,) = [s for s in pmm.steps(model) if isinstance(s, pmm.ClusterGibbs)]
        step.setup_chain(np.random.default_rng(3), 0, 0)
        point = model.initial_point(0)
        for _ in range(5):
            point, _ = step.step(point)
        ends.append(point)
    for end in ends[1:]:
        np.testing.assert_array_equal(end["cluster_a"], ends[0]["cluster_a"])
        np.testing.assert_allclose(end["latent"], ends[0]["latent"], rtol=1e-9)


def test_square_projections_are_read_the_right_way_round():
    data = {"a": np.random.default_rng(0).normal(size=(5, K))}
    for flip in (False, True):
        model = declare(data, mean=lambda z, s, w, flip=flip: z[s] @ (w if flip else w.T))
        assert read(model).of(Features)[0].projections[0].transposed is flip


def test_square_latent_is_read_the_right_way_round():
    data = {"a": np.random.default_rng(0).normal(size=(5, 3))}
    for flip in (False, True):
        model = declare(
            data,
            latent=lambda tau: pm.Normal("latent", 0.0, tau=tau, shape=(T, T)),
            projection=lambda name, m: pm.Normal(f"projection_{name}", shape=(m, T)),
            mean=lambda z, s, w, flip=flip: (z.T if flip else z)[s] @ w.T,
        )
        assert read(model).of(Features)[0].latent_transposed is flip


def student(name, mu, tau, x):
    return pm.StudentT(name, nu=4.0, mu=mu, lam=tau, observed=x)


REFUSED = {
    "student noise": (
        {"observe": student},
        "'a', a StudentT: expected evidence that a kind claims",
    ),
    "latent prior of another family": (
        {"latent": lambda tau: pm.Laplace("latent", 0.0, tau**-0.5, shape=(T, K))},
        r"no normal variable with one row for each of 4 clusters is shared by .*'a', 'b'",
    ),
    "latent with a mean": (
        {"latent": lambda tau: pm.Normal("latent", 0.3, tau=tau, shape=(T, K))},
        r"'latent': its declared log density",
    ),
    "latent precision differs by factor": (
        {"latent": lambda tau: pm.Normal("latent", 0.0, tau=tau * np.r_[1.0, 2.0], shape=(T, K))},
        r"the scale of 'latent' is not one number",
    ),
    "not linear": (
        {"mean": lambda z, s, w: pt.tanh(z[s]) @ w.T},
        r"'a': its declared log density is not that of a normal",
    ),
    "neighbours' labels": (
        {"mean": lambda z, s, w: z[pt.roll(s, 1)] @ w.T},
        r"'a': its declared log density is not that of a normal",
    ),
    "weights used twice": (
        {"extra": lambda m: pm.Potential("favour", m["weights"][0])},
        r"'favour' depends on 'weights' too",
    ),
    "weights used three times": (
        {"extra": lambda m: [pm.Potential(own, m["weights"][0]) for own in ("favour", "other")]},
        r"'favour', 'other' depend on 'weights' too",
    ),
    "labels used twice": (
        {"extra": lambda m: pm.Normal("more", m["cluster_a"].astype(float), observed=np.zeros(3))},
        r"'a', 'more' all depend on 'cluster_a'",
    ),
    "latent used twice": (
        {"extra": lambda m: pm.Potential("small", -(m["latent"] ** 2).sum())},
        r"'small' depends on 'latent' too",
    ),
    "constant weights with a zero": (
        {"weights": lambda: np.array([0.5, 0.5, 0.0, 0.0])},
        r"constant probabilities of 'cluster_a', 'cluster_b' hold 0.0; expected positive ones",
    ),
    "weights of another family": (
        {"weights": lambda: pm.math.softmax(pm.Normal("logits", shape=T))},
        r"'logits' is a Normal; expected StickBreakingWeights",
    ),
    "tempered weights": (
        {"weights": lambda: (w := pm.Dirichlet("w", np.ones(T)) ** 2) / w.sum()},
        r"'cluster_a': its declared probabilities are not 'w'",
    ),
    "sticks that lose the last piece": (
        {
            "weights": lambda: (
                (
                    w := (v := pm.Beta("v", 1.0, 1.0, shape=T))
                    * pt.concatenate([[1.0], pt.cumprod(1 - v)[:-1]])
                )
                / w.sum()
            )
        },
        r"no normal variable with one row|declared probabilities are not the weights",
    ),
    "latent mean with a discrete parent": (
        {
            "latent": lambda tau: pm.Normal(
                "latent", 3.0 * pm.Bernoulli("k", 0.3), tau=tau, shape=(T, K)
            )
        },
        r"'latent' depends on 'k', which is discrete",
    ),
    "latent scale with a discrete parent": (
        {
            "latent": lambda tau: pm.Normal(
                "latent", 0.0, tau=tau * (1.0 + pm.Bernoulli("k", 0.3)), shape=(T, K)
            )
        },
        r"'latent' depends on 'k', which is discrete",
    ),
    "ordered weights": (
        {"weights": lambda: pm.Dirichlet("weights", np.ones(T), transform=transforms.ordered)},
        r"'weights' has the transform \w+; expected PyMC's default",
    ),
    "flat and normal projections": (
        {
            "projection": lambda name, m: (
                pm.Flat(f"projection_{name}", shape=(m, K))
                if name == "a"
                else pm.Normal(f"projection_{name}", shape=(m, K))
            )
        },
        r"'projection_a' is flat, and flat projections are found together",
    ),
    "no data over an assignment": (
        {"extra": lambda m: pm.Categorical("idle", p=m["weights"], shape=2)},
        r"no observed variable depends on 'idle'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case):
    arguments, message = REFUSED[case]
    model = declare(**arguments)
    with pytest.raises(UnservedModelError, match=message):
        pmm.ClusterGibbs([model["cluster_a"]], model=model)
    with pytest.raises(UnservedModelError, match=message):
        pmm.steps(model)
    with pytest.raises(UnservedModelError, match=message):
        pmm.sample(model=model)


def test_a_model_without_assignments_is_refused():
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(UnservedModelError, match="no assignment"):
        pmm.sample(model=model)


def test_variables_of_named_dims_are_refused():
    import pymc.dims as pmd

    with pm.Model(coords={"cluster": range(2), "object": range(3)}) as model:
        weights = pm.Dirichlet("weights", np.ones(2), dims="cluster")
        mean = pmd.Normal("mean", dims="cluster")
        s = pm.Categorical("s", p=weights, dims="object")
        mu = mean.isel(cluster=pmd.as_xtensor(s, dims=("object",)))
        pm.Normal("x", mu.values, observed=np.zeros(3), dims="object")
    message = r"mean, x: expected variables of pymc, with dims=; found one of pymc\.dims"
    for asked in (pmm.steps, pmm.sample, pmm.find_matching):
        with pytest.raises(UnservedModelError, match=message):
            asked(model)
    # What is not for us is left to PyMC without a word.
    with model, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pmm.ClusterGibbs.competence(model["s"], False) == Competence.INCOMPATIBLE


def test_infinite_data_are_refused():
    x = tiny_data()["a"]
    x[1, 1] = -np.inf
    model = declare({"a": x})
    with pytest.raises(
        UnservedModelError, match="'a' holds -inf where nothing is declared missing"
    ):
        pmm.steps(model)


def test_mutable_data_are_read():
    x = tiny_data()["a"]

    def observe(name, mu, tau, value):
        return pm.Normal(name, mu=mu, tau=tau, observed=pm.Data(f"data_{name}", value))

    model = declare({"a": x}, observe=observe)
    np.testing.assert_array_equal(read(model).of(Features)[0].domains[0].data.values, x)


def test_single_precision_is_refused():
    with pytensor.config.change_flags(floatX="float32"):
        model = declare({"a": tiny_data()["a"].astype("float32")})
        with pytest.raises(UnservedModelError, match="is float32; expected float64"):
            pmm.steps(model)


def test_models_of_other_shapes_are_left_alone():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        tau = pm.Gamma("tau", 1.0, 1.0)
        mu = pm.Normal("mu", 0.0, tau=tau, shape=2)
        c = pm.Categorical("c", p=w)
        pm.Normal("x", mu[c], tau=tau, observed=[0.3, 0.4])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert not set(chosen) & {pmm.ClusterGibbs, pmm.ProjectionMAP, pmm.FeatureGibbs}


def test_a_failure_to_read_does_not_reach_other_models(monkeypatch):
    def broken(model):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(import_module("pm_match.clusters.step"), "read", broken)
    with declare() as model, pytest.warns(UserWarning, match="could not read the model"):
        _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert pmm.ClusterGibbs not in chosen


def test_replaced_shared_data_are_read_again():
    x = pytensor.shared(tiny_data()["a"])

    def observe(name, mu, tau, value):
        return pm.Normal(name, mu=mu, tau=tau, observed=x)

    model = declare({"a": tiny_data()["a"]}, observe=observe)
    assert read(model) is read(model)
    x.set_value(2.0 * tiny_data()["a"])
    found = read(model).of(Features)[0].domains[0].data.values
    np.testing.assert_array_equal(found, 2.0 * tiny_data()["a"])


def test_replaced_data_and_hyperparameters_are_read_again():
    x = tiny_data()["a"]
    with pm.Model() as model:
        gamma = pm.Data("gamma", 1.0)
        values = pm.Data("values", x)
        weights = pm.StickBreakingWeights("weights", alpha=gamma, K=T - 1)
        tau = pm.Gamma("precision", 2.0, 1.5)
        z = pm.Normal("latent", 0.0, tau=tau, shape=(T, K))
        s = pm.Categorical("cluster", p=weights, shape=3)
        w = pm.Normal("projection", shape=(2, K))
        pm.Normal("x", z[s] @ w.T, tau=tau, observed=values)
    step = pmm.ClusterGibbs([s], model=model)
    point = model.initial_point()
    assert read(model) is read(model)
    assert inside(step).hyper(point).b[0] == 1.0
    pm.set_data({"values": 100.0 * x, "gamma": 9.0}, model=model)
    (partition,) = read(model).of(Features)
    np.testing.assert_array_equal(partition.domains[0].data.values, 100.0 * x)
    assert read(model).clusterings[0].prior(point)[1][0] == 9.0
    # A step that was made before takes notice when its next chain starts.
    step.setup_chain(np.random.default_rng(0), 0, 0)
    assert inside(step).features is partition
    assert inside(step).evidence.domains[0].squares.sum() == pytest.approx(1e4 * (x**2).sum())


def test_data_that_are_missing_after_all_are_refused():
    """PyMC keeps the mask, and takes for observed what is beneath it."""
    given = {"counts": [4, 2, 9], "exposure": [1.0, 2.0, 1.5], "pull": [0.5, 1.0]}
    with pm.Model() as model:
        data = {name: pm.Data(name, value) for name, value in given.items()}
        pm.Data("beside", [1.0, 2.0])
        s = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(2)), shape=3)
        rate = pm.Gamma("rate", 1.0, 1.0, shape=2)
        mu = rate[s] * data["exposure"]
        pm.Poisson("x", mu, observed=data["counts"], shape=3)
        pm.Potential("tied", -(data["pull"] * pm.Normal("aside") ** 2).sum())
    assert not read(model).refusals
    for name, value in given.items():
        holed = np.ma.masked_array(value, np.arange(len(value)) == 0)
        pm.set_data({name: holed}, model=model)
        assert read(model).refusals.keys() == {name}
        assert "expected no missing values in pm.Data" in read(model).refusals[name]
        # Nor is it said that PyMC samples it, which takes what is beneath the mask.
        with pytest.raises(pmm.UnservedModelError, match=r"observed= that has them\.$"):
            pmm.steps(model, progressbar=False)
        pm.set_data({name: value}, model=model)
    pm.set_data({"beside": [np.nan, 2.0]}, model=model)
    assert not read(model).refusals


def test_missing_values_are_found_where_they_are():
    data = tiny_data(missing=True)
    model = tiny_model(missing=True)
    (partition,) = read(model).of(Features)
    for domain in partition.domains:
        np.testing.assert_array_equal(domain.data.observed, ~np.isnan(data[domain.name]))
        np.testing.assert_array_equal(
            domain.data.values[domain.data.observed], data[domain.name][domain.data.observed]
        )
        assert domain.missing == f"{domain.name}_unobserved"


def test_hyperparameters_are_read_at_the_point():
    with pm.Model() as model:
        gamma = pm.Gamma("gamma", 2.0, 1.0)
        ratio = pm.Exponential("ratio", 1.0)
        weights = pm.StickBreakingWeights("weights", alpha=gamma, K=T - 1)
        tau = pm.Gamma("precision", 2.0, 1.5)
        z = pm.Normal("latent", 0.0, tau=ratio * tau, shape=(T, K))
        s = pm.Categorical("cluster", p=weights, shape=3)
        w = pm.Normal("projection", 0.0, gamma, shape=(2, K))
        pm.Normal("x", z[s] @ w.T, tau=tau, observed=tiny_data()["a"])
    (partition,) = read(model).of(Features)
    point = model.initial_point()
    point["gamma_log__"], point["ratio_log__"] = np.log(3.0), np.log(0.4)
    setting = partition.setting(point)
    np.testing.assert_allclose(read(model).clusterings[0].prior(point)[1], 3.0)
    assert setting.latent_precision == pytest.approx(0.4)
    assert setting.gamma == pytest.approx((2.0, 1.5))
    _, precision = partition.prior(partition.projections[0], point)
    np.testing.assert_allclose(precision, 1 / 9)


def test_projections_of_other_priors():
    """Drawn number by number, or left to PyMC if they are many."""

    def laplace(name, m):
        return pm.Laplace(f"projection_{name}", 0.0, 1.0, shape=(m, K))

    assert updates(declare(projection=laplace))["projection_a"] == ("slice", -1)
    rng = np.random.default_rng(0)
    model = declare({"a": rng.normal(size=(5, 60))}, projection=laplace)
    assert [type(step) for step in pmm.steps(model)] == [pmm.ClusterGibbs]
    with pytest.raises(UnservedModelError, match=r"cannot serve 'projection_a': it serves"):
        pmm.FeatureGibbs([model["projection_a"]], model=model)
    normal = declare()
    with pytest.raises(UnservedModelError, match=r"prior is not pm\.Flat"):
        pmm.ProjectionMAP([normal["projection_a"]], model=normal)
    flat = declare(projection=lambda name, m: pm.Flat(f"projection_{name}", shape=(m, K)))
    with pytest.raises(UnservedModelError, match=r"it is flat: ProjectionMAP finds it"):
        pmm.FeatureGibbs([flat["projection_a"]], model=flat)


def updates(model):
    (features,) = read(model).of(Features)
    return {p.name: (p.update, p.domain) for p in features.parameters}


# What looks plain but is not quite: by variable, how it is drawn, and what precision is integrated
# out; None for one that other data have a say in.
NOT_QUITE_PLAIN = {
    "latent precision not a multiple": (
        {"latent": lambda tau: pm.Normal("latent", 0.0, tau=tau**2, shape=(T, K))},
        {"precision": ("slice", -1)},
        None,
    ),
    "precision of another family": (
        {"precision": lambda: pm.HalfNormal("precision", 1.0)},
        {"precision": ("slice", -1)},
        None,
    ),
    "a precision in an array": (
        {"precision": lambda: pm.Gamma("precision", 2.0, 1.5, shape=1)},
        {"precision": ("slice", -1)},
        None,
    ),
    "precision with a truncated support": (
        {
            "precision": lambda: pm.Gamma(
                "precision",
                2.0,
                1.5,
                default_transform=pm.distributions.transforms.Interval(0.5, 2),
            )
        },
        {"precision": ("slice", -1)},
        None,
    ),
    "precision used twice": (
        {"extra": lambda m: pm.Normal("more", 0.0, tau=m["precision"], observed=np.zeros(3))},
        {"precision": None},
        None,
    ),
    "noise is twice the precision's": (
        {"observe": lambda name, mu, tau, x: pm.Normal(name, mu=mu, tau=2 * tau, observed=x)},
        {"projection_a": ("projection", 0)},
        "precision",
    ),
    "an offset": (
        {"mean": lambda z, s, w: z[s] @ w.T + 1.0},
        {"projection_a": ("projection", 0)},
        "precision",
    ),
    "twice the projection": (
        {"mean": lambda z, s, w: 2.0 * z[s] @ w.T},
        {"projection_a": ("normal", -1)},
        "precision",
    ),
    "not linear in the projection": (
        {"mean": lambda z, s, w: z[s] @ pt.exp(w).T},
        {"projection_a": ("normal", -1)},
        "precision",
    ),
    "a projection of several domains": (
        {
            "data": {"a": tiny_data()["b"], "b": 2.0 * tiny_data()["b"]},
            "projection": lambda name, m: (
                pm.Normal("w", shape=(m, K)) if name == "a" else pm.modelcontext(None)["w"]
            ),
        },
        {"w": ("normal", -1)},
        "precision",
    ),
}


@pytest.mark.parametrize("case", NOT_QUITE_PLAIN)
def test_what_is_not_quite_plain_is_served(case):
    arguments, expected, precision = NOT_QUITE_PLAIN[case]
    model = declare(**arguments)
    assert not read(model).refusals
    (features,) = read(model).of(Features)
    assert features.precision == precision
    assert not features.standard
    found = updates(model)
    assert {name: found.get(name) for name in expected} == expected
    point = model.initial_point(0)
    for _ in range(3):
        for step in pmm.steps(model):
            point, _ = step.step(point)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))


def test_a_model_read_before_it_was_finished_is_read_again():
    model = declare()
    assert read(model).components
    with model:
        pm.Potential("late", model["latent"].sum())
    assert not read(model).components


@pytest.mark.parametrize(
    "declare",
    [
        lambda x: pmm.models.shared_factors(x, 2, 1),
        lambda x: pmm.models.max_margin_views(x, [0, 1] * 6, 2, 3),
        lambda x: pmm.models.dependency_clusters(x, 3),
        lambda x: pmm.models.dependency_hierarchy(x, 3, 3),
    ],
    ids=["factors", "hinge", "clusters", "hierarchy"],
)
def test_what_is_read_of_views_does_not_keep_the_model(declare):
    rng = np.random.default_rng(0)
    model = declare({"a": rng.normal(size=(12, 4)), "b": rng.normal(size=(12, 3))})
    kept = weakref.ref(model)
    pmm.steps(model)
    before = kept() is not None
    del model
    for _ in range(4):
        gc.collect()
    after = kept() is not None
    assert (before, after) == (True, False)


def test_no_two_objects_are_taken_for_each_other():
    """Whose the features are shows, whichever two objects are exchanged."""
    for pair in [(0, 0), *itertools.combinations(range(5), 2)]:
        order = np.arange(5)
        order[[*pair]] = order[[*pair[::-1]]]
        with pm.Model() as model:
            weights = pm.StickBreakingWeights("weights", alpha=1.4, K=1)
            cluster = pm.Categorical("cluster", p=weights, shape=5)
            latent = pm.Normal("latent", 0, 1, shape=(2, 2))
            projection = pm.Normal("projection", 0, 1, shape=(3, 2))
            x = np.random.default_rng(0).normal(size=(5, 3))
            tau = pm.Gamma("tau", 1.0, 1.0)
            pm.Normal("x", latent[cluster[order]] @ projection.T, tau=tau, observed=x)
        assert bool(read(model).components) == (pair == (0, 0)), pair
