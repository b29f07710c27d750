"""What the readers of the parts of a model share."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_fn
from pymc.model.core import Model

from pm_match.reading.ancestry import RV, Ancestry, Refusal, names


@dataclass(frozen=True, eq=False)
class Context:
    """A model that is being read.

    Attributes
    ----------
    model : pymc.Model
    ancestry : Ancestry
    shapes : dict
        Shapes of the free variables, by name.
    """

    model: Model
    ancestry: Ancestry
    shapes: dict[str, tuple[int, ...]]

    @cached_property
    def start(self) -> dict[str, NDArray]:
        """Some point of the value variables."""
        return {name: np.asarray(v) for name, v in self.model.initial_point(0).items()}

    @classmethod
    def of(cls, model: Model) -> "Context":
        """Begin to read a model."""
        start = make_initial_point_fn(model=model, return_transformed=False)(0)
        shapes = {name: np.shape(value) for name, value in start.items()}
        return cls(model, Ancestry(model), shapes)

    def must_be_free(self, rv: RV) -> None:
        """Refuse an observed variable where a free one is expected."""
        if rv not in self.model.free_RVs:
            raise Refusal(f"{rv.name!r} is observed; expected a free variable")

    def discrete(self, graphs: Iterable[RV]) -> set[RV]:
        """Return the free discrete variables that `graphs` depend on directly.

        What is read at a point says nothing of the values that they do not have there.
        """
        return {
            rv
            for rv in self.ancestry.of(graphs)
            if rv in self.model.free_RVs and not rv.dtype.startswith("float")
        }

    def must_be_plain(self, rv: RV, transforms: tuple[type, ...], discrete=()) -> None:
        """Refuse transforms, discrete parents and precisions that the steps do not provide for.

        Parameters
        ----------
        rv : variable
        transforms : tuple of type
            PyMC's default transforms for it.
        discrete : collection of variables
            The discrete parents that are expected.
        """
        transform = self.model.rvs_to_transforms.get(rv)
        if transform is not None and type(transform) not in transforms:
            raise Refusal(
                f"{rv.name!r} has the transform {type(transform).__name__}; expected PyMC's "
                "default or none"
            )
        others = [
            p
            for p in self.ancestry.parents[rv]
            if p not in discrete and not p.dtype.startswith("float")
        ]
        if others:
            raise Refusal(f"{rv.name!r} depends on {names(others)}, which is discrete")
        if rv.dtype != "float64":
            raise Refusal(f"{rv.name!r} is {rv.dtype}; expected float64 (PyTensor's floatX)")
