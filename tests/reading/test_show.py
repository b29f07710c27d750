"""What `show` prints declares the model that it was made of."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm

X = np.random.default_rng(0).normal(size=(6, 2))


def declared():
    with pm.Model(coords={"cluster": range(3), "object": range(6), "axis": range(2)}) as model:
        alpha = pm.Gamma("alpha", 5.0, 2.0)
        weights = pm.StickBreakingWeights("weights", alpha=alpha, K=2, dims="cluster")
        noise = pm.Gamma("noise", 2.0, 3.0)
        mean = pm.Normal("mean", 1.0, tau=0.25 * noise, dims=("cluster", "axis"))
        cluster = pm.Categorical("label", p=weights, dims="object")
        scale = pm.LogNormal("scale", 0.0, 0.5)
        middle = pm.Deterministic("middle", pt.exp(scale) * mean - 2.0, dims=("cluster", "axis"))
        pm.Normal("x", middle[cluster], tau=noise, dims=("object", "axis"), observed=X)
        p = pm.Beta("p", 2.0, 1.0)
        pm.NegativeBinomial("y", n=1.5, p=p, shape=4, observed=np.arange(4))
        pm.Potential("pull", -((mean**2).sum()) / 2.0)
    return model


def test_what_is_printed_declares_the_same(capsys):
    model = declared()
    pmm.show(model)
    text = capsys.readouterr().out
    assert 'x = pm.Normal("x", mu=middle[label], tau=noise, dims=("object", "axis")' in text
    scope = {"pm": pm, "exp": pt.exp, "sum": pt.sum, "X": X, "Y": np.arange(4)}
    text = text.replace("):\n", ") as again:\n").replace("observed=…", "observed=X", 1)
    exec(text.replace("observed=…", "observed=Y"), scope)
    again = scope["again"]
    assert again.named_vars_to_dims == model.named_vars_to_dims
    rng = np.random.default_rng(1)
    start = model.initial_point(random_seed=2)
    point = {
        name: value + (rng.random() if value.dtype.kind == "f" else 0)
        for name, value in start.items()
    }
    expected = model.point_logps(point)
    assert again.point_logps(point) == expected
    assert len(set(expected.values())) == len(expected) == 10


def test_what_is_observed_in_part_is_told_as_it_was_declared(capsys):
    seen = np.ma.masked_array(np.zeros((4, 2)), np.eye(4, 2))
    lines = [
        'label = pm.Categorical("label", p=[0.5, 0.5], observed=…)',
        'x = pm.Normal("x", mu=mean[label], tau=tau, dims=("object", "axis"), observed=…)',
        'y = pm.Normal("y", mu=0, sigma=1, observed=…)',
        'z = pm.MvNormal("z", mu=mean[label], cov=array(2, 2), observed=…)',
        'counts = pm.Poisson("counts", mu=exp(mean[label]), observed=…)',
    ]
    with pm.Model(coords={"object": range(4), "axis": range(2)}) as model:
        p = pt.stack([0.5, 0.5])
        label = pm.Categorical("label", p, observed=np.ma.masked_array([0, 1, 1, 0], [0, 0, 0, 1]))
        mean = pm.Normal("mean", shape=(2, 2))
        tau = pm.Gamma("tau", 1.0, 1.0)
        pm.Normal("x", mean[label], tau=tau, observed=seen, dims=("object", "axis"))
        pm.Normal("y", 0.0, 1.0, observed=seen)
        pm.MvNormal("z", mean[label], cov=np.eye(2), observed=seen)
        pm.Poisson("counts", pt.exp(mean[label]), observed=seen.astype(int))
    pmm.show(model)
    text = capsys.readouterr().out
    assert [line.strip() for line in text.splitlines() if "observed" in line] == lines


def test_a_name_as_of_what_is_missing_says_nothing(capsys):
    with pm.Model() as model:
        pm.Deterministic("x", pt.exp(pm.Normal("x_unobserved")))
    pmm.show(model)
    text = capsys.readouterr().out
    assert 'x_unobserved = pm.Normal("x_unobserved", mu=0, sigma=1)' in text
    assert 'x = pm.Deterministic("x", exp(x_unobserved))' in text


def test_names_are_of_python(capsys):
    """Of named models, of models within models, and where names are text."""
    with pm.Model(name="shop") as model:
        rate = pm.Gamma("rate 1", 1.0, 1.0, shape=3)
        with pm.Model(name="inner"):
            scale = pm.Gamma("class", rate.sum(), 1.0)
        pm.Deterministic("total", rate.sum() * scale)
    pmm.show(model)
    text = capsys.readouterr().out
    scope = {"pm": pm, "sum": pt.sum}
    exec(text.replace("):\n", ") as again:\n"), scope)
    assert scope["again"].named_vars.keys() == model.named_vars.keys()
    assert scope["rate_1"].name == "shop::rate 1"


def test_parameters_and_transforms_are_those_that_pymc_takes(capsys):
    told = [
        'a = pm.HalfNormal("a", sigma=2)',
        'b = pm.Triangular("b", lower=0, c=1, upper=3)',
        'c = pm.BetaBinomial("c", n=5, alpha=1, beta=2)',
        'd = pm.AsymmetricLaplace("d", b=2, kappa=1, mu=0)',
        'e = pm.Wald("e", mu=1, lam=2, alpha=0)',
        'f = pm.Normal("f", mu=0, sigma=1, transform=ordered)',
        'g = pm.Gamma("g", alpha=1, beta=2, transform=ordered)',
        'h = pm.Gamma("h", alpha=1, beta=2)',
    ]
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        for line in told[:5]:
            exec(line)
        pm.Normal("f", 0, 1, shape=2, transform=ordered)
        pm.Gamma("g", 1, 2, shape=2, transform=ordered)
        pm.Gamma("h", 1, 2, default_transform=None)
    pmm.show(model)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[1:]] == told


def test_what_is_no_input_of_a_distribution_is_told_too(capsys):
    told = [
        'a = pm.Normal("a", mu=0, sigma=1)',
        'b = pm.KroneckerNormal("b", covs=[(a * array(2, 2)), array(3, 3)], mu=array(6,), sigma=2)',
        'c = pm.AR("c", rho=array(2,), sigma=1, init_dist=pm.Normal.dist(mu=0, sigma=1), '
        "constant=True)",
        'd = pm.ZeroSumNormal("d", sigma=2, n_zerosum_axes=2)',
        'e = pm.ZeroSumNormal("e", sigma=2)',
        'f = pm.CustomDist("f", …, a, 2)',
        'g = pm.CustomDist("g", …, a)',
        'h = pm.Simulator("h", …, a, observed=…)',
        'i = pm.EulerMaruyama("i", sde_pars=[a], init_dist=pm.Normal.dist(mu=0, sigma=1), dt=0.1, '
        "sde_fn=…)",
    ]
    start = pm.Normal.dist()
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.KroneckerNormal("b", np.zeros(6), covs=[a * np.eye(2), np.eye(3)], sigma=2)
        pm.AR("c", [0.5, 0.25], init_dist=start, constant=True, steps=3)
        pm.ZeroSumNormal("d", 2.0, n_zerosum_axes=2, shape=(2, 3))
        pm.ZeroSumNormal("e", 2.0, shape=(2, 3))
        pm.CustomDist("f", a, 2.0, logp=lambda value, mu, s: -((value - mu) ** 2) / s)
        pm.CustomDist("g", a, dist=lambda mu, size: pm.Normal.dist(mu, 1.0, size=size))
        pm.Simulator("h", lambda rng, mu, size: rng.normal(mu, size=size), a, observed=np.ones(3))
        pm.EulerMaruyama("i", 0.1, lambda x, a: (a * x, 1.0), (a,), init_dist=start, steps=5)
    pmm.show(model)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[1:]] == told


ONE = {
    "AsymmetricLaplace": [{"b": 1.5, "kappa": 2.5, "mu": 0.5}],
    "Bernoulli": [{"p": 0.25}, {"logit_p": 0.5}],
    "Beta": [{"alpha": 2.5, "beta": 3.5}, {"mu": 0.25, "nu": 5.0}],
    "BetaBinomial": [{"alpha": 2.5, "beta": 3.5, "n": 7}],
    "Binomial": [{"n": 7, "p": 0.25}, {"n": 7, "logit_p": 0.5}],
    "Cauchy": [{"alpha": 1.5, "beta": 2.5}],
    "ChiSquared": [{"nu": 3.5}],
    "DiracDelta": [{"c": 2.5}],
    "DiscreteUniform": [{"lower": 2, "upper": 7}],
    "DiscreteWeibull": [{"q": 0.25, "beta": 2.5}],
    "ExGaussian": [{"mu": 0.5, "sigma": 1.5, "nu": 2.5}],
    "Exponential": [{"lam": 2.5}, {"scale": 2.5}],
    "Gamma": [{"alpha": 2.5, "beta": 3.5}, {"mu": 2.0, "sigma": 0.5}],
    "Geometric": [{"p": 0.25}],
    "Gumbel": [{"mu": 0.5, "beta": 2.5}],
    "HalfCauchy": [{"beta": 2.5}],
    "HalfNormal": [{"sigma": 2.5}, {"tau": 0.25}],
    "HalfStudentT": [{"nu": 3.5, "sigma": 2.5}, {"nu": 3.5, "lam": 0.25}],
    "HurdleGamma": [{"psi": 0.25, "alpha": 2.5, "beta": 3.5}],
    "HurdleLogNormal": [{"psi": 0.25, "mu": 0.5, "sigma": 1.5}],
    "HurdleNegativeBinomial": [{"psi": 0.25, "mu": 2.5, "alpha": 3.5}],
    "HurdlePoisson": [{"psi": 0.25, "mu": 2.5}],
    "HyperGeometric": [{"N": 20, "k": 8, "n": 5}],
    "InverseGamma": [{"alpha": 2.5, "beta": 3.5}],
    "Kumaraswamy": [{"a": 2.5, "b": 3.5}],
    "Laplace": [{"mu": 0.5, "b": 2.5}],
    "LogNormal": [{"mu": 0.5, "sigma": 1.5}, {"mu": 0.5, "tau": 0.25}],
    "LogitNormal": [{"mu": 0.5, "sigma": 1.5}, {"mu": 0.5, "tau": 0.25}],
    "Logistic": [{"mu": 0.5, "s": 2.5}],
    "Moyal": [{"mu": 0.5, "sigma": 1.5}],
    "NegativeBinomial": [{"mu": 2.5, "alpha": 3.5}, {"n": 5, "p": 0.25}],
    "Normal": [{"mu": 0.5, "sigma": 1.5}, {"mu": 0.5, "tau": 0.25}],
    "Pareto": [{"alpha": 2.5, "m": 3.5}],
    "Poisson": [{"mu": 2.5}],
    "Rice": [{"nu": 3.0, "sigma": 1.5}, {"b": 2.5, "sigma": 1.5}],
    "SkewNormal": [{"mu": 0.5, "sigma": 1.5, "alpha": 2.5}],
    "SkewStudentT": [{"a": 2.5, "b": 3.5, "mu": 0.5, "lam": 0.25}],
    "StudentT": [{"nu": 3.5, "mu": 0.5, "sigma": 1.5}, {"nu": 3.5, "mu": 0.5, "lam": 0.25}],
    "Triangular": [{"lower": 0.25, "c": 0.5, "upper": 0.75}],
    "TruncatedNormal": [{"mu": 0.5, "tau": 0.25, "lower": -1.5}],
    "Uniform": [{"lower": 0.25, "upper": 0.75}],
    "VonMises": [{"mu": 0.5, "kappa": 2.5}],
    "Wald": [{"mu": 0.5, "lam": 2.5, "alpha": 0.25}, {"lam": 0.5, "phi": 2.0}],
    "Weibull": [{"alpha": 2.5, "beta": 3.5}],
    "ZeroInflatedBinomial": [{"psi": 0.25, "n": 7, "p": 0.5}],
    "ZeroInflatedNegativeBinomial": [{"psi": 0.25, "mu": 2.5, "alpha": 3.5}],
    "ZeroInflatedPoisson": [{"psi": 0.25, "mu": 2.5}],
}


@pytest.mark.parametrize("name", ONE)
def test_distributions_are_told_with_parameters_of_the_same_density(name, capsys):
    with pm.Model() as model:
        for number, parameters in enumerate(ONE[name]):
            getattr(pm, name)(f"x{number}", **parameters)
    pmm.show(model)
    text = capsys.readouterr().out.replace("):\n", ") as again:\n", 1)
    functions = {own: getattr(pt, own) for own in ("sigmoid", "log", "sign", "floor")}
    scope = {"pm": pm, "inf": np.inf, **functions}
    exec(text, scope)
    draws = pm.draw(model.free_RVs, 5, random_seed=1)
    for own, other, values in zip(
        model.free_RVs, scope["again"].free_RVs, np.reshape(draws, (-1, 5)), strict=True
    ):
        expected = pm.logp(own, values).eval()
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(pm.logp(other, values).eval(), expected, rtol=1e-6)


def test_zeros_of_each_cluster_and_mixtures_are_told(capsys):
    told = [
        'w = pm.Dirichlet("w", a=array(2,))',
        'p = pm.Beta("p", alpha=1, beta=2)',
        'label = pm.Categorical("label", p=w)',
        'a = pm.ZeroInflatedPoisson("a", psi=p[label], mu=p[label])',
        'b = pm.Mixture("b", w=w, comp_dists=[pm.DiracDelta.dist(0), pm.Poisson.dist(mu=2)])',
        'c = pm.Mixture("c", w=[p[…], p[…]], comp_dists=[pm.DiracDelta.dist(1), '
        "pm.Poisson.dist(mu=2)])",
        'd = pm.Truncated("d", pm.Gamma.dist(alpha=1, beta=p[…]), 0.5, inf)',
        'e = pm.Censored("e", pm.StudentT.dist(nu=3, mu=0, sigma=1), 0, 1)',
        'g = pm.Data("g", …)',
        'f = pm.Deterministic("f", (g @ g.T))',
        'h = pm.Data("h", …)',
        'i = pm.Deterministic("i", h.transpose(0, 2, 1))',
        'j = pm.Normal("j", mu=0, sigma=((abs(p[…]) ** 0.5) * 2))',
        'k = pm.Normal("k", mu=0, sigma=((abs(p[…]) ** -0.5) * 2))',
        'l = pm.Normal("l", mu=0, sigma=((abs(p[…]) ** 0.5) * sign(p[…])))',
    ]
    with pm.Model() as model:
        w = pm.Dirichlet("w", [1.0, 1.0])
        p = pm.Beta("p", 1.0, 2.0, shape=2)
        label = pm.Categorical("label", w, shape=3)
        pm.ZeroInflatedPoisson("a", p[label], p[label])
        parts = [pm.DiracDelta.dist(0), pm.Poisson.dist(2.0)]
        pm.Mixture("b", w, parts)
        pm.Mixture("c", pt.stack([p[0], p[1]]), [pm.DiracDelta.dist(1), parts[1]])
        pm.Truncated("d", pm.Gamma.dist(1.0, p[0]), lower=0.5)
        pm.Censored("e", pm.StudentT.dist(3.0), lower=0.0, upper=1.0)
        g = pm.Data("g", np.ones((2, 2)))
        pm.Deterministic("f", g @ g.T)
        pm.Deterministic("i", pm.Data("h", np.ones((2, 2, 2))).transpose(0, 2, 1))
        # None of these is a precision's.
        pm.Normal("j", 0.0, pt.abs(p[0]) ** 0.5 * 2.0)
        pm.Normal("k", 0.0, pt.abs(p[0]) ** -0.5 * 2.0)
        pm.Normal("l", 0.0, pt.abs(p[0]) ** 0.5 * pt.sign(p[0]))
    pmm.show(model)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[1:]] == told


def test_distributions_have_the_names_that_pymc_declares_them_by(capsys):
    with pm.Model() as model:
        pm.InverseGamma("a", 2.0, 1.0)
        pm.Weibull("b", 2.0, 3.0)
        pm.AR("c", [0.5], 1.0, init_dist=pm.Normal.dist(), shape=4)
    pmm.show(model)
    lines = capsys.readouterr().out.splitlines()[1:]
    told = [line.split("(")[0].strip() for line in lines]
    assert told == ["a = pm.InverseGamma", "b = pm.Weibull", "c = pm.AR"]


@pytest.mark.parametrize(
    "kind", ["table_clusters", "normal_clusters", "aligned_clusters", "projected_clusters"]
)
def test_every_variable_of_our_models_is_told(kind, capsys):
    tables = {name: np.random.default_rng(0).normal(size=(9, 2)) for name in "ab"}
    model = getattr(pmm.models, kind)(tables, n_clusters=3)
    pmm.show(model)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" = ")[0].strip() for line in lines[1:]] == list(model.named_vars)
    assert max(map(len, lines)) < 400


def test_networks_are_told(capsys):
    network = np.random.default_rng(0).integers(0, 2, (6, 5))
    model = pmm.models.relational_clusters({"x": network}, n_clusters=3)
    with model:
        pmm.show()
    assert 'x = pmm.BlockNetwork("x", density, noise, cluster_x_row' in capsys.readouterr().out


def test_what_is_no_model_is_refused():
    with pytest.raises(
        TypeError, match=r"model: expected a pm\.Model; found an object of type dict"
    ):
        pmm.show({})
