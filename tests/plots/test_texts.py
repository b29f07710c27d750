"""Names with dollar signs, which Matplotlib would take for formulas."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pm_match import plots

NAMES = ["$^$", r"$\x$", "$x_1$", "5$"]


@pytest.fixture
def typeset(monkeypatch):
    """Collect what is typeset as formulas."""
    from matplotlib.mathtext import MathTextParser

    found = []
    monkeypatch.setattr(MathTextParser, "parse", lambda self, text, *_: found.append(text))
    return found


def labels():
    return xr.Dataset(
        {f"cluster_{domain}": (f"{domain}_o", [0, 0, 1, 2]) for domain in ("$^$", "$b_1$")},
        {f"{domain}_o": NAMES for domain in ("$^$", "$b_1$")},
    )


def tables():
    values = np.random.default_rng(0).normal(size=(4, 4))
    return {domain: pd.DataFrame(values, NAMES, NAMES) for domain in ("$^$", "$b_1$")}


def draws():
    return labels().expand_dims(chain=1, draw=2)


def networks():
    found = labels().rename({name: f"{name}_$t$" for name in labels()})
    return plots.plot_networks(found, tables(), title="$^$")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.plot_alluvial(labels()),
        lambda: plots.plot_clusters(labels(), tables()),
        lambda: plots.plot_matched_data(labels(), tables()),
        lambda: plots.plot_confusion(labels(), {name: NAMES for name in tables()}),
        lambda: plots.plot_match_matrix(draws()),
        lambda: plots.plot_gallery(
            labels(), tables(), image_of=lambda own: own.to_numpy().reshape(-1, 2, 2)
        ),
        networks,
    ],
    ids=["alluvial", "clusters", "matched data", "confusion", "matrix", "gallery", "networks"],
)
def test_texts_are_drawn_as_they_are(draw, typeset):
    figure = draw()
    figure.canvas.draw()
    assert not typeset
    shown = {text.get_text() for text in figure.findobj(lambda own: hasattr(own, "get_text"))}
    assert any("$b_1$" in own for own in shown)
