"""The dims of objects in what predictions return."""

from collections.abc import Hashable
from typing import Any

from pm_match.matching.draws import coords_along
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictor import NewObjects, Place


def object_axis(
    points: RecordedPoints, objects: Place | NewObjects
) -> tuple[Hashable, dict[Any, Any]]:
    """Return the dim of a domain's own objects, or of new ones, and its coordinates."""
    place = objects.place if isinstance(objects, NewObjects) else objects
    variable = points.posterior[place.assignment.name]
    dim = points.object_dim(place.assignment.name)
    if isinstance(objects, NewObjects):
        return f"{dim}_new", {f"{dim}_new": objects.labels}
    return dim, coords_along(variable, dim)
