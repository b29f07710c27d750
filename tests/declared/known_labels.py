"""Observed labels in any model that is declared with `pm.Categorical`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pymc as pm
import pytest


@contextmanager
def labels_known(known: Mapping[str, Sequence[int | None]]) -> Iterator[None]:
    """Let assignments that are declared meanwhile have observed labels, None where they are not."""
    declare = pm.Categorical

    def categorical(name, *args, **kwargs):
        labels = known.get(name)
        if labels is None:
            return declare(name, *args, **kwargs)
        kwargs.pop("shape", None)
        mask = [label is None for label in labels]
        values = np.array([0 if label is None else label for label in labels])
        observed = np.ma.masked_array(values, mask) if any(mask) else values
        return declare(name, *args, observed=observed, **kwargs)

    with mock.patch.object(pm, "Categorical", categorical):
        if any(None in labels for labels in known.values()):
            with pytest.warns(pm.exceptions.ImputationWarning):
                yield
        else:
            yield
