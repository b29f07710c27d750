"""What no relabelling changes, draw by draw: of partitions, and of pairs of objects."""

import numpy as np

from pm_match.matching.losses import loss_between
from pm_match.matching.set_draws import SetDraws


def partition_traces(draws: SetDraws, reference: np.ndarray) -> dict[str, np.ndarray]:
    """Trace occupied clusters, entropy of their sizes, and distance from a partition.

    `reference` (objects of all,): labels 0, 1, … of the partition that distances are from,
    -1 for irrelevant objects. Return values (n_draws,) by name: the entropy is that of a
    relevant object's cluster, in nats; the distance is the variation of information, in bits.
    """
    occupied, entropy, distance = (np.empty(draws.n_draws) for _ in range(3))
    for draw, (labels, sizes) in enumerate(draws):
        occupied[draw] = len(sizes)
        # In order of size, or rounding would depend on how clusters are numbered: ranks, and with
        # them R-hat, see any difference.
        share = np.sort(sizes) / max(sizes.sum(), 1)
        entropy[draw] = -(share * np.log(share)).sum()
        distance[draw] = loss_between(labels, reference, "vi")
    return {
        "occupied clusters": occupied,
        "entropy of sizes": entropy,
        "distance from a partition": distance,
    }


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

    `pairs` (n_pairs, 2): positions among the objects of all assignments. Return booleans
    (n_draws, n_pairs).
    """
    (one, first), (other, second) = (draws.columns(pairs[:, side]) for side in (0, 1))
    return (one == other) & first & second


def pair_name(draws: SetDraws, pair: np.ndarray) -> str:
    """Name a pair by its objects' domains and labels."""
    first, domain = np.cumsum([0, *draws.sizes]), draws.domain_of[pair]
    labels = [draws.objects[d][own - first[d]] for own, d in zip(pair, domain, strict=True)]
    return ", ".join(f"{draws.domains[d]} {own}" for d, own in zip(domain, labels, strict=True))
