import builtins

import numpy as np
import pytest
import xarray as xr

from pm_match import plots


def test_trace_has_a_line_a_chain(idata):
    figure = plots.plot_trace(idata)
    figure.canvas.draw()
    log_joint, occupied = figure.axes
    assert len(log_joint.lines) == len(occupied.lines) == 2
    np.testing.assert_array_equal(
        log_joint.lines[1].get_ydata(), idata["sample_stats"]["log_joint"][1]
    )
    with pytest.raises(KeyError, match=r"no statistic 'energy'; there are \['log_joint', 'n_occ"):
        plots.plot_trace(idata, var_names=["energy"])
    with pytest.raises(KeyError, match="no group 'stats'"):
        plots.plot_trace(idata, group="stats")


def test_trace_takes_a_name_and_refuses_others(idata):
    figure = plots.plot_trace(idata, var_names="log_joint")
    assert [axis.get_ylabel() for axis in figure.axes] == ["collapsed log joint"]
    with pytest.raises(ValueError, match="var_names: expected at least one"):
        plots.plot_trace(idata, var_names=[])
    with pytest.raises(TypeError, match="expected a DataTree"):
        plots.plot_trace(idata["posterior"].to_dataset())


def test_without_matplotlib(monkeypatch, idata):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "pm_match\[examples\]"'):
        plots.plot_trace(idata)


def test_chains_that_repeat_numbers_are_told_apart(idata):
    stats = idata["sample_stats"].to_dataset()
    both = xr.concat([stats, stats + 5], "chain")
    joined = xr.DataTree.from_dict({"sample_stats": both})
    axis = plots.plot_trace(joined, var_names="log_joint").axes[0]
    assert [line.get_label() for line in axis.lines] == list("0123")
    for line, draws in zip(axis.lines, both["log_joint"], strict=True):
        np.testing.assert_array_equal(line.get_ydata(), draws)
    axis = plots.plot_log_joint(joined).axes[0]
    np.testing.assert_array_equal(axis.collections[-1].get_offsets()[:, 0], range(4))
    assert axis.get_xlim() == (-0.5, 3.5)
    some = idata.isel(chain=[1])
    assert plots.plot_trace(some).axes[0].lines[0].get_label() == "1"


def test_dims_may_be_in_any_order(idata):
    stats = idata["sample_stats"].to_dataset()
    parts = stats.expand_dims(part=2, axis=2)
    found = plots.plot_trace(xr.DataTree.from_dict({"sample_stats": parts.transpose()}))
    np.testing.assert_array_equal(found.axes[0].lines[2].get_ydata(), stats["log_joint"][1])
