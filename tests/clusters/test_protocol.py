"""Terms: how kernels reach them, and what is said of one that is wrong."""

import gc
import re
from typing import NamedTuple

import numpy as np
import pytest

import pm_match as pmm
from pm_match.clusters import protocol
from pm_match.clusters.protocol import collect, collected, implemented, implements
from pm_match.clusters.sweep import log_joint, new_partition, place, reassign, sweep
from pm_match.features.state import FeatureState
from tests.declared.plain import tiny_model


class Tally(NamedTuple):
    """A term that prefers low slots, and notes what it is asked to do."""

    asked: np.ndarray
    worth: np.ndarray


class Other(NamedTuple):
    """The same with more arrays."""

    asked: np.ndarray
    worth: np.ndarray
    more: np.ndarray


def serve(kind, **changed):
    """Implement the protocol for a kind of terms."""

    def score(term, unit, own, n_slots, out):
        for slot in range(n_slots):
            out[slot] -= term.worth[0] * slot
        term.asked[0] += 1

    def move(term, unit, source, target):
        term.asked[1] += 1

    def clear(term, slot):
        term.asked[2] += 1

    def relocate(term, source, target):
        term.asked[3] += 1

    def log_evidence(term, n_slots):
        return term.worth[0] * n_slots

    found = {f.__name__: f for f in (score, move, clear, relocate, log_evidence)} | changed
    for name, function in found.items():
        if function is not None:
            implements(getattr(protocol, name), kind)(function)
    return kind


serve(Tally)
serve(Other)
STICKS = np.ones(3), np.ones(3)


def placed():
    state = new_partition(np.ones(6, int), 4)
    place(state, np.array([0, 0, 1, 1, 2, 2]))
    return state


def test_terms_of_other_kinds_share_the_kernels():
    tallies = [Tally(np.zeros(4), np.array([w])) for w in (0.5, 0.25)]
    other = Other(np.zeros(4), np.array([1.0]), np.zeros((2, 2)))
    rng = np.random.default_rng(0)
    before = None
    for terms in ([], [tallies[0]], [other, tallies[1]], tallies):
        state, table = placed(), collect(terms)
        sweep(rng, *STICKS, state, table)
        log_joint(*STICKS, state, table)
        before = before or (len(sweep.signatures), len(log_joint.signatures))
        assert (len(sweep.signatures), len(log_joint.signatures)) == before
    assert tallies[0].asked[0] == 12
    assert tallies[1].asked[0] == 12
    assert other.asked[0] == 6


def test_what_terms_say_adds_up():
    terms = [Tally(np.zeros(4), np.array([0.5])), Tally(np.zeros(4), np.array([0.25]))]
    state = placed()
    alone = log_joint(*STICKS, state, collect([]))
    assert log_joint(*STICKS, state, collect(terms)) == alone + 0.75 * state.n_slots[0]
    reassign(state, collect(terms), 0, 3)
    assert terms[0].asked.tolist() == [0, 1, 1, 0]
    # The last slot takes the place of the one that this empties.
    reassign(state, collect(terms), 1, 3)
    assert terms[1].asked.tolist() == [0, 2, 2, 1]


def test_fields_are_read_through_the_address():
    class Inside(NamedTuple):
        flags: np.ndarray
        grid: np.ndarray

    class Grid(NamedTuple):
        asked: np.ndarray
        inside: Inside
        worth: np.ndarray

    def log_evidence(term, n_slots):
        total, grid = 0.0, term.inside.grid
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                if term.inside.flags[j]:
                    total += (i + 1) * grid[i, j]
        return total * term.worth[0]

    serve(Grid, log_evidence=log_evidence)
    grid, flags = np.random.default_rng(0).normal(size=(3, 5)), np.array([True, False, True])
    state = placed()
    alone = log_joint(*STICKS, state, collect([]))
    for values in (grid.T, np.ascontiguousarray(grid.T), np.repeat(grid.T, 2, axis=0)[::2]):
        table = collect([Grid(np.zeros(4), Inside(flags, values), np.array([0.5]))])
        expected = 0.5 * (np.arange(1, 6) @ grid.T @ flags)
        assert log_joint(*STICKS, state, table) - alone == pytest.approx(expected)


def test_a_table_keeps_its_terms():
    table = collect([Tally(np.zeros(4), np.full(1, 2.0 + i)) for i in range(200)])
    gc.collect()
    _ = [np.zeros(1) for _ in range(1000)]
    state = placed()
    found = log_joint(*STICKS, state, table) - log_joint(*STICKS, state, collect([]))
    assert found == pytest.approx(sum(range(2, 202)) * state.n_slots[0])
    assert [type(term) for term in collected(table)] == [Tally] * 200


def test_what_is_implemented():
    term = Tally(np.zeros(4), np.ones(1))
    assert implemented(protocol.score, term)
    assert not implemented(protocol.tabulate, term)
    row = collect([term])[0]
    assert (row[:6] != 0).all()
    assert (row[6:] == 0).all()


def test_an_exception_reaches_python():
    class Raising(NamedTuple):
        asked: np.ndarray
        worth: np.ndarray

    def move(term, unit, source, target):
        raise ValueError("it does not move")

    serve(Raising, move=move)
    with pytest.raises(ValueError, match="it does not move"):
        reassign(placed(), collect([Raising(np.zeros(4), np.ones(1))]), 0, 3)


def _makes_an_array(term, unit, source, target):
    y = np.zeros(3)
    term.asked[0] += y[unit]


def _adds_arrays(term, unit, source, target):
    term.asked[:] = term.asked + term.worth[0]


def _reads_no_field(term, unit, source, target):
    term.totl[unit] += 1.0


def _reads_by_number(term, unit, source, target):
    term[0][unit] += 1.0


def _returns(term, unit, source, target):
    return unit


@pytest.mark.parametrize(
    ("wrong", "line", "reason"),
    [
        (_makes_an_array, "y = np.zeros(3)", "it would allocate memory"),
        (_adds_arrays, "term.asked[:] = term.asked + term.worth[0]", "it would allocate memory"),
        (_reads_no_field, "term.totl[unit] += 1.0", "Unknown attribute 'totl'"),
        (_reads_by_number, "term[0][unit] += 1.0", "No implementation of function .*getitem"),
        (_returns, "return unit", "No conversion from int64 to none"),
    ],
)
def test_what_cannot_be_compiled_is_named(wrong, line, reason):
    class Wrong(NamedTuple):
        asked: np.ndarray
        worth: np.ndarray

    serve(Wrong, move=wrong)
    where = rf"Wrong: `move` cannot be compiled\. test_protocol\.py, line \d+, `{re.escape(line)}`"
    with pytest.raises(TypeError, match=f"{where}: {reason}"):
        collect([Wrong(np.zeros(4), np.ones(1))])


def test_what_is_not_implemented_is_named():
    class Half(NamedTuple):
        asked: np.ndarray
        worth: np.ndarray

    serve(Half, clear=None)
    with pytest.raises(TypeError, match="Half: expected `clear`; found none"):
        collect([Half(np.zeros(4), np.ones(1))])
    implements(protocol.clear, Half)(lambda term, slot: None)
    implements(protocol.log_shared, Half)(lambda term, change: 0.0)
    with pytest.raises(TypeError, match="Half: expected `tabulate`; found none"):
        collect([Half(np.zeros(4), np.ones(1))])
    with pytest.raises(TypeError, match="expected terms of evidence; found a float"):
        collect([3.0])


def test_a_signature_is_compared_at_once():
    with pytest.raises(TypeError, match=r"Tally: expected `move` to take \(term, unit, source, t"):
        implements(protocol.move, Tally)(lambda term, unit: None)


@pytest.mark.parametrize("terms", [[], [1]])
def test_a_state_without_terms_of_its_clusterings_is_refused(terms, monkeypatch):
    class Wrong(FeatureState):
        def __init__(self, features, site, points):
            super().__init__(features, site, points)
            self.terms = [(number, self.evidence.term) for number in terms]

    monkeypatch.setattr("pm_match.features.kind.FeatureVectors.state", Wrong)
    model = tiny_model()
    message = rf"kind 'features': expected states with terms of clusterings 0 to 0; found \{terms}"
    with pytest.raises(TypeError, match=message):
        pmm.ClusterGibbs([model["cluster_a"]], model=model)
