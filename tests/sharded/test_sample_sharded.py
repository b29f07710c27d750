"""The entrance: what comes out, where data may be, and what is refused."""

import errno
import os
import pickle

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.sparse import csr_array

import pm_match as pmm
from pm_match.reading import read
from pm_match.sharded import sample_sharded as entrance
from pm_match.sharded.centre import Centre
from pm_match.sharded.data import Source
from pm_match.sharded.store import Store
from tests.sharded import models
from tests.sharded.chains import halves
from tests.sharded.far_apart import N, T, counts, declared, dispersed, same, sampled, started


@pytest.fixture(scope="module")
def model():
    return declared(counts())


@pytest.fixture(scope="module")
def any_likelihood():
    return declared(counts(), of=dispersed)


def test_parameters_labels_and_certainty_come_out(model, tmp_path):
    data = counts()
    found = sampled(model, data, labels=tmp_path / "labels.zarr", thin=2)
    posterior = found["posterior"]
    assert posterior["rates"].shape == (1, 3, T, 2)
    assert posterior["cluster_a"].shape == (1, 3, N)
    for name in "ab":
        sizes = [np.bincount(own, minlength=T) for own in posterior[f"cluster_{name}"][0].values]
        np.testing.assert_array_equal(posterior[f"size_{name}"][0], sizes)
        assert 1.0 / T <= posterior[f"certainty_{name}"].min() <= 1.0 + 1e-6
    # The clusters are far apart.
    assert posterior["certainty_a"].mean() > 0.95
    partition = pmm.partition_estimate(found, progressbar=False)
    assert pmm.cluster_sizes(partition)["total"].sum() == 2 * N
    assert len(pmm.match_probability(found, "a", "b", top=2)) > 0
    assert {"log_joint", "n_occupied", "split_merge_accepted"} <= set(found["sample_stats"])


@pytest.mark.parametrize("kept", [False, True])
def test_a_run_goes_on_where_another_ended(model, tmp_path, kept):
    options = {"labels": tmp_path / "labels.zarr"} if kept else {}
    first = sampled(model, counts(), **options)
    found = pmm.sample_sharded(
        model, counts(), draws=1, tune=0, start=first, random_seed=3, progressbar=False
    )
    # Labels are drawn given where the first run ended, and recorded with it.
    np.testing.assert_allclose(
        found["posterior"]["rates"][0, 0], first["posterior"]["rates"][0, -1]
    )


def test_certainty_is_the_mean_of_the_likeliest_labels_probability(model, tmp_path):
    data = counts()
    posterior = sampled(model, data, labels=tmp_path / "labels.zarr")["posterior"]
    assert posterior["cluster_a"].attrs["clusters"] == "weights"
    x = data["a"][:, None]
    rates, weights = posterior["rates"].values[0], posterior["weights"].values[0]
    logs = np.stack(
        [(x * np.log(r) - r).sum(axis=2) + np.log(w) for r, w in zip(rates, weights, strict=True)]
    )
    p = np.exp(logs - logs.max(axis=2, keepdims=True))
    expected = (p.max(axis=2) / p.sum(axis=2)).mean(axis=0)
    np.testing.assert_allclose(posterior["certainty_a"], expected, rtol=1e-5)


def test_draws_do_not_depend_on_where_the_data_are(model, tmp_path):
    da, zarr = pytest.importorskip("dask.array"), pytest.importorskip("zarr")
    data = counts()
    reference = sampled(model, data)
    for name, values in data.items():
        np.save(tmp_path / f"{name}.npy", values)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in data}
    zarrs = {
        name: zarr.array(values, chunks=(25, 1), store=str(tmp_path / f"{name}.zarr"))
        for name, values in data.items()
    }
    dasks = {
        name: da.from_array(values, chunks=((25, 25, 25, 15), 1)) for name, values in data.items()
    }
    assert same(reference, sampled(model, mapped))
    assert same(reference, sampled(model, zarrs, chunk_size=None))
    assert same(reference, sampled(model, dasks, chunk_size=None))
    uneven = {
        name: da.from_array(values, chunks=((10, 25, 55), 2)) for name, values in data.items()
    }
    assert same(reference, sampled(model, uneven))
    assert not same(reference, sampled(model, data, random_seed=4))


def test_frames_give_the_same_draws(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    data = {n: pd.DataFrame(own, columns=["x", "y"]) for n, own in counts().items()}
    model = declared({name: frame.to_numpy() for name, frame in data.items()})
    reference = sampled(model, counts())
    assert same(reference, sampled(model, data))
    frames, files, parquet = {}, {}, {}
    for name, frame in data.items():
        frames[name] = dd.from_pandas(frame, npartitions=4)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        files[name] = dd.read_csv(tmp_path / f"{name}.csv", blocksize=200)
        frames[name].to_parquet(tmp_path / name)
        parquet[name] = dd.read_parquet(tmp_path / name)
    assert same(reference, sampled(model, frames))
    assert files["a"].npartitions > 2
    assert same(reference, sampled(model, files))
    assert parquet["a"].npartitions > 2
    assert same(reference, sampled(model, parquet))


def test_columns_of_frames_go_by_their_names_if_the_model_has_any():
    pytest.importorskip("dask")
    frames = {n: pd.DataFrame(own, columns=["x", "y"]) for n, own in features().items()}
    given = {name: frame[:20] for name, frame in frames.items()}
    named = pmm.models.projected_clusters(given, n_factors=1, projection="normal")
    unnamed = pmm.models.projected_clusters(
        {name: own.to_numpy() for name, own in given.items()}, n_factors=1, projection="normal"
    )
    options = {"draws": 2, "tune": 0, "random_seed": 1, "progressbar": False}
    start = pmm.sample(1, tune=1, chains=1, model=named, random_seed=1, progressbar=False)
    reference = pmm.sample_sharded(named, frames, start=start, **options)
    assert same(reference, pmm.sample_sharded(unnamed, frames, start=start, **options))
    turned = frames | {"a": frames["a"][["y", "x"]]}
    with pytest.raises(
        ValueError, match=r"'a': expected the columns \['x', 'y'\]; found \['y', 'x'"
    ):
        pmm.sample_sharded(named, turned, start=start, **options)


def features():
    """Rows of two domains, in three clusters."""
    rng = np.random.default_rng(0)
    return {name: rng.normal(3.0 * rng.integers(3, size=(40, 1)), size=(40, 2)) for name in "ab"}


@pytest.mark.parametrize("columns", [[2019, "total"], [("x", 1), ("y", 2)]])
def test_columns_may_have_names_of_any_kind(columns):
    frame = pd.DataFrame(np.zeros((3, 2)), columns=columns)
    assert Source("a", frame, 2, columns).n_rows == 3
    with pytest.raises(ValueError, match="'a': expected the columns"):
        Source("a", frame, 2, columns[::-1])


@pytest.mark.parametrize("dask", [False, True])
def test_columns_of_frames_may_have_different_types_of_numbers(dask):
    dd = pytest.importorskip("dask.dataframe") if dask else None

    def source(**columns):
        frame = pd.DataFrame(columns)
        return Source("a", dd.from_pandas(frame, npartitions=1) if dask else frame, len(columns))

    x = np.array([1.5, -2.0, 0.25])
    mixed = source(x=pd.array(x, "Float64"), flag=x > 0.0, small=x.astype("f4"))
    np.testing.assert_array_equal(mixed.rows(0, 3), np.column_stack([x, x > 0.0, x]))
    assert mixed.rows(0, 3).dtype == np.float64
    assert source(x=pd.array(x, "Float32")).rows(0, 3).dtype == np.float32
    missing = source(x=pd.array([1.5, None, 2.0], "Float64"))
    np.testing.assert_array_equal(missing.rows(0, 3)[:, 0], [1.5, np.nan, 2.0])
    with pytest.raises(TypeError, match="'a', column 'name': expected numbers; found the dtype"):
        source(x=x, name=["p", "q", "r"])


@pytest.mark.parametrize("dask", [False, True])
def test_one_column_and_frames_of_one_type_stay_as_they_are(dask):
    dd = pytest.importorskip("dask.dataframe") if dask else None

    def given(frame):
        return dd.from_pandas(frame, npartitions=1) if dask else frame

    small = pd.DataFrame(np.arange(6, dtype=np.uint8).reshape(3, 2), columns=["x", "y"])
    assert Source("a", given(small), 2)._given.dtype == np.uint8
    column = Source("a", given(small)["y"], None)
    assert column.rows(0, 3).tolist() == [1.0, 3.0, 5.0]


def test_a_part_of_a_memory_map_is_sent_by_its_place(tmp_path):
    table = np.arange(60.0).reshape(20, 3)
    np.save(tmp_path / "c.npy", table)
    np.save(tmp_path / "f.npy", np.asfortranarray(table))
    c, f = (np.load(tmp_path / f"{own}.npy", mmap_mode="r") for own in "cf")
    for given in (c, f, c[5:], c[2:9], np.asarray(c)[3:]):
        source = Source("a", given, 3)
        assert source.in_memory == 0
        sent = pickle.dumps(source)
        assert len(sent) < 1000
        np.testing.assert_array_equal(pickle.loads(sent).rows(1, 4), given[1:4])
    changed = np.load(tmp_path / "c.npy", mmap_mode="c")
    changed[2] = 0.0
    # In several pieces; or not what is in the file.
    for given in (c[::2], f[5:], changed, np.ma.masked_less(c, 0.0), table):
        source = Source("a", given, 3)
        assert source.in_memory == given.nbytes
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(source)).rows(1, 4), given[1:4])


@pytest.mark.parametrize("drawn", [0, 4])
def test_a_full_disk_costs_the_draws_that_do_not_fit(model, tmp_path, monkeypatch, drawn):
    pytest.importorskip("zarr")
    write = Store.write

    def full(self, piece, number, labels, certainty):
        if number == drawn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, piece, number, labels, certainty)

    monkeypatch.setattr(Store, "write", full)
    folder = tmp_path / "labels.zarr"
    if not drawn:
        with pytest.raises(OSError, match="No space left"):
            sampled(model, counts(), labels=folder)
        return
    with pytest.warns(UserWarning, match=r"stopped by .*No space left.*: the first 4 of 6 draws"):
        found = sampled(model, counts(), labels=folder)
    monkeypatch.undo()
    assert same(found, sampled(model, counts(), labels=tmp_path / "whole.zarr", draws=4))


def test_a_disk_that_is_full_in_the_end_costs_certainties_alone(model, tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    expected = sampled(model, counts(), labels=tmp_path / "whole.zarr")
    finish = Store.finish

    def full(self, pieces, n_draws):
        if "whole" not in self.path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finish(self, pieces, n_draws)

    monkeypatch.setattr(Store, "finish", full)
    with pytest.warns(UserWarning, match=r"stopped by .*No space left.*but not all certainties"):
        found = sampled(model, counts(), labels=tmp_path / "labels.zarr")
    missing = {name for name in expected["posterior"] if str(name).startswith("certainty_")}
    assert missing
    assert set(expected["posterior"]) - set(found["posterior"]) == missing
    for name, values in found["posterior"].items():
        np.testing.assert_array_equal(values, expected["posterior"][name])


BAD = {
    "missing": (
        lambda d: d["a"].__setitem__((41, 1), np.nan),
        "'a', row 41, column 1: expected a fin",
    ),
    "support": (
        lambda d: d["b"].__setitem__((7, 0), 0.5),
        "'b', row 7, column 0: expected a whole",
    ),
    "width": (
        lambda d: d.update(a=np.ones((N, 3))),
        r"'a': expected an array of shape \(rows, 2\)",
    ),
    "empty": (lambda d: d.update(a=np.ones((0, 2))), "'a': expected rows; found none"),
}


@pytest.mark.parametrize("kind", ["model", "any_likelihood"])
@pytest.mark.parametrize("case", BAD)
def test_data_that_do_not_fit_are_named(kind, case, tmp_path, request):
    spoil, message = BAD[case]
    model = request.getfixturevalue(kind)
    pytest.importorskip("zarr")
    data = counts()
    spoil(data)
    with pytest.raises(ValueError, match=message):
        sampled(model, data, labels=tmp_path / "labels.zarr")
    # So that it is there for the next try.
    assert not (tmp_path / "labels.zarr").exists()


def test_what_is_masked_is_missing(model):
    da, data = pytest.importorskip("dask.array"), counts()
    masked = np.ma.masked_array(data["a"], np.zeros((N, 2)))
    for own in (masked, masked.astype(np.int16)):
        assert same(sampled(model, data), sampled(model, data | {"a": own}))
        rows = Source("a", own, 2).rows(0, 4)
        assert rows.dtype == np.float64
    masked[41, 1] = np.ma.masked
    for own in (masked, masked.astype(int), da.from_array(masked, chunks=(25, 2))):
        with pytest.raises(ValueError, match="'a', row 41, column 1: expected a finite number"):
            sampled(model, data | {"a": own})


def test_a_row_that_no_cluster_can_have_is_named(any_likelihood):
    data = counts()
    data["b"][57, 1] = -1.0
    with pytest.raises(FloatingPointError, match="'cluster_b', row 57: expected a finite log dens"):
        sampled(any_likelihood, data)


def test_other_bad_input_is_named(model, tmp_path):
    da, data = pytest.importorskip("dask.array"), counts()
    with pytest.raises(KeyError, match="expected all rows of"):
        sampled(model, {"a": data["a"]})
    with pytest.raises(TypeError, match="'a': expected numbers"):
        sampled(model, data | {"a": np.full((N, 2), "x")})
    with pytest.raises(TypeError, match="'a': expected a table; found a sparse matrix"):
        sampled(model, data | {"a": csr_array(data["a"])})
    with pytest.raises(KeyError, match=r"sampled: expected assignments .* which are none"):
        sampled(model, data, sampled={"cluster_a": [1]})
    with pytest.raises(TypeError, match="client: expected a dask"):
        sampled(model, data, client=3)
    with pytest.raises(ValueError, match="n_split_merge: expected a probability"):
        sampled(model, data, n_split_merge=2.0)
    with pytest.raises(TypeError, match="labels: expected the path of a folder; found 3"):
        sampled(model, data, labels=3)
    (tmp_path / "there").mkdir()
    with pytest.raises(
        FileExistsError, match=r"labels: expected a folder that does not exist yet; found"
    ):
        sampled(model, data, labels=tmp_path / "there")
    unknown = da.from_array(data["a"], chunks=(30, 2))
    with pytest.raises(ValueError, match="'a': expected chunks with a known number of rows"):
        sampled(model, data | {"a": unknown[unknown[:, 0] > 5]})
    empty = da.from_array(data["a"], chunks=((30, 0, N - 30), 2))
    with pytest.raises(ValueError, match="'a': expected rows in every chunk; found none in"):
        sampled(model, data | {"a": empty})
    wider = pytest.importorskip("dask").delayed(np.ones)((N, 3))
    with pytest.raises(ValueError, match=r"'a', rows 0 to \d+: expected 2 columns; found .* 3\)"):
        sampled(model, data | {"a": da.from_delayed(wider, (N, 2), float)})


def test_a_folder_that_is_made_during_the_search_is_left_alone(model, tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    folder = tmp_path / "labels.zarr"

    def found(*_, **__):
        folder.mkdir()
        (folder / "theirs").write_text("theirs")
        return started(model)

    monkeypatch.setattr(entrance, "find_matching", found)
    with pytest.raises(FileExistsError, match="labels: expected a folder that does not exist yet"):
        sampled(model, counts(), labels=folder, start=None)
    assert [own.name for own in folder.iterdir()] == ["theirs"]


def refused(message, build):
    """Check that a model is refused in words."""
    with pm.Model() as model:
        data = build()
    with pytest.raises(pmm.UnservedModelError, match=message):
        pmm.sample_sharded(model, data, progressbar=False)


def test_models_that_sums_do_not_serve_are_refused():
    rng = np.random.default_rng(0)
    x = rng.poisson(3.0, (5, 2)).astype(float)

    def counts_of(values, declare=lambda: None):
        w = pm.StickBreakingWeights("weights", alpha=1.0, K=T - 1)
        rates = pm.Gamma("rates", 2.0, 0.1, shape=(T, 2))
        s = pm.Categorical("cluster_a", p=w, shape=5)
        pm.Poisson("a", rates[s], observed=values)
        declare()
        return {"a": x}

    holes = np.ma.masked_array(x, np.eye(5, 2))
    pair = {"cluster_a": [[0, 1]]}
    refused("'a': over shards, expected a table", lambda: counts_of(holes))
    linked = "objects that are linked"
    refused(linked, lambda: counts_of(x, lambda: pmm.must_link("links", pair)))
    refused(linked, lambda: counts_of(x, lambda: pmm.cannot_link("apart", pair)))


def test_coarsened_features_are_refused():
    x = {name: np.random.default_rng(0).normal(size=(6, 2)) for name in "ab"}
    model = pmm.models.table_clusters(x, 3, power=0.5)
    with pytest.raises(pmm.UnservedModelError, match=r"'a': over shards, .*; found coarsened ones"):
        pmm.sample_sharded(model, x, progressbar=False)


def test_likelihoods_that_take_more_than_a_row_are_refused():
    rng = np.random.default_rng(0)
    x, known = rng.poisson(3.0, (5, 2)).astype(float), rng.uniform(0.5, 2.0, (5, 2))

    def student(
        scale=1.0, n=2, observed=x, alpha=4.0, declare=lambda means: None, means=pm.Normal, rows=x
    ):
        w = pm.StickBreakingWeights("weights", alpha=1.0, K=T - 1)
        of = means("means", 0.0, 3.0, shape=(T, n))
        s = pm.Categorical("cluster_a", p=w, shape=5)
        pm.StudentT("a", nu=alpha, mu=of[s] @ np.ones((n, 2)), sigma=scale, observed=observed)
        declare(of[s])
        return {"a": rows}

    holes = np.ma.masked_array(x, np.eye(5, 2))
    refused(
        "'a': over shards, expected an observed variable, without missing",
        lambda: student(observed=holes),
    )
    refused(
        "'a': over shards, its log density depends on what is known of each object besides",
        lambda: student(scale=known),
    )
    refused(
        "'tied': over shards, expected an observed variable",
        lambda: student(declare=lambda own: pm.Potential("tied", -own[:, 0])),
    )
    refused(
        "weights of 'cluster_a': over shards, expected weights that can be integrated out",
        lambda: student(
            declare=lambda own: pm.Potential("some", -pm.modelcontext(None)["weights"][0])
        ),
    )
    refused(
        "'degrees': over shards, expected parameters that are real numbers; found whole ones",
        lambda: student(alpha=1 + pm.Poisson("degrees", 3.0)),
    )
    refused("'means': over shards, expected at most 32 numbers .* found 40", lambda: student(n=40))


def test_parameters_of_several_sets_of_clusters_are_refused():
    rng = np.random.default_rng(0)
    cells, x = csr_array(rng.integers(2, size=(6, 5))), rng.normal(size=(6, 2))
    with pm.Model() as model:
        rows, columns = (
            pm.Categorical(
                f"cluster_{name}", pm.StickBreakingWeights(f"w_{name}", 1.0, K=2), shape=n
            )
            for name, n in (("row", 6), ("column", 5))
        )
        density = pm.Beta("density", 1.0, 1.0, shape=(3, 3))
        pmm.BlockNetwork("cells", [rows, columns], density, observed=cells)
        sigma = pm.HalfNormal("sigma", 1.0)
        for name, labels, own in (("x", rows, x), ("y", columns, x[:5])):
            centre = pm.Normal(f"centre_{name}", 0.0, 2.0, shape=(3, 2))
            pm.StudentT(name, nu=4.0, mu=centre[labels], sigma=sigma, observed=own + 1e-3)
    with pytest.raises(pmm.UnservedModelError, match="found 'sigma', which several do"):
        pmm.sample_sharded(model, {"cells": cells, "x": x, "y": x[:5]})


def test_a_parameter_above_what_is_integrated_out_is_refused():
    """Drawn by slices, it would be drawn given means that others integrate out."""
    x = np.random.default_rng(0).normal(size=(6, 2))
    model = two_kinds(x, shared=True)
    with pytest.raises(pmm.UnservedModelError, match="'middle': over shards, expected no"):
        pmm.sample_sharded(model, {"x": x, "y": x[:, 0] + 1.0})


def two_kinds(x, shared):
    """Clusters with means that are integrated out, and others that slices draw."""
    with pm.Model() as model:
        labels = pm.Categorical("c", pm.StickBreakingWeights("w", 1.0, K=2), shape=len(x))
        middle = pm.Normal("middle") if shared else 0.0
        precision = pm.Wishart("precision", nu=4, V=np.eye(2))
        centre = pm.MvNormal("centre", middle * np.ones(2), tau=precision, shape=(3, 2))
        pm.MvNormal("x", centre[labels], tau=precision, observed=x)
        location = pm.Normal("location", middle, 1.0, shape=3)
        pm.StudentT("y", nu=4.0, mu=location[labels], observed=x[:, 0] + 1.0)
    return model


def test_two_kinds_of_data_of_the_same_objects(tmp_path):
    truth = np.repeat([0, 1], 60)
    x = np.random.default_rng(1).normal(6.0 * truth[:, None], size=(120, 2))
    data = {"x": x, "y": x[:, 0] + 1.0}
    idata = pmm.sample_sharded(
        two_kinds(x, shared=False),
        data,
        draws=20,
        tune=20,
        labels=tmp_path / "labels",
        random_seed=1,
        progressbar=False,
    )
    found = idata["posterior"]["c"][0, -1].to_numpy()
    assert pmm.metrics.adjusted_rand_index({"": truth}, {"": found}) > 0.75
    near = idata["posterior"]["location"][0, -1].to_numpy()[found[[0, -1]]]
    np.testing.assert_allclose(near, [1.0, 7.0], atol=1.5)


def test_numbers_that_enter_a_log_density_together_are_drawn_apart():
    for (model, *_), expected in (
        # Both columns at once; but where a scale depends on the centres, one after the other.
        (models.likelihoods(), [[0, 1]]),
        (models.spreads(), [[0], [1], [2]]),
    ):
        centre = Centre(model, read(model), np.random.default_rng(0), model.initial_point())
        assert centre.evidence[0]._groups == expected


def test_what_the_sample_does_not_show_to_go_together_is_drawn_apart_too():
    counts_of = np.array([[2, 0], [0, 0], [3, 0], [1, 0]])
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.0, K=T - 1)
        psi = pm.Beta("psi", 2.0, 2.0, shape=T)
        mu = pm.Gamma("mu", 2.0, 1.0, shape=(T, 2))
        s = pm.Categorical("cluster_a", p=w, shape=4)
        pm.HurdlePoisson("a", psi=psi[s][:, None], mu=mu[s], observed=counts_of)
    centre, *_ = halves(model, {"a": np.repeat(counts_of[:, :1], 2, axis=1)}, 2, 0)
    # No row of the sample has a second count, whose mean would matter.
    (own,) = centre.evidence
    assert own._groups == [[0], [1, 2]]


def test_what_enters_a_log_density_only_elsewhere_is_drawn_apart_too():
    x = np.random.default_rng(0).normal(size=(6, 2))
    with pm.Model() as model:
        s = pm.Categorical("c", p=pm.StickBreakingWeights("w", alpha=1.0, K=T - 1), shape=6)
        centre = pm.Normal("centre", shape=(T, 2))
        # Nowhere near here does the second centre enter the first column.
        low = pt.minimum(centre[:, :1], centre[:, 1:] + 1e6)
        means = pt.concatenate([low, centre[:, 1:]], axis=1)
        pm.StudentT("x", nu=3.0, mu=means[s], sigma=1.0, observed=x)
    (own,) = Centre(model, read(model), np.random.default_rng(0), model.initial_point()).evidence
    assert own._groups == [[0], [1]]


def test_what_a_parameter_chooses_is_drawn_apart_too():
    x = np.random.default_rng(0).normal(size=(6, 2))
    with pm.Model() as model:
        s = pm.Categorical("c", p=pm.StickBreakingWeights("w", alpha=1.0, K=T - 1), shape=6)
        centre, choice = pm.Normal("centre", shape=(T, 2)), pm.Normal("choice")
        # At the start, and near it, nothing has the second centre.
        second = centre[:, pt.cast(choice > 1.0, "int64")]
        means = pt.stack([centre[:, 0], second], axis=1)
        pm.StudentT("x", nu=3.0, mu=means[s], sigma=1.0, observed=x)
    (own,) = Centre(model, read(model), np.random.default_rng(0), model.initial_point()).evidence
    assert own._groups == [[0], [1]]


def test_what_clusters_have_goes_along_when_labels_are_swapped(any_likelihood, tmp_path):
    found = sampled(any_likelihood, counts(), labels=tmp_path / "labels.zarr", draws=30)
    posterior, data = found["posterior"], counts()
    assert found["sample_stats"]["swap_accepted"].mean() > 0.0
    assert (found["sample_stats"]["split_merge_accepted"] == 0.0).all()
    order = np.argsort(posterior["weights"].values[0], axis=1)
    assert (order != order[0]).any()
    for name, x in data.items():
        of_rows = np.take_along_axis(
            posterior["rates"].values[0], posterior[f"cluster_{name}"].values[0][:, :, None], 1
        )
        away = abs(of_rows - x) / np.sqrt(x + x**2 / 50.0 + 1.0)
        assert away.mean() < 1.2


def test_features_give_the_same_in_32_bits_but_for_rounding():
    model, data, _ = models.features()
    start = pmm.sample(1, tune=1, chains=1, model=model, random_seed=1, progressbar=False)
    given = {"draws": 3, "tune": 0, "start": start, "random_seed": 2, "progressbar": False}
    exact = pmm.sample_sharded(model, data, **given)
    low = pmm.sample_sharded(model, {n: x.astype(np.float32) for n, x in data.items()}, **given)
    np.testing.assert_allclose(low["posterior"]["latent"], exact["posterior"]["latent"], rtol=1e-4)
