"""A matching as one page of HTML: what was found, how sure it is, whether to trust it."""

from __future__ import annotations

import base64
import io
import platform
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match import plots
from pm_match.checks import counted
from pm_match.matching import (
    Diagnosis,
    assignment_sets,
    cluster_spans,
    diagnose,
    match_probability,
    match_summary,
)
from pm_match.matching.chance import beside_chance
from pm_match.matching.draws import (
    PREFIX,
    SAMPLE_DIMS,
    assignment_pairs,
    read_draws,
    set_title,
    titled,
)
from pm_match.matching.given_labels import given_labels
from pm_match.matching.objects import in_order, objects_of
from pm_match.matching.reported import reported
from pm_match.matching.set_draws import read_sets
from pm_match.matching.verdict import verdict
from pm_match.plots.canvas import no_figure_left, pyplot
from pm_match.plots.labels import by_size, known_as
from pm_match.plots.network_labels import types_of
from pm_match.report.csv import with_text_names, write_csv
from pm_match.report.page_data import has_matrices, packed, page_data
from pm_match.report.profiles import Feature, ObjectRows, digits, profile, rows_of

# Clusters that are described, and features that each is described by in a domain.
_DESCRIBED, _FEATURES = 12, 6
# Images of each cluster, in a domain.
_EXAMPLES = 8
# Packages whose versions a page tells.
_PACKAGES = ("pm_match", "pymc", "pytensor", "arviz", "numpy", "pandas")


def report(
    idata: xr.DataTree | xr.Dataset,
    path: str | Path,
    *,
    data: Mapping[str, Any] | None = None,
    labels: xr.Dataset | Mapping[str, Any] | None = None,
    image_of: Callable[[Any], np.ndarray] | None = None,
    title: str = "Matching",
    titles: Mapping[str, str] | None = None,
    diagnosis: Diagnosis | None = None,
    provenance: Mapping[str, Any] | None = None,
    progressbar: bool = True,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> Path:
    """Write one page of HTML on a matching: a verdict, who matches whom, how sure that is.

    The reader types or clicks an object and sees its partners, with their rows side by side; sorts
    and searches tables; reads match probabilities off the matrix; sees what each cluster is like;
    and unfolds the diagnosis and the provenance. The page holds everything it shows, and opens
    without a network. The clusters and the likely partners of all objects can be saved from it as
    CSV files.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` or `find_matching` returns, or its posterior.
    path : str or Path
        The file to write; an existing one is replaced. Its folder must exist.
    data : mapping, optional
        The tables or the networks (matrices) that were matched, by name: for rows side by side,
        what clusters are like, and a figure ordered by cluster, which tables of numbers have. Where
        they and the draws name objects, these are matched by name, in any order.
    labels : Dataset or mapping, optional
        The partition to report; its attribute ``chain``, if there is one, is the chain that it is
        of. Default: `partition_estimate`'s; of the best chain's draws, if chains found different
        matchings.
    image_of : callable, optional
        From a table of `data` to its rows as images (N, height, width), such as `datasets.images`:
        then each cluster is shown by examples, the surest of its objects in every domain.
    title : str
        The page's heading.
    titles : mapping of str to str, optional
        Names to show, by those of domains (of networks: of these, and of ``<network>_<type>``).
        Default: these.
    diagnosis : Diagnosis, optional
        What `diagnose` found, if of other draws than are reported: of all chains, where the report
        is on the best. Default: that of these draws.
    provenance : mapping of str to str, optional
        What the page is to say of where it comes from, beside time and versions: data and options.
    progressbar : bool, default True
        Whether to show progress of the estimate if it takes longer than a second.
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
        If matplotlib, or itables, whose DataTables sort and search, is not installed.
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
    pyplot()  # which is needed, and says so
    library = _library()
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path: expected the folder {str(path.parent)!r}; found none")
    options: dict[str, Any] = {"group": group, "sample_dims": sample_dims}
    if len(sample_dims) != 2:
        raise ValueError(f"sample_dims: expected chains and draws; found {sample_dims!r}")
    posterior = read_draws(idata, group)
    sets = read_sets(posterior, None, group, sample_dims)
    titles = dict(titles or {})
    if data is not None:
        titles = {known_as(name, posterior): str(name) for name in data} | titles
    shown = titled(idata, titles, group)
    if labels is None:
        diagnosis = diagnose(shown, **options) if diagnosis is None else diagnosis
        labels = reported(idata, diagnosis, progressbar=progressbar, **options)
    else:
        given = [draws.split(given_labels(labels, draws)) for draws in sets]
        parts = {name: part for own in given for name, part in own.items()}
        labels = xr.Dataset(parts, attrs=getattr(labels, "attrs", {}))
    if data is not None:
        data = _in_order(labels, {known_as(name, labels): own for name, own in data.items()})
    rows = {} if data is None else rows_of(labels, data)
    pictures = _pictures(data or {}, image_of)
    drawn = _drawn(rows, data or {})
    figure = _data_titled(labels, drawn, titles) if drawn else None
    page = _Page(
        shown,
        titled(posterior, titles),
        titled(labels, titles),
        {titles.get(name, name): own for name, own in rows.items()},
        {titles.get(name, name): own for name, own in pictures.items()},
        figure,
        options,
    )
    with no_figure_left():
        sections = "\n".join(page.sections(diagnosis, provenance))
    own = files("pm_match.report")
    filled = Template((own / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        sections=sections,
        style=(own / "page.css").read_text(encoding="utf-8"),
        script=(own / "page.js").read_text(encoding="utf-8"),
        data=packed(page.data()),
        library_style=(library / "dt_bundle.css").read_text(encoding="utf-8"),
        library=packed((library / "dt_bundle.js").read_bytes()),
    )
    path.write_text(filled, encoding="utf-8")
    return path


def _library() -> Path:
    """Find the scripts and styles of DataTables, which itables brings."""
    found = find_spec("itables")
    if found is None or found.origin is None:
        raise ImportError(
            'reports need itables, which is not installed: pip install "pm_match[examples]"'
        )
    return Path(found.origin).parent / "html"


@dataclass
class _Page:
    """What a page is made of."""

    idata: Any
    posterior: xr.Dataset
    labels: xr.Dataset
    rows: Mapping[str, ObjectRows]
    pictures: Mapping[str, np.ndarray]
    data_figure: tuple[xr.Dataset, Mapping[str, Any]] | None
    options: dict[str, Any]

    def __post_init__(self):
        self.clusters, self.objects = match_summary(self.idata, self.labels, **self.options)
        self.pairs = assignment_pairs(self.idata, self.options["group"])

    def data(self) -> dict[str, Any]:
        """Collect what the script shows."""
        return page_data(
            self.idata,
            self.labels,
            self.objects,
            self.pairs,
            self.rows,
            self.options,
        )

    def sections(self, diagnosis, provenance) -> Iterator[str]:
        """Give the sections of the page, from what matters most to what is looked up."""
        idata, labels, options = self.idata, self.labels, self.options
        found = diagnose(idata, labels, **options) if diagnosis is None else diagnosis
        chain = labels.attrs.get("chain")
        said = map(escape, verdict(idata, self.objects, found, chain=chain, **options))
        yield f'<div class="verdict">{_list(said)}</div>'
        yield _list(self._in_short())
        yield _FINDER
        yield _section(
            "Which clusters go together",
            _image(plots.plot_alluvial(labels), "Bars of clusters, with ribbons"),
            _note(
                "Cluster numbers are those of the point estimate. Ribbons join the objects of a "
                "cluster in one domain with those in the next domain that has some."
            ),
        )
        if self.rows:
            yield _section("What each cluster is like", *self._profiles())
        yield _section("How sure the matches are", *self._matches())
        yield _section(
            "How sure each cluster is",
            *_by_set(self.clusters, index=True),
            _note(
                "<b>expected_size</b>: size of the cluster that a member is in, on average. "
                "<b>cohesion</b>: mean probability that two members share a cluster. "
                "<b>together</b>: probability that all do. <b>stays</b>: that a cluster overlaps "
                "with it by more than half. <b>exact</b>: that it is a cluster as it is. "
                "<b>entropy</b> (nats): how open it is where its members' partners are."
            ),
            _saved("clusters.csv", self.clusters.reset_index()),
        )
        yield _section("Which domains clusters span", *_by_set(cluster_spans(idata, **options)))
        yield _section("Objects, the least sure first", *self._objects())
        if self.data_figure is not None:
            figure = _data_figure(*self.data_figure)
            yield _section("Data, ordered by cluster", _image(figure, "The data"))
        yield _folded("Whether the chains agree", *_convergence(idata, found, options))
        yield _folded("Where this comes from", _facts(provenance or {}))

    def _in_short(self) -> Iterator[str]:
        """Say in a few sentences what this is of, and what it is worth."""
        objects = self.objects
        number = objects.groupby("domain", sort=False).size()
        listed = ", ".join(f"{escape(str(name))} ({n:,})" for name, n in number.items())
        yield f"Objects, by domain: {listed}."
        yield from map(escape, beside_chance(self.idata, **self.options))
        alone = int((objects[objects["cluster"] >= 0]["unmatched"] > 0.5).sum())
        if alone:
            have = "has" if alone == 1 else "have"
            yield (f"{counted(alone, 'object')} probably {have} no counterpart in another domain.")
        sizes = [self.posterior.sizes[dim] for dim in self.options["sample_dims"]]
        yield f"Draws: {' × '.join(map(str, sizes))} (chains × draws)."
        if self.posterior.attrs.get("projections") == "map":
            yield (
                "<b>Projections were maximised, not sampled: probabilities are given these, and "
                'too sure of the matching. projection="normal" and table_clusters sample them.</b>'
            )

    def _profiles(self) -> Iterator[str]:
        """Say what sets every cluster apart, in every domain that has some of its objects."""
        yield _note(
            "What the objects of a cluster have, and in brackets those of the whole domain. Bars "
            "show the difference, up to two of the domain's standard deviations; for networks, "
            "how much a column tells, relative to the first."
        )
        for kind, names in assignment_sets(self.labels).items():
            if len(assignment_sets(self.labels)) > 1:
                yield f"<h3>{escape(set_title(kind))}</h3>"
            order = by_size([self.labels[name].to_numpy() for name in names])
            for cluster in sorted(order[:_DESCRIBED]):
                parts = [self._profile(name, cluster) for name in names]
                yield (
                    f'<div class="card"><h3>Cluster {cluster}</h3>'
                    f'<div class="columns">{"".join(parts)}</div></div>'
                )
            if len(order) > _DESCRIBED:
                yield _note(f"The {_DESCRIBED} largest of {len(order)} clusters are described.")

    def _profile(self, name: str, cluster: int) -> str:
        domain = name.removeprefix(PREFIX)
        own = self.rows.get(domain)
        members = self.labels[name].to_numpy() == cluster
        head = f"<div><b>{escape(domain)}</b>: {counted(int(members.sum()), 'object')}"
        if own is None or not members.any():
            return f"{head}</div>"
        bars = "".join(map(_bar, profile(own, members, _FEATURES)))
        return f"{head}{self._examples(domain, cluster, members)}{bars}</div>"

    def _examples(self, domain: str, cluster: int, members: np.ndarray) -> str:
        """Show the surest objects of a cluster, if they are images."""
        if domain not in self.pictures:
            return ""
        own = self.objects[self.objects["domain"] == domain]["confidence"].to_numpy()
        first = np.flatnonzero(members)[np.argsort(-own[members], kind="stable")][:_EXAMPLES]
        pictures = self.pictures[domain]
        strip = plots.gallery.strip_of(pictures[first], len(first), pictures.shape[1:])
        buffer = io.BytesIO()
        pyplot().imsave(buffer, strip, cmap="gray_r", vmin=pictures.min(), vmax=pictures.max())
        return _png(buffer, f"Examples of cluster {cluster} in {domain}", "examples")

    def _matches(self) -> Iterator[str]:
        """Give the match matrix, or say why not, and the likely partners of all objects."""
        if not self.pairs:
            yield _note("There is only one domain.")
            return
        if has_matrices(self.labels, self.pairs):
            yield '<div id="matrices"></div>'
            yield _note(
                "Objects are ordered by cluster. The stronger the colour, the likelier the two "
                "share one. Point at a cell to read it; click it to compare the two objects."
            )
        else:
            yield _note("There are too many objects to draw.")
        yield _note("The three most likely partners of every object, by pair of domains:")
        for a, b in self.pairs:
            first, second = (name.removeprefix(PREFIX) for name in (a, b))
            best = match_probability(self.idata, a, b, top=3, **self.options)
            yield _saved(f"match_{first}_{second}.csv", best)

    def _objects(self) -> Iterator[str]:
        """Give the table of objects, which the script fills."""
        yield '<div class="wide"><table id="objects" class="display"></table></div>'
        yield _note(
            "<b>confidence</b>: mean probability of sharing a cluster with its other members. "
            "<b>unmatched</b>: probability of having no counterpart in another domain. "
            "<b>alone</b>: of having no partner in its own either. <b>partners in …</b>: expected "
            "numbers of partners. Click an object to see them."
        )
        yield _saved("objects.csv", self.objects)


_FINDER = """<section id="finder" hidden>
<h2>Find an object</h2>
<label for="find">Type a part of its name, and choose one</label>
<input id="find" type="search" autocomplete="off" spellcheck="false">
<div id="hits" role="group" aria-label="Objects found" aria-live="polite"></div>
<div id="object" class="card" hidden></div>
</section>
<noscript><p class="note">Turn on scripts to find objects and to sort tables.</p></noscript>"""


def _convergence(idata, found, options) -> Iterator[str]:
    if found.ok:
        yield _note("All checks passed.")
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


def _pictures(data: Mapping[str, Any], image_of: Any) -> dict[str, np.ndarray]:
    """Turn tables into images, one for each row."""
    if image_of is None:
        return {}
    found = {name: np.asarray(image_of(table)) for name, table in data.items()}
    for name, own in found.items():
        if own.ndim != 3 or len(own) != data[name].shape[0]:
            raise ValueError(
                f"image_of: expected an image for each of the {data[name].shape[0]} objects of "
                f"{name!r}; found shape {own.shape}"
            )
    return found


def _drawn(rows: Mapping[str, ObjectRows], data: Mapping[str, Any]) -> dict[str, Any]:
    """Give the data that there is a figure of: not of tables with categories.

    Columns that do not vary, or are not finite, are left out.
    """
    found = dict(data)
    for name, own in rows.items():
        if not isinstance(own.table, pd.DataFrame):
            continue
        if own.table.select_dtypes("number").shape != own.table.shape:
            return {}
        values = own.table.to_numpy(np.float64, na_value=np.nan)
        with np.errstate(invalid="ignore"):
            span = np.fmax.reduce(values) - np.fmin.reduce(values)
        varies = (span > 0) & np.isfinite(span)
        if not varies.any():
            return {}
        found[name] = own.table.loc[:, varies]
    return found


def _data_titled(
    labels: xr.Dataset, data: Mapping[str, Any], titles: Mapping[str, str]
) -> tuple[xr.Dataset, dict[str, Any]]:
    """Call tables and networks by the names that are to be shown, and their labels after them."""
    names = {}
    for name in data:
        title = titles.get(name, name)
        for key in map(str, labels):
            own = key.removeprefix(PREFIX)
            if own == name or own.startswith(f"{name}_"):
                names[own] = title + own.removeprefix(name)
    return titled(labels, names), {titles.get(name, name): own for name, own in data.items()}


def _data_figure(labels: xr.Dataset, data: Mapping[str, Any]):
    """Draw networks by blocks and tables by rows: the assignments' names tell which they are."""
    tables = all(f"{PREFIX}{name}" in labels for name in data)
    return plots.plot_matched_data(labels, data) if tables else plots.plot_networks(labels, data)


def _in_order(labels: xr.Dataset, data: Mapping[str, Any]) -> dict[str, Any]:
    """Put rows of tables, and rows and columns of networks, into the order of the labels' objects.

    Refuse data that the labels are not of.
    """
    found = {}
    for name, own in data.items():
        keys = [f"{PREFIX}{name}"]
        if keys[0] not in labels:
            keys = [f"{keys[0]}_{kind}" for kind in types_of(name, labels, data)]
        if not keys:
            raise ValueError(f"data: no labels of {name!r}; there are {sorted(map(str, labels))}")
        if len(keys) == 1 and keys[0] != f"{PREFIX}{name}":
            keys *= 2  # rows and columns are the same objects
        for axis, key in enumerate(keys if len(keys) <= np.ndim(own) else []):
            own = in_order(own, objects_of(labels[key]), axis=axis, where=f"data of {name!r}")
        found[name] = own
    return found


def _bar(feature: Feature) -> str:
    """Give a line of a profile: a name, a bar from the middle, and both values."""
    width = min(abs(feature.apart) / 2, 1) * 50
    left, less = (50 - width, ' class="less"') if feature.apart < 0 else (50, "")
    return (
        f'<div class="feature"><span>{escape(feature.name)}</span><span class="either">'
        f'<i{less} style="left:{left:.0f}%;width:{width:.0f}%"></i></span>'
        f'<span>{escape(feature.here)} <span class="note">({escape(feature.overall)})</span></span>'
        "</div>"
    )


def _facts(provenance: Mapping[str, Any]) -> str:
    """Give a table of what was used: data, options, versions, the time."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    versions = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    facts = {
        **provenance,
        "Versions": f"{versions}, Python {platform.python_version()}, {platform.system()}",
        "Written": now,
    }
    lines = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th><td>{escape(str(own))}</td></tr>'
        for name, own in facts.items()
    )
    return f'<div class="wide"><table class="facts">{lines}</table></div>'


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _folded(heading: str, *parts: str) -> str:
    inner = "\n".join(parts)
    return f"<details>\n<summary>{escape(heading)}</summary>\n{inner}\n</details>"


def _section(heading: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(heading)}</h2>\n" + "\n".join(parts) + "\n</section>"


def _list(items: Iterable[str]) -> str:
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
        yield f"<h3>{escape(set_title(name))}</h3>"
        yield _table(own.reset_index() if index else own)


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _table(table: pd.DataFrame) -> str:
    """Give a table with three digits; names and labels are escaped."""
    table = with_text_names(table).dropna(axis="columns", how="all")
    html = table.to_html(index=False, border=0, classes="sortable", na_rep="–", float_format=digits)
    return f'<div class="wide">{html}</div>'


def _image(figure, words: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return _png(buffer, words)


def _png(buffer: io.BytesIO, words: str, kind: str = "figure") -> str:
    code = base64.b64encode(buffer.getvalue()).decode()
    return f'<img class="{kind}" alt="{escape(words)}" src="data:image/png;base64,{code}">'


def _saved(name: str, table: pd.DataFrame) -> str:
    """Give a link that saves a table, which is in the page itself."""
    text = write_csv(table, index=False, float_format="%.4g")
    assert text is not None
    code = base64.b64encode(text.encode()).decode()
    return (
        f'<p><a download="{escape(name)}" href="data:text/csv;charset=utf-8;base64,{code}">'
        f"{escape(name)}</a></p>"
    )
