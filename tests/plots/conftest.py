import numpy as np
import pytest
import xarray as xr

from pm_match import datasets

mpl = pytest.importorskip("matplotlib")
mpl.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture
def domains():
    return datasets.synthetic(30, 6, n_clusters=3, n_domains=3, missing=0.1, random_seed=1)


@pytest.fixture
def idata(domains):
    rng = np.random.default_rng(0)
    true = datasets.true_labels(domains)
    posterior = {}
    for name, label in true.items():
        draws = np.where(rng.random((2, 20, 30)) < 0.1, 5, label)
        posterior[f"cluster_{name}"] = (("chain", "draw", f"{name}_object"), draws)
    stats = {
        "log_joint": (("chain", "draw"), rng.normal(-1e5, 3, (2, 20))),
        "n_occupied": (("chain", "draw"), rng.integers(3, 5, (2, 20))),
    }
    chains = {"chain": [0, 1], "draw": range(20)}
    return xr.DataTree.from_dict(
        {"posterior": xr.Dataset(posterior, chains), "sample_stats": xr.Dataset(stats, chains)}
    )
