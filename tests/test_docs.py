"""Code in the documentation runs, and the reference lists every public name."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

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
    code = re.sub(r"\b\d{2,4}, tune=\d+", "4, tune=4", code)
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


def test_pages_link_to_what_is_there():
    """Files that pages outside the site link to, and pictures (the site's build checks its own)."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert "://" in target or (ROOT / target).exists(), f"{page.name}: {target}"


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
