"""Collapsed Gibbs sweeps over a partition, and exact draws of all that they integrate out."""

from typing import Any, ClassVar

import numpy as np
from pymc.blocking import PointType, StatsType
from rich.progress import TextColumn
from rich.table import Column

from pm_match.evidence.projected_normal import ProjectedNormalEvidence
from pm_match.partition.stick_breaking import draw_log_sticks
from pm_match.partition.sweep import log_joint, new_partition, place, rename, sweep
from pm_match.partition.units import units
from pm_match.steps.base import PartitionStep
from pm_match.structure import ProjectedPartition, UnservedModelError


class ClusterGibbs(PartitionStep):
    r"""Draw the assignments of all objects, and then all that was integrated out to do so.

    One step is a blocked update of the declared posterior: `n_sweeps` collapsed Gibbs sweeps and
    label swaps with weights, latent vectors, precision and missing values integrated out (Iwata,
    Hirao & Ueda 2016, eq. 11-17 and 20-26, for truncated weights), then one draw of those from
    their exact conditional (eq. 9 and 10). Objects linked by `must_link` move jointly.

    Parameters
    ----------
    vars : sequence of variables
        Any of the partition's assignments (or other variables that go with them); the step serves
        all that belong together.
    n_sweeps : int, default 1
        Sweeps a step.
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
    Sampler statistics: `log_joint`, the collapsed log joint of data, assignments and projections
    (as far as those have a normal prior) given hyperparameters; `n_occupied`, the clusters that
    hold something; `moved`, the fraction of objects that changed their cluster; `swap_accepted`,
    the fraction of label swaps that were accepted.

    A chain that starts with everything in one cluster (PyMC's default start) is dispersed first.
    """

    name = "cluster_gibbs"
    _announces = True
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "log_joint": (np.float64, []),
        "n_occupied": (np.int64, []),
        "moved": (np.float64, []),
        "swap_accepted": (np.float64, []),
    }

    def __init__(self, vars, n_sweeps: int = 1, **kwargs):
        if n_sweeps < 1:
            raise ValueError(f"ClusterGibbs: n_sweeps must be at least 1, found {n_sweeps}.")
        self.n_sweeps = n_sweeps
        super().__init__(vars, **kwargs)

    def settings(self):
        """Return the arguments of the constructor."""
        return {"n_sweeps": self.n_sweeps}

    @classmethod
    def served(cls, partition: ProjectedPartition) -> list[str]:
        """Names of the variables of `partition` that the step serves."""
        return partition.collapsed

    def _prepare(self) -> None:
        super()._prepare()
        partition = self.partition
        self._units = units(partition.n_objects, partition.links)
        self._evidence = ProjectedNormalEvidence(
            [domain.data for domain in partition.domains],
            self._units,
            partition.truncation,
            partition.n_factors,
        )
        self._state = new_partition(self._units.size, partition.truncation)
        self._renamed = np.zeros(partition.truncation, np.int64)
        self._ends = np.cumsum([len(d.data.values) for d in partition.domains])[:-1]

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        rng, partition, state = self.rng, self.partition, self._state
        hyper = partition.hyper(point)
        labels = self._start(np.concatenate(self.labels(point)))
        projections = self.projections(point)
        place(state, labels[self._units.first])
        slots = state.slot_of[state.label]
        self._evidence.load(projections, slots, hyper.shape, hyper.rate, hyper.latent_precision)

        terms = (self._evidence.term,)
        moved = 0
        for _ in range(self.n_sweeps):
            moved += sweep(rng, hyper.a, hyper.b, state, terms)
        accepted, proposed = rename(
            rng, hyper.a, hyper.b, state, self._renamed, partition.truncation
        )

        new = dict(point)
        labels = np.split(state.label[self._units.of_object], self._ends)
        for domain, label in zip(partition.domains, labels, strict=True):
            self.write(new, {domain.assignment: label})
        self.write_weights(new, *draw_log_sticks(rng, hyper.a, hyper.b, state.counts))
        alpha, latent = self._evidence.draw(rng, state.slot_of)
        self.write_latent(new, alpha, latent)
        self.write_missing(rng, new, labels, projections, alpha, latent)
        stats = {
            "log_joint": log_joint(hyper.a, hyper.b, state, terms) + self._log_prior(point),
            "n_occupied": int(state.n_slots[0]) - 1,
            "moved": moved / (self.n_sweeps * partition.n_objects),
            "swap_accepted": accepted / max(proposed, 1),
        }
        return new, [stats]

    def _log_prior(self, point) -> float:
        """Log density of the projections that have a normal prior, so that modes compare."""
        total = 0.0
        for domain, w in zip(self.partition.domains, self.projections(point), strict=True):
            if domain.update == "normal":
                mean, precision = self.partition.projection_prior(domain, point)
                squares = precision * (w - mean) ** 2
                total += 0.5 * float((np.log(precision / (2.0 * np.pi)) - squares).sum())
        return total

    def _start(self, labels):
        """Check the labels that a chain starts with, and disperse a start that says nothing."""
        if self.started:
            return labels
        self.started = True
        truncation = self.partition.truncation
        if labels.min() < 0 or labels.max() >= truncation:
            raise ValueError(
                f"labels of {', '.join(repr(d.assignment) for d in self.partition.domains)} must "
                f"be in 0 ... {truncation - 1}, found {labels.min()} to {labels.max()}."
            )
        first = self._units.first[self._units.of_object]
        if not np.array_equal(labels, labels[first]):
            raise UnservedModelError(
                "the start contradicts must_link: objects that are linked start in "
                "different clusters."
            )
        if np.all(labels == labels[0]):
            labels = random_labels(self.rng, self._units, truncation)
        return labels

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


def random_labels(rng: np.random.Generator, grouped, truncation: int):
    """Draw labels (N,) uniformly, one for each unit: a start that favours no matching."""
    n_labels = min(truncation, START_CLUSTERS)
    return rng.integers(n_labels, size=len(grouped.size))[grouped.of_object]


# Enough clusters that one is born for each real one, few enough that each holds some objects.
START_CLUSTERS = 10
