"""The matching of tables with rich emissions: cluster alone, match shapes, compare log joints.

Where projections keep distances, and every domain has noise of its own, the clusters of a domain
are found best on their own, at every number of clusters; matchings of so many clusters, or of one
less in some domains, are then proposed by shape and sizes. Which number and which matching is best
is for the declared model to say: the parameters climb to where they are best for each proposal, and
the log joints there are compared. Log joints of draws would differ by tens from draw to draw, and
those of the best proposals by a few. All climb a little, the best of them on, and the best of these
to the top, as they are and with their objects moved to where they fit best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.features.emission import Emission, draw_missing
from pm_match.features.feature_gibbs import FeatureGibbs
from pm_match.features.parts import Features
from pm_match.features.search.match_shapes import common_shape, match_shapes
from pm_match.features.search.maximise import Maximiser, maximiser_of
from pm_match.features.search.mixture_path import Mixture, cluster_means, mixture_path
from pm_match.numerics.masked import MaskedTable
from pm_match.numerics.polar import polar_factor
from pm_match.reading.parts import Clustering
from pm_match.search.chain import Chain
from pm_match.search.coarse import climb_objects, renamed

# The most clusters looked for in one domain, and objects there are at least for each.
_MOST = 16
_LEAST_OBJECTS = 5
# Matchings that are tried for every number of clusters.
_TOP = 2
# Choices of numbers of clusters that are tried: in which domains have the same, and in which some
# lack one.
_EQUAL = 8
_LACKING = 4
# Rounds of judging: steps that the parameters climb, and how many proposals stay.
_ROUNDS = ((20, 8), (40, 4), (200, 1))
# The round before which objects are moved, how often, and steps of the parameters after it.
_MOVING = 2
# Draws, between rounds, of what does not climb.
_DRAWS = 5
# Of missing values, where clusters are looked for in one domain: how often they are filled in anew,
# and how much their correlations with others are believed.
_COMPLETIONS = 10
_TRUST = 0.9
_MOST_MOVES = 3
_STEPS_A_MOVE = 20


@dataclass(eq=False)
class Proposal:
    """A matching that is being judged."""

    labels: list[NDArray[np.int64]]  # (N,): of every clustering
    projections: list[NDArray[np.float64]]  # (M_d, K): where to begin
    point: dict[str, NDArray] | None = None  # where the parameters have climbed to
    value: float = -np.inf  # the log joint there


def search(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Bring a chain to a good mode of a component with features that have rich emissions.

    `number`: of the component.
    """
    for features in chain.components[number].of(Features):
        leave_at_best(chain, number, features, propose(chain, number, features, rng))


def leave_at_best(
    chain: Chain, number: int, features: Features, proposals: Sequence[Proposal]
) -> None:
    """Leave the chain where the best proposal is best, in its labels too."""
    best = judged(chain, number, features, proposals)
    assert best.point is not None
    chain.point = best.point
    climb_objects(chain, number)
    chain.settle(number)


def propose(
    chain: Chain, number: int, features: Features, rng: np.random.Generator
) -> list[Proposal]:
    """Propose matchings of the clusters that the domains have on their own."""
    values = [completed(domain.data) for domain in features.domains]
    most = max(min(_MOST, *(len(x) // _LEAST_OBJECTS for x in values)), 2)
    paths = [mixture_path(rng, x, min(most, features.truncation)) for x in values]
    found = []
    for n, numbers in _numbers(paths, features.truncation):
        own = [
            path[j].labels if j in path else np.zeros(len(x), int)
            for path, j, x in zip(paths, numbers, values, strict=True)
        ]
        means, sizes = zip(
            *(cluster_means(x, label, n) for x, label in zip(values, own, strict=True)), strict=True
        )
        for maps in match_shapes(rng, means, sizes, features.n_factors, _TOP):
            labels = []
            for label, chosen in zip(own, maps, strict=True):
                place_of = np.empty(n, np.int64)
                place_of[chosen] = np.arange(n)
                labels.append(place_of[label])
            found.append(_proposal(chain, number, features, labels, values))
    return found


def _numbers(
    paths: Sequence[Mapping[int, Mixture]], truncation: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Choose how many clusters there are, and how many of them each domain has.

    All domains have all; or one or two of them lack one. What is worth most to the domains alone is
    tried.
    """
    domains = range(len(paths))
    pairs = list(combinations(domains, 2))
    # Alone, a domain lacks nothing.
    lacking = [*((d,) for d in domains), *pairs] if pairs else []
    found: list[tuple[int, tuple[int, ...]]] = []
    for most, sets in ((_EQUAL, [()]), (_LACKING, lacking)):
        choices = []
        for lack in sets:
            for n in range(2 + bool(lack), truncation + 1):
                numbers = tuple(n - (d in lack) for d in domains)
                if all(j in path for j, path in zip(numbers, paths, strict=True)):
                    worth = sum(path[j].worth for j, path in zip(numbers, paths, strict=True))
                    choices.append((-worth, n, numbers))
        found += [(n, numbers) for _, n, numbers in sorted(choices)[:most]]
    # Of few objects, or of none that differ, nothing is found but one cluster.
    return found or [(1, (1,) * len(paths))]


def completed(data: MaskedTable) -> NDArray[np.float64]:
    """Fill in missing values (N, M) by what one normal distribution of all objects expects."""
    if data.observed is None:
        return data.values
    seen, m = data.observed, data.values.shape[1]
    mean = data.values.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    values = np.where(seen, data.values, mean)
    nobody = np.zeros((len(values), 0))
    for _ in range(_COMPLETIONS):
        covariance = np.cov(values.T, bias=True).reshape(m, m)
        # Shrunk, so that few objects do not seem to say everything.
        variances = np.diagonal(covariance) + 1e-9 * np.trace(covariance) + 1e-300
        covariance = _TRUST * covariance + (1.0 - _TRUST) * np.diag(variances)
        root = np.linalg.inv(np.linalg.cholesky(covariance)).T
        own = Emission(np.zeros((m, 0)), values.mean(axis=0), root)
        values = data.filled(draw_missing(None, own, data, nobody))
    return values


def _proposal(chain, number, features: Features, labels, values) -> Proposal:
    """Propose labels of the domains with features, others staying as they are."""
    place = features.clustering
    clustering = chain.components[number].clusterings[place]
    everything, where = chain.labels(number), clustering.slices
    for domain, own in zip(features.domains, labels, strict=True):
        everything[place][where[domain.assignment]] = own
    units = chain.collapsed(number).units[place]
    if units.linked:
        # Objects that are linked go where the first of them is.
        everything[place] = everything[place][units.first[units.of_object]]
    if clustering.named:
        named = _named(clustering, everything[place], not units.linked)
    else:
        # Matchings should not differ by how likely the names of their clusters are.
        named, _ = renamed(clustering.prior(chain.point), everything[place], clustering.truncation)
    everything[place] = clustering.respected(named)
    own = [everything[place][where[domain.assignment]] for domain in features.domains]
    return Proposal(everything, _projections(values, own, features.n_factors))


def _named(clustering: Clustering, labels: NDArray[np.int64], by_domain: bool) -> NDArray[np.int64]:
    """Name clusters, `labels` (N,), as most of their objects whose labels are known.

    Then those of each domain, if `by_domain`: their matching changes so. Others keep their names
    where they can.
    """
    from scipy.optimize import linear_sum_assignment

    labels = labels.copy()
    for where in (slice(None), *(clustering.slices.values() if by_domain else ())):
        own, known = labels[where], clustering.known[where]
        votes = 0.1 * np.eye(clustering.truncation)
        seen = (own >= 0) & (known >= 0)
        np.add.at(votes, (own[seen], known[seen]), 1.0)
        _, name_of = linear_sum_assignment(votes, maximize=True)
        labels[where] = np.where(own >= 0, name_of[own], own)
    return labels


def _projections(
    values: Sequence[NDArray[np.float64]], labels: Sequence[NDArray[np.int64]], n_factors: int
) -> list[NDArray[np.float64]]:
    """Give projections (M_d, K) to begin with, of matched clusters: `labels` (N_d,) of domains."""
    used, codes = np.unique(np.concatenate(labels), return_inverse=True)
    ends = np.cumsum([len(own) for own in labels])[:-1]
    pairs = zip(values, np.split(codes, ends), strict=True)
    means, sizes = zip(*(cluster_means(x, own, len(used)) for x, own in pairs), strict=True)
    return common_shape(means, sizes, n_factors)[1]


def turned(chain: Chain, features: Features, projections: Sequence[NDArray]) -> dict[str, NDArray]:
    """Return the chain's point with projections (M_d, K) near those given, where that is possible.

    That is where a projection is a variable itself, or a scale times a variable's polar factor.
    """
    model, point = chain.model, dict(chain.point)
    for p in features.parameters:
        key = model.rvs_to_values[model[p.name]].name
        if p.update in ("projection", "flat"):
            w = projections[p.domain]
            point[key] = np.ascontiguousarray(w.T if p.transposed else w)
    for isometry in features.isometries:
        w, p = projections[isometry.domain], isometry.orientation
        key = model.rvs_to_values[model[p.name]].name
        _, precision = features.prior(p, point)
        # As long as a matrix of such numbers is.
        point[key] = polar_factor(w) * np.sqrt(len(w) / precision.flat[0])
    return point


def judged(
    chain: Chain, number: int, features: Features, proposals: Sequence[Proposal]
) -> Proposal:
    """Return the proposal that explains most with the parameters that are best for it."""
    maximiser = maximiser_of(chain.model, features)
    for i, (steps, most) in enumerate(_ROUNDS):
        if i == _MOVING:
            proposals = [*proposals, *_moved(chain, number, maximiser, proposals)]
        for proposal in proposals:
            if proposal.point is None:
                chain.place(number, proposal.labels)
                proposal.point = turned(chain, features, proposal.projections)
            _climb(chain, number, maximiser, proposal, steps)
        proposals = sorted(proposals, key=lambda p: -p.value)[:most]
        if i + 1 < len(_ROUNDS):
            _draw_rest(chain, number, maximiser.left, proposals)
    return proposals[0]


def _draw_rest(
    chain: Chain, number: int, names: Sequence[str], proposals: Sequence[Proposal]
) -> None:
    """Draw what does not climb given the best proposal, and climb in hyperparameters there.

    All proposals get the same values.
    """
    first = proposals[0].point
    assert first is not None
    point = first
    for step in chain.steps_of(number):
        if isinstance(step, HyperparameterGibbs):
            point = step.maximise(point)
        elif isinstance(step, FeatureGibbs) and names:
            for _ in range(_DRAWS):
                point = step.draw_some(point, names)
    changed = {key: own for key, own in point.items() if own is not first[key]}
    for proposal in proposals:
        assert proposal.point is not None
        proposal.point = proposal.point | changed


def _climb(chain: Chain, number: int, maximiser: Maximiser, proposal: Proposal, steps: int) -> None:
    """Let a proposal's parameters climb, from where they are."""
    assert proposal.point is not None
    proposal.point, log_prior = maximiser(proposal.point, steps)
    chain.point = proposal.point
    value = chain.loaded(number).log_joint() + log_prior
    proposal.value = value if np.isfinite(value) else -np.inf


def _moved(
    chain: Chain, number: int, maximiser: Maximiser, proposals: Sequence[Proposal]
) -> list[Proposal]:
    """Move the objects of every proposal to the clusters where they fit best, and again."""
    found = []
    for proposal in proposals:
        last = proposal
        for _ in range(_MOST_MOVES):
            assert last.point is not None
            chain.point = last.point
            if climb_objects(chain, number) <= 0.0:
                break
            last = Proposal(chain.labels(number), proposal.projections, chain.point)
            # The parameters have to get used to it.
            _climb(chain, number, maximiser, last, _STEPS_A_MOVE)
        if last is not proposal:
            found.append(last)
    return found
