"""One call, from data as people have them to an answer in words."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from pm_match.checks import check_seed
from pm_match.find_matching import find_matching
from pm_match.front.prepare import check_spelling, prepare
from pm_match.front.result import MatchResult
from pm_match.sampling import sample


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
    executor: Executor | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    search_only: bool = False,
    **options: Any,
) -> MatchResult:
    """Match data sets that share no keys: read them, choose a model, sample it, check the chains.

    It is short for::

        prepared = pmm.prepare(data, links=links, id=id)  # what is used, how, and in which model
        prepared = prepared.settled()  # do numbers go together? what are counts? searches tell
        model = prepared.declare()  # plain PyMC, by a function of pmm.models
        idata = pmm.sample(model=model)  # searches, then samples
        result = pmm.MatchResult(idata, model, prepared)  # estimates, and judges the chains

    Parameters
    ----------
    data, links, cannot_link, clusters, whole, distinct, classes, id, columns, model, standardise
        As in `prepare`. Where `clusters` are given and kept whole, it is answered which of them
        correspond; where `classes` are, which class objects are of (`MatchResult.classes`).
    draws, tune, chains, cores, executor, random_seed, progressbar
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
        Of columns that are left out, whose use is a guess, or that tell the same; and as `sample`.

    Examples
    --------
    >>> north = pd.DataFrame({"sku": ["n1", "n2", "n3", "n4"], "visits": [1, 9, 1, 8]})
    >>> south = pd.DataFrame({"sku": ["s1", "s2", "s3"], "visits": [9, 1, 1]})
    >>> tables = {"north": north, "south": south}
    >>> result = pmm.match(tables, id="sku", draws=50, tune=50, random_seed=1, progressbar=False)
    >>> result.matches("north", "south", top=1)
      object partner  probability    chance
    0     n1      s3        0.755  0.376667
    1     n2      s1        0.770  0.376667
    2     n3      s2        0.745  0.376667
    3     n4      s1        0.715  0.376667
    """
    check_spelling(match, options)
    check_seed(random_seed)
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
    where: dict[str, Any] = {"cores": cores, "executor": executor}
    prepared = prepared.settled(random_seed, progressbar, **where)
    declared = prepared.declare()
    settings: dict[str, Any] = {"random_seed": random_seed}
    if search_only:
        idata = find_matching(declared, random_seed=random_seed, progressbar=progressbar, **where)
    else:
        settings |= {"draws": draws, "tune": tune, "chains": chains}
        idata = sample(
            draws,
            tune=tune,
            chains=chains,
            random_seed=random_seed,
            initvals=prepared.starts(chains, random_seed, progressbar, **where),
            progressbar=progressbar,
            quiet=not progressbar,
            compute_convergence_checks=False,  # the result tells
            model=declared,
            **where,
        )
    return MatchResult(idata, declared, prepared, settings=settings, progressbar=progressbar)
