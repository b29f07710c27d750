"""Made-up declarations are served as what they are, or refused in words.

The reference is a list of all assignments, each with the model's own compiled log density, summed
over a grid of what is integrated out. It knows nothing of what pm_match has read.
"""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_match.clusters.collapsed import Collapsed
from pm_match.reading import read
from pm_match.testing import plain_log_joint
from tests.declared.grammar import EDITS, N, choices, declared
from tests.exactness.chains import batched

# Half of the width of a grid on the scale that is sampled, and its points by the number of axes.
REACH = 8.0
POINTS = {1: 201, 2: 81, 3: 31, 4: 21, 5: 13}
# What is counted and missing is summed up to this.
MOST = 25
FEW, MANY = 60, 500


def grids_of(model, point, integrated, fine):
    """Return a grid (G, ...) of the values of every variable that is integrated out."""
    keys = [model.rvs_to_values[model[name]].name for name in integrated]
    if not keys:
        return {}
    sizes = [np.size(point[key]) for key in keys]
    n = fine * POINTS[sum(sizes)]
    axes = []
    for key, size in zip(keys, sizes, strict=True):
        whole = np.asarray(point[key]).dtype.kind != "f"
        axes += [np.arange(MOST) if whole else np.linspace(-REACH, REACH, n)] * size
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    parts = np.split(grid, np.cumsum(sizes)[:-1], axis=1)
    return {
        key: own.reshape(len(grid), *np.shape(point[key]))
        for key, own in zip(keys, parts, strict=True)
    }


def listed(model, point, assignments, truncation):
    """List all assignments, as points."""
    for labels in product(range(truncation), repeat=sum(N)):
        own = np.split(np.array(labels), np.cumsum(N)[:-1])
        yield {**point, **dict(zip(assignments, own, strict=True))}


def law(model, points, grids):
    """Return the probability of every point, with what is on grids summed over.

    By the model's own log density.
    """
    log_density = batched(model, model.logp(), grids)
    found = [logsumexp(log_density({**point, **grids})) for point in points]
    return normalised(found)


def normalised(logs):
    return np.exp(np.array(logs) - logsumexp(logs))


def served_law(model, structure, points):
    """Return the probability of every point, by what pm_match has read."""
    found = np.zeros(len(points))
    for component in structure.components:
        state = Collapsed(model, component)
        for place, point in enumerate(points):
            found[place] += plain_log_joint(state, point, state.labels(point))
    return normalised(found)


def held(number):
    """Whether a declaration is served; and if it is, it is held against its own log density."""
    own = choices(number)
    model = declared(own)
    structure = read(model)
    if structure.refusals:
        assert all("'" in why and len(why) > 20 for why in structure.refusals.values()), structure
        return False
    rng = np.random.default_rng(number)
    point = {
        name: rng.normal(0.0, 0.6, np.shape(value))
        if np.asarray(value).dtype.kind == "f"
        else value
        for name, value in model.initial_point(0).items()
    }
    assignments = [f"cluster_{d}" for d in "ab"]
    integrated = [
        name
        for component in structure.components
        for name in component.collapsed
        if name not in assignments
    ]
    points = [*listed(model, point, assignments, own.truncation)]
    found = served_law(model, structure, points)
    distances = []
    for fine in (1, 2):
        expected = law(model, points, grids_of(model, point, integrated, fine))
        distances.append(0.5 * np.abs(found - expected).sum())
        if distances[-1] < 2e-3:
            return True
    raise AssertionError(f"{own.form} with {sorted(own.edits)}: total variation {distances}")


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_forms_are_served_as_they_are(number):
    assert held(number)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n >= FEW else [])
        for n in range(len(EDITS), MANY)
    ],
)
def test_served_as_declared_or_refused(number):
    held(number)
