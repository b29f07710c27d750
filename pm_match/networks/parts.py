"""What is read of networks that share their densities."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.networks.data import cell_exposures
from pm_match.reading.evidence import Evidence
from pm_match.reading.parts import Point

Prior = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class NetworkCells:
    """One network: which of its cells are known, and their values."""

    shape: tuple[int, ...]  # objects on each of the A axes
    # index, values (E, A), (E,): the stored cells
    index: NDArray[np.int64]
    values: NDArray[np.float64]
    full: bool  # whether absent cells are known zeros, rather than unknown
    unknown: NDArray[np.int64]  # (H, A): cells that are unknown though absent cells are not
    # tuple of (N_a,) or None: exposures of the objects on each axis (of counts); None for ones
    exposure: tuple[NDArray[np.float64] | None, ...]
    first: tuple[int, ...]  # the number of each axis' first object in its partition

    def table(self, symmetric: bool, self_loops: bool) -> NDArray[np.float64]:
        """Return all cells, NaN where they are unknown; zeros where there can be none."""
        found = np.full(self.shape, 0.0 if self.full else np.nan)
        found[tuple(self.unknown.T)] = np.nan
        found[tuple(self.index.T)] = self.values
        if symmetric:
            found = np.triu(found) + np.triu(found, 1).T
        if not self_loops:
            np.fill_diagonal(found, 0.0)
        return found

    def exposures(self, axis: int) -> NDArray[np.float64]:
        """Exposures of the objects on an axis."""
        given = self.exposure[axis]
        return np.ones(self.shape[axis]) if given is None else given

    def cell_exposures(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exposures of some cells."""
        return cell_exposures(self.exposure, index)


@dataclass(frozen=True, eq=False)
class MissingCells:
    """The free variable that holds cells of a network that are declared missing."""

    name: str
    shape: tuple[int, ...]  # of the variable
    whole: NDArray[np.float64]  # what is observed, in its shape, NaN where it is missing
    index: NDArray[np.int64]  # (C, A): the cells, in order
    symmetric: bool  # whether the upper triangle of the density is used for both
    # one for each axis, (N_a,) or None: exposures that these cells have; None for ones
    exposure: tuple[NDArray[np.float64] | None, ...]


@dataclass(frozen=True, eq=False)
class Relation(Evidence):
    """Networks that share their densities."""

    kind = "networks"

    family: str  # {"bernoulli", "poisson", "negative-binomial", "normal"}
    # density, noise: The variables with the parameters of blocks and of noise: one, or for the
    # normal family mean and precision. No noise if all objects are relevant.
    density: tuple[str, ...]
    noise: tuple[str, ...]
    axes: tuple[int, ...]  # the number of each axis' clustering in the component
    networks: Mapping[str, NetworkCells]
    missing: Mapping[str, MissingCells]  # of the networks that have some
    one_mode: bool  # whether both axes have the same objects
    # symmetric, self_loops: in a one-mode relation, whether cells (i, j) and (j, i) are one, which
    # is stored with i <= j; and whether cells (i, i) are data
    symmetric: bool
    self_loops: bool
    # the parameters of the densities' prior, and of the noise's, at a point (see `families`)
    prior: Callable[[Point], tuple[Prior, Prior | None]] = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        return [*self.density, *self.noise, *(own.name for own in self.missing.values())]

    @property
    def clusterings(self) -> tuple[int, ...]:
        """The numbers of the axes' clusterings, each once."""
        return tuple(dict.fromkeys(self.axes))

    @property
    def hyperpriors(self) -> list[str]:
        """The priors of densities and noise may have free hyperparameters."""
        return [*self.density, *self.noise]

    @property
    def relabelled(self) -> list[str]:
        """The densities: noise is of no cluster."""
        return list(self.density)

    @property
    def of_clusters(self) -> dict[str, dict[int, int]]:
        """The densities, of the clusters along each axis."""
        return {name: dict(enumerate(self.axes)) for name in self.density}

    def annotate(self, posterior: xr.DataTree) -> None:
        """Say which densities are symmetric: nothing depends on what is below the diagonal."""
        for name in self.density:
            if self.symmetric and name in posterior:
                # 1, as netCDF knows no True.
                posterior[name].attrs["symmetric"] = 1
