"""What was found out about a model, until it changes."""

from operator import is_not
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pymc.model.core import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType


class _Entry[T](NamedTuple):
    """What is kept, and everything that it depends on."""

    parts: list[Any]
    shared: list[Any]
    contents: list[Any]
    value: T


class Kept[T]:
    """Values by model, each kept until the model gets another variable, start or other data."""

    def __init__(self) -> None:
        self._entries: WeakKeyDictionary[Model, _Entry[T]] = WeakKeyDictionary()
        self.clear = self._entries.clear

    def of(self, model: Model) -> T | None:
        """Return what is kept of a model, if it has not changed."""
        known = self._entries.get(model)
        if (
            known is not None
            and _same(known.parts, _parts(model))
            and _same(known.contents, _contents(known.shared))
        ):
            return known.value
        return None

    def keep(self, model: Model, value: T) -> T:
        """Keep a value, and return it."""
        parts = _parts(model)
        # `pm.set_data` puts another array into a shared variable.
        graphs = [*parts, *(model.rvs_to_values[rv] for rv in model.observed_RVs)]
        shared = [
            v
            for v in graph_inputs([v for v in graphs if isinstance(v, Variable)])
            if isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType)
        ]
        self._entries[model] = _Entry(parts, shared, _contents(shared), value)
        return value


def _parts(model: Model) -> list[Any]:
    return [
        *model.basic_RVs,
        *model.potentials,
        *model.rvs_to_initial_values.values(),
        *model.rvs_to_values.values(),
        *model.rvs_to_transforms.values(),
    ]


def _contents(shared: list[Any]) -> list[Any]:
    return [variable.get_value(borrow=True) for variable in shared]


def _same(old: list[Any], new: list[Any]) -> bool:
    return len(old) == len(new) and not any(map(is_not, old, new))
