"""The digits of the README."""

import re
from pathlib import Path

import pytest

from case_studies import rotated_digits

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
def test_the_readme_says_what_is_printed(tmp_path, capsys):
    rotated_digits.main(["--out", str(tmp_path)])
    printed = re.search(r"adjusted Rand index +(\S+)\n", capsys.readouterr().out)
    said = re.search(r"adjusted Rand index with the true digits is (\S+)\.\n", README.read_text())
    assert printed
    assert said
    assert said[1] == printed[1]
