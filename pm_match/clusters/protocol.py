"""The protocol of evidence: what the one Gibbs kernel asks of a data type.

A *term* is what one group of observed variables says about an assignment. It is a `NamedTuple` of
arrays (or of others like it); each of the functions below is implemented for it in the term's own
file, by a plain function that is decorated with `implements`.

Clusters that hold something sit in *slots* 1 ... n_slots - 1, in no order and without gaps; slot 0
stands for any empty cluster (they all score alike, so it is scored once). A *unit* is one object,
or a group of linked objects that move together.

The kernel does not remove a unit before it scores it: `score` answers *as if* the unit were out of
its own cluster. A settled sweep, in which most units stay where they are, then changes no state at
all, and what a term has cached for each cluster stays valid.

In an *anchored* partition (see `sweep`) empty clusters have slots too, which score and count as
what `clear` leaves in them: every term has to say the same of one, of several and of none.

A unit may be irrelevant: in no cluster. Its slot is then 0, which never holds anything else.

In Python, next to its NamedTuple, a term also has a slow plain `log_marginal` that the tests hold
these against, and a `draw` of the parameters that it integrates out from their exact conditional.

**How a kernel calls a term.** The kernels are compiled once, whatever the terms are. `collect`
makes a table of a partition's terms: a row holds the address of the term (see
`numerics.numba_internals`) and those of its functions, each compiled by itself and kept on disk. In
compiled code `score` and the others take such a row as `term` and call through the address, which
costs some 4 ns; they also take a term itself, so that a term's own functions can call one another.

**What a term may not do.** Its functions are compiled like all kernels: they cannot allocate
(scratch belongs in the term), and they see of a term its fields, by name: not `term[0]`, nor a new
term. They should not raise, which would leave the state half changed.
"""

import linecache
import re
from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import numba
import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.ahead import Job
from pm_match.numerics.kernels import PART, addressed
from pm_match.numerics.numba_internals import (
    NumbaError,
    Record,
    address,
    called_by_address,
    overload,
    record,
    stored,
    typed,
    types,
)

# A table of terms, as `collect` makes it.
Terms = NDArray[np.int64]
# What functions of the protocol take besides the term, and what that is in compiled code.
Whole = Annotated[int, types.int64]
Number = Annotated[float, types.float64]
Numbers = Annotated[NDArray[np.float64], types.Array(types.float64, 1, "C")]
Slots = Annotated[NDArray[np.int16], types.Array(types.int16, 1, "C")]
Table = Annotated[NDArray[np.float64], types.Array(types.float64, 2, "C")]
# Places outside of numba in what it says of an error, the innermost first.
_PLACE = re.compile(r" at (?P<file>\S[^\n]*) \((?P<line>\d+)\)$", re.MULTILINE)
_NUMBA = str(Path(numba.__file__).parent)
# What it says when something would allocate.
_ALLOCATES = ("NRT required", "Only accept returning of array")


class _Asked(NamedTuple):
    """A function of the protocol: its column in a table of terms, and its signature."""

    column: int
    returns: types.Type
    takes: tuple[types.Type, ...]
    optional: bool


_ASKED: dict[Callable, _Asked] = {}
# What is implemented, and for which terms.
_IMPLEMENTED: dict[tuple[Callable, type], Callable] = {}


def _asked(optional: bool = False) -> Callable:
    """Make the decorated function one of the protocol, which compiled code calls by a row."""

    def declare(function: Callable) -> Callable:
        column, hints = 1 + len(_ASKED), get_type_hints(function, include_extras=True)
        _, *takes, returns = (
            own.__metadata__[0] if hasattr(own, "__metadata__") else types.none
            for own in hints.values()
        )
        _ASKED[function] = _Asked(column, returns, tuple(takes), optional)
        called_by_address(function, column, returns, tuple(takes))
        return function

    return declare


def implemented(function: Callable, term: Any) -> bool:
    """Whether a function of the protocol is implemented for a term: some are optional."""
    return (function, type(term)) in _IMPLEMENTED


def implements(function: Callable, kind: type) -> Callable:
    """Make the decorated function what `function` of the protocol does for terms of a `kind`.

    Parameters
    ----------
    function : callable
        One of the functions below.
    kind : type
        The `NamedTuple` class of the term.
    """
    record(kind)

    def register(implementation: Callable) -> Callable:
        given, expected = signature(implementation), signature(function)
        if len(given.parameters) != len(expected.parameters):
            raise TypeError(
                f"{kind.__name__}: expected `{function.__name__}` to take "
                f"({', '.join(expected.parameters)}); found ({', '.join(given.parameters)})"
            )

        def resolve(term, *args):
            if isinstance(term, Record) and term.dtype.instance_class is kind:
                return implementation
            return None

        _IMPLEMENTED[function, kind] = implementation
        # numba matches the signature of `resolve` with the implementation's, name by name.
        resolve.__signature__ = given  # type: ignore[attr-defined]
        overload(function, jit_options=PART, strict=False)(resolve)  # type: ignore[arg-type]
        return implementation

    return register


def collect(terms: Sequence[Any]) -> Terms:
    """Make the table by which kernels reach the terms of a partition.

    Return (n_terms, 8): addresses of each term and of its functions, 0 where one is not
    implemented. What they are the addresses of is kept for as long as the table is.
    """
    return np.asarray(_Collection(terms))


def collected(table: Terms) -> tuple:
    """Return the terms of a table that `collect` made."""
    return table.base.terms  # type: ignore[union-attr]


class _Collection:
    """What a table of terms is made from: the table keeps it."""

    def __init__(self, terms: Sequence[Any]):
        self.terms = tuple(terms)
        self.states: list[NDArray[np.int64]] = []
        self.rows = np.zeros((len(self.terms), 1 + len(_ASKED)), np.int64)
        for row, term in zip(self.rows, self.terms, strict=True):
            kind = numba.typeof(term)
            if not isinstance(kind, Record):
                raise TypeError(f"expected terms of evidence; found a {type(term).__name__}")
            self.states.append(stored(term))
            row[0] = self.states[-1].ctypes.data
            row[1:] = _addresses(kind)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.rows.__array_interface__


@cache
def _addresses(kind: Record) -> list[int]:
    """Find the addresses of what the protocol's functions do for a kind of terms, 0 for none."""
    named = kind.dtype.instance_class
    served = any(asked.optional and (f, named) in _IMPLEMENTED for f, asked in _ASKED.items())
    found = []
    for function, asked in _ASKED.items():
        if (function, named) in _IMPLEMENTED:
            found.append(address(_compiled(function, kind)))
        elif asked.optional and (not served or function is log_shared):
            found.append(0)
        else:
            raise TypeError(f"{named.__name__}: expected `{function.__name__}`; found none")
    return found


def jobs(term: Any) -> list[Job]:
    """List what has to be compiled of the protocol's functions to make a table with a term."""
    kind, named = numba.typeof(term), type(term)
    return [_job(function, kind) for function in _ASKED if (function, named) in _IMPLEMENTED]


@cache
def _job(function: Callable, kind: Record) -> Job:
    """Return what a function of the protocol does for a kind of terms, yet to be compiled."""
    asked, named = _ASKED[function], kind.dtype.instance_class
    implementation = addressed(_IMPLEMENTED[function, named], named.__module__)
    return implementation, typed(asked.returns, kind, *asked.takes)


def _compiled(function: Callable, kind: Record) -> Any:
    """Compile what a function of the protocol does for a kind of terms."""
    named = kind.dtype.instance_class
    dispatcher, asked = _job(function, kind)
    try:
        dispatcher.compile(asked)
    except NumbaError as error:
        raise TypeError(
            f"{named.__name__}: `{function.__name__}` cannot be compiled. {_explain(str(error))}"
        ) from error
    return dispatcher


def _explain(error: str) -> str:
    """Say why numba could not compile something, and where, in a line of its page."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Failed in", "- Resolution failure"))]
    reason = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    if any(sign in error for sign in _ALLOCATES):
        reason = "it would allocate memory"
    for place in _PLACE.finditer(error):
        file, line = place["file"], int(place["line"])
        if not file.startswith(_NUMBA):
            source = linecache.getline(file, line).strip()
            return f"{Path(file).name}, line {line}, `{source}`: {reason}"
    return reason


@_asked()
def score(term: Any, unit: Whole, own: Whole, n_slots: Whole, out: Numbers) -> None:
    """Add to ``out[:n_slots]`` the log predictive of `unit` in each slot, given all other units.

    `own` is the slot that the unit is in, 0 if it is irrelevant. A constant common to all slots may
    be left out; a term for which relevance matters adds to ``out[n_slots]``, up to the same
    constant, what its data say of an irrelevant unit.
    """
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


@_asked()
def move(term: Any, unit: Whole, source: Whole, target: Whole) -> None:
    """Move `unit` from slot `source` to slot `target`; the kernel has cleared a new `target`.

    Slot 0 as `source` or `target` means that the unit is irrelevant before or after.
    """
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


@_asked()
def clear(term: Any, slot: Whole) -> None:
    """Make `slot` an empty cluster."""
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


@_asked()
def relocate(term: Any, source: Whole, target: Whole) -> None:
    """Copy the cluster in slot `source` to slot `target` (whose cluster has become empty)."""
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


@_asked()
def log_evidence(term: Any, n_slots: Whole) -> Number:
    """Log marginal likelihood of the term's data given the partition, from the running state."""
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


# -- optional: what `clusters.exchange` can do without, slowly ------------------------------------


@_asked(optional=True)
def tabulate(
    term: Any,
    slots: Slots,
    start: Whole,
    stop: Whole,
    n_slots: Whole,
    worth: Table,
    shared: Table,
) -> None:
    """Add to tables what clusters of one assignment are worth in every slot.

    The assignment's units are `start` ... `stop` (excluded), of those whose `slots` (U,) are given.
    With g and j up to `n_slots`, ``worth[g, j]`` rises by the log evidence of slot `j` holding the
    units of other assignments that it does, and those of this one that are in slot `g`, less that
    of the former alone. What is not additive over slots is a function of a sum (`log_shared`):
    ``shared[g, j]`` rises by what the sum does. At most one of a partition's terms may have any.
    """
    raise NotImplementedError(f"no table is implemented for {type(term).__name__}")


@_asked(optional=True)
def log_shared(term: Any, change: Number) -> Number:
    """Log evidence for the sum of what slots share having changed by `change`, less that of now.

    It is implemented beside `tabulate`, if slots share anything.
    """
    raise NotImplementedError(f"no table is implemented for {type(term).__name__}")


# Where tables of terms say by 0 that slots share nothing.
SHARED = _ASKED[log_shared].column
