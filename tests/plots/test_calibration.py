import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from scipy.stats import binom

from pm_match import plots


def test_points_are_the_bins_means():
    p = np.array([[0.05, 0.1, 0.15], [0.85, 1.0, 0.0]])
    y = np.array([[False, True, False], [True, True, False]])
    axis, below = plots.plot_calibration(p, y, n_bins=5).axes
    mean, rate = axis.lines[-1].get_data()
    np.testing.assert_allclose(mean, [0.3 / 4, 1.85 / 2])
    np.testing.assert_allclose(rate, [1 / 4, 1])
    assert [bar.get_height() for bar in below.patches] == [4, 0, 0, 0, 2]


def test_bars_are_binomial():
    p = np.full(50, 0.3)
    axis = plots.plot_calibration(p, np.arange(50) < 15, level=0.8).axes[0]
    ((low, high),) = [segment[:, 1] for segment in axis.collections[0].get_segments()]
    np.testing.assert_allclose((low, high), np.array(binom(50, 0.3).interval(0.8)) / 50)


def test_calibrated_probabilities_fall_within_their_bars():
    """Of 20 bins of calibrated probabilities, nearly 90 % lie within; of wrong ones, few."""
    rng = np.random.default_rng(0)
    inside = {}
    for name, power in (("calibrated", 1.0), ("overconfident", 0.6)):
        hits = []
        for _ in range(20):
            p = rng.random(4000)
            axis = plots.plot_calibration(p, rng.random(4000) < p**power, n_bins=20).axes[0]
            band = np.array([segment[:, 1] for segment in axis.collections[0].get_segments()])
            rate = axis.lines[-1].get_ydata()
            hits.append(np.mean((band[:, 0] <= rate) & (rate <= band[:, 1])))
            plt.close(axis.figure)
        inside[name] = np.mean(hits)
    # 400 bins: the standard error is .015; discrete bars hold a little more than 90 %.
    assert 0.87 < inside["calibrated"] < 0.97
    assert inside["overconfident"] < 0.5


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_no_order_matters_and_all_stays_within_0_and_1(events, n_bins, random):
    shuffled = random.sample(events, len(events))
    drawn = []
    for some in (events, shuffled):
        axis = plots.plot_calibration(*zip(*some, strict=True), n_bins=n_bins).axes[0]
        drawn.append(np.array(axis.lines[-1].get_data()))
        band = np.array([segment[:, 1] for segment in axis.collections[0].get_segments()])
        assert (band >= 0).all()
        assert (band <= 1).all()
        plt.close(axis.figure)
    np.testing.assert_allclose(*drawn)
    assert (drawn[0] >= 0).all()
    assert (drawn[0] <= 1 + 1e-12).all()


def test_it_draws_into_given_axes():
    figure, axis = plt.subplots()
    assert plots.plot_calibration([0.2], [1], ax=axis, color="red") is figure
    assert len(figure.axes) == 1
    assert axis.lines[-1].get_color() == "red"


@pytest.mark.parametrize(
    ("p", "y", "options", "message"),
    [
        ([0.1, 0.2], [1], {}, r"one for each probability, shape \(2,\); found shape \(1,\)"),
        ([0.1, 1.2], [1, 0], {}, "probabilities: expected numbers from 0 to 1; found 1.2"),
        ([np.nan], [1], {}, "probabilities: .* found nan"),
        ([], [], {}, "probabilities: .* found none"),
        ([0.1], [2], {}, "outcomes: expected True or False"),
        ([0.1], ["1"], {}, "outcomes: expected True or False"),
        ([0.1], [1], {"n_bins": 0}, "n_bins: expected a whole number of at least 1; found 0"),
        ([0.1], [1], {"level": 1}, "level: expected a probability between 0 and 1; found 1"),
    ],
)
def test_bad_input(p, y, options, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_calibration(p, y, **options)
