import numpy as np
import pytest
import xarray as xr

from pm_match import datasets, plots
from pm_match.matching import map_objects


def test_mapped_images():
    pytest.importorskip("sklearn")
    digits = datasets.rotated_digits(40)
    rng = np.random.default_rng(0)
    posterior = {}
    for name, table in digits.items():
        features = f"{name}_feature"
        posterior[f"projection_{name}"] = xr.DataArray(
            rng.normal(size=(1, 3, table.shape[1], 2)),
            dims=("chain", "draw", features, "factor"),
            coords={features: table[features].to_numpy()},
        )
    x = digits["quarter"][:5]
    figure = plots.plot_mapped_images(
        xr.Dataset(posterior), x, source="quarter", targets=["upright", "half"]
    )
    figure.canvas.draw()
    assert len(figure.axes) == 3 * 5
    assert [axis.get_ylabel() for axis in figure.axes[::5]] == [
        "original\n(quarter)",
        "carried to\nupright",
        "carried to\nhalf",
    ]
    np.testing.assert_array_equal(figure.axes[2].images[0].get_array(), datasets.images(x)[2])
    carried = map_objects(xr.Dataset(posterior), x, source="quarter", target="upright")
    np.testing.assert_array_equal(figure.axes[5].images[0].get_array(), datasets.images(carried)[0])
    one = plots.plot_mapped_images(xr.Dataset(posterior), x, source="quarter", targets="half")
    assert len(one.axes) == 2 * 5
