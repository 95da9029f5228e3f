"""Real ranks: a server refuses malformed messages, also longer ones than its inbox.

Rank 0 trains, rank 1 attacks, rank 2 serves.
"""

import sys

import numpy as np

from dml.wire.comm import Metered
from dml.wire.comm.mpi import world
from dml.wire.comm.tags import Tag
from dml.wire.plans.partition import partition
from dml.wire.server.client import Client
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.server import Server
from tests.wire.server.served import Adding
from tests.wire.server.test_malformed import PUSH, UNANSWERED, message

ROWS, WIDTH, SERVER = 400, 50, 2


def main() -> None:
    comm = world(30)
    oversized = np.ones(1 << 21, np.uint8)
    for name in ("bsp", "async"):
        for first in ("oversized", "values"):
            exchange(Metered(comm.Dup()), name, first, oversized)
    if comm.rank == SERVER:
        sys.stdout.write("the honest worker is served\n")


def exchange(comm, name, first, oversized) -> None:
    """Train by one worker while another sends malformed messages."""
    rule = consistency(name, Choice(), 2)
    client = Client(comm, partition(ROWS, 1), WIDTH, [SERVER])
    if comm.rank == 0:
        for clock in range(20):
            values = np.full((ROWS, WIDTH), clock, np.float32)
            client.push(slice(0, ROWS), values, ends_clock=True)
        assert (client.pull(slice(0, ROWS), 20) == sum(range(20))).all()
        client.end()
    elif comm.rank == 1:
        if first == "values":
            comm.Send(message(PUSH, ROWS, 0), SERVER, Tag.SERVER)
            comm.Send(np.ones(ROWS * WIDTH + 7, np.float32), SERVER, Tag.GRADIENTS)
        for bad in (oversized, *UNANSWERED[:20], oversized):
            comm.Send(bad, SERVER, Tag.SERVER)
    else:
        server = Server(comm, Adding(np.zeros((ROWS, WIDTH), np.float32)), 2, rule)
        server.serve()
        reason = {"oversized": "too many bytes", "values": "values not of 80000 bytes"}
        assert server.refused[1].reason == reason[first], server.refused
    comm.Barrier()


if __name__ == "__main__":
    main()
