"""In which draws some pairs of objects share a cluster."""

from __future__ import annotations

import numpy as np

from pm_match.matching.set_draws import SetDraws


def choose_pairs(draws: SetDraws, n_pairs: int, rng: np.random.Generator) -> np.ndarray:
    """Choose pairs of objects of all domains by position, shape (at most n_pairs, 2).

    All of them if they are not more. Else half of them any two objects, and half two that share a
    cluster in a draw: with many clusters the former hardly ever do.
    """
    n = len(draws.domain_of)
    if n * (n - 1) // 2 <= n_pairs:
        return np.column_stack(np.triu_indices(n, 1))
    first = rng.integers(n, size=n_pairs // 2)
    second = (first + rng.integers(1, n, size=len(first))) % n
    chosen = set(zip(first.tolist(), second.tolist(), strict=True))
    for _ in range(n_pairs - len(first)):
        labels = draws.draw(int(rng.integers(draws.n_draws)))[0]
        one = int(rng.integers(n))
        with_it = np.flatnonzero(labels == labels[one])
        with_it = with_it[with_it != one]
        if labels[one] >= 0 and with_it.size:
            chosen.add((one, int(rng.choice(with_it))))
    pairs = np.array(sorted(chosen), dtype=np.int64).reshape(-1, 2)
    return np.unique(np.sort(pairs, axis=1), axis=0)


def pair_traces(draws: SetDraws, pairs: np.ndarray) -> np.ndarray:
    """Tell in which draws both objects of a pair are relevant and share a cluster.

    Parameters
    ----------
    draws : SetDraws
    pairs : array, shape (n_pairs, 2)
        Positions among the objects of all assignments.

    Returns
    -------
    array of bool, shape (n_draws, n_pairs)
    """
    (one, first), (other, second) = (draws.columns(pairs[:, side]) for side in (0, 1))
    return (one == other) & first & second


def pair_name(draws: SetDraws, pair: np.ndarray) -> str:
    """Name a pair by its objects' domains and labels."""
    first = np.cumsum([0, *draws.sizes])
    parts = []
    for position in pair:
        domain = int(draws.domain_of[position])
        variable = draws.variables[domain]
        label = variable[variable.dims[-1]].to_numpy()[position - first[domain]]
        parts.append(f"{draws.domains[domain]} {label}")
    return ", ".join(parts)
