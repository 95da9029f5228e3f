"""Ranks in a deadlock, and the text of their states."""

import pytest

from dml.wire.comm.watchdog import (
    Call,
    RankState,
    deadlocked_ranks,
    rank_text,
    state_text,
)

ENDED, RUNNING = RankState(ended=True), RankState(location="main (x.py:1)")


def waits(*peers, any_peer=False, collective=()):
    return RankState((Call("Recv(...)", peers, any_peer, collective),), "main (x.py:1)")


def enters(name, *members):
    return waits(*members, collective=(name,))


@pytest.mark.parametrize(
    "states, ranks",
    [
        ([waits(1), RUNNING], []),
        ([waits(1), waits(2), RUNNING], []),
        ([waits(1), waits(0)], [0, 1]),
        ([waits(0)], [0]),
        ([waits(1), waits(2), waits(1)], [0, 1, 2]),  # rank 0 waits for a cycle
        ([waits(1), waits(2), waits(1), RUNNING, waits(3)], [0, 1, 2]),
        ([waits(1), ENDED], [0]),
        # One peer of any_peer is enough; without peers none will ever come.
        ([waits(1, 2, any_peer=True), waits(0), RUNNING], []),
        ([waits(1, 2, any_peer=True), waits(0), waits(1)], [0, 1, 2]),
        ([waits(1, 2, any_peer=True), ENDED, ENDED], [0]),
        ([waits(any_peer=True)], [0]),
        # A collective call waits only for ranks that have not entered it.
        ([enters("a", 0, 1), enters("a", 0, 1)], []),
        ([enters("a", 0, 1), enters("b", 0, 1)], [0, 1]),
        ([enters("a", 0, 1, 2), enters("a", 0, 1, 2), RUNNING], []),
        ([enters("a", 0, 1, 2), enters("a", 0, 1, 2), waits(0)], [0, 1, 2]),
        ([enters("a", 0, 1, 2), RUNNING, ENDED], [0]),
        # A rank in several calls, by threads, is stuck if it is stuck in all of them.
        ([RankState(waits(1).calls + waits(2).calls), waits(0), RUNNING], []),
        ([RankState(waits(1).calls + waits(2).calls), waits(0), waits(0)], [0, 1, 2]),
    ],
)
def test_the_ranks_that_can_only_wait_for_each_other_are_found(states, ranks):
    assert deadlocked_ranks(dict(enumerate(states))) == ranks


def test_ranks_without_a_report_may_be_running():
    assert deadlocked_ranks({0: waits(1)}) == []
    assert deadlocked_ranks({0: enters("a", 0, 1), 2: waits(1)}) == []


@pytest.mark.parametrize(
    "state, text",
    [
        (RUNNING, "running main (x.py:1)"),
        (ENDED, "ended"),
        (waits(2), "waiting for rank 2 in Recv(...), called by main (x.py:1)"),
        (waits(1, 2, any_peer=True), "waiting for any of ranks 1-2 in Recv"),
        (enters("a", 0, 1, 2), "waiting for rank 2 in Recv"),  # rank 1 has entered
    ],
)
def test_a_state_names_the_ranks_that_are_missing(state, text):
    states = {0: state, 1: enters("a", 0, 1, 2), 2: RUNNING}
    assert state_text(states, 0, 0).startswith(text)


def test_an_old_report_is_no_state():
    text = state_text({0: waits(1)}, 0, 99.0)
    assert text == "no report for 99 s; before, in main (x.py:1)"


def test_ranks_are_printed_as_ranges():
    assert rank_text([3]) == "rank 3"
    assert rank_text([5, 0, 1, 2, 7, 8]) == "ranks 0-2, 5, 7-8"
