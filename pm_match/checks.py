"""Checks of arguments, each in one form of words: `name: expected …; found …`.

Names that are looked up have another one: `no domain 'x'; there are …`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import sys
import threading
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from os import sep
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from pymc.model.core import Model, modelcontext

# Of larger numbers, squares and their sums overflow.
LARGEST = 1e100
# Files of ours, and those of what wraps our functions or runs them in threads.
_OURS = (
    f"{Path(__file__).parent}{sep}",
    contextlib.__file__,
    threading.__file__,
    f"{Path(concurrent.futures.__file__).parent}{sep}",
)


def warn(said: str) -> None:
    """Warn of something, at the nearest line that is not of this package, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:  # a thread's
        warnings.warn_explicit(said, UserWarning, "pm_match", 0)
        return
    file, line, own = frame.f_code.co_filename, frame.f_lineno, frame.f_globals
    seen = own.setdefault("__warningregistry__", {})
    warnings.warn_explicit(said, UserWarning, file, line, own.get("__name__"), seen)


def is_count(value: Any, least: int = 1) -> bool:
    """Whether a value is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number of at least `least`."""
    if not is_count(value, least):
        raise ValueError(f"{name}: expected a whole number of at least {least}; found {value!r}")


def check_counts(**values: Any) -> None:
    """Refuse what is no whole number of at least 1, of several arguments."""
    for name, value in values.items():
        check_count(name, value)


def counts_by_name(name: str, given: Any, names: Collection[str], least: int = 1) -> dict[str, int]:
    """Give numbers of at least `least` by name: one for all of them, or one for each."""
    if not isinstance(given, Mapping):
        check_count(name, given, least)
        return dict.fromkeys(names, int(given))
    if set(given) != set(names):
        raise ValueError(
            f"{name}: expected a number, or one for each of {list(names)}; found {dict(given)!r}"
        )
    for own in names:
        check_count(f"{name}[{own!r}]", given[own], least)
    return {own: int(given[own]) for own in names}


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False; found {value!r}")


def check_identifier(what: str, name: Any) -> None:
    """Refuse a name that no variable can have."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"{what}: expected an identifier (letters, digits and underscores, not starting with a "
            f"digit), as the name becomes part of variable names; found {name!r}"
        )
    if name.endswith("__"):
        raise ValueError(
            f"{what}: expected a name that does not end in '__', as those of PyMC's transformed "
            f"variables do; found {name!r}"
        )


def identifier(text: str) -> str:
    """Make an identifier of a name: "shop-2 north" becomes "shop_2_north", and "C++" "C_"."""
    name = re.sub(r"__+$", "_", re.sub(r"\W", "_", text))
    return f"_{name}" if not name or name[0].isdigit() else name


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """Say which of the `known` names is near; nothing if none is."""
    lower = {str(own).lower(): str(own) for own in known}
    near = get_close_matches(str(name).lower(), lower, 1)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""


def no_such(what: str, known: Iterable[Any], name: Any = "") -> str:
    """Say what is looked for and not found, what there is, and which of that `name` is near."""
    there = list(map(plain, known))
    return f"no {what}; there are {there}{did_you_mean(name, there)}"


def check_given_by_name(kind: str, given: Any, what: str = "table") -> None:
    """Refuse what is no mapping from names to what there is of each `kind`, or an empty one."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{kind}s: expected a mapping from a {kind}'s name to its {what}, such as "
            f"{{'a': {what}_a, 'b': {what}_b}}; found {type_name(given)}"
        )
    if not given:
        raise ValueError(f"{kind}s: expected at least one {kind}; found none")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no positive, finite number."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) < float("inf"):
        raise ValueError(f"{name}: expected a positive number; found {value!r}")


def check_power(name: str, value: Any) -> None:
    """Refuse what is no number above 0 and at most 1."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) <= 1.0:
        raise ValueError(f"{name}: expected a number in (0, 1]; found {value!r}")


def check_pair(name: str, value: Any, what: tuple[str, str]) -> None:
    """Refuse what is no pair of positive numbers."""
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise ValueError(f"{name}: expected ({what[0]}, {what[1]}); found {value!r}")
    for part, number in zip(what, value, strict=True):
        check_positive(f"{name}'s {part}", number)


def check_option(name: str, value: Any, options: Sequence[str]) -> None:
    """Refuse what is none of the options."""
    if value not in options:
        listed = ", ".join(map(repr, options[:-1]))
        raise ValueError(f"{name}: expected {listed} or {options[-1]!r}; found {value!r}")


def check_seed(random_seed: Any) -> None:
    """Refuse what no generator can be made from."""
    try:
        if isinstance(random_seed, np.random.RandomState):
            raise TypeError  # no others can be spawned from it
        np.random.default_rng(random_seed)
    except (TypeError, ValueError):
        raise ValueError(
            "random_seed: expected a whole number of at least 0, a sequence of such, a NumPy "
            f"generator or None; found {random_seed!r}"
        ) from None


def check_model(model: Any) -> None:
    """Refuse what is no model: PyMC's `modelcontext` lets everything through."""
    if not isinstance(model, Model):
        raise TypeError(f"model: expected a pm.Model; found {type_name(model)}")


def model_to_draw(model: Any) -> Model:
    """Return the model, or that of the context, if none of its names is that of a dim of draws."""
    model = modelcontext(model)
    check_model(model)
    for variable in (*model.basic_RVs, *model.deterministics):
        if variable.name.rpartition("::")[2] in ("chain", "draw"):
            raise ValueError(
                "model: expected names of variables other than 'chain' and 'draw', which number "
                f"draws; found {variable.name!r}: rename it"
            )
    return model


def type_name(value: Any) -> str:
    """Say what a value is, where something else was expected."""
    return f"an object of type {type(value).__name__}"


def astype_hint(dtype: Any) -> str:
    """Say what can be done where numbers were expected, if it is objects that were found."""
    return (
        " (if it holds numbers, convert it with astype(float))" if np.dtype(object) == dtype else ""
    )


def lacking(own: Any, name: str) -> NotImplementedError:
    """Make the error of a class that does not define what it has to."""
    return NotImplementedError(f"{type(own).__name__}: expected `{name}`; found none")


def plain(label: Any) -> Any:
    """Give a Python value, so that messages say 'x' and not np.str_('x')."""
    return label.item() if isinstance(label, np.generic) else label


def counted(n: int, noun: str) -> str:
    """Say how many there are: "1 object", "2,000 objects"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def joined(label: Any) -> Any:
    """Give a label of several levels as text; others as they are."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else label


def label_text(label: Any) -> str:
    """Give a label as text, the same of pandas' and of NumPy's.

    A column of whole numbers that has holes is one of floats.
    """
    if isinstance(label, np.datetime64):
        label = label.astype("datetime64[us]").item()
    whole = isinstance(label, float | np.floating) and label.is_integer()
    return str(int(label) if whole else joined(label))
