"""Joint draws of variables from their prior, at a point."""

import numpy as np
import pymc as pm

from pm_match.reading.context import Context
from pm_match.reading.label_tables import prior_draws


def drawn(n, seed=0):
    with pm.Model() as model:
        middle = pm.Normal("middle", 1.0, 2.0)
        one = pm.Normal("one", middle, 0.5)
        width = pm.Exponential("width", 2.0)
        other = pm.Normal("other", one, width)
    draw = prior_draws(Context.of(model), [one, width, other])
    rng, point = np.random.default_rng(seed), {**model.initial_point(), "middle": np.array(3.0)}
    names = "one", "width_log__", "other"
    found = [draw(rng, point) for _ in range(n)]
    return np.array([[own[name] for name in names] for own in found])


def test_variables_are_drawn_apart_from_each_other_and_anew_every_time():
    one, log_width, other = drawn(4000).T
    width, noise = np.exp(log_width), (other - one) / np.exp(log_width)
    error = 1.0 / np.sqrt(4000)
    each = np.array([(one - 3.0) / 0.5, 2.0 * width - 1.0, noise])
    np.testing.assert_allclose(each.mean(axis=1), 0.0, atol=4.0 * error)
    np.testing.assert_allclose(np.cov(each), np.eye(3), atol=8.0 * error)
    for own in each:
        assert abs(np.corrcoef(own[1:], own[:-1])[0, 1]) < 4.0 * error


def test_a_seed_gives_the_same_draws():
    np.testing.assert_array_equal(drawn(3), drawn(3))
    assert (drawn(3) != drawn(3, seed=1)).all()
