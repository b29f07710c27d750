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
