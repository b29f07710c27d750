"""The matching of tables with rich marginals: clusters alone, shapes matched, the joint judges.

Where projections keep distances, and every domain has noise of its own, the clusters of a domain
are found best on their own, at every number of clusters; matchings of so many clusters are then
proposed by shape and sizes. Which number and which matching is best is for the declared model to
say: each proposal's parameters are drawn for a while with the assignment fixed, and the log joint
is averaged. The weaker half of the proposals is given up, and the others are looked at longer.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pm_match.search.chain import Chain
from pm_match.search.coarse import climb_objects
from pm_match.search.match_shapes import common_shape, match_shapes
from pm_match.search.mixture_path import mixture_path
from pm_match.steps import HyperparameterGibbs, MarginalGibbs
from pm_match.structure import Features

# The most clusters looked for in one domain, and objects there are at least for each.
_MOST = 16
_LEAST_OBJECTS = 5
# Matchings that are tried for every number of clusters.
_TOP = 2
# Draws of the parameters by which proposals are judged, round by round.
_ROUNDS = (8, 8, 16)
_KEPT = 0.4
# Iterations of all steps from the best.
_ITERATIONS = 15


@dataclass(eq=False)
class Proposal:
    """A matching that is being judged.

    Attributes
    ----------
    labels : list of (N_d,) integer array
        For every domain.
    point : dict
        Where its parameters are.
    log_joints : list of float
        After every draw of these.
    """

    labels: list[NDArray[np.int64]]
    point: dict[str, NDArray]
    log_joints: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        """Average log joint over the second half of the draws.

        It differs from the log joint with the parameters integrated out by their entropy, which
        hardly depends on the assignment.
        """
        return float(np.mean(self.log_joints[len(self.log_joints) // 2 :]))


def search(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Bring a chain to a good mode of a component with features that have rich marginals.

    Parameters
    ----------
    chain : Chain
    number : int
        Of the component.
    rng : numpy.random.Generator
    """
    component = chain.components[number]
    for place, features in enumerate(component.features):
        if features is None or features.plain:
            continue
        best = judged(chain, number, propose(chain, number, place, features, rng))
        chain.point = best.point
    chain.run(_ITERATIONS, number)
    climb_objects(chain, number)
    chain.settle(number)


def propose(
    chain: Chain, number: int, place: int, features: Features, rng: np.random.Generator
) -> list[Proposal]:
    """Propose matchings of the clusters that the domains have on their own."""
    values = [domain.data.values for domain in features.domains]
    most = min(_MOST, features.truncation, *(len(x) // _LEAST_OBJECTS for x in values))
    paths = [mixture_path(rng, x, max(most, 2)) for x in values]
    found = []
    for n in sorted(set.intersection(*(set(path) for path in paths))):
        own = [path[n] for path in paths]
        means, sizes = zip(
            *(_means(x, label, n) for x, label in zip(values, own, strict=True)), strict=True
        )
        for maps in match_shapes(rng, means, sizes, features.n_factors, _TOP):
            labels = []
            for label, chosen in zip(own, maps, strict=True):
                place_of = np.empty(n, np.int64)
                place_of[chosen] = np.arange(n)
                labels.append(place_of[label])
            matched = [m[chosen] for m, chosen in zip(means, maps, strict=True)]
            weights = [s[chosen] for s, chosen in zip(sizes, maps, strict=True)]
            _, projections = common_shape(matched, weights, features.n_factors)
            found.append(_proposal(chain, number, place, features, labels, projections))
    return found


def _means(x, label, n: int):
    sizes = np.bincount(label, minlength=n).astype(float)
    means = np.zeros((n, x.shape[1]))
    np.add.at(means, label, x)
    return means / sizes[:, None], sizes


def _proposal(chain, number, place, features: Features, labels, projections) -> Proposal:
    """Put a matching into the chain's point, and turn the projections to it."""
    clustering = chain.components[number].clusterings[place]
    by_assignment = {d.assignment: own for d, own in zip(features.domains, labels, strict=True)}
    everything = chain.labels(number)
    start = np.split(everything[place], clustering.ends)
    everything[place] = np.concatenate(
        [
            by_assignment.get(assignment.name, own)
            for assignment, own in zip(clustering.assignments, start, strict=True)
        ]
    )
    units = chain.collapsed(number).units[place]
    if units.linked:
        # Objects that are linked go where the first of them is.
        everything[place] = everything[place][units.first[units.of_object]]
    before = chain.point
    chain.place(number, everything)
    point = turned(chain, features, projections)
    chain.point = before
    return Proposal(labels, point)


def turned(chain: Chain, features: Features, projections) -> dict[str, NDArray]:
    """Return the chain's point with projections (M_d, K) near those given, where that is possible.

    That is where a projection is a variable itself, or a scale times a variable's polar factor.
    """
    model, point = chain.model, dict(chain.point)
    for p in features.parameters:
        key = model.rvs_to_values[model[p.name]].name
        if p.update == "projection":
            point[key] = projections[p.domain]
        elif p.update == "transposed":
            point[key] = np.ascontiguousarray(projections[p.domain].T)
        elif p.update == "normal":
            d = _oriented_by(features, chain.point, key)
            if d is not None:
                # As long as a matrix of standard normal numbers is.
                w = projections[d]
                point[key] = _polar(w) * np.sqrt(max(w.shape))
    return point


def _polar(w: NDArray) -> NDArray[np.float64]:
    u, _, v = np.linalg.svd(w, full_matrices=False)
    return u @ v


def _oriented_by(features: Features, point, key: str) -> int | None:
    """Return the domain whose projection is a multiple of the polar factor of a variable."""
    k = features.n_factors
    if point[key].ndim != 2 or point[key].shape[1] != k:
        return None
    # Another value tells whose projection follows it.
    other = np.random.default_rng(len(key)).standard_normal(point[key].shape)
    before, after = features.view(point), features.view({**point, key: other})
    polar = _polar(other)
    for d, (old, new) in enumerate(zip(before.marginals, after.marginals, strict=True)):
        w = new.projection[:, :k]
        if w.shape != polar.shape or np.array_equal(w, old.projection[:, :k]):
            continue
        scale = (w * polar).sum() / np.square(polar).sum()
        if scale > 0.0 and np.allclose(w, scale * polar, rtol=1e-6, atol=1e-9 * scale):
            return d
    return None


def judged(chain: Chain, number: int, proposals: list[Proposal]) -> Proposal:
    """Return the proposal whose parameters, drawn with its assignment fixed, explain most."""
    steps = [
        s for s in chain.steps_of(number) if isinstance(s, MarginalGibbs | HyperparameterGibbs)
    ]
    for n in _ROUNDS:
        for proposal in proposals:
            chain.point = proposal.point
            for _ in range(n):
                for step in steps:
                    chain.point, _ = step.step(chain.point)
                proposal.log_joints.append(chain.log_joint(number))
            proposal.point = chain.point
        ordered = sorted(proposals, key=lambda p: -p.value)
        proposals = ordered[: max(1, round(_KEPT * len(ordered)))]
    return proposals[0]
