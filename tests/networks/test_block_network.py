"""Block networks against dense models: log probability, gradient, draws, and ways to go wrong."""

import time
import tracemalloc
import warnings
from dataclasses import dataclass
from itertools import product

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse as sp
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.mode import Mode
from scipy import stats

from pm_match.networks import BlockNetwork, BlockNetworkRV, read_block_network
from pm_match.networks.data import as_network
from pm_match.networks.draws import _decode, _distinct

PLAIN = Mode(linker="py", optimizer="fast_compile")
# Numbers of clusters on each axis; one-mode networks have the first on both.
CLUSTERS = (3, 2, 2)


@dataclass(frozen=True)
class Case:
    """A kind of network: objects on its axes, and the options of `BlockNetwork`."""

    shape: tuple[int, ...]
    one_mode: bool = False
    symmetric: bool = False
    self_loops: bool = False
    relevance: bool | None = False  # None: on the first axis only
    unknown: int = 0
    absent: str = "zero"

    @property
    def options(self):
        return {"symmetric": self.symmetric, "self_loops": self.self_loops}

    @property
    def n_clusters(self):
        return CLUSTERS[:1] * 2 if self.one_mode else CLUSTERS[: len(self.shape)]

    @property
    def exists(self):
        """Which cells there are."""
        cells = np.ones(self.shape, bool)
        if self.symmetric:
            cells = np.triu(cells)
        if self.one_mode and not self.self_loops:
            np.fill_diagonal(cells, False)
        return cells

    def objects(self, rng):
        """Draw clusters and relevance: for each axis a vector, or None."""
        z = [rng.integers(k, size=n) for n, k in zip(self.shape, self.n_clusters, strict=True)]
        r = [None if self.relevance is False else rng.integers(2, size=n) for n in self.shape]
        if self.one_mode:
            z[1], r[1] = z[0], r[0]
        elif self.relevance is None:
            r[1:] = [None] * (len(r) - 1)
        return z, r

    def data(self, rng, values):
        """Observe values: cells that do not exist, or are unknown, are NaN."""
        known = self.exists
        hidden = rng.permutation(np.flatnonzero(known))[: self.unknown]
        known.flat[hidden] = False
        return np.where(known, values, np.nan)

    def observed(self, data):
        """What a user has: an array if absent cells are zero, else a table."""
        if self.absent == "zero":
            return np.fmax(data, data.T) if self.symmetric else data
        index = np.argwhere(~np.isnan(data))
        return (index, data[tuple(index.T)])

    def dense(self, theta, phi, z, r):
        """The dense array of parameters; NumPy or PyTensor."""
        shapes = [[-1 if a == axis else 1 for a in range(len(z))] for axis in range(len(z))]
        z = [np.reshape(v, s) for v, s in zip(z, shapes, strict=True)]
        if self.symmetric:
            z = [np.minimum(*z), np.maximum(*z)]
        theta = theta[tuple(z)]
        relevant = np.ones(self.shape, bool)
        for v, s in zip(r, shapes, strict=True):
            if v is not None:
                relevant = relevant & (np.reshape(v, s) == 1)
        if phi is None:
            return theta
        return (pt.where if isinstance(theta, pt.TensorVariable) else np.where)(
            relevant, theta, phi
        )

    def declare(self, name, z, r, density, noise, data=None, **options):
        """Declare in a model, assignments being constants."""
        axes = [pt.constant(v) for v in z]
        relevance = None
        if self.relevance is not False:
            relevance = [None if v is None else pt.constant(v) for v in r]
        if self.one_mode:
            axes[1] = axes[0]
            relevance = relevance and relevance[:1]
        return BlockNetwork(
            name,
            axes=axes,
            density=density,
            noise=noise if relevance else None,
            relevance=relevance,
            absent=self.absent if data is not None else "zero",
            observed=None if data is None else self.observed(data),
            **self.options,
            **options,
        )


CASES = [
    Case((6, 5)),
    Case((6, 5), relevance=True, unknown=7),
    Case((6, 5), relevance=None, unknown=3, absent="unknown"),
    *(
        Case((7, 7), True, symmetric, loops, relevance, unknown)
        for symmetric, loops in product([False, True], repeat=2)
        for relevance, unknown in ((False, 0), (True, 5))
    ),
    Case((7, 7), True, True, False, True, 4, absent="unknown"),
    Case((4, 3, 5)),
    Case((4, 3, 5), relevance=True, unknown=8),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bernoulli_is_the_dense_model(case):
    rng = np.random.default_rng(3)
    z, r = case.objects(rng)
    data = case.data(rng, rng.integers(2, size=case.shape))
    known = ~np.isnan(data)
    with pm.Model() as model:
        theta = pm.Beta("theta", 1.0, 1.0, shape=case.n_clusters, default_transform=None)
        phi = pm.Beta("phi", 1.0, 1.0, default_transform=None)
        network = case.declare("network", z, r, theta, phi, data)
    dense = case.dense(theta, None if case.relevance is False else phi, z, r)[np.nonzero(known)]
    dense = pm.logp(pm.Bernoulli.dist(p=dense), data[known].astype(int)).sum()
    sparse = pm.logp(network, model.rvs_to_values[network])
    assert sparse.ndim == 0
    assert sparse.dtype == "float64"
    at = {"theta": rng.random(case.n_clusters), "phi": 0.3}
    outputs = [dense, sparse]
    for value in outputs[:2]:
        outputs += pt.grad(value, [theta, phi], disconnected_inputs="ignore")
    inputs = [pt.matrix() if theta.ndim == 2 else pt.tensor3(), pt.scalar()]
    function = pytensor.function(
        inputs, outputs, givens=dict(zip([theta, phi], inputs, strict=True)), mode=PLAIN
    )
    expected, found, *gradients = function(*at.values())
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(gradients[2], gradients[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradients[3], gradients[1], rtol=1e-10, atol=1e-12)


def log_probability(network, table):
    """The log probability of a table; the network's parameters are constants."""
    return float(pm.logp(network, table).eval(mode=PLAIN))


def exposures(case, rng):
    """Exposures of the objects on each axis, none on one of three, and of all cells."""
    each = [rng.gamma(2.0, size=n) for n in case.shape]
    each[0][1] = 0.0
    if len(case.shape) == 3:
        each[1] = None
    if case.symmetric:
        each[1] = each[0]
    cells = np.ones(case.shape)
    for axis, own in enumerate(each):
        if own is not None:
            cells = cells * own.reshape([-1 if a == axis else 1 for a in range(cells.ndim)])
    return tuple(each), cells


@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_poisson_with_exposures_is_the_dense_model(case):
    rng = np.random.default_rng(4)
    z, r = case.objects(rng)
    data = case.data(rng, rng.poisson(1.0, size=case.shape))
    rate, noise = rng.gamma(1.0, size=case.n_clusters), 0.7
    exposure, exposed = exposures(case, rng)
    mean = case.dense(rate, noise if case.relevance is not False else None, z, r) * exposed
    data[mean == 0] *= 0
    known = ~np.isnan(data)
    with pm.Model():
        network = case.declare(
            "network", z, r, rate, noise, data, family="poisson", exposure=exposure
        )
    value = stats.poisson.logpmf(data[known], mean[known]).sum()
    table = np.argwhere(known & (data > 0) if case.absent == "zero" else known)
    table = np.column_stack([table, data[tuple(table.T)]])
    np.testing.assert_allclose(log_probability(network, table), value, rtol=1e-12)


@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_negative_binomial_is_the_dense_model(case, exposed):
    rng = np.random.default_rng(4)
    z, r = case.objects(rng)
    data = case.data(rng, rng.negative_binomial(1.0, 0.4, size=case.shape))
    p, noise = rng.random(case.n_clusters), 0.7
    p.flat[1] = 1.0
    dense = case.dense(p, noise if case.relevance is not False else None, z, r)
    n, options = np.ones(case.shape), {}
    if exposed:
        options["exposure"], n = exposures(case, rng)
    data[(n == 0) | (dense == 1)] *= 0
    known = ~np.isnan(data)
    with pm.Model():
        network = case.declare(
            "network", z, r, p, noise, data, family="negative-binomial", **options
        )
    # What has no exposure is 0.
    here = known & (n > 0)
    value = stats.nbinom.logpmf(data[here], n[here], dense[here]).sum()
    table = np.argwhere(known & (data > 0) if case.absent == "zero" else known)
    table = np.column_stack([table, data[tuple(table.T)]])
    np.testing.assert_allclose(log_probability(network, table), value, rtol=1e-12)


def test_negative_binomial_gradients_are_those_of_pymc():
    rng = np.random.default_rng(3)
    x, p = rng.negative_binomial(1.0, 0.4, (3, 2)), pt.dmatrix()
    network = BlockNetwork.dist(
        [pt.constant([0, 1, 1]), pt.constant([1, 0])],
        p,
        family="negative-binomial",
        exposure=([0.5, 1.0, 2.0], None),
    )
    table = np.column_stack([np.argwhere(x > 0), x[x > 0]]).astype(float)
    n = np.array([[0.5], [1.0], [2.0]])
    dense = pm.NegativeBinomial.dist(n=n, p=p[np.array([[0], [1], [1]]), np.array([[1, 0]])])
    values = [pm.logp(network, table), pm.logp(dense, x).sum()]
    at = {p: rng.random((2, 2))}
    found, expected = (pt.grad(value, p).eval(at, mode=PLAIN) for value in values)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_negative_binomial_counts_that_are_certain_or_impossible():
    network, table = bipartite([[1.0, 0.5], [0.0, 0.9]], family="negative-binomial"), pt.dmatrix()
    logp = pytensor.function([table], pm.logp(network, table), mode=PLAIN)
    assert logp(np.array([[1, 1, 2.0]])) == -np.inf
    network = bipartite([[1.0, 0.5], [0.4, 0.9]], family="negative-binomial")
    logp = pytensor.function([table], pm.logp(network, table), mode=PLAIN)
    assert np.isfinite(logp(np.array([[1, 1, 2.0]])))
    assert logp(np.array([[0, 1, 1.0]])) == -np.inf


@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_normal_is_the_dense_model(case):
    rng = np.random.default_rng(5)
    z, r = case.objects(rng)
    # Far from zero in units of the noise: a difference of squares would lose half of the digits.
    data = case.data(rng, rng.normal(1e4, 1e-2, size=case.shape) * rng.integers(2, size=case.shape))
    known = ~np.isnan(data)
    mean, precision = rng.normal(1e4, 1.0, case.n_clusters), rng.gamma(1.0, size=case.n_clusters)
    noise = (3.0, 0.1)
    phi = noise if case.relevance is not False else (None, None)
    loc, tau = (case.dense(t, p, z, r) for t, p in zip((mean, precision), phi, strict=True))
    with pm.Model():
        network = case.declare("network", z, r, (mean, precision), noise, data, family="normal")
    value = stats.norm.logpdf(data[known], loc[known], tau[known] ** -0.5).sum()
    table = np.argwhere(known & (data != 0) if case.absent == "zero" else known)
    table = np.column_stack([table, data[tuple(table.T)]])
    np.testing.assert_allclose(log_probability(network, table), value, rtol=1e-12)


def bipartite(density=((0.2, 0.6), (0.5, 0.9)), **options):
    return BlockNetwork.dist([pt.constant([0, 1, 1]), pt.constant([1, 0])], density, **options)


def test_padding_is_ignored_and_what_is_no_network_is_impossible():
    network, table = bipartite(), pt.dmatrix()
    logp = pytensor.function([table], pm.logp(network, table), mode=PLAIN)
    edges = np.array([[0, 1, 1], [2, 0, 1.0]])
    expected = logp(edges)
    assert np.isfinite(expected)
    assert logp(np.vstack([[-1, -1, 0], edges, [-1, -1, 0], [-1, -1, 7]])) == expected
    assert logp(np.empty((0, 3))) == pytest.approx(np.log([0.8, 0.4, 0.5, 0.1, 0.5, 0.1]).sum())
    for row in ([3, 0, 1], [-2, 0, 1], [0, 2, 1], [0, 0, 2], [0, 0, 0.5], [0.5, 0, 1]):
        assert logp(np.vstack([edges, row])) == -np.inf, row
    for value in (np.nan, np.inf, -1):
        assert logp(np.array([[0, 0, value]])) == -np.inf


def test_certain_and_impossible_edges():
    network, table = bipartite([[0.0, 1.0], [0.5, 0.9]]), pt.dmatrix()
    logp = pytensor.function([table], pm.logp(network, table), mode=PLAIN)
    assert np.isfinite(logp(np.array([[0, 0, 1.0]])))
    assert logp(np.empty((0, 3))) == -np.inf
    assert logp(np.array([[0, 0, 1.0], [0, 1, 1]])) == -np.inf


def test_gradients_are_finite_where_nothing_is_impossible():
    density, table = pt.dmatrix(), np.array([[0, 0, 1.0]])
    network = BlockNetwork.dist([pt.constant([0, 1, 1]), pt.constant([1, 0])], density)
    gradient = pt.grad(pm.logp(network, table), density)
    found = gradient.eval({density: np.array([[0.0, 1.0], [0.0, 0.0]])}, mode=PLAIN)
    assert found.tolist() == [[-1.0, 1.0], [-2.0, -2.0]]


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"family": "poisson"}, -1),
        ({"family": "poisson"}, 0.5),
        ({"family": "poisson"}, np.inf),
        ({"family": "negative-binomial"}, -1),
        ({"family": "negative-binomial"}, 0.5),
        ({"family": "negative-binomial"}, np.inf),
        ({"family": "normal", "density": (np.ones((2, 2)), np.ones((2, 2)))}, np.nan),
    ],
)
def test_support_of_counts_and_weights(options, value):
    assert log_probability(bipartite(**options), np.array([[0, 0, value]])) == -np.inf
    assert np.isfinite(log_probability(bipartite(**options), np.array([[0, 0, 1.0]])))


def test_self_loops_where_none_may_be():
    z = pt.constant([0, 1, 1])
    for self_loops, finite in ((False, False), (True, True)):
        network = BlockNetwork.dist([z, z], np.full((2, 2), 0.5), self_loops=self_loops)
        assert np.isfinite(log_probability(network, np.array([[1, 1, 1.0]]))) == finite


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": np.full((2, 2), 1.5)}, "0 <= density <= 1"),
        ({"density": np.full((2, 2), -1.0), "family": "poisson"}, "density >= 0"),
        ({"density": np.full((2, 2), 1.5), "family": "negative-binomial"}, "0 <= density <= 1"),
        ({"density": (np.ones((2, 2)), np.zeros((2, 2))), "family": "normal"}, "precision > 0"),
        ({"density": np.full((2, 1), 0.5)}, "among the clusters"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ParameterValueError, match=message):
        log_probability(bipartite(**options), np.array([[0, 1, 1.0]]))
    with pytest.raises(ValueError, match="'network': expected"):
        draws(bipartite(**options), 1)


# -- draws -----------------------------------------------------------------------------------------


def draws(network, n, seed=1):
    """Draw tables, without compiling anything: all parameters are constants."""
    rng, inputs = np.random.default_rng(seed), [v.data for v in network.owner.inputs[2:]]
    return [network.owner.op.rng_fn(rng, *inputs, None) for _ in range(n)]


def as_dense(tables, shape):
    """Return the cells of some tables of as many rows each (n, *shape)."""
    tables = np.stack(tables)
    draw, row = np.nonzero(tables[:, :, 0] >= 0)
    rows = tables[draw, row]
    cells = draw, *rows[:, :-1].astype(int).T
    assert len(np.unique(np.ravel_multi_index(cells, (len(tables), *shape)))) == len(rows)
    dense = np.zeros((len(tables), *shape))
    dense[cells] = rows[:, -1]
    return dense


def compare(found, mean, variance, n):
    """Means of n draws of independent cells: their squared errors are chi-square."""
    random = variance > 0
    error = (found - mean)[random] / np.sqrt(variance[random] / n)
    p = stats.chi2.sf((error**2).sum(), error.size)
    assert 1e-3 < p < 1 - 1e-3
    np.testing.assert_allclose(found[~random], mean[~random])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_edges_have_their_densities(case):
    rng = np.random.default_rng(6)
    z, r = case.objects(rng)
    data = case.data(rng, np.zeros(case.shape))
    theta, phi = rng.random(case.n_clusters), 0.4
    theta.flat[1] = 1.0
    with pm.Model():
        network = case.declare("network", z, r, theta, phi, data)
    p = case.dense(theta, phi if case.relevance is not False else None, z, r) * ~np.isnan(data)
    n = 1500
    found = as_dense(draws(network, n), case.shape)
    assert set(np.unique(found)) <= {0, 1}
    compare(found.mean(axis=0), p, p * (1 - p), n)
    # Independent edges: the variances of cells add up to that of their number.
    total = found.reshape(n, -1).sum(axis=1)
    ratio = total.var(ddof=1) / (p * (1 - p)).sum()
    assert 1e-3 < stats.chi2.cdf(ratio * (n - 1), n - 1) < 1 - 1e-3


@pytest.mark.parametrize("scale", [0.3, 3.0], ids=["sparse", "dense"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_counts_have_their_rates(case, scale):
    rng = np.random.default_rng(7)
    z, r = case.objects(rng)
    data = case.data(rng, np.zeros(case.shape))
    rate, noise = scale * rng.gamma(2.0, 0.5, size=case.n_clusters), 0.6 * scale
    exposure = [rng.gamma(2.0, 0.5, size=n) for n in case.shape]
    exposure[0][1] = 0.0
    if case.symmetric:
        exposure[1] = exposure[0]
    mean = case.dense(rate, noise if case.relevance is not False else None, z, r)
    for axis, e in enumerate(exposure):
        mean = mean * e.reshape([-1 if a == axis else 1 for a in range(len(case.shape))])
    mean = mean * ~np.isnan(data)
    with pm.Model():
        network = case.declare(
            "network", z, r, rate, noise, data, family="poisson", exposure=exposure
        )
    n = 1000
    found = as_dense(draws(network, n), case.shape)
    compare(found.mean(axis=0), mean, mean, n)
    assert np.isclose(found.reshape(n, -1).sum(axis=1).var() / mean.sum(), 1.0, atol=0.2)


@pytest.mark.parametrize("scale", [0.3, 3.0], ids=["sparse", "dense"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_overdispersed_counts_have_their_law(case, scale):
    rng = np.random.default_rng(7)
    z, r = case.objects(rng)
    data = case.data(rng, np.zeros(case.shape))
    p, noise = rng.uniform(0.3, 0.9, size=case.n_clusters), 0.6
    p.flat[1] = 1.0
    exposure = [rng.gamma(2.0, 0.5, size=n) for n in case.shape]
    exposure[0] *= scale
    exposure[0][1] = 0.0
    if case.symmetric:
        exposure[1] = exposure[0]
    cells = case.dense(p, noise if case.relevance is not False else None, z, r)
    n = ~np.isnan(data) * 1.0
    for axis, e in enumerate(exposure):
        n = n * e.reshape([-1 if a == axis else 1 for a in range(len(case.shape))])
    with pm.Model():
        network = case.declare(
            "network", z, r, p, noise, data, family="negative-binomial", exposure=exposure
        )
    n_draws = 2000
    found = as_dense(draws(network, n_draws), case.shape)
    # How often cells are 0, 1 and 2, and their means.
    for value in (0, 1, 2):
        share = np.where(n > 0, stats.nbinom.pmf(value, np.where(n > 0, n, 1), cells), value == 0)
        compare((found == value).mean(axis=0), share, share * (1.0 - share), n_draws)
    mean = n * (1.0 - cells) / cells
    compare(found.mean(axis=0), mean, mean / cells, n_draws)
    # Independent counts: the variances of cells add up to that of their number.
    total = found.reshape(n_draws, -1).sum(axis=1)
    assert np.isclose(total.var() / (mean / cells).sum(), 1.0, atol=0.25)


def test_overdispersed_counts_of_equal_exposures_are_independent():
    network = BlockNetwork.dist(
        [pt.constant([0, 0]), pt.constant([0, 0, 0])],
        np.full((1, 1), 0.5),
        family="negative-binomial",
        network=as_network("x", (np.indices((2, 3)).reshape(2, -1).T, np.ones(6)),
                           absent="unknown", family="negative-binomial"),
    )  # fmt: skip
    found = as_dense(draws(network, 4000), (2, 3)).reshape(4000, -1)
    shares = np.bincount(np.minimum(found.ravel(), 5).astype(int)) / found.size
    expected = np.append(stats.nbinom.pmf(np.arange(5), 1.0, 0.5), 0.5**5)
    np.testing.assert_allclose(shares, expected, atol=0.01)
    assert np.abs(np.corrcoef(found.T) - np.eye(6)).max() < 0.08


@pytest.mark.parametrize("case", CASES[:4] + CASES[-3:], ids=str)
def test_weights_have_their_means_and_precisions(case):
    rng = np.random.default_rng(8)
    z, r = case.objects(rng)
    data = case.data(rng, np.zeros(case.shape))
    mean, precision = rng.normal(size=case.n_clusters), rng.gamma(1.0, size=case.n_clusters)
    noise = (0.5, 4.0)
    phi = noise if case.relevance is not False else (None, None)
    loc, tau = (case.dense(t, p, z, r) for t, p in zip((mean, precision), phi, strict=True))
    known = ~np.isnan(data)
    with pm.Model():
        network = case.declare("network", z, r, (mean, precision), noise, data, family="normal")
    n = 500
    tables = draws(network, n)
    assert {len(table) for table in tables} == {known.sum()}
    found = as_dense(tables, case.shape)
    compare(found.mean(axis=0), np.where(known, loc, 0), np.where(known, 1 / tau, 0), n)
    np.testing.assert_allclose(found.var(axis=0)[known] * tau[known], 1.0, atol=0.35)


def test_numbers_without_replacement():
    rng = np.random.default_rng(9)
    for n, size in ((7, 20), (3000, 70_000), (60_000, 70_000), (70_000, 70_000), (0, 70_000)):
        numbers = _distinct(rng, n, size)
        assert len(np.unique(numbers)) == len(numbers) == n
        if 0 < n < size:
            assert 0 <= numbers.min() <= numbers.max() < size
            bins = np.bincount(numbers * 10 // size, minlength=10)
            assert stats.chisquare(bins).pvalue > 1e-3


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_numbers_decode_to_every_cell_once(symmetric, self_loops):
    for n in range(1, 30):
        case = Case((n, n), True, symmetric, self_loops)
        cells = set(map(tuple, np.argwhere(case.exists).tolist()))
        number = np.arange(len(cells))
        if not len(number):
            continue
        i, j = _decode(number, n, symmetric, self_loops)
        assert set(zip(i.tolist(), j.tolist(), strict=True)) == cells


def test_large_triangles_decode():
    n = 50_000_000
    j = np.array([1, 2, 3_000_001, n - 2, n - 1])
    first = j * (j - 1) // 2
    for i, number in ((0 * j, first), (j - 1, first + j - 1)):
        found = _decode(number, n, True, False)
        assert np.array_equal(found[0], i)
        assert np.array_equal(found[1], j)


def test_large_networks_are_never_dense():
    rng = np.random.default_rng(10)
    n, k = 100_000, 10
    z = [pt.constant(rng.integers(k, size=n)) for _ in range(2)]
    r = [pt.constant(rng.integers(2, size=n)) for _ in range(2)]
    density = pt.dmatrix()
    options = {"noise": 1e-5, "relevance": r, "max_edges": 200_000}
    value = np.full((k, k), 1e-5)
    tracemalloc.start()
    start = time.perf_counter()
    for family, one_mode in product(("bernoulli", "poisson"), (False, True)):
        network = BlockNetwork.dist(
            [z[0]] * 2 if one_mode else z,
            value,
            **options | {"relevance": r[:1] if one_mode else r},
            family=family,
            symmetric=one_mode,
        )
        (table,) = draws(network, 1)
        n_edges = (table[:, 0] >= 0).sum()
        mean = n * (n - 1) / 2 * 1e-5 if one_mode else n * n * 1e-5
        assert abs(n_edges - mean) < 5 * mean**0.5
    network = BlockNetwork.dist(z, density, **options, family="poisson")
    logp = pm.logp(network, table)
    found = pytensor.function([density], [logp, pt.grad(logp, density)], mode=PLAIN)(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(found[0])
    # The dense matrix would be 80 GB.
    assert peak < 100e6
    assert time.perf_counter() - start < 20


def test_draws_that_do_not_fit():
    z = [pt.constant(np.zeros(1000, int)), pt.constant(np.zeros(1000, int))]
    for family, density, n_rows in (("bernoulli", 0.5, 1000), ("poisson", 0.5, 1000),
                                    ("poisson", 9.0, 1000), ("negative-binomial", 0.6, 1000),
                                    ("negative-binomial", 0.1, 1000)):  # fmt: skip
        network = BlockNetwork.dist(z, np.full((1, 1), density), family=family, max_edges=n_rows)
        with pytest.raises(ValueError, match=r"at most 1000 rows; found at least .* max_edges"):
            draws(network, 1)
    unit = np.ones((1, 1))
    network = BlockNetwork.dist(z, (unit, unit), family="normal", max_edges=1000)
    with pytest.raises(ValueError, match=r"found 1000000 known cells, all of which .* max_edges"):
        draws(network, 1)
    # Exactly as many as there is room for.
    network = BlockNetwork.dist(z, unit, max_edges=1_000_000)
    assert (draws(network, 1)[0][:, -1] == 1).all()
    z = [pt.constant(np.zeros(2**11, int)) for _ in range(6)]
    network = BlockNetwork.dist(z, np.full((1,) * 6, 0.5))
    with pytest.raises(ValueError, match="fewer than 2\\*\\*62 cells"):
        draws(network, 1)


def test_unknown_cells_do_not_use_up_room():
    data = np.zeros((30, 30))
    data[:, :14] = np.nan
    with pm.Model():
        z = [pt.constant(np.zeros(30, int)), pt.constant(np.zeros(30, int))]
        network = BlockNetwork("x", z, np.ones((1, 1)), observed=data, max_edges=480)
    (table,) = draws(network, 1)
    assert table.shape == (480, 3)
    assert set(table[:, 1]) == set(range(14, 30))


def test_default_room():
    def rows(n, n_edges):
        z = [pt.constant(np.zeros(n, int)), pt.constant(np.zeros(n, int))]
        edges = np.divmod(np.arange(n_edges), n)
        with pm.Model():
            return BlockNetwork("x", z, np.ones((1, 1)), observed=(edges, None)).owner.op.max_edges

    assert rows(30, 5) == 900
    assert rows(1000, 5) == 100_000
    assert rows(1000, 50_000) == 200_000


# -- models ----------------------------------------------------------------------------------------


@pytest.fixture
def model():
    rng = np.random.default_rng(11)
    coords = {"word": list("abcd"), "page": range(5), "cluster": range(2)}
    with pm.Model(coords=coords) as model:
        weights = pm.Dirichlet("weights", np.ones(2), dims="cluster")
        word = pm.Categorical("word_cluster", p=weights, dims="word")
        page = pm.Categorical("page_cluster", p=weights, dims="page")
        relevance = pm.Bernoulli("relevance", 0.7, dims="word")
        theta = pm.Beta("theta", 1.0, 1.0, shape=(2, 2))
        phi = pm.Beta("phi", 1.0, 1.0)
        data = (rng.random((4, 5)) < 0.4).astype(float)
        data[1, 2] = np.nan
        BlockNetwork(
            "words",
            axes=[word, page],
            density=theta,
            noise=phi,
            relevance=[relevance, None],
            dims=("word", "page"),
            observed=data,
        )
        BlockNetwork("free", axes=[page, page], density=theta, symmetric=True)
    return model


def test_a_declared_network_is_read_back(model):
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    for m in (model, pm.model.fgraph.clone_model(model), copy):
        parts = read_block_network(m["words"])
        assert parts.density == (m["theta"],)
        assert parts.noise == (m["phi"],)
        assert parts.axes == (m["word_cluster"], m["page_cluster"])
        assert parts.relevance == (m["relevance"], None)
        assert parts.exposure == (None, None)
        assert parts.unknown.tolist() == [[1, 2]]
        assert parts[6:] == ("bernoulli", False, False, False, "zero", None)
        free = read_block_network(m["free"])
        assert free.axes == (m["page_cluster"],) * 2
        assert (free.one_mode, free.symmetric, free.noise) == (True, True, ())
    assert read_block_network(model["theta"]) is None
    assert read_block_network(pt.vector()) is None


def test_exposures_and_normal_parameters_are_read_back():
    z, r = pt.lvector(), pt.lvector()
    mean, precision = pt.dmatrix(), pt.dmatrix()
    with pm.Model():
        network = BlockNetwork(
            "x", [z, z], (mean, precision), (0.0, 1.0), [r, r], "normal", observed=np.eye(3)[::-1]
            * [1, 0, 1]
        )  # fmt: skip
        counts = BlockNetwork(
            "y", [z, pt.lvector()], pt.dmatrix(), family="poisson",
            exposure=(None, [1.0, 2.0]), observed=(((0, 2), (1, 0)), None),
        )  # fmt: skip
    parts = read_block_network(network)
    assert parts.density == (mean, precision)
    assert [v.data for v in parts.noise] == [0.0, 1.0]
    assert {v.dtype for v in parts.noise} == {"float64"}
    assert parts.relevance == (r, r)
    assert parts.axes == (z, z)
    exposure = read_block_network(counts).exposure
    assert exposure[0] is None
    assert exposure[1].tolist() == [1.0, 2.0]


def test_exposures_are_matched_by_the_names_of_objects():
    data = pd.DataFrame(1, index=list("abc"), columns=list("de"))
    with pm.Model():
        counts = BlockNetwork(
            "x", [pt.lvector(), pt.lvector()], pt.dmatrix(), family="poisson",
            exposure=(pd.Series([3.0, 1.0, 2.0], list("cab")), [5.0, 4.0]), observed=data,
        )  # fmt: skip
    first, second = read_block_network(counts).exposure
    assert first.tolist() == [1.0, 2.0, 3.0]
    assert second.tolist() == [5.0, 4.0]


def test_an_exposure_that_is_a_variable_is_refused():
    with pm.Model():
        hours = pm.Data("hours", np.ones(2))
        with pytest.raises(
            ValueError, match=r"BlockNetwork 'x': .* axis 1 .* 2 known numbers; found hours"
        ):
            BlockNetwork(
                "x", [pt.lvector(), pt.lvector()], pt.dmatrix(), family="poisson",
                exposure=(None, hours), observed=np.ones((3, 2)),
            )  # fmt: skip


def test_a_network_observed_later_has_the_same_log_probability(model):
    table = np.array([[0, 1, 1], [2, 3, 1], [-1, -1, 0]], float)
    observed = pm.observe(model, {"free": table})
    assert observed["free"] in observed.observed_RVs
    point = observed.initial_point()
    logp = observed.compile_logp(mode=PLAIN)(point)
    free = model.compile_logp(mode=PLAIN)(point | {"free": table})
    assert np.isfinite(logp)
    assert logp == pytest.approx(free, rel=1e-13)


def test_a_model_has_gradients(model):
    point = model.initial_point()
    assert point["free"].shape == (10, 3)
    assert (point["free"][:, :2] == -1).all()
    theta, phi = model["theta"], model["phi"]
    logp = model.compile_logp(mode=PLAIN)
    gradient = model.compile_dlogp([theta, phi], mode=PLAIN)(point)
    step, value = 1e-6, "phi_logodds__"
    up, down = (logp(point | {value: point[value] + s}) for s in (step, -step))
    assert gradient[-1] == pytest.approx((up - down) / (2 * step), rel=1e-6)


@pytest.mark.slow
@pytest.mark.compiled
def test_pymcs_own_mode_agrees(model):
    with model:
        word, page = model["word_cluster"], model["page_cluster"]
        rate = pm.Gamma("rate", 1.0, 1.0, shape=(2, 2))
        tau = pm.Gamma("tau", 1.0, 1.0, shape=(2, 2))
        weights = np.arange(20.0).reshape(4, 5)
        BlockNetwork(
            "counts", [word, page], rate, family="poisson", exposure="degree", observed=weights
        )
        BlockNetwork("levels", [word, page], (rate, tau), family="normal", observed=weights)
    point = model.initial_point(random_seed=2)
    over = [model[name] for name in ("theta", "phi", "rate", "tau")]
    for compiled in (model.compile_logp, lambda mode: model.compile_dlogp(over, mode=mode)):
        expected, found = compiled(mode=PLAIN)(point), compiled(mode=None)(point)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.compiled
def test_draws_of_a_model_stack(model):
    with warnings.catch_warnings():
        # PyTensor would announce an op that it cannot compile.
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message="Duplicate dimension names")
        drawn = pm.draw([model["words"], model["free"]], draws=3, random_seed=1)
    assert drawn[0].shape == (3, 19, 3)
    assert drawn[1].shape == (3, 10, 3)
    prior = pm.sample_prior_predictive(
        4, model=model, random_seed=1, compile_kwargs={"mode": PLAIN}
    )
    words = prior["prior_predictive"]["words"].values[0]
    assert words.shape == (4, 19, 3)
    assert len({table.tobytes() for table in words}) == 4
    assert not (words[..., :2] == [1, 2]).all(axis=-1).any()
    assert prior["observed_data"]["words"].shape[1] == 3


def test_the_networks_name_is_printed(model):
    assert "words ~ BlockNetwork(theta, phi, word_cluster, page_cluster" in model.str_repr()


def test_listed_cells_are_drawn_without_padding():
    with pm.Model() as model:
        z = pm.Categorical("z", p=[0.5, 0.5], shape=3)
        network = BlockNetwork(
            "x", [z, z], np.ones((2, 2)), absent="unknown", observed=(((0, 1), (1, 2)), [0, 1])
        )
    assert pm.draw(network, mode=PLAIN).tolist() == [[0, 1, 1], [1, 2, 1]]
    assert read_block_network(network).unknown.shape == (0, 2)
    assert np.isneginf(model.compile_logp(mode=PLAIN)({"z": np.zeros(3, int)}))
    start = pm.distributions.distribution.support_point(network).eval(mode=PLAIN)
    assert start.tolist() == [[0, 1, 0], [1, 2, 0]]


def test_degree_exposures():
    matrix = np.array([[0, 3, 1], [2, 0, 0], [0, 4, 0.0]])
    z = pt.lvector()

    def exposure(observed, axes=(z, z), **options):
        with pm.Model():
            network = BlockNetwork(
                "x", axes, pt.dmatrix(), family="poisson", exposure="degree", observed=observed,
                **options,
            )  # fmt: skip
        return read_block_network(network).exposure

    row, col = exposure(sp.csr_array(matrix))
    np.testing.assert_allclose(np.outer(row, col), np.outer([4, 2, 4], [2, 7, 1]) / 10)
    row, col = exposure(np.triu(matrix), symmetric=True)
    np.testing.assert_allclose(np.outer(row, col), np.outer([4, 3, 1], [4, 3, 1]) / 8)
    empty = exposure(np.zeros((2, 3)), axes=(z, pt.lvector()))
    assert [e.tolist() for e in empty] == [[0, 0], [0, 0, 0]]
    with pm.Model():
        three = BlockNetwork(
            "x", [z, pt.lvector(), pt.lvector()], pt.dtensor3(), family="poisson",
            exposure="degree", observed=np.ones((2, 2, 2)),
        )  # fmt: skip
    e, f, g = read_block_network(three).exposure
    assert e[0] * f[0] * g[0] == pytest.approx(1.0)


def test_labels_of_the_dims_place_a_long_form(model):
    frame = pd.DataFrame({"word": ["d", "b"], "page": [4, 0]})
    with model:
        network = BlockNetwork(
            "more", [model["word_cluster"], model["page_cluster"]], model["theta"],
            dims=("word", "page"), columns=("word", "page"), observed=frame,
        )  # fmt: skip
    assert model.rvs_to_values[network].data.tolist() == [[1, 0, 1], [3, 4, 1]]


def test_all_objects_irrelevant_leave_the_noise():
    none = [pt.constant(np.zeros(n, int)) for n in (3, 2)]
    network = bipartite(noise=0.25, relevance=none)
    table = np.array([[0, 1, 1.0]])
    assert log_probability(network, table) == pytest.approx(np.log(0.25) + 5 * np.log(0.75))


def test_an_op_can_be_rebuilt_from_its_props():
    op = bipartite().owner.op
    again = BlockNetworkRV(**op._props_dict())
    assert again == op
    assert hash(again) == hash(op)
    assert op != bipartite(max_edges=3).owner.op


A, B, C = pt.lvector("a"), pt.lvector("b"), pt.lvector("c")
THETA, CUBE = pt.dmatrix("theta"), pt.dtensor3("cube")
THREE, TWO = pt.constant([0, 1, 1]), pt.constant([1, 0])
HALF = np.full((2, 2), 0.5)
FREE = {"axes": [THREE, TWO], "density": HALF}
POISSON = FREE | {"family": "poisson"}
MATRIX = np.zeros((3, 2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"axes": A}, ValueError, "two or more assignments; found TensorVariable"),
        ({"axes": [A]}, ValueError, "two or more assignments; found 1"),
        ({"axes": [A, THETA]}, TypeError, "axis 1 to be an integer vector; found 'theta'"),
        ({"axes": [A, pt.dvector("w")]}, TypeError, "integer vector; found 'w', of type Vector"),
        ({"axes": [A, B, A], "density": CUBE}, ValueError, ".* 3 axes; found 'a' more than"),
        ({"symmetric": True}, ValueError,
         r"same assignment on both axes with symmetric=True; found \[\"'a'\", "),
        ({"self_loops": True}, ValueError, "on both axes with self_loops=True"),
        ({"axes": [A, B, C], "self_loops": True}, ValueError, "axes with self_loops=True; found"),
        ({}, ValueError, "assignment 'a', without an observed .* found one that depends"),
        ({"observed": np.zeros((3, 2, 2))}, ValueError, r"2 axes.*; found shape \(3, 2, 2\)"),
        ({"axes": [A, B, C], "observed": MATRIX}, ValueError, r"3 axes.* found shape \(3, 2\)"),
        (FREE | {"observed": MATRIX.T}, ValueError, r"expected 3 × 2 objects .* shape \(2, 3\)"),
        ({"axes": [A, TWO], "observed": MATRIX.T}, ValueError,
         "the 2 objects of the assignment without a name .* on axis 1; found 3"),
        (FREE | {"observed": MATRIX + 2}, ValueError, r"network 'x': expected 0 or 1 .*found 2 at"),
        (FREE | {"absent": "unknown"}, ValueError, "expected `observed`, .*; found none"),
        (FREE | {"columns": ("a", "b")}, ValueError, "expected `observed`, .*; found none"),
        (FREE | {"density": CUBE}, ValueError, "one dimension for each of 2 axes; found 3"),
        ({"axes": [THREE, THREE], "density": np.ones((2, 3))}, ValueError,
         r"expected a square density.*; found shape \(2, 3\)"),
        (FREE | {"family": "gamma"}, ValueError, "family: expected .* found 'gamma'"),
        (FREE | {"family": "normal"}, ValueError, r"density to be a pair \(mean, .* found ndarray"),
        (FREE | {"family": "normal", "density": (HALF, HALF[:1])}, ValueError,
         r"one shape; found \[2, 2\] and \[1, 2\]"),
        (FREE | {"family": "normal", "density": (HALF, HALF), "relevance": [THREE, None],
                 "noise": 0.5}, ValueError, "noise to be a pair .* found float"),
        (FREE | {"noise": 0.5}, ValueError, "expected relevance with noise.*; found none"),
        (FREE | {"noise": 0.5, "relevance": [None, None]}, ValueError, "relevance with noise"),
        (FREE | {"relevance": [THREE, None]}, ValueError, "noise with relevance.*; found none"),
        (FREE | {"relevance": THREE, "noise": 0.5}, TypeError, "relevance to be a list"),
        (FREE | {"relevance": [THREE], "noise": 0.5}, ValueError, "each of 2 axes; found 1"),
        (FREE | {"relevance": [TWO, None], "noise": 0.5}, ValueError,
         "relevance of the 3 objects on axis 0; found .* of 2"),
        (FREE | {"relevance": [pt.dvector("w"), None], "noise": 0.5}, TypeError,
         "relevance on axis 0 to be a vector of 0 and 1; found 'w', of type"),
        (FREE | {"relevance": [THREE, None], "noise": [0.5]}, ValueError,
         "noise to be a scalar; found 1 dim"),
        ({"axes": [THREE, THREE], "density": HALF, "relevance": [A, B], "noise": 0.5}, ValueError,
         "one relevance, or the same twice.*; found"),
        (FREE | {"exposure": (None, None)}, ValueError, "multiplies; found family 'bernoulli'"),
        (POISSON | {"exposure": "degree"}, ValueError, "exposure='degree'; found none"),
        (POISSON | {"exposure": "size"}, ValueError, "vectors or 'degree'; found 'size'"),
        (POISSON | {"exposure": (None,)}, ValueError, "for each of 2 axes; found 1"),
        (POISSON | {"axes": [THREE, TWO, TWO + 0], "density": CUBE, "exposure": (None, None)},
         ValueError, "for each of 3 axes; found 2"),
        (POISSON | {"exposure": 2.0}, ValueError, "for each of 2 axes; found float"),
        (POISSON | {"exposure": ([1, 2], None)}, ValueError,
         r"axis 0 to be a vector of 3 numbers; found shape \(2,\)"),
        (POISSON | {"exposure": ([1, -2, 3], None)}, ValueError,
         "finite and at least 0; found -2 at position 1 of axis 0"),
        (POISSON | {"exposure": (None, [1, np.inf])}, ValueError, "found inf at position 1 of ax"),
        (POISSON | {"exposure": ([1, 0, 1], None), "observed": MATRIX + 4}, ValueError,
         r"where the exposure is 0; found 4 at cell \(1, 0\)"),
        (POISSON | {"axes": [THREE, THREE], "symmetric": True, "exposure": ([1, 1, 1], None)},
         ValueError, "one exposure for both axes of a symmetric network; found two"),
        (FREE | {"max_edges": 0}, ValueError, "max_edges: .* at least 1; found 0"),
        (FREE | {"max_edges": 1.5}, ValueError, "max_edges: .* whole number .* found 1.5"),
        (FREE | {"dims": "film"}, ValueError, "name the matrix's 2 axes; found 'film'"),
        (FREE | {"dims": ("film",)}, ValueError, "name the matrix's 2 axes; found"),
        (FREE | {"dims": ("film", "star")}, ValueError, "found 'star', and the coords are"),
        (FREE | {"dims": ("film", "film")}, ValueError,
         "2 objects of .*assignment .*; found 'film' with 3"),
        (FREE | {"dims": ("film", "user"),
                 "observed": pd.DataFrame(MATRIX, ["p", "r", "q"], ["u", "v"])},
         ValueError, "order of dim 'film'; found them in another"),
        (FREE | {"size": 3}, TypeError, r"expected no other arguments; found \['size'\]"),
    ],
)  # fmt: skip
def test_bad_declarations(options, error, message):
    coords = {"film": ["p", "q", "r"], "user": ["u", "v"]}
    with pm.Model(coords=coords), pytest.raises(error, match=message) as raised:
        BlockNetwork("x", **{"axes": [A, B], "density": THETA} | options)
    assert "'x'" in str(raised.value)


def test_clusters_that_do_not_fit():
    with pm.Model():
        z = pm.Categorical("z", p=np.ones(3) / 3, shape=4)
        with pytest.raises(
            ValueError, match="the 3 clusters of the assignment 'z' on axis 0; found 2"
        ):
            BlockNetwork("x", [z, z], HALF)


def test_a_network_has_no_batches():
    network = bipartite()
    rng, _, *inputs = network.owner.inputs
    for size, density in (((3,), inputs[0]), (None, pt.dtensor3())):
        with pytest.raises(NotImplementedError, match="a BlockNetwork is one network"):
            network.owner.op.make_node(rng, size, density, *inputs[1:])
