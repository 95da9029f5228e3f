"""The clocks and the inbox of a server, each by itself."""

import numpy as np

from dml import sim
from dml.wire.comm.tags import Tag
from dml.wire.server.clocks import Clocks
from dml.wire.server.inbox import Inbox


def test_a_receive_is_withdrawn_unless_its_message_came_before():
    def program(comm):
        if comm.rank == 1:
            for tag in (Tag.SERVER, Tag.PAIR):
                comm.Send(np.full(3, 7, np.uint8), 0, tag)
            return None
        inbox = Inbox(comm, 8)
        assert not inbox.withdraw()  # none is posted
        inbox.post()
        comm.Recv(np.empty(3, np.uint8), 1, Tag.PAIR)  # sent after the message
        assert inbox.withdraw() and inbox.buffer[:3].tolist() == [7] * 3
        assert (inbox.status.source, inbox.status.count) == (1, 3)
        inbox.post()
        return inbox.withdraw() or inbox.poll()

    assert sim.run(program, 2) == [False, None]


def test_a_clock_is_closed_by_a_worker_even_if_the_backups_are_all_that_is_left():
    clocks = Clocks(3, backups=2)
    assert not clocks.drop(0) and not clocks.drop(1)
    assert clocks.end(2, 1) and not clocks.close()
    assert clocks.closed == 1
