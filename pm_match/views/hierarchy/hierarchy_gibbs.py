"""Collapsed Gibbs sweeps over clusters of objects and those of every view below them."""

from typing import Any

import numpy as np
from pymc.blocking import PointType, StatsType
from scipy.special import gammaln

from pm_match.checks import check_count
from pm_match.clusters.points import ClusteringPoints, Writer
from pm_match.clusters.step import PartitionStep, occupancy, statistics
from pm_match.normal.conjugate import log_marginal, posterior
from pm_match.normal.points import NormalsPoints
from pm_match.numerics.log_gamma import draw_log_gamma
from pm_match.numerics.stick_breaking import log_prior
from pm_match.reading.declared_draws import DeclaredDensity
from pm_match.reading.probe import natural_function
from pm_match.views.hierarchy.recognise import Hierarchy
from pm_match.views.hierarchy.tables import count, log_links, new_state, sweep


class HierarchyGibbs(PartitionStep):
    r"""Draw the clusters of objects and views, and then all that was integrated out to do so.

    For `models.dependency_hierarchy` (Klami & Kaski, eq. 3), declared in any way. One step is a
    blocked update of the declared posterior: `n_sweeps` Gibbs sweeps, in which an object's cluster
    and those of all its views are drawn jointly given the precisions, with weights, links and means
    integrated out (see `evidence.hierarchy`); swaps of labels; then precisions with the means
    integrated out, means, links and weights from their exact conditionals.

    Parameters
    ----------
    vars : sequence of variables
        Any of the variables; the step serves all that belong together.
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
    Sampler statistics: `log_joint`, the log joint of data and assignments with all else integrated
    out; `n_occupied`, the clusters that hold objects; `filled`, their fraction of a truncation (0
    where the number of clusters is declared); `moved`, the fraction of objects whose cluster
    changed; `swap_accepted`, the fraction of swaps of labels that were accepted, 0 if none was
    proposed.

    Examples
    --------
    >>> model = pmm.models.dependency_hierarchy(pmm.datasets.ring_views(40).views)
    >>> [type(step).__name__ for step in pmm.steps(model)]
    ['HierarchyGibbs']
    """

    name = "hierarchy_gibbs"
    order = 70
    record = Hierarchy
    stats_dtypes_shapes = statistics(
        "log_joint", "filled", "moved", "swap_accepted", n_occupied=np.int64
    )

    def __init__(self, vars: Any, n_sweeps: int = 1, **kwargs: Any):
        check_count("HierarchyGibbs: n_sweeps", n_sweeps)
        self.n_sweeps = n_sweeps
        super().__init__(vars, **kwargs)

    def _prepare(self) -> None:
        super()._prepare()
        part, model = self.part, self.model
        self._top = ClusteringPoints(model, part.clustering)
        self._normals = [NormalsPoints(model, view.normals) for view in part.views]
        self._writer = Writer(
            model, [name for view in part.views for name in (view.link, view.assignment)]
        )
        self._precisions = natural_function(model, [v.normals.precision for v in part.views])
        self._links = natural_function(model, [view.link for view in part.views])
        self._state = new_state(
            part.clustering.n_objects,
            part.clustering.truncation,
            [view.normals.truncation for view in part.views],
            [view.values.shape[1] for view in part.views],
        )

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        rng, part, state = self.rng, self.part, self._state
        self._load(point)
        # Names of z exchange only where that leaves the links' prior as it is.
        alike = (state.concentration == state.concentration[:, :1]).all()
        n_swaps = part.clustering.truncation if alike else 0
        moved = accepted = proposed = 0
        for _ in range(self.n_sweeps):
            more = sweep(rng, state, n_swaps)
            moved, accepted, proposed = (
                a + b for a, b in zip((moved, accepted, proposed), more, strict=True)
            )
        new = dict(point)
        log_joint = self._draw(point, new)
        stats = {
            "log_joint": log_joint,
            **occupancy([part.clustering], [state.counts]),
            "moved": moved / (self.n_sweeps * part.clustering.n_objects),
            "swap_accepted": accepted / max(proposed, 1),
        }
        self._look(new)
        return new, [stats]

    def _density(self) -> DeclaredDensity:
        own = self.part.clustering.names
        return DeclaredDensity(self.model, self.part.names, own)

    def _check_draw(self, declared, point) -> None:
        declared.check(point, self._log_densities(point), self._top.log_densities(point))

    def _log_densities(self, point) -> list[float]:
        part, z, found = self.part, self._top.labels(point), []
        for v, (view, writer) in enumerate(zip(part.views, self._normals, strict=True)):
            prior, labels = view.normals.prior(point), self._writer.read(point, view.assignment)
            own = posterior(view.values, labels, view.normals.truncation, prior, shared=True)
            found += [
                log_marginal(view.values, labels, prior, shared=True),
                own.log_density(*writer.natural(point)),
            ]
            a, logs = view.concentration(point), np.log(self._links(point)[v])
            found += [
                (gammaln(a.sum(axis=1)) - gammaln(a).sum(axis=1)).sum(),
                ((a - 1.0) * logs).sum(),
                logs[z[view.objects], labels].sum(),
            ]
        return found

    def _load(self, point) -> None:
        """Bring the state to a point."""
        part, state = self.part, self._state
        state.z[:] = self._top.labels(point)
        state.sticks_a[:], state.sticks_b[:] = part.clustering.prior(point)
        for v, (view, precision) in enumerate(
            zip(part.views, self._precisions(point), strict=True)
        ):
            prior, concentration = view.normals.prior(point), view.concentration(point)
            state.w[v, view.objects] = self._writer.read(point, view.assignment)
            # With precision L L', the values L' x have precision 1.
            root = np.linalg.cholesky(precision)
            d = len(root)
            state.values[v, view.objects, :d] = view.values @ root
            state.center[v, :d] = prior.center @ root
            state.strength[v] = prior.strength
            state.concentration[v, :, : concentration.shape[1]] = concentration
            state.concentration_total[v] = concentration.sum(axis=1)
        count(state)

    def _draw(self, point, new) -> float:
        """Draw what was integrated out, and write everything; return the collapsed log joint."""
        rng, part, state = self.rng, self.part, self._state
        flags = np.zeros((0, 2))
        total = log_prior(state.sticks_a, state.sticks_b, state.counts) + log_links(state)
        self._top.draw(rng, point, new, state.z.copy(), state.counts, flags)
        for v, (view, writer) in enumerate(zip(part.views, self._normals, strict=True)):
            prior, n_marginal = view.normals.prior(point), view.normals.truncation
            labels = state.w[v, view.objects]
            total += log_marginal(view.values, labels, prior, shared=True)
            own = posterior(view.values, labels, n_marginal, prior, shared=True)
            writer.write_parameters(new, *own.draw(rng))
            logs = draw_log_gamma(
                rng, state.concentration[v, :, :n_marginal] + state.pairs[v, :, :n_marginal]
            )
            logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
            self._writer.write_simplex(new, view.link, logs)
            self._writer.write(new, {view.assignment: labels})
        return float(total)
