"""Make modes.png: chains from searched and from dispersed starts, for docs/modes.md.

Run ``python docs/figures/make_modes.py``, from anywhere. It prints the page's numbers.
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import pm_match as pmm

TUNE, DRAWS, CHAINS = 200, 200, 10
STYLE = {
    "dispersed": {"color": "0.6", "linewidth": 1.0, "zorder": 1},
    "search": {"color": "0.0", "linewidth": 1.4, "linestyle": (0, (4, 2)), "zorder": 2},
}
MARK = {"dispersed": {"marker": "o", "facecolors": "none", "edgecolors": "0.35"}}
MARK["search"] = {"marker": "x", "color": "0.0"}


def indices(idata, domains) -> np.ndarray:
    """Compute adjusted Rand indices of the chains' last draws: within domains, of the matching."""
    true = pmm.datasets.true_labels(domains)
    rows = []
    for chain in range(CHAINS):
        last = idata["posterior"].isel(chain=chain, draw=-1)
        found = {name: last[f"cluster_{name}"].to_numpy() for name in true}
        alone = [pmm.metrics.adjusted_rand_index({n: true[n]}, {n: found[n]}) for n in true]
        rows.append([np.mean(alone), pmm.metrics.matching_adjusted_rand_index(true, found)])
    return np.array(rows)


def main() -> None:
    """Sample a synthetic problem from both kinds of starts; save the figure beside this script."""
    mpl.use("Agg")
    domains = pmm.datasets.synthetic(random_seed=1)
    model = pmm.models.projected_clusters(domains)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.0, 3.6), width_ratios=(3, 2), layout="constrained"
    )
    top = -np.inf
    for init in ("dispersed", "search"):
        idata = pmm.sample(
            DRAWS,
            tune=TUNE,
            chains=CHAINS,
            init=init,
            model=model,
            random_seed=1,
            cores=1,
            discard_tuned_samples=False,
            compute_convergence_checks=False,
            progressbar=False,
        )
        stats = [idata[f"{group}sample_stats"]["log_joint"] for group in ("warmup_", "")]
        joint = np.concatenate([s.to_numpy() for s in stats], axis=1)
        found = indices(idata, domains)
        top = max(top, joint[:, TUNE:].mean(axis=1).max())
        for number, own in enumerate(joint):
            left.plot(own, label=init if number == 0 else None, **STYLE[init])
        right.scatter(found[:, 0], found[:, 1], s=45, label=init, **MARK[init])
        print(init, "log joint", joint[:, TUNE:].mean(axis=1).round(1))
        print(init, "within domains", found[:, 0].round(2), "matching", found[:, 1].round(2))
    left.set_ylim(top - 400, top + 30)
    left.axvline(TUNE, color="0.5", linewidth=0.8, linestyle=":")
    left.text(TUNE + 3, top - 385, "end of warm-up", fontsize=8, color="0.3")
    left.set(xlabel="iteration", ylabel="log joint", title="Ten chains of each kind")
    left.legend(loc="lower right", title="starts", fontsize=8, title_fontsize=8)
    right.set(
        xlabel="index of the clusters within domains",
        ylabel="index of the matching",
        title="Their last draws",
        xlim=(0.94, 1.006),
        ylim=(-0.3, 1.08),
    )
    right.legend(loc="lower left", fontsize=8)
    figure.savefig(Path(__file__).with_name("modes.png"), dpi=110)


if __name__ == "__main__":
    main()
