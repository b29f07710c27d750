"""Make calibration.png: match probabilities beside how often the match was true.

Run ``python docs/figures/make_calibration.py``, from anywhere. It prints the figure's numbers.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.exactness.match_calibration import calibration, make_simulator, reliability

N_SIMULATIONS = 150
TITLES = {
    "match": "objects of two domains\nshare a cluster",
    "within": "objects of one domain\nshare a cluster",
    "unmatched": "an object has\nno counterpart",
}


def main() -> None:
    """Simulate, sample and compare; save the figure beside this script."""
    mpl.use("Agg")
    table = calibration(make_simulator(7), N_SIMULATIONS)
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.4), sharey=True, layout="constrained")
    for axis, (kind, title) in zip(axes, TITLES.items(), strict=True):
        found = reliability(table[table["kind"] == kind])
        # Errors are estimated from simulations: a few tell nothing.
        found = found[found["simulations"] >= 15]
        print(kind, found.round(3).to_string(index=False), sep="\n")
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, linestyle=":")
        axis.errorbar(
            found["probability"],
            found["frequency"],
            yerr=2 * found["error"],
            color="0.0",
            marker="o",
            markersize=4,
            linewidth=0.9,
            capsize=2,
        )
        axis.set(xlabel="posterior probability", title=title, xlim=(-0.03, 1.03), aspect="equal")
        axis.title.set_fontsize(10)
    axes[0].set(ylabel=f"fraction true, ± 2 errors\n({N_SIMULATIONS} simulated data sets)")
    axes[0].set_ylim(-0.03, 1.03)
    figure.savefig(Path(__file__).with_name("calibration.png"), dpi=110)


if __name__ == "__main__":
    main()
