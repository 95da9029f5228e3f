"""What every all-reduce must do: one suite for any of them, on any kind of rank.

An all-reduce, a size and `run(program, size)` -> results by rank come in; an
AssertionError that says what is wrong comes out. `run` is `dml.sim.run`, or the real
world under mpirun. Ranks compare with what one process computes alone; `conform` then
compares the ranks with each other.
"""

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.comm.buffers import allocate, release

Run = Callable[[Callable[[Any], Any], int], list[Any]]
AllReduce = Callable[..., None]
Order = Callable[[np.ndarray], np.ndarray]
OPS = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum}
DTYPES = ("float16", "float32", "float64", "int32", "int64")
LONG = 100_003
GUARD = 3  # words before and after a buffer that nobody may touch


class Case(NamedTuple):
    """One all-reduce whose result is known."""

    size: int
    length: int
    dtype: str
    op: str  # of OPS
    rounds_off: bool = False  # whether the order of adding shows in the bits


def lengths(size: int) -> list[int]:
    return sorted({0, 1, size - 1, size, size + 1, 97})


def cases(size: int, lengths: Iterable[int], every: bool = True) -> list[Case]:
    """Every length, dtype and operation; or each dtype, each operation per length."""
    ops = tuple(OPS)
    pairs = list(product(DTYPES, ops))
    if not every:
        pairs = [(DTYPES[i], ops[(i + j) % 4]) for i in range(5) for j in (0, 2)]
    kinds = [(*pair, False) for pair in pairs]
    kinds += [(name, "sum", True) for name in DTYPES if name.startswith("float")]
    return [Case(size, n, *kind) for n in lengths for kind in kinds]


@lru_cache(maxsize=32)
def given(case: Case) -> np.ndarray:
    """What every rank brings, a row each: distinct, and no two words alike.

    The exact cases stay exact in any order: floats are small whole numbers (powers of
    two where they are multiplied), integers use more bits than a float has.
    """
    shape, dtype = (case.size, case.length), np.dtype(case.dtype)
    rng = np.random.default_rng([case.size, case.length, case.op == "product"])
    if case.rounds_off:
        return (rng.standard_normal(shape) * 10 ** rng.uniform(-2, 2, shape)).astype(
            dtype
        )
    if dtype.kind == "i":
        most = np.iinfo(dtype).max // 32
        rows = rng.integers(-most, most, shape, dtype, endpoint=True)
        return rows | (case.op == "product")  # a product of odd ones is never zero
    if case.op == "product":
        rows = rng.choice([-1.0, 1.0], shape)
        rows[:8] *= rng.choice([0.5, 2.0], rows[:8].shape)  # so that float16 holds it
        return rng.permuted(rows, axis=0).astype(dtype)
    return rng.integers(-60, 60, shape, endpoint=True).astype(dtype)


@lru_cache(maxsize=32)
def expected(case: Case) -> np.ndarray:
    rows = given(case)
    if case.rounds_off:
        return rows.astype(np.float64).sum(axis=0)
    return OPS[case.op].reduce(rows, axis=0, dtype=rows.dtype)


def judge(case: Case, result: np.ndarray) -> str:
    """Say what is wrong with a result; nothing if it is right."""
    want = expected(case)
    if case.rounds_off:
        # p-1 additions, each off by half a last bit of a partial sum at most: the
        # bound of any order (Higham 2002, eq. 4.4).
        rows = given(case)
        most = np.abs(rows.astype(np.float64)).sum(axis=0)
        off = np.abs(result.astype(np.float64) - want)
        wrong = ~(off <= (case.size - 1) * np.finfo(rows.dtype).eps * most)
    else:
        wrong = ~(result == want)
    if not wrong.any():
        return ""
    word = int(np.flatnonzero(wrong)[0])
    return (
        f"{case}: {wrong.sum()} words wrong, the first at {word}: "
        f"got {result[word]!r}, not {want[word]!r}"
    )


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def reduce_case(
    comm: Any, allreduce: AllReduce, case: Case, memory: np.ndarray
) -> tuple[str, str]:
    """Reduce once in some memory; return what is wrong and the hash of the bits."""
    dtype = np.dtype(case.dtype)
    whole = memory[: (case.length + 2 * GUARD) * dtype.itemsize].view(dtype)
    whole[:] = 77
    buffer = whole[GUARD : GUARD + case.length]
    buffer[:] = given(case)[comm.rank]
    if case.op == "sum" and case.length % 2:
        allreduce(comm, buffer)  # which is what it does when not told
    else:
        allreduce(comm, buffer, OPS[case.op])
    said, bits = judge(case, buffer), digest(buffer)
    if (whole[:GUARD] != 77).any() or (whole[GUARD + case.length :] != 77).any():
        said += f" {case}: wrote beyond the buffer"
    return said, bits


def conform(
    allreduce: AllReduce,
    run: Run,
    size: int,
    every: bool = True,
    more: Iterable[int] = (),
    order: Order | None = None,
) -> None:
    """Assert all that can be asked of an all-reduce on `size` ranks.

    With `every`, every dtype meets every operation. `more` are lengths to try besides.
    `order` says in what order float32 words are added, to the bit.
    """
    reduces(allreduce, run, cases(size, lengths(size), every))
    reduces(allreduce, run, cases(size, more, False))
    behaves(allreduce, run, size, order)


def behaves(
    allreduce: AllReduce, run: Run, size: int, order: Order | None = None
) -> None:
    """Assert what `conform` asks besides right numbers of every kind."""
    reduces_any_shape(allreduce, run, size)
    reduces_in_groups(allreduce, run, size)
    refuses_bad_buffers(allreduce, run, size)
    if order:
        keeps_order(allreduce, run, size, order)


def reduces(allreduce: AllReduce, run: Run, cases: list[Case]) -> None:
    """Assert right numbers, and the same bits on all ranks, plain and registered."""
    if not cases:
        return

    def program(comm: Any) -> list[tuple[str, str]]:
        most = (max(case.length for case in cases) + 2 * GUARD) * 8
        plain, registered = np.empty(most, np.uint8), allocate(comm, most, np.uint8)
        found = [
            reduce_case(comm, allreduce, case, memory)
            for case in cases
            for memory in (plain, registered)
        ]
        release(comm, registered)
        return found

    found = run(program, cases[0].size)
    for rank, mine in enumerate(found):
        for (said, bits), (_, first) in zip(mine, found[0], strict=True):
            assert not said, f"rank {rank}: {said}"
            assert bits == first, f"rank {rank} has other bits than rank 0"


def check(found: list[list[str]]) -> None:
    for rank, said in enumerate(found):
        assert not any(said), f"rank {rank}: {said}"


def reduces_any_shape(allreduce: AllReduce, run: Run, size: int) -> None:
    """Assert that contiguous buffers of two or more axes are reduced in place."""
    case = Case(size, 42, "int64", "sum")

    def program(comm: Any) -> list[str]:
        said = []
        for shape in ((6, 7), (2, 3, 7), (1, 42), (42, 1)):
            buffer = given(case)[comm.rank].reshape(shape).copy()
            allreduce(comm, buffer)
            said.append(judge(case, buffer.reshape(-1)))
        return said

    check(run(program, size))


def reduces_in_groups(allreduce: AllReduce, run: Run, size: int) -> None:
    """Assert that groups of a communicator reduce by themselves, and their parent too.

    Colours make groups of unequal sizes, keys turn the ranks of each round.
    """

    def program(comm: Any) -> list[str]:
        said = []
        for color in (comm.rank % 2, int(comm.rank < size // 3), 0):
            group = comm.Split(color, -comm.rank)
            case = Case(group.size, 23, "int32", "sum")
            buffer = given(case)[group.rank].copy()
            allreduce(group, buffer)
            said.append(judge(case, buffer))
            group.Free()
        case = Case(size, 23, "int32", "sum")
        buffer = given(case)[comm.rank].copy()
        allreduce(comm, buffer)
        return [*said, judge(case, buffer)]

    check(run(program, size))


def refuses_bad_buffers(allreduce: AllReduce, run: Run, size: int) -> None:
    """Assert that a bad buffer raises on its rank, naming it, and stays as it was."""

    def program(comm: Any) -> list[str]:
        frozen = np.arange(12.0)
        frozen.flags.writeable = False
        bad = {
            "every other word": np.arange(12.0)[::2],
            "backwards": np.arange(12.0)[::-1],
            "a column": np.arange(12.0).reshape(3, 4)[:, 1],
            "a transposed matrix": np.arange(12.0).reshape(3, 4).T,
            "read-only": frozen,
            "a list": [1.0, 2.0],
        }
        said = []
        for name, buffer in bad.items():
            before = np.array(buffer)
            try:
                allreduce(comm, buffer)
                said.append(f"{name}: taken")
            except BadInput as error:
                if f"rank {comm.rank}" not in str(error):
                    said.append(f"{name}: {error} does not name rank {comm.rank}")
            if not np.array_equal(before, buffer):
                said.append(f"{name}: changed to {buffer}")
        return said

    check(run(program, size))


def keeps_order(
    allreduce: AllReduce, run: Run, size: int, order: Order, more: Iterable[int] = ()
) -> None:
    """Assert that float32 words are added in a given order, by their bits."""
    tried = [
        Case(size, n, "float32", "sum", True) for n in (*lengths(size), 1009, *more)
    ]

    def program(comm: Any) -> list[str]:
        hashes = []
        for case in tried:
            buffer = given(case)[comm.rank].copy()
            allreduce(comm, buffer)
            hashes.append(digest(buffer))
        return hashes

    want = [digest(order(given(case))) for case in tried]
    for rank, hashes in enumerate(run(program, size)):
        for case, got, bits in zip(tried, hashes, want, strict=True):
            assert got == bits, f"rank {rank}: not as {order.__name__} in {case}"
