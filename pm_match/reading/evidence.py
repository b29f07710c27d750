"""What is read of the data of one kind: the base of every kind's record."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.checks import lacking

Point = Mapping[str, NDArray]
# Log densities (N, T) of N objects in T clusters, at a point.
Table = Callable[[Point], NDArray[np.float64]]


class Evidence:
    """What a kind has read: its data, and the priors of what it integrates out.

    A record that is made once and never changed; what follows a chain is its `state`. Subclasses
    are frozen dataclasses, most often with `eq=False`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, eq=False)
    ... class SpectraEvidence(pmm.Evidence):  # docs/extending.md has a complete one
    ...     counts: np.ndarray
    ...
    """

    # The name of its kind.
    kind: ClassVar[str]
    # The number of its clustering in the component, if it has one alone.
    clustering: int

    # -- what every kind provides -----------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The free variables that it integrates out, and draws with the clusters."""
        raise lacking(self, "names")

    # -- what it may provide ----------------------------------------------------------------------

    @property
    def clusterings(self) -> tuple[int, ...]:
        """The numbers of the component's clusterings that it is evidence for: its `clustering`."""
        return (self.clustering,)

    @property
    def hyperpriors(self) -> list[str]:
        """Those of `names` whose priors may have free hyperparameters, which are ours to draw.

        Its state then has a `log_factor`.
        """
        return []

    @property
    def relabelled(self) -> list[str]:
        """Variables that mean something else when clusters or factors take other names.

        Convergence is not judged by these.
        """
        return self.names

    @property
    def of_clusters(self) -> dict[str, dict[int, int]]:
        """Parameters of clusters: the number of the clustering along each of their axes.

        None if they are of one cluster alone.
        """
        return {}

    @property
    def each_cluster(self) -> list[tuple[str, ...]]:
        """Of `of_clusters`, variables that clusters have one each of, in the order of labels."""
        return []

    @property
    def of_parts(self) -> dict[str, str]:
        """Those of `of_clusters` that are of the clusters of a part of joint labels: its title."""
        return {}

    @property
    def has_weights(self) -> bool:
        """Whether it has weights of labels that are not integrated out, which its kind draws."""
        return False

    @property
    def anchored(self) -> bool:
        """Whether the clusters have parameters that are not integrated out.

        These belong to labels, so that empty clusters do not score alike (see `clusters.sweep`).
        """
        return False

    @property
    def exchangeable(self) -> bool:
        """Whether two labels may be swapped, with all that belongs to them."""
        return True

    @property
    def advice(self) -> dict[str, str]:
        """What another kind expects, which would serve some variables faster, by their names."""
        return {}

    @property
    def handed_on(self) -> list[str]:
        """Variables whose values a search hands to the chain that starts where it ended."""
        return []

    @property
    def conditioned_on(self) -> list[str]:
        """Those of `names` that prediction asks draws of, rather than integrate them out."""
        return []

    @property
    def of_objects(self) -> list[str]:
        """Variables that belong to single objects, of which prediction asks no draws."""
        return []

    @property
    def searchable(self) -> bool:
        """Whether a search for clusters makes sense: not where the data are free variables."""
        return True

    def dispersed(self, rng: np.random.Generator, start: Point) -> dict[str, NDArray]:
        """Draw values to start a chain from that favour no matching, by variable."""
        return {}

    def integrated(
        self, assignment: str, table: Table, point: Point, *, coarsened: bool
    ) -> NDArray[np.float64]:
        """Give log densities (N, T) of an assignment's objects, what is each one's own integrated.

        `table` has them given all that is free; `coarsened`: to the powers to which they count.
        """
        return table(point)

    def annotate(self, posterior: xr.DataTree) -> None:
        """Say in the attributes of recorded draws what they are."""
