"""New objects of a domain, checked: what is seen of them, in the order of the model's objects."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import no_such
from pm_match.matching.draws import PREFIX, full_name
from pm_match.prediction.predictive import Predictive
from pm_match.prediction.predictor import NewObjects, Place, Seen
from pm_match.reading.parts import Structure, UnservedModelError


def find_place(structure: Structure, domain: str) -> Place:
    """Find the assignment of a domain.

    Raise `KeyError` if there is none; the message lists the domains. Raise `UnservedModelError` if
    its labels are joint.
    """
    found = {name: place for place in places(structure) for name in place.assignment.held}
    try:
        place = found[full_name(found, domain)]
    except KeyError:
        known = [name.removeprefix(PREFIX) for name in found]
        raise KeyError(no_such(f"domain {domain!r} in the model", known, domain)) from None
    place.assignment.must_be_alone()
    return place


def places(structure: Structure) -> Iterator[Place]:
    """Return the places of all assignments."""
    for component in structure.components:
        for number, clustering in enumerate(component.clusterings):
            for place, assignment in enumerate(clustering.assignments):
                yield Place(component, number, assignment, place)


def read_new_objects(model: Model, predictive: Predictive, place: Place, given: Any) -> NewObjects:
    """Check what is given of the new objects of a domain.

    `given`: a table or a network; by the names of the observed variables, if there are several over
    the domain's objects: those that are left out are not seen. Raise `KeyError` if there is no such
    variable, `TypeError` or `ValueError` if what is given does not fit the model, and
    `UnservedModelError` if some evidence for the domain's clusters is of a kind that predicts
    nothing.
    """
    where = f"new objects of domain {place.domain!r}"
    sources: dict[str, int] = {}
    for number, (evidence, predictor) in enumerate(
        zip(place.component.evidence, predictive.predictors, strict=True)
    ):
        if predictor is not None:
            sources |= dict.fromkeys(predictor.observed(place), number)
        elif place.clustering in evidence.clusterings:
            parts = ", ".join(map(repr, evidence.names or evidence.relabelled))
            raise UnservedModelError(
                f"{where}: its clusters have parameters {parts} of their own, and predictions of "
                f"those are not served: {evidence.kind!r} is a kind of evidence without a "
                "predictor."
            )
    names = list(sources)
    if not names:
        raise UnservedModelError(f"{where}: nothing is observed of its objects as such.")
    if not isinstance(given, Mapping):
        if len(names) > 1:
            raise ValueError(
                f"{where}: expected a mapping from some of {names}, which are observed of its "
                "objects, to tables; found one table"
            )
        given = {names[0]: given}
    strangers = [name for name in given if name not in names]
    if strangers or not given:
        raise KeyError(
            f"{where}: expected some of {names}, which are observed of its objects; found "
            f"{strangers[0] if strangers else 'nothing'!r}"
        )
    seen: dict[int, Seen] = {}
    labels: list[tuple[str, NDArray]] = []
    for number, predictor in enumerate(predictive.predictors):
        own = {name: given[name] for name in names if sources[name] == number and name in given}
        if own and predictor is not None:
            seen[number], found = predictor.read(model, place, own)
            labels += found
    first, objects = labels[0]
    for name, other in labels[1:]:
        if len(other) != len(objects):
            raise ValueError(
                f"{where}: expected as many in {name!r} as in {first!r}, {len(objects)}; found "
                f"{len(other)}"
            )
    named = [own for _, own in labels if not np.array_equal(own, np.arange(len(own)))]
    return NewObjects(place, named[0] if named else objects, seen)
