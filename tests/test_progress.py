"""What is said of what takes time: after a while, and not where silence is asked for."""

import io
import logging
import time

import pytest
import rich

from pm_match.progress import SearchProgress, drawn_over, say, saying, silent


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


def test_a_search_is_said_in_a_line_where_nothing_can_be_drawn_over(said, capfd):
    with SearchProgress(2, True, after=0.05) as progress:
        time.sleep(0.4)
        progress.advance(-3.0)
    with SearchProgress(2, True, after=5.0), SearchProgress(2, False):
        pass
    assert set(said()) == {"Searching ..."}
    assert capfd.readouterr().out == ""


def test_a_search_has_a_bar_in_a_terminal_before_its_first_is_done(said, monkeypatch):
    written = io.StringIO()
    terminal = rich.console.Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr(rich, "_console", terminal)
    with SearchProgress(3, True, after=0.05) as progress:
        time.sleep(0.4)
        assert "0/3" in written.getvalue()
        progress.advance(-3.25)
    assert "1/3" in written.getvalue()
    assert "best log joint -3.2" in written.getvalue()
    assert said() == []


@pytest.mark.parametrize("installed", [True, False])
def test_bars_in_notebooks_need_ipywidgets(monkeypatch, installed):
    monkeypatch.setattr(rich, "_console", rich.console.Console(force_jupyter=True))
    monkeypatch.setattr("pm_match.progress.find_spec", lambda name: installed or None)
    assert drawn_over() == installed
