"""Throttled ports over a network that costs nothing are the uniform network."""

import numpy as np
import pytest

from dml import sim
from dml.types import WITHDRAWN, Status
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.byteps import byteps_allreduce
from dml.wire.comm import Metered, Throttled

ALPHA, BETA = 1e-5, 1e-8
FREE, NETWORK = sim.Uniform(0, 0, 0), sim.Uniform(ALPHA, BETA, 0)
BY_MESSAGES = ["star", "tree", "butterfly", "halving_doubling", "ring"]


def outcome(call, size, throttled):
    """Return seconds and bits of each rank, on throttled ports or on the network."""

    def program(comm):
        if throttled:
            comm = Throttled(comm, BETA, ALPHA)
        buffer = np.arange(5000, dtype=np.float32) / (comm.rank + 3)
        call(comm, buffer)
        return comm.Wtime(), buffer.tobytes()

    seconds, bits = zip(
        *sim.run(program, size, FREE if throttled else NETWORK), strict=True
    )
    return max(seconds), bits


@pytest.mark.parametrize("name", BY_MESSAGES)
def test_an_allreduce_takes_the_seconds_of_the_network(name):
    seconds, bits = outcome(ALLREDUCE[name], 5, throttled=False)
    throttled_seconds, throttled_bits = outcome(ALLREDUCE[name], 5, throttled=True)
    assert throttled_bits == bits
    assert throttled_seconds == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("n, k", [(2, 0), (2, 1), (2, 2), (3, 1), (3, 3)])
def test_byteps_takes_the_seconds_of_the_network(n, k):
    def call(comm, buffer):
        byteps_allreduce(comm, buffer, spare=k, segment=1000)

    seconds, bits = outcome(call, n + k, throttled=False)
    throttled_seconds, throttled_bits = outcome(call, n + k, throttled=True)
    assert throttled_bits == bits
    assert throttled_seconds == pytest.approx(seconds, rel=1e-9)


def test_messages_of_a_rank_leave_in_turn_and_arrive_in_turn():
    """Three requests at once: the ports of the sender or the receiver are shared."""

    def program(comm):
        port = Throttled(comm, BETA)
        data = np.ones(1000, np.uint8)
        if comm.rank == 0:  # to all, and later from all
            sends = [port.Isend(data, dest) for dest in (1, 2, 3)]
            port.Waitall(sends)
            sent = comm.Wtime()
            comm.platform.compute(1.0)
            begun = comm.Wtime()
            receives = [port.Irecv(np.empty_like(data), source) for source in (1, 2, 3)]
            port.Waitall(receives)
            return sent, comm.Wtime() - begun
        status = Status()
        port.Recv(np.empty_like(data), status=status)
        arrived = comm.Wtime()
        assert (status.source, status.count) == (0, 1000)
        comm.platform.compute(1.0 + 3e-5 - arrived)
        port.Send(data, 0)
        return arrived, comm.Wtime()

    (sent, gathered), *others = sim.run(program, 4, FREE)
    message = 1000 * BETA
    assert sent == pytest.approx(3 * message)
    assert [arrived for arrived, _ in others] == pytest.approx(
        [message, 2 * message, 3 * message]
    )
    assert gathered == pytest.approx(3 * message)


def test_the_directions_of_a_port_are_independent_and_groups_share_it():
    def program(comm):
        port = Throttled(comm, BETA)
        group = port.Split(0, comm.rank)
        data, received = np.ones(1000, np.uint8), np.empty(1000, np.uint8)
        peer = 1 - comm.rank
        sends = [port.Isend(data, peer), group.Isend(data, peer)]
        receives = [port.Irecv(received, peer), group.Irecv(received.copy(), peer)]
        first = port.Waitany(receives)
        between = comm.Wtime()
        port.Waitall([*sends, *receives])
        assert port.Waitany(receives) == -1
        return first, between, comm.Wtime()

    for first, _, seconds in sim.run(program, 2, FREE):
        assert first == 0
        assert seconds == pytest.approx(2 * 1000 * BETA)


def test_a_bucket_compensates_for_a_late_send_but_not_for_more_than_its_size():
    """Messages of 10 us; the second one is posted `late` after the first one left."""

    def arrival(late):
        def program(comm):
            port = Throttled(comm, BETA, burst=400)
            data = np.ones(1000, np.uint8)
            for number in range(2):
                if comm.rank:
                    port.Recv(data, 0)
                else:
                    comm.platform.compute(late * number)
                    port.Send(data, 1)
            return comm.Wtime()

        return sim.run(program, 2, FREE)[1]

    assert arrival(3e-6) == pytest.approx(2e-5)  # as if it were in time
    assert arrival(9e-6) == pytest.approx(2e-5 + 9e-6 - 4e-6)


def test_a_withdrawn_receive_occupies_no_port():
    def program(comm):
        port, status = Throttled(comm, BETA), Status()
        request = port.Irecv(np.empty(1000, np.uint8), 1 - comm.rank)
        request.Cancel()
        request.Wait(status)
        return status.count, comm.Wtime()

    assert sim.run(program, 2, FREE) == [(WITHDRAWN, 0.0)] * 2


def test_times_of_messages_are_not_counted():
    def program(comm):
        metered = Metered(comm)
        byteps_allreduce(Throttled(metered, BETA), np.ones(100, np.float32), spare=1)
        return metered.bytes_sent

    assert sim.run(program, 3, FREE) == [400] * 3
