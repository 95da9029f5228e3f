"""The suite must catch every way of being wrong that simpler tests let pass."""

import numpy as np
import pytest

from dml import sim
from dml.conformance.comparisons import conform
from dml.wire.collectives import ALLREDUCE, all_gather, broadcast
from dml.wire.collectives.ring import ring_allreduce, ring_gather
from dml.wire.comm.buffers import address, flat
from dml.wire.plans.topology import chunks
from tests.wire.comm import orders

MUTANTS = []


def wrong(allreduce):
    """Register an all-reduce that the suite must catch."""
    MUTANTS.append(allreduce)
    return allreduce


@wrong
def two_chunks_swapped(comm, buffer, op=np.add):
    ring_allreduce(comm, buffer, op)
    words = flat(comm, buffer)
    first, *_, last = chunks(len(words), comm.size) * 2
    if len(words) % comm.size == 0:
        words[first], words[last] = words[last].copy(), words[first].copy()


@wrong
def a_rank_counted_twice(comm, buffer, op=np.add):
    """Rank 1 sends the buffer of rank 0, so its own terms are lost."""
    words = flat(comm, buffer)
    if comm.size > 1:
        if comm.rank == 0:
            comm.Send(words, 1, 99)
        elif comm.rank == 1:
            comm.Recv(words, 0, 99)
    ring_allreduce(comm, words, op)


@wrong
def an_add_before_its_receive_is_complete(comm, buffer, op=np.add):
    words = flat(comm, buffer)
    parts, rank, size = chunks(len(words), comm.size), comm.rank, comm.size
    for i in range(size - 1):
        give, mine = parts[(rank - i) % size], parts[(rank - i - 1) % size]
        received = np.zeros_like(words[mine])
        receive = comm.Irecv(received, (rank - 1) % size, 99)
        send = comm.Isend(words[give], (rank + 1) % size, 99)
        comm.Reduce_local(received, words[mine], op)
        receive.Wait()
        send.Wait()
    ring_gather(comm, words, parts)


@wrong
def a_lost_last_element(comm, buffer, op=np.add):
    ring_allreduce(comm, flat(comm, buffer)[:-1], op)


@wrong
def right_on_rank_0_only(comm, buffer, op=np.add):
    words = flat(comm, buffer)
    before = words.copy()
    ring_allreduce(comm, words, op)
    if comm.rank:
        words[:] = before


@wrong
def wrong_on_the_last_rank_only(comm, buffer, op=np.add):
    words = flat(comm, buffer)
    ring_allreduce(comm, words, op)
    if comm.size > 1 and comm.rank == comm.size - 1:
        words[-1:] += words.dtype.type(1)


@wrong
def an_order_rotated_by_rank(comm, buffer, op=np.add):
    """Everyone adds up all buffers, beginning with its own: replicas differ in bits."""
    words = flat(comm, buffer)
    rows = np.empty((comm.size, len(words)), words.dtype)
    rows[comm.rank] = words
    all_gather(comm, rows)
    words[:] = rows[comm.rank]
    for ahead in range(1, comm.size):
        op(words, rows[(comm.rank + ahead) % comm.size], out=words)


@wrong
def another_order_than_it_says(comm, buffer, op=np.add):
    """The same bits on all ranks, but those of a butterfly."""
    ALLREDUCE["butterfly"](comm, buffer, op)


@wrong
def always_a_sum(comm, buffer, op=np.add):
    ring_allreduce(comm, buffer)


@wrong
def through_float32(comm, buffer, op=np.add):
    words = flat(comm, buffer)
    rounded = words.real.astype(np.float32)
    with np.errstate(all="ignore"):
        ring_allreduce(comm, rounded, op)
        words[:] = rounded


@wrong
def beyond_the_buffer(comm, buffer, op=np.add):
    ring_allreduce(comm, buffer, op)
    memory = buffer.base  # the bytes that it is a part of
    if memory is not None and memory.dtype == np.uint8:
        stop = address(buffer) - address(memory) + buffer.nbytes
        memory[stop : stop + 1] += 1


@wrong
def only_powers_of_two(comm, buffer, op=np.add):
    """Forgets the ranks that a butterfly folds."""
    words = flat(comm, buffer)
    power = 1 << (comm.size.bit_length() - 1)
    inner = comm.Split(int(comm.rank >= power), comm.rank)
    ring_allreduce(inner, words, op)
    broadcast(comm, words)


@wrong
def a_copy_of_what_is_not_contiguous(comm, buffer, op=np.add):
    """Takes every buffer, and reduces a copy of some."""
    words = np.ascontiguousarray(buffer).reshape(-1)
    ring_allreduce(comm, words.copy() if not words.flags.writeable else words, op)


@pytest.mark.parametrize("size", (3, 5))
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_mutant_is_caught(mutant, size):
    with pytest.raises(AssertionError):
        conform(mutant, sim.run, size, all_pairs=False, order=orders.ring)


def test_replicas_that_differ_only_in_bits_are_caught_as_such():
    with pytest.raises(AssertionError, match="and rank 0 differ in bits"):
        conform(an_order_rotated_by_rank, sim.run, 5, all_pairs=False)
