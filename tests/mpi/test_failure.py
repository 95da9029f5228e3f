"""All that can go wrong on real ranks: exceptions, hangs, bad input."""

import signal

import pytest

from tests.mpi.conftest import OPEN_MPI


@pytest.fixture
def fail(mpirun):
    """Run a way to fail; return the ended run and its lines that have some words."""

    def run(size, *way):
        ended = mpirun(size, "failure_main", *way)

        def lines(*words):
            text = ended.err.splitlines()
            return [line for line in text if all(word in line for word in words)]

        return ended, lines

    return run


@pytest.mark.parametrize("way", ("raises", "raises in a thread"))
def test_an_uncaught_exception_is_shown_once_and_ends_all_ranks(fail, way):
    ended, lines = fail(3, "rank_1", way)
    assert ended.code != 0
    assert ended.err.count("Traceback") == 1
    assert ended.err.count("KeyError: 'lost by rank 1'") == 1
    assert len(lines("rank 1 of 3", "Traceback")) == 1
    assert "failure_main.py" in ended.err


@pytest.mark.parametrize(
    "way, texts",
    [
        (["rank_1", "raises from another"], ["Error: second", "KeyError: 'first'"]),
        (["a_bad_buffer", "driven"], ["Traceback", "rank 1: expected a contiguous wr"]),
        (["rank_1", "is killed", "meets"], []),
        # sys.exit is no exception to the hook, and nobody will ever answer
        (["rank_1", "leaves"], []),
    ],
)
def test_a_rank_that_ends_ends_all_and_shows_its_cause_once(fail, way, texts):
    ended, _ = fail(3, *way)
    assert ended.code != 0
    assert [ended.err.count(text) for text in texts] == [1] * len(texts)


@pytest.mark.skipif(OPEN_MPI, reason="Open MPI copies a message when it is sent")
def test_a_message_of_a_killed_rank_ends_the_run_by_its_signal(fail):
    ended, _ = fail(2, "killed_sender")
    assert ended.code == signal.SIGKILL
    assert "Traceback" not in ended.err


def test_all_ranks_may_raise_and_each_prints_once(fail):
    ended, _ = fail(3, "all_raise")
    assert ended.code != 0
    shown = [ended.err.count(f"KeyError: 'lost by rank {r}'") for r in range(3)]
    assert max(shown) == 1


# The watchdog.


def waits(rank, peer, call):
    return f"  rank {rank}: waiting for rank {peer} in {call}"


def test_a_cycle_of_waiting_ranks_is_printed_and_ended(fail):
    ended, lines = fail(4, "wait")
    assert ended.code != 0
    assert len(lines("watchdog: deadlock of ranks 0-3;")) == 1
    assert lines(waits(0, 1, "Recv(source=1, tag=RING, 48 bytes)"))
    assert lines(waits(1, 2, "Irecv(source=2, tag=STAR, 48 bytes)"))
    assert lines(waits(2, 3, "Sendrecv(source=3, tag=TREE, 48 bytes)"))
    assert lines(waits(3, 0, "Send(dest=0, tag=TREE, 1048576 bytes)"))


@pytest.mark.parametrize(
    "way, call",
    [
        ("Barrier", "Barrier("),
        ("meet", "barrier(rank=1"),
        ("under way", "Irecv(source=1, tag=RING, 24 bytes"),
        ("in a thread", "Sendrecv(source=1, tag=RING, 24 bytes"),
        ("Allreduce", "Allreduce("),
        ("Dup", "Dup("),
        ("Split", "Split("),
        ("shared_window", "shared_window("),
    ],
)
def test_two_ranks_in_calls_that_do_not_match_are_ended(fail, way, call):
    ended, lines = fail(2, "alone", way)
    assert ended.code != 0
    assert lines("watchdog: deadlock of ranks 0-1;")
    assert lines(waits(0, 1, call))
    assert lines(waits(1, 0, "Recv("), "by alone (failure_main.py:")


def test_a_deadlock_of_some_ranks_ends_a_run_in_which_another_computes(fail):
    """Rank 1 computes, for which rank 3 waits in a communicator of its own."""
    ended, lines = fail(4, "pair")
    assert ended.code != 0
    assert lines("watchdog: deadlock of ranks 0, 2;")
    assert lines("  rank 1: running pair (failure_main.py:")
    assert lines(waits(3, 1, "Recv(source=0, tag=RING"))


@pytest.mark.parametrize("waiting, leaving", [(2, 1), (0, 1)])
def test_a_rank_that_waits_for_one_that_has_ended_ends_the_run(fail, waiting, leaving):
    ended, lines = fail(3, "deserted", str(waiting), str(leaving))
    assert ended.code != 0
    assert lines(f"watchdog: deadlock of rank {waiting};")
    assert lines(waits(waiting, leaving, "Recv("))


def test_a_slow_rank_is_reported_and_ends_nothing(fail):
    """It sleeps, and then holds the interpreter's lock and reports nothing."""
    ended, lines = fail(3, "slow")
    assert ended.code == 0
    assert lines("watchdog: the longest call has lasted", "the run continues")
    assert lines("rank 1: running slow (failure_main.py:")
    assert lines("rank 1: no report")
    assert not lines("deadlock")


# Bad input. Where one rank alone refuses, mpirun kills the others, and now and then
# reports their 9 instead of its 2. mpirun may add its banner about codes other than 0.
ALONE = "rank 1: expected a file, got none; pass --file=x"


def test_what_a_rank_refuses_is_one_line_and_code_2(fail):
    ended, lines = fail(3, "rank_1", "refuses", "meets")
    assert ended.code in (2, 9)
    assert lines("expected") == [ALONE]
    assert "Traceback" not in ended.err


def test_what_all_ranks_refuse_is_one_line_if_they_end_together(fail):
    """A rank that waits for more than 2 s for the others, by load, ends the run."""
    ended, lines = fail(3, "all_refuse")
    assert ended.code in (2, 9)
    found = lines("expected")
    assert 1 <= len(found) <= 3
    assert all(
        line.endswith("expected a length, got -1; pass --length=1") for line in found
    )
    assert "Traceback" not in ended.err


def test_a_bad_buffer_on_one_rank_ends_all_with_its_line(fail):
    ended, lines = fail(2, "a_bad_buffer")
    assert ended.code in (2, 9)
    assert len(lines("rank 1", "expected a contiguous")) == 1


def test_slow_work_and_many_quick_calls_are_no_deadlock(fail):
    """On a loaded machine, a call may last long enough for a report."""
    ended, lines = fail(3, "nobody_waits_for_long")
    assert (ended.code, ended.out, ended.left) == (0, "", 0)
    assert not lines("deadlock") and not lines("Traceback")


@pytest.mark.parametrize("way", ("all_end_well", "windows_made_in_another_order"))
def test_a_run_that_ends_well_prints_nothing_and_leaves_no_memory(fail, way):
    assert fail(3, way)[0] == (0, "", "", 0)
