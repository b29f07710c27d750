"""What is said of what takes time: after a while, and not where silence is asked for."""

import io
import logging
import os
import time

import pytest
import rich
import rich.progress

from pm_match import progress as module
from pm_match.progress import SearchProgress, drawn_over, said, say, saying, silent


@pytest.fixture
def lines(caplog):
    """Give the messages, as lines."""
    # PyMC's logger hands nothing on.
    logger = logging.getLogger("pymc")
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger="pymc"):
        # Each may come twice.
        yield lambda: [own.getMessage() for own in {id(r): r for r in caplog.records}.values()]
    logger.removeHandler(caplog.handler)


@pytest.fixture
def terminal(monkeypatch):
    """Let a terminal be written to."""
    written = io.StringIO()
    console = rich.console.Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr(rich, "_console", console)
    return written


def test_only_what_takes_long_is_said(lines):
    with saying("Reading", after=5.0):
        pass
    assert lines() == []
    with saying("Reading", after=0.01):
        time.sleep(0.3)
    assert set(lines()) == {"Reading ..."}


def test_silence_holds_until_it_ends(lines):
    with silent(True):
        say("Compiling")
        with silent(False), saying("Reading", after=0.0):
            time.sleep(0.1)
    assert lines() == []
    say("Compiling")
    assert set(lines()) == {"Compiling ..."}


def test_a_search_is_said_in_a_line_where_nothing_can_be_drawn_over(lines, capfd):
    with SearchProgress(2, True, after=0.05) as progress:
        time.sleep(0.4)
        progress.advance(-3.0)
    with SearchProgress(2, True, after=5.0), SearchProgress(2, False):
        pass
    assert set(lines()) == {"Searching ..."}
    assert capfd.readouterr().out == ""


def test_a_search_has_a_bar_in_a_terminal_before_its_first_is_done(lines, terminal):
    with SearchProgress(3, True, after=0.05) as progress:
        time.sleep(0.4)
        assert "0/3" in terminal.getvalue()
        progress.advance(-3.25)
    assert "1/3" in terminal.getvalue()
    assert "best log joint -3.2" in terminal.getvalue()
    assert lines() == []


def test_all_that_goes_on_is_in_one_display(lines, terminal, monkeypatch):
    made = []
    monkeypatch.setattr(
        module, "Progress", lambda *c: made.append(rich.progress.Progress(*c)) or made[-1]
    )
    with SearchProgress(2, True) as progress, said():
        say("Compiling")
        say("Compiling")
        progress.advance()
    assert [task.description for task in made[0].tasks] == ["Searching", "Compiling"]
    # What has no number of parts is done when it ends; the rest stays as it is.
    assert [task.completed / task.total for task in made[0].tasks] == [0.5, 1.0]
    assert all(task.finished or task.stop_time is not None for task in made[0].tasks)
    with saying("Reading", after=0.01):
        time.sleep(0.3)
        assert not made[1].finished
    assert len(made) == 2
    assert made[1].finished
    assert not any(own.live.is_started for own in made)
    assert lines() == []


def test_rows_of_what_fails_do_not_look_done(terminal, monkeypatch):
    made = []
    monkeypatch.setattr(
        module, "Progress", lambda *c: made.append(rich.progress.Progress(*c)) or made[-1]
    )

    def failing():
        with SearchProgress(2, True) as progress, said():
            progress.advance()
            say("Compiling")
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert [task.completed / task.total for task in made[0].tasks] == [0.5, 0.0]
    assert [task.fields["said"] for task in made[0].tasks] == ["stopped", "stopped"]
    assert not made[0].live.is_started


def test_what_is_said_once_is_a_line_elsewhere(lines):
    with said():
        say("Compiling")
        say("Compiling")
    assert lines() == ["Compiling ..."]


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked")
def test_processes_that_are_forked_draw_nothing(terminal):
    with SearchProgress(2, True):
        before = terminal.getvalue()
        child = os.fork()
        if not child:
            try:
                with said():
                    say("Compiling")
                os._exit("Compiling" in terminal.getvalue()[len(before) :])
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("installed", [True, False])
def test_bars_in_notebooks_need_ipywidgets(monkeypatch, installed):
    monkeypatch.setattr(rich, "_console", rich.console.Console(force_jupyter=True))
    monkeypatch.setattr("pm_match.progress.find_spec", lambda name: installed or None)
    assert drawn_over() == installed
