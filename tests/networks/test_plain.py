"""Networks declared in plain PyMC, by indexing: read as `BlockNetwork` is, or not at all."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.networks.plain import read_network
from pm_match.reading import read
from pm_match.reading.context import Context
from pm_match.reading.probe import PLAIN
from tests.declared.few_draws import few_draws

RNG = np.random.default_rng(0)
K, L = 3, 2
N, M = 4, 3
UPPER = np.triu_indices(N, 1)
PAIRS = np.argwhere(~np.eye(N, dtype=bool)).T
KNOWN = np.array([[0, 0], [2, 1], [1, 2], [3, 2], [0, 1]]).T
EDGES = RNG.integers(2, size=(N, M)).astype(float)
COUNTS = RNG.poisson(1.5, (N, M)).astype(float)
LOOPED = RNG.integers(2, size=(N, N)).astype(float)
PAIRED = RNG.poisson(1.5, (N, N)).astype(float)
UNEVEN = RNG.uniform(0.5, 2.0, (N, M))
SIZES, OTHERS = np.array([1.0, 0.5, 2.0, 1.5]), np.array([0.25, 1.0, 3.0])


def weights(name, n):
    return pm.StickBreakingWeights(name, 1.0, n - 1)


def two(density, observe):
    """Rows and columns in clusters of their own."""
    with pm.Model() as model:
        row = pm.Categorical("row", weights("row_weights", K), shape=N)
        column = pm.Categorical("column", weights("column_weights", L), shape=M)
        observe(density((K, L)), row, column)
    return model


def one(density, observe):
    """The same objects at both ends."""
    with pm.Model() as model:
        z = pm.Categorical("z", weights("weights", K), shape=N)
        observe(density((K, K)), z)
    return model


def probability(shape):
    return pm.Beta("density", 0.8, 1.2, shape=shape)


def rate(shape):
    return pm.Gamma("density", 0.8, 1.2, shape=shape)


def moments(shape):
    precision = pm.Gamma("precision", 2.0, 1.5, shape=shape)
    return pm.Normal("mean", 0.3, tau=0.7 * precision, shape=shape), precision


def block(*axes, density, observed, **options):
    return pmm.BlockNetwork("x", axes=axes, density=density, observed=observed, **options)


def listed(where, values):
    """Give the table that `BlockNetwork` takes."""
    return tuple(where), values


def undirected():
    return one(
        probability,
        lambda p, z: block(z, z, density=p, observed=np.triu(LOOPED, 1), symmetric=True),
    )


# In plain PyMC, and with `BlockNetwork`.
SAME = {
    "matrix": (
        lambda: two(
            probability,
            lambda p, r, c: pm.Bernoulli("x", p[r[:, None], c[None, :]], observed=EDGES),
        ),
        lambda: two(probability, lambda p, r, c: block(r, c, density=p, observed=EDGES)),
    ),
    "one axis after another": (
        lambda: two(probability, lambda p, r, c: pm.Bernoulli("x", p[r][:, c], observed=EDGES)),
        lambda: two(probability, lambda p, r, c: block(r, c, density=p, observed=EDGES)),
    ),
    "indicators": (
        lambda: two(
            probability,
            lambda p, r, c: pm.Bernoulli("x", pt.eye(K)[r] @ p @ pt.eye(L)[c].T, observed=EDGES),
        ),
        lambda: two(probability, lambda p, r, c: block(r, c, density=p, observed=EDGES)),
    ),
    "transposed": (
        lambda: two(
            probability, lambda p, r, c: pm.Bernoulli("x", p[r, c[:, None]], observed=EDGES.T)
        ),
        lambda: two(probability, lambda p, r, c: block(r, c, density=p, observed=EDGES)),
    ),
    "list of cells": (
        lambda: two(
            probability,
            lambda p, r, c: pm.Bernoulli(
                "x", p[r[KNOWN[0]], c[KNOWN[1]]], observed=EDGES[tuple(KNOWN)]
            ),
        ),
        lambda: two(
            probability,
            lambda p, r, c: block(
                r,
                c,
                density=p,
                observed=listed(KNOWN, EDGES[tuple(KNOWN)]),
                absent="unknown",
            ),
        ),
    ),
    "counts": (
        lambda: two(rate, lambda p, r, c: pm.Poisson("x", p[r[:, None], c], observed=COUNTS)),
        lambda: two(
            rate, lambda p, r, c: block(r, c, density=p, observed=COUNTS, family="poisson")
        ),
    ),
    "exposures": (
        lambda: two(
            rate,
            lambda p, r, c: pm.Poisson(
                "x", SIZES[:, None] * OTHERS * p[r[:, None], c], observed=COUNTS
            ),
        ),
        lambda: two(
            rate,
            lambda p, r, c: block(
                r, c, density=p, observed=COUNTS, family="poisson", exposure=[SIZES, OTHERS]
            ),
        ),
    ),
    "exposures of an undirected network": (
        lambda: one(
            rate,
            lambda p, z: pm.Poisson(
                "x",
                (SIZES[:, None] * SIZES)[UPPER]
                * (pt.triu(p) + pt.triu(p, 1).T)[z[UPPER[0]], z[UPPER[1]]],
                observed=PAIRED[UPPER],
            ),
        ),
        lambda: one(
            rate,
            lambda p, z: block(
                z,
                z,
                density=p,
                observed=np.triu(PAIRED, 1),
                family="poisson",
                symmetric=True,
                exposure=[SIZES],
            ),
        ),
    ),
    "overdispersed counts": (
        lambda: two(
            probability,
            lambda p, r, c: pm.NegativeBinomial(
                "x", n=SIZES[:, None] * OTHERS, p=p[r[:, None], c], observed=COUNTS
            ),
        ),
        lambda: two(
            probability,
            lambda p, r, c: block(
                r,
                c,
                density=p,
                observed=COUNTS,
                family="negative-binomial",
                exposure=[SIZES, OTHERS],
            ),
        ),
    ),
    "numbers": (
        lambda: two(
            moments,
            lambda p, r, c: pm.Normal(
                "x", p[0][r[:, None], c], tau=p[1][r[:, None], c], observed=COUNTS
            ),
        ),
        lambda: two(
            moments, lambda p, r, c: block(r, c, density=p, observed=COUNTS, family="normal")
        ),
    ),
    "directed": (
        lambda: one(
            probability,
            lambda p, z: pm.Bernoulli("x", p[z[PAIRS[0]], z[PAIRS[1]]], observed=LOOPED[*PAIRS]),
        ),
        lambda: one(
            probability,
            lambda p, z: block(z, z, density=p, observed=LOOPED * (1.0 - np.eye(N))),
        ),
    ),
    "loops": (
        lambda: one(probability, lambda p, z: pm.Bernoulli("x", p[z[:, None], z], observed=LOOPED)),
        lambda: one(
            probability, lambda p, z: block(z, z, density=p, observed=LOOPED, self_loops=True)
        ),
    ),
    "undirected": (
        lambda: one(
            probability,
            lambda p, z: pm.Bernoulli(
                "x",
                (pt.triu(p) + pt.triu(p, 1).T)[z[UPPER[0]], z[UPPER[1]]],
                observed=LOOPED[UPPER],
            ),
        ),
        undirected,
    ),
    "sorted labels": (
        lambda: one(
            probability,
            lambda p, z: pm.Bernoulli(
                "x",
                p[
                    pt.minimum(z[UPPER[0]], z[UPPER[1]]),
                    pt.maximum(z[UPPER[0]], z[UPPER[1]]),
                ],
                observed=LOOPED[UPPER],
            ),
        ),
        undirected,
    ),
    "one triangle": (
        lambda: one(
            probability,
            lambda p, z: pm.Bernoulli("x", p[z[UPPER[0]], z[UPPER[1]]], observed=LOOPED[UPPER]),
        ),
        lambda: one(
            probability,
            lambda p, z: block(
                z, z, density=p, observed=listed(UPPER, LOOPED[UPPER]), absent="unknown"
            ),
        ),
    ),
}


def evidence_of(model):
    (component,) = read(model).components
    (found,) = component.evidence
    return found


@pytest.mark.parametrize("case", SAME)
def test_what_is_read_is_what_a_block_network_says(case):
    plain, blocks = (evidence_of(declare()) for declare in SAME[case])
    for name in ("family", "density", "noise", "axes", "one_mode", "symmetric", "self_loops"):
        assert getattr(plain, name) == getattr(blocks, name), name
    (own,), (other,) = plain.networks.values(), blocks.networks.values()
    assert (own.shape, own.full, own.first) == (other.shape, other.full, other.first)
    for name in ("index", "values", "unknown"):
        np.testing.assert_array_equal(getattr(own, name), getattr(other, name), name)
    every = np.argwhere(np.ones(own.shape))
    np.testing.assert_allclose(own.cell_exposures(every), other.cell_exposures(every), 1e-9)


@pytest.mark.parametrize("case", SAME)
def test_the_declared_densities_are_the_same(case):
    plain, blocks = (declare() for declare in SAME[case])
    densities = [model.compile_logp(mode=PLAIN) for model in (plain, blocks)]
    rng = np.random.default_rng(1)
    for _ in range(3):
        point = {
            name: rng.integers(2, size=x.shape) if x.dtype.kind == "i" else rng.normal(size=x.shape)
            for name, x in plain.initial_point().items()
        }
        np.testing.assert_allclose(*(density(point) for density in densities), rtol=1e-9)


@pytest.mark.parametrize("case", ["matrix", "list of cells"])
def test_scores_and_draws(case):
    model = SAME[case][0]()
    testing.check_scores(model, n_points=3)
    testing.check_draws(model, n_draws=1000)


@pytest.mark.parametrize("case", ["exposures", "undirected"])
def test_chains_have_the_law_of_an_enumeration(case):
    testing.check_law(SAME[case][0](), n_sweeps=30_000)


def test_draws_are_those_of_a_block_network():
    arguments = {"draws": 20, "tune": 10, "chains": 1, "random_seed": 1, "progressbar": False}
    arguments |= {"quiet": True, "compute_convergence_checks": False}
    plain, blocks = (
        pmm.sample(model=declare(), **arguments)["posterior"] for declare in SAME["undirected"]
    )
    for name in ("weights", "z", "density"):
        np.testing.assert_array_equal(plain[name], blocks[name])


@pytest.mark.parametrize("case", ["matrix", "transposed", "numbers", "undirected", "sorted labels"])
def test_densities_go_with_clusters_that_get_other_names(case):
    """Dims that have no names are known to be of clusters."""
    model = SAME[case][0]()
    data = few_draws(model, draws=20, tune=10)
    estimate = pmm.partition_estimate(data)
    labels = {name: int(own.max()) - own for name, own in estimate.data_vars.items()}
    moved = pmm.relabel(data, labels)
    one, other = (
        pm.compute_log_likelihood(own, model=model, extend_inferencedata=False, progressbar=False)
        for own in (data, moved)
    )
    assert any((data.posterior[name] != moved.posterior[name]).any() for name in labels)
    told = [own["x"].sum([d for d in own["x"].dims if d != "draw"]) for own in (one, other)]
    np.testing.assert_allclose(*told, rtol=1e-10)


def test_networks_that_share_their_densities_share_their_clusters():
    with pm.Model() as model:
        w = weights("weights", K)
        other = weights("other_weights", L)
        density = probability((K, L))
        for name, x in {"a": EDGES, "b": EDGES[:2]}.items():
            row = pm.Categorical(f"row_{name}", w, shape=len(x))
            column = pm.Categorical(f"column_{name}", other, shape=M)
            pm.Bernoulli(name, density[row[:, None], column], observed=x)
    (component,) = read(model).components
    assert list(component.evidence[0].networks) == ["a", "b"]


def test_three_axes():
    x = RNG.integers(2, size=(N, M, 2)).astype(float)
    with pm.Model() as model:
        axes = [
            pm.Categorical(f"z{a}", weights(f"w{a}", 2 + a % 2), shape=n)
            for a, n in enumerate(x.shape)
        ]
        density = probability((2, 3, 2))
        chosen = density[axes[0][:, None, None], axes[1][:, None], axes[2]]
        pm.Bernoulli("x", chosen, observed=x)
    testing.check_scores(model, n_points=3)
    np.testing.assert_array_equal(evidence_of(model).networks["x"].index, np.argwhere(x))


def test_data_that_are_set_later_are_read():
    with pm.Model() as model:
        where = [pm.Data(f"end_{axis}", ends) for axis, ends in enumerate(UPPER)]
        z = pm.Categorical("z", weights("weights", K), shape=N)
        density = probability((K, K))
        pm.Bernoulli("x", density[z[where[0]], z[where[1]]], observed=LOOPED[UPPER])
    np.testing.assert_array_equal(evidence_of(model).networks["x"].index, np.transpose(UPPER))


MASK = np.array([[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]], bool)


def hidden(x):
    return np.ma.masked_array(x, mask=MASK)


# Networks of which some cells are missing.
MISSING = {
    "bernoulli": lambda: two(
        probability, lambda p, r, c: pm.Bernoulli("x", p[r[:, None], c], observed=hidden(EDGES))
    ),
    "poisson": lambda: two(
        rate,
        lambda p, r, c: pm.Poisson(
            "x", SIZES[:, None] * OTHERS * p[r[:, None], c], observed=hidden(COUNTS)
        ),
    ),
    "negative-binomial": lambda: two(
        lambda shape: pm.Beta("density", np.float64(5.0), np.float64(3.0), shape=shape),
        lambda p, r, c: pm.NegativeBinomial(
            "x", n=SIZES[:, None] * OTHERS, p=p[r[:, None], c], observed=hidden(COUNTS)
        ),
    ),
    "normal": lambda: two(
        moments,
        lambda p, r, c: pm.Normal(
            "x", p[0][r[:, None], c], tau=p[1][r[:, None], c], observed=hidden(COUNTS)
        ),
    ),
    "undirected": lambda: one(
        probability,
        lambda p, z: pm.Bernoulli(
            "x",
            (pt.triu(p) + pt.triu(p, 1).T)[z[UPPER[0]], z[UPPER[1]]],
            observed=np.ma.masked_array(LOOPED[UPPER], mask=np.arange(len(UPPER[0])) % 2),
        ),
    ),
}


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize("case", MISSING)
def test_missing_cells_are_drawn_with_the_blocks(case):
    model = MISSING[case]()
    assert "x_unobserved" in evidence_of(model).names
    testing.check_draws(model)
    testing.check_declared_density(model)


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_missing_cells_count_for_nothing():
    unknown = np.where(np.eye(N, dtype=bool) | (LOOPED.T > LOOPED), np.nan, LOOPED)
    masked = np.ma.masked_array(LOOPED, mask=np.isnan(unknown))
    plain, blocks = (
        evidence_of(one(probability, observe))
        for observe in (
            lambda p, z: pm.Bernoulli("x", p[z[:, None], z], observed=masked),
            lambda p, z: block(z, z, density=p, observed=unknown, self_loops=True),
        )
    )
    assert plain.names == ["density", "x_unobserved"]
    (own,), (other,) = plain.networks.values(), blocks.networks.values()
    known = np.argwhere(~masked.mask)
    np.testing.assert_array_equal(own.index, known)
    np.testing.assert_array_equal(own.values, LOOPED[tuple(known.T)])
    np.testing.assert_array_equal(plain.missing["x"].index, np.argwhere(masked.mask))
    assert not own.full
    assert other.full
    assert N * N - len(other.unknown) == len(known)
    testing.check_law(
        one(probability, lambda p, z: pm.Bernoulli("x", p[z[:, None], z], observed=masked)),
        n_sweeps=20_000,
    )


ONE = np.zeros((N, M))
ONE[0, 0] = 1.0
# By the cell and the labels at its ends.
FACTORS = np.ones((N, M, K, L))
FACTORS[0, 0, 2, 1] = 0.1


def pinned(p):
    """A block that is known."""
    return pt.set_subtensor(p[2, 1], 0.5)


# Not what labels choose of one matrix.
OTHERWISE = {
    "clipped": lambda p, r, c: pt.clip(p[r[:, None], c], 0.1, 0.9),
    "bounded below": lambda p, r, c: pt.maximum(p, 1e-6)[r[:, None], c],
    "a block that is known": lambda p, r, c: pinned(p)[r[:, None], c],
    "a row that is known": lambda p, r, c: pt.concatenate([p[:-1], pt.fill(p[:1], 0.05)])[
        r[:, None], c
    ],
    "merged labels": lambda p, r, c: p[pt.switch(pt.eq(r, 2), 0, r)[:, None], c],
    "merged labels of one object": lambda p, r, c: p[
        pt.switch(pt.eq(r, 2) & pt.eq(np.arange(N), 3), 0, r)[:, None], c
    ],
    "one cell that is otherwise": lambda p, r, c: (
        p[r[:, None], c] * (1.0 - 0.9 * ONE * pt.eq(r[:, None], 2) * pt.eq(c, 1))
    ),
    "one cell that is multiplied": lambda p, r, c: (
        p[r[:, None], c] * pt.constant(FACTORS)[np.arange(N)[:, None], np.arange(M), r[:, None], c]
    ),
    "labels of one cell that are otherwise": lambda p, r, c: p[
        pt.switch(pt.eq(r[:, None], 2) & pt.eq(c, 1) & (ONE > 0.0), 0, r[:, None]), c
    ],
    "shifted labels": lambda p, r, c: p[((r + 1) % K)[:, None], c],
    "two labels of one sum": lambda p, r, c: 0.5 * (p[r[:, None], c] + p[r[:, None], 0]),
    "a slope": lambda p, r, c: 0.5 * p[r[:, None], c],
    "a square": lambda p, r, c: p[r[:, None], c] * p[r[:, None], c],
    "one label in two places": lambda p, r, c: p[r[:, None], r[:M] % L],
    "labels that are changed": lambda p, r, c: p[pt.minimum(r[:, None], 1), c],
    "transformed": lambda p, r, c: pt.sigmoid(p[r[:, None], c]),
    "log odds": lambda p, r, c: pt.sigmoid(pm.math.logit(p)[r[:, None], c] + 0.3),
    "one label": lambda p, r, c: p[r][:, :1] * np.ones(M),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_anything_else_is_no_network(case):
    model = two(
        probability,
        lambda p, r, c: pm.Bernoulli("x", OTHERWISE[case](p, r, c), observed=EDGES),
    )
    assert read_network(Context.of(model), model["x"]) is None


@pytest.mark.parametrize("block", [(0, 7), (3, 4), (5, 1), (8, 9), (9, 2)])
def test_all_pairs_of_labels_are_tried(block):
    """Where there are more labels than objects, most of them never meet by chance."""
    n, known = 10, np.zeros((10, 10))
    known[block] = 1.0
    with pm.Model() as model:
        row = pm.Categorical("row", weights("row_weights", n), shape=N)
        column = pm.Categorical("column", weights("column_weights", n), shape=M)
        p = probability((n, n)) * (1.0 - known) + 0.5 * known
        pm.Bernoulli("x", p[row[:, None], column], observed=EDGES)
    assert read_network(Context.of(model), model["x"]) is None


@pytest.mark.parametrize("number", [0, 7, 13, 19])
def test_all_labels_of_every_object_are_tried(number):
    with pm.Model() as model:
        row = pm.Categorical("row", weights("row_weights", K), shape=20)
        column = pm.Categorical("column", weights("column_weights", L), shape=15)
        own = pt.switch(pt.eq(row, 2) & pt.eq(np.arange(20), number), 0, row)
        pm.Bernoulli("x", probability((K, L))[own[:, None], column], observed=np.ones((20, 15)))
    assert read_network(Context.of(model), model["x"]) is None


@pytest.mark.parametrize(
    "changed",
    [
        lambda m, t, r, c: {"mu": pt.abs(m)[r[:, None], c], "tau": t[r[:, None], c]},
        lambda m, t, r, c: {"mu": pt.maximum(m, 0.0)[r[:, None], c], "tau": t[r[:, None], c]},
        lambda m, t, r, c: {"mu": m[r[:, None], c], "sigma": t[r[:, None], c]},
        lambda m, t, r, c: {"mu": m[r[:, None], c], "tau": 2.0 * t[r[:, None], c]},
        lambda m, t, r, c: {"mu": m[r[:, None], c], "sigma": 1.0},
    ],
)
def test_numbers_whose_parameters_are_changed_are_no_network(changed):
    model = two(moments, lambda p, r, c: pm.Normal("x", **changed(*p, r, c), observed=COUNTS))
    assert read_network(Context.of(model), model["x"]) is None


@pytest.mark.parametrize("ways", ["tau", "root", "root of one over", "power"])
def test_precisions_are_read_however_they_are_declared(ways):
    def observe(p, r, c):
        own = p[1][r[:, None], c]
        spread = {"tau": {"tau": own}, "root": {"sigma": 1.0 / pt.sqrt(own)}}
        spread["root of one over"] = {"sigma": pt.sqrt(1.0 / own)}
        spread = spread.get(ways, {"sigma": own**-0.5})
        pm.Normal("x", p[0][r[:, None], c], **spread, observed=COUNTS)

    assert evidence_of(two(moments, observe)).density == ("mean", "precision")


def test_a_number_of_trials_may_be_one_for_all():
    model = two(
        probability,
        lambda p, r, c: pm.NegativeBinomial("x", n=2.0, p=p[r[:, None], c], observed=COUNTS),
    )
    (cells,) = evidence_of(model).networks.values()
    np.testing.assert_allclose(cells.cell_exposures(np.argwhere(COUNTS >= 0.0)), 2.0)
    testing.check_scores(model, n_points=2)


@pytest.mark.parametrize(
    "p",
    [
        lambda b, z: pm.math.sigmoid(pm.math.logit(b)[z, 0] + b[z, 1]),
        lambda b, z: 1.0 - pt.sqrt(1.0 - b[z, 0] * b[z, 1]),
        lambda b, z: pt.sigmoid(pt.linalg.inv(b + 2.0 * pt.eye(K))[z, 0] * b[z, 1]),
    ],
)
def test_mixtures_that_look_like_networks_are_served_as_before(p):
    with pm.Model() as model:
        z = pm.Categorical("z", weights("weights", K), shape=N)
        pm.Bernoulli("x", p(pm.Beta("b", 2.0, 2.0, shape=(K, K)), z), observed=LOOPED[0])
    assert evidence_of(model).kind != "networks"


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    "more",
    [
        lambda x: pm.Potential("more", -2.0 * pm.math.sum(x)),
        lambda x: pm.Normal("more", pm.math.sum(x), observed=1.0),
    ],
)
def test_missing_cells_that_something_else_depends_on_are_no_networks(more):
    model = two(
        probability,
        lambda p, r, c: more(pm.Bernoulli("x", p[r[:, None], c], observed=hidden(EDGES))),
    )
    assert "'more' depends on 'x_unobserved' too" in read(model).notes["row"]
    assert evidence_of(model).kind == "declared"


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_missing_cells_have_a_symmetry_of_their_own():
    def observe(p, z):
        i, j = UPPER
        chosen = [(pt.triu(p) + pt.triu(p, 1).T)[z[i], z[j]], p[z[j], z[i]]]
        hide = np.repeat([False, True], len(i))
        x = np.ma.masked_array(np.tile(LOOPED[UPPER], 2), mask=hide)
        pm.Bernoulli("x", pt.concatenate(chosen), observed=x)

    model = one(probability, observe)
    assert read_network(Context.of(model), model["x_observed"]) is None
    assert evidence_of(model).kind == "declared"
    testing.check_scores(model, n_points=1)


def test_edges_have_no_likelihood_of_one_object():
    model = SAME["matrix"][0]()
    idata = pmm.find_matching(model, starts=1, random_seed=0, progressbar=False)
    with pytest.raises(pmm.UnservedModelError, match="as edges of networks do"):
        pmm.log_predictive(idata, model, progressbar=False)


def test_two_parameters_are_of_the_same_cells():
    def observe(p, r, c):
        mean, precision = p[0][r[:, None], c], p[1][r[::-1][:, None], c]
        pm.Normal("x", mean, tau=precision, observed=COUNTS)

    model = two(moments, observe)
    assert read_network(Context.of(model), model["x"]) is None


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: two(
                lambda shape: pm.Uniform("density", 0.0, 0.5, shape=shape),
                lambda p, r, c: pm.Bernoulli("x", p[r[:, None], c], observed=EDGES),
            ),
            "'density', a parameter of 'x', is a Uniform; expected a Beta",
        ),
        (
            lambda: one(
                probability,
                lambda p, z: pm.Bernoulli(
                    "x", (pt.triu(p) + pt.triu(p, 1).T)[z[:, None], z], observed=np.ones((N, N))
                ),
            ),
            "once; found",
        ),
        (
            lambda: two(
                lambda shape: probability((K + 2, L)),
                lambda p, r, c: pm.Bernoulli("x", p[r[:, None], c], observed=EDGES),
            ),
            r"'density': expected the shape \(3, 2\), the clusters of 'column', 'row'; found",
        ),
        (
            lambda: two(
                rate,
                lambda p, r, c: pm.Poisson("x", UNEVEN * p[r[:, None], c], observed=COUNTS),
            ),
            "'x': expected edges all of whose parameters are entries, which two labels choose",
        ),
    ],
)
def test_what_looks_like_a_network_is_served_by_tables_and_says_why(declare, message):
    model = declare()
    (why,) = {*read(model).notes.values()}
    assert re.search(message, why)
    assert evidence_of(model).kind == "declared"
    testing.check_scores(model, n_points=1)


def test_densities_whose_priors_differ_at_a_draw_stop_the_chain():
    def at_most(shape):
        first = pt.minimum(pm.HalfNormal("first", 2.0), 1e6 * (1.0 + np.arange(L)))
        return pm.Beta("density", first, 1.0, shape=shape)

    model = two(at_most, lambda p, r, c: pm.Bernoulli("x", p[r[:, None], c], observed=EDGES))
    (own,) = read(model).components[0].evidence
    point = model.initial_point()
    own.prior(point)
    with pytest.raises(pmm.UnservedModelError, match=r"'density': .* a draw at which it differs"):
        own.prior(point | {"first_log__": np.log(3e6)})


def test_means_of_weights_whose_precision_is_nearly_a_multiple_are_refused():
    def nearly(shape):
        precision = pm.Gamma("precision", 2.0, 1.5, shape=shape)
        return pm.Normal("mean", 0.3, tau=0.7 * precision + 3e-9, shape=shape), precision

    model = two(nearly, lambda d, r, c: block(r, c, density=d, family="normal", observed=UNEVEN))
    assert "'mean': its declared log density is not that of" in read(model).refusals["row"]


def test_a_dispersion_is_one_for_all_where_cells_are_missing():
    """Found from the cells alone, it was another one for every object: new ones were refused."""
    x = np.ma.masked_invalid([[np.nan, 2.0, np.nan], [4.0, 16.0, 6.0], [np.nan] * 3, [5.0, 1.0, 7]])
    with pm.Model() as model:
        row = pm.Categorical("cluster_row", np.ones(2) / 2, shape=4)
        column = pm.Categorical("cluster_column", np.ones(2) / 2, shape=3)
        p = pm.Beta("p", 0.9, 1.4, shape=(2, 2))
        pm.NegativeBinomial("x", n=2.0, p=p[row[:, None], column], observed=x)
    (found,) = (own.networks["x"] for own in read(model).components[0].evidence)
    assert all(np.ptp(own) == 0.0 for own in found.exposure)
    assert np.prod([own[0] for own in found.exposure]) == pytest.approx(2.0)
    new = {"row": np.array([[0.0, 1.0, 8.0]])}
    told = pmm.assign(few_draws(model), model, new, random_seed=0, progressbar=False)
    assert np.isfinite(told["prediction/row/log_predictive"]).all()
