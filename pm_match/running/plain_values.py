"""What steps change in a chain, as JSON and arrays: no code is stored, and none is run.

Values that are states (PyMC's dataclasses of what a step changes, or the states of generators) are
stored by the names of their fields alone. They are made again from the states of steps that are
there: a file does not say which class anything is of.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.step_methods.state import DataClassState
from pymc.util import RandomGeneratorState


def packed(value: Any, arrays: list[NDArray]) -> Any:
    """Bring a value into the form of JSON; its arrays are appended to `arrays`.

    Fields that a step never changes ("frozen" to PyMC) are left out.

    Raise `TypeError` if it holds anything but numbers, strings, lists, dicts with names, arrays and
    states.
    """
    if isinstance(value, np.ndarray | np.generic):
        own = np.asarray(value)
        if own.dtype.hasobject:
            raise TypeError("expected arrays of numbers; found one of objects")
        arrays.append(own)
        return {"array": [len(arrays) - 1, isinstance(value, np.generic)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, DataClassState | RandomGeneratorState):
        return {"fields": {name: packed(own, arrays) for name, own in _changing(value).items()}}
    if isinstance(value, tuple):
        return {"tuple": [packed(own, arrays) for own in value]}
    if isinstance(value, list):
        return [packed(own, arrays) for own in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: packed(own, arrays) for key, own in value.items()}}
    raise TypeError(f"expected plain values; found {type(value).__name__}")


def unpacked(value: Any, arrays: Sequence[NDArray], like: Any = None) -> Any:
    """Return what was `packed`; states have the classes, and frozen fields, of `like`.

    Raise `ValueError` if a state has other fields than `like`.
    """
    if isinstance(value, list):
        likes = like if isinstance(like, list) and len(like) == len(value) else [None] * len(value)
        return [unpacked(own, arrays, each) for own, each in zip(value, likes, strict=True)]
    if not isinstance(value, dict):
        return value
    ((what, held),) = value.items()
    if what == "array":
        number, is_scalar = held
        return arrays[number][()] if is_scalar else arrays[number]
    if what == "tuple":
        return tuple(unpacked(own, arrays) for own in held)
    if what == "dict":
        return {key: unpacked(own, arrays) for key, own in held.items()}
    known = _changing(like)
    if known.keys() != held.keys():
        raise ValueError(
            f"{type(like).__name__}: expected the fields {sorted(known)}, found {sorted(held)}"
        )
    own = {name: unpacked(each, arrays, known[name]) for name, each in held.items()}
    return like._replace(**own) if isinstance(like, RandomGeneratorState) else replace(like, **own)


def _changing(state: Any) -> dict[str, Any]:
    """Return the fields of a state that steps change."""
    if isinstance(state, RandomGeneratorState):
        return state._asdict()
    if not isinstance(state, DataClassState):
        return {}
    own = [field.name for field in fields(state) if not field.metadata.get("frozen")]
    return {name: getattr(state, name) for name in own}
