"""Rules of the house that no other tool checks."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MODULES = sorted(TESTS.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Full names of the modules, or of what is in them, that a file imports."""
    found: set[str] = set()
    package = ("tests", *path.relative_to(TESTS).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            whole = ".".join([*above, *([node.module] if node.module else [])])
            found |= {whole} | {f"{whole}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_module_is_imported_by_another(path):
    """What tests share is in modules without tests, so that none is run twice or by chance."""
    tests = {
        ".".join(["tests", *module.relative_to(TESTS).with_suffix("").parts])
        for module in MODULES
        if module.name.startswith("test_")
    }
    assert not tests & imported(path)
