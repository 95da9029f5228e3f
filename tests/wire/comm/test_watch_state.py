"""What is shown of a rank: its call in the source, the ranks that it needs, a table."""

import sys

import pytest

import dml
from dml import BadInput, sim
from dml.wire.comm import watch_state
from dml.wire.comm.watch_state import WatchState, peers_of, table, text_of, waits_for


def here():
    return sys._getframe(1)


class Comm:
    """A communicator of which a call returns the frame of its caller."""

    rank, size = 2, 4

    def __getattr__(self, name):
        return lambda *args, **kwargs: sys._getframe(1)


def frame_of(call):
    comm, ranks, n = Comm(), {"left": 1}, 1  # names of the expressions
    scope = {"comm": comm, "ranks": ranks, "n": n, "here": here}
    return eval(call, scope, scope)


@pytest.mark.parametrize(
    "call, expected",
    [
        ("comm.Recv(None, comm.rank - n)", ("peer", (1,))),
        ("comm.recv(source=-n + 4)", ("peer", (3,))),
        ("comm.Send([], dest=3, tag=7)", ("peer", (3,))),
        ("comm.Sendrecv([], 1, 0, [], 3)", ("peer", (3,))),
        ("comm.Recv(None)", ("peer", ())),
        ("comm.Recv(None, source=-1)", ("peer", ())),
        ("comm.Recv(None, ranks['left'])", ("peer", ())),  # may have side effects
        ("comm.Probe(2)", ("peer", (2,))),
        ("comm.Allreduce(1, 2)", ("collective", ())),
        ("comm.bcast(1)", ("collective", ())),
        ("comm.block_until_ready()", ("collective", ())),
        ("comm.reduced(1)", ("", ())),
        ("here()", ("", ())),
    ],
)
def test_the_peer_of_a_call_is_computed_from_its_source(call, expected):
    assert peers_of(call, frame_of(call)) == expected


def said(*_, **__):
    """Return the text of this call in its caller."""
    return text_of(sys._getframe(1))


def test_the_call_of_a_frame_is_its_expression_in_one_line():
    assert [said(1), said("ä", b=2)] == ["said(1)", 'said("ä", b=2)']
    text = said(
        "ä",
        source=1,
    )
    assert text == 'said( "ä", source=1, )'


def test_code_without_source_shows_nothing():
    assert text_of(frame_of("here()")) == ""


def test_a_rank_waits_for_those_that_are_elsewhere():
    call = {"call": "comm.Barrier()", "place": "a.py:3", "kind": "collective"}
    states = {
        0: WatchState(4, 9.0, **call),
        1: WatchState(4, 2.0, "work()", "b.py:1"),
        2: WatchState(3, 9.0, **call),
        3: WatchState(4, 1.0, left="left", **call),
        4: WatchState(4, 9.0, **call),
        5: WatchState(4, 9.0, "comm.recv(source=9)", "a.py:7", "peer", (1,)),
        6: WatchState(4, 9.0, "comm.recv()", "a.py:7", "peer"),
    }
    waits = [waits_for(rank, states) for rank in states]
    assert waits[0] == waits[4] == "ranks 1-3, 5-6"
    assert waits[1] == waits[3] == ""
    assert waits[5:] == ["rank 1", "any rank"]
    same = {rank: states[0] for rank in range(3)}
    assert waits_for(0, same) == "all are in it"
    lines = table({0: states[0]._replace(others=("f at c.py:2",))}).splitlines()
    assert [line.split()[0] for line in lines] == ["rank", "0", "thread:"]


def test_threads_outside_of_libraries_are_named():
    fields = watch_state.state_of_threads(None)
    assert set(fields) <= set(WatchState._fields)


def test_virtual_ranks_are_not_watched_and_bad_values_refused():
    def program(comm):
        with dml.watch(comm, 1e-9) as watch:
            comm.Barrier()
            watch.step()
        return watch.steps

    assert sim.run(program, 3) == [1, 1, 1]
    for options in ({"seconds": 0}, {"seconds": float("nan")}, {"code": 256}):
        with pytest.raises(BadInput, match="expected seconds above 0 and an exit code"):
            dml.watch(None, **options)
