"""Code in the documentation runs, and the reference lists every public name."""

import doctest
import inspect
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pm_match as pmm
from pm_match import plots

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

BLOCK = re.compile(
    r"^```(?:python|\{code-cell\} ipython3)\n((?::.*\n)*)(.*?)^```", re.DOTALL | re.MULTILINE
)
# The first is tested by tests/core; the second draws often, to show a bias.
ELSEWHERE = {"extending.md", "pymc.md"}
# Fewer draws of what has no argument for them.
BEFORE = """
import functools
import pm_match
pm_match.match = functools.partial(pm_match.match, draws=4, tune=4, chains=2)
"""


def blocks(page: Path) -> list[str]:
    """Python blocks of a page."""
    return [code for _, code in BLOCK.findall(page.read_text())]


PAGES = [
    page
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
    if page.name not in ELSEWHERE and blocks(page)
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs(page, tmp_path):
    """Its blocks run one after the other, with fewer draws and searches."""
    code = "\n".join(blocks(page))
    code = re.sub(r"\b\d{2,4}, tune=\d+", "20, tune=20", code)
    code = re.sub(r"\bchains=\d+", "chains=2", code)
    code = re.sub(r"\bstarts=\d+", "starts=1", code)
    code = re.sub(r"\bcosts = .*", "costs = [1.0]", code)
    for name, visits in {"north": [1, 9, 2, 8, 1], "south": [7, 1, 9, 2]}.items():
        table = pd.DataFrame({"sku": [f"{name}{i}" for i in range(len(visits))], "visits": visits})
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEFORE + code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "module", ["", ".models", ".plots", ".metrics", ".datasets", ".kinds", ".testing"]
)
def test_the_reference_lists_every_public_name(module):
    listed = set(re.findall(r"^   (\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    names = set(import_module(f"pm_match{module}").__all__)
    # Modules have their own lists; type aliases are explained where they are used.
    assert names - listed <= {"datasets", "metrics", "models", "plots", "RV", "Point"}


def anchors(page: Path) -> set[str]:
    """Give the headings of a page as links name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_pages_link_to_what_is_there(page):
    """Files and headings that pages outside the site link to, and pictures."""
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text()):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            assert (ROOT / name).exists(), target
            assert not anchor or anchor in anchors(ROOT / name), target


@pytest.fixture
def links():
    """Import the checker of links, which belongs to no package."""
    spec = spec_from_file_location("check_links", DOCS / "check_links.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("other.html", None),
        ("other.html#there", None),
        ("#here", None),
        ("https://www.pymc.io/x#y", None),
        ("gone.html", "no such file"),
        ("other.html#gone", "no such anchor"),
        ("#gone", "no such anchor"),
        ("https://pymc/x", "malformed"),
        ("htp://www.pymc.io", "malformed"),
        ("//www.pymc.io", "malformed"),
        ("https://www.pymc.io/$.html", "malformed"),
    ],
)
def test_a_broken_link_is_found(links, tmp_path, capsys, link, why):
    (tmp_path / "index.html").write_text(f'<h1 id="here">x</h1><a href="{link}">y</a>')
    (tmp_path / "other.html").write_text('<p id="there">x</p>')
    assert links.main([str(tmp_path)]) == (why is not None)
    printed = capsys.readouterr().out
    assert f"{link}: {why}" in printed if why else "No link is broken." in printed


def test_the_gallery_shows_every_figure():
    """Each has its lines and its picture, none of more than 150 kB."""
    page = (DOCS / "gallery.md").read_text()
    assert {name for name in plots.__all__ if f"pmm.plots.{name}(" not in page} == set()
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", page)
    assert len(pictures) == page.count("figure = pmm.plots.")
    assert all((DOCS / picture).stat().st_size < 150_000 for picture in pictures)
    assert {(DOCS / picture).name for picture in pictures} == {
        path.name for path in (DOCS / "figures" / "gallery").iterdir()
    }


def public(module=pmm, prefix=""):
    """Public functions and classes, by the names that users call them by."""
    found = {}
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.ismodule(value):
            found |= public(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


NAMES = public()
# Without "import ..." in each example, as in the pages.
IMPORTED = {"az": az, "np": np, "pd": pd, "pm": pm, "pmm": pmm, "xr": xr}


@pytest.fixture
def kinds_as_before(monkeypatch):
    """An example registers a kind."""
    from pm_match.reading import kinds

    monkeypatch.setattr(kinds, "_KINDS", list(kinds._KINDS))
    yield
    monkeypatch.undo()
    for reset in kinds._RESETS:
        reset()


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    assert "\n>>> " in inspect.getdoc(NAMES[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name, kinds_as_before, monkeypatch):
    """It prints what it says."""
    pytest.importorskip("matplotlib").use("Agg")
    pytest.importorskip("sklearn")
    monkeypatch.setenv("COLUMNS", "100")
    parser, flags = doctest.DocTestParser(), doctest.NORMALIZE_WHITESPACE
    text = inspect.getdoc(NAMES[name])
    example = parser.get_doctest(text, dict(IMPORTED), name, None, 0)
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=flags)
    runner.run(example, out=printed.append)
    import_module("matplotlib.pyplot").close("all")
    assert runner.failures == 0, "".join(printed)
