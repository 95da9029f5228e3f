"""Blocks pass from rank to rank whole, and are not written over while they are read."""

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives.block_transfers import BlockTransfers
from dml.wire.comm import Metered


@pytest.mark.parametrize("eager", (0, 1 << 20))
@pytest.mark.parametrize("size", (2, 3, 5))
def test_blocks_go_round_the_ring_and_everyone_adds_to_them(size, eager):
    laps, length = 4, 1000

    def program(comm):
        metered = Metered(comm)
        parts = {block: np.zeros(length + block) for block in range(size)}
        transfers = BlockTransfers(metered, parts)
        up, down = (comm.rank + 1) % size, (comm.rank - 1) % size
        for turn in range(laps * size):
            block = (comm.rank - turn) % size
            if turn:
                transfers.receive([(block, down)])
            parts[block] += 1
            transfers.send([(block, up)])
        transfers.receive([(comm.rank, down)])
        transfers.wait()
        assert not transfers.under_way
        return parts[comm.rank], metered.bytes_sent, metered.messages_sent

    sent = 0
    for rank, found in enumerate(sim.run(program, size, sim.Uniform(eager=eager))):
        block, nbytes, messages = found
        assert block.tolist() == [laps * size] * (length + rank)
        assert messages == laps * size
        sent += nbytes
    assert sent == 8 * laps * size * sum(length + block for block in range(size))


def test_blocks_are_known_by_their_numbers_not_by_their_order():
    def program(comm):
        parts = {block: np.full(3, comm.rank * 10.0 + block) for block in range(6)}
        transfers = BlockTransfers(comm, parts)
        if comm.rank:
            transfers.send((block, 0) for block in range(6))
        else:
            transfers.receive((block, 1) for block in (3, 0, 5, 1, 4, 2))
        transfers.wait()
        return [part.tolist() for part in parts.values()]

    want = [[10.0 + block] * 3 for block in range(6)]
    assert sim.run(program, 2, sim.Uniform(eager=0))[0] == want


@pytest.mark.parametrize("eager", (0, 1 << 20))
def test_a_block_without_memory_sends_no_word_and_still_is_waited_for(eager):
    network = sim.Uniform(alpha=1.0, eager=eager)

    def program(comm):
        metered = Metered(comm)
        transfers = BlockTransfers(metered, {})
        if comm.rank:
            transfers.receive([(3, 0)])
        else:
            transfers.send([(3, 1)])
        transfers.wait()
        return metered.messages_sent, metered.bytes_sent, comm.Wtime() >= 1.0

    sender, receiver = sim.run(program, 2, network)
    assert (sender[:2], receiver) == ((1, 0), (0, 0, True))


def test_a_block_that_comes_back_waits_until_it_has_left():
    """Its sender reads the memory into which it comes: by rendezvous, quite late."""

    def program(comm):
        parts = {0: np.full(1000, 1.0 + comm.rank)}
        transfers = BlockTransfers(comm, parts)
        if comm.rank == 0:
            transfers.send([(0, 1)])
            transfers.receive([(0, 2)])
        elif comm.rank == 1:
            word = np.zeros(1)
            comm.Recv(word, 2, 1)
            transfers.receive([(0, 0)])
        else:
            transfers.send([(0, 0)])
            comm.Send(np.zeros(1), 1, 1)
        transfers.wait()
        return parts[0][0]

    assert sim.run(program, 3, sim.Uniform(eager=0)) == [3.0, 1.0, 3.0]
