"""What is read of networks that share their densities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.clusters.evidence import Board
from pm_match.networks.block_evidence import BlockEvidence, NetworkCells, Prior
from pm_match.reading.evidence import Evidence
from pm_match.reading.parts import Point


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
    one_mode: bool
    symmetric: bool
    self_loops: bool
    # the parameters of the densities' prior, and of the noise's, at a point (see `families`)
    prior: Callable[[Point], tuple[Prior, Prior | None]] = field(repr=False)

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

    def on(
        self,
        board: Board,
        flagged: Sequence[NDArray[np.bool_]] | None = None,
    ) -> BlockEvidence:
        """Make the evidence of the networks for the units of a board.

        `flagged` says for each of its partitions which units may be irrelevant; None for none.
        """
        if flagged is None:
            flagged = [np.zeros(len(own.size), np.bool_) for own in board.units]
        return BlockEvidence(
            self.family,
            list(self.networks.values()),
            self.axes,
            board,
            flagged,
            one_mode=self.one_mode,
            symmetric=self.symmetric,
            self_loops=self.self_loops,
        )
