"""How well the max-margin model of several views predicts classes, other classifiers beside it.

Rows are data: drawn views of which no linear function tells the class, web pages of four
departments (students' pages against the rest; words and links), scikit-learn's digits with the left
and the right half as views, and sets of features of other handwritten digits. All methods are given
the same ten folds, scaled in the same way by the objects to learn from, and choose their constants
by cross-validation within these. Printed are means ± standard errors over folds of

- ``accuracy``: share of objects whose class is told;
- ``log loss``: minus the logarithm of the true class's probability, mean over objects;
- ``Brier``: half the squared distance of the classes' probabilities from the truth.

``pm_match`` is the model with the kernel that it learns; ``frozen`` the same with frequencies that
stay where they start. Both choose C by one chain with a third of all their draws and tuning; what
else is set for them (`case_studies.view_data.ROWS`) was chosen with pages of Cornell and Texas,
with digits and with sets of features, all cut otherwise. The other classifiers see all views'
features side by side. Two numbers of support vector machines are Platt's: their own scores are no
probabilities. Where C was chosen, there are rows of ``pm_match`` and ``frozen`` with Platt's
sigmoids too, fitted to the mean scores of objects that were held out to choose it: other
probabilities of the same labels.

Web pages and sets of features need a folder with the files that `pm_match.datasets` describes. What
is missing is skipped, and said so. scikit-learn is needed.

Run ``python -m case_studies.max_margin FOLDER --out max_margin``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from case_studies import adaptive_kernel
from case_studies.adaptive_kernel import Settings
from case_studies.peers.classifiers import CLASSIFIERS, Prediction
from case_studies.view_data import ROWS, Fold, folds, side_by_side

SCORES = ("accuracy", "log loss", "Brier")
# Probabilities are kept from 0 and 1, so that one certain error does not decide a log loss.
_LEAST = 1e-6


def beside(
    classify: Callable[..., Prediction],
) -> Callable[[Fold, Settings, int], Prediction]:
    """Let a classifier of one table predict a fold from all views side by side."""
    return lambda fold, settings, seed: classify(
        side_by_side(fold.train), fold.train_labels, side_by_side(fold.test), seed
    )


METHODS: dict[str, Callable[[Fold, Settings, int], Prediction]] = {
    "pm_match": adaptive_kernel.predict,
    "frozen": partial(adaptive_kernel.predict, frozen=True),
    **{name: beside(classify) for name, classify in CLASSIFIERS.items()},
}


def scores(prediction: Prediction, labels: np.ndarray) -> dict[str, float]:
    """Score what is said of new objects.

    Parameters
    ----------
    prediction : Prediction
    labels : ndarray of int, shape (n_objects,)
        Their true classes.

    Returns
    -------
    dict of str to float
        By the names in `SCORES`.
    """
    probability = np.clip(prediction.probability, _LEAST, 1 - _LEAST)
    probability /= probability.sum(axis=1, keepdims=True)
    truth = np.eye(probability.shape[1])[labels]
    return {
        "accuracy": float(np.mean(prediction.labels == labels)),
        "log loss": float(-np.mean(np.log((probability * truth).sum(axis=1)))),
        "Brier": float(np.mean(0.5 * ((probability - truth) ** 2).sum(axis=1))),
    }


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Give means and standard errors over folds.

    Parameters
    ----------
    found : DataFrame
        A row for each fold, with ``data``, ``method``, ``seed``, ``fold`` and the scores.

    Returns
    -------
    DataFrame
        A row for each data and method, columns by score, then ``mean`` and ``s.e.``; ``folds`` how
        many there are, and ``seconds``, the CPU time of one.
    """
    grouped = found.groupby(["data", "method"], sort=False)
    parts = {}
    for score in SCORES:
        parts[score, "mean"] = grouped[score].mean()
        parts[score, "s.e."] = grouped[score].sem()
    parts["folds", ""] = grouped.size()
    parts["seconds", ""] = grouped["seconds"].mean()
    return pd.DataFrame(parts)


def readable(table: pd.DataFrame) -> str:
    """Write a table from `summary` for reading."""
    shown = pd.DataFrame(index=table.index)
    for score in SCORES:
        shown[score] = [
            f"{mean:.3f}" + ("" if np.isnan(error) else f" ± {error:.3f}")
            for mean, error in zip(table[score, "mean"], table[score, "s.e."], strict=True)
        ]
    shown["folds"] = table["folds"].to_numpy()
    shown["CPU s a fold"] = [f"{seconds:.1f}" for seconds in table["seconds"]]
    return shown.to_string()


def main(argv: Sequence[str] | None = None) -> None:
    """Predict folds by all methods, print the table and write it.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    found: list[dict] = []
    for name in options.only or ROWS:
        row = ROWS[name]
        settings = Settings(
            **row.model,
            costs=tuple(options.costs or row.costs),
            draws=options.draws,
            tune=options.draws,
            n_leapfrog=options.leapfrog,
        )
        for seed in range(options.first, options.first + options.sets):
            try:
                data = row.make(options.folder, seed)
            except (FileNotFoundError, ImportError) as error:
                print(f"{name}: skipped, {error}", flush=True)
                break
            for number, fold in enumerate(
                folds(data, row.unit_rows, options.folds, seed, row.one_unit)
            ):
                if options.up_to is not None and number >= options.up_to:
                    break
                for method in options.methods:
                    began = time.process_time()
                    said = METHODS[method](fold, settings, seed)
                    seconds = time.process_time() - began
                    for shown, prediction in _with_calibrated(method, said):
                        found.append(
                            {"data": name, "method": shown, "seed": seed, "fold": number}
                            | scores(prediction, fold.test_labels)
                            | {"seconds": seconds}
                        )
                # After every fold, so that a run that is cut short leaves what it has.
                pd.DataFrame(found).to_csv(options.out / "folds.csv", index=False)
            own = [
                one
                for one in found
                if (one["data"], one["seed"]) == (name, seed) and one["method"] in options.methods
            ]
            print(f"{name}, seed {seed}: {_line(own)}", flush=True)
    if not found:
        return
    table = summary(pd.DataFrame(found))
    table.to_csv(options.out / "table.csv")
    print(f"\nMean ± standard error over folds\n\n{readable(table)}\n\ntables  {options.out}")


def _with_calibrated(method: str, said: Prediction) -> list[tuple[str, Prediction]]:
    """Name a prediction and, if it is calibrated besides, give the same labels with that."""
    found = [(method, said)]
    if said.calibrated is not None:
        found.append(
            (f"{method} + Platt", replace(said, probability=said.calibrated, calibrated=None))
        )
    return found


def _line(rows: list[dict]) -> str:
    means = pd.DataFrame(rows).groupby("method", sort=False)["accuracy"].mean()
    return ", ".join(f"{method} {accuracy:.3f}" for method, accuracy in means.items())


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.max_margin",
        description="What classes the max-margin model of several views tells, and what others do.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", help="with files of real data sets")
    parser.add_argument("--only", nargs="+", choices=ROWS, metavar="DATA", help=", ".join(ROWS))
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD",
        help=", ".join(METHODS),
    )  # fmt: skip
    parser.add_argument(
        "--costs", nargs="+", type=float, metavar="C",
        help="weights of labels that pm_match and frozen choose from within the objects to learn "
        "from; left out, each kind of data has its own in `case_studies.view_data.ROWS`",
    )  # fmt: skip
    parser.add_argument(
        "--draws",
        type=int,
        default=300,
        help="of each chain of pm_match and frozen, after as many to tune; to choose C, a third",
    )
    parser.add_argument(
        "--leapfrog", type=int, default=0, metavar="STEPS",
        help="of Hamiltonian moves that pm_match makes with all frequencies at once; 0 for none",
    )  # fmt: skip
    parser.add_argument("--folds", type=int, default=10, help="parts that objects are cut into")
    parser.add_argument("--up-to", type=int, metavar="N", help="predict only the first N folds")
    parser.add_argument("--sets", type=int, default=1, help="sets, or cuts, of each kind of data")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first set")
    parser.add_argument("--out", type=Path, default=Path("max_margin"), help="for the tables")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
