"""Network models through `pm_match.sample`: what is served, refused, and sound at the edges."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse as sp

import pm_match as pmm
from pm_match.networks import read_block_network
from pm_match.networks import recognise as relations
from pm_match.reading import read
from pm_match.reading.ancestry import Refusal
from pm_match.reading.context import Context
from pm_match.reading.priors import log_density_function
from pm_match.reading.probe import PLAIN
from tests.declared.networks import cluster_step, network_data, network_model, relation_evidence
from tests.exactness.network_conditional import log_conditional

pytestmark = pytest.mark.usefixtures("only_collapsed")


def declare(
    data=None,
    weights=lambda t: pm.StickBreakingWeights(f"weights_{t}", 1.0, 3),
    share=lambda t: pm.Beta(f"share_{t}", 2.0, 1.0),
    flag=lambda name, p, n: pm.Bernoulli(name, p, shape=n),
    density=lambda: pm.Beta("density", 1.0, 1.0, shape=(4, 4)),
    noise=lambda: pm.Beta("noise", 1.0, 1.0),
    network=lambda name, z, theta, phi, r, x: pmm.BlockNetwork(
        name, axes=z, density=theta, noise=phi, relevance=r, observed=x
    ),
    extra=lambda model: None,
):
    data = network_data() if data is None else data
    with pm.Model() as model:
        w = [weights(t) for t in range(2)]
        p = [share(t) for t in range(2)]
        theta, phi = density(), noise()
        for name, x in data.items():
            z = [pm.Categorical(f"z_{name}_{t}", w[t], shape=x.shape[t]) for t in range(2)]
            r = [flag(f"r_{name}_{t}", p[t], x.shape[t]) for t in range(2)]
            network(name, z, theta, phi, r, x)
        extra(model)
    return model


def draw(model, **kwargs):
    arguments = {"draws": 20, "tune": 10, "chains": 2, "random_seed": 3, "progressbar": False}
    arguments["init"] = "dispersed"
    quiet = {"compute_convergence_checks": False, "quiet": True}
    return pmm.sample(model=model, **arguments | quiet | kwargs)


def test_convergence_is_judged_whatever_assignments_and_flags_are_called(caplog):
    model = declare()
    with caplog.at_level("INFO", logger="pymc"):
        idata = draw(model, compute_convergence_checks=True, quiet=False)
    assert "too small to check convergence" in caplog.text
    found = pmm.diagnose(idata).table
    # The step counts the clusters that hold something relevant; so must the diagnosis.
    occupied = sum(found.loc[f"occupied clusters (weights_{t})", "mean"] for t in range(2))
    assert occupied == pytest.approx(float(idata["sample_stats"]["n_occupied"].mean()))


def test_one_component_holds_both_types_and_all_is_served():
    model = network_model(hyperpriors=True)
    (component,) = read(model).components
    assert len(component.clusterings) == 2
    served = {*component.collapsed, *component.hyperparameters}
    assert served == {rv.name for rv in model.free_RVs}
    kinds = [type(step) for step in pmm.steps(model)]
    assert kinds == [pmm.HyperparameterGibbs, pmm.ClusterGibbs]
    copy = pm.model.fgraph.clone_model(model)
    assert set(read(copy).components[0].collapsed) == set(component.collapsed)


def test_separate_relations_are_separate_components():
    with pm.Model() as model:
        for name, x in network_data().items():
            w = [pm.StickBreakingWeights(f"w_{name}_{t}", 1.0, 2) for t in range(2)]
            z = [pm.Categorical(f"z_{name}_{t}", w[t], shape=x.shape[t]) for t in range(2)]
            theta = pm.Beta(f"density_{name}", 1.0, 1.0, shape=(3, 3))
            pmm.BlockNetwork(name, axes=z, density=theta, observed=x)
    assert len(read(model).components) == 2
    idata = draw(model, cores=1)
    assert idata["posterior"]["z_a_0"].attrs["clusters"] == "w_a_0"


def test_what_draws_are_is_recorded():
    cells = np.triu(np.random.default_rng(0).integers(0, 2, (8, 8)), 1)
    model = pmm.models.relational_clusters(
        {"a": cells + cells.T}, one_mode=True, symmetric=True, n_clusters=3
    )
    posterior = draw(model, cores=1)["posterior"]
    assert posterior["cluster_a_object"].attrs["clusters"] == "weights_object"
    assert posterior["density"].attrs["symmetric"] == 1
    assert "symmetric" not in posterior["weights_object"].attrs
    assert posterior["cluster_a_object"].dtype == np.int16
    assert posterior["relevance_a_object"].dtype == np.int8
    labels = pmm.partition_estimate(posterior.to_dataset(), max_clusters=3)
    aligned = pmm.relabel(posterior.to_dataset(), labels)["density"].to_numpy()
    # Permuted as a whole: what lay below the diagonal means nothing.
    assert (aligned == np.swapaxes(aligned, -1, -2)).all()


def own_noise(name, z, theta, phi, r, x):
    noise = pm.Beta(f"noise_{name}", 1.0, 1.0)
    pmm.BlockNetwork(name, axes=z, density=theta, noise=noise, relevance=r, observed=x)


def two_flags(model):
    with model:
        z = [model["z_a_0"], model["z_a_1"]]
        r = [pm.Bernoulli("other", model["share_0"], shape=3), model["r_a_1"]]
        theta = pm.Beta("density_2", 1.0, 1.0, shape=(4, 4))
        phi = pm.Beta("noise_2", 1.0, 1.0)
        x = network_data()["a"]
        pmm.BlockNetwork("more", axes=z, density=theta, noise=phi, relevance=r, observed=x)


def flipped(name, z, theta, phi, r, x):
    if name == "b":
        z, r, x = z[::-1], r[::-1], x.T
    pmm.BlockNetwork(name, axes=z, density=theta, noise=phi, relevance=r, observed=x)


def turned(name, z, theta, phi, r, x):
    z = [(z[0] + 1) % 4, z[1]]
    pmm.BlockNetwork(name, axes=z, density=theta, noise=phi, relevance=r, observed=x)


REFUSED = {
    "an axis that is no assignment": (
        {"network": turned},
        r"'a' has an expression of 'z_a_0' on an axis; expected free pm.Categorical assignments",
    ),
    "density of another family": (
        {"density": lambda: pm.Uniform("density", 0.0, 0.5, shape=(4, 4))},
        r"'density', a parameter of 'a', 'b', is a Uniform; expected a Beta",
    ),
    "density not random": (
        {"density": lambda: np.full((4, 4), 0.3)},
        r"a parameter of 'a'.* is a constant; expected a Beta",
    ),
    "density of an expression": (
        {"density": lambda: 0.5 * pm.Beta("density", 1.0, 1.0, shape=(4, 4))},
        r"a parameter of 'a', 'b', is an expression of 'density'; expected a Beta",
    ),
    "densities unlike each other": (
        {"density": lambda: pm.Beta("density", np.eye(4) + 1.0, 1.0, shape=(4, 4))},
        r"the prior of 'density' differs between clusters",
    ),
    "densities unlike each other at the scale of their parameters": (
        {
            "density": lambda: pm.Beta(
                "density",
                7.0 - 6.0 * pt.exp(-pm.HalfNormal("rate", 5e-7) * 2e6 * (np.eye(4) + 1.0)),
                1.0,
                shape=(4, 4),
            )
        },
        r"the prior of 'density' differs between clusters",
    ),
    "density used twice": (
        {"extra": lambda m: pm.Potential("high", m["density"].sum())},
        r"'high' depends on 'density' too",
    ),
    "noise not shared": ({"network": own_noise}, r"'a', 'b' share their density and not their no"),
    "axes the other way round": (
        {"network": flipped},
        r"'b': its axes are 'z_b_0', 'z_b_1', whose clusters are not those of",
    ),
    "relevance differs": ({"extra": two_flags}, r"relevance of 'z_a_0' is not the same in all"),
    "share of another family": (
        {"share": lambda t: pm.Uniform(f"share_{t}", 0.0, 0.5)},
        r"the probability 'share_0' of 'r_a_0', 'r_b_0' is a Uniform; expected a Beta",
    ),
    "share not the probability": (
        {"flag": lambda name, p, n: pm.Bernoulli(name, p**2, shape=n)},
        r"'r_a_0': its declared probability is not 'share_0'",
    ),
    "flag used twice": (
        {"extra": lambda m: pm.Potential("few", -m["r_a_0"].sum().astype(float))},
        r"'few' depends on 'r_a_0' too",
    ),
    "weights of another family": (
        {"weights": lambda t: pm.math.softmax(pm.Normal(f"logits_{t}", shape=4))},
        r"'logits_0' is a Normal; expected StickBreakingWeights",
    ),
    "linked and maybe irrelevant": (
        {"extra": lambda m: pmm.must_link("links", {"z_a_0": [0], "z_b_0": [1]})},
        r"'links' is about objects of which .* may be irrelevant",
    ),
    "features of objects that may be irrelevant": (
        {
            "extra": lambda m: pm.Normal(
                "y",
                pm.Normal("latent", 0.0, tau=pm.Gamma("tau", 1.0, 1.0), shape=(4, 2))[m["z_a_0"]]
                @ pm.Normal("w", shape=(2, 2)),
                tau=m["tau"],
                observed=np.zeros((3, 2)),
            )
        },
        r"'z_a_0' has features \('y'\), which its relevance 'r_a_0' does not enter",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case):
    arguments, message = REFUSED[case]
    model = declare(**arguments)
    with pytest.raises(pmm.UnservedModelError, match=message):
        pmm.ClusterGibbs([model["z_a_0"]], model=model)


def offices(same_axis, flags="own"):
    """Networks between three groups of people who share clusters."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", 1.0, 2)
        share = pm.Beta("share", 2.0, 1.0)
        theta, phi = pm.Beta("density", 1.0, 1.0, shape=(3, 3)), pm.Beta("noise", 1.0, 1.0)
        z = [pm.Categorical(f"z_{i}", w, shape=3) for i in range(3)]
        r = [pm.Bernoulli(f"r_{i}", share, shape=3) for i in range(3)]
        if flags == "shared":
            r[1] = r[0]
        for name, (row, column) in {"a": (0, 1), "b": (0, 2) if same_axis else (2, 0)}.items():
            pmm.BlockNetwork(
                name,
                axes=[z[row], z[column]],
                density=theta,
                noise=phi,
                relevance=[r[row], r[column]],
                observed=(rng.random((3, 3)) < 0.5).astype(float),
            )
    return model


def test_an_assignment_is_on_one_axis_of_a_relation():
    """On two, cells of both would lie in one block, and their gains would not add up."""
    with pytest.raises(pmm.UnservedModelError, match="'z_0' is on different axes of 'a', 'b'"):
        pmm.steps(offices(same_axis=False))
    model = offices(same_axis=True)
    step = pmm.ClusterGibbs([model["z_0"]], model=model, n_split_merge=0, n_exchanges=0)
    point = model.initial_point(0)
    log_density = model.compile_fn(
        model.logp(jacobian=False), mode="FAST_COMPILE", on_unused_input="ignore"
    )
    for _ in range(5):
        point, (stats,) = step.step(point)
        labels = step._collapsed.labels(point)
        found = stats["log_joint"] + log_conditional(step, point, labels)
        assert found == pytest.approx(float(log_density(point)), rel=1e-9)


def test_every_assignment_has_flags_of_its_own():
    with pytest.raises(
        pmm.UnservedModelError, match="'r_0' is the relevance of 'z_0' and of 'z_1'"
    ):
        pmm.steps(offices(same_axis=True, flags="shared"))


def test_constant_relevance_is_refused():
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", 1.0, 2)
        z = [pm.Categorical(f"z_{i}", w, shape=3) for i in range(2)]
        theta, phi = pm.Beta("density", 1.0, 1.0, shape=(3, 3)), pm.Beta("noise", 1.0, 1.0)
        known = [np.array([1, 0, 1]), None]
        pmm.BlockNetwork(
            "net", axes=z, density=theta, noise=phi, relevance=known, observed=np.eye(3)
        )
    with pytest.raises(
        pmm.UnservedModelError, match=r"relevance of 'z_0' is .* expected a free Be"
    ):
        pmm.steps(model)


def test_labels_of_single_objects_that_are_swapped_are_seen():
    """Probabilities that differ from the weights at one object, in two of many clusters."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", 1.0, 24)
        swapped = np.arange(25)
        swapped[[3, 4]] = [4, 3]
        z = pm.Categorical("z_0", pm.math.stack([w, w[swapped], w]), shape=3)
        other = pm.Categorical("z_1", pm.Dirichlet("flat", np.ones(2)), shape=3)
        theta = pm.Beta("density", 1.0, 1.0, shape=(25, 2))
        pmm.BlockNetwork("net", axes=[z, other], density=theta, observed=np.eye(3))
    with pytest.raises(pmm.UnservedModelError, match="'z_0': its declared probabilities are not"):
        pmm.steps(model)


def test_one_probability_for_two_types_is_refused_in_words():
    with pm.Model() as model:
        share = pm.Beta("share", 2.0, 1.0)
        theta, phi = pm.Beta("density", 1.0, 1.0, shape=(3, 3)), pm.Beta("noise", 1.0, 1.0)
        z, r = [], []
        for i in range(2):
            w = pm.StickBreakingWeights(f"weights_{i}", 1.0, 2)
            z.append(pm.Categorical(f"z_{i}", w, shape=3))
            r.append(pm.Bernoulli(f"r_{i}", share, shape=3))
        pmm.BlockNetwork("net", axes=z, density=theta, noise=phi, relevance=r, observed=np.eye(3))
    with pytest.raises(pmm.UnservedModelError, match="expected one for the relevance of each set"):
        pmm.steps(model)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0, 0, 2.0]], "2"),
        ([[0, 5, 1.0]], "5"),
        ([[0, 0, 1.0], [0, 0, 1.0]], "twice|duplicate|more than once"),
    ],
)
def test_tables_that_are_observed_later_are_checked(table, message):
    with pm.Model() as model:
        w = [pm.StickBreakingWeights(f"weights_{i}", 1.0, 2) for i in range(2)]
        z = [pm.Categorical(f"z_{i}", w[i], shape=3) for i in range(2)]
        theta = pm.Beta("density", 1.0, 1.0, shape=(3, 3))
        pmm.BlockNetwork("net", axes=z, density=theta)
    observed = pm.observe(model, {"net": np.array(table)})
    with pytest.raises(pmm.UnservedModelError, match=message):
        pmm.steps(observed)
    padded = np.array([[1, 2, 1.0], [-1, -1, 0.0]])
    steps = pmm.steps(pm.observe(model, {"net": padded}))
    (evidence,) = relation_evidence(steps[0])
    assert evidence.networks[0].index.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("options", "first", "message"),
    [
        (
            {},
            np.array([[np.nan, 1.0], [0.0, 1.0]]),
            r"'net' lists cell \(0, 0\), which is declared",
        ),
        (
            {"family": "poisson", "exposure": (np.array([0.0, 1.0]), None)},
            np.array([[0.0, 0.0], [0.0, 1.0]]),
            r"'net' lists cell \(0, 0\), which has an exposure of zero",
        ),
        (
            {"family": "negative-binomial", "exposure": (np.array([0.0, 1.0]), None)},
            np.array([[0.0, 0.0], [0.0, 1.0]]),
            r"'net' lists cell \(0, 0\), which has an exposure of zero",
        ),
    ],
)
def test_cells_that_cannot_be_listed_later(options, first, message):
    with pm.Model() as model:
        w = [pm.StickBreakingWeights(f"weights_{i}", 1.0, 2) for i in range(2)]
        z = [pm.Categorical(f"z_{i}", w[i], shape=2) for i in range(2)]
        prior = pm.Gamma if options.get("family") == "poisson" else pm.Beta
        theta = prior("density", 1.0, 1.0, shape=(3, 3))
        net = pmm.BlockNetwork("net", axes=z, density=theta, observed=first, **options)
    pmm.steps(model)
    with pytest.raises(Refusal, match=message):
        _cells_of(model, net, np.array([[0, 0, 1.0]]))


def _cells_of(model, net, table):
    """Read a network whose table has come another way than through its declaration."""
    context, parts = Context.of(model), read_block_network(net)
    model.rvs_to_values[net] = pytensor.tensor.constant(table)
    return relations._cells(context, net, parts, dict.fromkeys(parts.axes, 0))


def test_what_the_steps_keep_goes_with_the_model():
    model = network_model()
    kept = weakref.ref(pmm.steps(model)[0]._collapsed)
    before = kept() is not None
    del model
    # The weak dictionary of readings lets go in the first round, what they hold in the second.
    gc.collect()
    gc.collect()
    after = kept() is not None
    assert (before, after) == (True, False)


def test_certain_densities_have_a_finite_log_density():
    with pm.Model() as model:
        w = [pm.StickBreakingWeights(f"weights_{i}", 1.0, 2) for i in range(2)]
        z = [pm.Categorical(f"z_{i}", w[i], shape=8) for i in range(2)]
        theta = pm.Beta("density", 0.8, 0.02, shape=(3, 3))
        pmm.BlockNetwork("net", axes=z, density=theta, observed=np.ones((8, 8)))
    (step,) = pmm.steps(model)
    point, _ = step.step(model.initial_point(0))
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))


def test_links_between_the_axes_of_a_network_are_refused():
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", 1.0, 2)
        z = [pm.Categorical(f"z_{t}", w, shape=3) for t in range(2)]
        theta = pm.Beta("density", 1.0, 1.0, shape=(3, 3))
        pmm.BlockNetwork("net", axes=z, density=theta, observed=np.eye(3))
        pmm.must_link("links", {"z_0": [0], "z_1": [0]})
    with pytest.raises(pmm.UnservedModelError, match="'links' links objects of clusters that are"):
        pmm.steps(model)


def test_what_a_hyperparameter_step_serves():
    model = network_model(hyperpriors=True)
    with pytest.raises(pmm.UnservedModelError, match=r"'noise': it is not a free number that only"):
        pmm.HyperparameterGibbs([model["noise"]], model=model)
    one = pmm.HyperparameterGibbs([model["density_prior"]], model=model)
    assert [v.name for v in one.vars] == ["density_prior_log__"]
    # The others are still ours to serve.
    left = pmm.steps(model, given=[one])
    assert [type(step) for step in left] == [pmm.HyperparameterGibbs, pmm.ClusterGibbs]
    assert len(left[0].vars) == 2


@pytest.mark.parametrize("parameters", [(5.0, 5.0), (0.7, 2.0)])
def test_priors_of_hyperparameters_are_the_declared_ones(parameters):
    shape, rate = map(np.float64, parameters)
    with pm.Model() as model:
        mean = pm.Exponential("mean", 1.0)
        pm.Gamma("known", shape, rate)
        pm.Gamma("dependent", shape, rate / mean)
        pm.HalfNormal("half", 2.0)
    point = model.initial_point(0) | {"mean_log__": np.array(0.4)}
    for name in ("known", "dependent", "half"):
        value = model.rvs_to_values[model[name]].name
        output = model.logp(vars=[model[name]])
        declared = pytensor.function(model.value_vars, output, mode=PLAIN, on_unused_input="ignore")
        log_density = log_density_function(model, name)
        for x in (-3.0, 0.2, 1.1):
            at = dict(point) | {value: np.array(x)}
            assert log_density(at) == pytest.approx(float(declared(*at.values())), rel=1e-12)


def test_same_seed_same_draws_whatever_cores_is():
    model = network_model(hyperpriors=True)
    one, two = draw(model, cores=1), draw(model, cores=2)
    for name in one["posterior"]:
        np.testing.assert_array_equal(one["posterior"][name], two["posterior"][name])
    other = draw(model, cores=1, random_seed=4)
    assert not np.array_equal(one["posterior"]["density"], other["posterior"]["density"])


@pytest.mark.compiled
def test_a_plain_pm_sample_finds_the_steps():
    with network_model(hyperpriors=True):
        idata = pm.sample(
            draws=5, tune=5, chains=1, cores=1, progressbar=False, compute_convergence_checks=False
        )
    assert "n_occupied" in idata["sample_stats"]
    assert "tree_depth" not in idata["sample_stats"]


def test_a_step_leaves_its_point_alone():
    model = network_model(hyperpriors=True)
    for step in pmm.steps(model):
        step.setup_chain(np.random.default_rng(0), 0, 0)
        point = model.initial_point(0)
        before = {name: np.copy(value) for name, value in point.items()}
        new, _ = step.step(point)
        assert list(new) == list(point)
        for name, value in before.items():
            np.testing.assert_array_equal(point[name], value)
            assert new[name].dtype == value.dtype
            assert np.shape(new[name]) == value.shape


EDGES = {
    "an empty network": np.zeros((3, 2)),
    "a full network": np.ones((3, 2)),
    "an isolated object": np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]),
    "one object": np.ones((1, 1)),
    "sparse": sp.csr_array(np.eye(3)),
}


@pytest.mark.parametrize("case", EDGES)
def test_networks_at_the_edge(case):
    model = declare({"a": EDGES[case]})
    idata = draw(model, cores=1)
    log_joint = idata["sample_stats"]["log_joint"]
    assert bool(np.isfinite(log_joint).all())
    density = idata["posterior"]["density"]
    assert bool(((density >= 0) & (density <= 1)).all())
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(model.initial_point(0)))


def test_all_objects_irrelevant():
    """A start with no cluster at all is sound, and objects find their way back."""
    model = declare()
    step = cluster_step_of(model)
    point = model.initial_point(0)
    for name in point:
        if name.startswith("r_"):
            point[name] = np.zeros_like(point[name])
    collapsed = step._collapsed
    collapsed.load(point, collapsed.labels(point))
    assert (collapsed.board.n_slots == 1).all()
    step.started = True
    relevant = 0
    for _ in range(50):
        point, (stats,) = step.step(point)
        assert np.isfinite(stats["log_joint"])
        relevant += sum(int(point[name].sum()) for name in point if name.startswith("r_"))
    assert relevant > 50


def cluster_step_of(model):
    step = pmm.ClusterGibbs([model["z_a_0"]], model=model)
    step.setup_chain(np.random.default_rng(0), 0, 0)
    return step


def test_labels_out_of_range_are_refused():
    model = network_model()
    step = cluster_step(model)
    point = model.initial_point(0)
    point["cluster_a_0"] = np.array([0, 1, 7])
    with pytest.raises(
        ValueError, match=r"'cluster_a_0': expected labels in 0 \.\.\. 1; found 0 to 7"
    ):
        step.step(point)


def test_a_full_truncation_is_told():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 8)
    density = rng.random((5, 5))
    x = (rng.random((40, 40)) < density[labels][:, labels]).astype(float)
    model = network_model(relevance=False, data={"a": x})
    with pytest.warns(UserWarning, match="the draws fill the truncation"):
        draw(model, cores=1, quiet=False)


def test_densities_are_summarised_where_labels_do_not_matter():
    model = network_model(hyperpriors=True)
    idata = draw(model, cores=1)
    found = pmm.invariants(idata, model)
    assert {"noise", "share_0", "density_prior", "concentration_0", "log_joint"} <= set(found)
    assert not {"density", "weights_0", "cluster_a_0", "relevance_a_0"} & set(found)
