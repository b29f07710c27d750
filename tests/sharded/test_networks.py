"""Networks over shards: their law, what leaves the prior alone, and runs on planted blocks."""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pymc as pm
import pytest
import scipy.sparse as sp
from scipy.special import betaln, gammaln
from scipy.stats import multivariate_t

import pm_match as pmm
from pm_match.networks.kind import Networks
from pm_match.networks.sharded import CellRows, ShardedRelation
from pm_match.sharded.choose import draw_labels
from pm_match.sharded.shards import ChunkResult
from pm_match.sharded.split_merge import split_or_merge
from tests.sharded.chains import calls, check_choices, halves, run
from tests.sharded.enumeration import log_sticks
from tests.sharded.simulate import ShardSimulator

FAMILIES = ("bernoulli", "poisson", "normal")
T, SHAPES = 3, {"a": (2, 2), "b": (2, 1)}
# The objects of every assignment, among all.
ENDS = np.cumsum([0, 2, 2, 2, 1])
ASSIGNMENTS = ["cluster_a_row", "cluster_b_row", "cluster_a_column", "cluster_b_column"]


def tiny(family, **options):
    """Two networks that share their densities, all objects relevant."""
    rng = np.random.default_rng(4)
    data = {name: drawn_cells(family, rng, shape) for name, shape in SHAPES.items()}
    known = {"hyperpriors": False, "density_prior": (1.5, 0.8), "concentration": 1.3}
    model = pmm.models.relational_clusters(
        {name: sp.csr_array(own) for name, own in data.items()},
        relevance=False,
        n_clusters=T,
        family=family,
        **(options or known),
    )
    return model, data


def drawn_cells(family, rng, shape):
    """Draw some values."""
    if family == "bernoulli":
        return rng.integers(2, size=shape).astype(float)
    if family == "poisson":
        return rng.poisson(1.5, shape).astype(float)
    return rng.normal(0.0, 2.0, shape) * rng.integers(2, size=shape)


def log_block(family, x):
    """Log density of a block's cells."""
    n, total = len(x), x.sum()
    if family == "bernoulli":
        return betaln(1.5 + total, 0.8 + n - total) - betaln(1.5, 0.8)
    if family == "poisson":
        before = 1.5 * np.log(0.8) - gammaln(1.5)
        return before + gammaln(1.5 + total) - (1.5 + total) * np.log(0.8 + n)
    # The mean's precision is that of the values, which is Gamma(1.5, 0.8).
    return multivariate_t.logpdf(x, np.zeros(n), 0.8 / 1.5 * (np.eye(n) + 1.0), df=3.0)


def parts(state):
    """Labels of the rows and of the columns, by network."""
    own = [state[start:stop] for start, stop in pairwise(ENDS)]
    return {"a": (own[0], own[2]), "b": (own[1], own[3])}


@cache
def enumerated(family):
    """The tiny networks of a family, every assignment, and its probability."""
    model, data = tiny(family)
    states = np.array(list(product(range(T), repeat=ENDS[-1])))
    of_sizes, of_cells, logs = {}, {}, np.zeros(len(states))
    for number, state in enumerate(states):
        blocks = {}
        for name, (rows, columns) in parts(state).items():
            for i, j in np.ndindex(*SHAPES[name]):
                blocks.setdefault((rows[i], columns[j]), []).append((name, i, j))
        for cells in map(tuple, blocks.values()):
            if cells not in of_cells:
                values = np.array([data[name][i, j] for name, i, j in cells])
                of_cells[cells] = log_block(family, values)
            logs[number] += of_cells[cells]
        for own in (state[: ENDS[2]], state[ENDS[2] :]):
            size = tuple(np.bincount(own, minlength=T))
            if size not in of_sizes:
                of_sizes[size] = log_sticks(1.3, size)
            logs[number] += of_sizes[size]
    return model, data, states, np.exp(logs - np.logaddexp.reduce(logs))


def functions(states):
    """Every object's labels, and which pairs of one type are together."""
    n = states.shape[1]
    one = [states == j for j in range(T)]
    pairs = [(i, j) for i in range(n) for j in range(i) if (i < ENDS[2]) == (j < ENDS[2])]
    together = [(states[:, i] == states[:, j])[:, None] for i, j in pairs]
    both = [(together[0] & own) for own in together[-2:]]
    return np.concatenate([*one, *together, *both], axis=1).astype(float)


@pytest.mark.parametrize("family", FAMILIES)
def test_objects_choose_by_the_declared_density(family, monkeypatch):
    check_choices(monkeypatch, *tiny(family))


@pytest.mark.parametrize(
    ("family", "moves"), [("bernoulli", False), *((family, True) for family in FAMILIES)]
)
def test_labels_have_their_law(family, moves):
    model, data, states, p = enumerated(family)
    n = 6000
    found = functions(
        np.array(
            [
                np.concatenate([labels[name] for name in ASSIGNMENTS])
                for _, labels in run(model, data, n, chunk_size=1, moves=moves)
            ]
        )
    )
    error = found.reshape(30, -1, found.shape[1]).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(30)
    away = np.abs(found.mean(axis=0) - p @ functions(states))
    floor = np.sqrt(p @ functions(states) / n)
    bound = 4.5 * np.maximum(error, 0.5 * floor)
    assert (away < bound).all(), (away / bound).max()


def in_a_row():
    """Two networks of three types of objects, two of each, in two clusters a type."""
    data = {"n": np.array([[1, 0], [1, 0]]), "m": np.array([[1, 0], [0, 1]])}
    with pm.Model() as model:
        labels = []
        for name in ("row", "column", "tag"):
            w = pm.StickBreakingWeights(f"weights_{name}", alpha=0.6, K=1)
            labels.append(pm.Categorical(f"cluster_{name}", p=w, shape=2))
        for name, axes in (("n", labels[:2]), ("m", labels[1:])):
            density = pm.Beta(f"density_{name}", 0.2, 0.3, shape=(2, 2))
            pmm.BlockNetwork(name, axes, density, observed=sp.csr_array(data[name]))
    return model, data


def test_the_last_set_of_clusters_is_the_first_to_be_drawn_next():
    centre, shards, _ = halves(*in_a_row(), 1, 0)
    orders = []
    for iteration in range(7):
        orders.append([])
        for setting in centre.settings(iteration):
            centre.load(calls(shards)("draw", setting))
            orders[-1].append(centre.clustering.title)
    assert {len(set(order)) for order in orders} == {3}
    assert len({order[-1] for order in orders}) == 3
    assert all(before[-1] == after[0] for before, after in pairwise(orders))


def test_labels_of_three_types_have_their_law():
    model, data = in_a_row()
    states = np.array(list(product(range(2), repeat=6)))
    logs = np.zeros(len(states))
    for number, state in enumerate(states):
        types = state.reshape(3, 2)
        for name, (rows, columns) in (("n", types[:2]), ("m", types[1:])):
            for k, h in np.ndindex(2, 2):
                x = data[name][np.ix_(rows == k, columns == h)]
                logs[number] += betaln(0.2 + x.sum(), 0.3 + x.size - x.sum()) - betaln(0.2, 0.3)
        logs[number] += sum(log_sticks(0.6, np.bincount(own, minlength=2)) for own in types)
    p = np.exp(logs - np.logaddexp.reduce(logs))
    names = ["cluster_row", "cluster_column", "cluster_tag"]
    n = 3000
    found = np.array(
        [
            np.concatenate([labels[name] for name in names])
            for _, labels in run(model, data, n, chunk_size=1, seed=1, moves=True)
        ]
    )
    codes = 2 ** np.arange(6)[::-1]
    seen = (found @ codes)[:, None] == np.arange(64)
    error = seen.reshape(30, -1, 64).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(30)
    bound = 4.5 * np.maximum(error, 0.5 * np.sqrt(p / n))
    away = np.abs(seen.mean(axis=0) - p)
    assert (away < bound).all(), (away / bound).max()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_split_or_merge_leaves_the_law_of_labels_alone(family):
    model, data, states, p = enumerated(family)
    n, rng = 1500, np.random.default_rng(1)
    centre, shards, _ = halves(model, data, 1, 3)
    before, after, accepted, known = [], [], 0, {}
    for iteration, state in enumerate(states[rng.choice(len(states), n, p=p)]):
        own = {
            name: state[start:stop].astype(np.int16)
            for name, (start, stop) in zip(ASSIGNMENTS, pairwise(ENDS), strict=True)
        }
        centre.look(own)
        for setting in centre.settings(iteration):
            centre.load(put(shards, setting, own, known))
        before.append(told(centre))
        accepted += bool(split_or_merge(centre, calls(shards), setting))
        after.append(told(centre))
    change = np.array(after) - np.array(before)
    error = change.std(axis=0, ddof=1) / np.sqrt(n)
    assert accepted > 100
    assert (np.abs(change.mean(axis=0)) < 4.0 * error + 1e-9).all(), change.mean(axis=0) / error


def told(centre):
    """How large the clusters of both types are, and their blocks."""
    (sums,), (evidence,) = centre.sums.values(), centre.evidence
    total, cells, _ = evidence._blocks(sums)
    here = np.array([centre.sizes[own.name] for own in centre.clustering.assignments])
    rows = centre.clustering is centre.clusterings[0]
    sizes = [*here.ravel(), *np.square(centre.counts), np.count_nonzero(centre.counts)]
    empty = np.zeros_like(sizes)
    return np.concatenate(
        [
            *((sizes, empty) if rows else (empty, sizes)),
            [np.square(total).sum(), (total * cells).sum(), centre.log_joint()],
        ]
    )


def put(shards, setting, labels, known):
    """Make some labels those that were last drawn; return what they add up to.

    That is `known` of a chunk with the same labels, given the same of other sets.
    """
    found = []
    for shard in shards:
        for piece in shard._pieces(setting):
            own = labels[piece.assignment][piece.start : piece.stop]
            shard._last[piece.number] = setting.iteration, own
            (context,) = (given[piece.assignment] for given in setting.contexts.values())
            key = piece.number, *own, *(label for given in context.values() for label in given)
            if key not in known:
                chunk = shard._prepared(piece, shard._chunk(piece), setting)
                sums = shard._sums(piece, chunk, own, T, setting.parameters)
                counts = np.bincount(own, minlength=T)
                known[key] = ChunkResult(piece.assignment, counts, sums, 0.0, own)
            found.append(known[key])
    return found


class NetworkSimulator(ShardSimulator):
    """Two networks over two shards."""

    def new_data(self, draw):
        for name, table in zip(self.observed, self.data(draw), strict=True):
            own = table[table[:, 0] >= 0]
            x = np.zeros(SHAPES[name])
            x[tuple(own[:, :2].astype(int).T)] = own[:, 2]
            self.values[name][:] = x
        for shard in self.shards:
            for assignment, sources in shard.sources.items():
                (scorer,) = self.centre.scorers[assignment].values()
                for name in sources:
                    sources[name] = scorer.source(name, self.values[name], None)

    def update(self, point):
        watched = {name: np.asarray(point[name], np.int16) for name in self.centre.watched}
        self.centre.look(watched)
        return super().update(point)

    def own_quantities(self, draw, first, last):
        found = {}
        of_blocks = [name for name in self.names if np.shape(draw[name]) == (T, T)]
        for name, x in self.values.items():
            rows, columns = draw[f"cluster_{name}_row"], draw[f"cluster_{name}_column"]
            same = (columns[:, None] == columns).sum() + 3.0 * (rows[0] == rows[1])
            found[f"{name}: columns together"] = same * np.arcsinh(x).sum()
            found[f"{name}: first column"] = (columns[0] == 0) * x[:, 0].mean()
            for own in of_blocks:
                cells = np.arcsinh(draw[own][np.ix_(rows, columns)])
                found[f"{name}: fit of {own}"] = (cells * np.arcsinh(x)).sum()
                found[f"{name}: {own} by squares"] = (cells * np.log1p(np.square(x))).sum()
                found[f"{name}: {own} of cells"] = cells.sum()
        return found


@pytest.mark.parametrize(
    ("family", "n"),
    [("poisson", 400), *(pytest.param(own, 4000, marks=pytest.mark.slow) for own in FAMILIES)],
)
def test_updates_leave_the_prior_alone(family, n):
    options = {"hyperpriors": True} if family != "normal" else {}
    found = NetworkSimulator(*tiny(family, **options), seed=5).scores(n)
    assert len(found) > 12
    assert max(map(abs, found.values())) < 4.0, found


# -- the entrance ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted():
    """A network of planted blocks, its rows' and columns' clusters, and a model of a part of it."""
    rng = np.random.default_rng(2)
    density = np.array([[0.7, 0.1], [0.1, 0.6], [0.5, 0.5]])
    rows, columns = rng.integers(3, size=120), rng.integers(2, size=80)
    cells = sp.csr_array(rng.random((120, 80)) < density[np.ix_(rows, columns)])
    places = rng.choice(120, 30, replace=False), rng.choice(80, 25, replace=False)
    sample = cells[places[0]][:, places[1]]
    model = pmm.models.relational_clusters({"n": sample}, relevance=False, n_clusters=4)
    start = pmm.find_matching(model, random_seed=1, progressbar=False)
    sampled = {"cluster_n_row": places[0], "cluster_n_column": places[1]}
    return model, cells, {"start": start, "sampled": sampled}, (rows, columns)


def sampled(model, cells, given, **options):
    """Draw a few times."""
    given = {"draws": 20, "tune": 10, "chunk_size": 50, "random_seed": 3} | given | options
    return pmm.sample_sharded(model, {"n": cells}, progressbar=False, **given)


def test_planted_blocks_are_found(planted, tmp_path):
    model, cells, given, truth = planted
    found = sampled(model, cells, given, labels=tmp_path / "labels")
    posterior = found["posterior"]
    for name, own in zip(("row", "column"), truth, strict=True):
        draws = posterior[f"cluster_n_{name}"].values[0]
        agree = [pmm.metrics.adjusted_rand_index({"n": own}, {"n": labels}) for labels in draws]
        assert np.mean(agree) > 0.9
        labels = draws[-1]
        sizes = posterior[f"size_n_{name}"].values[0, -1]
        np.testing.assert_array_equal(sizes, np.bincount(labels, minlength=4))
    assert set(found["sample_stats"]["n_occupied"].values.ravel()) <= set(range(5, 9))
    again = sampled(model, cells.tocsc(), given | {"start": found, "sampled": {}}, draws=2)
    assert again["posterior"]["density"].shape == (1, 2, 4, 4)
    without = sampled(model, cells, given, draws=1)
    with pytest.raises(KeyError, match="start: expected draws of 'cluster_n_"):
        sampled(model, cells, given | {"start": without})


def test_draws_are_the_same_on_workers(planted, two):
    model, cells, given, _ = planted
    given = given | {"draws": 6, "tune": 3, "n_split_merge": 0.9}
    reference = sampled(model, cells, given)
    found = sampled(model, cells, given, client=two)
    for name in reference["posterior"].data_vars:
        np.testing.assert_array_equal(found["posterior"][name], reference["posterior"][name])


def test_bad_input_is_named(planted):
    model, cells, given, _ = planted
    places = given["sampled"]
    with pytest.raises(
        ValueError, match=r"'n', row \d+, column \d+: expected ., as in row \d+, co"
    ):
        sampled(model, cells, given | {"sampled": {}})
    with pytest.raises(KeyError, match="sampled: expected assignments of objects of networks"):
        sampled(model, cells, given | {"sampled": {"cluster_x": [0]}})
    with pytest.raises(ValueError, match=r"sampled\['cluster_n_row'\]: expected 30 different"):
        sampled(model, cells, given | {"sampled": places | {"cluster_n_row": np.zeros(30, int)}})
    odd = given["start"].copy()
    odd["posterior"]["cluster_n_row"] = odd["posterior"]["cluster_n_row"] + 9
    with pytest.raises(ValueError, match=r"start: expected labels of 'cluster_n_row' in 0 ... 3"):
        sampled(model, cells, given | {"start": odd})
    with pytest.raises(ValueError, match=r"'n': expected a network of shape"):
        sampled(model, np.ones(3), given)
    with pytest.raises(TypeError, match="'n': expected numbers"):
        sampled(model, np.full((120, 80), "x"), given)
    wrong = cells.astype(float).tolil()
    # No cell of the sample.
    pairs = zip((120, 80), places.values(), strict=True)
    i, j = (int(np.setdiff1d(range(n), own)[0]) for n, own in pairs)
    wrong[i, j] = 0.5
    with pytest.raises(ValueError, match=f"'n', row {i}, column {j}: expected 0 or 1; found 0.5"):
        sampled(model, wrong.tocsr(), given)


@pytest.mark.parametrize(("family", "bad"), [("poisson", -1.0), ("poisson", 0.5), ("normal", "x")])
def test_values_that_a_family_does_not_have_are_named(family, bad):
    model, data = tiny(family)
    cells = sp.lil_array(data["a"].astype(float))
    cells[1, 0] = np.inf if bad == "x" else bad
    shards = halves(model, data, 1, 0)[1]
    scorer = shards[0].scorers["cluster_a_row"][0]
    name, place, _ = scorer.check({"a": sp.csr_array(cells)})
    assert (name, place) == ("a", (1, 0))


def test_sparse_data_are_read_in_any_form(planted):
    model, cells, given, _ = planted
    given = given | {"draws": 2, "tune": 1}
    reference = sampled(model, cells, given)["posterior"]["density"]
    coo = cells.tocoo()
    row, column = coo.coords
    zeros = sp.csr_array(cells.toarray().astype(np.int8))
    zeros.data[:] = 1
    zeros = zeros + 0 * sp.csr_array(np.ones(cells.shape, np.int8))
    stored = sp.coo_array(
        (np.append(np.ones(len(row)), 0.0), (np.append(row, 0), np.append(column, 0))), cells.shape
    )
    for other in (cells.astype(np.float32), cells.toarray(), coo, cells.tocsc(), zeros, stored):
        np.testing.assert_array_equal(
            sampled(model, other, given)["posterior"]["density"], reference
        )


def test_a_run_goes_on_if_the_sample_has_all_objects_of_an_axis(planted, tmp_path):
    _, cells, _, _ = planted
    part = cells[:40][:, :8]
    model = pmm.models.relational_clusters(
        {"n": part[:15]}, relevance=False, n_clusters=3, hyperpriors=False
    )
    options = {"draws": 2, "tune": 1, "progressbar": False, "random_seed": 1}
    first = pmm.sample_sharded(model, {"n": part}, labels=tmp_path / "labels", **options)
    found = pmm.sample_sharded(model, {"n": part}, start=first, **options)
    assert found["posterior"]["size_n_row"].values.sum() == 2 * 40


def test_a_shard_has_no_more_of_a_network_than_it_reads():
    cells = sp.csr_array(np.ones((40, 30)))
    for axis, n in ((0, 40), (1, 30)):
        whole = CellRows("n", cells, axis)
        part = whole.part(10, 20)
        np.testing.assert_array_equal(
            *(own.rows(12, 15).toarray() for own in (part, whole)), strict=True
        )
        assert part._cells.data.nbytes == 10 / n * whole._cells.data.nbytes
        for own in (whole, part):
            assert np.shares_memory(own.rows(12, 15).data, own._cells.data)
            assert np.shares_memory(own.rows(12, 15).indices, own._cells.indices)


def test_a_kind_has_to_say_whose_labels_others_depend_on(monkeypatch):
    class Silent(ShardedRelation):
        def __init__(self, *given):
            super().__init__(*given)
            self.watched = []

    monkeypatch.setattr(Networks, "sharded", Silent)
    model, data = tiny("poisson")
    with pytest.raises(pmm.UnservedModelError, match="'networks' see several sets of clusters"):
        pmm.sample_sharded(model, data, progressbar=False)


def test_log_densities_that_are_no_numbers_are_an_error():
    rng, labels, certainty = np.random.default_rng(0), np.zeros(2, np.int16), np.zeros(2)
    for bad in ((np.nan, np.nan), (-np.inf, -np.inf), (np.nan, 1.0), (1.0, np.nan)):
        table = np.array([[0.0, 1.0], bad])
        with pytest.raises(FloatingPointError, match="expected a finite log density of every"):
            draw_labels(rng, table, np.zeros(2), labels, certainty)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_have_the_probabilities_of_their_table(dtype):
    """Weights and table together; what is hopeless, or impossible, is never drawn."""
    logs = np.array([0.3, -np.inf, 1.4, -95.0, -720.0, 0.0])
    log_weights = np.log([0.2, 0.3, 0.1, 0.2, 0.1, 0.1])
    n = 200_000
    labels, certainty = np.zeros(n, np.int16), np.zeros(n)
    table = np.tile(logs, (n, 1)).astype(dtype)
    draw_labels(np.random.default_rng(0), table, log_weights, labels, certainty)
    law = np.exp(logs + log_weights)
    law /= law.sum()
    found = np.bincount(labels, minlength=6) / n
    assert (np.abs(found - law) <= 4.0 * np.sqrt(law * (1.0 - law) / n) + 1e-30).all()
    np.testing.assert_allclose(certainty, law.max(), rtol=1e-6)


def test_densities_of_0_and_1_are_no_certainties():
    model, data = tiny("bernoulli")
    centre, shards, _ = halves(model, data, 1, 0)
    density = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    with np.errstate(divide="ignore"):
        centre.point = centre.point | {"density_logodds__": np.log(density / (1.0 - density))}
    for setting in centre.settings(0):
        centre.load(calls(shards)("draw", setting, 0))
    assert np.isfinite(centre.log_joint())


# -- other models ----------------------------------------------------------------------------------


def beside_a_table():
    """Two networks of the same objects, and counts of their rows; Dirichlet and known weights."""
    rng = np.random.default_rng(1)
    data = {
        "n": rng.integers(2, size=(2, 2)),
        "m": rng.integers(2, size=(2, 2)),
        "t": rng.poisson(2.0, (2, 1)).astype(float),
    }
    with pm.Model() as model:
        rows = pm.Categorical("rows", p=pm.Dirichlet("weights", [0.8, 0.8]), shape=2)
        columns = pm.Categorical("columns", p=np.array([0.3, 0.7]), shape=2)
        density = pm.Beta("density", 0.4, 0.9, shape=(2, 2))
        for name in "nm":
            pmm.BlockNetwork(name, [rows, columns], density, observed=sp.csr_array(data[name]))
        rates = pm.Gamma("rates", 2.0, 0.5, shape=(2, 1))
        pm.Poisson("t", rates[rows], observed=data["t"])
    return model, data


def test_networks_that_share_objects_and_a_table_add_up():
    model, data = beside_a_table()

    def log_joint(rows, columns):
        sizes = np.bincount(rows, minlength=2)
        total = gammaln(0.8 + sizes).sum() + np.log([0.3, 0.7])[columns].sum()
        for k in range(2):
            x = data["t"][rows == k, 0]
            total += gammaln(2.0 + x.sum()) - (2.0 + x.sum()) * np.log(0.5 + len(x))
            total += 2.0 * np.log(0.5) - gammaln(2.0)
            for h in range(2):
                x = np.concatenate(
                    [data[name][np.ix_(rows == k, columns == h)].ravel() for name in "nm"]
                )
                total += betaln(0.4 + x.sum(), 0.9 + len(x) - x.sum())
        return total

    seen = {}
    for centre, labels in run(model, data, 400, chunk_size=1, moves=True):
        state = *labels["rows"], *labels["columns"]
        away = centre.log_joint() - log_joint(labels["rows"], labels["columns"])
        seen.setdefault(state, []).append(away)
    assert len(seen) == 16
    differences = np.concatenate(list(seen.values()))
    np.testing.assert_allclose(differences, differences[0], atol=1e-10)


def test_what_is_no_two_axes_of_known_cells_is_refused():
    rng = np.random.default_rng(0)
    one = {"n": np.triu(rng.integers(2, size=(6, 6)), 1)}
    options = {"relevance": False, "n_clusters": 3}
    square = pmm.models.relational_clusters(one, types=["object"], **options)
    with pytest.raises(pmm.UnservedModelError, match="'n': over shards, expected two axes"):
        pmm.sample_sharded(square, one, progressbar=False)
    holes = pmm.models.relational_clusters(
        {"n": sp.csr_array(one["n"])}, absent="unknown", **options
    )
    with pytest.raises(pmm.UnservedModelError, match="'n': over shards, expected a network all of"):
        pmm.sample_sharded(holes, one, progressbar=False)
    counts = pmm.models.relational_clusters(one, family="negative-binomial", **options)
    with pytest.raises(pmm.UnservedModelError, match=r"'n': over shards, .* 'negative-binomial'"):
        pmm.sample_sharded(counts, one, progressbar=False)
    flagged = pmm.models.relational_clusters(one, n_clusters=3, one_mode=False)
    with pytest.raises(pmm.UnservedModelError, match="objects that may be irrelevant"):
        pmm.sample_sharded(flagged, one, progressbar=False)
