"""Exact draws of projections that have a normal prior, and of what matching they serve."""

from typing import Any, ClassVar

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.clusters.points import ClusteringPoints
from pm_match.clusters.step import PartitionStep
from pm_match.clusters.units import units
from pm_match.features.parts import Features
from pm_match.features.permute import permute_labels, regressions
from pm_match.features.points import FeaturesPoints
from pm_match.features.projection import ClusterSums, draw_projection
from pm_match.features.projection_map import why_not
from pm_match.numerics.rescale import rescale
from pm_match.reading import read
from pm_match.reading.parts import Clustering, Structure
from pm_match.reading.probe import natural_function

# Exchanges of labels that are proposed for every cluster of a domain.
_PROPOSALS = 4


class ProjectionGibbs(PartitionStep):
    r"""Draw the projections from their exact conditional.

    What is given are assignments, latent vectors, precision and hyperparameters. Rows are then
    independent, :math:`w_m \sim N(A_m^{-1} b_m, A_m^{-1})` (see
    `evidence.projection.draw_projection`). Then projections and latent vectors exchange their
    scale (see `evidence.rescale`), without which the two creep along each other. Missing values are
    integrated out, and redrawn afterwards.

    Before the projection of one domain (another one every time, at random) is drawn, its clusters
    may exchange their labels with the projection and the weights integrated out (see
    `evidence.permute`): the one move by which a chain soon changes which clusters of two domains
    match. Weights are redrawn if any did. There is no
    such move for domains with objects that are linked to other domains', nor if networks share the
    clusters, nor for flat projections, over which nothing can be integrated.

    Parameters
    ----------
    vars : sequence of variables
        Projections, declared with `pm.Normal` (any mean and scale, which may have priors of their
        own).
    permute : bool, default True
        Whether clusters of a domain may exchange their labels.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the projections are not normal, or the model is not one that the steps can serve.

    Notes
    -----
    Sampler statistic: `permute_accepted`, the fraction of exchanges that were accepted, 0 if none
    was proposed.
    """

    name = "projection_gibbs"
    order = 31
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"permute_accepted": (np.float64, [])}

    def __init__(self, vars, permute: bool = True, **kwargs):
        if not isinstance(permute, bool | np.bool_):
            raise TypeError(f"ProjectionGibbs: permute must be True or False, found {permute!r}.")
        self.permute = bool(permute)
        super().__init__(vars, **kwargs)

    def settings(self):
        """Return the arguments of the constructor."""
        return {"permute": self.permute}

    @classmethod
    def parts(cls, structure: Structure) -> list[Features]:
        """Return the feature vectors of a model."""
        return structure.of(Features)

    @classmethod
    def served(cls, part: Features) -> list[str]:
        """Names of the projections that the step serves."""
        return [domain.projection for domain in part.domains if domain.update == "normal"]

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        return why_not(structure, name, "normal", "pm.Normal")

    def _prepare(self) -> None:
        super()._prepare()
        features = self.part
        self._points = FeaturesPoints(self.model, features)
        self._given = natural_function(self.model, [features.precision, features.latent])
        self._direction = np.empty(features.n_factors)
        self._exchanges = _Exchanges(self.model, features) if self.permute else None

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        rng, features, points = self.rng, self.part, self._points
        labels = points.labels(point)
        alpha, latent = self._given(point)
        alpha = float(alpha)
        latent = np.ascontiguousarray(latent.T if features.latent_transposed else latent)
        projections = points.projections(point)
        exchanges = self._exchanges
        chosen = None
        if exchanges is not None:
            chosen = exchanges.load(rng, point)
        priors = []
        for number, domain in enumerate(features.domains):
            if domain.update != "normal":
                continue
            clusters = ClusterSums.of([domain.data], [labels[number]], features.truncation)
            mean, precision = features.projection_prior(domain, point)
            if exchanges is not None and domain.assignment == chosen:
                renamed = exchanges.propose(rng, clusters, mean, precision, latent, alpha, domain)
                if renamed is not None:
                    labels[number] = renamed[labels[number]]
                    clusters = clusters.renamed(renamed)
            projections[number] = draw_projection(rng, clusters, latent, alpha, mean, precision)
            priors.append((mean, precision))
        new = dict(point)
        if exchanges is not None and exchanges.changed:
            exchanges.draw(rng, point, new)
        if len(priors) == len(features.domains):
            # Only if all projections are ours can the latent vectors change their scale with them.
            tau = alpha * features.hyper(point).latent_precision
            projections, latent = self._rescale(projections, priors, latent, tau, labels)
            written = latent.T if features.latent_transposed else latent
            points.write(new, {features.latent: written})
        points.write_projections(new, projections)
        points.write_missing(rng, new, labels, projections, alpha, latent)
        accepted = 0.0 if exchanges is None else exchanges.accepted / max(exchanges.proposed, 1)
        return new, [{"permute_accepted": accepted}]

    def _rescale(self, projections, priors, latent, tau, labels):
        """Exchange scale between projections and occupied latent vectors; draw the empty ones."""
        held = np.zeros(len(latent), bool)
        held[np.concatenate(labels)] = True
        w, z = np.concatenate(projections), latent[held]
        mean, precision = (np.concatenate(values) for values in zip(*priors, strict=True))
        n_directions = 2 * self.part.n_factors
        rescale(self.rng, w, mean, precision, z, tau, n_directions, self._direction)
        latent = self.rng.standard_normal(latent.shape) / np.sqrt(tau)
        latent[held] = z
        return np.split(w, np.cumsum([len(p) for p in projections])[:-1]), latent


class _Exchanges:
    """Exchanges of labels within the domains of a clustering, for one step at a time.

    Attributes
    ----------
    free : list of str
        The assignments whose clusters may exchange their labels.
    accepted, proposed : int
    changed : bool
        Whether any label has, so that labels and weights are to be written.
    """

    def __init__(self, model, features: Features):
        self._clustering, self.free = _free(read(model), features)
        self._points = ClusteringPoints(model, self._clustering)
        truncation, k = features.truncation, features.n_factors
        self._renamed = np.zeros(truncation, np.int64)
        self._scratch = np.zeros((2, k, k)), np.zeros((2, k))

    def load(self, rng, point) -> str | None:
        """Begin with a point: choose the assignment whose clusters may exchange their labels."""
        self.accepted, self.proposed, self.changed = 0, 0, False
        if not self.free:
            return None
        clustering = self._clustering
        labels = np.split(self._points.labels(point), clustering.ends)
        self._labels = dict(zip((a.name for a in clustering.assignments), labels, strict=True))
        self._prior = clustering.prior(point)
        self._held = np.bincount(np.concatenate(labels), minlength=clustering.truncation)
        return self.free[int(rng.integers(len(self.free)))]

    def propose(self, rng, clusters: ClusterSums, mean, precision, latent, alpha, domain):
        """Exchange labels of a domain; return the new name (T,) of each, None if all are kept."""
        labels = self._labels[domain.assignment]
        objects = np.bincount(labels, minlength=len(self._held))
        groups = clusters.occupied
        accepted, proposed = permute_labels(
            rng,
            *self._prior,
            self._held,
            objects,
            *regressions(clusters, mean, precision),
            latent,
            alpha,
            groups,
            self._renamed,
            *self._scratch,
            _PROPOSALS * len(groups),
        )
        self.accepted += accepted
        self.proposed += proposed
        if not accepted:
            return None
        self.changed = True
        self._labels[domain.assignment] = self._renamed[labels]
        return self._renamed

    def draw(self, rng: np.random.Generator, point, new) -> None:
        """Write the labels, and weights that are drawn given them, to `new`."""
        labels = np.concatenate(list(self._labels.values()))
        self._points.draw(rng, point, new, labels, self._held, np.zeros((0, 2)))


def _free(structure: Structure, features: Features) -> tuple[Clustering, list[str]]:
    """Find the clustering of some features, and the assignments whose labels may be exchanged."""
    for component in structure.components:
        if not any(own is features for own in component.evidence):
            continue
        clustering = component.clusterings[features.clustering]
        found: list[str] = []
        # What else sees the clusters would have to be asked about an exchange too.
        if len(component.evidence) == 1 and len(clustering.assignments) > 1:
            served = {d.assignment for d in features.domains if d.update == "normal"}
            of_object = units(clustering.n_objects, clustering.links).of_object
            parts = np.split(of_object, clustering.ends)
            for number, assignment in enumerate(clustering.assignments):
                others = np.concatenate(parts[:number] + parts[number + 1 :])
                if assignment.name in served and not np.isin(parts[number], others).any():
                    found.append(assignment.name)
        return clustering, found
    raise ValueError("the features are not of the structure")
