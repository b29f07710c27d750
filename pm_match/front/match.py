"""One call, from data as people have them to an answer in words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from pm_match.front.prepare import PACKAGE, choose_model, left_out_of, prepare
from pm_match.front.result import MatchResult
from pm_match.sampling import sample

__all__ = ["match"]


def match(
    data: Any,
    *,
    links: Any = None,
    clusters: Mapping[str, Any] | None = None,
    id: str | Mapping[str, str] | None = None,
    columns: Any = None,
    model: str | None = None,
    draws: int = 500,
    tune: int = 500,
    chains: int = 4,
    cores: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    **options: Any,
) -> MatchResult:
    """Match data sets that share no keys: read them, choose a model, sample it, check the chains.

    It is short for::

        prepared = pmm.prepare(data, id=id, columns=columns)  # what is used, and how
        model = prepared.declare(links=links)  # plain PyMC, by a function of pmm.models
        idata = pmm.sample(model=model)  # searches, then samples
        result = pmm.MatchResult(idata, model, prepared)  # estimates, and judges the chains

    Parameters
    ----------
    data : mapping or sequence of paths
        From names of domains to tables or networks, as `prepare` takes them.
    links : mapping, DataFrame or sequence of these, optional
        Objects known to share a cluster: a DataFrame with a column of labels for each domain, one
        row a link; or from domains to positions (whole numbers) or labels (text).
    clusters : mapping, optional
        Clusters that are known already within domains: from domains to a label for every object
        (missing where it is not known; a Series is matched by its index). They are kept whole, and
        it is answered which correspond.
    id : str or mapping of str to str, optional
        The column that names the objects, as in `prepare`.
    columns : mapping or sequence of str, optional
        What columns hold, where it cannot be seen, as in `prepare`.
    model : str, optional
        "table_clusters", "aligned_clusters", "mixture", "projected_clusters" or
        "relational_clusters".
        Default: what `choose_model` recommends for such data.
    draws, tune, chains, cores, random_seed, progressbar
        As in `sample`.
    **options
        Passed to the model's function, such as `n_clusters`, or of networks `types`, `family` and
        `symmetric`.

    Returns
    -------
    MatchResult
        Shown, it is the verdict in words.

    Raises
    ------
    TypeError, ValueError
        If data or options cannot be used; the message says which, and what can be done.
    KeyboardInterrupt
        As `sample`.

    Warns
    -----
    UserWarning
        Of columns that are left out, or whose use is a guess; and as `sample`.

    Examples
    --------
    >>> result = pmm.match({"north": "north.csv", "south": frame}, id="sku", random_seed=1)
    >>> result.matches("north", "south", top=3)
    >>> result.report("match.html")
    """
    prepared = prepare(data, id=id, columns=columns, model=model, **options)
    linked = links is not None or bool(clusters)
    chosen = model or choose_model(prepared, linked)
    for said in left_out_of(prepared, chosen):
        prepared.notes.append(said)
        warnings.warn(said, UserWarning, skip_file_prefixes=(PACKAGE,))
    prepared.notes.append(f"The model is {chosen}.")
    declared = prepared.declare(chosen, links=links, clusters=clusters, **options)
    idata = sample(
        draws,
        tune=tune,
        chains=chains,
        cores=cores,
        random_seed=random_seed,
        progressbar=progressbar,
        quiet=not progressbar,
        compute_convergence_checks=False,  # the result tells
        model=declared,
    )
    return MatchResult(idata, declared, prepared, clusters=clusters)
