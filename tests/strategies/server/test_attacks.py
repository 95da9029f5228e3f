"""Attacked parameter servers: the bits of attacked ranks."""

import numpy as np
import pytest
from lab.adversaries import with_own_attack

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.strategies.server.tables import as_table
from dml.strategies.server.workers import PUSH, WorkerOptions
from dml.strategies.synchronous import synchronous
from dml.types import Rows
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.names import reducer
from dml.wire.reducers.robust.attacks import byzantine
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import Descent, batches, problem

WORKERS = 3
RULES = {"alie:1": "median:1", "sign_flip": "trimmed_mean:1", "nan": "median:1"}
RULES |= {"noise": "krum:0"}


def by_ranks(attack):
    made = reducer(RULES[attack], ALLREDUCE["star"], byzantine(attack, 1))

    def program(comm):
        own = {"comm": Metered(comm), "timer": Timer(comm.Wtime), "reducer": made}
        *_, last = synchronous(problem(), batches(6), Descent, **own)
        return last.params()

    return sim.run(program, WORKERS)[0]


def by_servers(attack, count):
    made = byzantine(attack, 1)
    forged = made if made.attack.forge else None
    setup = Setup(
        roles(WORKERS + count, count),
        consistency("bsp", Choice(), WORKERS),
        worker_options=WorkerOptions(on_nonfinite=PUSH),
        reducer=reducer(RULES[attack], ALLREDUCE["star"], forged),
    )

    def program(comm):
        table = as_table(problem())
        if not forged and comm.rank == WORKERS - 1:
            table = with_own_attack(table, made, comm.rank)
        own = {"comm": Metered(comm), "timer": Timer(comm.Wtime), "setup": setup}
        *_, last = server(table, batches(6), Descent, **own)
        return last.params()

    return sim.run(program, WORKERS + count)[0]


@pytest.mark.parametrize("servers", (1, 2))
@pytest.mark.parametrize("attack", ("alie:1", "sign_flip", "nan"))
def test_attacked_servers_have_the_bits_of_attacked_ranks(attack, servers):
    expected = by_ranks(attack)
    assert np.isfinite(expected).all()
    assert by_servers(attack, servers).tobytes() == expected.tobytes()


def test_late_rows_are_those_of_the_current_batch():
    gradients = iter(
        [Rows(np.array([2, 5]), np.float32([[1], [2]])), Rows(np.array([5, 7]), None)]
    )

    def gradient(params, batch):
        rows = next(gradients)
        return 0.5, rows._replace(values=np.ones((2, 1), np.float32) * rows.index[0])

    late = with_own_attack(
        problem()._replace(gradient=gradient), byzantine("late:1", 1), 0
    )
    assert late.gradient(None, None)[1].values.tolist() == [[0], [0]]
    loss, rows = late.gradient(None, None)
    assert (loss, rows.index.tolist()) == (0.5, [5, 7])
    assert rows.values.tolist() == [[2], [0]]
