"""Figures of any number of panels, among them those that leave cells of the grid empty."""

import numpy as np
import pytest
import xarray as xr

from pm_match import plots
from tests.plots.made_up import panels

pytestmark = pytest.mark.parametrize("n", range(1, 9))


@pytest.fixture
def labels():
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 3, 9) for name in "abcdefgh"}


def drawn(figure):
    """Draw a figure; count its panels, and its colour bars."""
    figure.canvas.draw()
    return len(panels(figure)), len(figure.axes) - len(panels(figure))


def test_panels_of_confusion(n, labels):
    own = dict(list(labels.items())[:n])
    assert drawn(plots.plot_confusion(own, own)) == (n, 1)


def test_panels_of_pairs(n, labels):
    draws = {
        f"cluster_{name}": (("chain", "draw", name), np.tile(own, (1, 2, 1)), {"clusters": name})
        for name, own in list(labels.items())[:n]
    }
    # Each is of a set of its own, and so is drawn with itself.
    assert drawn(plots.plot_match_matrix(xr.Dataset(draws))) == (n, 1)


def test_panels_of_networks(n):
    rng = np.random.default_rng(0)
    networks = {f"n{k}": rng.random((501, 9)) < 0.1 for k in range(n)}
    labels = {name: (rng.integers(0, 3, 501), rng.integers(0, 3, 9)) for name in networks}
    assert drawn(plots.plot_networks(labels, networks)) == (n, 1)
