"""Sums of rows by label."""

from pm_match.numerics.kernels import entry


@entry
def add_up(values, labels, sums):
    """Add the rows of `values` (N, M) to the rows of `sums` (T, M) that `labels` (N,) name.

    Rows with a label of -1 are left out.
    """
    for n in range(values.shape[0]):
        label = labels[n]
        if label >= 0:
            for m in range(values.shape[1]):
                sums[label, m] += values[n, m]
