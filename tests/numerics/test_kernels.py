"""Compiled kernels: what is kept on disk, and when it is thrown away."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from pm_match.clusters.sweep import sweep
from pm_match.features.projected_normal import rebuild
from pm_match.numerics import kernels
from pm_match.numerics.kernels import part
from pm_match.numerics.numba_internals import CacheFile

ROOT = Path(kernels.__file__).parents[1]
COMPILED = [
    file
    for file in ROOT.rglob("*.py")
    if re.search(r"^(from|import) .*\bkernels\b", file.read_text(), re.MULTILINE)
]


def test_a_stamp_covers_every_file_of_ours_that_a_kernel_can_be_compiled_from():
    assert len(COMPILED) > 20
    names = {".".join(file.relative_to(ROOT.parent).with_suffix("").parts) for file in COMPILED}
    for file in COMPILED:
        module = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)
        places = kernels.watched(module)
        assert any(file.is_relative_to(place) for place in places)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in names:
                used = (ROOT.parent / node.module.replace(".", "/")).with_suffix(".py")
                assert any(used.is_relative_to(place) for place in places), (module, node.module)


@pytest.mark.parametrize("kernel", [sweep, rebuild])
def test_kernels_have_the_stamp_of_their_room(kernel):
    present = kernels.stamp(kernel.py_func.__module__)
    assert present
    assert kernel._cache._cache_file._source_stamp == present


def test_other_rooms_have_other_stamps():
    features, networks = kernels.stamp("pm_match.features.x"), kernels.stamp("pm_match.networks.x")
    assert features[:2] == networks[:2] == kernels.stamp("pm_match.clusters.x")
    assert features[2] != networks[2]


def test_what_is_compiled_for_another_stamp_is_not_loaded(tmp_path):
    cache = CacheFile(str(tmp_path), "kernel", ("1", "1"))
    cache.save(("signature", "cpu"), b"code")
    assert cache.load(("signature", "cpu")) is not None
    edited = CacheFile(str(tmp_path), "kernel", ("2", "1"))
    assert edited.load(("signature", "cpu")) is None


def test_scripts_are_not_watched():
    assert kernels.watched("__main__") == []
    assert kernels.stamp("__main__") == ()
    assert kernels.stamp("a_module_that_is_not_imported") == ()


TERM = """
from typing import NamedTuple
import numpy as np
from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements
from elsewhere.worth import worth

class Counts(NamedTuple):
    total: np.ndarray

@implements(protocol.score, Counts)
def _score(term, unit, own, n_slots, out):
    for slot in range(n_slots):
        out[slot] += 0.0

@implements(protocol.move, Counts)
def _move(term, unit, source, target):
    term.total[target] += 1.0

@implements(protocol.clear, Counts)
def _clear(term, slot):
    term.total[slot] = 0.0

@implements(protocol.relocate, Counts)
def _relocate(term, source, target):
    term.total[target] = term.total[source]

@implements(protocol.log_evidence, Counts)
def _log_evidence(term, n_slots):
    return worth(n_slots)
"""
WORTH = """
from pm_match.numerics.kernels import part

@part
def worth(n_slots):
    return {} * n_slots
"""
USE = """
import sys
import numba
import numpy as np
from pm_match.clusters import protocol
from pm_match.clusters.sweep import log_joint, new_partition, place, sweep
from elsewhere.counts import Counts

terms = protocol.collect([Counts(np.zeros(8))])
state = new_partition(np.ones(3, int), 4)
place(state, np.zeros(3, int))
sticks = np.ones(3), np.ones(3)
sweep(np.random.default_rng(0), *sticks, state, terms)
place(state, np.zeros(3, int))
found = [log_joint(*sticks, state, t) for t in (terms, protocol.collect([]))]
kind = numba.typeof(Counts(np.zeros(8)))
compiled = [
    sum(protocol._compiled(function, kind).stats.cache_misses.values())
    for function, named in protocol._IMPLEMENTED
    if named is Counts
]
misses = sum(compiled), sum(sweep.stats.cache_misses.values())
print(found[0] - found[1], *misses, int("numba.np.npyimpl" in sys.modules))
"""


def test_terms_from_elsewhere_are_kept_on_disk_until_their_files_change(tmp_path):
    package = tmp_path / "elsewhere"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "counts.py").write_text(TERM)
    given = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT.parent)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run(times):
        (package / "worth.py").write_text(WORTH.format(times))
        done = subprocess.run(
            [sys.executable, "-c", USE], env=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        worth, *compiled = done.stdout.split()
        return float(worth), *map(int, compiled)

    # What the term is worth, how many of its functions were compiled, whether `sweep` was, and
    # whether numba was made ready to compile.
    assert run(1.0)[:2] == pytest.approx((2.0, 5))
    assert run(1.0) == pytest.approx((2.0, 0, 0, 0))
    # Only a helper in another file changes, by a number.
    assert run(3.0) == pytest.approx((6.0, 5, 0, 1))


@part
def _or_none(x, which):
    return x[which] if which >= 0 else 0.0


# As an entry, but for the cache: what is loaded from there compiles no part.
@njit(**kernels._OPTIONS)
def _of_both(x, which):
    return _or_none(x, which) + _or_none(x, -1) + _or_none(x, 1)


def test_parts_are_compiled_once_for_all_numbers():
    assert _of_both(np.array([2.0, 3.0]), 0) == 5.0
    assert len(_or_none.overloads) == 1
