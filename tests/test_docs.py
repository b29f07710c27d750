"""Code in the documentation runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pm_match import plots

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    """Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        "networks.md",
        "guide.md",
        "search.md",
        "gallery.md",
        "matchings.md",
        "family.md",
        "dependency.md",
        "max_margin.md",
        "mixtures.md",
    ],
)
def test_a_page_runs(page, tmp_path):
    """Its blocks run one after the other, with fewer draws and searches."""
    preamble = "import arviz as az\nimport numpy as np\nimport pandas as pd\nimport pymc as pm\n"
    preamble += "import pytensor.tensor as pt\nfrom scipy import sparse\nimport pm_match as pmm\n"
    code = "\n".join(blocks(page))
    code = re.sub(r"\b\d{2,4}, tune=\d+", "4, tune=4", code)
    code = re.sub(r"\bchains=\d+", "chains=2", code)
    code = re.sub(r"\bstarts=\d+", "starts=1", code)
    code = re.sub(r"\bcosts = .*", "costs = [1.0]", code)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", preamble + code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


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
