"""Likelihoods of any kind are served where their kind is registered."""

import pytest

from pm_match.columns.kind import IndependentColumns
from pm_match.declared.kind import AnyLikelihood
from pm_match.reading import kinds


@pytest.fixture(autouse=True, scope="package")
def registered():
    """Register the kind for the tests of this folder alone."""
    before = list(kinds._KINDS)
    # Independent columns are asked first, and integrate the parameters of some models out.
    kinds._KINDS[:] = [own for own in before if own.name != IndependentColumns.name]
    kinds.register_kind(AnyLikelihood())
    yield
    kinds._KINDS[:] = before
