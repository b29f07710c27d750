"""A matching as one page of HTML: what was found, how sure it is, whether to trust it."""

import base64
import io
from collections.abc import Hashable, Iterator, Mapping, Sequence
from html import escape
from itertools import combinations
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd
import xarray as xr

from pm_match import plots
from pm_match.matching import (
    Diagnosis,
    assignment_sets,
    cluster_spans,
    diagnose,
    match_probability,
    match_summary,
    partition_estimate,
)
from pm_match.matching.chance import beside_chance
from pm_match.matching.draws import PREFIX, SAMPLE_DIMS, read_draws
from pm_match.matching.given_labels import given_labels
from pm_match.matching.match_summary import SURE
from pm_match.matching.set_draws import read_sets
from pm_match.matching.verdict import verdict
from pm_match.plots.canvas import pyplot
from pm_match.report.csv import write_csv

# Objects listed in a table.
_LISTED = 20
# Pairs of objects above which a matrix of them is neither built nor drawn.
_MOST_PAIRS = 4_000_000


def report(
    idata: xr.DataTree | xr.Dataset,
    path: str | Path,
    *,
    data: Mapping[str, Any] | None = None,
    labels: xr.Dataset | Mapping[str, Any] | None = None,
    title: str = "Matching",
    diagnosis: Diagnosis | None = None,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> Path:
    """Write one page of HTML on a matching: tables, figures, and the diagnosis in words.

    The page holds everything it shows, and opens without a network. The clusters and the
    likely partners of all objects can be saved from it as CSV files.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` or `find_matching` returns, or its posterior.
    path : str or Path
        The file to write; an existing one is replaced. Its folder must exist.
    data : mapping, optional
        The tables or the networks that were matched, by name, to be drawn ordered by cluster.
    labels : Dataset or mapping, optional
        The partition to report. Default: `partition_estimate`'s.
    title : str
        The page's heading.
    diagnosis : Diagnosis, optional
        What `diagnose` found, if of other draws than are reported: of all chains, where the report
        is on the best. Default: that of these draws.
    progressbar : bool, default True
        Whether to show progress of the estimate if it takes longer than two seconds.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of two hashables
        The dimensions that number chains and draws.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    KeyError
        If there is no such group, or no assignment.
    ValueError
        If labels or data do not fit the draws.
    FileNotFoundError
        If the folder does not exist.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> path = Path(tempfile.mkdtemp()) / "matching.html"
    >>> pmm.report(idata, path, data=domains).name
    'matching.html'
    """
    plt = pyplot()
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path: no folder {str(path.parent)!r}")
    options: dict[str, Any] = {"group": group, "sample_dims": sample_dims}
    if len(sample_dims) != 2:
        raise ValueError(f"sample_dims: expected chains and draws; found {tuple(sample_dims)}")
    posterior = read_draws(idata, group)
    sets = read_sets(posterior, None, group, sample_dims)
    if labels is None:
        labels = partition_estimate(idata, progressbar=progressbar, **options)
    else:
        given = [draws.split(given_labels(labels, draws)) for draws in sets]
        labels = xr.Dataset({name: part for own in given for name, part in own.items()})
    if data is not None:
        _check_data(labels, data)
    # A figure that fails half-way leaves none open.
    with plt.ioff():
        before = set(plt.get_fignums())
        try:
            sections = "\n".join(_sections(idata, posterior, labels, data, diagnosis, options))
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)
    page = _PAGE.substitute(title=escape(title), sections=sections)
    path.write_text(page, encoding="utf-8")
    return path


def _sections(idata, posterior, labels, data, diagnosis, options) -> Iterator[str]:
    """Give the sections of the page, from what matters most to what is looked up."""
    clusters, objects = match_summary(idata, labels, **options)
    found = diagnose(idata, labels, **options) if diagnosis is None else diagnosis
    spans = cluster_spans(idata, **options)
    sizes = [posterior.sizes[dim] for dim in options["sample_dims"]]
    worth = beside_chance(idata, **options)

    said = _list(f"<b>{escape(line)}</b>" for line in verdict(idata, objects, found, **options))
    yield _section("In short", said, _list(_in_short(posterior, objects, sizes, worth)))
    yield _section(
        "Which clusters go together",
        _image(plots.plot_alluvial(labels), "Bars of clusters for every domain, with ribbons"),
        _note(
            "Numbers are those of one estimated partition. Ribbons join a cluster's objects in one "
            "domain with those in the next that has any."
        ),
    )
    yield _section(
        "How sure each cluster is",
        *_by_set(clusters, index=True),
        _note(
            "<b>expected_size</b>: size of the cluster that a member is in, on average. "
            "<b>cohesion</b>: mean probability that two members share a cluster. <b>together</b>: "
            "probability that all do. <b>stays</b>: that a cluster overlaps with it by more than "
            "half. <b>exact</b>: that it is a cluster as it is. <b>entropy</b> (nats): how open it "
            "is where its members' partners are."
        ),
        _saved("clusters.csv", clusters.reset_index()),
    )
    yield _section("Which domains clusters span", *_by_set(spans))
    yield _section("How sure the matches are", *_matches(idata, labels, options))
    yield _section("Objects", *_objects(objects))
    if data is not None:
        yield _section("Data, ordered by cluster", _image(_data_figure(labels, data), "The data"))
    yield _section("Whether the chains agree", *_convergence(idata, found, options))


def _in_short(
    posterior, objects: pd.DataFrame, sizes: Sequence[int], worth: Sequence[str]
) -> Iterator[str]:
    """Say in a few sentences what this is of, and what it is worth."""
    number = objects.groupby("domain", sort=False).size()
    listed = ", ".join(f"{escape(str(name))} ({n:,})" for name, n in number.items())
    yield f"Objects, by domain: {listed}."
    yield from map(escape, worth)
    alone = int((objects[objects["cluster"] >= 0]["unmatched"] > 0.5).sum())
    if alone:
        yield f"{alone:,} objects probably have no counterpart in another domain."
    yield f"Draws: {' × '.join(map(str, sizes))} (chains × draws)."
    if posterior.attrs.get("projections") == "map":
        yield (
            "<b>Projections were maximised, not sampled: probabilities are given these, and too "
            'sure of the matching. projection="normal" and table_clusters sample them.</b>'
        )


def _matches(idata, labels, options) -> Iterator[str]:
    """Give the match matrix, or say why not, and the likely partners of all objects."""
    pairs = [
        pair
        for names in assignment_sets(idata, group=options["group"]).values()
        for pair in combinations(names, 2)
    ]
    if not pairs:
        yield _note("There is one domain only.")
        return
    if sum(labels[a].size * labels[b].size for a, b in pairs) <= _MOST_PAIRS:
        figure = plots.plot_match_matrix(idata, labels=labels, **options)
        yield _image(figure, "Match probabilities of all pairs of objects")
    else:
        yield _note("There are too many pairs of objects to draw them.")
    yield _note("The three most likely partners of every object, by pair of domains:")
    for a, b in pairs:
        first, second = (name.removeprefix(PREFIX) for name in (a, b))
        best = match_probability(idata, a, b, top=3, **options)
        yield _saved(f"match_{first}_{second}.csv", best)


def _objects(objects: pd.DataFrame) -> Iterator[str]:
    """Give the objects that are least sure, and those that match nothing."""
    unsure = objects[objects["cluster"] >= 0].sort_values("confidence", kind="stable")
    unsure = unsure[unsure["confidence"] <= SURE]
    if len(unsure):
        yield f"<h3>Least sure of their cluster{_first(unsure)}</h3>"
        yield _table(unsure.head(_LISTED))
    alone = objects[objects["unmatched"] > 0.5].sort_values(
        "unmatched", ascending=False, kind="stable"
    )
    if len(alone):
        yield f"<h3>Without a counterpart{_first(alone)}</h3>"
        yield _table(alone.head(_LISTED))
    if not len(unsure) and not len(alone):
        yield _note("All objects have counterparts, and are sure of their cluster.")
    yield _note(
        "<b>confidence</b>: mean probability of sharing a cluster with its other members. "
        "<b>unmatched</b>: probability of having no counterpart in another domain. <b>alone</b>: "
        "of having no partner in its own either. <b>partners_…</b>: expected numbers of partners."
    )
    yield _saved("objects.csv", objects)


def _first(table: pd.DataFrame) -> str:
    return f": the first {_LISTED} of {len(table):,}" if len(table) > _LISTED else ""


def _convergence(idata, found, options) -> Iterator[str]:
    if found.ok:
        yield _note("There is no sign that they do not.")
    yield _list(escape(item) for item in found.advice)
    if options["group"] == "posterior" and _has_log_joint(idata):
        yield _image(plots.plot_log_joint(idata), "Log joint of starts and chains")
        stats = idata.children["sample_stats"]
        if "n_occupied" in stats and stats.sizes["draw"] > 1:
            yield _image(plots.plot_trace(idata), "Log joint and occupied clusters by draw")
    yield f'<div class="wide">{found.tables_html()}</div>'


def _has_log_joint(idata) -> bool:
    return (
        isinstance(idata, xr.DataTree)
        and "sample_stats" in idata.children
        and "log_joint" in idata.children["sample_stats"]
    )


def _data_figure(labels: xr.Dataset, data: Mapping[str, Any]):
    """Draw networks by blocks and tables by rows: the assignments' names tell which they are."""
    if _are_tables(labels, data):
        return plots.plot_matched_data(labels, data)
    return plots.plot_networks(data, labels)


def _are_tables(labels: xr.Dataset, data: Mapping[str, Any]) -> bool:
    return all(f"{PREFIX}{name}" in labels for name in data)


def _check_data(labels: xr.Dataset, data: Mapping[str, Any]) -> None:
    """Refuse data that the labels are not of."""
    for name in data:
        of_network = any(str(key).startswith(f"{PREFIX}{name}_") for key in labels)
        if f"{PREFIX}{name}" not in labels and not of_network:
            raise ValueError(f"data: no labels of {name!r}; there are {sorted(map(str, labels))}")


def _section(heading: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(heading)}</h2>\n" + "\n".join(parts) + "\n</section>"


def _list(items) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _by_set(table: pd.DataFrame, index: bool = False) -> Iterator[str]:
    """Give a table for each set of clusters, without the columns of the other sets' domains."""
    if table.index.nlevels == 1:
        yield _table(table.reset_index() if index else table)
        return
    for name in table.index.unique(0):
        own = table.loc[[name]].droplevel(0)
        # Counts of other sets' domains are 0, and whether they are spanned is False, everywhere.
        flags = own.select_dtypes(["bool", "boolean", "integer"])
        own = own.drop(columns=flags.columns[~flags.any()])
        yield f"<h3>{escape(str(name))}</h3>"
        yield _table(own.reset_index() if index else own)


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _table(table: pd.DataFrame) -> str:
    """Give a table with three digits; names and labels are escaped."""
    table = _named(table).dropna(axis="columns", how="all")
    html = table.to_html(index=False, border=0, na_rep="–", float_format="{:.3g}".format)
    return f'<div class="wide">{html}</div>'


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Make the labels of objects text, which no number of digits shortens."""
    names = [column for column in ("object", "partner") if column in table]
    return table.assign(**{column: table[column].astype(str) for column in names})


def _image(figure, words: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    code = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(words)}" src="data:image/png;base64,{code}">'


def _saved(name: str, table: pd.DataFrame) -> str:
    """Give a link that saves a table, which is in the page itself."""
    text = write_csv(_named(table), index=False, float_format="%.4g")
    assert text is not None
    code = base64.b64encode(text.encode()).decode()
    return (
        f'<p><a download="{escape(name)}" href="data:text/csv;charset=utf-8;base64,{code}">'
        f"{escape(name)}</a></p>"
    )


_PAGE = Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; padding-bottom: .3rem; }
img { display: block; max-width: 100%; margin: 1rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #e5e5e5; }
.note { color: #555; font-size: .9rem; }
@media print { section { break-inside: avoid; } }
</style>
</head>
<body>
<h1>$title</h1>
$sections
</body>
</html>
"""
)
