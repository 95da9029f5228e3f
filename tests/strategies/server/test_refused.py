"""A worker of a training run whose message is damaged: it is told, and others go on."""

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.server.report import Report, collect_reports
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, row_partition, server
from dml.types import BadInput, Status
from dml.wire.comm import Metered
from dml.wire.comm.tags import Tag
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import Descent, problem

RANKS, EVIL, CLOCKS = 4, 1, 6


class Damaging(Metered):
    """Changes the kind of the third message to a server."""

    def __init__(self, comm):
        super().__init__(comm)
        self.messages = 0

    def Isend(self, buffer, dest, tag=0):
        self.messages += tag == Tag.SERVER
        if tag == Tag.SERVER and self.messages == 3:
            buffer[:4].view(np.int32)[0] = 1 << 12
        return super().Isend(buffer, dest, tag)


@pytest.mark.parametrize("name", ("bsp", "async", "ssp", "backup"))
def test_a_damaged_message_ends_its_worker_and_is_named_in_the_summary(name):
    task = problem(False)

    def program(comm):
        comm = (Damaging if comm.rank == EVIL else Metered)(comm)
        who, report = roles(RANKS, 1), Report()
        rule = consistency(name, Choice(staleness=0, backup=1), who.workers)
        batches = [np.arange(k, k + 6) for k in range(CLOCKS)]
        steps = server(
            task,
            batches,
            Descent,
            comm=comm,
            timer=Timer(comm.Wtime),
            setup=Setup(who, rule),
            report=report,
        )
        number, error = 0, ""
        try:
            for step in steps:
                number = step.number
        except BadInput as refused:
            error = str(refused)
        split = row_partition(comm, task, 1)
        found = collect_reports(comm, who, split, task.params.shape[1], report)
        comm.Barrier()
        status = Status()
        if comm.rank == EVIL and comm.Iprobe(RANKS - 1, Tag.VALUES, status):
            comm.Recv(np.zeros(status.count, np.uint8), RANKS - 1, Tag.VALUES)
        return number, error, found and found.summary

    results = sim.run(program, RANKS)
    for rank, (number, error, _) in enumerate(results[:-1]):
        if rank == EVIL:
            assert error.startswith(f"rank {EVIL}: expected rows from server 0")
        else:
            assert (number, error) == (CLOCKS, "")
    summary = results[0][2]
    line = summary["refused"]
    assert line.startswith(f"rank 3 refused {summary['refused_messages']} messages of")
    assert line.endswith(f"of rank {EVIL}, the first for kind 4096")
