import pytest

from pm_match.reading import kinds


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
