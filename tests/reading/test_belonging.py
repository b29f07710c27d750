"""What goes with clusters is found by numbers, so that draws can be relabelled without a word."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.compile.ops import wrap_py

import pm_match as pmm
from pm_match import results
from pm_match.reading import belonging
from tests.declared.few_draws import declared, few_draws

T, N = 3, 8
RNG = np.random.default_rng(5)
X, COVARIATES = RNG.normal(size=N), RNG.normal(size=(N, T))
ESTIMATE = {"z": np.array([0, 0, 1, 1, 2, 2, 0, 1])}


def labels(p=None, n=T):
    p = pm.Dirichlet("w", np.ones(n)) if p is None else p
    return pm.Categorical("z", p=p, shape=N)


def normal(z, mu, sigma=1.0):
    pm.Normal("x", mu, sigma, observed=X)


def relabelled(model, estimate=ESTIMATE):
    """Return draws, and the same draws relabelled; some have to change."""
    before = few_draws(model, draws=20, tune=0)
    after = pmm.relabel(before, estimate)
    before, after = (data["posterior"].to_dataset() for data in (before, after))
    assert (before["z"] != after["z"]).any()
    return before, after


def chosen(data, *names):
    """Return what the label of every object chooses: rows of one variable, or of several."""
    own = [data[name].to_numpy() for name in names]
    rows = own[0] if len(own) == 1 else np.stack(own, axis=2)
    z = data["z"].to_numpy()
    return np.take_along_axis(rows, z.reshape(*z.shape, *[1] * (rows.ndim - 3)), axis=2)


def check(before, after, theirs=(), left=()):
    """Check that labels choose the same of `theirs`, and that `left` is what it was."""
    for names in theirs:
        names = [names] if isinstance(names, str) else names
        np.testing.assert_array_equal(chosen(after, *names), chosen(before, *names))
        assert any((after[name] != before[name]).any() for name in names)
    for name in left:
        np.testing.assert_array_equal(after[name], before[name])
    told = {name for own in theirs for name in ([own] if isinstance(own, str) else own)}
    assert {*map(str, before.data_vars)} == {"z", *told, *left}


def one_each():
    """A variable for each cluster, and what is computed of it."""
    z = labels()
    mu = [pm.Normal(f"mu_{k}", k, 2.0) for k in range(T)]
    scale = [pm.Gamma(f"scale_{k}", 2.0, 1.0 + k) for k in range(T)]
    for k in (2, 0, 1):
        pm.Deterministic(f"ratio_{k}", mu[k] / scale[k])
    sigma = pm.math.switch(pt.eq(z, 0), scale[0], pm.math.switch(pt.eq(z, 1), scale[1], scale[2]))
    normal(z, pt.stack(mu)[z], sigma)


def two_sides():
    z = pm.Bernoulli("z", 0.4, shape=N)
    low, high = pm.Normal("low", -1.0), pm.Normal("high", 2.0, 2.0, shape=())
    both = pt.stack([low, high])
    pm.Deterministic("both", both)
    normal(z, pm.math.switch(z, high, low))


def logits():
    """Vectors of as many numbers as there are clusters: logits of weights, and coefficients."""
    z = labels(pm.math.softmax(pm.Normal("logit", shape=T)))
    normal(z, pm.Normal("mu", shape=T)[z] + COVARIATES @ pm.Normal("slope", shape=T))


def weights_that_more_depends_on():
    w = pm.Dirichlet("w", np.ones(T), initval=np.ones(T) / T)
    pm.Potential("bound", pt.switch(w.min() < 1e-9, -np.inf, 0.0))
    z = labels(w)
    normal(z, pm.Normal("mu", shape=T)[z])


def in_order():
    start = np.arange(T, dtype=float)
    ordered = pm.distributions.transforms.ordered
    mu = pm.Normal("mu", 0.0, 2.0, shape=T, transform=ordered, initval=start)
    z = labels()
    # The last label is told from the others, whose means have no other place.
    normal(z, mu[z], pt.constant([1.0, 1.0, 2.0])[z])


def not_centred():
    z = labels()
    mu = pm.Deterministic("mu", pm.Normal("centre") + 2.0 * pm.Normal("offset", shape=T))
    pm.Deterministic("gap", mu - mu.mean())
    pm.Deterministic("above", mu > mu.mean())
    normal(z, mu[z])


def normalised_sticks():
    stick = pm.Beta("stick", 1.0, 1.0, shape=T)
    w = stick * pt.concatenate([[1.0], pt.cumprod(1.0 - stick)[:-1]])
    z = labels(pm.Deterministic("w", w / w.sum()))
    normal(z, pm.Normal("mu", shape=T)[z])


def roles():
    """Of two labels that are no clusters alike: coefficients are of neither."""
    p = pm.math.invlogit(COVARIATES[:, :2] @ pm.Normal("g", shape=2))
    z = pm.Bernoulli("z", p)
    pm.Deterministic("ones", z.sum())
    normal(z, pm.math.switch(z, COVARIATES[:, :2] @ pm.Normal("b", shape=2), 0.0))


def unequal_logits():
    """Logits that are offsets from known ones: in other places, probabilities are others."""
    logits = pm.Normal("logit", shape=T) + 0.3 * np.arange(T)
    z = pm.Categorical("z", pm.math.softmax(logits), shape=len(ESTIMATE["z"]))
    normal(z, pm.Normal("mu", 0.0, 2.0, shape=T)[z])


@pytest.mark.parametrize(
    ("write", "theirs", "left"),
    [
        (unequal_logits, ["logit", "mu"], []),
        (
            one_each,
            ["w", *([f"{own}_{k}" for k in range(T)] for own in ("mu", "scale", "ratio"))],
            [],
        ),
        (two_sides, [("low", "high"), "both"], []),
        (logits, ["logit", "mu"], ["slope"]),
        (weights_that_more_depends_on, ["w", "mu"], []),
        (in_order, ["w", "mu"], []),
        (not_centred, ["w", "mu", "offset", "gap", "above"], ["centre"]),
        (normalised_sticks, ["w", "mu"], ["stick"]),
        (roles, [], ["g", "b", "ones"]),
    ],
)
def test_what_goes_with_clusters_goes_with_them(write, theirs, left):
    two = {"z": ESTIMATE["z"] > 0} if write in (two_sides, roles) else ESTIMATE
    check(*relabelled(declared(write), {"z": np.asarray(two["z"], int)}), theirs, left)


def numbers():
    z = labels()
    for name, own in {"first": z[0], "odd": z[1::2], "copy": z + 0}.items():
        pm.Deterministic(name, own, dims="object" if name == "copy" else None)
    pm.Deterministic("alike", pt.eq(z[0], z[1]))
    pm.Deterministic("n_occupied", pt.eq(z[:, None], np.arange(T)).any(axis=0).sum())
    normal(z, pm.Normal("mu", shape=T)[z])


@pytest.mark.parametrize("name", ["", "shop"])
def test_labels_that_are_computed_have_the_numbers_of_clusters(name):
    data = few_draws(declared(numbers, name=name, coords={"object": range(N)}), draws=20, tune=0)
    before, after = (own["posterior"].to_dataset() for own in (data, pmm.relabel(data, ESTIMATE)))
    before = before.rename({own: own.removeprefix(f"{name}::") for own in before.data_vars})
    z = after["z"].to_numpy()
    assert (before["z"] != z).any()
    for own, expected in {"first": z[..., 0], "odd": z[..., 1::2], "copy": z}.items():
        np.testing.assert_array_equal(after[own], expected)
        assert after[own].dtype == before[own].dtype
    for own in ("alike", "n_occupied"):
        np.testing.assert_array_equal(after[own], before[own])


def test_of_a_named_model_and_of_a_file(tmp_path):
    names = [[f"{own}_{k}" for k in range(T)] for own in ("mu", "scale", "ratio")]
    data = few_draws(declared(one_each, name="shop"), draws=20, tune=0)
    data.to_netcdf(tmp_path / "draws.nc")
    for own in (data, xr.open_datatree(tmp_path / "draws.nc").load()):
        before = own["posterior"].to_dataset()
        before = before.rename({name: name.removeprefix("shop::") for name in before.data_vars})
        after = pmm.relabel(own, ESTIMATE)["posterior"].to_dataset()
        check(before, after, ["w", *names])


def test_one_of_a_pair_that_is_not_kept():
    data = few_draws(declared(one_each), draws=20, tune=0, var_names=["z", "mu_0", "mu_1"])
    with pytest.raises(ValueError, match="found 'mu_0', a parameter of one cluster alone"):
        pmm.relabel(data, ESTIMATE)


def not_alike():
    """One is a mean, the other the logarithm of one."""
    z = pm.Bernoulli("z", 0.4, shape=N)
    normal(z, pm.math.switch(z, pt.exp(pm.Normal("log_mean")), pm.Normal("mean")))


def computed_of_one():
    z = labels()
    mu = [pm.Normal(f"mu_{k}") for k in range(T)]
    pm.Deterministic("square", mu[1] ** 2)
    normal(z, pt.stack(mu)[z])


def difference():
    z = labels()
    mu = pm.Normal("mu", shape=T)
    pm.Deterministic("difference", mu[1] - mu[0])
    normal(z, mu[z])


def computed_of_sticks():
    stick = pm.Beta("stick", 1.0, 1.0, shape=T)
    w = stick * pt.concatenate([[1.0], pt.cumprod(1.0 - stick)[:-1]])
    pm.Deterministic("log_weights", pt.log(w / w.sum()))
    z = labels(w / w.sum())
    normal(z, pm.Normal("mu", shape=T)[z])


def the_same_where_it_is_looked_at():
    z = labels()
    mu = pm.Normal("mu", -9.0, shape=T)
    pm.Deterministic("positive", pt.maximum(mu, 0.0))
    normal(z, mu[z])


def one_each_the_same_where_it_is_looked_at():
    z = labels()
    mu = [pm.Normal(f"mu_{k}", -9.0) for k in range(T)]
    for k in range(T):
        pm.Deterministic(f"positive_{k}", mu[k] > 0.0)
    normal(z, pt.stack(mu)[z])


def counts_in_weights():
    """Whole numbers are all what they are where a chain starts."""
    count = pm.Poisson("count", 4.0, shape=(2, T))
    z = labels(pm.math.softmax(0.3 * count.sum(axis=0)))
    normal(z, pm.Normal("mu", shape=T)[z])


def beside_the_means():
    """What slopes are of is not said where labels are chosen."""
    z = labels()
    mu, slope = (pm.Normal(name, shape=T) for name in ("mu", "slope"))
    pm.Potential("near", -((mu - slope) ** 2).sum())
    normal(z, mu[z])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (beside_the_means, "found 'slope_dim_0' of variable 'slope', which may be"),
        (not_alike, "found 'log_mean', a parameter of one cluster alone"),
        (computed_of_one, "found 'square', a parameter of one cluster alone"),
        (difference, "found 'difference', a parameter of one cluster alone, or made of such"),
        (computed_of_sticks, "found 'log_weights_dim_0' of variable 'log_weights', which may be"),
        (the_same_where_it_is_looked_at, "found 'positive_dim_0' of variable 'positive'"),
        (one_each_the_same_where_it_is_looked_at, "found 'positive_0', a parameter of one cluster"),
        (counts_in_weights, "found 'count_dim_1' of variable 'count', which may be"),
    ],
)
def test_what_cannot_be_known_is_asked(write, message):
    with pytest.raises(ValueError, match=message):
        pmm.relabel(few_draws(declared(write), draws=2), {"z": np.arange(N) % 2})


NUMBERS = {
    "twice": lambda z, mu: 2 * z,
    "second": lambda z, mu: pt.eq(z, 1),
    "real": lambda z, mu: 1.0 * z,
    "highest": lambda z, mu: z.max() + pt.zeros(N, int),
    "contrast": lambda z, mu: X * (mu[1] - mu[0]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_hangs_on_numbers_of_labels_is_refused(name):
    def write():
        z = labels()
        mu = pm.Normal("mu", shape=T)
        pm.Deterministic(name, NUMBERS[name](z, mu), dims="object")
        normal(z, mu[z])

    data = few_draws(declared(write, coords={"object": range(N)}), draws=2)
    with pytest.raises(ValueError, match=f"found '{name}', a parameter of one cluster alone, or"):
        pmm.relabel(data, ESTIMATE)


@pytest.mark.parametrize("of", ["z", "other"])
def test_what_two_sets_of_clusters_have_is_of_either(of):
    def write():
        z, other = labels(), pm.Categorical("other", pm.Dirichlet("v", np.ones(T)), shape=N)
        mu, nu = pm.Normal("mu", shape=T), pm.Normal("nu", shape=T)
        pm.Deterministic("sum", mu[0] + nu[0])
        for name, own in {"x": mu[z], "y": nu[other]}.items():
            pm.Normal(name, own, observed=X)

    data = few_draws(declared(write), draws=2)
    with pytest.raises(ValueError, match="found 'sum', a parameter of one cluster alone"):
        pmm.relabel(data, {of: ESTIMATE["z"]})


@wrap_py([pt.lvector], [pt.dscalar])
def several(z):
    """Count labels in use: there have to be several, or the first."""
    n = len(np.unique(z))
    if n < 2 and z[0] > 0:
        raise ArithmeticError("one label")
    return np.array(1.0 * n)


def counted():
    z = labels()
    pm.Deterministic("n_occupied", several(z))
    normal(z, pm.Normal("mu", shape=T)[z])


def test_what_cannot_be_computed_everywhere_is_refused():
    data = few_draws(declared(counted), draws=2)
    with pytest.raises(ValueError, match="found 'n_occupied', a parameter of one cluster alone"):
        pmm.relabel(data, ESTIMATE)


def test_a_fault_of_ours_is_not_taken_for_one_of_the_model(monkeypatch):
    def fault(*args):
        raise KeyError("ours")

    monkeypatch.setattr(belonging, "combinations", fault)
    with pytest.raises(KeyError, match="ours"):
        few_draws(declared(not_centred), draws=2)


def test_what_is_sorted_along_a_dim_of_clusters_stays():
    def write():
        w = pm.Dirichlet("w", np.ones(T), dims="cluster")
        z, mu = labels(w), pm.Normal("mu", dims="cluster")
        pm.Deterministic("by_size", pt.sort(w), dims="cluster")
        pm.Deterministic("twice", 2.0 * mu, dims="cluster")
        normal(z, mu[z])

    model = declared(write, coords={"cluster": range(T)})
    check(*relabelled(model), ["w", "mu", "twice"], ["by_size"])


def test_coefficients_along_a_dim_of_clusters_stay_and_are_judged():
    def write():
        z = labels(pm.Dirichlet("w", np.ones(T), dims="cluster"))
        mu, slope = (pm.Normal(name, dims="cluster") for name in ("mu", "slope"))
        normal(z, mu[z] + COVARIATES @ slope)

    model = declared(write, coords={"cluster": range(T)})
    check(*relabelled(model), ["w", "mu"], ["slope"])
    assert "slope" in pmm.invariants(few_draws(model), model)


def test_nothing_is_looked_at_where_names_say_it(monkeypatch):
    def write():
        z = labels(pm.Dirichlet("w", np.ones(T), dims="cluster"))
        normal(z, pm.Normal("mu", dims="cluster")[z])

    looked = []
    monkeypatch.setattr(results, "belonging", lambda *args: looked.append(args))
    model = declared(write, coords={"cluster": range(T)})
    check(*relabelled(model), ["w", "mu"])
    assert not looked
