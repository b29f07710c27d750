"""Features with emissions of their own: recognised however they are written, refused by name."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match.features.parts import Features
from pm_match.reading import read
from pm_match.reading.parts import UnservedModelError
from tests.declared.features import Kind, Plain, feature_model

pytestmark = pytest.mark.usefixtures("only_collapsed")

T, K = 4, 2
ONE = np.float64(1.0)
SIZES = {"a": (6, 3), "b": (5, 4)}


def data():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=size) for name, size in SIZES.items()}


def declare(
    x=None,
    latent=lambda: pm.Normal("latent", 0.0, 1.2 * ONE, shape=(T, K)),
    intercept=lambda name, m: pm.Normal(f"intercept_{name}", 0.0, 2.0 * ONE, shape=m),
    projection=lambda name, m: pm.Normal(f"projection_{name}", 0.0, ONE, shape=(m, K)),
    mean=lambda z, s, w, a: z[s] @ w.T + a,
    observe=lambda name, mu, x: pm.Normal(
        name, mu, pm.HalfNormal(f"noise_{name}", ONE), observed=x
    ),
    extra=lambda model: None,
):
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", 1.3 * ONE, T - 1)
        z = latent()
        for name, values in (data() if x is None else x).items():
            s = pm.Categorical(f"cluster_{name}", p=weights, shape=len(values))
            m = values.shape[1]
            w, a = projection(name, m), intercept(name, m)
            observe(name, mean(z, s, w, a), values)
        extra(model)
    return model


def updates(model):
    (features,) = read(model).of(Features)
    return {
        p.name: ("transposed" if p.transposed else p.update, p.domain) for p in features.parameters
    }


def several(how):
    """Noise of full covariance, written in some way."""

    def observe(name, mu, x):
        m = x.shape[1]
        lower = pt.tril(pm.Normal(f"raw_{name}", shape=(m, m)), -1) + pt.eye(m)
        covariance = lower @ lower.T
        given = {
            "cov": lambda: {"cov": covariance},
            "tau": lambda: {"tau": pt.linalg.inv(covariance)},
            "chol": lambda: {"chol": lower},
            "upper": lambda: {"chol": lower.T, "lower": False},
        }[how]()
        pm.MvNormal(name, mu, observed=x, **given)

    return observe


MEANS = {
    "as declared": lambda z, s, w, a: z[s] @ w.T + a,
    "dot": lambda z, s, w, a: pt.dot(z, w.T)[s] + a[None, :],
    "project first": lambda z, s, w, a: (z @ w.T + a)[s],
    "einsum": lambda z, s, w, a: pt.einsum("nk,mk->nm", z[s], w) + a,
    "transposed mean": lambda z, s, w, a: (w @ z.T + a[:, None]).T[s],
    "one more factor": lambda z, s, w, a: (
        pt.concatenate([z, pt.ones((T, 1))], axis=1)[s] @ pt.concatenate([w, a[:, None]], axis=1).T
    ),
    "one-hot": lambda z, s, w, a: pt.eye(T)[s] @ z @ w.T + a,
    "with as many rows as data": lambda z, s, w, a: z[s] @ w.T + pt.ones((s.shape[0], 1)) * a,
}


@pytest.mark.parametrize("way", MEANS)
def test_means_are_recognised_however_they_are_written(way):
    model = declare(mean=MEANS[way])
    assert not read(model).refusals
    assert updates(model) == {
        "projection_a": ("projection", 0),
        "projection_b": ("projection", 1),
        "intercept_a": ("intercept", 0),
        "intercept_b": ("intercept", 1),
        "noise_a": ("slice", -1),
        "noise_b": ("slice", -1),
    }


@pytest.mark.parametrize("way", ["cov", "tau", "chol", "upper"])
def test_noise_is_recognised_however_it_is_written(way):
    model = declare(observe=several(way))
    (features,) = read(model).of(Features)
    rng = np.random.default_rng(1)
    point = {
        name: np.asarray(rng.normal(0.0, 0.5, np.shape(v))).astype(np.asarray(v).dtype)
        for name, v in model.initial_point(0).items()
    }
    for name, emission in zip("ab", features.setting(point).emissions, strict=True):
        m = SIZES[name][1]
        lower = np.tril(point[f"raw_{name}"], -1) + np.eye(m)
        np.testing.assert_allclose(emission.precision, np.linalg.inv(lower @ lower.T), rtol=1e-9)
    # Noise enters by way of a normal variable, which is drawn by elliptical slices.
    assert updates(model)["raw_a"] == ("normal", -1)


@pytest.mark.parametrize(
    "noise",
    [
        lambda h: {"sigma": h},
        lambda h: {"tau": h**-2.0},
        lambda h: {"sigma": pt.ones(3) * h},
        lambda h: {"sigma": pt.ones((6, 1)) * h},
    ],
)
def test_independent_noise_is_recognised_however_it_is_written(noise):
    def observe(name, mu, x):
        pm.Normal(name, mu, observed=x, **noise(pm.HalfNormal("noise", ONE)))

    model = declare({"a": data()["a"]}, observe=observe)
    (emission,) = read(model).of(Features)[0].setting(model.initial_point(0)).emissions
    np.testing.assert_allclose(emission.root, np.ones(3))


UPDATES = {
    "scaled": (Kind(noise="vector"), {"scale_a": "prior", "noise_a": "slice"}),
    "transposed": (Kind(projection="transposed"), {"projection_a": "transposed"}),
    "ard": (Kind(projection="ard"), {"ard": "prior", "projection_b": "projection"}),
    "rigid": (Kind(projection="rigid"), {"raw_a": "normal", "scale_a": "slice"}),
    "wishart": (Kind(noise="wishart"), {"precision_a": "wishart", "precision_b": "wishart"}),
    "lkj": (Kind(noise="lkj"), {"chol_a": "slice"}),
    "deviations": (Kind(deviations="one"), {"spread_a": "slice"}),
    "latent scale": (Kind(latent_scale=True), {"width": "slice"}),
    # Of what irrelevant objects depend on, only the means of the others are conjugate.
    "relevance": (
        Kind(relevance="all"),
        {"intercept_a": "intercept", "intercept_b": "normal", "other_a": "normal"},
    ),
    "relevance, wishart": (Kind(relevance="all", noise="wishart"), {"precision_a": "slice"}),
    "tied": (Kind(tied=True), {"intercept_a": "intercept", "scale_a": "prior"}),
    "coarsened": (
        Kind(powers=(0.5, 0.7), noise="wishart"),
        {"precision_a": "wishart", "projection_b": "projection", "intercept_a": "intercept"},
    ),
    # What is coarsened leaves a shared precision to slices.
    "coarsened, tied": (Kind(powers=(0.5,), tied=True), {"alpha": "slice"}),
    "plain": (Kind(tied=True, noise="shared", projection="ard", intercept=False), {"ard": "prior"}),
}


@pytest.mark.parametrize("name", UPDATES)
def test_parameters_get_the_draws_that_fit(name):
    kind, expected = UPDATES[name]
    model = feature_model(kind)
    found = {key: update for key, (update, _) in updates(model).items()}
    assert {key: found.get(key) for key in expected} == expected
    # Nothing is left to other steps.
    served = {v.name for step in pmm.steps(model) for v in step.vars}
    assert served == {v.name for v in model.value_vars}
    if name == "plain":
        assert set(found) == {"ard", "projection_a", "projection_b"}


@pytest.mark.parametrize(
    ("factor", "power"),
    [(-0.5, 0.5), (np.float64(-0.4), 0.6), (np.float32(-0.25), 0.75), (-0.3, 0.7)]
    + [(own, None) for own in (0.5, -1.5, np.nan, np.full((1, 1), -0.5))],
)
def test_powers_written_by_hand_are_recognised(factor, power):
    """Nothing else is: what has no power above 0 and at most 1 is left to another kind."""
    model = declare()
    with model:
        pm.Potential("p", factor * pm.logp(model["a"], model.rvs_to_values[model["a"]]))
    found = [own.power for part in read(model).of(Features) for own in part.domains]
    assert found == ([pytest.approx(power, rel=1e-6), 1.0] if power else [])


def wide(m):
    """A scale matrix for a Wishart prior."""
    return np.eye(m) / (m + 4)


ENTANGLED = {
    # What also enters elsewhere has no conjugate conditional.
    "intercept in the noise": (
        {
            "observe": lambda name, mu, x: pm.Normal(
                name, mu, pt.exp(pm.modelcontext(None)[f"intercept_{name}"]), observed=x
            )
        },
        "intercept_a",
        "normal",
    ),
    "projection in the noise": (
        {
            "observe": lambda name, mu, x: pm.Normal(
                name, mu, pt.exp(pm.modelcontext(None)[f"projection_{name}"].sum()), observed=x
            )
        },
        "projection_a",
        "normal",
    ),
    "projection in the intercept": (
        {"mean": lambda z, s, w, a: z[s] @ w.T + a + w.sum()},
        "projection_a",
        "normal",
    ),
    "intercept in the projection": (
        {"mean": lambda z, s, w, a: z[s] @ (w * a[:, None]).T + a},
        "intercept_a",
        "normal",
    ),
}


@pytest.mark.parametrize("case", ENTANGLED)
def test_what_enters_twice_is_not_drawn_as_if_it_entered_once(case):
    arguments, name, update = ENTANGLED[case]
    assert updates(declare(**arguments))[name] == (update, -1)


def test_noise_that_also_scales_the_latent_vectors_is_no_conjugate_wishart():
    x = {"a": data()["a"]}

    def latent():
        precision = pm.Wishart("precision", nu=7, V=wide(3))
        return pm.Normal("latent", 0.0, pt.sqrt(precision[0, 0]), shape=(T, K))

    def observe(name, mu, x):
        pm.MvNormal(name, mu, tau=pm.modelcontext(None)["precision"], observed=x)

    assert updates(declare(x, latent=latent, observe=observe))["precision"] == ("slice", -1)


def test_matrices_without_a_transform_are_refused():
    def observe(name, mu, x):
        m = x.shape[1]
        tau = pm.Wishart(f"precision_{name}", nu=m + 4, V=wide(m), default_transform=None)
        pm.MvNormal(name, mu, tau=tau, observed=x)

    model = declare(observe=observe)
    with pytest.raises(UnservedModelError, match=r"densities of .* are not defined"):
        pmm.ClusterGibbs([model["cluster_a"]], model=model)


def test_vectors_whose_numbers_depend_on_each_other():
    """One number after the other, but for those that cannot move alone."""

    def intercept(name, m):
        if name == "a":
            return pm.MvNormal("intercept_a", np.zeros(m), wide(m))
        return pm.ZeroSumNormal("intercept_b", 2.0 * ONE, shape=m, default_transform=None)

    found = updates(declare(intercept=intercept))
    assert found["intercept_a"] == ("slice", -1)
    assert "intercept_b" not in found


def test_a_prior_that_moves_the_value_below_it_is_left_alone():
    """Where the support depends on a variable, it moves what is sampled on another scale."""
    x = {"a": data()["a"]}

    def observe(name, mu, x):
        most = pm.HalfNormal("most", ONE)
        pm.Normal(name, mu, pm.Uniform("noise", 0.0, most), observed=x)

    found = updates(declare(x, observe=observe))
    assert found["noise"] == ("slice", -1)
    assert "most" not in found


def test_what_other_data_depend_on_is_left_alone():
    def extra(model):
        pm.Normal("more", model["noise_a"], ONE, observed=0.3)
        pm.Normal("still more", model["intercept_b"], ONE, observed=np.zeros(4))

    found = updates(declare(extra=extra))
    assert "noise_a" not in found
    assert "intercept_b" not in found
    assert found["intercept_a"] == ("intercept", 0)


def relevance(mean_of_others):
    def observe(name, mu, x):
        with pm.modelcontext(None) as model:
            share = model["share"] if "share" in model.named_vars else pm.Beta("share", 1.0, 1.0)
            flag = pm.Bernoulli(f"relevance_{name}", share, shape=len(x))
            other = mean_of_others(model, name)
            mu = pt.where(flag[:, None] > 0, mu, other)
            pm.Normal(name, mu, pm.HalfNormal(f"noise_{name}", ONE), observed=x)

    return observe


def missing():
    x = data()
    x["a"][1, 2] = np.nan
    return x


def deviating(z, s, w, a):
    name = s.name.removeprefix("cluster_")
    return z[s] @ w.T + a + pm.Normal(f"deviation_{name}", 0.0, ONE, shape=(T, SIZES[name][1]))[s]


REFUSED = {
    "flat and normal projections": (
        {
            "projection": lambda name, m: (
                pm.Flat("projection_a", shape=(m, K))
                if name == "a"
                else pm.Normal("projection_b", shape=(m, K))
            )
        },
        r"'projection_a' is flat, and flat projections are found together",
    ),
    "what is flat and no projection": (
        {"intercept": lambda name, m: pm.Flat(f"intercept_{name}", shape=m)},
        r"'intercept_a' is flat, and it is not just the projection of one domain",
    ),
    "flat projections of both domains": (
        {
            "x": {"a": data()["a"], "b": data()["a"][:4]},
            "projection": lambda name, m: (
                pm.modelcontext(None)["w"] if name == "b" else pm.Flat("w", shape=(m, K))
            ),
        },
        r"'w' is flat, and it is not just the projection of one domain",
    ),
    "flat projections of incomplete vectors in dependent noise": (
        {
            "x": missing(),
            "projection": lambda name, m: pm.Flat(f"projection_{name}", shape=(m, K)),
            "observe": several("cov"),
        },
        r"'projection_a' is flat; where values are missing",
    ),
    "noise that differs between clusters": (
        {
            "x": {"a": data()["a"]},
            "mean": lambda z, s, w, a: z[s] @ w.T + a,
            "observe": lambda name, mu, x: pm.Normal(
                name,
                mu,
                pm.HalfNormal("noise", ONE, shape=T)[pm.modelcontext(None)["cluster_a"]][:, None],
                observed=x,
            ),
        },
        r"the noise of 'a' depends on 'cluster_a'",
    ),
    "means that see the object": (
        {"mean": lambda z, s, w, a: z[s] @ w.T + a + pt.arange(s.shape[0])[:, None]},
        r"'a': its declared log density is not that of a normal",
    ),
    "neighbours' labels": (
        {"mean": lambda z, s, w, a: z[pt.roll(s, 1)] @ w.T + a},
        r"'a': its declared log density is not that of a normal",
    ),
    "not linear": (
        {"mean": lambda z, s, w, a: pt.tanh(z[s]) @ w.T + a},
        r"'a': its declared log density is not that of a normal",
    ),
    "a quadratic that unit vectors do not see": (
        {"mean": lambda z, s, w, a: z[s] @ w.T + a + (z[s, :1] * z[s, 1:])},
        r"'a': its declared log density is not that of a normal",
    ),
    "latent vectors with a mean": (
        {"latent": lambda: pm.Normal("latent", 0.5, ONE, shape=(T, K))},
        r"'latent': its declared log density is not that of independent Normal\(0, sigma\)",
    ),
    "latent vectors with several scales": (
        {"latent": lambda: pm.Normal("latent", 0.0, np.arange(1.0, K + 1), shape=(T, K))},
        r"the scale of 'latent' is not one number",
    ),
    "latent vectors of another family": (
        {"latent": lambda: pm.Laplace("latent", 0.0, ONE, shape=(T, K))},
        r"no normal variable with one row for each of 4 clusters",
    ),
    "two kinds of latent vectors": (
        {
            "mean": lambda z, s, w, a: (
                z[s] @ w.T
                + a
                + (
                    pm.modelcontext(None)["more"]
                    if "more" in pm.modelcontext(None).named_vars
                    else pm.Normal("more", 0.0, ONE, shape=(T, K))
                )[s]
                @ w.T
            )
        },
        r"'latent', 'more' could each be the latent vectors; expected one",
    ),
    "deviations with several scales": (
        {
            "x": {"a": data()["a"]},
            "mean": lambda z, s, w, a: (
                z[s] @ w.T + a + pm.Normal("e", 0.0, np.c_[1.0:5.0], shape=(T, 3))[s]
            ),
        },
        r"the scale of 'e' differs between clusters",
    ),
    "deviations with a mean": (
        {
            "x": {"a": data()["a"]},
            "mean": lambda z, s, w, a: z[s] @ w.T + a + pm.Normal("e", 1.0, ONE, shape=(T, 3))[s],
        },
        r"'e': its declared log density is not that of independent Normal\(0, sigma\)",
    ),
    "irrelevant objects that depend on their cluster": (
        {"observe": relevance(lambda model, name: model["latent"][model[f"cluster_{name}"], :1])},
        r"'a': objects that are irrelevant by 'relevance_a' still depend on their cluster",
    ),
    "irrelevant objects that depend on deviations": (
        {
            "mean": deviating,
            "observe": relevance(lambda model, name: model[f"deviation_{name}"].mean(axis=0)),
        },
        r"'a': objects that are irrelevant by 'relevance_a' still depend on their cluster",
    ),
    "features that are coarsened twice": (
        {"extra": lambda m: [pmm.coarsen(name, "a", 0.5) for name in ("once", "twice")]},
        r"'a' is coarsened twice; expected one power",
    ),
    "missing values of what is coarsened": (
        {"x": missing(), "extra": lambda m: pmm.coarsen("coarse", "a_observed", 0.5)},
        r"'a_unobserved' holds missing values; expected none of what is coarsened \('coarse'\)",
    ),
    "latent vectors that are used twice": (
        {"extra": lambda m: pm.Potential("small", -(m["latent"] ** 2).sum())},
        r"'small' depends on 'latent' too",
    ),
}


def sharing(*names, mean=lambda z, s, w, a: z[s] @ w.T + a):
    """All noise has the precision of the latent vectors: a product of Gamma variables."""

    def product():
        model = pm.modelcontext(None)
        return pt.prod([model[name] for name in names])

    def latent():
        for name in names:
            pm.Gamma(name, 2.0 * ONE, 1.5 * ONE)
        return pm.Normal("latent", 0.0, tau=product(), shape=(T, K))

    def observe(name, mu, x):
        pm.Normal(name, mu, tau=product(), observed=x)

    return declare(latent=latent, observe=observe, mean=mean)


def test_one_shared_precision_is_integrated_out():
    model = sharing("precision")
    assert read(model).of(Features)[0].precision == "precision"
    assert "precision" not in updates(model)


@pytest.mark.parametrize(
    "arguments",
    [(("precision",), {"mean": deviating}), (("one", "other"), {})],
    ids=["deviations", "two factors"],
)
def test_what_else_is_shared_is_drawn_by_slices(arguments):
    names, more = arguments
    model = sharing(*names, **more)
    assert read(model).of(Features)[0].precision is None
    assert {updates(model)[name] for name in names} == {("slice", -1)}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case):
    arguments, message = REFUSED[case]
    model = declare(**arguments)
    with pytest.raises(UnservedModelError, match=message):
        pmm.ClusterGibbs([model["cluster_a"]], model=model)


@pytest.mark.parametrize("kind", [Kind(projection="rigid", deviations="vector"), Kind(noise="lkj")])
def test_settings_follow_the_point(kind):
    """Whatever changes, in whatever order: nothing that is kept outlives what it was read from."""
    model = feature_model(kind)
    (features,) = read(model).of(Features)
    rng = np.random.default_rng(2)
    point = {
        name: rng.normal(0.0, 0.5, np.shape(v)) if np.asarray(v).dtype.kind == "f" else v
        for name, v in model.initial_point(0).items()
    }
    for _ in range(40):
        name = rng.choice(list(point))
        value = np.asarray(point[name])
        if value.dtype.kind != "f":
            continue
        point[name] = np.array(rng.normal(0.0, 0.5, value.shape))
        setting, plain = features.setting(point), Plain(kind, model, point)
        assert setting.latent_precision == pytest.approx(plain.latent_precision)
        for d, (emission, own) in enumerate(zip(setting.emissions, plain.domains, strict=True)):
            k = kind.factors
            np.testing.assert_allclose(emission.projection[:, :k], own.w, atol=1e-9)
            np.testing.assert_allclose(emission.intercept, own.a, atol=1e-12)
            precision = emission.precision if emission.full else np.diag(emission.precision)
            np.testing.assert_allclose(precision, np.linalg.inv(own.covariance), rtol=1e-7)
            if kind.deviations:
                extra = emission.projection[:, k:] / np.sqrt(setting.latent_precision)
                np.testing.assert_allclose(extra @ extra.T, np.diag(own.spread**2), atol=1e-12)
            assert emission is features.setting(point).emissions[d]
        # Owners of a point may write to it.
        point[name] *= 1.1
        plain = Plain(kind, model, point)
        for emission, own in zip(features.setting(point).emissions, plain.domains, strict=True):
            np.testing.assert_allclose(emission.intercept, own.a, atol=1e-12)
            np.testing.assert_allclose(emission.projection[:, : kind.factors], own.w, atol=1e-9)


@pytest.mark.parametrize("options", [{"intercept": True}, {"relevance": True}], ids=str)
def test_what_is_read_does_not_keep_the_model(options):
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=(8, 2)), "b": rng.normal(size=(7, 3))}
    model = pmm.models.projected_clusters(data, 2, 4, projection="normal", noise="own", **options)
    kept = weakref.ref(model)
    pmm.steps(model)
    before = kept() is not None
    del model
    for _ in range(4):
        gc.collect()
    after = kept() is not None
    assert (before, after) == (True, False)
