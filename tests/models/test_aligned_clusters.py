import numpy as np
import pytest

import pm_match as pmm


def turned(seed=0, n=(60, 50), d=3):
    """Two domains of three clusters; the second is turned, scaled and shifted."""
    rng = np.random.default_rng(seed)
    centres = np.array([[4.0, 0, 0], [0, 2.5, 0], [-3.0, -1.5, 1.0]])[:, :d]
    labels = [rng.integers(3, size=size) for size in n]
    x, y = (centres[own] + 0.5 * rng.normal(size=(len(own), d)) for own in labels)
    q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return {"left": x, "right": 7.0 * y @ q.T + 3.0}, dict(
        zip(("left", "right"), labels, strict=True)
    )


def test_turned_domains_are_aligned_and_matched():
    tables, true = turned()
    model = pmm.models.aligned_clusters(tables, n_clusters=8, n_components=3)
    best = pmm.find_matching(model, starts=1, random_seed=0)
    labels = pmm.partition_estimate(best)
    found = {name: labels[f"cluster_{name}"].to_numpy() for name in tables}
    assert pmm.metrics.adjusted_rand_index(true, found) > 0.95


def test_everything_is_served_and_named():
    tables, _ = turned()
    model = pmm.models.aligned_clusters(tables, n_clusters=4, links={"left": [0], "right": [1]})
    names = {rv.name for rv in model.free_RVs}
    assert names == {
        "weights", "scale_matrix", "precision", "mean", "cluster_left", "cluster_right",
        "orientation_right", "scale_right", "intercept_right",
    }  # fmt: skip
    steps = pmm.steps(model)
    assert {v.name for step in steps for v in step.vars} == {v.name for v in model.value_vars}
    assert not pmm.models.aligned_clusters(tables, power=1.0).potentials


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power": 0.0}, r"power: expected a number in \(0, 1\]; found 0.0"),
        ({"n_clusters": 1}, "n_clusters"),
        ({"mean_strength": -1.0}, "mean_strength"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        pmm.models.aligned_clusters(turned()[0], **options)


def test_missing_values_are_filled_in_before_components_are_taken():
    tables, _ = turned()
    whole = pmm.models.aligned_clusters(tables)
    tables["left"][::7, 0] = np.nan
    holed = pmm.models.aligned_clusters(tables)
    one, other = (model.rvs_to_values[model["left"]].data for model in (whole, holed))
    assert one.shape == other.shape
    assert np.isfinite(other).all()
    # What is left over says where the missing values are.
    complete = np.setdiff1d(np.arange(len(one)), np.arange(0, len(one), 7))
    moved = np.linalg.norm(np.abs(one) - np.abs(other), axis=1)
    assert np.median(moved[complete]) < np.median(moved[::7])
