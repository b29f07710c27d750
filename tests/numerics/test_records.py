"""Named tuples that compiled code gets by their address."""

import re
from typing import NamedTuple

import numpy as np
import pytest
from numba import njit, typeof
from numba.core.registry import cpu_target

from pm_match.numerics.kernels import _OPTIONS, entry, part
from pm_match.numerics.records import Record, record, stored


@record
class Inside(NamedTuple):
    flags: np.ndarray
    wide: np.ndarray


@record
class Outside(NamedTuple):
    values: np.ndarray
    inside: Inside
    small: np.ndarray


def example(transposed=False) -> Outside:
    wide = np.arange(24.0).reshape(2, 3, 4)
    return Outside(
        np.zeros(5),
        Inside(np.array([True, False]), wide.transpose(2, 0, 1) if transposed else wide),
        np.arange(6, dtype=np.int16)[::2],
    )


@part
def fill(inside, value, out):
    n = 0
    for i in range(inside.wide.shape[0]):
        for j in range(inside.wide.shape[1]):
            for k in range(inside.wide.shape[2]):
                out[n] = inside.wide[i, j, k] + value * inside.flags[0]
                n += 1


@entry
def read(outside, out):
    for i in range(outside.small.shape[0]):
        outside.values[i] += outside.small[i]
    fill(outside.inside, outside.values[1], out)
    return outside.values.shape[0], outside.small.strides[0], outside.inside.wide.size


@pytest.mark.parametrize("transposed", [False, True])
def test_fields_are_read_whatever_their_layout(transposed):
    given, out = example(transposed), np.zeros(24)
    for times in (1, 2):
        assert read(given, out) == (5, 4, 24)
        np.testing.assert_array_equal(given.values[:3], times * given.small)
        np.testing.assert_array_equal(out, given.inside.wide.ravel() + given.values[1])


def test_what_is_stored_is_laid_out_as_numba_reads_it():
    given = example()
    kind = typeof(given)
    assert isinstance(kind, Record)
    target = cpu_target.target_context
    assert stored(given).nbytes == target.get_abi_sizeof(target.get_data_type(kind.dtype))


def test_types_differ_where_fields_do():
    assert typeof(example()) == typeof(example())
    assert typeof(example()) != typeof(example(transposed=True))
    assert typeof(example().inside) == typeof(example().inside)


def test_only_arrays_are_fields():
    with pytest.raises(TypeError, match=r"Outside\.small: expected an array.*; found int64"):
        typeof(example()._replace(small=3))


def test_wrappers_call_what_reads_records():
    """Merged with it, what they write to the stack could be read before it is there."""

    def first(outside):
        return outside.values[0]

    compiled = njit(**_OPTIONS)(first)
    assert compiled(example()) == 0.0
    (code,) = compiled.inspect_llvm().values()
    wrapper = re.search(r"^define [^\n]*@_ZN7cpython.*?^}", code, re.MULTILINE | re.DOTALL)
    assert wrapper is not None
    assert re.search(r"call i32 @_ZN\w*5first", wrapper[0])
