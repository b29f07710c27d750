"""Which search a component gets, and one search of a whole model."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model
from pymc.step_methods.compound import BlockedStep

from pm_match.features.search import plain as plain_features
from pm_match.features.search import tables
from pm_match.networks import search as networks
from pm_match.normal import search as normals
from pm_match.reading.parts import Component
from pm_match.search.chain import Chain
from pm_match.search.coarse import coarse_climb, shake

# A search of a component of a chain: it leaves the chain's point at a mode.
Recipe = Callable[[Chain, int, np.random.Generator], object]

_ITERATIONS = 100
_ROUNDS = 4
_SHAKES = 10


def searched(
    model: Model,
    steps: Sequence[BlockedStep],
    point: Mapping[str, NDArray],
    rng: np.random.Generator,
) -> Chain:
    """Search every component of a model once; return the chain at the modes that were found."""
    chain = Chain(model, steps, point, rng)
    for number, component in enumerate(chain.components):
        recipe(component)(chain, number, chain.rng)
    return chain


def recipe(component: Component) -> Recipe:
    """Choose the search for what is observed of a component's objects."""
    features = any(own is not None for own in component.features)
    clusters = [one for own in component.normals for one in own]
    if not all(one.observed for one in clusters):
        return nothing
    if component.relations or (features and clusters):
        return several_kinds if features or clusters else networks.search
    if clusters:
        return normals.search
    if any(own is not None and not own.plain for own in component.features):
        return tables.search
    return plain_features.search


def nothing(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Search for nothing: what is to be clustered is not observed, and its value only a start."""


def several_kinds(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Search for a matching by evidence of several kinds: sweeps, and moves of whole clusters."""
    for _ in range(_ROUNDS):
        chain.run(_ITERATIONS // _ROUNDS, number)
        coarse_climb(chain, number)
    shake(chain, number, rng, _SHAKES)
    chain.run(_ITERATIONS // _ROUNDS, number, fit=True)
    coarse_climb(chain, number)
    chain.settle(number)
