"""How many objects of every domain are in every cluster."""

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.matching.draws import PREFIX, SET, by_set, check_labels


def cluster_sizes(labels: xr.Dataset) -> pd.DataFrame:
    """Count the objects of every cluster in every domain.

    Parameters
    ----------
    labels : Dataset
        One variable of labels for each domain, as `partition_estimate` gives it. Irrelevant objects
        have negative labels.

    Returns
    -------
    DataFrame, shape (n_clusters, n_domains + 1)
        One row for each cluster, one column for each domain (without the prefix ``cluster_``), and
        the total. If there are irrelevant objects, a last row ``"irrelevant"`` counts them. With
        several sets of clusters (see `assignment_sets`) the rows are labelled by set and
        cluster.

    Raises
    ------
    TypeError
        If `labels` are draws.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> pmm.cluster_sizes(pmm.partition_estimate(posterior))
             a  b  total
    cluster
    0        2  1      3
    1        1  1      2
    """
    check_labels(labels)
    sets = by_set(labels.data_vars)
    tables = []
    for members in sets.values():
        values = {str(name): labels[name].to_numpy() for name in members}
        counts = {name: pd.Series(v[v >= 0]).value_counts() for name, v in values.items()}
        table = pd.DataFrame(counts).fillna(0).astype(int).sort_index()
        irrelevant = {name: int(np.sum(v < 0)) for name, v in values.items()}
        if any(irrelevant.values()):
            table = pd.concat([table, pd.DataFrame(irrelevant, index=["irrelevant"])])
        tables.append(table.rename_axis(index="cluster"))
    if len(tables) == 1:
        table = tables[0]
    else:
        keys = [name or "" for name in sets]
        table = pd.concat(tables, keys=keys, names=[SET]).fillna(0).astype(int)
    table = table[[str(name) for name in labels.data_vars]]
    table["total"] = table.sum(axis=1)
    return table.rename(columns=lambda name: name.removeprefix(PREFIX))
