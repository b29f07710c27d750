"""Who depends on whom in a declared model."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pymc.distributions.distribution import PartialObservedRV, SymbolicRandomVariable
from pymc.model.core import Model
from pytensor.compile.ops import ViewOp
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

# A random variable (or potential) of a model: a named tensor variable.
RV = Any


class Refusal(Exception):
    """Why a partition is not served, in words that name the variable."""


class WeightsRefusal(Refusal):
    """Why the weights of some assignments cannot be integrated out."""


class Ancestry:
    """Direct dependence between the random variables and potentials of a model."""

    def __init__(self, model: Model):
        self._random = frozenset(model.basic_RVs)
        self.parents = {
            rv: self.of(rv.owner.inputs) for rv in model.basic_RVs if rv.owner is not None
        }
        self.parents |= {potential: self.of([potential]) for potential in model.potentials}

    def of(self, variables: Iterable[RV]) -> set[RV]:
        """Return the random variables that `variables` depend on directly."""
        return {v for v in ancestors(variables, self._random) if v in self._random}

    def children(self, *rvs: RV) -> list[RV]:
        """Return the random variables and potentials that depend on any of `rvs` directly."""
        return [v for v, parents in self.parents.items() if not parents.isdisjoint(rvs)]

    def touched(self, rvs: Iterable[RV]) -> list[RV]:
        """Return what has log densities that `rvs` enter: themselves, and their children."""
        own = [*rvs]
        return [*dict.fromkeys([*own, *self.children(*own)])]

    def strangers(self, rv: RV, expected: Iterable[RV]) -> list[RV]:
        """Return what depends on `rv` directly besides what is `expected`."""
        expected = list(expected)
        return [v for v in self.children(rv) if v not in expected]

    def only_children(self, rv: RV, expected: Iterable[RV], drawn: bool = False) -> None:
        """Refuse if anything but `expected` depends on `rv`, to be integrated out or `drawn`."""
        others = self.strangers(rv, expected)
        if others:
            raise Refusal(
                f"{names(others, 'depends')} on {rv.name!r} too"
                + ("" if drawn else ", which could then not be integrated out")
            )


def itself(variable: RV) -> RV:
    """Return the variable that a `pm.Deterministic` gives another name, or itself."""
    while variable.owner is not None and isinstance(variable.owner.op, ViewOp):
        (variable,) = variable.owner.inputs
    return variable


def missing_part(model: Model, rv: RV) -> RV | None:
    """Return the free variable with the missing values of an observed one, if there are any."""
    name = rv.name.removesuffix("_observed")
    found = model.named_vars.get(f"{name}_unobserved") if name != rv.name else None
    return found if found in model.free_RVs else None


def undivided(rv: RV) -> RV:
    """Return the variable that an observed part of it is taken from, or the variable itself."""
    return rv.owner.inputs[0] if isinstance(rv.owner.op, PartialObservedRV) else rv


def parameters(rv: RV) -> list[RV]:
    """Return the parameters of a variable's distribution, as PyTensor has them."""
    return list(rv.owner.op.dist_params(rv.owner))


def mean(rv: RV) -> RV:
    """Return the mean of a normal variable."""
    return parameters(rv)[0]


def scale(rv: RV) -> RV:
    """Return the standard deviation of a normal variable."""
    return parameters(rv)[1]


def a_kind(rv: RV) -> str:
    """Return what `kind` does, with its article."""
    found = kind(rv)
    return f"{'an' if found[0] in 'AEIOaeio' else 'a'} {found}"


def kind(rv: RV) -> str:
    """Return the name of a variable's distribution, as a user knows it."""
    if rv.owner is None:
        return "constant"
    if not isinstance(rv.owner.op, RandomVariable | SymbolicRandomVariable):
        return "expression"
    printed = getattr(rv.owner.op, "_print_name", None)
    return printed[0] if printed else type(rv.owner.op).__name__.removesuffix("RV")


def depends(variable: RV, others: Collection[RV]) -> bool:
    """Say whether a variable is one of the others, or depends on one, however indirectly."""
    return any(v in others for v in ancestors([variable]))


def names(variables: Iterable[RV], verb: str = "") -> str:
    """List variables for a message; with a verb of theirs, given as one variable has it."""
    listed = sorted(repr(v.name) if v.name else "something unnamed" for v in variables)
    if len(listed) > 1:
        verb = {"is": "are", "has": "have"}.get(verb, verb.removesuffix("s"))
    return f"{', '.join(listed)} {verb}".rstrip()


def connected(keys: Mapping[Any, set]) -> list[tuple[set, list]]:
    """Group the items of a mapping whose sets of keys overlap; with the union of the keys."""
    found: list[tuple[set, list]] = []
    for item, own in keys.items():
        joined, members = set(own), [item]
        rest = []
        for others, items in found:
            if joined & others:
                joined |= others
                members = [*items, *members]
            else:
                rest.append((others, items))
        found = [*rest, (joined, members)]
    return found


def read_each[T](
    candidates: Iterable[T], read: Callable[[T], Any], names_of: Callable[[T], Iterable[str]]
) -> tuple[list[Any], dict[str, str]]:
    """Read candidates one by one.

    Return `found`; `refused`: by name, why what has it is not served.
    """
    found: list[Any] = []
    refused: dict[str, str] = {}
    for candidate in candidates:
        try:
            found.append(read(candidate))
        except Refusal as refusal:
            refused |= dict.fromkeys(names_of(candidate), str(refusal))
    return found, refused
