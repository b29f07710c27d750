"""One call, from data as people have them to an answer in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pm_match.find_matching import find_matching
from pm_match.front.prepare import prepare
from pm_match.front.result import MatchResult
from pm_match.sampling import sample

__all__ = ["match"]


def match(
    data: Any,
    *,
    links: Any = None,
    cannot_link: Any = None,
    clusters: Mapping[str, Any] | None = None,
    whole: bool = True,
    distinct: bool = True,
    classes: Mapping[str, Any] | None = None,
    id: str | Mapping[str, str] | None = None,
    columns: Any = None,
    model: str | None = None,
    standardise: bool = False,
    draws: int = 500,
    tune: int = 500,
    chains: int = 4,
    cores: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    search_only: bool = False,
    **options: Any,
) -> MatchResult:
    """Match data sets that share no keys: read them, choose a model, sample it, check the chains.

    It is short for::

        prepared = pmm.prepare(data, links=links, id=id)  # what is used, how, and in which model
        model = prepared.declare()  # plain PyMC, by a function of pmm.models
        idata = pmm.sample(model=model)  # searches, then samples
        result = pmm.MatchResult(idata, model, prepared)  # estimates, and judges the chains

    Parameters
    ----------
    data, links, cannot_link, clusters, whole, distinct, classes, id, columns, model, standardise
        As in `prepare`. Where `clusters` are given and kept whole, it is answered which of them
        correspond; where `classes` are, which class objects are of (`MatchResult.classes`).
    draws, tune, chains, cores, random_seed, progressbar
        As in `sample`.
    search_only : bool, default False
        Whether to search for the best matching (`find_matching`), without sampling: in a fraction
        of the time, and without telling how sure it is.
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
    prepared = prepare(
        data,
        links=links,
        cannot_link=cannot_link,
        clusters=clusters,
        whole=whole,
        distinct=distinct,
        classes=classes,
        id=id,
        columns=columns,
        model=model,
        standardise=standardise,
        **options,
    )
    declared = prepared.declare()
    settings: dict[str, Any] = {"random_seed": random_seed}
    if search_only:
        idata = find_matching(declared, random_seed=random_seed, progressbar=progressbar)
    else:
        settings |= {"draws": draws, "tune": tune, "chains": chains}
        idata = sample(
            draws,
            tune=tune,
            chains=chains,
            cores=cores,
            random_seed=random_seed,
            initvals=prepared.starts(chains, random_seed, progressbar),
            progressbar=progressbar,
            quiet=not progressbar,
            compute_convergence_checks=False,  # the result tells
            model=declared,
        )
    return MatchResult(idata, declared, prepared, settings=settings)
