"""The same seed gives the same draws, bit for bit, of every kind, wherever its chains run."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pm_match as pmm
from tests.declared.kinds import MODELS
from tests.exactness.chains import run

pytestmark = pytest.mark.filterwarnings("ignore:the draws fill the truncation")
QUICK = ("columns",)
KINDS = [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in MODELS]


def draws(kind, **kwargs):
    """Declare a model, and sample it: PyTensor may round otherwise in a gradient's second graph."""
    model = MODELS[kind]()
    given = {"chains": 2, "init": "dispersed", "progressbar": False, "quiet": True}
    return pmm.sample(6, tune=4, model=model, random_seed=3, **given, **kwargs)["posterior"]


@pytest.mark.parametrize("kind", KINDS)
def test_draws_do_not_depend_on_processes(kind):
    expected = draws(kind, cores=1)
    first, second = (expected.isel(chain=chain) for chain in range(2))
    assert not first.identical(second)
    for context in ("fork",) if kind in QUICK else ("fork", "spawn"):
        found = draws(kind, cores=2, mp_ctx=context)
        for name in expected.data_vars:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=(context, name))


@pytest.mark.parametrize("kind", KINDS)
def test_chains_of_models_of_their_own_may_run_in_threads(kind):
    """Steps of one model share a state: chains of the same model may not."""
    models = [MODELS[kind]() for _ in range(2)]
    starts = [model.initial_point(0) for model in models]
    ours = [pmm.steps(model) for model in models]

    def chain(number):
        return run(ours[number], starts[number], 60, seed=number)

    expected = [chain(number) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(chain, range(2))]
    for one, other in zip(found, expected, strict=True):
        for name in other[-1]:
            np.testing.assert_array_equal(one[-1][name], other[-1][name], err_msg=name)
