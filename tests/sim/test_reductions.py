"""Allreduce and Reduce_local of virtual ranks: values, operations and refusals."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput, ufunc_of
from dml.types.operations import DTYPES

X = np.arange(1.0, 4)


def reduced(size, arguments, split=False):
    """Return recvbuf of every rank; arguments(rank) are those of Allreduce."""

    def program(comm):
        sendbuf, recvbuf, *op = arguments(comm.rank)
        comm = comm.Split(comm.rank % 2) if split else comm
        comm.Allreduce(sendbuf, recvbuf, *op)
        return recvbuf

    return sim.run(program, size)


@pytest.mark.parametrize("split", [False, True])
def test_allreduce_sums_sendbuf_and_leaves_it_unchanged(split):
    sent = [np.full(3, rank + 1.0) for rank in range(4)]
    found = reduced(4, lambda rank: (sent[rank], np.full(3, -7.0)), split)
    expected = [4, 6, 4, 6] if split else [10] * 4
    assert [array.tolist() for array in found] == [[total] * 3 for total in expected]
    assert [array[0] for array in sent] == [1, 2, 3, 4]


def test_allreduce_in_place_reduces_recvbuf_of_any_shape_in_memory_order():
    def arguments(rank):
        return None, np.arange(6.0).reshape(2, 3, order="CF"[rank])

    first, second = reduced(2, arguments)
    memory = arguments(0)[1].ravel("K") + arguments(1)[1].ravel("K")
    assert first.ravel("K").tolist() == second.ravel("K").tolist() == memory.tolist()


@pytest.mark.parametrize("ufunc", DTYPES, ids=lambda ufunc: ufunc.__name__)
def test_allreduce_accepts_the_dtypes_of_an_operation_only(ufunc):
    for dtype in "?bhilqBHILQefdgFDGSUO":
        sent = [np.array([1, 0, 1 + rank]).astype(dtype) for rank in range(3)]

        def arguments(rank):
            return sent[rank], np.zeros_like(sent[rank]), ufunc  # noqa: B023

        if dtype in DTYPES[ufunc]:
            expected = ufunc(ufunc(sent[0], sent[1]), sent[2]).astype(dtype)
            found = [array.tolist() for array in reduced(3, arguments)]
            assert found == [expected.tolist()] * 3, dtype
        else:
            with pytest.raises(BadInput, match="an operation and a dtype of MPI"):
                reduced(3, arguments)


REFUSED = {
    "a dtype": (X, np.zeros(3, np.float32)),
    "a length": (X, np.zeros(4)),
    "strides": (None, np.zeros(6)[::2]),
    "a list": (None, [1.0, 2.0]),
    "read-only": (None, np.broadcast_to(1.0, 3)[:1]),
    "an operation": (None, np.zeros(3), np.hypot),
    "no operation": (None, np.zeros(3), max),
    "other bytes": (None, np.zeros(3, ">f8")),
    "overlap": (X, X),
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_allreduce_refuses_what_mpi_does_not_define(arguments):
    with pytest.raises(BadInput, match="expected .* got .*; (pass|use) "):
        reduced(1, lambda rank: arguments)


@pytest.mark.parametrize(
    "other, problem",
    [
        ((np.zeros(4),), "3 x float64, add on rank 0 and 4 x float64, add on rank 1"),
        ((np.zeros(3, int),), "3 x float64, add on rank 0 and 3 x int64, add"),
        ((np.zeros(3), np.maximum), "3 x float64, add on rank 0 and .* maximum on"),
    ],
)
def test_allreduce_refuses_arguments_that_differ_between_ranks(other, problem):
    with pytest.raises(BadInput, match=f"equal arguments of Allreduce .* {problem}"):
        reduced(2, lambda rank: (None, *other) if rank else (None, np.zeros(3)))


def test_reduce_local_refuses_buffers_that_do_not_fit():
    def program(comm):
        for inbuf in (np.zeros(4), np.zeros(3, complex)):
            with pytest.raises(BadInput, match="of one length and dtype for add"):
                comm.Reduce_local(inbuf, np.zeros(3), np.add)
        with pytest.raises(BadInput, match="expected an operation such as"):
            comm.Reduce_local(X, X.copy(), "sum")

    sim.run(program, 1)


def test_operations_of_mpi4py_are_those_of_numpy():
    mpi = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)

    def program(comm):
        term, total = np.array([3, 4]), np.array([1, 6])
        comm.Reduce_local(term, total, mpi.MAX)
        comm.Allreduce(mpi.IN_PLACE, total, mpi.SUM)
        return total.tolist()

    assert sim.run(program, 2) == [[6, 12]] * 2
    assert ufunc_of(mpi.BXOR) is ufunc_of(np.bitwise_xor) is np.bitwise_xor
    with pytest.raises(BadInput, match="expected an operation such as np.add"):
        ufunc_of(mpi.MAXLOC)
