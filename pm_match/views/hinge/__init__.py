"""Max-margin labels: the hinge as a distribution, and random Fourier features to score with."""

from pm_match.views.hinge.distribution import Hinge, HingeParts, read_hinge
from pm_match.views.hinge.fourier import (
    fill_waves,
    fourier_features,
    fourier_values,
    turn_coefficients,
)

__all__ = [
    "Hinge",
    "HingeParts",
    "fill_waves",
    "fourier_features",
    "fourier_values",
    "read_hinge",
    "turn_coefficients",
]
