import gc
from functools import cache
from itertools import count

import pytensor
import pytest
from pymc.model.core import Model
from pytensor.compile.mode import predefined_modes

from pm_match import starts
from pm_match.numerics import ahead
from pm_match.reading import kinds
from pm_match.reading.probe import PLAIN, initial_point
from pm_match.running import runs
from tests.declared.few_draws import declared

# What tests ask of PyTensor is asked a few times: compiling takes longer than all of that. Nor does
# it note where every variable was made, or look up its rewrites anew for every graph.
predefined_modes["FAST_COMPILE"] = PLAIN
_INTERPRETED = {"mode": "FAST_COMPILE", "cxx": "", "traceback__limit": 0}
_COMPILED = {name: getattr(pytensor.config, name) for name in _INTERPRETED}
for _name, _value in _INTERPRETED.items():
    setattr(pytensor.config, _name, _value)

# No other process compiles ahead: every processor has tests to run, and each process compiles anew
# the parts that kernels share.
_FORK = ahead._fork
ahead._fork = lambda jobs: None
# Nor does one run chains or searches unless it is asked to by `cores`: it would load all anew.
_N_PROCESSORS = runs._n_processors
runs._n_processors = lambda: 1

# Graphs are many small objects.
gc.set_threshold(20_000, 20, 10)

# PyMC rewrites a graph whenever it is asked for a start; test_probe holds ours against its own.
_START_OF_PYMC = Model.initial_point


def _start(model, random_seed=None):
    own = random_seed or pytensor.config.mode != "FAST_COMPILE"
    return _START_OF_PYMC(model, random_seed) if own else initial_point(model)


Model.initial_point = _start


@pytest.fixture(autouse=True)
def as_users_have_it(request):
    """Let PyTensor compile in tests that are marked as `compiled`, as it does for users."""
    if request.node.get_closest_marker("compiled") is None:
        yield
        return
    with pytensor.config.change_flags(**_COMPILED):
        yield


@pytest.fixture
def compiled_ahead(monkeypatch):
    """Let another process compile ahead, as it does for users."""
    monkeypatch.setattr(ahead, "_fork", _FORK)


@pytest.fixture
def n_processors():
    """Give what counts the processors for users."""
    return _N_PROCESSORS


@pytest.fixture
def only_collapsed(monkeypatch):
    """Without the kinds that are asked last: for tests of what each of the others refuses."""
    monkeypatch.setattr(kinds, "_KINDS", [own for own in kinds._KINDS if not own.last])
    for reset in kinds._RESETS:
        reset()
    yield
    monkeypatch.undo()
    for reset in kinds._RESETS:
        reset()


@pytest.fixture(scope="module")
def declared_once():
    """Declare a model once for all tests of a module that leave it as it is: it is read once."""
    return cache(declared)


@pytest.fixture
def interrupted_at(monkeypatch):
    """Give what interrupts the search with a number, counted from 1; it returns the count."""

    def interrupt(number):
        searched, numbers = starts.searched, count(1)

        def stopped(*args):
            if next(numbers) == number:
                raise KeyboardInterrupt
            return searched(*args)

        monkeypatch.setattr(starts, "searched", stopped)
        return numbers

    return interrupt


def pytest_collection_finish():
    """Let no collection of garbage look again at what was imported: half a million objects."""
    gc.collect()
    gc.freeze()
