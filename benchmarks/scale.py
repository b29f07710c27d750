"""The sampler over shards: objects x 50 features in float32, two domains, from disk.

What a sweep over all objects costs (labels drawn, sums added up; then everything else drawn),
beside the least that it could: reading the data, and one float32 product of all rows with the means
of the clusters. CPU time, so that other work on the machine does not show; wall time for workers.

Then Student-t rows of eight columns, in twelve clusters with centres and a scale of their own: a
likelihood whose parameters take passes over the rows.

Then networks: ten times as many edges as there are objects on either axis, and the least is one
product of the network with the other axis' labels as a sparse matrix, for rows and for columns.
"""

import argparse
import os
import resource
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import arviz as az
import common
import numpy as np
import pymc as pm
import scipy.sparse as sp
import xarray as xr

import pm_match as pmm

N_FEATURES, N_FACTORS, N_CLUSTERS, N_TRUE, CHUNK, N_TIMED = 50, 5, 20, 12, 50_000, 15


def written(folder: Path, n_objects: int) -> tuple[dict[str, np.memmap], dict[str, np.ndarray]]:
    """Write the rows of two domains, chunk by chunk; return memory maps, and the truth."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(N_CLUSTERS, N_FACTORS))
    truth, found = {"latent": latent}, {}
    for name in "ab":
        w = rng.normal(size=(N_FEATURES, N_FACTORS))
        truth[f"projection_{name}"] = w
        n = n_objects // 2
        file = folder / f"{name}.npy"
        rows = np.lib.format.open_memmap(file, "w+", np.float32, (n, N_FEATURES))
        for start in range(0, n, CHUNK):
            stop = min(start + CHUNK, n)
            labels = rng.integers(N_TRUE, size=stop - start)
            noise = rng.standard_normal((stop - start, N_FEATURES), np.float32)
            rows[start:stop] = (latent @ w.T).astype(np.float32)[labels] + noise
        del rows
        found[name] = np.load(file, mmap_mode="r")
    return found, truth


def begun(
    truth: dict[str, np.ndarray], sample: dict[str, np.ndarray], n_clusters: int
) -> xr.DataTree:
    """Start at the truth: nothing is searched for."""
    values = {**truth, "weights": np.full(n_clusters, 1.0 / n_clusters)}
    draws = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(own.ndim))), own[None, None])
        for name, own in values.items()
    }
    for name, rows in sample.items():
        draws[f"cluster_{name}"] = (("chain", "draw", name), np.zeros((1, 1, len(rows)), int))
    return xr.DataTree.from_dict({"posterior": xr.Dataset(draws)})


def least(files: list[str], clock=time.process_time) -> float:
    """Seconds to read the data, and to multiply all rows by the means of the clusters.

    The least of three times, after one that maps the files into memory.
    """
    means = np.random.default_rng(0).normal(size=(N_FEATURES, N_CLUSTERS)).astype(np.float32)
    data, seconds = [np.load(file, mmap_mode="r") for file in files], []
    for _ in range(4):
        begin = clock()
        for rows in data:
            for start in range(0, len(rows), CHUNK):
                np.array(rows[start : start + CHUNK]) @ means
        seconds.append(clock() - begin)
    return min(seconds[1:])


def sweeps(model, data, start, clock, client=None, few=2, many=6, **options) -> float:
    """Seconds of a sweep: of `many` sweeps, less those of a `few`."""
    seconds = []
    for draws in (few, many):
        begin = clock()
        pmm.sample_sharded(
            model,
            data,
            draws=draws,
            tune=0,
            thin=many,
            client=client,
            start=start,
            chunk_size=CHUNK,
            n_split_merge=0.0,
            random_seed=1,
            progressbar=False,
            **options,
        )
        seconds.append(clock() - begin)
    return (seconds[1] - seconds[0]) / (many - few)


def network(n_edges: int) -> tuple[sp.csr_array, np.ndarray, np.ndarray, np.ndarray]:
    """Make a network of planted blocks; return it with its clusters, and their densities."""
    rng = np.random.default_rng(0)
    n = n_edges // 10
    rows, columns = (np.sort(rng.integers(N_TRUE, size=n)) for _ in range(2))
    strength = rng.gamma(0.5, size=(N_TRUE, N_TRUE))
    sizes = np.outer(*(np.bincount(own, minlength=N_TRUE) for own in (rows, columns)))
    counts = rng.multinomial(n_edges, (strength * sizes / (strength * sizes).sum()).ravel())
    block = np.repeat(np.arange(N_TRUE**2), counts)
    ends = [
        np.searchsorted(own, of) + (rng.random(n_edges) * np.bincount(own)[of]).astype(int)
        for own, of in zip((rows, columns), np.divmod(block, N_TRUE), strict=True)
    ]
    cells = sp.csr_array((np.ones(n_edges, bool), tuple(ends)), shape=(n, n))
    return cells, rows, columns, counts.reshape(sizes.shape) / sizes


def networked(n_edges: int) -> list[str]:
    """Make the row of a network: CPU time for each edge."""
    cells, rows, columns, found = network(n_edges)
    model = pmm.models.relational_clusters(
        {"n": cells[:50][:, :50]}, relevance=False, n_clusters=N_CLUSTERS, hyperpriors=False
    )
    density = np.full((N_CLUSTERS, N_CLUSTERS), 0.5)
    density[:N_TRUE, :N_TRUE] = np.clip(found, 1e-9, 0.999)
    weights = np.full(N_CLUSTERS, 1.0 / N_CLUSTERS)
    values = {"density": density, "weights_row": weights, "weights_column": weights}
    draws = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(own.ndim))), own[None, None])
        for name, own in values.items()
    }
    for name, own in (("cluster_n_row", rows), ("cluster_n_column", columns)):
        draws[name] = (("chain", "draw", name), own[None, None])
    start = xr.DataTree.from_dict({"posterior": xr.Dataset(draws)})
    sweeps(model, {"n": cells}, start, time.process_time, few=1, many=2)
    begin = time.process_time()
    for own, labels in ((cells, columns), (cells.T.tocsr(), rows)):
        of = sp.csr_array((np.ones(len(own.indptr) - 1), (np.arange(len(labels)), labels)))
        own.astype(float) @ of
    base = time.process_time() - begin
    seconds = sweeps(model, {"n": cells}, start, time.process_time)
    each = [f"{own / cells.nnz * 1e9:.0f}" for own in (base, seconds)]
    return [f"{cells.nnz:,}", *each, f"{seconds / base:.2f}", f"{peak():.2f}"]


def by_passes(n_objects: int) -> list[str]:
    """Make the row of Student-t rows: CPU time for each object."""
    rng, n_clusters = np.random.default_rng(0), 12
    centre = rng.normal(0.0, 3.0, (n_clusters, 8))
    data = {
        name: centre[rng.integers(8, size=n_objects // 2)]
        + rng.standard_t(4.0, size=(n_objects // 2, 8))
        for name in "ab"
    }
    sample = {name: rows[:300] for name, rows in data.items()}
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=n_clusters - 1)
        centres = pm.Normal("centre", 0.0, 4.0, shape=centre.shape)
        scale, nu = pm.HalfNormal("scale", 1.0, shape=n_clusters), pm.Gamma("nu", 2.0, 0.3)
        for name, rows in sample.items():
            labels = pm.Categorical(f"cluster_{name}", p=weights, shape=len(rows))
            noise = scale[labels][:, None]
            pm.StudentT(name, nu=nu, mu=centres[labels], sigma=noise, observed=rows)
    truth = {"centre": centre, "scale": np.ones(n_clusters), "nu": np.array(4.0)}
    start = begun(truth, sample, n_clusters)
    sweeps(model, data, start, time.process_time, few=1, many=2)
    seconds = sweeps(model, data, start, time.process_time)
    return [f"{n_objects:,}", f"{seconds / n_objects * 1e9:.0f}", f"{peak():.2f}"]


def given_up(n_objects: int) -> list[list[str]]:
    """Make the rows of effective draws a CPU second: of `pmm.sample`, and over shards.

    Overlapping clusters of one domain, whose projection has nothing to match.
    """
    rng = np.random.default_rng(0)
    means = rng.normal(size=(N_TRUE, N_FACTORS)) @ rng.normal(size=(N_FACTORS, 10))
    rows = means[rng.integers(N_TRUE, size=n_objects)] + 2.0 * rng.normal(size=(n_objects, 10))
    declare = partial(pmm.models.projected_clusters, n_factors=N_FACTORS, n_clusters=N_CLUSTERS)
    model, few = (declare({"a": own}, projection="normal") for own in (rows, rows[:1000]))
    asked: dict[str, Any] = {"tune": 500, "random_seed": 1, "progressbar": False}
    runs = {
        "pmm.sample": lambda draws: pmm.sample(
            draws, chains=1, model=model, quiet=True, compute_convergence_checks=False, **asked
        ),
        "over shards": lambda draws: pmm.sample_sharded(
            few, {"a": rows}, draws=draws, chunk_size=CHUNK, **asked
        ),
    }
    found = []
    for name, run in runs.items():
        seconds = []
        for draws in (10, 2000):
            begin = time.process_time()
            posterior = run(draws)["posterior"]
            seconds.append(time.process_time() - begin)
        if "size_a" in posterior:
            counts = posterior["size_a"].values
        else:
            (labels,) = posterior["cluster_a"].values
            counts = np.array([[np.bincount(own, minlength=N_CLUSTERS) for own in labels]])
        sizes = np.sort(counts, axis=2)[:, :, ::-1]
        told = (posterior["precision"].values, sizes[:, :, 0], (sizes > 0).sum(axis=2))
        each = [az.ess(own.astype(float)) / (seconds[1] - seconds[0]) for own in told]
        found.append([name, f"{(seconds[1] - seconds[0]) / 2:.2f}", *(f"{x:.1f}" for x in each)])
    return found


def on_workers(n: int, model, data, start) -> tuple[float, float, float]:
    """Median wall seconds of a sweep by `n` workers, the least that they need, and GiB of one.

    The least is measured there: Dask's workers give memory back at once, which makes reading dear.
    """
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        idata = pmm.sample_sharded(
            model,
            data,
            draws=N_TIMED,
            tune=2,
            client=client,
            start=start,
            chunk_size=CHUNK,
            n_split_merge=0.0,
            random_seed=1,
            progressbar=False,
        )
        wall = float(idata["sample_stats"]["seconds"].median())
        files = [own.filename for own in data.values()]
        base = max(client.run(least, files, time.perf_counter).values())
        return wall, base / n, max(client.run(held).values())


def held() -> float:
    """Return the memory that this process holds, in GiB; pages of files can be dropped any time."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) / 2**20


def peak() -> float:
    """Return the most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Print one row for each number of objects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=float, nargs="*", default=[1e5, 1e6])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rows", type=float, nargs="*", default=[1e5])
    parser.add_argument("--effective", type=float, default=1e4)
    parser.add_argument("--edges", type=float, nargs="*", default=[1e5, 1e6, 1e7])
    given = parser.parse_args()
    rows = []
    for n_objects in map(int, given.objects):
        with tempfile.TemporaryDirectory() as folder:
            data, truth = written(Path(folder), n_objects)
            sample = {name: np.array(own[:100], np.float64) for name, own in data.items()}
            model = pmm.models.projected_clusters(
                sample, n_factors=N_FACTORS, n_clusters=N_CLUSTERS, projection="normal"
            )
            start = begun(truth | {"precision": np.array(1.0)}, sample, N_CLUSTERS)
            sweeps(model, data, start, time.process_time, few=1, many=2)
            files = [own.filename for own in data.values()]
            base = least(files)
            many = max(6, 2 * 10**6 // n_objects)
            own = sweeps(model, data, start, time.process_time, many=many)
            row = [
                f"{n_objects:,}",
                f"{base / n_objects * 1e9:.0f}",
                f"{own / n_objects * 1e9:.0f}",
            ]
            row += [f"{own / base:.2f}", f"{held():.2f}"]
            for n in given.workers:
                wall, base, memory = on_workers(n, model, data, start)
                row += [f"{wall / n_objects * 1e9:.0f}", f"{wall / base:.2f}", f"{memory:.2f}"]
            rows.append(row)
            print(*row, sep="\t", flush=True)
    head = ["objects", "least, CPU ns/object", "sweep, CPU ns/object", "ratio", "GiB held"]
    for n in given.workers:
        head += [f"{n} workers, wall ns/object", "ratio", "GiB held"]
    if rows:
        common.print_table(f"Sampler over shards, {os.cpu_count()} cores", head, rows)
    if given.rows:
        head = ["objects", "sweep, CPU ns/object", "most GiB"]
        passes = [by_passes(int(n)) for n in given.rows]
        common.print_table("Student-t rows over shards", head, passes)
    if given.effective:
        head = [f"{given.effective:,.0f} objects", "ms a draw", "precision", "largest", "occupied"]
        title = "Effective draws a CPU second"
        common.print_table(title, head, given_up(int(given.effective)))
    if not given.edges:
        return
    head = ["edges", "least, CPU ns/edge", "sweep, CPU ns/edge", "ratio", "most GiB"]
    networks = [networked(int(n)) for n in given.edges]
    common.print_table("Networks over shards", head, networks)


if __name__ == "__main__":
    main()
