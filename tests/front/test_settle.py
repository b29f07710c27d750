"""What searches choose of what a look at data leaves open."""

import logging
import re
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pm_match as pmm


def test_searches_settle_whether_numbers_go_together():
    rng = np.random.default_rng(0)

    def crabs(n):
        """Two kinds, of any size, that differ in shape."""
        kind, size = rng.integers(2, size=n), 3.0 * rng.normal(size=n)
        x = {"length": size, "width": size + 2.0 * kind} | {"depth": size - 2.0 * kind}
        return pd.DataFrame(x) + 0.3 * rng.normal(size=(n, 3))

    tables = {"a": crabs(60), "b": crabs(40)}
    alone = {name: own.apply(rng.permutation) for name, own in tables.items()}
    quiet = {"random_seed": 0, "progressbar": False}
    for own, together in ((tables, True), (alone, False)):
        found = pmm.prepare(own).settled(**quiet)
        assert found.options == {"correlated": together}
        words = "have one covariance" if together else "are independent"
        assert re.fullmatch(
            rf"Numbers {words} within clusters: the log joint of a search is \d+\.\d higher so "
            rf"\(correlated={together}\)\.",
            found.words()[-1],
        )
        assert ("precision_cholesky" in str(found.declare().value_vars)) == together
    matched = pmm.match(tables, search_only=True, **quiet)
    assert matched.prepared.options == {"correlated": True}


def test_searches_that_settle_say_what_they_are_for(monkeypatch, caplog):
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["u", "v"])
    monkeypatch.setattr(sys.modules["pm_match.find_matching"], "PATIENCE", 1e-9)
    logger = logging.getLogger("pymc")
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger="pymc"):
        pmm.prepare({"a": x, "b": x + 0.1}).settled(0, cores=1)
    logger.removeHandler(caplog.handler)
    said = [line for line in caplog.messages if line.startswith("Searching")]
    expected = [f"Searching ({own} numbers) ..." for own in ("independent", "correlated")]
    assert list(dict.fromkeys(said)) == expected


def test_interrupted_nothing_is_settled(interrupted_at):
    numbers = interrupted_at(2)
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["u", "v"])
    found = pmm.prepare({"a": x, "b": x + 0.1})
    with pytest.raises(KeyboardInterrupt):
        found.settled(0, progressbar=False, cores=1)
    assert next(numbers) == 3


def test_nothing_is_left_to_settle():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("uvw"))
    tables = {"a": x[:20].copy(), "b": x[20:].reset_index(drop=True)}
    one = {name: own[["u"]] for name, own in tables.items()}
    few = {name: own[:14] for name, own in tables.items()}
    hole = tables | {"b": tables["b"].mask(tables["b"] == tables["b"].max())}
    for data, told in (
        (tables, {"correlated": True}),
        (tables, {"correlated": False}),
        (tables, {"power": 0.5}),
        (tables, {"model": "table_clusters"}),
        (one, {}),
    ):
        found = pmm.prepare(data, **told)
        assert found.settled() is found
    for data, told, why in (
        (few, {}, "28 objects are few for 3 columns"),
        (tables, {"shared": []}, "20 objects are few for 3 columns"),
        (hole, {}, "some are missing"),
    ):
        found = pmm.prepare(data, **told).settled()
        said = f"Numbers are independent within clusters, as {why} (correlated=False)."
        assert found.notes[-1] == said
        assert found.options == {**told, "correlated": False}
        assert found.settled() is found
    for told in ({}, {"correlated": None}):
        found = pmm.prepare(tables, **told)
        assert found.declare().free_RVs
        assert "correlated" in found.settled(0, progressbar=False).options


def counted(kind, n=30, seed=1):
    """Two networks of people of two kinds, and of which kind they are."""
    rng = np.random.default_rng(seed)
    networks, truth = {}, {}
    for name in "ab":
        of = rng.integers(2, size=n)
        mean = np.array([[6.0, 0.5], [2.0, 1.0]])[of[:, None], of]
        if kind == "poisson":
            x = rng.poisson(mean)
        elif kind == "negative-binomial":
            x = rng.negative_binomial(0.5, 0.5 / (0.5 + 2.0 * mean))
        elif kind == "degree":
            active = rng.lognormal(0.0, 1.0, size=(2, n))
            x = rng.poisson(mean * active[0][:, None] * active[1])
        else:
            x = (rng.random((n, n)) < mean / 8.0) * np.ceil(rng.lognormal(1.0, 1.5, size=(n, n)))
            x = np.triu(x) + np.triu(x).T
        np.fill_diagonal(x, 0)
        networks[name], truth[name] = sparse.csr_array(x.astype(float)), of
    return networks, truth


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        ("poisson", {"family": "poisson"}),
        pytest.param(
            "negative-binomial",
            {"family": "negative-binomial", "dispersion": 0.5},
            marks=pytest.mark.slow,
        ),
        ("degree", {"family": "poisson", "exposure": "degree"}),
        ("edges", {"family": "bernoulli"}),
    ],
)
def test_searches_choose_the_family_of_counts(kind, chosen):
    networks, truth = counted(kind)
    form = {"symmetric": True} if kind == "edges" else {"types": ["person"]}
    prepared = pmm.prepare(networks, **form)
    assert prepared.open_family
    assert prepared.options["family"] == "poisson"
    assert prepared.notes[0].startswith("Values are counts, of family='poisson' unless searches")

    settled = prepared.settled(0, progressbar=False, cores=1)

    assert settled.options == prepared.options | chosen
    assert settled.settled() is settled
    said = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
    said = said.replace("bernoulli", "edges")
    assert settled.notes[-1].startswith(f"Counts are taken with {said}: the log joint of ")
    found = pmm.find_matching(settled.declare(), starts=1, random_seed=0, progressbar=False)
    labels = pmm.partition_estimate(found)
    of = {name: labels[f"cluster_{axis}"] for axis, (name, _) in settled.axes().items()}
    index = pmm.metrics.adjusted_rand_index(truth, of)
    assert index > 0.8


def test_a_family_is_chosen_on_some_cells_of_large_networks(monkeypatch):
    monkeypatch.setattr("pm_match.front.settle._MOST_CELLS", 50)
    networks, _ = counted("edges", n=20)
    given = {"symmetric": True, "links": [{"a": [0], "b": [1]}], "n_clusters": 4}
    prepared = pmm.prepare(networks, **given)

    settled = prepared.settled(0, progressbar=False, cores=1)

    n = re.search(
        r"\(on (\d+) of [ab]'s cells, between objects sampled by degree", settled.notes[-1]
    )
    assert n is not None
    assert 30 < int(n[1]) <= 50
    assert settled.links == prepared.links
    assert [own.shape for own in settled.data.values()] == [(20, 20), (20, 20)]
    assert settled.declare().coords["object_cluster"] == tuple(range(4))


def test_the_family_of_counts_is_not_open_if_it_is_told():
    networks, _ = counted("poisson", n=8)
    for told in (
        {"family": "poisson"},
        {"family": "edges"},
        {"exposure": "degree"},
        {"dispersion": 0.5},
        {"density_prior": (1.0, 2.0), "hyperpriors": False},
    ):
        prepared = pmm.prepare(networks, types=["person"], **told)
        assert prepared.settled() is prepared
        assert prepared.declare().observed_RVs
    edges = pmm.prepare(networks, types=["person"], family="edges")
    assert edges.options["family"] == "bernoulli"
    assert "Of counts, it is used only whether there are any" in str(edges)
    for name, own in edges.data.items():
        np.testing.assert_array_equal(own.values, 1.0)
        assert len(own.values) == networks[name].nnz


def test_edges_alone_have_no_options_of_counts():
    networks, _ = counted("poisson", n=8)
    for given in ({"exposure": "degree"}, {"dispersion": 0.5}):
        with pytest.raises(ValueError, match="expected none with family='edges'; found"):
            pmm.prepare(networks, types=["person"], family="edges", **given)
    with pytest.raises(ValueError, match=r"family: expected .*'edges'.*; found 'edge'"):
        pmm.prepare(networks, types=["person"], family="edge")
