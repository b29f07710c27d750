import gc
import weakref

import pytest

from pm_match.numerics.garbage import uncollected


@pytest.fixture
def thawed():
    """Nothing frozen, as users have it; the suite freezes what it has imported."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


def _old(thing):
    return any(own is thing for own in gc.get_objects(generation=2))


def test_nothing_is_collected_meanwhile():
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_lasts_is_old_at_once(thawed):
    with uncollected(lasting=True):
        lasting = [[]]
    assert _old(lasting)
    with uncollected():
        passing = [[]]
    assert not _old(passing)
    assert gc.get_freeze_count() == 0


def test_what_lasts_is_collected_once_it_is_garbage(thawed):
    class Told:
        pass

    gone = []
    with uncollected(lasting=True):
        one = Told()
        one.itself = one
        weakref.finalize(one, gone.append, True)
    del one
    gc.collect()
    assert gone == [True]


def test_what_others_have_frozen_stays_frozen(thawed):
    gc.freeze()
    frozen = gc.get_freeze_count()
    with uncollected(lasting=True):
        lasting = [[]]
    # A few go meanwhile, as their last reference does.
    assert gc.get_freeze_count() > 0.9 * frozen
    assert not _old(lasting)
