"""All that can go wrong on real ranks: exceptions, hangs, bad input."""

import pytest


@pytest.fixture
def fail(mpirun):
    """Run a way to fail; return the ended run and its lines that have some words."""

    def run(size, *way):
        ended = mpirun(size, "failure_main", *way, timeout=30)

        def lines(*words):
            text = ended.err.splitlines()
            return [line for line in text if all(word in line for word in words)]

        return ended, lines

    return run


@pytest.mark.parametrize(
    "way", [("raises",), ("raises", "meets"), ("raises in a thread",)]
)
def test_an_uncaught_exception_is_shown_once_and_ends_all_ranks(fail, way):
    ended, lines = fail(3, "rank_1", *way)
    assert ended.code != 0
    assert ended.err.count("Traceback") == 1
    assert ended.err.count("KeyError: 'lost by rank 1'") == 1
    assert len(lines("rank 1 of 3", "Traceback")) == 1
    assert "failure_main.py" in ended.err


@pytest.mark.parametrize(
    "way, texts",
    [
        (
            ["rank_1", "raises from another"],
            ["RuntimeError: second", "KeyError: 'firs"],
        ),
        (["a_bad_buffer", "driven"], ["Traceback", "rank 1: expected a contiguous wr"]),
        (["rank_1", "is killed"], []),
        (["rank_1", "is killed", "meets"], []),
        # sys.exit is no exception to the hook, and nobody will ever answer
        (["rank_1", "leaves"], []),
    ],
)
def test_a_rank_that_ends_ends_all_and_shows_its_cause_once(fail, way, texts):
    ended, _ = fail(3, *way)
    assert ended.code != 0
    assert [ended.err.count(text) for text in texts] == [1] * len(texts)


def test_all_ranks_may_raise_and_none_speaks_twice(fail):
    ended, _ = fail(3, "all_raise")
    assert ended.code != 0
    shown = [ended.err.count(f"KeyError: 'lost by rank {r}'") for r in range(3)]
    assert max(shown) == 1


# The watchdog.


@pytest.mark.parametrize(
    "way, call",
    [
        ("Recv", "Recv(source={ahead}, tag=RING, 48 bytes)"),
        ("Send", "Send(dest={ahead}, tag=TREE, 1048576 bytes)"),
        ("Sendrecv", "Sendrecv(source={behind}, tag=TREE, 48 bytes)"),
        ("Irecv", "Irecv(source={ahead}, tag=STAR, 48 bytes)"),
    ],
)
def test_the_watchdog_names_what_every_rank_waits_in_then_ends_them(fail, way, call):
    ended, lines = fail(3, "wait", way)
    assert ended.code != 0
    for rank in range(3):
        named = call.format(ahead=(rank + 1) % 3, behind=(rank - 1) % 3)
        assert len(lines(f"watchdog: rank {rank} of 3 has waited", named)) == 1
    assert lines("gives up", "--watchdog=")


@pytest.mark.parametrize(
    "way, call",
    [
        ("Barrier", "Barrier("),
        ("meet", "barrier(rank=1"),
        ("Recv in a group", "Recv(source=0, tag=RING, 48 bytes)"),
        ("under way", "source=1, tag=RING, 24 bytes"),
        ("Allreduce", "Allreduce("),
        ("Dup", "Dup("),
        ("Split", "Split("),
        ("shared_window", "shared_window("),
    ],
)
def test_the_watchdog_names_the_only_rank_that_waits_then_ends_all(fail, way, call):
    ended, lines = fail(2, "alone", way)
    assert ended.code != 0
    assert len(lines("watchdog: rank 0 of 2 has waited", call)) == 1
    assert not lines("watchdog: rank 1 of 2 has waited")


# Bad input. Where one rank alone refuses, mpirun kills the others, and now and then
# reports their 9 instead of its 2. mpirun may add its banner about codes other than 0.
ALONE = "rank 1: expected a file, got none; pass --file=x"


@pytest.mark.parametrize(
    "way, codes, line",
    [
        (["all_refuse"], [2], "expected a length, got -1; pass --length=1"),
        (["rank_1", "refuses"], [2, 9], ALONE),
        (["rank_1", "refuses", "meets"], [2, 9], ALONE),
    ],
)
def test_what_ranks_refuse_is_one_line_and_code_2(fail, way, codes, line):
    ended, lines = fail(3, *way)
    assert ended.code in codes
    assert lines("expected") == [line]
    assert "Traceback" not in ended.err


def test_a_bad_buffer_on_one_rank_ends_all_with_its_line(fail):
    ended, lines = fail(2, "a_bad_buffer")
    assert ended.code in (2, 9)
    assert len(lines("rank 1", "expected a contiguous")) == 1


@pytest.mark.parametrize(
    "way", ("nobody_waits_for_long", "all_end_well", "windows_made_in_another_order")
)
def test_a_run_that_ends_well_says_nothing_and_leaves_no_memory(fail, way):
    assert fail(3, way)[0] == (0, "", "", 0)
