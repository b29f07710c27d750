import numpy as np
import pytest
import xarray as xr

from pm_match import plots
from pm_match.plots.kernel import kernel_values, projected, spectral_density


@pytest.fixture
def draws():
    omega = np.random.default_rng(0).normal(size=(2, 30, 400, 3)) * [2.0, 1.0, 0.1]
    return xr.Dataset({"frequencies": (("chain", "draw", "frequency", "factor"), omega)})


def test_kernel_of_normal_frequencies_is_gaussian():
    omega = np.random.default_rng(1).normal(0, 1.5, (2, 200_000))
    distance = np.linspace(0, 2, 9)
    expected = np.exp(-0.5 * (1.5 * distance) ** 2)
    np.testing.assert_allclose(kernel_values(omega, distance), [expected] * 2, atol=0.01)
    grid = np.linspace(-12, 12, 400)
    density = spectral_density(omega[:, :2000], grid)
    np.testing.assert_allclose(np.trapezoid(density, grid), 1, atol=1e-3)
    np.testing.assert_allclose(density[0, 200], 1 / (1.5 * np.sqrt(2 * np.pi)), rtol=0.1)


def test_axes_turn_with_the_space(draws):
    omega = draws["frequencies"].to_numpy()[0]
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))
    along = projected(omega)
    np.testing.assert_allclose(np.abs(projected(omega @ turn)), np.abs(along), atol=1e-10)
    np.testing.assert_allclose(along.std(axis=2).mean(axis=0), [2.0, 0.1], rtol=0.05)
    assert projected(omega[:, :, :1]).shape == (30, 1, 400)


def test_figure(draws):
    figure = plots.plot_kernel(draws, longest=3.0, num_draws=7)
    assert [axis.get_label() for axis in figure.axes] == ["spectral density", "kernel"]
    most, least, _ = figure.axes[1].lines
    x, y = most.get_data()
    assert x[-1] == 3.0
    np.testing.assert_allclose(y, np.exp(-0.5 * (2 * x) ** 2), atol=0.1)
    assert least.get_ydata()[-1] > 0.9


def test_bad_input(draws):
    with pytest.raises(KeyError, match="no variable 'omega'"):
        plots.plot_kernel(draws, frequencies="omega")
    with pytest.raises(ValueError, match=r"expected dims .* and 2 dims beside"):
        plots.plot_kernel(draws.isel(factor=0))
    with pytest.raises(TypeError, match=r"sample_dims: .* such as \['draw'\]; found 'draw'"):
        plots.plot_kernel(draws, sample_dims="draw")
    with pytest.raises(ValueError, match=r"above 0; found 0"):
        plots.plot_kernel(draws, num_draws=0)
