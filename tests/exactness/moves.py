"""Moves of labels, alone and together."""


def split_and_merge(collapsed, rng):
    """Splits and merges, with the few sweeps that change what they cannot: relevance."""
    collapsed.split_or_merge(rng, 10)
    if any((p.relevance.group >= 0).any() for p in collapsed.partitions) and rng.random() < 0.5:
        collapsed.sweep(rng)


def exchange(collapsed, rng):
    """Exchanges, with a few sweeps: they leave every assignment's clusters as they are."""
    _, proposed = collapsed.exchange(rng, 3)
    if proposed == 0 or rng.random() < 0.5:
        collapsed.sweep(rng)


def everything(collapsed, rng):
    collapsed.sweep(rng)
    collapsed.split_or_merge(rng, 1)
    collapsed.exchange(rng, 1)
    collapsed.rename(rng)


MOVES = {"split and merge": split_and_merge, "exchange": exchange, "everything": everything}
