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


MODES = np.array([np.arange(12) % 3, np.arange(12) // 4])


def chains(modes, log_joint=None, draws=200, noise=0.1, seed=0):
    """Chains in given modes, whose clusters are numbered anew in every draw."""
    rng = np.random.default_rng(seed)
    shape = (len(modes), draws)
    labels = np.tile(MODES[list(modes)][:, None], (1, draws, 1))
    stray = rng.random(labels.shape) < noise
    labels[stray] = rng.integers(0, 3, stray.sum())
    for chain, draw in np.ndindex(shape):
        labels[chain, draw] = rng.permutation(6)[labels[chain, draw]]
    posterior = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "a_object"), labels[..., :7]),
            "cluster_b": (("chain", "draw", "b_object"), labels[..., 7:]),
            "precision": (("chain", "draw"), rng.gamma(3.0, size=shape)),
            "weights": (("chain", "draw", "cluster"), rng.random((*shape, 6))),
        }
    )
    posterior["weights"] = posterior["weights"] / posterior["weights"].sum("cluster")
    groups = {"posterior": posterior}
    if log_joint is not None:
        values = rng.normal(size=shape) + np.array(log_joint, float)[:, None]
        groups["sample_stats"] = xr.Dataset(
            {
                "log_joint": (("chain", "draw"), values),
                "moved": (("chain", "draw"), np.full(shape, 0.25)),
                "swap_accepted": (("chain", "draw", "part"), np.full((*shape, 2), 0.5)),
            }
        )
    return xr.DataTree.from_dict(groups)
