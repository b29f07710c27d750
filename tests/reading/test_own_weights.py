"""Assignments whose weights are not integrated out: what is read is the declared density."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pm_match as pmm
from pm_match import testing
from pm_match.reading import UnservedModelError, as_read, read
from pm_match.reading.probe import initial_point, with_values
from tests.declared.few_draws import declared, few_draws

N, T = 6, 3
RNG = np.random.default_rng(3)
COVARIATE = RNG.normal(size=N)
COUNTS = RNG.poisson(3.0, size=N)
RATES = np.array([1.0, 3.0, 8.0])
CONSTANT = RNG.dirichlet(np.ones(T), size=N)


def counts(label):
    pm.Poisson("x", pt.constant(RATES)[label], observed=COUNTS)


def regression():
    slope = pm.Normal("slope", 0.0, 1.0, shape=T)
    p = pm.math.softmax(COVARIATE[:, None] * slope, axis=1)
    counts(pm.Categorical("cluster", p=p, shape=N))


def logits():
    counts(pm.Categorical("cluster", logit_p=pm.Normal("logit", 0.0, 1.0, shape=T), shape=N))


def constant():
    counts(pm.Categorical("cluster", p=CONSTANT))


def by_group():
    """Weights of a Dirichlet for each group of objects, such as topics of documents."""
    p = pm.Dirichlet("weights", np.ones(T), shape=(2, T))[np.arange(N) % 2]
    counts(pm.Categorical("cluster", p=p))


def weights_used_twice():
    weights = pm.Dirichlet("weights", np.ones(T))
    counts(pm.Categorical("cluster", p=weights, shape=N))
    pm.Multinomial("votes", 10, weights, observed=[2, 3, 5])


def favoured():
    """Weights in common, which every object multiplies."""
    mask = np.array([[1.0, 1.0, 0.2], [1.0, 0.5, 1.0]])[np.arange(N) % 2]
    weights = pm.Dirichlet("weights", np.ones(T)) * mask
    counts(pm.Categorical("cluster", p=weights / weights.sum(axis=1, keepdims=True)))


def bounded():
    """Sticks by hand, whose weights are kept from zero."""
    stick = pm.Beta("stick", 1.0, 2.0, shape=T - 1)
    p = pt.concatenate([stick, [1.0]]) * pt.concatenate([[1.0], pt.cumprod(1.0 - stick)])
    p = pt.clip(p, 0.01, 1.0)
    counts(pm.Categorical("cluster", p / p.sum(), shape=N))


def discrete_prior():
    concentration = pm.DiscreteUniform("concentration", 1, 4)
    weights = pm.StickBreakingWeights("weights", concentration.astype(float), T - 1)
    counts(pm.Categorical("cluster", p=weights, shape=N))


def beta():
    counts(pm.Bernoulli("cluster", pm.Beta("p", 1.0, 2.0), shape=N))


def logistic():
    p = pm.math.invlogit(pm.Normal("slope") * COVARIATE)
    label = pm.Bernoulli("cluster", p)
    pm.Poisson("x", pt.switch(label, 6.0, 1.5), observed=COUNTS)


def some_known():
    label = np.ma.masked_equal([0, -1, 2, -1, -1, -1], -1)
    p = pm.math.softmax(COVARIATE[:, None] * pm.Normal("slope", shape=T), axis=1)
    counts(pm.Categorical("cluster", p=p, observed=label))


SERVED = [
    regression,
    logits,
    constant,
    by_group,
    weights_used_twice,
    favoured,
    bounded,
    discrete_prior,
    beta,
    logistic,
    some_known,
]


@pytest.mark.parametrize("write", SERVED)
@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_what_is_read_is_the_declared_density(write, declared_once):
    model = declared_once(write)
    (component,) = read(model).components
    seen = as_read(model)
    assert seen is not model
    assert not component.clusterings[0].weights
    one, other, rng = model.compile_logp(), seen.compile_logp(), np.random.default_rng(0)
    known = component.clusterings[0].known
    n_seen = 0
    for _ in range(20):
        point = {
            name: rng.normal(size=np.shape(value)) if np.asarray(value).dtype.kind == "f" else value
            for name, value in model.initial_point().items()
        }
        label = np.where(known >= 0, known, rng.integers(component.clusterings[0].truncation))
        names = [name for name in point if name.startswith("cluster")]
        here = point | {name: label[known < 0] for name in names}
        there = {v.name: here.get(v.name) for v in seen.value_vars} | {"cluster": label}
        found, expected = other(there), one(here)
        n_seen += np.isfinite(expected)
        # Weights of labels that are known are evidence, too.
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert n_seen


@pytest.mark.parametrize("write", SERVED)
@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_scores_and_running_state(write, declared_once):
    model = declared_once(write)
    testing.check_scores(model, n_points=3)
    testing.check_running_state(model, n_moves=200)


def test_law_of_a_regression_on_a_covariate():
    """Labels and slope together, against quadrature."""
    model = declared(logistic)
    data = pmm.sample(
        2000, tune=300, chains=2, random_seed=0, model=model, progressbar=False, quiet=True
    )
    worth = stats.poisson.pmf(COUNTS, 6.0), stats.poisson.pmf(COUNTS, 1.5)

    def given(slope):
        p = 1.0 / (1.0 + np.exp(-slope * COVARIATE))
        high, low = p * worth[0], (1.0 - p) * worth[1]
        return high / (high + low), stats.norm.pdf(slope) * np.prod(high + low)

    total = integrate.quad(lambda s: given(s)[1], -8, 8)[0]
    mean = integrate.quad(lambda s: s * given(s)[1], -8, 8)[0] / total
    expected = [
        integrate.quad(lambda s, n=n: given(s)[0][n] * given(s)[1], -8, 8)[0] / total
        for n in range(N)
    ]
    slope = data.posterior["slope"].to_numpy()
    assert abs(slope.mean() - mean) < 0.06
    np.testing.assert_allclose(
        data.posterior["cluster"].mean(("chain", "draw")), expected, atol=0.03
    )
    assert data.posterior["cluster"].dtype.kind == "i"


@pytest.mark.parametrize("init", ["search", "dispersed"])
def test_labels_without_probability_are_not_drawn(init):
    p = np.where(np.arange(T) == np.arange(N)[:, None] % T, 0.0, 0.5)
    model = declared(lambda: counts(pm.Categorical("cluster", p=p)))
    data = few_draws(model, draws=200, tune=0, chains=2, init=init)
    label = data.posterior["cluster"].to_numpy()
    assert (p[np.arange(N), label] > 0.0).all()
    assert len(np.unique(label.reshape(-1, N), axis=0)) > 4


@pytest.mark.parametrize("size", [40.0, 1000.0])
def test_weights_that_are_nearly_certain(size):
    """Where 1 - p is 0 in double precision, its logarithm is not."""
    values = np.array([-1.0, 0.0, 2.0])

    def write():
        label = pm.Bernoulli("cluster", logit_p=pm.Normal("s", size, 1.0), shape=3)
        pm.Normal("x", pt.constant([0.0, 1.0])[label], 0.2, observed=values)

    testing.check_scores(declared(write), n_points=1)
    state = testing.collapsed_of(declared(write))
    point = {"s": np.array(size), "cluster": np.zeros(3, int)}
    state.load(point, [point["cluster"]])
    logs = stats.norm.logpdf(values[:, None], [0.0, 1.0], 0.2) + np.array([-size, 0.0])
    for unit in range(3):
        found = state.scores(0, unit)[:-1]
        np.testing.assert_allclose(found[1] - found[0], logs[unit, 1] - logs[unit, 0], rtol=1e-10)


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_labels_of_any_whole_type(dtype):
    def one():
        counts(pm.Bernoulli("cluster", 0.4, shape=N, dtype=dtype))

    def other():
        counts(pm.Categorical("cluster", p=CONSTANT, dtype=dtype))

    for write in (one, other):
        testing.check_scores(declared(write), n_points=1)


def test_assignments_that_share_a_coefficient_have_clusters_of_their_own():
    def write():
        slope = pm.Normal("slope")
        for name, n_labels in (("a", 2), ("b", 3)):
            logit = slope * COVARIATE[:, None] * np.arange(n_labels)
            label = pm.Categorical(f"cluster_{name}", p=pm.math.softmax(logit, axis=1))
            rate = pm.Gamma(f"rate_{name}", 2.0, 1.0, shape=n_labels)
            pm.Poisson(f"x_{name}", rate[label], observed=COUNTS)

    model = declared(write)
    assert [len(own.assignments) for own in read(model).clusterings] == [1, 1]


@pytest.mark.parametrize("wanted", ["ab", "abcd"])
def test_assignments_over_the_same_clusters_with_weights_of_all_kinds(wanted):
    def write():
        p, q = (
            pm.math.softmax(COVARIATE[:, None] * pm.Normal(name, shape=T), axis=1)
            for name in ("slope", "other_slope")
        )
        rate = pm.Gamma("rate", 2.0, 1.0, shape=T)
        every = {"a": p, "b": np.array([0.2, 0.3, 0.5]), "c": CONSTANT, "d": q}
        for name in wanted:
            label = pm.Categorical(f"cluster_{name}", p=every[name], shape=N)
            pm.Poisson(f"x_{name}", rate[label], observed=COUNTS)

    model = declared(write)
    (clustering,) = read(model).clusterings
    assert len(clustering.assignments) == len(wanted)
    testing.check_scores(model, n_points=2)


def test_other_models_are_read_as_they_are():
    def plain():
        counts(pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=N))

    model = declared(plain)
    assert as_read(model) is model
    assert read(model).components[0].clusterings[0].weights == "weights"


def test_what_is_refused_besides_is_said():
    def summed():
        label = pm.Categorical("cluster", logit_p=pm.Normal("logit", shape=T), shape=N)
        pm.Normal("x", pt.constant(RATES)[label].sum(), 1.0, observed=20.0)

    with pytest.raises(UnservedModelError, match="'x' depends on the labels of more than one"):
        pmm.steps(declared(summed))


def selection():
    chosen = pm.Bernoulli("chosen", 0.5, shape=2)
    pm.Normal("y", RNG.normal(size=(N, 2)) @ chosen, 1.0, observed=RNG.normal(size=N))


def test_zeros_and_ones_that_are_no_labels():
    model = declared(selection)
    assert as_read(model) is model
    with pytest.raises(UnservedModelError, match=r"chosen: .*more than one object"):
        pmm.steps(model)

    def beside():
        selection()
        beta()

    with pytest.warns(UserWarning, match="left to PyMC's own steps: chosen"):
        data = pmm.sample(
            5,
            tune=5,
            chains=1,
            model=declared(beside),
            random_seed=0,
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert "n_occupied" in data.sample_stats


def one_by_one():
    for name in ("one", "two"):
        label = pm.Categorical(name, p=np.ones(T) / T)
        pm.Poisson(f"x_{name}", pt.constant(RATES)[label], observed=3)


def table():
    label = pm.Bernoulli("label", 0.4, shape=(2, 3))
    pm.Normal("x", label.sum(axis=1), 1.0, observed=[1.0, 2.0])


def one_in_a_row():
    label = pm.Multinomial("label", n=1, p=np.ones(T) / T, shape=(N, T))
    pm.Poisson("x", label @ RATES, observed=COUNTS)


def unseen():
    pm.Bernoulli("label", 0.4, shape=3)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (one_by_one, "model: one, two: expected a vector of labels, .*; found a single label"),
        (table, r"label: 'label' has shape \(2, 3\); .*: declare 6 .* use label.reshape\(\(2, 3\)"),
        (one_in_a_row, "label: it is a Multinomial; expected pm.Categorical or pm.Bernoulli"),
        (unseen, "label: expected labels that data depend on; found none"),
    ],
)
def test_what_is_no_vector_of_labels(write, message):
    with pytest.raises(UnservedModelError, match=message):
        pmm.steps(declared(write))


def test_of_many_refused_variables_a_few_are_named():
    def many():
        for number in range(9):
            pm.Poisson(f"x_{number}", 1.0 + pm.Categorical(f"z_{number}", [0.5, 0.5]), observed=1)

    with pytest.raises(UnservedModelError, match="model: z_0, z_1, z_2, z_3, z_4, z_5, 3 more: ex"):
        pmm.steps(declared(many))


def test_what_keeps_weights_from_being_integrated_out_is_said():
    assert "'slope'" in read(declared(regression)).notes["cluster"]
    assert "weights" not in read(declared(beta)).notes["cluster"]


def test_plain_sampling_leaves_zeros_and_ones_to_pymc():
    with declared(beta) as model:
        step = pm.sample(1, tune=1, chains=1, progressbar=False, compute_convergence_checks=False)
    assert "n_occupied" not in step.sample_stats
    assert any(isinstance(own, pmm.ClusterGibbs) for own in pmm.steps(model))


def test_plain_sampling_does_not_look_for_zeros_and_ones():
    """Nor does it depend on what was asked before."""

    def conjugate():
        label = pm.Bernoulli("cluster", 0.4, shape=N)
        pm.Poisson("x", pm.Gamma("rate", 2.0, 1.0, shape=2)[label], observed=COUNTS)

    model = declared(conjugate)
    for _ in range(2):
        assert not read(model, binary=False).recognised.components
        assert read(model).components


def test_new_objects_are_refused():
    model = declared(regression)
    data = few_draws(model)
    with pytest.raises(UnservedModelError, match="weights of 'cluster'"):
        pmm.assign(data, model, {"cluster": np.array([3])})


def test_missing_cells_of_known_objects_are_imputed():
    """Labels that are drawn are all that it takes."""
    holes = np.ma.masked_array(np.stack([COUNTS, COUNTS + 1], axis=1), False)
    holes[2, 1] = np.ma.masked

    def write():
        label = pm.Categorical("cluster", p=CONSTANT)
        pm.Poisson("x", pm.Gamma("rate", 2.0, 0.5, shape=(T, 2))[label], observed=holes)

    model = declared(write)
    data = few_draws(model)
    found = pmm.impute(data, model, progressbar=False)
    assert (found["x"].to_numpy()[~holes.mask] == holes.data[~holes.mask]).all()
    assert found["x_lower"].to_numpy()[2, 1] < found["x_upper"].to_numpy()[2, 1]


def test_predictives_of_known_objects_have_their_own_weights():
    model = declared(constant)
    data = few_draws(model)
    found = pmm.log_predictive(data, model, progressbar=False).log_likelihood["objects"]
    expected = np.log((CONSTANT * stats.poisson.pmf(COUNTS[:, None], RATES)).sum(axis=1))
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-10)


def sticks(n):
    """Return the weights that so many sticks break: none of them takes what is left."""
    stick = pm.Beta("stick", 1.0, 1.0, shape=n)
    return stick * pt.concatenate([[1.0], pt.cumprod(1.0 - stick)[:-1]])


def counts_over(p, **options):
    label = pm.Categorical("cluster", p=p, **options)
    pm.Poisson("x", pt.arange(1.0, 41.0)[label], observed=COUNTS)


def short_vector(n=5):
    counts_over(pm.Deterministic("weights", sticks(n)), shape=N)


def short_row():
    whole = pm.math.softmax(pm.Normal("logit", shape=5))
    counts_over(pt.stack([*[whole] * (N - 1), sticks(5)]))


def short_constants():
    counts_over(pm.Data("known", CONSTANT - [0.0, 0.0, 0.01]))


def short_and_known():
    label = np.ma.masked_equal([0, -1, 2, -1, -1, -1], -1)
    counts_over(sticks(5), observed=label)


def short_together():
    one = pm.Categorical("cluster", p=sticks(4), shape=N)
    other = pm.Categorical("other", p=np.ones(2) / 2, shape=N)
    rates = pt.constant(np.arange(1.0, 9.0).reshape(4, 2))
    pm.Poisson("x", rates[one, other], observed=COUNTS)


def short_beside():
    beta_of_others = pm.Beta("p", 1.0, 2.0)
    pm.Poisson("y", 1.0 + pm.Bernoulli("other", beta_of_others, shape=N), observed=COUNTS)
    counts_over(sticks(5), shape=N)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (short_vector, "cluster: .* 'weights', .* sum to 1; found a sum of 0.96875"),
        (short_row, r"cluster: .* of 'logit', 'stick', .* a sum of 0.96875 in row 5"),
        (short_constants, "cluster: .* 'known', .* a sum of 0.99 where"),
        (short_and_known, "cluster_unobserved, cluster_observed: .* 'stick', .* a sum of 0.96875"),
        (short_together, "model: cluster: .* 'stick', .* a sum of 0.9375"),
        (short_beside, "model: cluster: .* 'stick', .* a sum of 0.96875"),
    ],
)
@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_weights_that_do_not_sum_to_one_are_refused(write, message):
    model = declared(write)
    assert model.compile_logp()(model.initial_point()) == -np.inf
    with pytest.raises(UnservedModelError, match=message) as raised:
        pmm.sample(5, tune=5, chains=1, model=model, progressbar=False)
    assert "pm.StickBreakingWeights" in str(raised.value)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_weights_that_sum_to_one_as_far_as_pymc_can_tell_are_served(dtype):
    """So many sticks leave next to nothing where a chain starts; the density is PyMC's."""
    model = declared(lambda: short_vector(30))
    assert np.isfinite(model.compile_logp()(model.initial_point()))
    assert not read(model).refusals

    def rounded():
        p = pm.math.softmax(pm.Normal("logit", 0.0, 3.0, shape=(N, 40)), axis=1)
        counts_over(p.astype(dtype) * (1.0 + 5e-6))

    assert not read(declared(rounded)).refusals


def test_weights_that_sum_to_one_at_some_starts_only_are_served():
    """PyMC tries others if a density is not defined at the first."""

    def rounded():
        logit = pm.Normal("logit", shape=T)
        counts_over(pm.math.softmax(logit) + 1e-4 * pt.eq(logit[0], 0.0), shape=N)

    model = declared(rounded)
    assert model.compile_logp()(model.initial_point()) == -np.inf
    assert not read(model).refusals


def test_chains_start_where_weights_sum_to_one():
    """Of so many sticks, the jitter of a start often leaves more than PyMC lets be left."""
    model = declared(lambda: short_vector(17))
    density = model.compile_logp()
    for values in pmm.initial_points(model, 6, random_seed=1, init="dispersed"):
        assert np.isfinite(density(with_values(model, initial_point(model), values)))


@pytest.mark.parametrize("options", [{"shape": T}, {"dims": "k"}], ids=["shape", "dims"])
def test_convergence_is_not_judged_by_logits_that_go_with_labels(options):
    def logits_of_rows():
        logit = pm.ZeroSumNormal("logit", 1.0, **options)
        label = pm.Categorical("cluster", logit_p=logit, shape=N)
        mean, spread = pm.Normal("mean", 0.0, 3.0, **options), pm.HalfNormal("spread", 2.0)
        pm.StudentT("y", nu=4.0, mu=mean[label], sigma=spread, observed=COVARIATE)

    model = declared(logits_of_rows, coords={"k": range(T)})
    assert {*pmm.invariants(few_draws(model), model)} == {"log_joint", "n_occupied", "spread"}


def test_fair_coins_leave_what_is_conjugate_so():
    def write():
        label = pm.Bernoulli("cluster", 0.5, shape=N)
        pm.Poisson("x", pm.Gamma("rate", 2.0, 1.0, shape=2)[label], observed=COUNTS)

    found = read(declared(write))
    assert not found.refusals
    assert [type(own).__name__ for own in found.evidence] == ["Columns"]
