import numpy as np
import pytest
import xarray as xr

from pm_match import plots
from tests.plots import made_up
from tests.plots.made_up import panels


@pytest.fixture
def sampled():
    return made_up.result(4)


def test_chains_from_the_best_mean_down(sampled):
    (axis,) = panels(plots.plot_log_joint(sampled))
    draws = sampled["sample_stats"]["log_joint"].to_numpy()
    relative = draws - draws.mean(axis=1).max()
    marks = axis.collections[-1].get_offsets()
    np.testing.assert_allclose(marks[:, 1], np.median(relative, axis=1))
    everything, middle = axis.collections[:2]
    for lines, levels in ((everything, (0, 1)), (middle, (0.05, 0.95))):
        found = [segment[:, 1] for segment in lines.get_segments()]
        np.testing.assert_allclose(found, np.quantile(relative, levels, axis=1).T)
    assert axis.get_label() == "chains"
    assert axis.get_title().startswith("2 chains; best mean: ")
    assert axis.get_yscale() == "linear"


def test_starts_are_shaded_by_agreement(sampled):
    starts = made_up.starts(5)
    one_draw = sampled["sample_stats"].to_dataset()[{"chain": [0], "draw": [0]}]
    tree = xr.DataTree.from_dict({"starts": starts, "sample_stats": one_draw})
    (axis,) = panels(plots.plot_log_joint(tree))
    marks = axis.collections[0]
    joint = starts["log_joint"].to_numpy()
    np.testing.assert_allclose(marks.get_offsets()[:, 1], joint - joint.max())
    np.testing.assert_allclose(marks.get_array(), starts["agreement"][joint.argmax()])
    assert axis.get_title().startswith("5 starts; best: ")


def test_both_and_a_wide_range(sampled):
    sampled["starts"] = xr.DataTree(made_up.starts(30, spread=1000))
    starts, chains = panels(plots.plot_log_joint(sampled))
    assert (starts.get_label(), chains.get_label()) == ("starts", "chains")
    assert (starts.get_yscale(), chains.get_yscale()) == ("symlog", "linear")


def test_several_partitions_are_summed(sampled):
    stats = sampled["sample_stats"].to_dataset()
    doubled = stats.assign(log_joint=xr.concat([stats["log_joint"]] * 2, "partition"))
    (axis,) = panels(plots.plot_log_joint(xr.DataTree.from_dict({"sample_stats": doubled})))
    draws = 2 * stats["log_joint"].to_numpy()
    expected = np.median(draws, axis=1) - draws.mean(axis=1).max()
    np.testing.assert_allclose(axis.collections[-1].get_offsets()[:, 1], expected)


def test_draws_alone_have_no_log_joint(sampled):
    with pytest.raises(TypeError, match="expected a DataTree, as sample returns it; found Dataset"):
        plots.plot_log_joint(sampled["posterior"].to_dataset())


def test_nothing_to_draw():
    with pytest.raises(KeyError, match="no group 'sample_stats'"):
        plots.plot_log_joint(xr.DataTree.from_dict({"posterior": xr.Dataset()}))
