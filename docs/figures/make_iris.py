"""Make iris.png: clusters of Iris flowers matched without a common feature, for docs/modes.md.

Run ``python docs/figures/make_iris.py``, from anywhere. It prints the page's numbers.
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import pm_match as pmm

MARKERS = "os^Dv*"
SHADES = ("1.0", "0.6", "0.05")
SPECIES = ("setosa", "versicolor", "virginica")


def main() -> None:
    """Search for the matching and save the figure beside this script."""
    mpl.use("Agg")
    domains = pmm.datasets.iris(random_seed=0)
    model = pmm.models.table_clusters(domains)
    best = pmm.find_matching(model, starts=2, random_seed=0, progressbar=False)
    labels = pmm.partition_estimate(best)
    true = pmm.datasets.true_labels(domains)
    found = {name: labels[f"cluster_{name}"].to_numpy() for name in domains}
    print(best["starts"].to_dataset()[["log_joint", "n_occupied", "seconds"]].to_dataframe())
    print(pmm.cluster_sizes(labels))
    print(pmm.metrics.adjusted_rand_index(true, found))

    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.0), layout="constrained")
    for axis, (name, x) in zip(axes, domains.items(), strict=True):
        for cluster in np.unique(found[name]):
            own = found[name] == cluster
            axis.scatter(
                *x.values[own].T,
                s=34,
                marker=MARKERS[cluster],
                c=[SHADES[species] for species in true[name][own]],
                edgecolors="0.0",
                linewidths=0.7,
                alpha=0.9,
            )
        first, second = x[x.dims[1]].values
        axis.set(xlabel=first, ylabel=second, title=f"Domain {name}")
    clusters = np.unique(np.concatenate(list(found.values())))
    style = {"linestyle": "none", "markeredgecolor": "0.0"}
    handles = [
        Line2D([], [], marker=MARKERS[c], markerfacecolor="none", label=f"cluster {c}", **style)
        for c in clusters
    ]
    handles += [
        Patch(facecolor=shade, edgecolor="0.0", label=species)
        for species, shade in zip(SPECIES, SHADES, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.savefig(Path(__file__).with_name("iris.png"), dpi=110)


if __name__ == "__main__":
    main()
