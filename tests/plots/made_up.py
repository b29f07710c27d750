"""A made-up result, as it is drawn: three domains of n objects, with everything figures show."""

import numpy as np
import xarray as xr

CHAINS, DRAWS, FEATURES, FACTORS = 2, 20, 6, 3


def true_labels(n, n_clusters=4, seed=0):
    """Clusters of three domains; the last cluster is in the first domain only."""
    rng = np.random.default_rng(seed)
    labels = {name: rng.permutation(np.arange(n) % (n_clusters - 1)) for name in "abc"}
    labels["a"][: max(n // 10, 1)] = n_clusters - 1
    return labels


def result(n, n_clusters=4, relevance=True, seed=0):
    """Draws as the models record them: noisy labels, and tables around projected vectors."""
    rng = np.random.default_rng(seed)
    true = true_labels(n, n_clusters, seed)
    latent = 3 * rng.normal(size=(n_clusters, FACTORS))
    shape = (CHAINS, DRAWS)
    posterior, tables = {}, {}
    posterior["latent"] = (
        ("chain", "draw", "cluster", "factor"),
        np.broadcast_to(latent, (*shape, *latent.shape)),
    )
    for name, label in true.items():
        objects, features = f"{name}_object", f"{name}_feature"
        names = {objects: [f"{name}{i}" for i in range(n)]}
        projection = rng.normal(size=(FEATURES, FACTORS))
        intercept = rng.normal(size=FEATURES)
        values = intercept + latent[label] @ projection.T + rng.normal(size=(n, FEATURES))
        tables[name] = xr.DataArray(values, names, dims=(objects, features))
        wrong = rng.random((*shape, n)) < 0.1
        draws = np.where(wrong, rng.integers(0, n_clusters, (*shape, n)), label)
        posterior[f"cluster_{name}"] = xr.DataArray(draws, names, dims=("chain", "draw", objects))
        for kind, value in (("projection", projection), ("intercept", intercept)):
            posterior[f"{kind}_{name}"] = (
                ("chain", "draw", features, "factor")[: 2 + value.ndim],
                np.broadcast_to(value, (*shape, *value.shape)),
            )
        if relevance:
            flags = np.ones((*shape, n), dtype=np.int8)
            flags[..., -max(n // 8, 1) :] = 0
            posterior[f"relevance_{name}"] = (("chain", "draw", objects), flags)
    stats = {
        "log_joint": (("chain", "draw"), rng.normal(-1e5, 3, shape)),
        "n_occupied": (("chain", "draw"), rng.integers(3, 5, shape)),
    }
    coords = {"chain": range(CHAINS), "draw": range(DRAWS)}
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(posterior, coords),
            "sample_stats": xr.Dataset(stats, coords),
            "observed_data": xr.Dataset(tables),
        }
    )


def starts(n_starts, spread=20.0, seed=0):
    """What searches from several starts have found."""
    rng = np.random.default_rng(seed)
    log_joint = -1e5 - spread * rng.gamma(0.5, 1.0, n_starts)
    best = log_joint.argmax()
    agreement = np.exp(-np.abs(log_joint - log_joint[:, None]) / spread)
    assert agreement[best, best] == 1
    return xr.Dataset(
        {
            "log_joint": ("start", log_joint),
            "agreement": (("start", "other_start"), agreement),
        },
        {"start": range(n_starts), "other_start": range(n_starts)},
    )


def panels(figure):
    """Panels of a figure, without its colour bars."""
    return [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]
