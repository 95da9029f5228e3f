"""A freed communicator refuses every operation (on real ranks: tests/mpi)."""

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.named import network
from dml.types import BadInput
from dml.types.freed import OPERATIONS
from dml.wire.collectives import ALLREDUCE, with_check
from dml.wire.reducers.fixed_point import FixedPoint

ROUTED = network("torus:2x2", 4)
ARGUMENTS = {
    **dict.fromkeys(("Send", "Isend"), (np.zeros(1), 0)),
    **dict.fromkeys(("Recv", "Irecv"), (np.zeros(1),)),
    "Sendrecv": (np.zeros(1), 0, 0, np.zeros(1)),
    "Allreduce": (None, np.zeros(1)),
    "shared_window": (64,),
}


def refusals(comm):
    """Return the error of each operation of a freed communicator."""
    group = comm.Split(0, comm.rank)
    group.Barrier()
    group.Free()
    errors = []
    for name in OPERATIONS:
        with pytest.raises(BadInput) as refused:
            getattr(group, name)(*ARGUMENTS.get(name, ()))
        errors.append(str(refused.value))
    comm.Barrier()  # the communicator that it was split from is in use
    return errors


@pytest.mark.parametrize("links", (sim.Uniform(), ROUTED))
def test_every_operation_of_a_freed_virtual_communicator_is_refused(links):
    for rank, errors in enumerate(sim.run(refusals, 4, links)):
        for name, error in zip(OPERATIONS, errors, strict=True):
            assert f"rank {rank}: expected a communicator in use" in error
            assert f"freed, in {name};" in error


@pytest.mark.parametrize("name", ("ring", "tree", "halving_doubling", "auto"))
@pytest.mark.parametrize("wrap", (with_check, lambda allreduce: allreduce))
def test_an_allreduce_on_a_freed_communicator_is_refused_with_the_rank(name, wrap):
    def program(comm):
        group = comm.Split(0, -comm.rank)
        group.Free()
        with pytest.raises(BadInput, match=f"rank {2 - comm.rank}: .* was freed"):
            wrap(ALLREDUCE[name])(group, np.zeros(5))

    sim.run(program, 3)


def test_messages_of_a_freed_communicator_do_not_arrive_on_another():
    def program(comm):
        old, buffer = comm.Split(0, comm.rank), np.full(1, 7.0)
        if comm.rank == 0:
            old.Send(np.full(1, 9.0), 1)
        old.Free()
        new = comm.Split(0, comm.rank)
        if comm.rank == 0:
            new.Send(np.full(1, 1.0), 1)
        else:
            new.Recv(buffer, 0)
            assert buffer[0] == 1

    with pytest.raises(sim.Deadlock, match="ended, and 1 messages are lost"):
        sim.run(program, 2)


def test_a_sum_in_wide_integers_keeps_the_communicators_of_its_memory():
    """Else the memory of a freed one could be taken for that of another."""

    def program(comm):
        sums = FixedPoint(ALLREDUCE["ring"], 64, 64)
        for _ in range(2):
            group, buffer = comm.Split(0, comm.rank), np.ones(3, np.float32)
            sums.reduce(group, buffer)
            assert buffer.tolist() == [2.0] * 3
            assert sums.memory[id(group)][0] is group
            group.Free()

    sim.run(program, 2)
