r"""Matching the clusters of tables by the shape that their means form, and by their sizes.

If projections keep distances, the means of matching clusters form the same shape in all domains.
With :math:`\rho` the correlation that is left after the best rotation, shift and scale (Procrustes,
clusters weighted by their sizes), a pair of domains with J clusters in K common dimensions scores

.. math:: -\tfrac12 J K \log(1 - \rho^2),

the profile likelihood of means that deviate from a common shape by an unknown amount; all domains
together score :math:`\sum_j \log \Gamma(N_j + 1)` for the sizes :math:`N_j` of matched clusters,
which is what shared proportions say. A domain may lack clusters that others have. Of a pair of
domains, the shape is that of the clusters that both have.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import gammaln

from pm_match.numerics.polar import polar_factor

# Up to so many clusters all matchings of two domains are looked at; of more, so many starts.
_MOST_ENUMERATED = 6
_STARTS = 25
# Solutions of a quadratic assignment, the best of which a start is made of.
_TRIES = 4
# A correlation of 1 would outweigh everything.
_MOST_CORRELATED = 0.9999

Map = NDArray[np.int64]


def match_shapes(
    rng: np.random.Generator,
    means: Sequence[NDArray[np.float64]],
    sizes: Sequence[NDArray[np.float64]],
    n_factors: int,
    top: int = 1,
) -> list[list[Map]]:
    """Match the clusters of all domains.

    `means` (each J, M_d); `sizes` (each J,): 0 for what stands for a cluster that the
    domain lacks: one at most. `n_factors`: K: no more dimensions can be common. `top`: how many
    matchings to return. Return (J,): matchings, best first: for each domain the number of its
    cluster that is matched to the first domain's first cluster, second cluster, and so on.
    """
    n, n_domains = len(means[0]), len(means)
    k = min([n_factors, *(m.shape[1] for m in means)])
    identity = np.arange(n)
    if n_domains == 1:
        return [[identity]]
    if n_domains == 2 and n <= _MOST_ENUMERATED:
        maps = np.array(list(permutations(range(n))))
        scores = _pair(means[0], sizes[0], means[1], sizes[1], maps, k)
        scores += _sizes(sizes[0], sizes[1], maps)
        return [[identity, maps[i]] for i in np.argsort(-scores, kind="stable")[:top]]
    found: dict[bytes, tuple[float, list[Map]]] = {}
    grams = [_gram(m, s, k) for m, s in zip(means, sizes, strict=True)]
    # Many are the same.
    starts = [_start(rng, grams) for _ in range(_STARTS)]
    for start in {np.concatenate(maps).tobytes(): maps for maps in starts}.values():
        value, maps_ = _climb_maps(means, sizes, start, k)
        found[np.concatenate(maps_).tobytes()] = value, maps_
    return [maps for _, maps in sorted(found.values(), key=lambda pair: -pair[0])[:top]]


def _gram(means, sizes, k: int) -> NDArray[np.float64]:
    """Inner products (J, J) of centred means in their k main directions; their squares sum to 1."""
    centred = (means - np.average(means, axis=0, weights=sizes)) * (sizes > 0)[:, None]
    u, d, _ = np.linalg.svd(centred, full_matrices=False)
    gram = (u[:, :k] * d[:k] ** 2) @ u[:, :k].T
    return gram / (np.linalg.norm(gram) + 1e-300)


def _start(rng: np.random.Generator, grams: Sequence[NDArray[np.float64]]) -> list[Map]:
    """Match domain after domain to those before by inner products, which no rotation changes.

    That is a quadratic assignment, solved approximately, with a random start.
    """
    maps, common = [np.arange(len(grams[0]))], grams[0]
    options = {"rng": rng, "P0": "randomized", "maximize": True}
    for gram in grams[1:]:
        tries = [
            scipy.optimize.quadratic_assignment(common, gram, options=options)
            for _ in range(_TRIES)
        ]
        found = max(tries, key=lambda solved: solved.fun).col_ind
        maps.append(found)
        common = common + gram[np.ix_(found, found)]
    return maps


def _climb_maps(means, sizes, maps: list[Map], k: int) -> tuple[float, list[Map]]:
    """Exchange two clusters of one domain, the best exchange of all, while that helps."""
    n = len(maps[0])
    first, second = np.triu_indices(n, 1)
    value = -np.inf
    while True:
        best: tuple[float, int, Map] | None = None
        for d in range(1, len(maps)):
            moved = np.repeat(maps[d][None], len(first) + 1, axis=0)
            rows = np.arange(len(first))
            moved[rows, first], moved[rows, second] = maps[d][second], maps[d][first]
            others = [e for e in range(len(maps)) if e != d]
            scores = np.zeros(len(moved))
            for e in others:
                scores += _pair(means[e][maps[e]], sizes[e][maps[e]], means[d], sizes[d], moved, k)
            rest = np.sum([sizes[e][maps[e]] for e in others], axis=0)
            scores += _sizes(rest, sizes[d], moved)
            # The last is the present map; pairs of other domains are the same for all.
            gain = scores - scores[-1]
            i = int(gain.argmax())
            if gain[i] > 1e-9 and (best is None or gain[i] > best[0]):
                best = float(gain[i]), d, moved[i]
        if best is None:
            break
        maps = [best[2] if d == best[1] else own for d, own in enumerate(maps)]
    value = float(gammaln(np.sum([s[m] for s, m in zip(sizes, maps, strict=True)], 0) + 1).sum())
    for d in range(len(maps)):
        for e in range(d):
            one, other = means[e][maps[e]], sizes[e][maps[e]]
            value += float(_pair(one, other, means[d], sizes[d], maps[d][None], k)[0])
    return value, maps


def _sizes(sizes, others, maps) -> NDArray[np.float64]:
    return gammaln(sizes + others[maps] + 1.0).sum(axis=1)


def _pair(means, sizes, others, other_sizes, maps, k: int) -> NDArray[np.float64]:
    """Score every one of the `maps` (P, J) of the other domain's clusters to these."""
    weights = np.sqrt(sizes * other_sizes[maps])
    common = (weights > 0).sum(axis=1)
    weights /= weights.sum(axis=1, keepdims=True) + 1e-300
    moved = others[maps]
    own = means - (weights @ means)[:, None]
    moved = moved - np.einsum("pj,pjm->pm", weights, moved)[:, None]
    root = np.sqrt(weights)[:, :, None]
    own, moved = own * root, moved * root
    singular = np.linalg.svd(np.einsum("pjm,pjl->pml", own, moved), compute_uv=False)
    norm = np.square(own).sum(axis=(1, 2)) * np.square(moved).sum(axis=(1, 2))
    rho = singular[:, :k].sum(axis=1) / np.sqrt(np.maximum(norm, 1e-300))
    dimensions = np.clip(common - 1, 0, k)
    return -0.5 * common * dimensions * np.log1p(-(np.minimum(rho, _MOST_CORRELATED) ** 2))


def common_shape(
    means: Sequence[NDArray[np.float64]], sizes: Sequence[NDArray[np.float64]], n_factors: int
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Find latent vectors that fit the means of matched clusters, and each domain's projection.

    Clusters of size 0 are lacking. Every cluster is in some domain.

    Return `latent` (J, K): with variances of about 1; `projections` (each M_d, K):
    semi-orthogonal up to a scale.
    """
    n = len(means[0])
    latent, seen = np.zeros((n, n_factors)), np.zeros(n)
    turned: list[NDArray[np.float64]] = []
    for m, s in zip(means, sizes, strict=True):
        there = s > 0
        centred = (m - np.average(m, axis=0, weights=s)) * there[:, None]
        _, _, v = np.linalg.svd(centred * np.sqrt(s)[:, None], full_matrices=False)
        axes = np.zeros((m.shape[1], n_factors))
        axes[:, : min(len(v), n_factors)] = v[:n_factors].T
        placed = centred @ axes
        placed /= np.sqrt(np.mean(placed[there] ** 2) * n_factors) + 1e-300
        if turned:
            placed = placed @ polar_factor(placed.T @ latent)
        turned.append(centred)
        latent, seen = latent + placed, seen + there
    latent = latent / np.maximum(seen, 1.0)[:, None]
    latent = latent / (np.sqrt(np.mean(np.square(latent).sum(axis=1)) / n_factors) + 1e-300)
    projections = []
    for centred, s in zip(turned, sizes, strict=True):
        u, d, v = np.linalg.svd((centred * s[:, None]).T @ latent, full_matrices=False)
        scale = d.sum() / (np.square(latent).sum(axis=1) @ s + 1e-300)
        projections.append(scale * (u @ v))
    return latent, projections
