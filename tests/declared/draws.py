"""Small made-up posteriors over matchings."""

import numpy as np
import xarray as xr

CHAINS, DRAWS = 2, 30


def tree(n_clusters=4, sizes=(("a", 7), ("b", 5)), seed=0):
    """Draws of labels and projections as the models record them."""
    rng = np.random.default_rng(seed)
    posterior = {}
    for name, n in sizes:
        objects, features = f"{name}_object", f"{name}_feature"
        posterior[f"cluster_{name}"] = xr.DataArray(
            rng.integers(0, n_clusters, (CHAINS, DRAWS, n)),
            dims=("chain", "draw", objects),
            coords={objects: [f"{name}{i}" for i in range(n)]},
        )
        posterior[f"projection_{name}"] = xr.DataArray(
            rng.normal(size=(CHAINS, DRAWS, n + 1, 2)),
            dims=("chain", "draw", features, "factor"),
            coords={features: [f"{name}_{i}" for i in range(n + 1)]},
        )
    dataset = xr.Dataset(posterior).assign_coords(chain=[3, 5], draw=range(DRAWS))
    stats = xr.Dataset({"log_joint": (("chain", "draw"), rng.normal(size=(CHAINS, DRAWS)))})
    return xr.DataTree.from_dict({"posterior": dataset, "sample_stats": stats})


def stacked(idata, name):
    values = idata["posterior"][name].to_numpy()
    return values.reshape(-1, *values.shape[2:])


def with_relevance(idata, share=0.7, seed=9, names=("a", "b")):
    """Add relevance, and clusters of irrelevant objects that mean nothing."""
    rng = np.random.default_rng(seed)
    for name in names:
        cluster = idata["posterior"][f"cluster_{name}"]
        flags = (rng.random(cluster.shape) < share).astype(np.int8)
        idata["posterior"][f"relevance_{name}"] = cluster.copy(data=flags)
        cluster.to_numpy()[flags == 0] = rng.integers(-3, 9, np.sum(flags == 0))
    return idata


def typed(seed=0):
    """Documents and words of two networks: two sets of clusters with the same numbers."""
    sizes = (("A_document", 6), ("A_word", 8), ("B_document", 5), ("B_word", 7))
    idata = with_relevance(tree(3, sizes, seed), names=("A_word", "B_word"))
    for name, _ in sizes:
        kind = name.partition("_")[2]
        idata["posterior"][f"cluster_{name}"].attrs["clusters"] = f"{kind}_weights"
    return idata
