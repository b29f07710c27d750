r"""Splits and merges of clusters whose objects are in shards.

After Jain & Neal (2004), with objects that are allotted independently, so that shards do it in
parallel, as the sub-clusters of Chang & Fisher (2013) are. A split takes one of the n clusters that
hold something, divides it, and calls the second part by one of the T - n labels that are free; a
merge takes an ordered pair of clusters together. Either way a *launch* comes first, which looks at
the objects taken together and not at how they are divided: parameters of two parts are drawn from
what the objects add up to, spread as if these were few, and objects and parameters are drawn in
turn a few times. The last division then has the probability :math:`q` of its labels given the
launch, a product over objects. With the weights of the truncated sticks and all clusters'
parameters integrated out, a split from s to s' is accepted with the probability

.. math:: \min\left(1, \frac{p(s') p(X \mid s')}{p(s) p(X \mid s)}\,
          \frac{T - n}{(n + 1)\, q}\right)

as the split is chosen with probability :math:`\frac12 \frac1n \frac1{T - n} q`, and the merge that
undoes it with :math:`\frac12 \frac1{(n + 1) n}`; a merge of n clusters by the inverse, n - 1 in the
place of n.
"""

from math import fsum

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.stick_breaking import log_prior
from pm_match.sharded.centre import Call, Centre, changed, gathered
from pm_match.sharded.evidence import Sums
from pm_match.sharded.shards import Division, Setting

# Times that objects and parameters are drawn in turn before the last division.
_TURNS = 3
# How many objects the first parameters are drawn as if given.
_SEEN = 2.0


def split_or_merge(centre: Centre, call: Call, setting: Setting) -> bool | None:
    """Propose one split or merge; bring the centre's sums to it if it is accepted.

    `centre`: with the sums of the labels that are drawn in the `setting`, the last; `call`: calls a
    method of all shards (see `workers`). Return whether it was accepted; None if none could be
    proposed.
    """
    if not all(centre.evidence[number].divisible for number in centre.sums):
        return None
    rng, counts = centre.rng, centre.counts
    held, free = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    n, splits = len(held), rng.random() < 0.5
    if (splits and not len(free)) or (not splits and n < 2):
        return None
    if splits:
        first, second = int(rng.choice(held)), int(rng.choice(free))
        labels: tuple[int, ...] = (first,)
    else:
        first, second = (int(label) for label in rng.choice(held, 2, replace=False))
        labels = (first, second)
    both = [first, second]
    # One of the two may be empty.
    together = changed(centre.sums, lambda x: x[both].sum(axis=0, keepdims=True))
    sizes, parts, log_q = _divide(centre, call, setting, labels, together)
    objects = np.sum(list(sizes.values()), axis=0)
    if not objects.all():
        return False
    # The state that is split, and the one that is merged.
    merged, divided = counts.copy(), counts.copy()
    merged[both], divided[both] = (objects.sum(), 0), objects
    a, b = centre.clustering.prior(centre.point)
    log_ratio = log_prior(a, b, divided) - log_prior(a, b, merged)
    log_ratio += centre.log_marginals(parts).sum() - centre.log_marginals(together).sum()
    before = n if splits else n - 1
    log_ratio += np.log((len(counts) - before) / (before + 1)) - log_q
    if np.log(rng.random()) >= (log_ratio if splits else -log_ratio):
        return False
    centre.counts = divided if splits else merged
    centre.sizes = {name: own.copy() for name, own in centre.sizes.items()}
    for assignment, own in sizes.items():
        centre.sizes[assignment][both] = own if splits else (own.sum(), 0)
    for number, new in (parts if splits else together).items():
        for assignment, arrays in centre.sums[number].items():
            for array, rows in zip(arrays, new[assignment], strict=True):
                array[first] = rows[0]
                array[second] = rows[1] if splits else 0.0
    return True


def _divide(
    centre: Centre,
    call: Call,
    setting: Setting,
    labels: tuple[int, ...],
    together: dict[int, dict[str, Sums]],
) -> tuple[dict[str, NDArray[np.int64]], dict[int, dict[str, Sums]], float]:
    """Launch, and divide; return objects and sums of the two parts, and log q."""
    rng = centre.rng
    objects = centre.counts[list(labels)].sum()
    parts = changed(together, lambda x: x[[0, 0]] * (_SEEN / objects))
    log_weights = np.log([0.5, 0.5])
    for turn in range(_TURNS + 1):
        parameters = {
            number: centre.evidence[number].proposed(rng, centre.point, own)
            for number, own in parts.items()
        }
        number = int(rng.integers(2**62))
        given = turn == _TURNS and len(labels) == 2
        found = call("divide", setting, Division(labels, log_weights, parameters, number, given))
        sizes, parts = gathered(found)
        held = np.sum(list(sizes.values()), axis=0) + 1.0
        log_weights = np.log(held / held.sum())
    # The same for any order of the chunks.
    return sizes, parts, fsum(own.log_q for own in found)
