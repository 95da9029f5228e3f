"""Real ranks: the suite of the virtual ones again, then all that can go wrong."""

import os

import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE
from tests.mpi import conformance_main

BYTES_2_31 = (1 << 31) + 20


def lines(err, *words):
    """The lines of a run's stderr that have all these words."""
    return [line for line in err.splitlines() if all(word in line for word in words)]


@pytest.mark.parametrize(
    "size, amount", [(2, "all"), (3, "all"), (4, "some"), (5, "some"), (8, "some")]
)
def test_every_allreduce_conforms_on_real_ranks(mpirun, tmp_path, size, amount):
    path = tmp_path / "found"
    ended = mpirun(size, "conformance_main", amount, path, timeout=100)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(f"all-reduces conform on {size} ranks\n")
    assert len(ended.out.splitlines()) == 1
    assert path.read_text() == repr(sim.run(conformance_main.agreed, size))


@pytest.mark.parametrize("size", (2, 3))
def test_two_allreduces_of_every_name_are_under_way_at_once(mpirun, size):
    ended = mpirun(size, "progress_main", timeout=100)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"{name} is under way on {size} ranks"
        for name in sorted(ALLREDUCE.keys() - {"native"})
    ]


def free_bytes():
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_buffers_of_more_than_2_31_bytes_are_reduced(mpirun):
    if free_bytes() < 12 << 30:
        pytest.skip("two ranks need 12 GB of free memory for such buffers")
    ended = mpirun(2, "large_main", timeout=100)
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.out.splitlines()) == [
        f"rank {rank}: {BYTES_2_31} bytes by {name}"
        for rank in range(2)
        for name in ("broadcast", "ring", "shared")
    ]


# Exceptions.


@pytest.mark.parametrize(
    "way", ("one_raises", "one_raises_in_a_thread", "one_raises_while_others_meet")
)
def test_an_uncaught_exception_is_shown_once_and_ends_all_ranks(mpirun, way):
    ended = mpirun(3, "failure_main", way, timeout=30)
    assert ended.code != 0
    assert ended.err.count("Traceback") == 1
    assert ended.err.count("KeyError: 'lost by rank 1'") == 1
    assert len(lines(ended.err, "rank 1 of 3", "Traceback")) == 1
    assert "failure_main.py" in ended.err


def test_an_exception_keeps_its_cause(mpirun):
    ended = mpirun(2, "failure_main", "one_raises_from_another_error", timeout=30)
    assert ended.code != 0
    assert ended.err.count("RuntimeError: second") == 1
    assert ended.err.count("KeyError: 'first'") == 1


def test_an_exception_while_driven_comes_out_on_its_rank(mpirun):
    ended = mpirun(2, "failure_main", "one_raises_while_driven", timeout=30)
    assert ended.code != 0
    assert ended.err.count("Traceback") == 1
    assert "rank 1: expected a contiguous writeable buffer" in ended.err


def test_all_ranks_may_raise_and_none_speaks_twice(mpirun):
    ended = mpirun(3, "failure_main", "all_raise", timeout=30)
    assert ended.code != 0
    said = [ended.err.count(f"KeyError: 'lost by rank {r}'") for r in range(3)]
    assert max(said) == 1


def test_a_rank_that_leaves_early_ends_all_ranks(mpirun):
    """sys.exit is no exception to the hook, and nobody will ever answer."""
    ended = mpirun(2, "failure_main", "one_leaves", timeout=30)
    assert ended.code != 0


@pytest.mark.parametrize("way", ("one_is_killed", "one_is_killed_while_others_meet"))
def test_a_killed_rank_ends_the_run(mpirun, way):
    ended = mpirun(3, "failure_main", way, timeout=30)
    assert ended.code != 0


# The watchdog.


@pytest.mark.parametrize(
    "way, call",
    [
        ("all_wait_to_hear", "Recv(source={ahead}, tag=RING, 48 bytes)"),
        ("all_wait_to_send", "Send(dest={ahead}, tag=TREE, 1048576 bytes)"),
        ("all_wait_to_exchange", "Sendrecv(source={behind}, tag=TREE, 48 bytes)"),
        ("all_wait_for_a_request", "Irecv(source={ahead}, tag=STAR, 48 bytes)"),
    ],
)
def test_the_watchdog_names_what_every_rank_waits_in_then_ends_them(mpirun, way, call):
    ended = mpirun(3, "failure_main", way, timeout=30)
    assert ended.code != 0
    for rank in range(3):
        named = call.format(ahead=(rank + 1) % 3, behind=(rank - 1) % 3)
        who = f"watchdog: rank {rank} of 3 has waited"
        assert len(lines(ended.err, who, named)) == 1
    assert lines(ended.err, "gives up", "--watchdog=")


@pytest.mark.parametrize(
    "way, call",
    [
        ("one_waits_for_a_barrier", "Barrier("),
        ("one_waits_to_meet", "barrier(rank=1"),
        ("one_waits_in_a_group", "Recv(source=0, tag=RING, 48 bytes)"),
        ("Allreduce", "Allreduce("),
        ("Dup", "Dup("),
        ("Split", "Split("),
        ("shared_window", "shared_window("),
    ],
)
def test_the_watchdog_names_the_only_rank_that_waits_then_ends_all(mpirun, way, call):
    ended = mpirun(2, "failure_main", way, timeout=15)
    assert ended.code != 0
    assert len(lines(ended.err, "watchdog: rank 0 of 2 has waited", call)) == 1
    assert not lines(ended.err, "watchdog: rank 1 of 2 has waited")


def test_the_watchdog_sees_what_an_allreduce_under_way_waits_for(mpirun):
    ended = mpirun(2, "failure_main", "all_wait_for_one_under_way", timeout=30)
    assert ended.code != 0
    named = "watchdog: rank 0 of 2 has waited"
    assert len(lines(ended.err, named, "source=1, tag=RING, 24 bytes")) == 1


def test_the_watchdog_is_silent_while_nobody_waits_for_long(mpirun):
    ended = mpirun(2, "failure_main", "nobody_waits_for_long", timeout=30)
    assert ended == (0, "", "", 0)


# Bad input. Where one rank alone refuses, mpirun kills the others, and now and then
# reports their 9 instead of its 2.
ALONE = (2, 9)


def test_what_all_ranks_refuse_is_one_line_and_code_2(mpirun):
    ended = mpirun(3, "failure_main", "all_refuse", timeout=30)
    assert ended.code == 2
    # mpirun itself may add its banner about codes that are not 0.
    assert lines(ended.err, "expected") == [
        "expected a length, got -1; pass --length=1"
    ]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("way", ("one_refuses", "one_refuses_while_others_meet"))
def test_what_one_rank_refuses_is_its_line_and_code_2(mpirun, way):
    ended = mpirun(3, "failure_main", way, timeout=30)
    assert ended.code in ALONE
    said = lines(ended.err, "expected a file")
    assert said == ["rank 1: expected a file, got none; pass --file=x"]
    assert "Traceback" not in ended.err


def test_a_bad_buffer_on_one_rank_ends_all_with_its_line(mpirun):
    ended = mpirun(2, "failure_main", "a_bad_buffer_is_refused_by_its_rank", timeout=30)
    assert ended.code in ALONE
    assert len(lines(ended.err, "rank 1", "expected a contiguous")) == 1


def test_a_run_that_ends_well_says_nothing_and_leaves_no_memory(mpirun):
    assert mpirun(3, "failure_main", "all_end_well", timeout=30) == (0, "", "", 0)


def test_windows_are_freed_in_one_order_whatever_order_they_were_made_in(mpirun):
    ended = mpirun(2, "windows_main", timeout=30)
    assert ended == (0, "2 windows\n", "", 0)
