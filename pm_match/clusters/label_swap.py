"""Label swaps: rename two clusters, accepted by Metropolis and Hastings' rule.

Evidence does not see names, and truncated stick-breaking does (early labels expect larger
clusters), so the Gibbs sweep alone would keep the names that clusters happened to be born with.
Two labels drawn uniformly exchange their objects: the proposal is symmetric, and the ratio is that
of the prior, which only the sticks between the two labels enter.
"""

from math import exp

from pm_match.numerics.kernels import entry, part
from pm_match.numerics.stick_breaking import stick_factor


@part
def log_shift_ratio(a, b, counts, first, second, shift):
    """Log of p(s with `shift` objects more in `second` and fewer in `first`) / p(s)."""
    low, high = min(first, second), max(first, second)
    last = counts.shape[0] - 1
    after = 0
    for j in range(high + 1, last + 1):
        after += counts[j]
    ratio = 0.0
    shifted = after
    for j in range(high, low - 1, -1):
        here = counts[j]
        new = here
        if j == second:
            new += shift
        elif j == first:
            new -= shift
        if j < last:
            ratio += stick_factor(a[j], b[j], new, shifted) - stick_factor(a[j], b[j], here, after)
        after += here
        shifted += new
    return ratio


@part
def rename_two(renamed, first, second):
    """Let what is renamed `first` be renamed `second`, and the other way round."""
    for old in range(renamed.shape[0]):
        if renamed[old] == first:
            renamed[old] = second
        elif renamed[old] == second:
            renamed[old] = first


@part
def swap_labels(rng, a, b, counts, named, renamed, n_proposals):
    """Propose `n_proposals` swaps; update `counts` and `renamed` (old label -> new) in place.

    Labels that are `named` (T,), by objects whose label is known, are not swapped. Of several
    proposals one is left out at random: if all are accepted, as where weights are alike, an even
    number of them would never make what an odd number makes.

    Return `accepted`, `proposed`: swaps of two empty clusters change nothing and are not counted.
    """
    n_labels = counts.shape[0]
    accepted = 0
    proposed = 0
    if n_labels < 2:
        return accepted, proposed
    if n_proposals > 1:
        n_proposals -= int(2.0 * rng.random())
    for _ in range(n_proposals):
        first = int(rng.random() * n_labels)
        second = int(rng.random() * (n_labels - 1))
        if second >= first:
            second += 1
        else:
            first, second = second, first
        if counts[first] == 0 and counts[second] == 0:
            continue
        if named[first] > 0 or named[second] > 0:
            continue
        proposed += 1
        shift = counts[first] - counts[second]
        if rng.random() >= exp(min(0.0, log_shift_ratio(a, b, counts, first, second, shift))):
            continue
        accepted += 1
        counts[first], counts[second] = counts[second], counts[first]
        rename_two(renamed, first, second)
    return accepted, proposed


@entry
def swap(rng, a, b, counts, named, renamed, n_proposals):
    """Do what `swap_labels` does, where there are counts alone."""
    return swap_labels(rng, a, b, counts, named, renamed, n_proposals)


@entry
def climb_names(a, b, counts, order, least):
    """Exchange labels while the log prior rises by more than `least`.

    Updates `counts` (T,), and with it `order` (T,), the old label of each new one.
    """
    better = True
    while better:
        better = False
        for first in range(counts.shape[0]):
            for second in range(first + 1, counts.shape[0]):
                shift = counts[first] - counts[second]
                if shift == 0:
                    continue
                if log_shift_ratio(a, b, counts, first, second, shift) > least:
                    counts[first], counts[second] = counts[second], counts[first]
                    order[first], order[second] = order[second], order[first]
                    better = True
