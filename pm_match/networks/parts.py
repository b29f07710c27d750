"""What is read of networks that share their densities."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import xarray as xr

from pm_match.networks.block_evidence import NetworkCells, Prior
from pm_match.reading.evidence import Evidence
from pm_match.reading.parts import Point


@dataclass(frozen=True, eq=False)
class Relation(Evidence):
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

    kind = "networks"

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

    @property
    def clusterings(self) -> tuple[int, ...]:
        """The numbers of the axes' clusterings, each once."""
        return tuple(dict.fromkeys(self.axes))

    @property
    def hyperpriors(self) -> list[str]:
        """All: the priors of densities and noise may have free hyperparameters."""
        return self.names

    @property
    def relabelled(self) -> list[str]:
        """The densities: noise is of no cluster."""
        return list(self.density)

    def annotate(self, posterior: xr.DataTree) -> None:
        """Say which densities are symmetric: nothing depends on what is below the diagonal."""
        for name in self.density:
            if self.symmetric and name in posterior:
                # 1, as netCDF knows no True.
                posterior[name].attrs["symmetric"] = 1

    def prior(self, point: Point) -> tuple[Prior, Prior | None]:
        """Parameters of the prior on densities, and of that on the noise (see `families`)."""
        return self._prior(point)
