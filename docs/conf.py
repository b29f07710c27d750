"""The documentation site: ``make docs`` builds it into build/docs, without a network."""

import os
import re
import zlib
from pathlib import Path

import pm_match

DOCS = Path(__file__).parent
BUILD = DOCS.parent / "build"

project = "pm_match"
author = "The pm_match developers"
copyright = author
release = version = pm_match.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_templates", "figures/*.py"]
templates_path = ["_templates"]
default_role = "py:obj"

# -- pages ------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Pages with code cells are run at build; what came out is kept until their code changes.
nb_execution_mode = "cache"
nb_execution_cache_path = str(BUILD / "docs_cache")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
# PyMC's lines on progress are for those who wait; its warnings are shown, without their place.
STARTUP = BUILD / "ipython" / "profile_default" / "startup" / "quiet.py"
STARTUP.parent.mkdir(parents=True, exist_ok=True)
STARTUP.write_text(
    "import logging, warnings\n"
    "logging.basicConfig(level=logging.WARNING, format='%(message)s')\n"
    "warnings.formatwarning = lambda said, kind, *where: f'{kind.__name__}: {said}\\n'\n"
)
os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# -- reference --------------------------------------------------------------------------------

autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {
    "Axes": "matplotlib.axes.Axes",
    "DataArray": "xarray.DataArray",
    "DataFrame": "pandas.DataFrame",
    "DataTree": "xarray.DataTree",
    "Dataset": "xarray.Dataset",
    "Diagnosis": "pm_match.matching.Diagnosis",
    "Figure": "matplotlib.figure.Figure",
    "Generator": "numpy.random.Generator",
    "Kind": "pm_match.kinds.Kind",
    "LabelledNetworks": "pm_match.datasets.LabelledNetworks",
    "MatchResult": "pm_match.MatchResult",
    "MatchSummary": "pm_match.matching.MatchSummary",
    "PairedViews": "pm_match.datasets.PairedViews",
    "Path": "pathlib.Path",
    "PreparedData": "pm_match.PreparedData",
    "SeedSequence": "numpy.random.SeedSequence",
    "Series": "pandas.Series",
    "SyntheticNetworks": "pm_match.datasets.SyntheticNetworks",
    "TensorVariable": "pytensor.tensor.TensorVariable",
    "concurrent.futures.Executor": ":class:`concurrent.futures.Executor`",
    "csr_array": "scipy.sparse.csr_array",
    "dask.distributed.Client": ":class:`dask.distributed.Client`",
    "hashable": ":term:`python:hashable`",
    "mapping": ":term:`python:mapping`",
    "pymc.Model": ":class:`pymc.Model`",
    "scalar": "scalar",
}

# -- links to other projects ------------------------------------------------------------------


def inventories() -> dict[str, tuple[str, str]]:
    """Write a Sphinx inventory for each section of inventories.txt, into build/inventories."""
    folder = BUILD / "inventories"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    sections = re.findall(
        r"^\[(\w+)\] (\S+)\n((?:\S.*\n)+)",
        (DOCS / "inventories.txt").read_text(),
        re.MULTILINE,
    )
    for project, address, lines in sections:
        names = [line.split() for line in lines.splitlines()]
        body = "".join(
            f"{name} {role} 1 {page.replace('$', name)} -\n" for name, role, page in names
        )
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        # Another name for other contents, so that pages are built anew.
        file = folder / f"{project}-{zlib.crc32(body.encode()):08x}.inv"
        file.write_bytes(head.encode() + zlib.compress(body.encode()))
        found[project] = (address, str(file))
    return found


intersphinx_mapping = inventories()

# -- appearance -------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "pm_match"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "pm_match"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"start": [], "gallery": []}
