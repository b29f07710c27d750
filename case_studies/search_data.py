"""What the case study of the search matches: data with known clusters, and the models of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

import pm_match as pmm
from case_studies.uneven import uneven
from pm_match import datasets, metrics

# Numbers of factors that are tried where one is chosen.
CANDIDATES = (3, 4, 5)


@dataclass(frozen=True, eq=False)
class Problem:
    """Something to match, and what is known about it.

    Attributes
    ----------
    declare : callable
        From a seed to the model, whose free choices are part of what is measured.
    truth : dict of str to array
        True labels by the names of the assignments, -1 for irrelevant objects.
    index : callable
        From labels, by the same names, to the index of the paper that the data are from.
    peers : dict of str to array_like
        Tables that other methods are given. Empty if they cannot be applied.
    n_clusters : int
        That others are told: of true clusters.
    """

    declare: Callable[[int], pm.Model]
    truth: dict[str, np.ndarray]
    index: Callable[[Mapping[str, ArrayLike]], float]
    peers: Mapping[str, ArrayLike] = field(default_factory=dict)
    n_clusters: int = 0


@dataclass(frozen=True)
class Row:
    """A kind of data.

    Attributes
    ----------
    make : callable
        From the folder with files and a seed to a problem.
    group : {"synthetic", "networks", "tables"}
    target : float
        The index that is aimed at.
    needs_folder : bool
        Whether the data are in a file that is not part of this project.
    """

    make: Callable[[Path | None, int], Problem]
    group: str
    target: float
    needs_folder: bool = False


def of_domains(
    domains: Mapping[str, Any],
    declare: Callable[[int], pm.Model],
    peers: Mapping[str, ArrayLike],
) -> Problem:
    """Make a problem of tables, scored by the adjusted Rand index over all objects.

    Parameters
    ----------
    domains : mapping of str to DataArray
        With true labels, as `pm_match.datasets` returns them.
    declare : callable
        From a seed to a model of the domains.
    peers : mapping of str to array_like
        Tables that other methods are given.

    Returns
    -------
    Problem
    """
    true = datasets.true_labels(domains)
    everything = np.unique(np.concatenate(list(true.values())), return_inverse=True)
    codes = np.split(everything[1].reshape(-1), np.cumsum([len(v) for v in true.values()])[:-1])
    return Problem(
        declare=declare,
        truth={f"cluster_{name}": own for name, own in zip(true, codes, strict=True)},
        index=lambda labels: metrics.adjusted_rand_index(
            true, {name: labels[f"cluster_{name}"] for name in true}
        ),
        peers=peers,
        n_clusters=len(everything[0]),
    )


def _synthetic(
    make: Callable[..., Mapping[str, Any]], n_factors: int | None, folder: Path | None, seed: int
) -> Problem:
    """Make a problem for the papers' model, its number of factors given or chosen by BIC."""
    domains = make(random_seed=seed)

    def declare(own_seed: int) -> pm.Model:
        k = n_factors
        if k is None:
            chosen = pmm.choose_n_factors(
                lambda k: pmm.models.projected_clusters(domains, n_factors=k),
                CANDIDATES,
                method="bic",
                random_seed=own_seed,
                progressbar=False,
            )
            k = int(chosen["best"])
        return pmm.models.projected_clusters(domains, n_factors=k)

    return of_domains(domains, declare, domains)


def _table(
    load: Callable[..., Mapping[str, Any]],
    same_units: bool,
    model: Mapping[str, Any],
    folder: Path | None,
    seed: int,
) -> Problem:
    """Make a problem for the model of real tables.

    Other methods get columns of the same units as they are, and others standardised: measured,
    that is what suits them best.
    """
    domains = load(random_seed=seed) if folder is None else load(folder, seed)
    return of_domains(
        domains,
        lambda _: pmm.models.table_clusters(domains, **model),
        domains if same_units else pmm.standardise(domains),
    )


def _networks(kind: str, folder: Path | None, seed: int) -> Problem:
    """Make a problem of two networks, scored by the matching index, averaged over both types."""
    data = datasets.synthetic_networks(kind, random_seed=seed)
    true = {
        t: {name: data.clusters[name][number] for name in data.networks}
        for number, t in enumerate(data.types)
    }
    return Problem(
        declare=lambda _: pmm.models.relational_clusters(data.networks, types=data.types),
        truth={f"cluster_{name}_{t}": own for t in true for name, own in true[t].items()},
        index=lambda labels: float(
            np.mean(
                [
                    metrics.matching_adjusted_rand_index(
                        true[t], {name: labels[f"cluster_{name}_{t}"] for name in true[t]}
                    )
                    for t in true
                ]
            )
        ),
    )


def _row(group: str, target: float, make: Callable[..., Problem], *given: Any) -> Row:
    return Row(partial(make, *given), group, target)


def _drawn(**given: Any) -> Callable[..., Mapping[str, Any]]:
    return partial(datasets.synthetic, **given)


def _glass(folder: Path | None, seed: int) -> Problem:
    return _table(datasets.load_glass, False, {}, folder, seed)


def _ignoring_folder(make: Callable[..., Problem], *given: Any) -> Callable[..., Problem]:
    return lambda folder, seed: make(*given, None, seed)


def _real(target: float, load: Callable[..., Mapping[str, Any]], units: bool, **model: Any) -> Row:
    return Row(_ignoring_folder(_table, load, units, model), "tables", target)


_TEN = partial(datasets.rotated_digits, digits=range(10))

ROWS: dict[str, Row] = {
    "synth3": _row("synthetic", 0.98, _synthetic, _drawn(n_factors=3), None),
    "synth5": _row("synthetic", 0.99, _synthetic, _drawn(), 5),
    "synth10": _row("synthetic", 0.86, _synthetic, _drawn(n_factors=10), 5),
    "3-domains": _row("synthetic", 0.97, _synthetic, _drawn(n_domains=3), 5),
    "4-domains": _row("synthetic", 0.97, _synthetic, _drawn(n_domains=4), 5),
    "5-domains": _row("synthetic", 0.97, _synthetic, _drawn(n_domains=5), 5),
    "uneven": _row("synthetic", 0.97, _synthetic, uneven, 5),
    "noisy-dirichlet": _row("networks", 0.95, _networks, "noisy-dirichlet"),
    "noisy-partial": _row("networks", 0.94, _networks, "noisy-partial"),
    "dirichlet": _row("networks", 0.95, _networks, "dirichlet"),
    "iris": _real(0.74, datasets.iris, True),
    "wine": _real(0.40, datasets.wine, False),
    "glass": Row(_glass, "tables", 0.17, needs_folder=True),
    "digits-0-3": _real(0.60, datasets.rotated_digits, True, n_components=10),
    "ten-digits": _real(0.32, _TEN, True, n_components=15, n_clusters=16),
}
