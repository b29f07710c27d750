"""Which search a component gets, and one search of a whole model."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model
from pymc.step_methods.compound import BlockedStep

from pm_match.clusters.collapsed import Collapsed
from pm_match.numerics.ahead import compile_ahead
from pm_match.reading import read
from pm_match.reading.kinds import kind_of
from pm_match.reading.parts import Component
from pm_match.search.chain import Chain
from pm_match.search.coarse import climbs, coarse_climb, compiled_ahead, needed, polish, shake

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


def ahead(model: Model) -> None:
    """Have another process compile what searches of a model call, while this one goes on."""
    for component in read(model).components:
        compile_ahead(needed(recipe(component), Collapsed.of(model, component)))


def recipe(component: Component) -> Recipe:
    """Choose the search for what is observed of a component's objects."""
    if not all(evidence.searchable for evidence in component.evidence):
        return nothing
    own = {evidence.kind: kind_of(evidence) for evidence in component.evidence}
    named = any(clustering.named for clustering in component.clusterings)
    for kind in own.values():
        if named and not (kind.searches_all or kind.searches_known):
            continue  # others name clusters as they like
        found = kind.search(component) if len(own) == 1 or kind.searches_all else None
        if found is not None:
            return found
    return any_kinds


def nothing(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Search for nothing: what is to be clustered is not observed, and its value only a start."""


@compiled_ahead(climbs)
def any_kinds(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Search for a matching by evidence of any kinds: sweeps, and moves of whole clusters."""
    for _ in range(_ROUNDS):
        chain.run(_ITERATIONS // _ROUNDS, number)
        coarse_climb(chain, number)
    shake(chain, number, rng, _SHAKES)
    chain.run(_ITERATIONS // _ROUNDS, number, fit=True)
    polish(chain, number)
