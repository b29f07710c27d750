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
from tests.declared.grammar import EDITS, choices, declared
from tests.exactness.chains import batched

# Half of the width of a grid on the scale that is sampled, and its points by the number of axes.
REACH = 8.0
ENDS = {"density": (-5.5, 5.5), "mean": (-4.0, 4.0), "precision": (-1.3, 1.5)}
POINTS = {1: 201, 2: 81, 3: 31, 4: 21, 5: 13}
# Of networks, and of vectors with a covariance, where a point takes longer.
SLOWER = {1: 61, 2: 31, 3: 11, 4: 9, 5: 6}
POINTS_OF = {"network": SLOWER, "normal": SLOWER}
# Not only once: where the law is not met, the grid may be too coarse.
FINE = (1.0, 1.6)
# What is counted and missing is summed up to this.
MOST = 25
FEW, MANY = 60, 500
# Of later numbers, those that could not be read: an observed hyperparameter of normal clusters.
FAILED = (2777,)


def grids_of(model, point, integrated, points, fine):
    """Return a grid (G, ...) of the values of every variable that is integrated out."""
    keys = [model.rvs_to_values[model[name]].name for name in integrated]
    if not keys:
        return {}
    sizes = [np.size(point[key]) for key in keys]
    n = round(fine * points[sum(sizes)])
    axes = []
    for name, key, size in zip(integrated, keys, sizes, strict=True):
        whole = np.asarray(point[key]).dtype.kind != "f"
        ends = ENDS.get(name, (-REACH, REACH))
        axes += [np.arange(MOST) if whole else np.linspace(*ends, n)] * size
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    parts = np.split(grid, np.cumsum(sizes)[:-1], axis=1)
    return {
        key: own.reshape(len(grid), *np.shape(point[key]))
        for key, own in zip(keys, parts, strict=True)
    }


def listed(point, known, truncation):
    """List all assignments, as points; `known` has the labels that are observed, or None."""
    free = {d: [i for i, label in enumerate(own) if label is None] for d, own in known.items()}
    ends = np.cumsum([len(own) for own in free.values()])[:-1]
    for labels in product(range(truncation), repeat=sum(map(len, free.values()))):
        new = dict(point)
        for d, own in zip(free, np.split(np.array(labels, int), ends), strict=True):
            name = f"cluster_{d}" if len(own) == len(known[d]) else f"cluster_{d}_unobserved"
            new |= {name: own} if len(own) else {}
        yield new


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
            labels = state.labels(point)
            state.load(point, labels)
            found[place] += plain_log_joint(state, point, labels)
    return normalised(found)


def held(number):
    """Whether a declaration is served; and if it is, it is held against its own log density."""
    own = choices(number)
    try:
        model = declared(own)
    except ValueError as error:
        # A network's distribution looks at what it is given itself.
        if "BlockNetwork" not in str(error):
            raise
        return False
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
    integrated = [
        name
        for component in structure.components
        for name in component.collapsed
        if not name.startswith("cluster_")
    ]
    points = [*listed(point, own.known, own.truncation)]
    found = served_law(model, structure, points)
    distances = []
    for fine in FINE:
        grids = grids_of(model, point, integrated, POINTS_OF.get(own.form, POINTS), fine)
        expected = law(model, points, grids)
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
        pytest.param(n, marks=[pytest.mark.slow] if FEW <= n < MANY else [])
        for n in (*range(len(EDITS), MANY), *FAILED)
    ],
)
def test_served_as_declared_or_refused(number):
    held(number)
