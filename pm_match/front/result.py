"""A matching as an answer: a verdict in words, and tables of who matches whom."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pm_match import plots
from pm_match.checks import no_such
from pm_match.front.imputed import filled
from pm_match.front.new_objects import as_the_model_takes_them, placed
from pm_match.front.prepared import PreparedData
from pm_match.front.provenance import provenance
from pm_match.front.write import write
from pm_match.matching import (
    assignment_sets,
    best_chain,
    cluster_sizes,
    decide,
    diagnose,
    match_probability,
    match_summary,
)
from pm_match.matching.draws import PREFIX, assignment_pairs, full_name, set_title, titled
from pm_match.matching.reported import reported
from pm_match.matching.verdict import verdict
from pm_match.prediction.assign import assign
from pm_match.prediction.impute import impute
from pm_match.progress import saying, silent
from pm_match.report.html_report import report


class MatchResult:
    """What `match` found. Shown, it is a verdict in words.

    If chains found different matchings, the clusters are those of the best chain (`best_chain`), as
    an average over different matchings describes none of them. All probabilities are averages
    over all chains, each counting alike (of new objects, by how well it predicts them): that of the
    best chain alone would be too sure. The verdict says so.

    Parameters
    ----------
    idata : DataTree
        What `sample` returns.
    model : pymc.Model
        The model that was sampled.
    prepared : PreparedData
        What `prepare` made of the data.
    only_best : bool, default False
        Whether to tell of the best chain alone, its probabilities too.
    settings : mapping, optional
        What draws were made with, such as the seed, for the report to tell.
    progressbar : bool, default True
        Whether to say so if summaries, or `write`, take their time.

    Attributes
    ----------
    idata : DataTree
        All draws of all chains.
    kept : DataTree
        The draws that probabilities are of: all, or with `only_best` those of the best chain.
    model : pymc.Model
    prepared : PreparedData
        What of the data was used, and how; its `data` are what the model was made of.
    shown, shown_labels : DataTree, Dataset
        These draws, and `labels`, their variables called by the user's names of domains.
    labels : Dataset
        The `partition_estimate` of these draws; of the best chain's if chains found different
        matchings. Its attribute ``chain`` is then that chain.
    diagnosis : Diagnosis
        What `diagnose` finds in all chains.
    objects : DataFrame
        One row for each object: its ``domain``, ``object`` (its label), ``cluster`` (-1 if it fits
        none), ``confidence`` and the other columns of `match_summary`.

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

    def __init__(
        self,
        idata: xr.DataTree,
        model: pm.Model,
        prepared: PreparedData,
        *,
        only_best: bool = False,
        settings: Mapping[str, Any] | None = None,
        progressbar: bool = True,
    ):
        self.idata, self.model, self.prepared = _in_order(idata, prepared), model, prepared
        self.settings, self._silent = dict(settings or {}), not progressbar
        with silent(self._silent), saying("Summarising"):
            self._summarise(only_best)

    def _summarise(self, only_best: bool) -> None:
        self.diagnosis = diagnose(titled(self.idata, self._titles()))
        self.kept = best_chain(self.idata) if only_best else self.idata
        self.labels = reported(self.kept, self.diagnosis, progressbar=False)
        self.shown = titled(self.kept, self._titles())
        self.shown_labels = titled(self.labels, self._titles())
        self.objects = match_summary(self.shown, self.shown_labels).objects
        own = self.objects.groupby("domain", sort=False)["object"]
        self.objects["object"] = [
            label for title, labels in own for label in self._own_labels(str(title), labels)
        ]

    # Pickle alone cannot take models.
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "model": cloudpickle.dumps(self.model)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "model": cloudpickle.loads(state["model"])})

    # -- answers ---------------------------------------------------------------------------------

    @property
    def clusters(self) -> pd.DataFrame:
        """The clusters of the estimate: how many objects of each domain are in each."""
        found = {}
        for kind, names in assignment_sets(self.labels).items():
            own = cluster_sizes(self.labels[names])
            found[set_title(kind)] = own.rename(columns=self.title)
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
            Default: the two that there are, or a single one and itself.
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
        return self._by_own_labels(found.assign(chance=found.attrs["chance"]), a, b)

    def probability(self, a: str | None = None, b: str | None = None) -> xr.DataArray:
        """Give the probability that two share a cluster, of all objects of a and of b.

        Parameters and meaning are those of `matches`.
        """
        a, b = self._pair(a, b)
        return match_probability(self._told(), a, b)

    def decide(self, a: str | None = None, b: str | None = None, **options: Any) -> pd.DataFrame:
        """Decide who matches whom, as `pm_match.decide` does."""
        a, b = self._pair(a, b)
        return self._by_own_labels(decide(self._told(), a, b, **options), a, b)

    def assign(
        self,
        name: str,
        table: Any,
        *,
        reweight: bool = True,
        random_seed: Any = None,
        progressbar: bool = True,
    ) -> pd.DataFrame:
        """Say where new objects belong, without sampling again.

        Parameters
        ----------
        name : str
            Their domain.
        table : table or path
            One row for each, with columns of those that the domain's table has, in the same units.
            Values of columns that it lacks are missing. Missing values are not seen; in models of
            principal components they are filled in, as the others expect them.
        reweight, random_seed, progressbar
            As in `pm_match.assign`.

        Returns
        -------
        DataFrame
            For every object its likeliest ``cluster`` and that cluster's ``probability``;
            ``unseen``, the probability of a cluster that no known object is in;
            ``log_predictive``, which is low for objects like none that were seen; and for every
            domain the likeliest partner, ``partner_<domain>``, with the probability that it
            matches, ``match_<domain>``. Clusters and partners are those of `objects`, also where
            clusters or classes were given. `pm_match.assign` has the rest.

        Raises
        ------
        KeyError
            If there is no such domain.
        ValueError
            If the data are networks, or the table cannot be used.

        Warns
        -----
        UserWarning
            Of columns that are not there, and of categories that were never seen; and as
            `pm_match.assign`.
        """
        if self.prepared.kind != "tables":
            raise ValueError(
                "assign: expected a matching of tables; found one of networks (pm_match.assign "
                "takes edges)"
            )
        titles = self.prepared.titles
        domain = next((own for own, title in titles.items() if str(name) in (own, title)), None)
        if domain is None:
            raise KeyError(no_such(f"domain {name!r}", titles.values(), name))
        objects, given = as_the_model_takes_them(self.prepared, domain, table)
        with self.prepared.own_names():
            found = assign(
                self.kept,
                self.model,
                {domain: given},
                labels=self.labels,
                top=1,
                reweight=reweight,
                random_seed=random_seed,
                progressbar=progressbar,
            )
        return placed(found[f"prediction/{domain}"].to_dataset(), objects, self.prepared)

    def impute(
        self,
        *,
        ci_prob: float | None = None,
        random_seed: Any = None,
        progressbar: bool = True,
    ) -> dict[str, pd.DataFrame]:
        """Predict missing values of tables, in their own units and categories.

        Parameters
        ----------
        ci_prob, random_seed, progressbar
            As in `pm_match.impute`.

        Returns
        -------
        dict of str to DataFrame
            By domain, the columns that are used, without missing values, of the dtypes that they
            have: numbers are means (and so floats, of whole numbers too), positive ones medians,
            categories and truth values the most probable ones. After these, of columns
            that had some, ``<column>_lower`` and ``<column>_upper``, the ends of the intervals of
            numbers; and ``<column>_probability``, how probable the others are. A name that the
            table has already gets another ``_``.

        Raises
        ------
        ValueError
            If there are no missing values, or the model does not have them: networks
            (`pm_match.impute` predicts their unknown cells), and models of principal components, of
            tables that are filled in before.
        """
        prepared = self.prepared
        if prepared.kind != "tables":
            raise ValueError(
                "impute: expected a matching of tables; found one of networks (pm_match.impute "
                "predicts their unknown cells)"
            )
        if prepared.model == "aligned_clusters" or prepared.options.get("n_components"):
            raise ValueError(
                "impute: expected a model of the tables' columns; found one of their principal "
                "components"
            )
        found = impute(
            self.kept,
            self.model,
            ci_prob=ci_prob,
            random_seed=random_seed,
            progressbar=progressbar,
        )
        return {title: filled(prepared, name, found) for name, title in prepared.titles.items()}

    def classes(self) -> pd.DataFrame:
        """Say which class every object is of, where `classes` were given.

        Returns
        -------
        DataFrame with columns domain, object, class, probability
            The most probable class, and how probable it is (1 where it was given); None where a
            cluster beside the given classes is more probable than each of them.

        Raises
        ------
        ValueError
            If no classes were given.
        """
        names = self.prepared.class_names
        if not names:
            raise ValueError("classes: expected some, given to match or prepare; found none")
        posterior = self.kept["posterior"].to_dataset()
        tables = []
        axes = self.prepared.axes()
        # Of networks, those types of objects of which classes are known.
        types = {axes[name][1] for name in self.prepared.classes}
        for name in (name for name, (_, kind) in axes.items() if kind in types):
            labels = posterior[f"{PREFIX}{name}"]
            (dim,) = (own for own in labels.dims if own not in ("chain", "draw"))
            shares = [(labels == k).mean(("chain", "draw")).to_numpy() for k in range(len(names))]
            # The classes first, of two that are equally probable the first.
            shares.append((labels >= len(names)).mean(("chain", "draw")).to_numpy())
            best = np.argmax(shares, axis=0)
            tables.append(
                pd.DataFrame(
                    {
                        "domain": self.title(name),
                        "object": self._own_labels(name, labels[dim].to_numpy()),
                        "class": pd.Series([[*names, None][k] for k in best], dtype=object),
                        "probability": np.max(shares, axis=0),
                    }
                )
            )
        return pd.concat(tables, ignore_index=True)

    def plot(self) -> Any:
        """Draw the match probabilities of all pairs of domains; of one domain alone, the clusters.

        Returns
        -------
        Figure
        """
        pairs = assignment_pairs(self.kept)
        if pairs:
            return plots.plot_match_matrix(self.shown, labels=self.shown_labels)
        return plots.plot_alluvial(self.shown_labels)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page that opens in a browser, by `pm_match.report`, with the data.

        Parameters
        ----------
        path : str or Path
            The file; an existing one is replaced.
        **options
            Passed on.
        """
        given = {
            "data": self.prepared.tellable(),
            "titles": {**self.prepared.titles, **self._titles()},
            "labels": self.labels,
            "diagnosis": self.diagnosis,
            "provenance": provenance(self.prepared, self.settings),
        }
        return report(self.kept, path, **{**given, **options})

    def write(self, folder: str | Path, *, top: int | None = None, force: bool = False) -> Path:
        """Write everything to a folder: tables, all draws, figures and a page.

        Parameters
        ----------
        folder : str or Path
            It is made if there is none.
        top : int, optional
            How many of the most likely partners of each object to write. Default: all, as a
            matrix, in tables of up to four million pairs; 10 in others, and in networks.
        force : bool, default False
            Whether to replace what is there of another result.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        FileExistsError
            If there is another result, and not `force`.
        ValueError
            If `top` is not a whole number of at least 1.
        ImportError
            If matplotlib, itables, or what writes netCDF, is not installed.
        """
        with silent(self._silent), saying("Writing"):
            return write(self, Path(folder), top, force)

    # -- words -----------------------------------------------------------------------------------

    def verdict(self) -> list[str]:
        """Say what was found, how sure it is, and whether the chains agree, a line a sentence."""
        return verdict(
            self.shown, self.objects, self.diagnosis, chain=self.labels.attrs.get("chain")
        )

    def __repr__(self) -> str:
        return "\n".join(
            [*self.verdict(), "", self._in_short().to_string(), "", *self.prepared.words()]
        )

    def _repr_html_(self) -> str:
        first, *others = map(escape, self.verdict())
        said = "".join(f"<p>{line}</p>" for line in others)
        used = "".join(f"<li>{escape(line)}</li>" for line in self.prepared.words())
        return (
            f"<div><p><strong>{first}</strong></p>{said}{self._in_short().to_html(escape=True)}"
            f"<details><summary>What was used</summary><ul>{used}</ul></details></div>"
        )

    def _in_short(self) -> pd.DataFrame:
        """Give `clusters`, those of a single object in one row."""
        found = self.clusters
        *kinds, labels = (found.index.get_level_values(k) for k in range(found.index.nlevels))
        alone = (found.iloc[:, -1] == 1).to_numpy() & (labels != "irrelevant")
        short = labels.astype(object).where(~alone, "alone").rename(labels.name)
        return found.groupby([*kinds, short], sort=False).sum()

    # -- names -----------------------------------------------------------------------------------

    def title(self, name: Any) -> str:
        """Give the user's name of a domain, or of a type of a network's objects."""
        return self._titles().get(str(name), str(name))

    def _own_labels(self, name: str, labels: Any) -> Any:
        """Give objects of a domain, by their labels in draws, those that the user gave."""
        own = next((own for own, title in self.prepared.titles.items() if name in (own, title)), "")
        return labels if self.prepared.kind == "networks" else self.prepared.own_labels(own, labels)

    def _by_own_labels(self, pairs: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
        """Give pairs of objects, or of given clusters that are kept whole, the user's labels."""
        for column, variable in (("object", a), ("partner", b)):
            name = variable.removeprefix(PREFIX)
            if not (self.prepared.whole and name in self.prepared.clusters):
                pairs[column] = self._own_labels(name, pairs[column])
        return pairs

    def _titles(self) -> dict[str, str]:
        return self.prepared.axis_titles()

    def _pair(self, a: str | None, b: str | None) -> tuple[str, str]:
        """Give the assignments of two domains."""
        if a is not None and b is not None:
            return self._assignment(a), self._assignment(b)
        pairs = assignment_pairs(self.kept, alone=True)
        if (a is None) != (b is None) or len(pairs) != 1:
            there = list(self._titles().values())
            raise ValueError(
                f"a, b: expected names of two domains, of {there}; found {a!r} and {b!r}"
            )
        return pairs[0]

    def _assignment(self, name: str) -> str:
        """Give the assignment of a domain."""
        own = {title: f"{PREFIX}{variable}" for variable, title in self._titles().items()}
        try:
            return own.get(str(name)) or full_name(self.labels.data_vars, name)
        except KeyError:
            if name in self.prepared.titles.values():  # a network that has several types
                raise
            raise KeyError(no_such(f"domain {name!r}", own, name)) from None

    def _told(self) -> xr.DataTree | xr.Dataset:
        """Give the draws, with one object for each given cluster, which is called as it is."""
        if not self.prepared.clusters or not self.prepared.whole:
            return self.kept
        posterior = self.kept["posterior"].to_dataset()
        for name, (codes, labels) in self.prepared.clusters.items():
            (dim,) = self.labels[f"{PREFIX}{name}"].dims
            first = [int(np.flatnonzero(codes == k)[0]) for k in range(len(labels))]
            text = labels if labels.dtype.kind in "iuf" else labels.astype(str)
            posterior = posterior.isel({dim: first}).assign_coords({dim: text})
        return posterior


def _in_order(idata: xr.DataTree, prepared: PreparedData) -> xr.DataTree:
    """Put labels of domains in their order: known ones come last in draws."""
    posterior = idata["posterior"].to_dataset()
    names = [f"{PREFIX}{own}" for own in prepared.axes()]
    given = [name for name in posterior if name in names]
    ordered = sorted(given, key=names.index)
    if ordered == given:
        return idata
    idata = idata.copy()
    others = [name for name in posterior if name not in given]
    idata["posterior"] = xr.DataTree(posterior[[*ordered, *others]])
    return idata
