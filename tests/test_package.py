"""What the package says of itself is the same wherever it is said."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pm_match

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def bounds() -> dict[str, str]:
    """Return the lower bound of every dependency."""
    found = {}
    for line in PROJECT["dependencies"]:
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)(,<[\d.]+)?", line)
        assert match is not None, line
        found[match[1]] = match[2]
    return found


def whole(version: str) -> str:
    """Give a version three parts."""
    return ".".join([*version.split("."), "0", "0"][:3])


def test_the_oldest_versions_are_the_lower_bounds():
    lines = (ROOT / "tests" / "oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned == {name: whole(version) for name, version in bounds().items()}


def test_the_conda_recipe_has_the_same_dependencies():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text()
    run = recipe[recipe.index("  run:") : recipe.index("test:")]
    found = dict(re.findall(r"- ([\w-]+) (>=.*)", run))
    found.pop("python")
    assert found == dict(
        re.fullmatch(r"([\w-]+)(>=.*)", d).groups() for d in PROJECT["dependencies"]
    )
    python = re.search(r'python_min = "(.*)"', recipe)
    assert python is not None
    assert PROJECT["requires-python"] == f">={python[1]}"


def test_one_version():
    for name in ("CITATION.cff", "recipe/meta.yaml"):
        text = (ROOT / name).read_text()
        found = re.search(r'^(?:version: |\{% set version = ")([\d.]+)', text, re.MULTILINE)
        assert found is not None, name
        assert found[1] == pm_match.__version__, name


def test_classifiers_name_the_pythons_of_the_workflow():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    tested = re.search(r'python: \[("3\.12", .*)\]', workflow)
    assert tested is not None
    named = [c.rpartition(":: ")[2] for c in PROJECT["classifiers"] if ":: 3." in c]
    assert named == re.findall(r'"([\d.]+)"', tested[1])


def test_types_are_shipped():
    assert (Path(pm_match.__file__).parent / "py.typed").exists()


def test_the_import_leaves_alone_what_takes_long():
    slow = ["dask", "matplotlib", "networkx", "scipy.optimize", "scipy.stats", "sklearn"]
    code = f"import sys, pm_match; print(*set({slow}).intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
