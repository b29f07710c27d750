"""Make networks.png: the networks of docs/networks.md, as they come and ordered by cluster.

Run ``python docs/figures/make_networks.py``, from anywhere.
"""

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pymc as pm

import pm_match as pmm

PAGE = Path(__file__).parents[1] / "networks.md"


def main() -> None:
    """Run the first block of the page and save the figure beside this script."""
    mpl.use("Agg")
    names: dict[str, Any] = {"pm": pm, "pmm": pmm}
    first = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert first is not None
    exec(compile(first[1], PAGE, "exec"), names)
    drawn = names["drawn"]
    labels = pmm.partition_estimate(pmm.best_chain(names["idata"]))
    print(pmm.cluster_sizes(labels).to_string())

    networks, order = {}, {}
    for name, network in drawn.networks.items():
        networks[f"{name}, as it comes"], order[f"{name}, as it comes"] = network, (None, None)
    for name, network in drawn.networks.items():
        networks[f"{name}, ordered"] = network
        order[f"{name}, ordered"] = tuple(labels[f"cluster_{name}_{t}"] for t in drawn.types)
    figure = pmm.plots.plot_networks(
        order, networks, types=drawn.types, title="Two networks that share no objects"
    )
    figure.savefig(Path(__file__).with_name("networks.png"), dpi=110)


if __name__ == "__main__":
    main()
