"""Compiled kernels: what may be kept on disk, and when it is thrown away."""

import re
from typing import NamedTuple

import numpy as np
from numba import typeof

from pm_match.clusters.sweep import new_partition, sweep
from pm_match.numerics import kernels


class Elsewhere(NamedTuple):
    values: np.ndarray


def test_terms_from_elsewhere_are_not_kept_on_disk(tmp_path):
    cache = kernels._PackageCache(str(tmp_path), "kernel", (1, 1))
    ours = (typeof(new_partition(np.ones(3, int), 4)),)
    theirs = (typeof((Elsewhere(np.zeros(3)),)),)
    cache.save((theirs, "cpu"), b"code")
    assert list(cache._load_index()) == []
    cache.save((ours, "cpu"), b"code")
    assert len(cache._load_index()) == 1
    assert cache.load((ours, "cpu")) is not None
    edited = kernels._PackageCache(str(tmp_path), "kernel", (2, 1))
    assert edited.load((ours, "cpu")) is None


def test_the_stamp_covers_every_file_that_kernels_are_compiled_from():
    compiled = {
        file
        for file in kernels._ROOT.rglob("*.py")
        if re.search(r"^(from|import) .*\bkernels\b", file.read_text(), re.MULTILINE)
    }
    assert len(compiled) > 20
    assert compiled <= set(kernels._FILES)
    assert sweep._cache._cache_file._source_stamp == kernels._STAMP
