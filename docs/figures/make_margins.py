"""Make margins.png: how far the best matching is above the next, for docs/modes.md.

Run ``python docs/figures/make_margins.py``, from anywhere. It prints the page's numbers.
"""

from itertools import permutations
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import pm_match as pmm
from pm_match.features.search.plain import problem_of
from pm_match.reading import read

# Latent dimensions of the data and of the model, and how the figure calls them.
PROBLEMS = {
    "Synth3, K = 3": (3, 3),
    "Synth3, K = 5": (3, 5),
    "Synth5, K = 5": (5, 5),
    "Synth10, K = 5": (10, 5),
}
SETS = 10
# Features of the sets of the last kind that are sampled.
SAMPLED = (50, 10)


def margin(domains, n_factors: int) -> tuple[float, bool]:
    """Return what separates the best matching of the true clusters from the next, in nats.

    All 120 matchings are scored, with projections fitted to each. Also return whether the best is
    the true one.
    """
    model = pmm.models.projected_clusters(domains, n_factors=n_factors)
    component = read(model).components[0]
    problem, *_ = problem_of(
        component.clusterings[0], component.features[0], model.initial_point(0)
    )
    grouped = problem.grouped(np.concatenate(list(pmm.datasets.true_labels(domains).values())))
    orders = np.array(list(permutations(range(5))))  # the first is the identity
    own = grouped.home == 1
    labels = np.repeat(grouped.label[None], len(orders), axis=0)
    labels[:, own] = orders[:, grouped.label[own]]
    scores = grouped.score(labels)
    best, second = np.sort(scores)[:-3:-1]
    return best - second, scores.argmax() == 0


def between_clusters(domains, n_factors: int) -> np.ndarray:
    """Sample with normal projections; return match probabilities (5, 5) of the true clusters."""
    model = pmm.models.projected_clusters(domains, n_factors=n_factors, projection="normal")
    idata = pmm.sample(2000, tune=500, model=model, random_seed=0, cores=1, progressbar=False)
    print(idata["sample_stats"]["log_joint"].mean("draw").to_numpy().round(1))
    match = pmm.match_probability(idata, "cluster_a", "cluster_b").to_numpy()
    a, b = (np.eye(5)[label] for label in pmm.datasets.true_labels(domains).values())
    return (a.T @ match @ b) / np.outer(a.sum(axis=0), b.sum(axis=0))


def main() -> None:
    """Score, sample, and save the figure beside this script."""
    mpl.use("Agg")
    figure, axes = plt.subplots(
        1, 3, figsize=(10.5, 3.6), width_ratios=(4, 3, 3), layout="constrained"
    )
    axis = axes[0]
    for row, (title, (in_data, in_model)) in enumerate(PROBLEMS.items()):
        drawn = [pmm.datasets.synthetic(n_factors=in_data, random_seed=s) for s in range(SETS)]
        margins, right = zip(*(margin(d, in_model) for d in drawn), strict=True)
        print(title, np.round(margins, 2), "median", np.median(margins), "true", sum(right))
        axis.scatter(margins, [row] * SETS, s=36, facecolors="none", edgecolors="0.2")
        axis.plot([np.median(margins)] * 2, [row - 0.25, row + 0.25], color="0.0", linewidth=2)
    axis.axvline(1.0, color="0.0", linewidth=1, linestyle="--")
    axis.text(0.93, -0.6, "1 nat", ha="right", fontsize=8)
    axis.set_xscale("log")
    axis.set_yticks(range(len(PROBLEMS)), PROBLEMS)
    axis.set(
        ylim=(len(PROBLEMS) - 0.4, -0.8),
        xlabel="log joint above the runner-up (nats)",
        title="Margins of ten sets each",
    )
    for axis, n_features in zip(axes[1:], SAMPLED, strict=True):
        domains = pmm.datasets.synthetic(n_features=n_features, n_factors=10, random_seed=0)
        match = between_clusters(domains, 5)
        print(n_features, match.round(2), sep="\n")
        axis.imshow(match, cmap="Greys", vmin=0, vmax=1)
        for (i, j), value in np.ndenumerate(match):
            axis.text(
                j, i, f"{value:.2f}", ha="center", va="center", fontsize=8,
                color="1.0" if value > 0.5 else "0.0",
            )  # fmt: skip
        axis.set_xticks(range(5), range(1, 6))
        axis.set_yticks(range(5), range(1, 6))
        axis.set(
            xlabel="cluster of b",
            ylabel="cluster of a",
            title=f"Match probabilities:\nSynth10, {n_features} features",
        )
    figure.savefig(Path(__file__).with_name("margins.png"), dpi=110)


if __name__ == "__main__":
    main()
