r"""Doubt whether objects are relevant, of many at once.

With the share of relevant objects integrated out, flags hold each other: where all N objects are
relevant, the first to become irrelevant pays log N, whatever the odds would be once many are
(:math:`(e + L_1) / (f + L_0)`; Iwata & Ishiguro 2017, eq. 2). Sweeps from clusters that all objects
are in so never reach modes in which most are noise, far higher as these may be.
"""

import numpy as np

from pm_match.search.chain import Chain
from pm_match.search.coarse import LEAST, ascend, settled

# Even odds: objects then leave whose clusters tell less of their edges than the labels cost.
_SHARE = 0.5
_SWEEPS = 10
_SETTLING = 10


def doubt(chain: Chain, number: int, rng: np.random.Generator) -> float:
    """Let the objects of one clustering after the other leave freely; keep what settles higher.

    For a few sweeps the share of relevant objects is known to be one half, so that flags do not
    hold each other. Then they do again, and the result counts if its log joint is higher.

    `number`: the component. Without flags whose share is learned, nothing is done. Return what the
    log joint rose by. The chain's point has the new labels.
    """
    state = chain.loaded(number)
    doubted = [
        n
        for n, partition in enumerate(state.partitions)
        if (partition.relevance.group >= 0).any() and partition.relevance.prior[:, 2].any()
    ]
    if not doubted:
        return 0.0
    before = state.log_joint()
    ascend(state)
    best, highest = state.found(), state.log_joint()
    for n in rng.permutation(doubted):
        state.load(chain.point, best)
        prior = state.partitions[n].relevance.prior
        prior[prior[:, 2] > 0] = _SHARE, 1.0 - _SHARE, 0.0
        for _ in range(_SWEEPS):
            state.sweep(rng)
        state.load_priors(chain.point)
        found = settled(state, rng, _SETTLING)
        if found > highest + LEAST:
            best, highest = state.found(), found
    chain.place(number, best)
    return highest - before
