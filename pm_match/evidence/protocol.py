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

from pm_match.kernels import INLINED


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
