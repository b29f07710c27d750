"""All that the package needs of numba beyond its documented interface.

Another numba may lack any of it. What is used is listed in `RELIED_ON`, and looked at when this
module is imported.

**Records**: named tuples of arrays, which compiled code gets by their address. Numba passes a
`NamedTuple` by value: each array is seven or more arguments, so that one of thirty arrays is some
two hundred and fifty arguments of every function that it is handed to, which LLVM works through
again and again. A record is one pointer instead, to what numba knows of its arrays: where they are,
and their shapes and strides. All that compiled code can do with a record is to read its fields by
their names. The arrays of a `NamedTuple` are given once, and only their contents change. So what is
read through the pointer is marked as invariant: LLVM need not read it again after something has
been written to an array, and can keep an inner loop as tight as if the arrays had been handed over.

**Generators**: NumPy's, which kernels get by their address.

**Calls by address**: compiled functions that others reach through a table of addresses.

**Caches on disk** that are thrown away with a stamp of our own, not with the time of one file.
"""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, reduce
from importlib import import_module
from inspect import isfunction, signature
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.garbage import uncollected

# Attributes of modules of numba; of the options, that they are there.
RELIED_ON = (
    "numba.core.boxing:unbox_numpy_random_generator",
    "numba.core.caching:FunctionCache",
    "numba.core.caching:FunctionCache._guard_against_spurious_io_errors",
    "numba.core.caching:FunctionCache._index_key",
    "numba.core.caching:FunctionCache._load_overload",
    "numba.core.caching:IndexDataCacheFile._data_name",
    "numba.core.caching:IndexDataCacheFile._load_index",
    "numba.core.caching:IndexDataCacheFile._save_data",
    "numba.core.caching:IndexDataCacheFile._save_index",
    "numba.core.callconv:CPUCallConv.call_function",
    "numba.core.callconv:CPUCallConv.get_function_type",
    "numba.core.callconv:CPUCallConv.return_status_propagate",
    "numba.core.cgutils:alloca_once",
    "numba.core.cgutils:alloca_once_value",
    "numba.core.cgutils:create_struct_proxy",
    "numba.core.cgutils:false_bit",
    "numba.core.cgutils:gep_inbounds",
    "numba.core.cgutils:get_or_insert_function",
    "numba.core.cgutils:if_unlikely",
    "numba.core.cgutils:is_not_null",
    "numba.core.cgutils:true_bit",
    "numba.core.cgutils:voidptr_t",
    "numba.core.codegen:JITCPUCodegen._module_pass_manager",
    "numba.core.codegen:JITCodeLibrary._finalized",
    "numba.core.codegen:JITCodeLibrary._get_module_for_linking",
    "numba.core.codegen:JITCodeLibrary._optimize_final_module",
    "numba.core.codegen:JITCodeLibrary._optimize_functions",
    "numba.core.codegen:JITCodeLibrary.codegen",
    "numba.core.codegen:JITCodeLibrary.enable_object_caching",
    "numba.core.codegen:JITCodeLibrary.get_pointer_to_function",
    "numba.core.compiler:Compiler",
    "numba.core.compiler:Flags",
    "numba.core.compiler:Flags._values",
    "numba.core.cpu:CPUContext.codegen",
    "numba.core.cpu:CPUContext.get_abi_sizeof",
    "numba.core.cpu:CPUContext.get_constant",
    "numba.core.cpu:CPUContext.get_data_type",
    "numba.core.cpu:CPUContext.get_value_type",
    "numba.core.cpu:CPUContext.insert_const_string",
    "numba.core.cpu:CPUContext.make_array",
    "numba.core.cpu:CPUTargetOptions._nrt",
    "numba.core.cpu:CPUTargetOptions.forceinline",
    "numba.core.cpu:CPUTargetOptions.no_cfunc_wrapper",
    "numba.core.cpu:CPUTargetOptions.no_cpython_wrapper",
    "numba.core.datamodel:default_manager",
    "numba.core.datamodel.models:PointerModel",
    "numba.core.dispatcher:_DispatcherBase.get_call_template",
    "numba.core.errors:NumbaError",
    "numba.core.pythonapi:PythonAPI.decref",
    "numba.core.pythonapi:PythonAPI.numba_array_adaptor",
    "numba.core.pythonapi:PythonAPI.object_getattr_string",
    "numba.core.pythonapi:PythonAPI.tuple_getitem",
    "numba.core.pythonapi:_unboxers.functions",
    "numba.core.types:NumPyRandomBitGeneratorType",
    "numba.core.types:NumPyRandomGeneratorType",
    "numba.core.types:npy_rng",
    "numba.core.typing:signature",
    "numba.core.typing.templates:AttributeTemplate",
    "numba.core.typing.templates:infer_getattr",
    "numba.extending:NativeValue",
    "numba.extending:lower_builtin",
    "numba.extending:lower_getattr_generic",
    "numba.extending:overload",
    "numba.extending:register_model",
    "numba.extending:type_callable",
    "numba.extending:typeof_impl",
    "numba.extending:unbox",
)
# What code in the making has.
_LIBRARY = ("_codegen", "_final_module", "_linking_libraries")
# How numba lays out an array.
_LAYOUT = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")


def missing() -> list[str]:
    """List what the installed numba lacks, or has otherwise, of what the package relies on."""
    found = []
    for name in RELIED_ON:
        module, _, inside = name.partition(":")
        try:
            reduce(getattr, inside.split("."), import_module(module))
        except (ImportError, AttributeError):
            found.append(name.replace(":", "."))
    if not found:
        from numba.core.datamodel import default_manager

        fields = default_manager[numba.types.Array(numba.types.float64, 1, "C")]._fields
        if fields != _LAYOUT:
            found.append(f"arrays laid out as {', '.join(_LAYOUT)}")
        from numba.core.codegen import JITCodeLibrary

        made = [vars(own).get("__init__") for own in JITCodeLibrary.__mro__]
        names = {name for own in made if isfunction(own) for name in own.__code__.co_names}
        found += [f"JITCodeLibrary().{name}" for name in _LIBRARY if name not in names]
    return found


def check() -> None:
    """Raise an ImportError, in words, if the installed numba is one that does not serve."""
    lacking = missing()
    if lacking:
        raise ImportError(
            "pm_match uses internals of numba, which numba 0.61 to 0.68 have. Expected "
            f"{'; '.join(lacking)}; found none in numba {numba.__version__}: install one of these."
        )


check()

from llvmlite import ir  # noqa: E402
from llvmlite.binding import Linkage  # noqa: E402
from numba.core import cgutils, types  # noqa: E402
from numba.core.boxing import unbox_numpy_random_generator  # noqa: E402
from numba.core.caching import FunctionCache, IndexDataCacheFile  # noqa: E402
from numba.core.codegen import JITCodeLibrary  # noqa: E402
from numba.core.compiler import Compiler, Flags  # noqa: E402
from numba.core.datamodel.models import PointerModel  # noqa: E402
from numba.core.errors import NumbaError  # noqa: E402
from numba.core.pythonapi import _unboxers  # noqa: E402
from numba.core.typing import signature as typed  # noqa: E402
from numba.core.typing.templates import AttributeTemplate, infer_getattr  # noqa: E402
from numba.extending import (  # noqa: E402
    NativeValue,
    lower_builtin,
    lower_getattr_generic,
    overload,
    register_model,
    type_callable,
    typeof_impl,
    unbox,
)

__all__ = [
    "NumbaError",
    "Record",
    "address",
    "called_by_address",
    "check",
    "keep",
    "kept",
    "missing",
    "overload",
    "record",
    "stored",
    "typed",
    "types",
]

# -- records ---------------------------------------------------------------------------------------

_RECORDS: set[type] = set()


class Record(types.Type):
    """Numba's type of a pointer to the fields of a named tuple, whose type is `dtype`."""

    def __init__(self, dtype: types.NamedTuple):
        kind = dtype.instance_class
        self.dtype = dtype
        # The types of all fields would make symbols of kilobytes.
        fields = hashlib.sha256(str(dtype).encode()).hexdigest()[:12]
        super().__init__(f"{kind.__module__}.{kind.__qualname__}[{fields}]")

    @property
    def key(self) -> types.NamedTuple:
        """What makes two records of one type."""
        return self.dtype


register_model(Record)(PointerModel)


def record[T](kind: type[T]) -> type[T]:
    """Let compiled code get named tuples of a `kind` by their address (a decorator, too)."""
    if kind not in _RECORDS:
        _RECORDS.add(kind)
        typeof_impl.register(kind)(_typeof_record)
    return kind


# By what arrays there are: numba looks at each of them, for a tenth of a millisecond in all.
_SEEN: dict[Any, Record] = {}


def _seen(value: Any) -> Any:
    """Tell all that the type of an array depends on, or those of what is in a tuple."""
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.ndim, value.flags.num
    return type(value), tuple(map(_seen, value)) if isinstance(value, tuple) else None


def _typeof_record(value, context) -> Record:
    key = _seen(value)
    if key not in _SEEN:
        _SEEN[key] = _record_of(value, context)
    return _SEEN[key]


def _record_of(value, context) -> Record:
    fields = [typeof_impl(field, context) for field in value]
    inside = [field.dtype if isinstance(field, Record) else field for field in fields]
    for name, field in zip(value._fields, inside, strict=True):
        if not isinstance(field, (types.Array, types.NamedTuple)):
            raise TypeError(
                f"{type(value).__name__}.{name}: expected an array or a named tuple of arrays; "
                f"found {field}"
            )
    return Record(types.NamedTuple(inside, type(value)))


@infer_getattr
class _Fields(AttributeTemplate):
    key = Record

    def generic_resolve(self, record, name):  # type: ignore[override]
        if name not in record.dtype.fields:
            return None
        field = record.dtype.types[record.dtype.fields.index(name)]
        return Record(field) if isinstance(field, types.NamedTuple) else field


@lower_getattr_generic(Record)
def _read_field(context, builder, record, pointer, name):
    place = record.dtype.fields.index(name)
    field, at = record.dtype.types[place], cgutils.gep_inbounds(builder, pointer, 0, place)
    if isinstance(field, types.NamedTuple):
        return at
    array = context.make_array(field)(context, builder)
    array.meminfo = array.meminfo.type(None)
    array.parent = array.parent.type(None)
    array.itemsize = context.get_constant(
        types.intp, context.get_abi_sizeof(context.get_data_type(field.dtype))
    )
    for number, member in ((2, "nitems"), (4, "data"), (5, "shape"), (6, "strides")):
        setattr(array, member, _read(builder, cgutils.gep_inbounds(builder, at, 0, number)))
    return array._getvalue()


def _read(builder, pointer):
    """Read what does not change: a number, an address, or several."""
    kind = pointer.type.pointee
    if isinstance(kind, ir.ArrayType):
        value = ir.Constant(kind, ir.Undefined)
        for number in range(kind.count):
            one = _read(builder, cgutils.gep_inbounds(builder, pointer, 0, number))
            value = builder.insert_value(value, one, number)
        return value
    value = builder.load(pointer)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@unbox(Record)
def _unbox_record(record, value, c):
    # On the stack of the wrapper, which numba never merges with the function that it calls.
    if c.context.enable_nrt:
        fields = c.unbox(record.dtype, value)
        at = cgutils.alloca_once_value(c.builder, fields.value)
        return NativeValue(at, cleanup=fields.cleanup, is_error=fields.is_error)
    at = cgutils.alloca_once(c.builder, c.context.get_value_type(record.dtype))
    _fill(record.dtype, value, at, c)
    return NativeValue(at)


def _fill(fields, value, at, c):
    """Write what is known of each array to its place: that they are arrays, `typeof` has seen.

    Numba would check each of them again, and copy it: a tenth of a second to compile for twenty.
    """
    for number, field in enumerate(fields.types):
        own = c.pyapi.tuple_getitem(value, number)
        place = cgutils.gep_inbounds(c.builder, at, 0, number)
        if isinstance(field, types.NamedTuple):
            _fill(field, own, place, c)
        else:
            c.pyapi.numba_array_adaptor(own, c.builder.bitcast(place, c.pyapi.voidptr))


def words(value: Any) -> list[int]:
    """List what numba knows of an array, or of those in a named tuple, word by word."""
    if isinstance(value, np.ndarray):
        shape_and_strides = *value.shape, *value.strides
        return [0, 0, value.size, value.itemsize, value.ctypes.data, *shape_and_strides]
    return [word for field in value for word in words(field)]


def stored(value: Any) -> NDArray[np.int64]:
    """Write a record: the array that is returned is what compiled code may point to."""
    return np.array(words(value), np.int64)


# -- generators ------------------------------------------------------------------------------------

_BITS = types.NumPyRandomBitGeneratorType("bit_generator")
# The first words of what C code reads of a generator (`bitgen_t` of NumPy).
_WORDS = ("state", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double")


def _unbox_generator(kind, value, c):
    """Read a generator as C code does.

    Numba asks `ctypes` for all functions with every call, which takes longer than many a kernel,
    and takes a reference that kernels without its memory management never give back.
    """
    if c.context.enable_nrt:
        return unbox_numpy_random_generator(kind, value, c)
    builder, pyapi = c.builder, c.pyapi
    failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
    found = cgutils.create_struct_proxy(kind)(c.context, builder)
    bits = cgutils.create_struct_proxy(_BITS)(c.context, builder)
    reads = ir.FunctionType(cgutils.voidptr_t, [pyapi.pyobj, cgutils.voidptr_t])
    read = cgutils.get_or_insert_function(builder.module, reads, "PyCapsule_GetPointer")
    name = c.context.insert_const_string(builder.module, "BitGenerator")
    with ExitStack() as stack:
        own = pyapi.object_getattr_string(value, "bit_generator")
        stack.enter_context(builder.if_then(cgutils.is_not_null(builder, own)))
        capsule = pyapi.object_getattr_string(own, "capsule")
        pyapi.decref(own)
        stack.enter_context(builder.if_then(cgutils.is_not_null(builder, capsule)))
        at = builder.call(read, [capsule, name])
        pyapi.decref(capsule)
        stack.enter_context(builder.if_then(cgutils.is_not_null(builder, at)))
        words = builder.bitcast(at, c.context.get_value_type(types.uintp).as_pointer())
        for place, member in enumerate(_WORDS):
            setattr(bits, member, builder.load(cgutils.gep_inbounds(builder, words, place)))
        found.bit_generator, found.parent = bits._getvalue(), value
        builder.store(cgutils.false_bit, failed)
    return NativeValue(found._getvalue(), is_error=builder.load(failed))


_unboxers.functions[types.NumPyRandomGeneratorType] = _unbox_generator
# Numba makes its type anew with every call.
typeof_impl.register(np.random.Generator)(lambda value, context: types.npy_rng)

# -- calls by address ------------------------------------------------------------------------------

# A row of a table: the address of a record, then those of functions.
ROW = types.Array(types.int64, 1, "C")


def called_by_address(
    function: Callable, column: int, returns: types.Type, takes: tuple[types.Type, ...]
) -> None:
    """Let compiled code call `function` with a row, by the address in one of its `column`s.

    What is called takes the record whose address is the first of the row, and what `takes` says.
    """

    @type_callable(function)
    def resolve(context):
        def answer(term, *args):
            return typed(returns, ROW, *takes) if term == ROW else None

        answer.__signature__ = signature(function)  # type: ignore[attr-defined]
        return answer

    @lower_builtin(function, ROW, *takes)
    def call(context, builder, sig, args):
        row = context.make_array(ROW)(context, builder, args[0]).data
        term = builder.inttoptr(builder.load(row), cgutils.voidptr_t)
        taken = (types.voidptr, *takes)
        kind = context.call_conv.get_function_type(returns, taken).as_pointer()
        place = builder.load(cgutils.gep_inbounds(builder, row, column))
        status, value = context.call_conv.call_function(
            builder, builder.inttoptr(place, kind), returns, taken, [term, *args[1:]]
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return value


def address(dispatcher: Any) -> int:
    """Find the address of a function that is compiled for one signature."""
    (code,) = dispatcher.overloads.values()
    return code.library.get_pointer_to_function(code.fndesc.llvm_func_name)


# -- parts -----------------------------------------------------------------------------------------


class _Once(JITCodeLibrary):
    """Code that LLVM works through once, with all that it calls.

    Numba has every function worked through when it is added, and the whole twice, the first time
    to find pairs of references: a third of LLVM's time, and kernels count none.
    """

    def add_ir_module(self, ir_module):
        """Say of every address of a record that all of it may be read there.

        What loops read in some of their turns alone is then read before them: LLVM 15, of numba
        0.61, fails where it would make vectors of them otherwise.
        """
        for function in ir_module.functions:
            for own in function.args:
                kind = getattr(own.type, "pointee", None)
                if isinstance(kind, ir.LiteralStructType) and own.name.startswith("arg."):
                    own.attributes.align = kind.get_abi_alignment(self._codegen.target_data)
                    own.attributes.dereferenceable = kind.get_abi_size(self._codegen.target_data)
        super().add_ir_module(ir_module)

    def _optimize_functions(self, ll_module):
        """Leave it to `_optimize_final_module`."""

    def _optimize_final_module(self):
        managed = self._codegen._module_pass_manager()
        # Before numba 0.62 it had no builder beside it.
        manager, *builder = managed if isinstance(managed, tuple) else (managed,)
        manager.run(self._final_module, *builder)


class _Part(_Once):
    """Code that is only linked into others', where it is optimised and made machine code."""

    def finalize(self):
        self._finalized = True

    def _get_module_for_linking(self):
        """Return the module with all that it calls: for code that is not a `_Kernel`."""
        whole = self._final_module.clone()
        for module in _called(self):
            whole.link_in(module, preserve=True)
        for function in whole.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"
        return whole

    @cached_property
    def own_module(self):
        """The module without what it calls."""
        return JITCodeLibrary._get_module_for_linking(self)

    def get_pointer_to_function(self, name):
        return 0

    @property
    def codegen(self):
        return _Unset(self._codegen)


class _Unset:
    """A `Codegen` of code without an address: no environment can be written to it."""

    def __init__(self, codegen):
        self._codegen = codegen

    def set_env(self, env_name, env):
        """Leave it."""

    def __getattr__(self, name):
        return getattr(self._codegen, name)


class _Kernel(_Once):
    """Code into which all parts are linked that it calls, and that these do."""

    def finalize(self):
        for module in _called(self):
            self._final_module.link_in(module, preserve=True)
        # Of what several kernels have under one name, the first that a process loads would serve
        # all, and it may round otherwise: draws would depend on what was compiled before. Private,
        # not internal: other code would be linked to internal names, whose arguments LLVM changes.
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = "private"
        self._linking_libraries = []
        super().finalize()


def _called(library):
    """List the modules that a library calls, and their parts do: callers before what they call.

    LLVM links nothing that is not called yet.
    """
    found: dict[Any, Any] = {}

    def visit(library):
        for called in reversed(library._linking_libraries):
            if called not in found:
                found[called] = None
                if isinstance(called, _Part):
                    visit(called)
                found[called] = found.pop(called)

    visit(library)
    # Which an older numba has not.
    if hasattr(library, "_reload_init"):
        for called in found:
            library._reload_init.update(called._reload_init)
    return [
        called.own_module if isinstance(called, _Part) else called._get_module_for_linking()
        for called in reversed(found)
    ]


class _Options(Flags):
    """Options of a function, which numba compares with every function that a call may mean.

    It writes them all down for that, and takes a tenth of its time.
    """

    __slots__ = ()

    def __eq__(self, other):
        alike = isinstance(other, Flags) and self._values == other._values
        return alike or super().__eq__(other)

    def __hash__(self):
        return _SAME_FOR_ALL


# Of their names.
_SAME_FOR_ALL = hash(Flags())


class _Compiler(Compiler):
    _library: type

    def __init__(self, typingctx, targetctx, library, args, return_type, flags, locals):
        if library is None:
            library = self._library(targetctx.codegen(), self._library.__name__)
            library.enable_object_caching()
        options = _Options(flags)
        super().__init__(typingctx, targetctx, library, args, return_type, options, locals)

    @uncollected()
    def compile_extra(self, func):
        """Compile a function."""
        return super().compile_extra(func)


class PartCompiler(_Compiler):
    """Compiles as numba does, but for machine code, which numba makes of every function.

    What only other kernels call was optimised and made machine code on its own, and then again in
    each of them.
    """

    _library = _Part


class KernelCompiler(_Compiler):
    """Compiles as numba does what calls parts."""

    _library = _Kernel


# -- caches ----------------------------------------------------------------------------------------


class CacheFile(IndexDataCacheFile):
    """Numba's cache files of one function."""

    def _load_index(self):
        try:
            return super()._load_index()
        except (AttributeError, ImportError, EOFError):
            # Written for something that is no longer there.
            return {}

    def save(self, key, data):
        """Save what was compiled for a signature, in a file of its own.

        Numba counts them: processes that save at the same time may take the same number.
        """
        name = self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:12], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


def for_any_number(dispatcher: Any) -> Any:
    """Let a dispatcher compile once for all numbers: numba does anew where one is written out."""
    template = dispatcher.get_call_template

    def get_call_template(args, kws):
        given = {name: types.unliteral(kind) for name, kind in kws.items()}
        return template([types.unliteral(kind) for kind in args], given)

    dispatcher.get_call_template = get_call_template
    return dispatcher


class _Cache(FunctionCache):
    """Numba's cache of one function, whose machine code is loaded without more ado.

    Numba would make itself ready to compile first: a third of the time to load some twenty kernels.
    """

    def load_overload(self, sig, target_context):
        """Load what was compiled for a signature, if that is on disk."""
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def keep(dispatcher: Any, function: Callable, stamp: tuple[str, ...]) -> None:
    """Keep on disk what is compiled of a function, until it has another `stamp`."""
    try:
        cached = _Cache(function)
        old = cached._cache_file
        name = old._index_name.removesuffix(".nbi")
        cached._cache_file = CacheFile(old._cache_path, name, stamp)
        dispatcher._cache = cached
    except (AttributeError, OSError, RuntimeError):
        # A numba whose cache is built otherwise, or nowhere to keep it: rather none than one that
        # can go stale.
        pass


def kept(dispatcher: Any, asked: Any) -> bool | None:
    """Whether what is compiled of a function for a signature is on disk; None if it never is."""
    cache = dispatcher._cache
    if not isinstance(cache, FunctionCache):
        return None
    key = cache._index_key(asked, dispatcher.targetctx.codegen())
    return key in cache._cache_file._load_index()
