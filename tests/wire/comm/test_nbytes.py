"""Messages of another size than the receiver expects, for each protocol."""

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.actors.apex.messages import Links
from dml.strategies.actors.arrivals import Arrivals
from dml.strategies.actors.impala import play_rollouts
from dml.strategies.actors.learner import params_layout
from dml.strategies.actors.roles import Roles
from dml.strategies.decentral.outer import outer_state
from dml.strategies.decentral.outer_server import Outer, OuterServer
from dml.types import ANY, BadInput
from dml.wire.averaging.pairs import Passive
from dml.wire.comm import Metered
from dml.wire.comm.tags import Tag
from dml.wire.plans.chain import Chain
from dml.wire.plans.codes.decoding import make_plan
from dml.wire.server.barriers import receive_numbers
from dml.wire.server.first_terms import Master
from dml.wire.server.inbox import Inbox
from dml.wire.server.replicated import Replicated
from tests.strategies.actors import tabular


def arrivals(comm):
    Arrivals(comm, 8, Tag.ROLLOUT).next(wait=True)


def rollouts(comm):
    made, plan = tabular.problem(), Roles(2, 1, 1, 1)
    like = params_layout(made)
    play_rollouts(Metered(comm), plan, made.play, like, seed=0, timer=Timer(comm.Wtime))


def replay(comm):
    Links(comm, 1, False).receive(np.dtype([("count", np.int64)]), 0)


def outer(comm):
    params = np.zeros(3)
    options = Outer(every=1, lr=1.0, momentum=0.0, momentum_every=1)
    server = OuterServer(comm, params, outer_state(params), options, print)
    comm.Probe(ANY, Tag.OUTER, server.status)
    server.receive()


def pairs(comm):
    values = np.zeros(1)
    Passive(comm, [0], values).settle(values)


def barrier(comm):
    receive_numbers(comm, np.zeros(1, np.int64), 0, 1)


def terms(comm):
    Master(comm, make_plan("uncoded:0", 1), 2).receive()


def inbox(comm):
    server = Inbox(comm, 16)
    server.receive()
    server.content(8)


def chain(comm):
    Replicated(comm, [Chain((0,), 1)], 16).wait(lambda: False)


PARAMS = 8 + 4 * 2 * tabular.STATES  # bytes of a version and of the params

# receiver, tag, bytes of valid messages, bytes of the next message, expected bytes
CASES = [
    (receive, tag, before, nbytes, expected)
    for receive, tag, before, sizes, expected in (
        (arrivals, Tag.ROLLOUT, (), (0, 7, 9), "8"),
        (rollouts, Tag.WEIGHTS, (), (8, PARAMS - 4), f"{PARAMS}"),
        (rollouts, Tag.WEIGHTS, (), (7, PARAMS + 1), f"8 to {PARAMS}"),
        (replay, Tag.REPLAY, (), (0, 7, 9), "8"),
        (outer, Tag.OUTER, (), (0, 7, 9), "8"),
        (outer, Tag.OUTER, (8,), (0, 23, 25), "24"),
        (pairs, Tag.PAIR, (), (7, 9), "8"),
        (barrier, Tag.CLOCK, (), (0, 7, 9), "8"),
        (terms, Tag.GRADIENTS, (), (0, 7, 12, 17), "16"),
        (inbox, Tag.SERVER, (), (0, 7, 17), "8 to 16"),
        (chain, Tag.ANSWER, (), (0, 47, 65), "48 to 64"),
    )
    for nbytes in sizes
]


@pytest.mark.parametrize("receive, tag, before, nbytes, expected", CASES)
def test_a_message_of_another_size_is_refused(receive, tag, before, nbytes, expected):
    def program(comm):
        if comm.rank == 0:
            for size in (*before, nbytes):
                comm.Send(np.zeros(size, np.uint8), 1, tag)
        else:
            receive(comm)

    text = f"rank 1: expected a message of {expected} bytes from rank 0, got "
    with pytest.raises(BadInput, match=text) as caught:
        sim.run(program, 2)
    got = str(caught.value).removeprefix(text).split(";")[0]
    assert got in (f"one of {nbytes} bytes", "a longer one")
    assert "\n" not in str(caught.value)
