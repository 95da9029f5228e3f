"""Arguments and results that differ between ranks raise on all of them; no hang."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, tree_allreduce, with_check
from dml.wire.collectives.benchmark import benchmark
from dml.wire.collectives.check import compare_replicas
from dml.wire.comm import Metered
from dml.wire.comm.buffers import allocate


def refusals(size, call):
    """What every rank said when it called a checked all-reduce that must be refused."""

    def program(comm):
        try:
            call(comm, with_check(ALLREDUCE["ring"]))
        except BadInput as error:
            return str(error)
        return ""

    return sim.run(program, size)


@pytest.mark.parametrize("odd", (0, 1, -1))
@pytest.mark.parametrize("size", (2, 3, 5, 8))
@pytest.mark.parametrize(
    "length, dtype, op, words",
    [
        (5, "f4", np.add, ("4 x float32", "5 x float32", "pass buffers")),
        (4, "i4", np.add, ("4 x float32", "4 x int32")),  # the same bytes on the wire
        (4, "f4", np.maximum, ("for add", "for maximum")),
    ],
)
def test_what_differs_is_named_on_every_rank(length, dtype, op, words, size, odd):
    def call(comm, allreduce):
        same = np.zeros(4, "f4"), np.add
        other = np.zeros(length, dtype), op
        allreduce(comm, *(other if comm.rank == odd % size else same))

    for said in refusals(size, call):
        for word in (*words, "rank 0", f"rank {odd % size or 1}"):
            assert word in said


@pytest.mark.parametrize("bad", range(3))
@pytest.mark.parametrize("kind", ("strided", "read-only", "a list"))
def test_a_bad_buffer_on_one_rank_raises_on_every_rank(kind, bad):
    def call(comm, allreduce):
        wrong = {"strided": np.zeros(8)[::2], "a list": [0.0] * 4}
        wrong["read-only"] = np.broadcast_to(0.0, 4)
        allreduce(comm, wrong[kind] if comm.rank == bad else np.zeros(4))

    for rank, said in enumerate(refusals(3, call)):
        assert f"rank {bad}" in said
        if rank == bad:
            assert "expected a contiguous writeable buffer" in said
        else:
            assert "a bad buffer" in said
            assert "4 x float64" in said


def test_a_refused_call_leaves_every_buffer_and_communicator_as_they_were():
    def program(comm):
        allreduce = with_check(ALLREDUCE["ring"])
        buffer = np.full(4 + (comm.rank == 2), comm.rank, np.float32)
        with pytest.raises(BadInput):
            allreduce(comm, buffer)
        untouched = (buffer == comm.rank).all()
        allreduce(comm, buffer[:4])
        return bool(untouched), buffer[:4].tolist()

    assert sim.run(program, 4) == [(True, [6.0] * 4)] * 4


def test_options_of_an_allreduce_pass_through_the_check():
    def program(comm):
        buffer = np.full((3, 3), comm.rank, np.int32)
        with_check(ALLREDUCE["hierarchical"])(
            comm, buffer, np.maximum, group=2, outside=ALLREDUCE["tree"]
        )
        return set(buffer.flat)

    assert sim.run(program, 5) == [{4}] * 5


def test_without_a_check_lengths_that_differ_raise():
    def program(comm):
        ALLREDUCE["ring"](comm, np.zeros(400 + 100 * comm.rank))

    with pytest.raises(BadInput, match="truncated.*equal lengths") as caught:
        sim.run(program, 2)
    assert "on virtual rank" in caught.value.__notes__[0]


@pytest.mark.parametrize("where", ("another slice", "plain memory"))
@pytest.mark.parametrize("name", ("shared", "hierarchical", "auto"))
def test_registered_memory_that_differs_is_named_or_reduced_right(name, where):
    """Equal lengths in other places: in shared memory, wrong numbers or a hang."""

    def program(comm):
        memory = allocate(comm, 60_000, np.float32)
        buffer = memory[:20_000]
        if comm.rank == 1:
            plain = np.zeros(20_000, np.float32)
            buffer = plain if where == "plain memory" else memory[30_000:50_000]
        buffer[:] = comm.rank + 1
        try:
            with_check(ALLREDUCE[name])(comm, buffer)
        except BadInput as error:
            return str(error)
        assert set(buffer.tolist()) == {6.0}
        return ""

    assert len(set(sim.run(program, 3))) == 1


def test_replicas_that_differ_in_one_element_are_named_and_counts_are_added():
    def program(comm, odd):
        buffer = np.zeros(1000)
        buffer[odd] = comm.rank in (2, 3)
        return compare_replicas(comm, buffer, comm.rank, 1 << 40)[1]

    for odd in (0, -1):
        with pytest.raises(RuntimeError, match="rank 2 differs from rank 0"):
            sim.run(lambda comm, odd=odd: program(comm, odd), 5)
    assert sim.run(lambda comm: program(comm, slice(0)), 4) == [[6, 4 << 40]] * 4


def test_every_word_of_the_hash_is_compared(monkeypatch):
    class Hash:
        def __init__(self, data):
            self.bytes = bytes(24) + bytes(data)[:8]

        def digest(self):
            return self.bytes

    monkeypatch.setattr("hashlib.sha256", Hash)
    with pytest.raises(RuntimeError, match="rank 1 differs"):
        sim.run(lambda comm: compare_replicas(comm, np.array([int(comm.rank == 1)])), 3)


def zeros(comm, buffer, op=np.add):
    buffer[...] = 0


def last_word_twice(comm, buffer, op=np.add):
    tree_allreduce(comm, buffer, op)
    buffer[-1:] *= 2


def rank_0_only(comm, buffer, op=np.add):
    if comm.rank == 0:
        buffer[...] = 0


def run(allreduce, dtype, length, p):
    def program(comm):
        buffer = np.zeros(length, dtype)
        return benchmark(Metered(comm), {"tried": allreduce}, buffer, 1)

    return sim.run(program, p)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.complex64])
@pytest.mark.parametrize("length, p", [(0, 3), (1, 1), (1, 5), (7, 3), (3, 40)])
@pytest.mark.parametrize("name", ["ring", "butterfly", "star"])
def test_correct_sums_pass(name, dtype, length, p):
    (row,) = run(ALLREDUCE[name], dtype, length, p)[0]
    assert row["sha256"]


@pytest.mark.parametrize(
    "allreduce, message",
    [
        (zeros, "expected the sum over all ranks, but element 0 differs"),
        (last_word_twice, "expected the sum over all ranks, but element 6 differs"),
        (rank_0_only, "expected bit-identical results on all ranks"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_wrong_sums_are_refused(allreduce, message, dtype):
    with pytest.raises(BadInput, match=message):
        run(allreduce, dtype, 7, 3)
