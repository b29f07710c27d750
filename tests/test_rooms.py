"""The house: which room may import which, and that kinds can be taken out of it."""

import ast
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pm_match

PACKAGE = Path(pm_match.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"
# What users have of a kind is declared elsewhere too, or drawn.
KINDS = ("columns", "declared", "features", "networks", "normal", "views")


def modules() -> dict[str, Path]:
    """Return the package's modules."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = ("pm_match", *file.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imports() -> dict[str, set[str]]:
    """Return what every module imports of the package, wherever in the file it does."""
    known = modules()
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in known}
            elif isinstance(node, ast.ImportFrom) and node.module in known:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found[name].add(inner if inner in known else node.module)
        found[name].discard(name)
    return found


def room(module: str) -> str:
    """Return the room that a module is in: a folder, or a file beside them."""
    _, *rest = module.split(".")
    return rest[0] if rest else "pm_match"


def arrows() -> dict[str, set[str]]:
    """Return which rooms every room imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, others in imports().items():
        found[room(module)] |= {room(other) for other in others}
    return {name: others - {name} for name, others in found.items()}


def stated() -> dict[str, set[str]]:
    """Return the arrows that the architecture page states."""
    block = re.search(r"<!-- arrows -->\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    found = {}
    for line in block[1].splitlines():
        name, _, others = line.partition("->")
        found[name.strip()] = set(others.replace(",", " ").split())
    return found


def test_arrows_are_those_that_the_architecture_page_states():
    entrances = ("pm_match", "__main__")
    found = {name: others for name, others in arrows().items() if name not in entrances}
    assert found == stated()


def test_no_module_imports_what_imports_it():
    # Raises CycleError, which names the circle.
    tuple(TopologicalSorter(imports()).static_order())
    tuple(TopologicalSorter(arrows()).static_order())


def test_the_core_knows_no_kind():
    found = arrows()
    core_rooms = ("numerics", "reading", "running", "clusters", "search", "prediction")
    for core in (*core_rooms, "sampling", "starts"):
        assert not found[core] & set(KINDS), core


def without(kind: str, folder: Path) -> None:
    """Copy the package to a folder, without a kind and whatever imports it."""
    shutil.copytree(PACKAGE, folder / "pm_match", ignore=shutil.ignore_patterns("__pycache__"))
    depends = imports()
    gone = {name for name in depends if room(name) == kind}
    while True:
        more = {name for name, others in depends.items() if others & gone} - gone - {"pm_match"}
        if not more:
            break
        gone |= more
    known = modules()
    for name in gone - {"pm_match"}:
        (folder / known[name].relative_to(PACKAGE.parent)).unlink(missing_ok=True)
    init = folder / "pm_match" / "__init__.py"
    text = init.read_text()
    tree = ast.parse(text)
    lost = set()
    lines = text.splitlines()
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    for node in sorted(imported, key=lambda node: -node.lineno):
        kept = []
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if node.module in gone or inner in gone:
                lost.add(alias.asname or alias.name)
            else:
                kept.append(alias)
        if len(kept) < len(node.names):
            new = f"from {node.module} import {', '.join(map(ast.unparse, kept))}" if kept else ""
            lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + new]
    text = "\n".join(lines)
    for name in lost:
        text = re.sub(rf'^    "{name}",\n', "", text, flags=re.MULTILINE)
        text = re.sub(rf"\b{name}\(\),? ?", "", text)
    init.write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["columns", "declared", "features", "networks", "normal"])
def test_a_kind_can_be_taken_out(kind, tmp_path):
    """The core's tests pass without it, on a kind from outside the package."""
    without(kind, tmp_path)
    assert not list((tmp_path / "pm_match" / kind).glob("*.py"))
    tests = Path(__file__).parent
    shutil.copytree(tests / "core", tmp_path / "tests" / "core")
    shutil.copy(tests / "conftest.py", tmp_path / "tests")
    shutil.copytree(PAGE.parent, tmp_path / "docs")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/core"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "passed" in done.stdout
