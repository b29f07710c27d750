"""Collapsed Gibbs sweeps over clusters, and exact draws of all that they integrate out."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from rich.progress import TextColumn
from rich.table import Column

from pm_match.checks import check_count
from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.step import PartitionStep, occupancy, statistics
from pm_match.clusters.units import Units
from pm_match.reading.declared_draws import DeclaredDensity
from pm_match.reading.parts import Component


class ClusterGibbs(PartitionStep):
    r"""Draw the assignments of all objects, and then all that was integrated out to do so.

    One step is a blocked update of the declared posterior: `n_sweeps` collapsed Gibbs sweeps,
    splits and merges, exchanges and swaps of labels with all that allows it integrated out, then
    one draw of that from its exact conditional. With features these are weights, latent vectors,
    precision and missing values (Iwata, Hirao & Ueda 2016, eq. 11-17 and 20-26, for truncated
    weights; eq. 9 and 10); with networks, weights, densities, noise and probabilities of being
    relevant (Iwata & Ishiguro, eq. 11-14; 16-18), and every object's cluster and relevance are
    drawn jointly. Objects linked by `must_link` move jointly.

    Parameters
    ----------
    vars : sequence of variables
        Any of the assignments (or other variables that go with them); the step serves all that
        belong together: both sides of a network, for one.
    n_sweeps : int, optional
        Sweeps a step. Default: 1, or 10 where clusters have parameters that are not integrated out.
        Those of empty clusters are drawn from their prior before every sweep, and sweeps cost
        little beside the step that draws the others.
    n_split_merge : float, default 1
        Splits or merges of clusters that are proposed a step, for every set of clusters (see
        `clusters.split_merge`). Of a number that is not whole, the rest is the probability of one
        more. A proposal scores the objects of one or two clusters twice at most.
    n_exchanges : float, default 0.5
        Assignments, drawn at random, whose clusters may exchange their labels in a step (see
        `clusters.exchange`); likewise.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the model is not one that the step can serve; the message says which variable, and why.

    Notes
    -----
    Sampler statistics: `log_joint`, the collapsed log joint of data, assignments, relevance,
    and all that `FeatureGibbs` draws, given
    hyperparameters; `n_occupied`, the clusters that hold something, of all types; `filled`, the
    largest fraction of a truncation that is in use; `moved`, the fraction of objects that changed
    their cluster or relevance; `swap_accepted`, `split_merge_accepted` and `exchange_accepted`, the
    fractions of these moves that were accepted, 0 if none was proposed.

    A chain that starts with everything in one cluster (PyMC's default start) is dispersed first.

    Examples
    --------
    >>> counts = np.array([[3, 0], [2, 1], [0, 9], [1, 8]])
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
    ...     cluster = pm.Categorical("cluster", weights, shape=4)
    ...     rate = pm.Gamma("rate", 1.0, 0.5, shape=(5, 2))
    ...     counted = pm.Poisson("counts", rate[cluster], observed=counts)
    ...
    >>> with model:
    ...     step = pmm.ClusterGibbs([cluster], n_split_merge=2.0)
    ...
    >>> step
    ClusterGibbs(weights_simplex__, cluster, rate_log__)
    >>> idata = pmm.sample(20, tune=20, chains=2, cores=1, model=model, step=step, random_seed=1,
    ...                    quiet=True)
    """

    name = "cluster_gibbs"
    order = 100
    tune = True
    _announces = True
    stats_dtypes_shapes = statistics(
        "log_joint",
        "filled",
        "moved",
        "swap_accepted",
        "split_merge_accepted",
        "exchange_accepted",
        n_occupied=np.int64,
    )

    def __init__(
        self,
        vars: Any,
        n_sweeps: int | None = None,
        n_split_merge: float = 1.0,
        n_exchanges: float = 0.5,
        **kwargs: Any,
    ):
        if n_sweeps is not None:
            check_count("ClusterGibbs: n_sweeps", n_sweeps)
        for name, value in (("n_split_merge", n_split_merge), ("n_exchanges", n_exchanges)):
            if not 0 <= value < np.inf:
                raise ValueError(
                    f"ClusterGibbs: {name}: expected a number of at least 0; found {value!r}"
                )
        self.n_sweeps = n_sweeps
        self.n_split_merge = n_split_merge
        self.n_exchanges = n_exchanges
        super().__init__(vars, **kwargs)

    @classmethod
    def served(cls, part: Component) -> list[str]:
        """Names of the variables of a component that the step serves."""
        return part.collapsed

    def _prepare(self) -> None:
        super()._prepare()
        self._collapsed = Collapsed.of(self.model, self.part)
        # Now, and not by every process that samples, in what it takes for time to sample.
        for kernel, signature in self._collapsed.kernels():
            kernel.compile(signature)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        rng, collapsed = self.rng, self._collapsed
        given = collapsed.labels(point)
        labels = self._start(given)
        n_sweeps = self.n_sweeps or (ANCHORED_SWEEPS if collapsed.anchored else 1)
        moved = 0
        collapsed.load(point, labels)
        if labels is not given and collapsed.log_joint() == -np.inf:
            collapsed.load(point, given)
        for number in range(n_sweeps):
            # Not before the first of many, for which all would be loaded twice.
            if number or n_sweeps == 1:
                point = collapsed.refreshed(rng, point)
            if number == n_sweeps - 1:
                collapsed.pool(rng, point)
            moved += collapsed.sweep(rng)
        moves = {
            "split_merge_accepted": collapsed.split_or_merge(rng, whole(rng, self.n_split_merge)),
            "exchange_accepted": collapsed.exchange(rng, whole(rng, self.n_exchanges)),
        }
        point = collapsed.choose(point)
        moves["swap_accepted"] = collapsed.rename(rng, point)
        fractions = {name: accepted / max(n, 1) for name, (accepted, n) in moves.items()}
        new = dict(point)
        collapsed.draw(rng, point, new)
        stats = {
            "log_joint": collapsed.log_joint() + collapsed.log_prior(point),
            **occupancy(self.part.clusterings, (own.counts for own in collapsed.partitions)),
            "moved": moved / (n_sweeps * collapsed.n_objects),
            **fractions,
        }
        if stats["log_joint"] == -np.inf and not self.tune:
            raise SamplingError(
                f"{', '.join(repr(c.title) for c in self.part.clusterings)}: expected labels that "
                "are possible after the warm-up; found none that a chain got to, one object after "
                "another: start from possible ones (initvals=), or warm up longer (tune=)"
            )
        self._look(new)
        return new, [stats]

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain."""
        super().setup_chain(rng, tune, draws)
        self.tune = True

    def _density(self) -> DeclaredDensity:
        return DeclaredDensity.of_component(self.model, self.part)

    def _check_draw(self, declared, point) -> None:
        self._collapsed.check_draw(declared, point)

    def _start(self, labels):
        """Disperse a start that says nothing."""
        if self.started:
            return labels
        self.started = True
        return [
            clustering.respected(random_labels(self.rng, own, clustering.truncation))
            if len(np.unique(label[clustering.known < 0])) == 1
            else label
            for clustering, own, label in zip(
                self.part.clusterings, self._collapsed.units, labels, strict=True
            )
        ]

    @staticmethod
    def _progressbar_config(n_chains=1):
        columns = [
            TextColumn("{task.fields[log_joint]:0.1f}", table_column=Column("Log joint", ratio=1)),
            TextColumn("{task.fields[n_occupied]}", table_column=Column("Clusters", ratio=1)),
            TextColumn("{task.fields[moved]:0.2f}", table_column=Column("Moved", ratio=1)),
        ]
        return columns, {name: [0] * n_chains for name in ("log_joint", "n_occupied", "moved")}

    @staticmethod
    def _make_progressbar_update_functions():
        def update(stats):
            return {name: stats[name] for name in ("log_joint", "n_occupied", "moved")}

        return (update,)


def whole(rng: np.random.Generator, mean: float) -> int:
    """Draw a whole number next to `mean`, with that mean."""
    return int(mean + rng.random())


def random_labels(rng: np.random.Generator, grouped: Units, truncation: int) -> NDArray[np.int64]:
    """Draw labels (N,) uniformly, one for each unit: a start that favours no matching."""
    n_labels = min(truncation, START_CLUSTERS)
    return rng.integers(n_labels, size=len(grouped.size))[grouped.of_object]


# Sweeps a step where each has new parameters of empty clusters to try. What mixes slowly there is
# which clusters are in use; the steps that draw the parameters take as long as several sweeps.
ANCHORED_SWEEPS = 10
# Enough clusters that one is born for each real one, few enough that each holds some objects.
START_CLUSTERS = 10
