"""The protocol of evidence: what the one Gibbs kernel asks of a data type.

A *term* is what one group of observed variables says about an assignment. It is a `NamedTuple` of
arrays, so that numba can take a tuple of different terms and compile one sweep for them; each of
the functions below is implemented for it by `numba.extending.overload` in the term's own file.

Clusters that hold something sit in *slots* 1 ... n_slots - 1, in no order and without gaps; slot 0
stands for any empty cluster (they all score alike, so it is scored once). A *unit* is one object,
or a group of linked objects that move together.

The kernel does not remove a unit before it scores it: `score` answers *as if* the unit were out of
its own cluster. A settled sweep, in which most units stay where they are, then changes no state at
all, and what a term has cached for each cluster stays valid.

A unit may be irrelevant: in no cluster. Its slot is then 0, which never holds anything else.

In Python, next to its NamedTuple, a term also has a slow plain `log_marginal` that the tests hold
these against, and a `draw` of the parameters that it integrates out from their exact conditional.
"""

from collections.abc import Callable
from inspect import signature

from numba.extending import overload

from pm_match.numerics.kernels import INLINED

# What is implemented, and for which terms.
_IMPLEMENTED: set[tuple[Callable, type]] = set()


def implemented(function: Callable, term) -> bool:
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

    def register(implementation: Callable) -> Callable:
        def resolve(term, *args):
            if getattr(term, "instance_class", None) is kind:
                return implementation
            return None

        _IMPLEMENTED.add((function, kind))
        # numba matches the signature of `resolve` with the implementation's, name by name.
        resolve.__signature__ = signature(implementation)  # type: ignore[attr-defined]
        overload(function, jit_options=INLINED, strict=False)(resolve)  # type: ignore[arg-type]
        return implementation

    return register


def score(term, unit, own, n_slots, out):
    """Add to ``out[:n_slots]`` the log predictive of `unit` in each slot, given all other units.

    `own` is the slot that the unit is in, 0 if it is irrelevant. A constant common to all slots may
    be left out; a term for which relevance matters adds to ``out[n_slots]``, up to the same
    constant, what its data say of an irrelevant unit.
    """
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


def move(term, unit, source, target):
    """Move `unit` from slot `source` to slot `target`; the kernel has cleared a new `target`.

    Slot 0 as `source` or `target` means that the unit is irrelevant before or after.
    """
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


def clear(term, slot):
    """Make `slot` an empty cluster."""
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


def relocate(term, source, target):
    """Copy the cluster in slot `source` to slot `target` (whose cluster has become empty)."""
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


def log_evidence(term, n_slots):
    """Log marginal likelihood of the term's data given the partition, from the running state."""
    raise NotImplementedError(f"no evidence is implemented for {type(term).__name__}")


# -- optional: what `partition.exchange` can do without, slowly ------------------------------------


def tabulate(term, slots, start, stop, n_slots, worth, shared):
    """Add to tables what clusters of one assignment are worth in every slot.

    The assignment's units are `start` ... `stop` (excluded), of those whose `slots` (U,) are given.
    With g and j up to `n_slots`, ``worth[g, j]`` rises by the log evidence of slot `j` holding the
    units of other assignments that it does, and those of this one that are in slot `g`, less that
    of the former alone. What is not additive over slots is a function of a sum (`log_shared`):
    ``shared[g, j]`` rises by what the sum does. At most one of a partition's terms may have any.
    """
    raise NotImplementedError(f"no table is implemented for {type(term).__name__}")


def log_shared(term, change):
    """Log evidence for the sum of what slots share having changed by `change`, less that of now."""
    raise NotImplementedError(f"no table is implemented for {type(term).__name__}")
