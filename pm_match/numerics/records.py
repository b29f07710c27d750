"""Records: named tuples of arrays, which compiled code gets by their address.

Numba passes a `NamedTuple` by value: each array is seven or more arguments, so that one of thirty
arrays is some two hundred and fifty arguments of every function that it is handed to, which LLVM
works through again and again. A record is one pointer instead, to what numba knows of its arrays:
where they are, and their shapes and strides. All that compiled code can do with a record is to read
its fields by their names.

The arrays of a `NamedTuple` are given once, and only their contents change. So what is read through
the pointer is marked as invariant: LLVM need not read it again after something has been written to
an array, and can keep an inner loop as tight as if the arrays had been handed over.
"""

import hashlib
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel.models import PointerModel
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import (
    NativeValue,
    lower_getattr_generic,
    register_model,
    typeof_impl,
    unbox,
)
from numpy.typing import NDArray

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


def _typeof_record(value, context) -> Record:
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
    fields = c.unbox(record.dtype, value)
    at = cgutils.alloca_once_value(c.builder, fields.value)
    return NativeValue(at, cleanup=fields.cleanup, is_error=fields.is_error)


def words(value: Any) -> list[int]:
    """List what numba knows of an array, or of those in a named tuple, word by word."""
    if isinstance(value, np.ndarray):
        shape_and_strides = *value.shape, *value.strides
        return [0, 0, value.size, value.itemsize, value.ctypes.data, *shape_and_strides]
    return [word for field in value for word in words(field)]


def stored(value: Any) -> NDArray[np.int64]:
    """Write a record: the array that is returned is what compiled code may point to."""
    return np.array(words(value), np.int64)
