"""What is read of networks that share their densities."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pm_match.networks.block_evidence import NetworkCells, Prior
from pm_match.reading.parts import Point


@dataclass(frozen=True, eq=False)
class Relation:
    """Networks that share their densities.

    Attributes
    ----------
    family : {"bernoulli", "poisson", "normal"}
    density, noise : tuple of str
        The variables with the parameters of blocks and of noise: one, or for the normal family mean
        and precision. No noise if all objects are relevant.
    axes : tuple of int
        The number of each axis' clustering in the component.
    networks : mapping of str to NetworkCells
    one_mode, symmetric, self_loops : bool
    """

    family: str
    density: tuple[str, ...]
    noise: tuple[str, ...]
    axes: tuple[int, ...]
    networks: Mapping[str, NetworkCells]
    one_mode: bool
    symmetric: bool
    self_loops: bool
    _prior: Callable[[Point], tuple[Prior, Prior | None]] = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        return [*self.density, *self.noise]

    def prior(self, point: Point) -> tuple[Prior, Prior | None]:
        """Parameters of the prior on densities, and of that on the noise (see `families`)."""
        return self._prior(point)
