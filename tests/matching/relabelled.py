"""The same partitions told otherwise: what summaries must not see."""

import numpy as np
import xarray as xr
from hypothesis import strategies as st

from tests.declared.draws import tree, typed, with_relevance


def relabelled(idata, seed=0):
    """Number the clusters of every draw anew, those of each set with numbers of its own."""
    rng = np.random.default_rng(seed)
    result = idata.copy(deep=True)
    posterior = result["posterior"]
    names = [name for name in posterior.data_vars if name.startswith("cluster_")]
    sets = {posterior[name].attrs.get("clusters") for name in names}
    for chain in range(posterior.sizes["chain"]):
        for draw in range(posterior.sizes["draw"]):
            numbers = {title: rng.permutation(40) - 9 for title in sets}
            for name in names:
                values = posterior[name].to_numpy()[chain, draw]
                values[:] = numbers[posterior[name].attrs.get("clusters")][values + 5]
    return result


def shuffled(idata, seed=0):
    """Put the chains, and the draws of all of them alike, into another order."""
    rng = np.random.default_rng(seed)
    order = {dim: rng.permutation(idata["posterior"].sizes[dim]) for dim in ("chain", "draw")}
    return xr.DataTree.from_dict(
        {name: group.to_dataset().isel(order) for name, group in idata.children.items()}
    )


@st.composite
def posteriors(draw):
    """Small posteriors: with and without relevance, with few and many clusters."""
    seed, n_clusters = draw(st.integers(0, 1000)), draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["plain", "relevance", "one relevance", "typed"]))
    if kind == "typed":
        return typed(seed)
    idata = tree(n_clusters, seed=seed)
    if kind == "plain":
        return idata
    names = ("a", "b") if kind == "relevance" else ("b",)
    return with_relevance(idata, share=draw(st.floats(0, 1)), seed=seed, names=names)


def clusters_of(idata, *names):
    """Of every draw, the clusters as lists of (name, position) of their relevant objects."""
    posterior = idata["posterior"].to_dataset().stack(sample=("chain", "draw"))
    found = []
    for sample in range(posterior.sizes["sample"]):
        one = posterior.isel(sample=sample)
        clusters = {}
        for name in names:
            flags = one.get(f"relevance_{name}")
            for i, label in enumerate(one[f"cluster_{name}"].to_numpy()):
                if flags is None or flags.to_numpy()[i]:
                    clusters.setdefault(int(label), []).append((name, i))
        found.append(list(clusters.values()))
    return found
