"""A matching as an answer: a verdict in words, and tables of who matches whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pm_match import plots
from pm_match.front.prepare import PreparedData
from pm_match.matching import (
    assignment_sets,
    best_chain,
    cluster_sizes,
    decide,
    diagnose,
    match_probability,
    match_summary,
    partition_estimate,
)
from pm_match.matching.chance import chance_of
from pm_match.matching.draws import PREFIX, full_name
from pm_match.matching.match_summary import SURE
from pm_match.matching.set_draws import read_sets
from pm_match.report.html_report import report

__all__ = ["MatchResult"]

# Pairs of objects above which all of them are not drawn.
_MOST_PAIRS = 4_000_000


class MatchResult:
    """What `match` found. Shown, it is a verdict in words.

    If chains found different matchings, what is told is the best chain's alone (`best_chain`), and
    the verdict says so: averages over different matchings would be of none of them.

    Parameters
    ----------
    idata : DataTree
        What `sample` returns.
    model : pymc.Model
        The model that was sampled.
    prepared : PreparedData
        What `prepare` made of the data.
    clusters : mapping, optional
        The clusters that were given to `PreparedData.declare`.

    Attributes
    ----------
    idata : DataTree
        All draws of all chains.
    kept : DataTree
        The draws that are told of: all, or those of the best chain.
    model : pymc.Model
    prepared : PreparedData
        What of the data was used, and how; its `data` are what the model was made of.
    labels : Dataset
        The `partition_estimate` of the draws that are kept.
    diagnosis : Diagnosis
        What `diagnose` finds in all chains.
    objects : DataFrame
        One row for each object: its ``domain``, ``object`` (its label), ``cluster`` (-1 if it fits
        none), ``confidence`` and the other columns of `match_summary`.
    """

    def __init__(
        self,
        idata: xr.DataTree,
        model: pm.Model,
        prepared: PreparedData,
        *,
        clusters: Mapping[str, Any] | None = None,
    ):
        self.idata, self.model, self.prepared = idata, model, prepared
        self.diagnosis = diagnose(idata)
        groups = self.diagnosis.chains["group"]
        self.kept = best_chain(idata) if groups.nunique() > 1 else idata
        self.labels = partition_estimate(self.kept, progressbar=False)
        self._summary = match_summary(self.kept, self.labels)
        self.objects = self._summary.objects.assign(
            domain=self._summary.objects["domain"].map(self._title)
        )
        self._known = prepared.known(clusters)

    # -- answers ---------------------------------------------------------------------------------

    @property
    def clusters(self) -> pd.DataFrame:
        """The clusters of the estimate: how many objects of each domain are in each."""
        found = {}
        for kind, names in assignment_sets(self.labels).items():
            own = cluster_sizes(self.labels[names])
            found[_type(kind)] = own.rename(columns=self._title)
        if len(found) == 1:
            return next(iter(found.values()))
        # Types of objects, one below the other, of the same networks.
        for kind, own in found.items():
            own.columns = [str(column).removesuffix(f"_{kind}") for column in own.columns]
        return pd.concat(found, names=["type"])

    def matches(self, a: str | None = None, b: str | None = None, *, top: int = 3) -> pd.DataFrame:
        """List the most likely partners of every object of a domain, or of given clusters.

        Parameters
        ----------
        a, b : str, optional
            Names of domains; of networks with several types of objects, such as ``"a_word"``.
            Default: the two that there are.
        top : int, default 3
            How many partners of each.

        Returns
        -------
        DataFrame with columns object, partner, probability, chance
            `probability` that the two share a cluster, and `chance`, the same of two taken at
            random. Partners of probability 0 are left out. Where clusters were given, objects are
            these, by their labels.
        """
        a, b = self._pair(a, b)
        found = match_probability(self._told(), a, b, top=top)
        return found.assign(chance=found.attrs["chance"])

    def probability(self, a: str | None = None, b: str | None = None) -> xr.DataArray:
        """Give the probability that two share a cluster, of all objects of a and of b.

        Parameters and meaning are those of `matches`.
        """
        a, b = self._pair(a, b)
        return match_probability(self._told(), a, b)

    def decide(self, a: str | None = None, b: str | None = None, **options: Any) -> pd.DataFrame:
        """Decide who matches whom: `pm_match.decide`, many-to-many unless told otherwise."""
        a, b = self._pair(a, b)
        return decide(self._told(), a, b, **{"rule": "many-to-many", **options})

    def plot(self) -> Any:
        """Draw the match probabilities of all pairs of domains, or if they are many, the clusters.

        Returns
        -------
        Figure
        """
        pairs = list(self._pairs())
        few = sum(self.labels[a].size * self.labels[b].size for a, b in pairs) <= _MOST_PAIRS
        if pairs and few:
            return plots.plot_match_matrix(self.kept, labels=self.labels)
        return plots.plot_alluvial(self.labels)

    def report(self, path: str | Path = "match.html", **options: Any) -> Path:
        """Write a page that opens in a browser, by `pm_match.report`, with data that are numbers.

        Parameters
        ----------
        path : str or Path
            The file; an existing one is replaced.
        **options
            Passed on.
        """
        data: Any = self.prepared.data
        if self.prepared.kind == "tables":
            data = self.prepared.if_numeric()
        elif "columns" in self.prepared.options:
            data = None  # lists of edges
        given = {
            "data": data,
            "labels": self.labels,
            "diagnosis": self.diagnosis,
            "verdict": self.verdict(),
        }
        return report(self.kept, path, **{**given, **options})

    # -- words -----------------------------------------------------------------------------------

    def verdict(self) -> list[str]:
        """Say what was found, how sure it is, and whether the chains agree, line by line."""
        sets = read_sets(self.kept, None, "posterior", ("chain", "draw"))
        lines = []
        for draws in sets:
            of = "" if len(sets) == 1 else f"{_type(draws.title)}: "
            objects = self._summary.objects
            own = objects[objects["domain"].isin(draws.domains)]
            inside = own[own["cluster"] >= 0]
            sizes = inside.groupby(["cluster", "domain"]).size().unstack(fill_value=0)
            spans = self._spans(sizes, len(draws.domains))
            lines.append(f"{of}{spans}; {self._sure(own, inside)}.")
            if chance_of(draws).uninformative:
                lines.append(
                    f"{of}The clusters hardly tell objects apart: that two match says little of "
                    "them."
                )
        return [*lines, *self._chains()]

    @staticmethod
    def _spans(sizes: pd.DataFrame, n_domains: int) -> str:
        n = len(sizes)
        if n_domains == 1:
            return f"{_count(n, 'cluster')}"
        whole = int((sizes > 0).all(axis=1).sum()) if sizes.shape[1] == n_domains else 0
        which = "both domains" if n_domains == 2 else f"all {n_domains} domains"
        return f"{whole} of {_count(n, 'cluster')} {'spans' if n == 1 else 'span'} {which}"

    @staticmethod
    def _sure(own: pd.DataFrame, inside: pd.DataFrame) -> str:
        alone = int(inside["confidence"].isna().sum())
        sure = int((inside["confidence"] > SURE).sum())
        doubtful = len(inside) - sure - alone
        said = f"{sure} of {_count(len(own), 'object')} {'is' if sure == 1 else 'are'} sure"
        said += f", {doubtful} doubtful" if doubtful else ""
        said += f", {alone} alone in a cluster" if alone else ""
        irrelevant = len(own) - len(inside)
        return said + (f", {irrelevant} in no cluster" if irrelevant else "")

    def _chains(self) -> Iterator[str]:
        chains = self.diagnosis.chains
        n, best = len(chains), int(self.kept["posterior"].to_dataset()["chain"][0])
        if n == 1:
            yield "There is one chain: whether others would find the same matching is not known."
        elif chains["group"].nunique() == 1:
            yield f"{'Both' if n == 2 else f'All {n}'} chains found the same matching."
        else:
            alike = int((chains["group"] == chains["group"][best]).sum())
            yield (
                f"The chains disagree: {alike} of {n} found the matching that is told here, chain "
                f"{best}'s, whose log joint is the highest. How sure that is, is said given this "
                "matching: the others may be right too (links would tell)."
            )
        n_advice = len(self.diagnosis.advice)
        if n_advice and (n == 1 or chains["group"].nunique() == 1):
            yield (
                f"{_count(n_advice, 'remark')} on the sampling: print(result.diagnosis). "
                "More draws may settle them."
            )

    def __repr__(self) -> str:
        return "\n".join(
            [*self.verdict(), "", self.clusters.to_string(), "", *self.prepared.words()]
        )

    def _repr_html_(self) -> str:
        first, *others = map(escape, self.verdict())
        said = "".join(f"<p>{line}</p>" for line in others)
        used = "".join(f"<li>{escape(line)}</li>" for line in self.prepared.words())
        return (
            f"<div><p><strong>{first}</strong></p>{said}{self.clusters.to_html(escape=True)}"
            f"<details><summary>What was used</summary><ul>{used}</ul></details></div>"
        )

    # -- names -----------------------------------------------------------------------------------

    def _title(self, name: Any) -> str:
        """Give the user's name of a domain, or of a type of a network's objects."""
        titles = self.prepared.titles
        for own, title in titles.items():
            kind = str(name).removeprefix(f"{own}_")
            if name == own or (kind != name and len(self.labels) == len(titles)):
                return title
            if kind != name and self.prepared.kind == "networks":
                return f"{title}_{kind}"
        return str(name)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for names in assignment_sets(self.kept).values():
            yield from combinations(names, 2)

    def _pair(self, a: str | None, b: str | None) -> tuple[str, str]:
        """Give the assignments of two domains."""
        if a is not None and b is not None:
            names = self.labels.data_vars
            return full_name(names, a), full_name(names, b)
        pairs = list(self._pairs())
        if (a is None) != (b is None) or len(pairs) != 1:
            there = [str(name).removeprefix(PREFIX) for name in self.labels.data_vars]
            raise ValueError(f"a, b: expected names of two domains, of {there}")
        return pairs[0]

    def _told(self) -> xr.DataTree | xr.Dataset:
        """Give the draws, with one object for each given cluster, which is called as it is."""
        if not self._known:
            return self.kept
        posterior = self.kept["posterior"].to_dataset()
        for name, (codes, labels) in self._known.items():
            (dim,) = self.labels[f"{PREFIX}{name}"].dims
            first = [int(np.flatnonzero(codes == k)[0]) for k in range(len(labels))]
            text = labels if labels.dtype.kind in "iuf" else labels.astype(str)
            posterior = posterior.isel({dim: first}).assign_coords({dim: text})
        return posterior


def _type(weights: str | None) -> str:
    """Name the type of objects whose clusters have these weights."""
    return str(weights or "").removeprefix("weights_")


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
