"""What the package needs of numba's internals: that it is there, and named where it is not.

And what is made of it: named tuples that compiled code gets by their address.
"""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from llvmlite.binding import Linkage
from numba import njit, typeof
from numba.core.compiler import Flags
from numba.core.registry import cpu_target
from numba.extending import overload

from pm_match.numerics import numba_internals
from pm_match.numerics.cholesky import invert
from pm_match.numerics.kernels import _OPTIONS, PART, entry, part
from pm_match.numerics.numba_internals import RELIED_ON, Record, check, missing, record, stored

PACKAGE = Path(numba_internals.__file__).parents[1]


def imported(file):
    """What of numba a file imports, as `RELIED_ON` has it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba"):
            yield from (f"{node.module}:{alias.name}" for alias in node.names)
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in ("numba", "llvmlite"))


def test_one_module_has_all_that_is_used_of_the_internals():
    own = Path(numba_internals.__file__)
    for file in PACKAGE.rglob("*.py"):
        if file != own:
            assert set(imported(file)) <= {"numba", "numba:njit"}, file
    used = {name for name in imported(own) if ":" in name}
    listed = {name.partition(".")[0] if ":" not in name else name for name in RELIED_ON}
    modules = {"numba.core:cgutils", "numba.core:types"}
    assert {name for name in used - modules if name not in listed} == {
        # Of these a method is what is relied on.
        "numba.core.caching:IndexDataCacheFile",
        "numba.core.codegen:JITCodeLibrary",
        "numba.core.pythonapi:_unboxers",
    }
    # And of `cgutils` and contexts, what is called.
    source = own.read_text()
    for found in re.findall(r"cgutils\.(\w+)", source):
        assert f"numba.core.cgutils:{found}" in RELIED_ON
    for found in re.findall(r"call_conv\.(\w+)", source):
        assert f"numba.core.callconv:CPUCallConv.{found}" in RELIED_ON
    for found in re.findall(r"context\.((?!call_conv)\w+)\(", source):
        assert f"numba.core.cpu:CPUContext.{found}" in RELIED_ON
    for found in re.findall(r"pyapi\.(\w+)\(", source):
        assert f"numba.core.pythonapi:PythonAPI.{found}" in RELIED_ON
    for option in _OPTIONS | PART:
        known = f"numba.core.cpu:CPUTargetOptions.{option}" in RELIED_ON
        assert known or option in ("error_model", "fastmath", "pipeline_class")


def test_the_installed_numba_has_it():
    assert missing() == []


@pytest.mark.parametrize("lacking", RELIED_ON)
def test_what_another_numba_lacks_is_named(lacking, monkeypatch):
    module, _, inside = lacking.partition(":")
    *owners, name = inside.split(".")
    owner = import_module(module)
    for own in owners:
        owner = getattr(owner, own)
    # Where a class has it from another one, that is what lacks it.
    if isinstance(owner, type):
        owner = next(own for own in owner.__mro__ if name in vars(own))
    monkeypatch.delattr(owner, name)
    expected = re.escape(lacking.replace(":", "."))
    with pytest.raises(ImportError, match=rf"Expected.*{expected}.*found none in numba"):
        check()


def test_another_layout_of_arrays_is_named(monkeypatch):
    monkeypatch.setattr(numba_internals, "_LAYOUT", ("data", "shape", "strides"))
    with pytest.raises(ImportError, match="arrays laid out as data, shape, strides"):
        check()


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


def _draw(rng, out):
    for place in range(0, len(out), 3):
        out[place] = rng.random()
        out[place + 1] = rng.standard_normal()
        out[place + 2] = rng.random(None, np.float32)


GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_draw_as_numpys_and_are_not_held(name):
    one, other = (np.random.Generator(getattr(np.random, name)(7)) for _ in range(2))
    draw, found, expected = entry(_draw), np.zeros(30), np.zeros(30)
    held = sys.getrefcount(one)
    for _ in range(3):
        draw(one, found)
        _draw(other, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert sys.getrefcount(one) == held
    assert one.random() == other.random()


def test_others_code_holds_generators_as_numba_does():
    rng = np.random.default_rng(0)
    assert njit(lambda rng: rng)(rng) is rng


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


def test_parts_are_linked_into_all_that_calls_them():
    @part
    def least(x):
        return x[0] * 2.0

    @part
    def between(x):
        return least(x) + 1.0

    @overload(_between)
    def resolve(x):
        return lambda x: between(x)

    @njit
    def elsewhere(x):
        return between(x) + least(x) + _between(x)

    @entry
    def kernel(x):
        return between(x) + least(x) + _between(x)

    x = np.array([3.0])
    assert elsewhere(x) == kernel(x) == 20.0
    for code in (least, between):
        (own,) = code.overloads.values()
        assert isinstance(own.library, numba_internals._Part)
        assert own.library.get_pointer_to_function(own.fndesc.llvm_func_name) == 0


def test_kernels_have_their_own_copies_of_parts():
    """Of copies under one name, the first that a process loads would serve all kernels."""

    @part
    def too_long_to_be_inlined(a, b, c):
        invert(a, b, c)
        invert(b, c, a)
        invert(c, a, b)

    @njit(**_OPTIONS)
    def kernel(a, b, c):
        too_long_to_be_inlined(a, b, c)
        too_long_to_be_inlined(c, b, a)

    kernel(np.eye(3), np.eye(3), np.eye(3))
    (code,) = kernel.overloads.values()
    made = [f for f in code.library._final_module.functions if not f.is_declaration]
    copies = [f.linkage for f in made if "too_long" in f.name]
    assert copies == [Linkage.private]


def test_options_are_compared_as_numbas_are():
    given = Flags()
    given.no_cpython_wrapper = True
    own, spelled, other = (numba_internals._Options(given) for _ in range(3))
    spelled.forceinline = Flags().forceinline
    other.error_model = "numpy"
    assert own == given == own == spelled
    assert hash(own) == hash(given) == hash(spelled)
    assert own != other
    assert own != None  # noqa: E711


def _between(x):
    raise NotImplementedError
