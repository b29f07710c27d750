"""What is wrong with chains, and what to do about it, in words."""

from collections.abc import Collection
from typing import Any

import pandas as pd

# R-hat above which chains differ (Vehtari et al. 2021); of the worst of many pairs, a larger one.
_RHAT_LIMIT = 1.01
_WORST_LIMIT = 1.05
# Effective draws a chain below which R-hat and quantiles are not to be relied on.
_ESS_LIMIT = 100
# Draws a chain below which nothing of this can be told.
FEW_DRAWS = 100
# Share of draws that use all clusters there are from which more should be declared.
FULL = 0.1
# Quantities that are named in one item, the worst of them.
_LISTED = 4
# Differences of mean log joints below which two modes may both have mass that matters.
_COMPARABLE = 3.0


def not_agreed(table: pd.DataFrame, pairs: Collection[str], n_draws: int) -> pd.Series:
    """Give those R-hats that say that the chains are not of one law, by quantity.

    `table`: as in `Diagnosis`; `pairs`: its rows that are the worst of many; `n_draws`: of a chain.
    """
    limit = [_WORST_LIMIT if title in pairs else _RHAT_LIMIT for title in table.index]
    return table["r_hat"][(table["r_hat"] > limit) & (n_draws >= FEW_DRAWS)]


def convergence_advice(
    table: pd.DataFrame,
    pairs: Collection[str],
    chains: pd.DataFrame,
    n_draws: int,
    high: pd.Series,
    unbounded: list[str],
) -> list[str]:
    """Say whether the chains agree.

    `chains`: as in `Diagnosis`; `high`: what `not_agreed` gives, as of the other parameters;
    `unbounded`: what is said of chains whose density has no bound, so that log joints tell nothing.
    """
    n_chains = len(chains)
    found = list(unbounded)
    if n_chains == 1:
        found.append(
            "There is only one chain, so nothing tells whether it found the posterior. Compare "
            "four."
        )
    if n_draws < FEW_DRAWS:
        found.append(
            f"The number of samples, {n_draws} a chain, is too small to check convergence "
            f"reliably: take {FEW_DRAWS} or more."
        )
    if not unbounded:
        found += _on_groups(chains)
    if n_draws < FEW_DRAWS:
        return found
    if len(high):
        values = _listed(high.sort_values(ascending=False, kind="stable"), ".2f")
        stuck = " (inf: stuck at different values)" if table["note"][high.index].any() else ""
        # Of chains that found different matchings, enough has been said.
        longer = " Sample longer, with more tune." if chains["group"].nunique() == 1 else ""
        found.append(
            f"R-hat is larger than {_RHAT_LIMIT} for {values}: the chains do not agree{stuck}."
            f"{longer}"
        )
    # Whether two objects are together is judged by R-hat: of rare events few draws are no fault.
    few = table.drop(index=list(pairs))[["ess_bulk", "ess_tail"]].min(axis=1)
    few = few[few < _ESS_LIMIT * n_chains]
    if len(few) and chains["group"].nunique() == 1:
        values = _listed(few.sort_values(kind="stable"), ".0f")
        factor = min(_ESS_LIMIT * n_chains / max(few.min(), 1.0), 100.0)
        found.append(
            f"The effective sample size per chain is smaller than {_ESS_LIMIT} (of all chains "
            f"together: {values}). If the chains agree otherwise, take about {factor:.1f} times as "
            "many draws."
        )
    return found


def _listed(values: pd.Series, spec: str) -> str:
    """Name the first quantities with their values, and say how many more there are."""
    told = [f"{title} ({value:{spec}})" for title, value in values.head(_LISTED).items()]
    more = f" and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
    return f"{', '.join(told)}{more}"


def _on_groups(chains: pd.DataFrame) -> list[str]:
    """Say which chains found other matchings than the best."""
    groups = chains["group"]
    if groups.nunique() < 2:
        return []
    members: dict[int, list[Any]] = {}
    for name, number in groups.items():
        members.setdefault(number, []).append(name)
    if "log_joint" not in chains:
        listed = "; ".join(_chains(own) for own in members.values())
        return [f"The chains found different matchings: {listed}. {_REMEDY}"]
    mean = {number: chains["log_joint"][own].mean() for number, own in members.items()}
    best, *others = sorted(members, key=lambda number: -mean[number])
    lower = {number: mean[best] - mean[number] for number in others}
    found = [
        f"{_chains(members[number])} found another matching (log joint {gap:.1f} lower)"
        for number, gap in lower.items()
    ]
    words = f"{'; '.join(found)} than {_chains(members[best], 'chain')}."
    words = words[0].upper() + words[1:]
    if max(lower.values()) < _COMPARABLE:
        return [
            f"{words} Several matchings are about as probable: keep all chains, but do not trust "
            "the proportions between them."
        ]
    return [f"{words} {_REMEDY}"]


_REMEDY = (
    "Chains in different modes do not mix by being longer: look for the best mode with more "
    "searches (find_matching), tune for longer, or take clusters of the best chain (best_chain)."
)


def _chains(names: list[Any], word: str = "chain") -> str:
    listed = ", ".join(map(str, names))
    return f"{word}{'s' if len(names) > 1 else ''} {listed}"


def truncation_advice(filled: float) -> list[str]:
    """Say what share of draws uses all clusters there are, if it matters; NaN if not known."""
    if not filled >= FULL:
        return []
    return [
        f"All declared clusters are occupied in {filled:.0%} of the draws. Unless their number is "
        "known, declare more; if they fill too, the model may be too simple for these data."
    ]
