"""What was found, how sure it is, and whether the chains agree: in words, said once."""

from collections.abc import Iterator

import pandas as pd
import xarray as xr

from pm_match.checks import counted
from pm_match.matching.chance import chance_of
from pm_match.matching.diagnosis import Diagnosis
from pm_match.matching.draws import SAMPLE_DIMS, read_draws, set_title
from pm_match.matching.match_summary import SURE
from pm_match.matching.set_draws import read_sets


def verdict(
    idata: xr.DataTree | xr.Dataset,
    objects: pd.DataFrame,
    diagnosis: Diagnosis,
    *,
    chain: int | None = None,
    group: str = "posterior",
    sample_dims: tuple = SAMPLE_DIMS,
) -> list[str]:
    """Say what was found, how sure it is, and whether the chains agree, a line a sentence.

    `idata`: the draws that are reported; `objects`: of their `match_summary`; `diagnosis`: of all
    chains; those that are reported may be the best of them; `chain`: the one whose clusters are
    reported, if those of one are.
    """
    sets = read_sets(idata, None, group, sample_dims)
    one_draw = sets[0].n_draws == 1
    told = read_draws(idata, group)[sample_dims[0]].to_numpy()
    # Draws of other matchings say nothing of the clusters of this one.
    of_it = not one_draw and (chain is None or len(told) == 1)
    lines = []
    for draws in sets:
        of = "" if len(sets) == 1 else f"{set_title(draws.title)}: "
        own = objects[objects["domain"].isin(draws.domains)]
        inside = own[own["cluster"] >= 0]
        sizes = inside.groupby(["cluster", "domain"]).size().unstack(fill_value=0)
        spans = _spans(sizes, len(draws.domains))
        lines.append(f"{of}{spans}; {_sure(own, inside, one_draw)}.")
        if 2 * len(inside) < len(own):
            lines.append(
                f"{of}Most objects are in no cluster. Without relevance, every object is in one."
            )
        elif of_it and chance_of(draws).uninformative:
            lines.append(
                f"{of}The clusters hardly tell objects apart, so a match says little about a pair."
            )
        elif of_it and len(sizes) == 1 and not (inside["confidence"] > SURE).any():
            lines.append(
                f"{of}Draws often keep apart what is in one cluster here: "
                "partition_estimate(loss='ari') divides more."
            )
    return [*lines, *_chains(diagnosis, told, one_draw, chain)]


def _spans(sizes: pd.DataFrame, n_domains: int) -> str:
    n = len(sizes)
    if n_domains == 1:
        return counted(n, "cluster")
    whole = int((sizes > 0).all(axis=1).sum()) if sizes.shape[1] == n_domains else 0
    which = "both domains" if n_domains == 2 else f"all {n_domains} domains"
    return f"{whole} of {counted(n, 'cluster')} {'spans' if 1 in (n, whole) else 'span'} {which}"


def _sure(own: pd.DataFrame, inside: pd.DataFrame, one_draw: bool) -> str:
    alone = int(inside["confidence"].isna().sum())
    sure = len(inside) - alone if one_draw else int((inside["confidence"] > SURE).sum())
    doubtful = len(inside) - sure - alone
    word = "with others" if one_draw else "sure"
    said = f"{sure:,} of {counted(len(own), 'object')} {'is' if sure == 1 else 'are'} {word}"
    said += f", {doubtful:,} doubtful" if doubtful else ""
    said += f", {alone:,} alone in a cluster" if alone else ""
    irrelevant = len(own) - len(inside)
    return said + (f", {irrelevant:,} in no cluster" if irrelevant else "")


def _chains(diagnosis: Diagnosis, told, one_draw: bool, chain: int | None) -> Iterator[str]:
    groups = diagnosis.chains["group"]
    n, n_advice = len(groups), len(diagnosis.advice)
    if one_draw and n == 1:
        yield "This is the best matching found. Sample to see how sure it is."
        return
    chain = told[0] if len(told) == 1 else chain
    if diagnosis.disagree:
        if chain is None:
            yield (
                "The chains disagree. Probabilities here are averages over different matchings, "
                "and may describe none of them: see the diagnosis."
            )
            return
        others = (
            "Its probabilities leave out the other matchings, which may be right too"
            if len(told) == 1
            else "Probabilities are averages over all chains: where their matchings differ, little "
            "is sure"
        )
        yield (
            f"The chains disagree: {int((groups == groups[chain]).sum())} of {n} found the "
            f"matching reported here, that of chain {chain}, which has the highest log joint. "
            f"{others}. Links, or more of them, can tell."
        )
        return
    if n == 1:
        yield "There is only one chain: others might find another matching."
    else:
        what = "the same matching"
        if diagnosis.not_agreed:
            what = "much the same matching, but do not agree in all"
        yield f"{'Both' if n == 2 else f'All {n}'} chains found {what}."
    if n_advice:
        said = "one remark" if n_advice == 1 else f"{n_advice} remarks"
        yield f"The diagnosis has {said} on the sampling. More draws may settle this."
