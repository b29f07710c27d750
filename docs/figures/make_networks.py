"""Make networks.png: the networks of docs/networks.md, as they come and ordered by cluster.

Run ``python docs/figures/make_networks.py``, from anywhere.
"""

from pathlib import Path

import matplotlib as mpl

import pm_match as pmm


def main() -> None:
    """Sample the first model of the page and save the figure beside this script."""
    mpl.use("Agg")
    drawn = pmm.datasets.synthetic_networks("noisy-partial", random_seed=4)
    model = pmm.models.relational_clusters(drawn.networks, types=drawn.types)
    idata = pmm.sample(100, tune=100, chains=8, random_seed=4, model=model)
    labels = pmm.partition_estimate(pmm.best_chain(idata))

    networks, order = {}, {}
    for name, network in drawn.networks.items():
        networks[f"{name}, as it comes"], order[f"{name}, as it comes"] = network, (None, None)
    for name, network in drawn.networks.items():
        networks[f"{name}, ordered"] = network
        order[f"{name}, ordered"] = tuple(labels[f"cluster_{name}_{t}"] for t in drawn.types)
    figure = pmm.plots.plot_networks(
        networks, order, types=drawn.types, title="Two networks that share no objects"
    )
    figure.savefig(Path(__file__).with_name("networks.png"), dpi=110)


if __name__ == "__main__":
    main()
