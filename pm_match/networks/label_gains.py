"""What groups of objects add to the blocks of every label that they might take."""

import numpy as np

from pm_match.networks.families import gain
from pm_match.numerics.kernels import entry


@entry
def add_gains(family, prior, tables, fixed, moved, out):
    """Add to `out` (G, J) what each group adds to the blocks of each label.

    Parameters
    ----------
    family : int
    prior, tables : array
        See `families.gain`.
    fixed : (3, J, L) array
        S, C and Q of the blocks without the groups.
    moved : (3, G, L) array
        S, C and Q of the groups.
    """
    for g in range(moved.shape[1]):
        empty = np.nan
        for j in range(fixed.shape[1]):
            vacant = True
            for c in range(fixed.shape[2]):
                vacant = vacant and fixed[1, j, c] == 0.0
            if vacant and empty == empty:
                out[g, j] += empty
                continue
            found = 0.0
            for c in range(fixed.shape[2]):
                dt, dc, dq = moved[0, g, c], moved[1, g, c], moved[2, g, c]
                if dc == 0.0 and dt == 0.0:
                    continue
                t, n, q = fixed[0, j, c], fixed[1, j, c], fixed[2, j, c]
                found += gain(family, prior, tables, t, n, q, dt, dc, dq)
            if vacant:
                empty = found
            out[g, j] += found
