import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pm_match as pmm
from pm_match import plots
from pm_match.plots.margin import active_plane
from pm_match.views.hinge import fourier_values


def observed(labels, n_scores=None):
    """What a declared model's observed data hold for labels."""
    with pm.Model() as model:
        pmm.Hinge("label", np.zeros((30, n_scores) if n_scores else 30), observed=labels)
    codes = model.rvs_to_values[model["label"]].data
    return xr.Dataset({"label": ("object", codes)})


@pytest.fixture
def idata():
    rng = np.random.default_rng(0)
    # The score depends on the last two of four factors.
    omega = np.pad(rng.normal(size=(1, 2, 10, 2)), ((0, 0), (0, 0), (0, 0), (2, 0)))
    posterior = xr.Dataset(
        {
            "latent": (("chain", "draw", "object", "factor"), rng.normal(size=(1, 2, 30, 4))),
            "frequencies": (("chain", "draw", "frequency", "factor"), omega),
            "coefficients": (("chain", "draw", "fourier"), rng.normal(size=(1, 2, 21))),
        },
        coords={"chain": [0], "draw": [0, 1]},
    )
    label = np.where(rng.random(30) < 0.5, -1.0, 1.0)
    label[:3] = np.nan
    return xr.DataTree.from_dict({"posterior": posterior, "observed_data": observed(label)})


def test_plane_is_where_the_score_changes(idata):
    point = idata["posterior"].to_dataset().isel(chain=0, draw=1)
    latent, omega, beta = (
        point[name].to_numpy() for name in ("latent", "frequencies", "coefficients")
    )
    plane = active_plane(latent, omega, beta)
    np.testing.assert_allclose(plane.T @ plane, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(plane[:2], 0, atol=1e-12)
    slope = np.empty_like(latent)
    for factor in range(4):
        step = 1e-5 * np.eye(4)[factor]
        up, down = (fourier_values(latent + s * step, omega) @ beta for s in (1, -1))
        slope[:, factor] = (up - down) / 2e-5
    first = np.linalg.eigh(slope.T @ slope)[1][:, -1]
    assert abs(first @ plane[:, 0]) == pytest.approx(1.0, abs=1e-6)


def test_objects_are_marked_by_label_and_coloured_by_score(idata):
    figure = plots.plot_margin(idata)
    axis = figure.axes[0]
    assert axis.get_label() == "margin"
    marks = {own.get_label(): own for own in axis.collections if own.get_label()[0] != "_"}
    y = idata["observed_data"]["label"].to_numpy()
    assert {name: len(own.get_offsets()) for name, own in marks.items()} == {
        "-1": int((y < 0).sum()),
        "+1": int((y > 0).sum()),
        "not labelled": 3,
    }
    point = idata["posterior"].to_dataset().isel(chain=0, draw=1)
    score = fourier_values(point["latent"].to_numpy(), point["frequencies"].to_numpy())
    score = score @ point["coefficients"].to_numpy()
    np.testing.assert_allclose(marks["+1"].get_array(), score[y > 0])
    inside = score[y > 0] < 1
    black = (marks["+1"].get_edgecolors()[:, :3] == 0).all(axis=1)
    np.testing.assert_array_equal(black, inside)
    # The hinge pulls nothing that has no label.
    assert (marks["not labelled"].get_edgecolors()[:, :3] > 0).all()


def test_the_legend_covers_no_object(idata):
    figure = plots.plot_margin(idata)
    figure.canvas.draw()
    axis = figure.axes[0]
    assert axis.get_legend().get_window_extent().y0 >= axis.get_window_extent().y1 - 1
    assert "latent direction" in axis.get_xlabel()
    assert "direction" in axis.get_ylabel()


def test_one_of_several_classes(idata):
    tree = idata.copy()
    posterior = tree["posterior"].to_dataset()
    both = xr.concat([posterior["coefficients"], -posterior["coefficients"]], "class")
    both = both.transpose("chain", "draw", "fourier", "class").assign_coords({"class": ["u", "v"]})
    tree["posterior"] = xr.DataTree(posterior.assign(coefficients=both))
    labels = np.arange(30) % 2.0
    labels[:4] = np.nan
    tree["observed_data"] = xr.DataTree(observed(labels, 2))
    first, second = (plots.plot_margin(tree, one_class=name) for name in "uv")
    score = [
        np.concatenate([c.get_array() for c in f.axes[0].collections if c.get_label() == "+1"])
        for f in (first, second)
    ]
    assert len(score[0]) == len(score[1]) == 13
    (unlabelled,) = (c for c in first.axes[0].collections if c.get_label() == "not labelled")
    assert len(unlabelled.get_offsets()) == 4
    with pytest.raises(KeyError, match="expected one of"):
        plots.plot_margin(tree, one_class="w")


def test_bad_input(idata):
    with pytest.raises(ValueError, match="found several along"):
        plots.plot_margin(idata, sel={"chain": 0})
    with pytest.raises(KeyError, match="no observed labels 'y'"):
        plots.plot_margin(idata, label="y")
    with pytest.raises(TypeError, match="DataTree"):
        plots.plot_margin(idata["posterior"].to_dataset())
    short = xr.DataTree.from_dict(
        {
            "posterior": idata["posterior"].to_dataset().isel(factor=[3]),
            "observed_data": idata["observed_data"].to_dataset(),
        }
    )
    with pytest.raises(ValueError, match="two factors or more"):
        plots.plot_margin(short)
