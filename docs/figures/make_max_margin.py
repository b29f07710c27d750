"""Make max_margin_{kernel,latent,effects}.png: what the max-margin model of views learns.

Run ``python docs/figures/make_max_margin.py``. It prints the numbers; it takes some minutes.
"""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import pm_match as pmm

HERE = Path(__file__).parent
# The case studies are no part of the package.
sys.path.insert(0, str(HERE.parents[1]))

from case_studies.adaptive_kernel import Settings, fit, predict  # noqa: E402
from case_studies.view_data import ROWS, folds  # noqa: E402

# More factors than the two that tell the classes: the kernel has something to learn.
SETTINGS = Settings(n_factors=8, n_frequencies=50, draws=150, tune=150)
COSTS = (0.01, 0.1, 1.0, 10.0)
FACTORS = (1, 2, 4, 8, 16)
# Objects are cut into so many folds, of which the first ones are predicted for each setting.
FOLDS, PARTS = 3, 2


@cache
def accuracy(name: str, settings: Settings) -> tuple[float, float]:
    """Return the mean accuracy over new objects, and its standard error."""
    row = ROWS[name]
    right = np.concatenate(
        [
            predict(fold, settings, 0).labels == fold.test_labels
            for _, fold in zip(range(PARTS), folds(row.make(None, 0), n_folds=FOLDS), strict=False)
        ]
    )
    return float(right.mean()), float(right.std() / np.sqrt(len(right)))


def convergence(name: str) -> np.ndarray:
    """Return the accuracy on new objects of every draw from the start on, without tuning."""
    fold = next(folds(ROWS[name].make(None, 0), n_folds=FOLDS))
    model, idata = fit(fold.train, fold.train_labels, replace(SETTINGS, tune=0), 0)
    found = pmm.predict(idata, model, fold.test, random_seed=0, progressbar=False)
    right = (found["decision"][0] > 0).to_numpy() == (fold.test_labels == 1)
    return right.mean(axis=1)


def learned() -> None:
    """Draw the kernel and the latent space of the rings."""
    data = ROWS["rings"].make(None, 0)
    fold = next(folds(data, n_folds=FOLDS))
    _, idata = fit(fold.train, fold.train_labels, SETTINGS, 0)
    pmm.plots.plot_kernel(idata).savefig(HERE / "max_margin_kernel.png", dpi=110)
    pmm.plots.plot_margin(idata).savefig(HERE / "max_margin_latent.png", dpi=110)


def main() -> None:
    """Sample, and save the figures beside this script."""
    mpl.use("Agg")
    learned()
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.3), sharey=True, layout="constrained")
    for name, shade in (("xor", "0.1"), ("rings", "0.55")):
        smooth = np.convolve(convergence(name), np.ones(10) / 10, "valid")
        print(name, "by ten draws", smooth[::20].round(3), flush=True)
        axes[0].plot(np.arange(len(smooth)) + 10, smooth, color=shade, lw=1, label=name)
    for axis, values, change in (
        (axes[1], COSTS, lambda value: replace(SETTINGS, costs=(value,))),
        (axes[2], FACTORS, lambda value: replace(SETTINGS, n_factors=value)),
    ):
        means, errors = np.transpose([accuracy("xor", change(value)) for value in values])
        print(dict(zip(values, means.round(3), strict=True)), flush=True)
        axis.errorbar(values, means, errors, color="0.1", marker="o", capsize=2, lw=1, label="xor")
        axis.set_xscale("log")
    axes[0].set(xlabel="draws, mean of ten", ylabel="accuracy on new objects")
    axes[1].set(xlabel="C")
    axes[2].set(xlabel="shared factors")
    axes[2].set_xticks(FACTORS, FACTORS)
    axes[2].minorticks_off()
    axes[0].legend(frameon=False)
    figure.savefig(HERE / "max_margin_effects.png", dpi=110)


if __name__ == "__main__":
    main()
