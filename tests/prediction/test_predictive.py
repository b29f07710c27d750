"""What a draw says of new objects, against the plain formulas of all objects together."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betaln

import pm_match as pmm
from pm_match.networks.parts import Relation
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.predictive import Predictive
from pm_match.reading import read
from pm_match.reading.probe import natural_function
from tests.declared import features as tiny_features
from tests.declared import networks as tiny_networks
from tests.declared import plain as tiny
from tests.declared.features import Kind, Plain, feature_data
from tests.prediction.made_up import dense_log_density, model_of


def log_joint_of(model, point, domain, given):
    structure = read(model)
    place = find_place(structure, domain)
    predictive = Predictive(model, place.component)
    new = read_new_objects(model, predictive, place, given)
    predictive.load(point)
    return predictive.log_joint(new)


KINDS = {
    "scaled": Kind(),
    "deviations in full noise": Kind(noise="wishart", deviations="one"),
    "rigid, in covariances": Kind(projection="rigid", noise="lkj", deviations="vector"),
    "irrelevant objects": Kind(relevance="all", noise="vector"),
    "one domain's irrelevant objects": Kind(relevance="first", deviations="one"),
    "tied": Kind(tied=True, noise="vector"),
    "linked": Kind(linked=True, projection="transposed"),
}


@pytest.mark.parametrize("case", KINDS)
def test_features_of_every_kind(case):
    kind, rng = KINDS[case], np.random.default_rng(2)
    model = model_of(kind)
    point = tiny_features.random_point(model, rng)
    x = rng.normal(size=(2, 2))
    found = log_joint_of(model, point, "a", x)
    plain = Plain(kind, model, point)
    labels = plain.labels()
    before = plain.log_prior(labels) + plain.log_normals(labels)
    for i, j in np.ndindex(2, kind.truncation + 1):
        if j == kind.truncation and not kind.flagged("a"):
            assert found[i, j] == -np.inf
            continue
        data = feature_data(kind)
        data["a"] = np.vstack([data["a"], x[i]])
        grown = Plain.__new__(Plain)
        grown.__dict__.update(plain.__dict__)
        grown.domains = [*plain.domains]
        grown.domains[0] = _grown(plain.domains[0], x[i])
        n = len(feature_data(kind)["a"])
        label = j if j < kind.truncation else -1
        own = np.insert(labels, n, label)
        after = grown.log_prior(own) + grown.log_normals(own)
        np.testing.assert_allclose(found[i, j], after - before, rtol=1e-9, atol=1e-9)


def test_a_new_vector_counts_in_full_among_coarsened_ones():
    kind, rng = (
        Kind(powers=(0.5, 0.7), noise="wishart", projection="rigid"),
        np.random.default_rng(5),
    )
    model = model_of(kind)
    point = tiny_features.random_point(model, rng)
    x = rng.normal(size=(1, 2))
    (found,) = log_joint_of(model, point, "a", x)
    plain = Plain(kind, model, point)
    labels = plain.labels()
    before = plain.log_prior(labels) + plain.log_normals(labels)
    grown = Plain.__new__(Plain)
    grown.__dict__.update(plain.__dict__)
    # A domain of its own, which is seen as the first one.
    grown.domains = [*plain.domains, replace(plain.domains[0], x=x, power=1.0)]
    for j in range(kind.truncation):
        own = np.append(labels, j)
        after = plain.log_prior(own) + grown.log_normals(own)
        assert found[j] == pytest.approx(after - before, rel=1e-9)


def _grown(domain, x):
    return type(domain)(**(vars(domain) | {"x": np.vstack([domain.x, x])}))


@pytest.mark.parametrize("missing", [True, False])
def test_plain_features(missing):
    rng = np.random.default_rng(4)
    model = tiny.tiny_model(missing=missing)
    point = tiny.random_point(model, rng)
    x = np.array([[0.3, -1.0], [np.nan, 2.0], [np.nan, np.nan]])
    found = log_joint_of(model, point, "a", x)
    names = ["precision", "projection_a", "projection_b"]
    alpha, *w = natural_function(model, names)(point)
    tables = list(tiny.tiny_data(missing).values())
    labels = [np.asarray(point[f"cluster_{name}"]) for name in "ab"]
    marginals = [(v, np.zeros(len(v)), np.eye(len(v)) / alpha) for v in w]
    before = dense_log_density(tables, labels, marginals, 0.6 * alpha)
    before += _log_weights(np.concatenate(labels))
    for i, j in np.ndindex(3, tiny.TRUNCATION):
        own = [np.append(labels[0], j), labels[1]]
        after = dense_log_density([np.vstack([tables[0], x[i]]), tables[1]], own, marginals,
                                  0.6 * alpha)  # fmt: skip
        after += _log_weights(np.concatenate(own))
        np.testing.assert_allclose(found[i, j], after - before, rtol=1e-9, atol=1e-9)


def _log_weights(labels):
    counts = np.bincount(labels, minlength=tiny.TRUNCATION)
    return tiny.plain_log_prior(np.ones(2), np.full(2, 1.4), counts)


NETWORKS = {
    "bernoulli": {},
    "unknown cells": {"unknown": True},
    "counts": {"family": "poisson"},
    "counts with exposures": {"family": "poisson", "exposure": True},
    "overdispersed counts": {"family": "negative-binomial", "exposure": True, "unknown": True},
    "weights": {"family": "normal"},
    "unknown weights": {"family": "normal", "unknown": True},
    "three-way": {"kind": "three-way"},
    "directed": {"kind": "directed"},
    "directed, self-loops": {"kind": "directed", "loops": True, "family": "normal"},
    "undirected": {"kind": "undirected"},
    "undirected counts": {"kind": "undirected", "family": "poisson", "unknown": True},
    "shared clusters": {"kind": "shared clusters"},
    "all relevant": {"relevance": False, "weights": "known"},
    "relevant columns": {"relevance": "rows", "weights": "dirichlet"},
    "two relations": {"relations": 2},
    "with features": {"relevance": False, "features": {"a": np.eye(3)[:, :2], "b": np.eye(2)}},
}


@pytest.mark.parametrize("case", NETWORKS)
def test_networks_of_every_kind(case, monkeypatch):
    options, rng = NETWORKS[case], np.random.default_rng(3)
    model = tiny_networks.network_model(**options)
    point = tiny_networks.random_point(model, rng)
    if "exposure" in options:
        # Exposures of new objects are only known where they are degrees.
        monkeypatch.setattr(
            "pm_match.networks.predictor._exposure", lambda *given: np.array([0.8, 1.7])
        )
    step = tiny_networks.cluster_step(model)
    for number, clustering in enumerate(step.part.clusterings):
        # The last domain's: the numbers of all other objects then stay as they are.
        name = clustering.assignments[-1].name
        _check_networks(model, step, point, number, name, options, rng)


def _check_networks(model, step, point, number, name, options, rng):
    structure = read(model)
    collapsed = step._collapsed
    labels = collapsed.labels(point)
    clustering = step.part.clusterings[number]
    start = clustering.n_objects - clustering.assignments[-1].n_objects
    given, grown = {}, []
    for relation, evidence in zip(
        step.part.of(Relation), tiny_networks.relation_evidence(step), strict=True
    ):
        key = next(k for k in relation.networks if k.startswith("b"))
        cells = relation.networks[key]
        axes = [
            a
            for a, (home, first) in enumerate(zip(relation.axes, cells.first, strict=True))
            if home == number and first == start
        ]
        if not axes:
            continue
        sides = {}
        for axis in axes[:1] if relation.symmetric else axes:
            shape = (2, *(n for a, n in enumerate(cells.shape) if a != axis))
            sides[axis] = tiny_networks_values(rng, shape, options)
        pair = tuple(sides.values())
        given[key] = pair if relation.one_mode and not relation.symmetric else pair[0]
        grown.append((evidence, cells, sides, axes))
    features = options.get("features")
    if features is not None and number == 0:
        given["b_features"] = rng.normal(size=(2, features["b"].shape[1]))
    names = list(given)
    domain = name.removeprefix("cluster_")
    found = log_joint_of(model, point, domain, given if len(names) > 1 else given[names[0]])
    before = _log_joint(step, point, labels, step.part.of(Relation))
    for i, j in np.ndindex(found.shape):
        flagged = clustering.assignments[-1].relevance is not None
        if j == clustering.truncation and not flagged:
            assert found[i, j] == -np.inf
            continue
        own = list(labels)
        own[number] = np.append(labels[number], j if j < clustering.truncation else -1)
        kept = [list(e.networks) for e, *_ in grown]
        for evidence, cells, sides, axes in grown:
            evidence.networks[-1] = _with_row(cells, sides, i, axes, evidence)
        after = _log_joint(step, point, own, step.part.of(Relation))
        for (evidence, *_), networks in zip(grown, kept, strict=True):
            evidence.networks[:] = networks
        if "b_features" in given:
            after += _log_feature(model, point, given["b_features"][i], labels[number], j, features)
        np.testing.assert_allclose(found[i, j], after - before, rtol=1e-8, atol=1e-8)
    assert structure is read(model)


def tiny_networks_values(rng, shape, options):
    family = options.get("family", "bernoulli")
    x = {
        "bernoulli": lambda: (rng.random(shape) < 0.5).astype(float),
        "poisson": lambda: rng.poisson(1.0, shape).astype(float),
        "negative-binomial": lambda: rng.negative_binomial(1.0, 0.5, shape).astype(float),
        "normal": lambda: rng.normal(size=shape),
    }[family]()
    if options.get("unknown"):
        x[0, 0] = np.nan
    return x


def _with_row(cells, sides, i, axes, evidence):
    """A network with one more object: new object `i`."""
    shape = list(cells.shape)
    for axis in axes:
        shape[axis] += 1
    index, values, unknown = [*cells.index], [*cells.values], [*cells.unknown]
    for axis, x in sides.items():
        for other in np.ndindex(x.shape[1:]):
            cell = np.insert(np.array(other), axis, cells.shape[axis])
            if evidence.symmetric:
                cell = np.sort(cell)
            value = x[(i, *other)]
            if np.isnan(value):
                unknown += [cell] if cells.full else []
            else:
                index, values = [*index, cell], [*values, value]
    if len(axes) == 2 and cells.full:
        # What an object has with itself is not known.
        unknown.append(np.array(cells.shape))
    exposure = tuple(
        np.append(e, [0.8, 1.7][i]) if axis in axes and e is not None else e
        for axis, e in enumerate(cells.exposure)
    )
    n_axes = len(shape)
    return type(cells)(
        tuple(shape),
        np.array(index).reshape(-1, n_axes),
        np.array(values),
        cells.full,
        np.array(unknown, np.int64).reshape(-1, n_axes),
        exposure,
        cells.first,
    )


def _log_joint(step, point, labels, relations):
    total = 0.0
    for clustering, label in zip(step.part.clusterings, labels, strict=True):
        counts = np.bincount(label[label >= 0], minlength=clustering.truncation)
        if clustering.weights:
            total += tiny.plain_log_prior(*clustering.prior(point), counts)
        else:
            total -= counts.sum() * np.log(clustering.truncation)
        for e, f, _ in clustering.relevance_prior(point):
            total += betaln(e + (label >= 0).sum(), f + (label < 0).sum()) - betaln(e, f)
    for evidence, relation in zip(tiny_networks.relation_evidence(step), relations, strict=True):
        total += evidence.log_marginal(labels, *relation.prior(point))
    return total


def _log_feature(model, point, x, labels, j, features):
    names = ["precision", "projection_a", "projection_b"]
    alpha, *w = natural_function(model, names)(point)
    tables = [features["a"], features["b"]]
    own = np.split(labels, [3])
    marginals = [(v, np.zeros(len(v)), np.eye(len(v)) / alpha) for v in w]
    before = dense_log_density(tables, own, marginals, 0.6 * alpha)
    grown = [tables[0], np.vstack([tables[1], x])]
    return dense_log_density(grown, [own[0], np.append(own[1], j)], marginals, 0.6 * alpha) - before


def test_degrees_of_new_objects():
    rng = np.random.default_rng(0)
    x = rng.poisson(1.5, (6, 5))
    model = pmm.models.relational_clusters(
        {"a": x, "b": x[:4]}, family="poisson", exposure="degree", n_clusters=3
    )
    row = rng.poisson(2.0, (2, 5)).astype(float)
    place = find_place(read(model), "a_row")
    new = read_new_objects(model, Predictive(model, place.component), place, row)
    (cells,) = new.seen[0].forward
    found = cells.exposures(0)[:, None] * cells.exposures(1)
    np.testing.assert_allclose(found, row.sum(axis=1)[:, None] * x.sum(axis=0) / x.sum())


@pytest.mark.parametrize("exposure", [None, "degree"])
def test_dispersion_of_new_objects(exposure):
    rng = np.random.default_rng(0)
    x = rng.poisson(1.5, (6, 5))
    model = pmm.models.relational_clusters(
        {"a": x, "b": x[:4]},
        family="negative-binomial",
        dispersion=0.4,
        exposure=exposure,
        n_clusters=3,
    )
    row = rng.poisson(2.0, (2, 5)).astype(float)
    place = find_place(read(model), "a_row")
    new = read_new_objects(model, Predictive(model, place.component), place, row)
    (cells,) = new.seen[0].forward
    found = cells.exposures(0)[:, None] * cells.exposures(1)
    degrees = row.sum(axis=1)[:, None] * x.sum(axis=0) / x.sum()
    np.testing.assert_allclose(found, 0.4 * degrees if exposure else np.full((2, 5), 0.4))


@pytest.mark.parametrize(
    "options",
    [
        {"family": "negative-binomial", "dispersion": 0.4},
        {"family": "poisson", "exposure": {d: [np.full(4, 2.0), None] for d in "ab"}},
    ],
    ids=["dispersion", "exposures"],
)
def test_equal_degrees_say_nothing_of_equal_exposures(options):
    """Of counts, they were taken for degrees."""
    for edge in (0.0, 1.0):
        x = np.eye(4)
        x[0, 1] = edge
        model = pmm.models.relational_clusters({"a": x, "b": x}, n_clusters=3, **options)
        place = find_place(read(model), "a_row")
        predictive = Predictive(model, place.component)
        if edge:
            (cells,) = read_new_objects(model, predictive, place, x[:2]).seen[0].forward
            assert len({*cells.exposures(0)}) == 1
            continue
        with pytest.raises(ValueError, match="expected objects of different degrees"):
            read_new_objects(model, predictive, place, x[:2])


def test_small_exposures_are_no_degrees_either():
    x = np.random.default_rng(0).poisson(1.5, (6, 5))
    exposure = {"a": [1e-9 * np.arange(1.0, 7.0), None]}
    model = pmm.models.relational_clusters(
        {"a": x}, family="poisson", exposure=exposure, n_clusters=3
    )
    place = find_place(read(model), "a_row")
    with pytest.raises(ValueError, match="exposures that are not the objects' degrees"):
        read_new_objects(model, Predictive(model, place.component), place, x[:2].astype(float))
