"""Real ranks: a server refuses malformed messages, and serves the other workers.

Ranks 0 and 1 train, rank 2 attacks, rank 3 serves. The values of a message of all rows
are longer than 64 KB, so that they are a second message.
"""

import sys

import numpy as np
import pytest

from dml.types import BadInput
from dml.types.freed import OPERATIONS
from dml.wire.collectives import ALLREDUCE, with_check
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from dml.wire.comm.mpi import world
from dml.wire.comm.tags import Tag
from dml.wire.plans.partition import partition
from dml.wire.reducers.checked import checked
from dml.wire.reducers.names import reducer
from dml.wire.server.client import Client
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.header import CLOCK, KEYS, PULL, PUSH
from dml.wire.server.server import Server
from tests.wire.comm.test_freed import refusals
from tests.wire.server.served import Adding, replicated
from tests.wire.server.test_attacks import random_message
from tests.wire.server.test_malformed import MALFORMED, floats, keys, message

ROWS, WIDTH, WORKERS, EVIL, SERVER = 400, 50, 3, 2, 3
ALL = slice(0, ROWS)
COUNT = 100  # messages of an attack
OVERSIZED = np.ones(1 << 21, np.uint8)
NO_KIND = (Tag.SERVER, MALFORMED["no kind"])
BEFORE = "a message before the announced values"
CUT = "values that have not 80000 bytes"


def announced(*more):
    return [(Tag.SERVER, message(PUSH, ROWS, 0)), *more]


def values(count):
    return Tag.GRADIENTS, np.ones(count, np.float32)


# the first reason, and the messages
ATTACKS = {
    "oversized": ("too many bytes", [(Tag.SERVER, OVERSIZED)]),
    "values too long": (CUT, announced(values(ROWS * WIDTH + 7))),
    "values far too long": (CUT, announced(values(1 << 20))),
    "values too short": (CUT, announced(values(5))),
    "values never sent": (BEFORE, announced(NO_KIND)),
    "values after a refusal": ("kind 0", [NO_KIND, values(1 << 18), values(3)]),
    "replies never received": (
        "kind 0",
        [
            (Tag.SERVER, message(PULL, ROWS, 0)),
            (Tag.SERVER, message(CLOCK, acknowledged=(0, 1, 0))),
            NO_KIND,
        ],
    ),
    "a row past the end": (
        f"row {ROWS} of {ROWS}",
        [(Tag.SERVER, message(PUSH | KEYS, 1, -1, body=keys(ROWS) + floats(WIDTH)))],
    ),
}


def exchange(comm, name, reason, attack) -> None:
    """Train by two workers while another sends malformed messages."""
    rule = consistency(name, Choice(staleness=1, softsync=WORKERS), WORKERS)
    workers = comm.Split(int(comm.rank == SERVER), comm.rank)
    if comm.rank == SERVER:
        server = Server(comm, Adding(np.zeros((ROWS, WIDTH), np.float32)), 3, rule)
        server.serve()
        assert set(server.refused) == {EVIL}, server.refused
        assert reason in (None, server.refused[EVIL].reason), server.refused
        assert (server.shard.values == 2 * sum(range(1, 11))).all()
    elif comm.rank == EVIL:
        for tag, buffer in attack:
            comm.Send(buffer, SERVER, tag)
        workers.Barrier()
    else:
        client = Client(comm, partition(ROWS, 1), WIDTH, [SERVER])
        for clock in range(1, 11):
            grads = np.full((ROWS, WIDTH), clock, np.float32)
            client.push(ALL, grads, 1.0, ends_clock=True)
        client.pull(ALL, 10)
        workers.Barrier()  # the attack is over
        client.end()
        replicated(client, rule, ROWS, WIDTH).finish()
    comm.Barrier()


def differing_reducers(comm) -> None:
    """Raise BadInput on all ranks with the rank whose gradient differs."""
    for text in ("top_k:0.1", "qsgd", "sign+feedback", "vote", "power_sgd:2"):
        made = checked(reducer(text, with_check(ALLREDUCE["ring"])), text)
        rows = 40 if comm.rank == 2 else 32
        state = made.init(layout({"w": np.zeros((rows, 16), np.float32)}))
        with pytest.raises(BadInput, match="rank 0 has 512 x .* rank 2 has 640 x"):
            made.reduce(comm, np.ones(16 * rows, np.float32), state)


def main() -> None:
    comm = world(30)
    assert len(refusals(comm)) == len(OPERATIONS)
    differing_reducers(comm)
    counted = Metered(comm)
    for name in ("async", "essp"):
        for reason, attack in ATTACKS.values():
            exchange(counted, name, reason, [*attack, *[NO_KIND] * 3])
        draws = np.random.default_rng(len(name))
        attack = [NO_KIND, *(random_message(draws) for _ in range(COUNT))]
        exchange(counted, name, "kind 0", attack)
    if comm.rank == SERVER:
        sys.stdout.write("the honest workers are served\n")


if __name__ == "__main__":
    main()
