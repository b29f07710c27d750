"""What is said of what takes time: after a while, and not where silence is asked for."""

import logging
import time

import pytest

from pm_match.progress import say, saying, silent


@pytest.fixture
def said(caplog):
    """Give the messages, as lines."""
    # PyMC's logger hands nothing on.
    logger = logging.getLogger("pymc")
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger="pymc"):
        yield lambda: [record.getMessage() for record in caplog.records]
    logger.removeHandler(caplog.handler)


def test_only_what_takes_long_is_said(said):
    with saying("Reading", after=5.0):
        pass
    assert said() == []
    with saying("Reading", after=0.01):
        time.sleep(0.3)
    assert set(said()) == {"Reading ..."}


def test_silence_holds_until_it_ends(said):
    with silent(True):
        say("Compiling")
        with silent(False), saying("Reading", after=0.0):
            time.sleep(0.1)
    assert said() == []
    say("Compiling")
    assert set(said()) == {"Compiling ..."}
