"""The matching of domains of feature vectors: each alone, matched one by one, then refined.

Within a domain clusters are easily found; which one goes with which in another domain is where
chains from random starts get stuck. So the clusters of each domain are found alone, and matchings
are scored on the collapsed log joint with the projections fitted to each: thousands of them, since
such a score sees the clusters' sums and no object. Sweeps of the chain's own Gibbs kernel in
between move single objects, and open what whole clusters cannot reach.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import new_partition, place, sweep
from pm_match.clusters.units import Units, units
from pm_match.features.emission import Emission
from pm_match.features.parts import Features
from pm_match.features.points import FeaturesPoints
from pm_match.features.projected_normal import ProjectedNormalEvidence
from pm_match.features.search.feature_problem import FeatureProblem, Labels
from pm_match.features.search.group_moves import (
    LEAST_GAIN,
    climb_groups,
    merges,
    moves,
    permute,
    swaps,
)
from pm_match.features.search.one_domain import clusters_alone
from pm_match.numerics.masked import MaskedTable
from pm_match.reading import read
from pm_match.reading.parts import Clustering, Point
from pm_match.search.chain import Chain
from pm_match.search.coarse import climbs, compiled_ahead, polish

_SWEEPS = 15
# The projections follow the assignments every so many sweeps.
_SWEEPS_A_FIT = 3
# Rounds without gain after which a search ends.
_PATIENCE = 3
# Iterations of the chain in which free hyperparameters get used to what was found.
_SETTLING = 20
# How many partial matchings are carried along while domains are added.
_BEAM = 10


@dataclass(frozen=True, eq=False)
class Mode:
    """What a search found."""

    labels: list[Labels]  # (N_d,)
    projections: list[NDArray[np.float64]]  # (M_d, K)
    log_joint: float  # of data and labels, with projections fitted (see `FeatureProblem.fit`)


@compiled_ahead(climbs)
def search(chain: Chain, number: int, rng: np.random.Generator, begun: bool = False) -> None:
    """Bring a chain to a good mode of the feature vectors of one component.

    `chain`: of which `model`, `point`, `run`, `labels`, `place` and `settle` are used; `number`: of
    the component; `begun`: whether to begin with the chain's labels, in place of matching all anew.
    Labels are placed, and projections written to the point: fitted ones, also where they have a
    normal prior, which the chain then draws from there. If hyperparameters are free, the chain runs
    with what was found, and the search goes on from there with new ones. Assignments without
    features keep their labels.
    """
    component = read(chain.model).components[number]
    free = bool(component.hyperparameters)
    free |= any(clustering.free_weights_prior for clustering in component.clusterings)
    for again in range(2 if free else 1):
        for features in component.of(Features):
            place_of = features.clustering
            clustering = component.clusterings[place_of]
            problem, units_of, part = problem_of(clustering, features, chain.point)
            labels = [np.array(label) for label in chain.labels(number)]
            own = labels[place_of][units_of.first]
            first = own[part] if begun or again else match_all(problem, rng)
            own[part] = refine(problem, rng, first)
            labels[place_of] = own[units_of.of_object]
            chain.place(number, labels)
            _, projections = problem.fit(own[part])
            point, emissions = dict(chain.point), features.setting(chain.point).emissions
            # Fitted to what is whitened.
            projections = [
                w / emission.root[:, None]
                for w, emission in zip(projections, emissions, strict=True)
            ]
            parameters = [w for w in features.projections if w is not None]
            if not features.flat:
                precisions = [features.prior(parameter, point)[1] for parameter in parameters]
                projections = spread_evenly(projections, precisions)
            found = dict(zip(parameters, projections, strict=True))
            FeaturesPoints(chain.model, features).write_projections(point, found)
            chain.point = point
        # Projections with a prior are drawn given latent vectors: those of this matching.
        chain.settle(number)
        chain.run(_SETTLING if free else 1)
    polish(chain, number)


def spread_evenly(
    projections: Sequence[NDArray[np.float64]], precisions: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Bring fitted projections to where a normal prior expects them.

    W A with any regular A fits as well as W if the latent vectors follow. Fits have latent vectors
    that are uncorrelated, whatever the matching is. The prior of W expects instead that factors are
    equally large and uncorrelated in the projections: then it is the latent vectors that have the
    clusters' shape, which a matching is judged by.

    `projections` (each M_d, K); `precisions` (each M_d, K): of the normal prior.
    Return list of (M_d, K): W A, with the mean over all features of w w', each in units of its
    prior, the identity. Directions in which nothing is fitted are left as they are.
    """
    scaled = np.concatenate([w * np.sqrt(p) for w, p in zip(projections, precisions, strict=True)])
    size, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    used = size > 1e-8 * size.max()
    factor = np.where(used, 1.0 / np.sqrt(np.where(used, size, 1.0)), 1.0)
    turn = (axes * factor) @ axes.T
    return [w @ turn for w in projections]


def problem_of(
    clustering: Clustering, features: Features, point: Point
) -> tuple[FeatureProblem, Units, Labels]:
    """Read the problem that a clustering's feature vectors pose at a point.

    Return `problem`: of the assignments that have features, which are shifted and whitened;
    `units`: of all objects of the clustering; `part` (P,): which of these each of the problem's
    units is part of.
    """
    setting = features.setting(point)
    assert setting.gamma is not None
    whitened = {
        domain.assignment: emission.whitened(domain.data)
        for domain, emission in zip(features.domains, setting.emissions, strict=True)
    }
    a, b = clustering.prior(point)
    everything = units(clustering.n_objects, clustering.links)
    whole = FeatureProblem(
        tuple(
            whitened.get(assignment.name) or MaskedTable(np.zeros((assignment.n_objects, 0)))
            for assignment in clustering.assignments
        ),
        everything,
        features.n_factors,
        *setting.gamma,
        setting.latent_precision,
        np.asarray(a, np.float64),
        np.asarray(b, np.float64),
    )
    seen = [d for d, own in enumerate(clustering.assignments) if own.name in whitened]
    problem, part = whole.only(seen)
    return problem, everything, part


def find_mode(problem: FeatureProblem, rng: np.random.Generator) -> Mode:
    """Search for the assignment with the largest log joint; return the best one met."""
    labels = refine(problem, rng, match_all(problem, rng))
    value, projections = problem.fit(labels)
    return Mode(problem.split(labels[problem.units.of_object]), projections, value)


def refine(problem: FeatureProblem, rng: np.random.Generator, labels: Labels) -> Labels:
    """Improve an assignment by sweeps and moves of whole clusters in turn, while that helps.

    Return (U,): a local maximum under exchanges of labels within a domain, moves and merges of
    clusters; the largest cluster has the heaviest label.
    """
    gibbs = _Gibbs(problem)
    labels, best = improve(problem, rng, labels)
    failures = 0
    while failures < _PATIENCE:
        end, value = improve(problem, rng, gibbs.run(rng, labels))
        failures += 1
        if value > best + LEAST_GAIN:
            labels, best, failures = end, value, 0
    return problem.in_order(labels)


def match_all(problem: FeatureProblem, rng: np.random.Generator) -> Labels:
    """Cluster every domain alone, then add one at a time, keeping the best; give labels (U,)."""
    alone = []
    for d in range(len(problem.domains)):
        one, whole = problem.only([d])
        alone.append((clusters_alone(one, rng), whole))
    # The domain with most clusters first, so that the others' find their place among them.
    order = sorted(range(len(alone)), key=lambda d: -len(np.unique(alone[d][0])))
    labels = np.full(len(problem.units.size), -1)
    beam = [labels]
    for number, d in enumerate(order):
        part, whole = problem.only(order[: number + 1])
        own, own_whole = alone[d]
        longer: dict[bytes, tuple[float, Labels]] = {}
        for labels in beam:
            start = labels.copy()
            free = labels[own_whole] < 0
            start[own_whole[free]] = own[free]
            if number == 0:
                longer[b""] = (0.0, start)
                continue
            groups = part.grouped(start[whole])
            # Units that are linked to domains already placed stay with them.
            fresh = np.zeros(len(groups.label), bool)
            fresh[groups.of_unit[np.isin(whole, own_whole[free])]] = True
            found, scores = permute(rng, groups, fresh, groups.label, problem.truncation, _BEAM)
            for end, value in zip(found, scores, strict=True):
                start[whole] = end[groups.of_unit]
                longer[start.tobytes()] = (value, start.copy())
        best = sorted(longer.values(), key=lambda pair: -pair[0])[:_BEAM]
        beam = [labels for _, labels in best]
    return beam[0]


def improve(
    problem: FeatureProblem, rng: np.random.Generator, labels: Labels
) -> tuple[Labels, float]:
    """Move whole clusters, and permute every domain's against all others, until nothing helps.

    Return labels (U,) and their log joint.
    """
    best = -np.inf
    while True:
        groups = problem.grouped(labels)
        homes = [groups.home == d for d in np.unique(groups.home)]

        def propose(present, homes=homes):
            return np.concatenate(
                [
                    swaps(homes, present, problem.truncation),
                    moves(present, problem.truncation),
                    merges(present),
                ]
            )

        own, value = climb_groups(groups, groups.label, propose)
        for home in homes:
            found, scores = permute(rng, groups, home, own, problem.truncation)
            if scores[0] > value + LEAST_GAIN:
                own, value = found[0], float(scores[0])
        labels = own[groups.of_unit]
        if value <= best + LEAST_GAIN:
            return labels, value
        best = value


class _Gibbs:
    """Sweeps of the one Gibbs kernel, with projections fitted every few."""

    def __init__(self, problem: FeatureProblem):
        self.problem = problem
        self.evidence = ProjectedNormalEvidence(
            problem.domains, problem.units, problem.truncation, problem.n_factors
        )
        self.terms = collect([self.evidence.term])
        self.partition = new_partition(problem.units.size, problem.truncation)

    def run(self, rng: np.random.Generator, labels: Labels) -> Labels:
        """Sweep from `labels` (U,); return the assignment with the largest log joint met."""
        problem, best, best_value = self.problem, labels, -np.inf
        for _ in range(_SWEEPS // _SWEEPS_A_FIT):
            _, projections = problem.fit(labels)
            place(self.partition, labels)
            self.evidence.load(
                [Emission.of_projection(w) for w in projections],
                self.partition.slot.astype(np.int64),
                problem.latent_precision,
                (problem.shape, problem.rate),
            )
            for _ in range(_SWEEPS_A_FIT):
                sweep(rng, problem.a, problem.b, self.partition, self.terms)
            labels = self.partition.label.copy()
            value, _ = problem.fit(labels)
            if value > best_value:
                best, best_value = labels, value
        return best
