"""Checks of an all-reduce; each raises AssertionError with the first fault.

A check is a function of an all-reduce, a function `run(program, size)` that returns
results by rank, and a number of ranks or cases. `run` may pass a communicator of mpi4py
to the program; the all-reduce receives a Comm.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dml.conformance.known_results import OPS, Case, cases, fault, inputs, lengths
from dml.types import AllReduce, BadInput, Comm
from dml.wire.comm.buffers import allocate, release
from dml.wire.comm.plain import as_comm

Run = Callable[[Callable[[Any], Any], int], list[Any]]
MAX_ITEMSIZE = 16  # bytes of the largest dtype
GUARD = 3  # elements before and after a buffer that must not change
GUARD_VALUE = 77


def digest(array: np.ndarray) -> str:
    """Return the hash of the bytes of an array."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def reduce_case(
    comm: Comm, allreduce: AllReduce, case: Case, memory: np.ndarray
) -> tuple[str, str]:
    """Reduce a case in a part of `memory`; return the fault and the result's hash."""
    dtype = np.dtype(case.dtype)
    guarded = memory[: (case.length + 2 * GUARD) * dtype.itemsize].view(dtype)
    guarded[:] = GUARD_VALUE
    buffer = guarded[GUARD : GUARD + case.length]
    buffer[:] = inputs(case)[comm.rank]
    if case.op == "sum" and case.length % 2:
        allreduce(comm, buffer)  # sum is the default
    else:
        allreduce(comm, buffer, OPS[case.op])
    description = fault(case, buffer)
    outside = np.delete(guarded, np.s_[GUARD : GUARD + case.length])
    if (outside != GUARD_VALUE).any():
        description = description or (
            f"it wrote beyond a buffer of {case.length} elements"
        )
    return description, digest(buffer)


def check_results(allreduce: AllReduce, run: Run, cases: Sequence[Case]) -> None:
    """Check that results are correct and bit-identical on all ranks.

    Each case is reduced in plain memory, then in registered memory.
    """
    if not cases:
        return

    def program(comm: Comm) -> list[tuple[str, str]]:
        nbytes = (max(case.length for case in cases) + 2 * GUARD) * MAX_ITEMSIZE
        plain, registered = np.empty(nbytes, np.uint8), allocate(comm, nbytes, np.uint8)
        results = [
            reduce_case(comm, allreduce, case, memory)
            for case in cases
            for memory in (plain, registered)
        ]
        release(comm, registered)
        return results

    by_rank = on_ranks(run, program, cases[0].size)
    for rank, results in enumerate(by_rank):
        for index, (description, hashed) in enumerate(results):
            assert not description, f"rank {rank}: {description}"
            case = cases[index // 2]  # two results per case, one per kind of memory
            assert hashed == by_rank[0][index][1], (
                f"rank {rank} and rank 0 differ in bits in the {case.op} of "
                f"{case.length} elements of {case.dtype} on {case.size} ranks"
            )


def check_shapes(allreduce: AllReduce, run: Run, size: int) -> None:
    """Check that contiguous buffers of several axes are reduced in place."""
    case = Case(size, 42, "int64", "sum")

    def program(comm: Comm) -> list[str]:
        faults = []
        for shape in ((6, 7), (2, 3, 7), (1, 42), (42, 1)):
            buffer = inputs(case)[comm.rank].reshape(shape).copy()
            allreduce(comm, buffer)
            faults.append(fault(case, buffer.reshape(-1)))
        return faults

    assert_none(on_ranks(run, program, size))


def check_groups(allreduce: AllReduce, run: Run, size: int) -> None:
    """Check all-reduces in groups of a communicator, and in their parent afterwards.

    The colours of Split make groups of unequal sizes; its keys reverse the ranks.
    """

    def program(comm: Comm) -> list[str]:
        faults = []
        for color in (comm.rank % 2, int(comm.rank < size // 3), 0):
            group = comm.Split(color, -comm.rank)
            case = Case(group.size, 23, "int32", "sum")
            buffer = inputs(case)[group.rank].copy()
            allreduce(group, buffer)
            faults.append(fault(case, buffer))
            group.Free()
        case = Case(size, 23, "int32", "sum")
        buffer = inputs(case)[comm.rank].copy()
        allreduce(comm, buffer)
        return [*faults, fault(case, buffer)]

    assert_none(on_ranks(run, program, size))


def check_bad_buffers(allreduce: AllReduce, run: Run, size: int) -> None:
    """Check that an unusable buffer raises BadInput on its rank and does not change."""

    def program(comm: Comm) -> list[str]:
        frozen = np.arange(12.0)
        frozen.flags.writeable = False
        bad: dict[str, Any] = {
            "every other element of an array": np.arange(12.0)[::2],
            "a reversed array": np.arange(12.0)[::-1],
            "a column of a matrix": np.arange(12.0).reshape(3, 4)[:, 1],
            "a transposed matrix": np.arange(12.0).reshape(3, 4).T,
            "a read-only array": frozen,
            "a list": [1.0, 2.0],
        }
        faults = []
        for name, buffer in bad.items():
            before = np.array(buffer)
            try:
                allreduce(comm, buffer)
                faults.append(
                    f"it accepts {name}; before the first message, call "
                    "dml.flat(comm, buffer), which raises BadInput"
                )
            except BadInput as error:
                if f"rank {comm.rank}" not in str(error):
                    faults.append(f"{name}: {error} does not name rank {comm.rank}")
            if not np.array_equal(before, buffer):
                faults.append(f"it changes {name}")
        return faults

    assert_none(on_ranks(run, program, size))


def on_ranks(run: Run, program: Callable[[Comm], Any], size: int) -> list[Any]:
    """Run a program, whose communicator is a Comm; return the results by rank."""
    return run(lambda comm: program(as_comm(comm)), size)


def assert_none(faults: Sequence[Sequence[str]]) -> None:
    """Raise AssertionError with the first fault of the ranks."""
    for rank, descriptions in enumerate(faults):
        for description in descriptions:
            assert not description, f"rank {rank}: {description}"


def check_order(
    allreduce: AllReduce,
    run: Run,
    size: int,
    order: Callable[[np.ndarray], np.ndarray],
    extra_lengths: Iterable[int] = (),
) -> None:
    """Check the order in which float32 elements are added, by the hash of the sums.

    Args:
      allreduce: All-reduce.
      run: (program, size) -> results by rank.
      size: Number of ranks.
      order: Inputs of all ranks, a row per rank -> sum in the expected order.
      extra_lengths: Further numbers of elements.
    """
    order_cases = [
        Case(size, n, "float32", "sum", True)
        for n in (*lengths(size), 1009, *extra_lengths)
    ]

    def program(comm: Comm) -> list[str]:
        hashes = []
        for case in order_cases:
            buffer = inputs(case)[comm.rank].copy()
            allreduce(comm, buffer)
            hashes.append(digest(buffer))
        return hashes

    references = [digest(order(inputs(case))) for case in order_cases]
    for rank, hashes in enumerate(on_ranks(run, program, size)):
        for case, hashed, reference in zip(
            order_cases, hashes, references, strict=True
        ):
            assert hashed == reference, (
                f"rank {rank}: the sum differs in bits from {order.__name__} in {case}"
            )


def check_behaviour(
    allreduce: AllReduce,
    run: Run,
    size: int,
    order: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Check shapes, groups, unusable buffers and, if given, the order of additions."""
    check_shapes(allreduce, run, size)
    check_groups(allreduce, run, size)
    check_bad_buffers(allreduce, run, size)
    if order:
        check_order(allreduce, run, size, order)


def conform(
    allreduce: AllReduce,
    run: Run,
    size: int,
    all_pairs: bool = True,
    extra_lengths: Iterable[int] = (),
    order: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Run all checks on `size` ranks.

    Args:
      allreduce: All-reduce.
      run: (program, size) -> results by rank.
      size: Number of ranks.
      all_pairs: Whether every dtype is combined with every operation.
      extra_lengths: Further numbers of elements.
      order: Inputs of all ranks -> sum in the expected order; None accepts any order.
    """
    check_results(allreduce, run, cases(size, lengths(size), all_pairs))
    check_results(allreduce, run, cases(size, extra_lengths, False))
    check_behaviour(allreduce, run, size, order)
