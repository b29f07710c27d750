"""Names with dollar signs, which Matplotlib would take for formulas."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.text import Text

from pm_match import plots
from pm_match.plots.canvas import drawn_names, drawn_titles
from tests.plots import made_up

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


def test_long_names_lose_their_middle_and_leave_room():
    names = [f"an object whose name goes on and on, number {k}" for k in range(4)]
    found = labels().assign_coords({"$^$_o": names, "$b_1$_o": names})
    figure = plots.plot_match_matrix(found.expand_dims(chain=1, draw=2))
    figure.canvas.draw()
    axis, bar = figure.axes
    shown = [tick.get_text() for tick in axis.get_yticklabels()]
    assert shown[0] == "an object …, number 0"
    texts = [axis.xaxis.label, axis.yaxis.label, *axis.get_xticklabels(), *axis.get_yticklabels()]
    for box in (text.get_window_extent() for text in texts):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    numbers = axis.child_axes[0].get_yticklabels()
    assert all(not bar.bbox.overlaps(tick.get_window_extent()) for tick in numbers)


def test_names_that_differ_in_the_middle_are_told_apart():
    ends = "sales_of_the_north", "in_the_year_2024"
    names = [f"{ends[0]}_{own}_{ends[1]}" for own in ("apples", "pears", "apples, red")]
    shown = drawn_names([*names, names[0], "other", f"other{ends[0]}{ends[1]}"])
    assert shown == [
        "sale…apples_in_t…2024",
        "sale…pears_in_th…2024",
        "sale…apples, red…2024",
        "sale…apples_in_t…2024",
        "other",
        "othersales…_year_2024",
    ]
    titles = drawn_titles(names)
    assert list(titles) == names
    assert titles[names[1]] == "sales…pears_in_the_…_2024"
    assert len(drawn_names(["a" * 30, "a" * 31])) == 2  # one is the beginning of the other


LONG_NAMES = [f"{k} a domain whose name {'goes on and on ' * 20}" for k in range(2)]
LONG = xr.Dataset({f"cluster_{own}": (own, np.zeros(4, int)) for own in LONG_NAMES})
TABLES = {own: np.arange(16.0).reshape(4, 4) for own in LONG_NAMES}


def latent():
    """A result of domains whose names are long."""
    of = dict(zip("ab", LONG_NAMES, strict=True))

    def renamed(dataset):
        own = {name: of.get(str(name)[-1:]) for name in dataset.data_vars}
        return dataset.rename({name: f"{name[:-1]}{long}" for name, long in own.items() if long})

    return made_up.result(12).map_over_datasets(renamed)


@pytest.mark.parametrize(
    "plot",
    [
        lambda: plots.plot_match_matrix(LONG.expand_dims(chain=1, draw=2)),
        lambda: plots.plot_alluvial(LONG),
        lambda: plots.plot_clusters(LONG, TABLES),
        lambda: plots.plot_confusion(LONG, {own: [0, 0, 1, 1] for own in LONG_NAMES}),
        lambda: plots.plot_gallery(LONG, TABLES, image_of=lambda own: own.reshape(4, 2, 2)),
        lambda: plots.plot_matched_data(LONG, TABLES),
        lambda: plots.plot_latent(latent()),
        lambda: plots.plot_networks(LONG.rename({own: f"{own}_node" for own in LONG}), TABLES),
    ],
)
def test_long_names_of_domains_lose_their_middle(plot):
    figure = plot()
    figure.canvas.draw()
    texts = [own for own in figure.findobj(Text) if "a domain w" in own.get_text()]
    assert any(own.get_text().startswith("0 a domain w…") for own in texts)
    for box in (own.get_window_extent() for own in texts):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_dates_have_hours_only_if_they_differ_in_them():
    days = pd.date_range("2020-01-01", periods=2)
    assert drawn_names(days.to_numpy()) == ["2020-01-01", "2020-01-02"]
    assert drawn_names(days + pd.Timedelta("2h"))[0] == "2020-01-01 02:00:00"
    assert drawn_names([1, "a", 2.0]) == ["1", "a", "2"]
