"""All-to-all and transfers of blocks: everything arrives, in the expected words."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import all_to_all
from dml.wire.collectives.block_transfers import BlockTransfers
from dml.wire.comm import Metered

SIZES = (*range(1, 10), 16)
PAIR = np.dtype([("word", "<i4"), ("value", "<u8")])


def part(source, dest, dtype):
    """What source has for dest: no two parts alike, some empty, lengths uneven."""
    length = (source * 7 + dest * 3) % 5 * (1 + 3 * dest)
    values = np.arange(length) + 1000 * source + 100_000 * dest
    if np.dtype(dtype) != PAIR:
        return values.astype(dtype)
    found = np.empty(length, PAIR)
    found["word"], found["value"] = values, values.astype("u8") << np.uint64(33)
    return found


@pytest.mark.parametrize("dtype", ("uint8", "int32", "float64", PAIR), ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_every_part_arrives_at_its_rank(size, dtype):
    def program(comm):
        parts = [part(comm.rank, dest, dtype) for dest in range(size)]
        received = all_to_all(comm, parts)
        want = [part(source, comm.rank, dtype) for source in range(size)]
        pairs = list(zip(received, want, strict=True))
        return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)

    assert sim.run(program, size) == [True] * size
    assert sim.run(program, size, sim.Uniform(eager=0), seed=1) == [True] * size


def test_a_part_may_have_a_step_and_the_part_for_oneself_stays_where_it_is():
    def program(comm):
        part = (np.arange(20) + 100 * comm.rank)[::7]
        received = all_to_all(comm, [part] * 2)
        assert received[comm.rank] is part
        return [found.tolist() for found in received]

    assert sim.run(program, 2) == [[[0, 7, 14], [100, 107, 114]]] * 2


@pytest.mark.parametrize("size", SIZES)
def test_it_takes_the_stated_rounds_and_words(size):
    network = sim.Uniform(1e-6, 1e-9)

    def program(comm):
        metered = Metered(comm)
        all_to_all(metered, [np.zeros(100, np.float32)] * size)
        return comm.Wtime(), metered.messages_sent, metered.bytes_sent

    rounds, sent = 2 * (size - 1), (size - 1) * (8 + 400)
    for clock, messages, nbytes in sim.run(program, size, network):
        assert (messages, nbytes) == (rounds, sent)
        assert clock == pytest.approx(rounds * 1e-6 + sent * 1e-9, rel=1e-9)


@pytest.mark.parametrize(
    "parts",
    (
        [np.zeros(3)],
        [np.zeros(3), np.zeros(3, np.float32)],
        [np.zeros((2, 2)), np.zeros((2, 2))],
    ),
)
def test_parts_that_cannot_travel_are_named_with_the_rank(parts):
    def program(comm):
        with pytest.raises(BadInput, match=f"rank {comm.rank}: expected 2 vectors"):
            all_to_all(comm, parts)

    sim.run(program, 2)


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


class Negative(Metered):
    """Sends a negative length."""

    def Sendrecv(self, sendbuf, *arguments):
        length = np.array([-3]) if sendbuf.dtype == np.int64 else sendbuf
        super().Sendrecv(length, *arguments)


def test_a_negative_length_is_refused_with_the_rank():
    def program(comm):
        sender = Negative(comm) if comm.rank == 2 else comm
        all_to_all(sender, [np.zeros(2, np.float32)] * 3)

    with pytest.raises(BadInput, match="length of 0 or more from rank 2, got -3"):
        sim.run(program, 3)
