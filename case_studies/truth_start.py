"""Searches that begin at the true clusters, to tell a failed search from a wrong model.

What is found from anywhere should not have a lower log joint than what is found from the truth. If
it has a higher one and matches worse, the model is to blame, and no search can help.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

import pm_match as pmm
from pm_match.features.parts import Features
from pm_match.features.search import plain as features
from pm_match.features.search import tables
from pm_match.features.search.match_shapes import common_shape
from pm_match.features.search.mixture_path import cluster_means
from pm_match.networks import search as networks
from pm_match.networks.parts import Relation
from pm_match.reading.parts import Clustering
from pm_match.search.chain import Chain
from pm_match.search.coarse import polish


def truth_start(
    model: pm.Model, truth: Mapping[str, ArrayLike], random_seed: int
) -> tuple[dict[str, np.ndarray], float]:
    """Search from the truth as `pm_match.find_matching` does, without what finds its start.

    Parameters
    ----------
    model : pymc.Model
        Whose variables form one component.
    truth : mapping of str to array_like
        From assignments' names to true labels of any kind; -1 for irrelevant objects.
    random_seed : int

    Returns
    -------
    labels : dict of str to ndarray
        Of every assignment, -1 for irrelevant objects.
    log_joint : float
        What `pm_match.find_matching` compares its starts by.

    Raises
    ------
    ValueError
        If the model has several components.
    """
    with threadpool_limits(1, user_api="blas"):
        rng = np.random.default_rng(random_seed)
        chain = Chain(model, pmm.steps(model), model.initial_point(0), rng)
        if len(chain.components) != 1:
            raise ValueError(f"model: expected one component, found {len(chain.components)}.")
        (component,) = chain.components
        labels = [_codes(clustering, truth) for clustering in component.clusterings]
        if component.of(Relation):
            chain.place(0, labels)
            chain.run(40, n_sweeps=5)
            networks.coarse_climb(chain, 0)
            polish(chain, 0)
        elif all(own.only_projections for own in component.of(Features)):
            chain.place(0, labels)
            features.search(chain, 0, chain.rng, begun=True)
        else:
            if not component.of(Features):
                raise ValueError("expected networks or feature vectors; found other evidence")
            for own in component.of(Features):
                _search_tables(chain, own, labels)
        found = {
            assignment.name: own
            for clustering, label in zip(component.clusterings, chain.labels(0), strict=True)
            for assignment, own in zip(
                clustering.assignments, np.split(label, clustering.ends), strict=True
            )
        }
        return found, chain.log_joint()


def _search_tables(chain: Chain, features: Features, labels: list[NDArray[np.int64]]) -> None:
    """Search tables from given labels, as `tables.search` does from what it proposes."""
    clustering = chain.components[0].clusterings[features.clustering]
    own, where = labels[features.clustering], clustering.slices
    n = int(own.max()) + 1
    found = [
        cluster_means(tables.completed(d.data), own[where[d.assignment]], n)
        for d in features.domains
    ]
    means, sizes = zip(*found, strict=True)
    _, projections = common_shape(means, sizes, features.n_factors)
    proposal = tables.Proposal([np.array(label) for label in labels], projections)
    tables.leave_at_best(chain, 0, features, [proposal])


def _codes(clustering: Clustering, truth: Mapping[str, ArrayLike]) -> NDArray[np.int64]:
    """Give numbers to the labels of a clustering's objects (N,), largest first."""
    names = [assignment.name for assignment in clustering.assignments]
    values = np.concatenate([np.asarray(truth[name]) for name in names])
    relevant = values >= 0
    _, codes, sizes = np.unique(values[relevant], return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    labels = np.full(len(values), -1)
    labels[relevant] = rank[codes.reshape(-1)]
    return labels
