"""Make dependency_{rank,toys}.png: what two views share, by maximum likelihood.

Run ``python docs/figures/make_dependency.py``. It prints the numbers; `case_studies.dependency`
says what is drawn.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
# The case studies are no part of the package.
sys.path.insert(0, str(HERE.parents[1]))

from case_studies.dependency import plot_rank, plot_toys, rank_set  # noqa: E402

N_SETS = 5


def main() -> None:
    """Fit, and save the figures beside this script."""
    mpl.use("Agg")
    with threadpool_limits(1):
        plot_toys().savefig(HERE / "dependency_toys.png", dpi=85)
        found = pd.DataFrame([row for seed in range(N_SETS) for row in rank_set(None, seed)])
    plot_rank(found).savefig(HERE / "dependency_rank.png", dpi=110)
    print(found.pivot_table(index="shared", columns="private", values="EM").round(3))
    print(found.groupby("shared")["CCA"].mean().round(3))


if __name__ == "__main__":
    main()
