"""Missing values of normal vectors: against covariances, quadrature and every assignment."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy.special import betaln, multigammaln
from scipy.stats import chi2, multivariate_normal

import pm_match as pmm
from pm_match.models.declare import imputing
from pm_match.normal import given_observed
from pm_match.normal.given_observed import Incomplete
from pm_match.normal.parts import Normals
from pm_match.normal.sharded import ShardedNormals
from pm_match.reading import read
from pm_match.reading.probe import point_function
from tests.declared import hierarchies
from tests.declared.normals import (
    CENTER,
    DEGREES,
    STRENGTH,
    TRUNCATION,
    holed,
    loaded,
    natural,
    normals_model,
    parameters,
    random_point,
    scale_matrix,
)
from tests.declared.plain import sampling_noise, total_variation

nan = np.nan


def steps_of(model, seed=0):
    """Draws of missing values, and of the clusters."""
    found = pmm.steps(model)
    for step, rng in zip(found, np.random.default_rng(seed).spawn(len(found)), strict=True):
        step.setup_chain(rng, 0, 0)
        step.started = True
    missing, clusters = found
    assert isinstance(missing, pmm.MissingValueGibbs)
    return missing, clusters


def some_clusters(rng, n, d):
    roots = rng.normal(size=(n, d, d))
    return rng.normal(size=(n, d)), np.linalg.inv(roots @ np.swapaxes(roots, 1, 2) + 0.1)


# -- given the parameters --------------------------------------------------------------------------


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize(("shared", "most"), [(False, 10**6), (True, 10**6), (False, 2 * 48)])
def test_formulas_by_covariances(shared, most, tails, monkeypatch):
    rng = np.random.default_rng(0)
    means, precisions = some_clusters(rng, 3, 4)
    if shared:
        precisions = precisions[1]
    whole = rng.normal(size=(7, 4))
    hidden = rng.random((7, 4)) < 0.4
    hidden[2], hidden[4] = True, False
    rows = np.array([6, 2, 4, 0, 1])
    seen_rows = []
    x = np.where(hidden, nan, whole)
    monkeypatch.setattr(given_observed, "_MOST", most)
    factors = rng.gamma(2.0, 0.5, len(x)) if tails else None
    for part in Incomplete.of(x, rows).given(means, precisions, factors):
        labels = rng.integers(3, size=len(part.rows))
        expected, of_missing = part.expected(labels), part.log_missing(whole[part.rows], labels)
        density = part.log_density()
        for place, row in enumerate(part.rows):
            o, m = np.flatnonzero(~hidden[row]), np.flatnonzero(hidden[row])
            np.testing.assert_array_equal(part.hidden[place], hidden[row])
            np.testing.assert_array_equal(expected[place, o], whole[row, o])
            for j in range(3):
                covariance = np.linalg.inv(precisions if shared else precisions[j])
                covariance /= factors[row] if tails else 1.0
                marginal = 0.0
                if len(o):
                    own = means[j, o], covariance[np.ix_(o, o)]
                    marginal = multivariate_normal.logpdf(whole[row, o], *own)
                assert density[place, j] == pytest.approx(marginal, abs=1e-10)
                if j == labels[place]:
                    slope = covariance[np.ix_(m, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
                    middle = means[j, m] + slope @ (whole[row, o] - means[j, o])
                    np.testing.assert_allclose(expected[place, m], middle, atol=1e-10)
                    own = covariance[np.ix_(m, m)] - slope @ covariance[np.ix_(o, m)]
                    found = part.deviations(labels)[place, m]
                    np.testing.assert_allclose(found, np.sqrt(np.diag(own)), atol=1e-10)
                    joint = multivariate_normal.logpdf(whole[row], means[j], covariance)
                    assert of_missing[place] == pytest.approx(joint - marginal, abs=1e-9)
        seen_rows += part.rows.tolist()
    assert sorted(seen_rows) == sorted(rows)


def conditional_laws(model, point):
    """Means and covariances of all clusters, and their log weights."""
    values = natural(model, point)
    covariances = np.linalg.inv(values["precision_x"])
    return values["mean_x"], covariances, np.log(values["weights"])


def test_labels_and_values_are_drawn_jointly_from_their_conditional():
    model = normals_model("missing")
    step, _ = steps_of(model)
    point = random_point(model, np.random.default_rng(2))
    (values,) = read(model).of(Normals)[0].values
    means, covariances, logs = conditional_laws(model, point)
    n_draws = 6_000
    kept, label, drawn = point["cluster_a"].copy(), [], []
    for _ in range(n_draws):
        new, _ = step.step(point)
        label.append(new["cluster_a"][[0, 3]])
        drawn.append(new["x_unobserved"])
        assert (new["cluster_a"][[1, 2, 4]] == kept[[1, 2, 4]]).all()
    label, drawn = np.array(label), np.array(drawn)
    assert set(new) == set(point)
    # The object with one value, and the one with none.
    of_first = logs + [
        multivariate_normal.logpdf(values.data[0, 0], m[0], c[0, 0])
        for m, c in zip(means, covariances, strict=True)
    ]
    for place, own in enumerate((of_first, logs)):
        law = np.exp(own - np.logaddexp.reduce(own))
        share = np.bincount(label[:, place], minlength=TRUNCATION) / n_draws
        assert np.abs(share - law).max() < 4.5 * np.sqrt(0.25 / n_draws)
    enough = [np.flatnonzero(np.bincount(own) > 500) for own in label.T]
    assert len(enough[0]) > 1
    assert len(enough[1]) > 1
    for j in enough[0]:
        m, c, own = means[j], covariances[j], drawn[label[:, 0] == j, 0]
        slope = c[1, 0] / c[0, 0]
        middle, variance = m[1] + slope * (values.data[0, 0] - m[0]), c[1, 1] - slope * c[0, 1]
        check_normal(own[:, None], np.array([middle]), np.array([[variance]]))
    for j in enough[1]:
        check_normal(drawn[label[:, 1] == j, 1:], means[j], covariances[j])


def check_normal(draws, mean, covariance):
    n, d = draws.shape
    away = draws - mean
    error = 4.5 * np.sqrt(np.diag(covariance) / n)
    assert (np.abs(away.mean(axis=0)) < error).all()
    squares = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    assert abs(squares.mean() - d) < 4.5 * np.sqrt(chi2.var(d) / n)
    whole = away.T @ away / n
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert (np.abs(whole - covariance) < 4.5 * np.sqrt(2.0 / n) * scale).all()


# -- the law ---------------------------------------------------------------------------------------


def marginal(x, prior):
    """Likelihood of vectors (..., n, D) of one cluster, parameters integrated out."""
    strength, degrees, center, inverse = prior
    *_, n, d = x.shape
    away = x.mean(axis=-2) - center
    inside = x - x.mean(axis=-2, keepdims=True)
    psi = inverse + np.swapaxes(inside, -1, -2) @ inside
    psi = psi + strength * n / (strength + n) * away[..., :, None] * away[..., None, :]
    total = multigammaln(0.5 * (degrees + n), d) - multigammaln(0.5 * degrees, d)
    total += 0.5 * degrees * np.linalg.slogdet(inverse)[1] + 0.5 * d * np.log(
        strength / (strength + n)
    )
    return total - 0.5 * (degrees + n) * np.linalg.slogdet(psi)[1] - 0.5 * n * d * np.log(np.pi)


GRID = np.sinh(np.linspace(-4.0, 4.0, 161))


def integrated(x, prior):
    """Log of that, vectors (n, D) of which NaN are integrated out by quadrature."""
    x = x[~np.isnan(x).all(axis=1)]
    holes = np.argwhere(np.isnan(x))
    if not len(x):
        return 0.0
    grids = np.meshgrid(*[GRID] * len(holes), indexing="ij")
    full = np.broadcast_to(x, (*[len(GRID)] * len(holes), *x.shape)).copy()
    for (row, column), own in zip(holes, grids, strict=True):
        full[..., row, column] = own
    values = np.exp(marginal(full, prior))
    for _ in holes:
        values = np.trapezoid(values, GRID, axis=-1)
    return np.log(values)


def law_of(data, concentration=1.4):
    """Probability of every assignment of the objects given observed values, by quadrature."""
    d = data.shape[1]
    prior = STRENGTH["x"], DEGREES["x"], np.array(CENTER["x"]), np.linalg.inv(scale_matrix(d))
    kept, logs = {}, []
    for labels in product(range(TRUNCATION), repeat=len(data)):
        total = 0.0
        for j in range(TRUNCATION):
            members = tuple(np.flatnonzero(np.array(labels) == j))
            if members not in kept:
                kept[members] = integrated(data[list(members)], prior)
            total += kept[members]
        counts = np.bincount(labels, minlength=TRUNCATION)
        for j in range(TRUNCATION - 1):
            after = counts[j + 1 :].sum()
            total += betaln(1.0 + counts[j], concentration + after) - betaln(1.0, concentration)
        logs.append(total)
    weights = np.exp(np.array(logs) - np.max(logs))
    return weights / weights.sum()


def visits(model, n_steps, seed=0):
    missing, clusters = steps_of(model, seed)
    point = random_point(model, np.random.default_rng(6))
    powers = TRUNCATION ** np.arange(len(point["cluster_a"]))[::-1]
    after = np.zeros((2, TRUNCATION ** len(powers)))
    for _ in range(n_steps):
        for place, step in enumerate((missing, clusters)):
            point, _ = step.step(point)
            after[place, point["cluster_a"] @ powers] += 1
    return after


def declared(data, concentration=1.4, more=None, shared=False):
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(concentration), TRUNCATION - 1)
        a = pm.Categorical("cluster_a", p=weights, shape=len(data))
        mean, noise = parameters("x", data.shape[1], shared=shared)
        with imputing():
            pm.MvNormal("x", mean[a], **noise(a), observed=data)
        if more is not None:
            more(a)
    return model


def tiny_data():
    x = np.random.default_rng(4).normal(size=(4, 2)) * 1.5
    return holed(x, (0, 1), (1, 0), (3, 0), (3, 1))


@pytest.mark.parametrize("n_steps", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_law_of_the_assignment_given_what_is_observed(n_steps):
    """As often as its probability, after either step, is the chain in every assignment."""
    data = tiny_data()
    law = law_of(data.filled(nan))
    limit = 2.0 * sampling_noise(law, n_steps)
    for found in visits(declared(data), n_steps):
        assert total_variation(found, law) < limit
    # The check can fail: where a missing value is taken to be 0, or the prior is another.
    if n_steps > 10_000:
        for other in (law_of(data.filled(0.0)), law_of(data.filled(nan), 1.9)):
            assert total_variation(found, other) > limit


# -- labels that stay ------------------------------------------------------------------------------


def labels_drawn(model, n=200):
    """Which objects' labels change, and whether all missing values do."""
    step = pmm.MissingValueGibbs([model["x_unobserved"]], model=model, rng=1)
    point = {name: np.asarray(value) for name, value in model.initial_point(0).items()}
    key = next(name for name in point if name.startswith("cluster_a"))
    changed = np.zeros(point[key].shape, bool)
    for _ in range(n):
        new, _ = step.step(point)
        changed |= new[key] != point[key]
        assert (new["x_unobserved"] != point["x_unobserved"]).all()
    return changed


def test_labels_of_linked_objects_are_drawn_together():
    """By the values of all, also of those of which nothing is missing."""
    data, n_draws = tiny_data(), 6_000
    model = declared(data, more=lambda a: pmm.must_link("links", {a: [[0, 2]]}))
    step, _ = steps_of(model)
    point = random_point(model, np.random.default_rng(3))
    counts = np.zeros(TRUNCATION)
    for _ in range(n_draws):
        label = step.step(point)[0]["cluster_a"]
        assert label[0] == label[2]
        counts[label[0]] += 1
    means, covariances, logs = conditional_laws(model, point)
    own = 2.0 * logs + [
        multivariate_normal.logpdf(data[0, 0], m[0], c[0, 0])
        + multivariate_normal.logpdf(data[2], m, c)
        for m, c in zip(means, covariances, strict=True)
    ]
    law = np.exp(own - np.logaddexp.reduce(own))
    assert law.max() < 0.95
    assert np.abs(counts / n_draws - law).max() < 4.5 * np.sqrt(0.25 / n_draws)


def test_labels_stay_where_more_is_seen_than_normal_vectors():
    def network(cluster):
        density = pm.Beta("density", 1.0, 1.0, shape=(TRUNCATION, TRUNCATION))
        edges = np.triu(np.ones((4, 4)), 2)
        pmm.BlockNetwork("edges", [cluster, cluster], density, observed=edges)

    model = declared(tiny_data(), more=network)
    assert not labels_drawn(model).any()
    assert pmm.MissingValueGibbs.writes(read(model), read(model).components[0]) == []


def test_labels_of_objects_that_are_apart_stay():
    model = declared(tiny_data(), more=lambda a: pmm.cannot_link("apart", {a: [[0, 2]]}))
    step, _ = steps_of(model)
    (clustering,) = read(model).clusterings
    point = random_point(model, np.random.default_rng(0))
    labels = clustering.respected(point["cluster_a"])
    point = point | {"cluster_a": labels}
    changed = np.zeros(4, bool)
    for _ in range(200):
        changed |= step.step(point)[0]["cluster_a"] != labels
    np.testing.assert_array_equal(changed, [False, True, False, True])


def test_known_labels_stay():
    known = np.ma.masked_array([2, 0, 0, 1], [False, True, True, True])
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.4), TRUNCATION - 1)
        with imputing():
            a = pm.Categorical("cluster_a", p=weights, observed=known)
            mean, noise = parameters("x", 2, shared=False)
            pm.MvNormal("x", mean[a], **noise(a), observed=tiny_data())
    # Of the free labels, those of the second object and of the last one.
    np.testing.assert_array_equal(labels_drawn(model), [True, False, True])


# -- what is read ----------------------------------------------------------------------------------


SHAPES = {
    "a value": ((1, 0),),
    "a row": ((2, 0), (2, 1)),
    "both": ((1, 0), (2, 0), (2, 1)),
    "a column": tuple((n, 1) for n in range(5)),
    "all but one": tuple((n, m) for n, m in np.ndindex(5, 2) if (n, m) != (3, 1)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_missing_is_read_and_drawn(shape):
    x = np.random.default_rng(1).normal(size=(5, 2))
    data = holed(x, *SHAPES[shape])
    model = declared(data)
    (normals,) = read(model).of(Normals)
    (values,) = normals.values
    np.testing.assert_array_equal(values.data, data.filled(nan))
    np.testing.assert_array_equal(values.objects, np.arange(5))
    assert (values.name, normals.missing, normals.searchable) == ("x", ["x_unobserved"], True)
    point = random_point(model, np.random.default_rng(2))
    full = values.vectors(point)
    (joined,) = natural_of(model, "x", point)
    np.testing.assert_array_equal(full, joined)
    np.testing.assert_array_equal(full[~data.mask], x[~data.mask])
    for step in steps_of(model):
        point, _ = step.step(point)
    (joined,) = natural_of(model, "x", point)
    np.testing.assert_array_equal(values.vectors(point), joined)


def natural_of(model, name, point):
    return point_function(model, [model[name]])(point)


def refused(declare):
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.4), TRUNCATION - 1)
        a = pm.Categorical("cluster_a", p=weights, shape=4)
        with imputing():
            declare(a)
    structure = read(model)
    found = {**structure.refusals, **structure.notes}
    return found["cluster_a"]


def test_a_table_without_any_value_is_refused():
    def declare(a):
        mean, noise = parameters("x", 2, shared=False)
        data = np.ma.masked_invalid(np.full((4, 2), nan))
        pm.MvNormal("x", mean[a], **noise(a), observed=data)

    assert "'x': expected some observed value" in refused(declare)


def test_what_is_coarsened_is_refused():
    def declare(a):
        mean, noise = parameters("x", 2, shared=False)
        rv = pm.MvNormal("x", mean[a], **noise(a), observed=holed(np.eye(4)[:, :2], (1, 0), (1, 1)))
        pmm.coarsen("coarsened", pm.modelcontext(None)["x_observed"], 0.5)
        return rv

    message = "'x_unobserved' holds missing values; expected none where domains are seen through"
    assert message in refused(declare)


def test_what_is_seen_through_a_map_is_refused():
    def declare(a):
        mean, noise = parameters("x", 2, shared=False)
        shift = pm.Normal("shift", 0.0, 1.0, shape=2)
        pm.MvNormal("x", mean[a] + shift, **noise(a), observed=holed(np.eye(4)[:, :2], (1, 0)))

    message = "'x_unobserved' holds missing values; expected none where domains are seen through"
    assert message in refused(declare)


def test_what_depends_on_missing_values_is_refused():
    def declare(a):
        mean, noise = parameters("x", 2, shared=False)
        x = pm.MvNormal("x", mean[a], **noise(a), observed=holed(np.eye(4)[:, :2], (1, 0)))
        pm.Normal("y", x[1, 0], 1.0, observed=0.3)

    assert "'y' depends on 'x_unobserved' too" in refused(declare)


@pytest.mark.parametrize("row", [1, 2])
def test_rows_with_another_density_are_refused(row):
    """Of row 1, nothing is observed."""

    def declare(a):
        mean, noise = parameters("x", 2, shared=False)
        own = np.ones((4, 1, 1))
        own[row] = 9.0
        ((key, matrices),) = noise(a).items()
        data = holed(np.arange(8.0).reshape(4, 2) ** 2, (1, 0), (1, 1))
        pm.MvNormal("x", mean[a], **{key: matrices * own}, observed=data)

    assert "is not normal around" in refused(declare)


def test_nan_that_is_not_declared_missing_is_refused():
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.4), TRUNCATION - 1)
        a = pm.Categorical("cluster_a", p=weights, shape=4)
        mean, noise = parameters("x", 2, shared=False)
        data = pm.Data("data", np.ones((4, 2)))
        pm.MvNormal("x", mean[a], **noise(a), observed=data)
    # As PyMC's own set_data masks these.
    data.set_value(np.where(np.eye(4)[:, :2] > 0.0, nan, 1.0))
    assert (
        "'x' holds nan; expected finite numbers, or NaN or a mask"
        in (read(model).refusals["cluster_a"])
    )


def test_em_does_without():
    with pytest.raises(pmm.UnservedModelError, match="'x' has missing values; expected none"):
        pmm.fit_em(declared(tiny_data(), shared=True), progressbar=False)


def test_shards_do_without():
    model = declared(tiny_data())
    (component,) = read(model).components
    with pytest.raises(pmm.UnservedModelError, match=r"'x': .*without a map, missing values"):
        ShardedNormals(model, component.evidence[0], component)


def test_log_predictive_does_without():
    model = declared(tiny_data())
    idata = pmm.sample(2, tune=1, chains=1, cores=1, model=model, random_seed=1, quiet=True)
    with pytest.raises(pmm.UnservedModelError, match="'x': expected rows of variables that depend"):
        pmm.log_predictive(idata, model, progressbar=False)


def test_a_hierarchy_does_without():
    with imputing():
        model = hierarchies.declared(observed=holed(hierarchies.X, (1, 0)))
    found = read(model)
    assert not found.parts
    # Its labels are drawn together, from a table.
    assert not found.refusals
    assert "'x_unobserved' holds missing values" in found.notes["u"]


# -- searches and whole chains ---------------------------------------------------------------------


def three_clusters(missing, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0, 0.0], [6.0, 0.0, 3.0], [0.0, 7.0, -4.0]])
    labels = rng.integers(3, size=120)
    x = centres[labels] + rng.normal(size=(120, 3)) * np.array([0.5, 1.0, 0.7])[labels, None]
    holes = rng.random(x.shape) < missing
    holes[holes.all(axis=1), 0] = False
    return np.where(holes, nan, x), x, labels


@pytest.mark.parametrize("missing", [0.15, 0.45])
def test_searches_draw_what_is_missing(missing):
    """Held at what is expected of them, missing values of half of the table end in one cluster."""
    x, whole, labels = three_clusters(missing)
    model = pmm.models.normal_clusters({"a": x[:70], "b": x[70:]}, tails=None)
    found = pmm.find_matching(model, starts=4, random_seed=1, progressbar=False)
    best = pmm.partition_estimate(found)
    # Of half of a table, four searches find .48 to .70, by the seed; one cluster has 0.
    least = 0.9 if missing < 0.2 else 0.4
    for name, part in (("a", slice(70)), ("b", slice(70, None))):
        own = best[f"cluster_{name}"].to_numpy()
        index = pmm.metrics.adjusted_rand_index({name: labels[part]}, {name: own})
        assert index > least
        scale = np.nanstd(x[part], axis=0)
        filled = found["posterior"][name].values[0, 0] * scale + np.nanmean(x[part], axis=0)
        holes = np.isnan(x[part])
        np.testing.assert_allclose(filled[~holes], whole[part][~holes], atol=1e-9)
        # A draw is twice as far off as what is expected, in squares.
        error = (filled - whole[part])[holes] / np.broadcast_to(scale, holes.shape)[holes]
        assert np.sqrt(np.mean(error**2)) < 1.0


def test_log_joints_of_searches_are_those_of_chains():
    x, _, labels = three_clusters(0.3)
    model = pmm.models.normal_clusters({"a": x}, tails=None)
    found = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    steps = steps_of(model)
    point = {name: np.asarray(value) for name, value in model.initial_point(0).items()}
    point = draw_rest(loaded(steps[1], point | {"cluster_a": labels}).collapsed, point)
    logs = []
    for _ in range(60):
        for step in steps:
            point, stats = step.step(point)
        logs.append(float(stats[0]["log_joint"]))
    away = float(found["starts"]["log_joint"].max()) - np.mean(logs[20:])
    assert abs(away) < 4.0 * np.std(logs[20:])


def test_chains_that_start_anywhere_are_begun_by_cluster_gibbs():
    x, _, _ = three_clusters(0.2)
    sizes = []
    for table in (x, np.where(np.isnan(x), 0.0, x)):
        model = pmm.models.normal_clusters({"a": table}, tails=None)
        point = {name: np.asarray(value) for name, value in model.initial_point(0).items()}
        assert len(np.unique(point["cluster_a"])) == 1
        for step in pmm.steps(model):
            step.setup_chain(np.random.default_rng(1), 0, 0)
            point, _ = step.step(point)
        sizes.append(len(np.unique(point["cluster_a"])))
    assert min(sizes) > 4


def test_chains_may_start_where_labels_are_not_apart():
    model = declared(tiny_data(), more=lambda a: pmm.cannot_link("apart", {a: [[0, 2]]}))
    idata = pmm.sample(
        3,
        tune=2,
        chains=1,
        model=model,
        random_seed=1,
        initvals=model.initial_point(0),
        progressbar=False,
        compute_convergence_checks=False,
    )
    labels = idata["posterior"]["cluster_a"].values
    assert (labels[..., 0] != labels[..., 2]).all()


def test_log_joints_hardly_depend_on_what_is_missing():
    """What modes are compared by is the evidence of observed values, as far as can be told."""
    model = normals_model("missing")
    rng, found = np.random.default_rng(5), []
    missing, clusters = steps_of(model)
    point = random_point(model, rng)
    for _ in range(300):
        point = missing.step(point)[0] | {"cluster_a": point["cluster_a"]}
        own = loaded(clusters, point).collapsed
        found.append((own.log_joint(), own.log_joint() + own.log_prior(point)))
        point = draw_rest(own, point)
    plain, corrected = np.std(found, axis=0)
    assert corrected < 0.6 * plain


def draw_rest(collapsed, point):
    new = dict(point)
    collapsed.draw(np.random.default_rng(0), point, new)
    return new
