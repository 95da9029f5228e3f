"""Conformance suite of all-reduces, for virtual and real ranks.

    python -m dml.conformance ring ./mine.py:swing

The command runs the checks on virtual ranks, then on 3 real ranks if `mpirun` is
installed, and prints the first fault of each check. It exits with 1 if a check fails.

The result of each rank is compared with the result of one process, and with the other
ranks. A check is a function of an all-reduce, a function `run(program, size)` that
returns results by rank, and a number of ranks or cases. `run` may pass a communicator
of mpi4py to the program; the all-reduce receives a Comm. A check raises AssertionError
with a description of the first fault.
"""

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from dml import extend, processes
from dml.types import AllReduce, BadInput, Comm
from dml.wire.comm.buffers import allocate, release
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tracebacks import user_frames
from dml.wire.plans.topology import SEGMENT

Run = Callable[[Callable[[Any], Any], int], list[Any]]
OPS = {
    "sum": np.add,
    "product": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
DTYPES = (
    *("float16", "float32", "float64", "int32", "int64", "uint8", "uint32", "uint64"),
    *("complex64", "complex128"),
)
MAX_ITEMSIZE = 16  # bytes of the largest dtype
LONG = 100_003  # elements of a long buffer, used by the tests
GUARD = 3  # elements before and after a buffer that must not change
GUARD_VALUE = 77
VIRTUAL_SIZES = (1, 2, 3, 4, 5, 7, 8, 12)
SEGMENTED_SIZES = (2, 3, 5)  # of these, those with buffers above a segment
REAL_SIZE = 3
SECONDS = 120  # time limit of a check; most take about one second
FAILED = "FAILED"
MPI_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")  # set by mpirun


class Case(NamedTuple):
    """An all-reduce whose result is known."""

    size: int  # number of ranks
    length: int  # number of elements
    dtype: str
    op: str  # key of OPS
    rounded: bool = False  # whether additions round, so that their order matters


def lengths(size: int) -> list[int]:
    """Return numbers of elements: few, about one per rank, and 97."""
    return sorted({0, 1, size - 1, size, size + 1, 97})


def cases(size: int, lengths: Iterable[int], all_pairs: bool = True) -> list[Case]:
    """Return cases of each length.

    Args:
      size: Number of ranks.
      lengths: Numbers of elements.
      all_pairs: Whether every dtype is combined with every operation of it; otherwise
        each dtype is combined with two operations.
    """
    pairs = [(dtype, op) for dtype in DTYPES for op in operations(dtype)]
    if not all_pairs:
        pairs = [
            (dtype, ops[(i + j) % len(ops)])
            for i, dtype in enumerate(DTYPES)
            if (ops := operations(dtype))
            for j in (0, len(ops) // 2)
        ]
    exact = [Case(size, n, *pair) for n in lengths for pair in pairs]
    floats = [name for name in DTYPES if name.startswith("float")]
    return exact + [
        Case(size, n, dtype, "sum", True) for n in lengths for dtype in floats
    ]


def segmented_cases(size: int) -> list[Case]:
    """Return a case of each dtype with more bytes than a segment."""
    ops = [operations(dtype) for dtype in DTYPES]
    return [
        Case(size, SEGMENT + 11, dtype, ops[i][(i + size) % len(ops[i])])
        for i, dtype in enumerate(DTYPES)
    ]


def operations(dtype: str) -> list[str]:
    """Return the operations of a dtype; complex numbers have no order."""
    return list(OPS)[:2] if dtype.startswith("complex") else list(OPS)


@lru_cache(maxsize=32)
def inputs(case: Case) -> np.ndarray:
    """Return the inputs of all ranks, a row per rank.

    The result of a case that is not rounded is exact in any order: floats are small
    whole numbers (powers of two in products, and a power of i if they are complex).
    Integers have more bits than the significand of a float.
    """
    shape, dtype = (case.size, case.length), np.dtype(case.dtype)
    rng = np.random.default_rng([case.size, case.length, case.op == "product"])
    if case.rounded:
        return (rng.standard_normal(shape) * 10 ** rng.uniform(-2, 2, shape)).astype(
            dtype
        )
    if dtype.kind == "u":  # sums are modulo a power of two
        rows = rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        return rows | (case.op == "product")
    if dtype.kind == "i":
        limit = np.iinfo(dtype).max // 32
        rows = rng.integers(-limit, limit, shape, dtype, endpoint=True)
        return rows | (case.op == "product")  # a product of odd numbers is not zero
    if case.op == "product":
        rows = rng.choice([-1.0, 1.0], shape)
        rows[:8] *= rng.choice([0.5, 2.0], rows[:8].shape)  # within float16
        rows = rng.permuted(rows, axis=0)
        turns = rng.choice([1, 1j], shape) if dtype.kind == "c" else 1
        return (rows * turns).astype(dtype)
    rows = rng.integers(-60, 60, shape, endpoint=True)
    if dtype.kind == "c":
        rows = rows + 1j * rng.integers(-60, 60, shape, endpoint=True)
    return rows.astype(dtype)


@lru_cache(maxsize=32)
def expected(case: Case) -> np.ndarray:
    """Return the result, computed by one process; in float64 for rounded sums."""
    rows = inputs(case)
    if case.rounded:
        return rows.astype(np.float64).sum(axis=0)
    return OPS[case.op].reduce(rows, axis=0, dtype=rows.dtype)


def fault(case: Case, result: np.ndarray) -> str:
    """Describe the first wrong element of a result; empty if all are correct."""
    reference = expected(case)
    if case.rounded:
        # The bound for any order of p-1 additions, each with an error of at most half
        # the last bit of a partial sum (Higham 2002, eq. 4.4).
        rows = inputs(case)
        magnitudes = np.abs(rows.astype(np.float64)).sum(axis=0)
        error = np.abs(result.astype(np.float64) - reference)
        wrong = ~(error <= (case.size - 1) * np.finfo(rows.dtype).eps * magnitudes)
    else:
        wrong = ~(result == reference)
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    return (
        f"the {case.op} of {case.length} elements of {case.dtype} on {case.size} ranks "
        f"has {wrong.sum()} wrong elements, the first at index {first}: expected "
        f"{reference[first].item()!r}, got {result[first].item()!r}"
    )


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


def checks(
    allreduce: AllReduce, sizes: Sequence[int], run: Run | None = None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the title and a function of each check of the command.

    Args:
      allreduce: All-reduce.
      sizes: Numbers of ranks.
      run: (program, size) -> results by rank; None for virtual ranks, which have two
        more checks.
    """
    from dml import sim

    def at_all_sizes(check: Callable[..., None], run: Run) -> Callable[[], None]:
        def call() -> None:
            for size in sizes:
                check(allreduce, run, size)

        return call

    def results(
        all_pairs: bool,
        extra_lengths: Sequence[int],
        allreduce: AllReduce,
        run: Run,
        size: int,
    ) -> None:
        all_lengths = (*lengths(size), *extra_lengths)
        check_results(allreduce, run, cases(size, all_lengths, all_pairs))

    def segmented(allreduce: AllReduce, run: Run, size: int) -> None:
        if size in SEGMENTED_SIZES or len(sizes) == 1:
            check_results(allreduce, run, segmented_cases(size))

    default_run = run or sim.run
    yield (
        "results by length, dtype and operation",
        at_all_sizes(partial(results, True, ()), default_run),
    )
    yield "long buffers", at_all_sizes(partial(results, False, (20_011,)), default_run)
    yield "buffers above a segment", at_all_sizes(segmented, default_run)
    yield "buffers of several axes", at_all_sizes(check_shapes, default_run)
    yield "groups of ranks", at_all_sizes(check_groups, default_run)
    if not run:
        random_start = partial(sim.run, seed=1)
        yield (
            "ranks that start in another order",
            at_all_sizes(partial(results, False, ()), random_start),
        )
        unbuffered = partial(sim.run, network=sim.Uniform(eager=0))
        yield (
            "sends that wait for their receive",
            at_all_sizes(partial(results, False, (20_011,)), unbuffered),
        )
    yield "unusable buffers are refused", at_all_sizes(check_bad_buffers, default_run)


def failure(call: Callable[[], None]) -> str:
    """Call a check; return a description of its failure, empty if it passes."""
    from dml import sim

    try:
        with time_limit(SECONDS):
            call()
    except AssertionError as error:
        return str(error)
    except SystemExit:
        return "it ends Python with sys.exit()"
    except sim.Deadlock as error:
        lines = [line.strip() for line in str(error).splitlines()]
        return f"no rank can continue: {'; '.join(lines[:5])}"
    except Exception as error:
        last = user_frames(traceback.extract_tb(error.__traceback__))[-1]
        notes = "; ".join(getattr(error, "__notes__", ()))
        return (
            f"{type(error).__name__}: {error} ({notes or 'raised'}, line {last.lineno} "
            f"of {last.filename})"
        )
    return ""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise AssertionError, with the current line of the program, after `seconds`."""

    def stop(number: int, frame: Any) -> None:
        raise AssertionError(
            f"it did not end in {seconds} s; it is in line {frame.f_lineno} of "
            f"{frame.f_code.co_filename}"
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_on_real_ranks(program: Callable[[Any], Any], size: int) -> list[Any]:
    """Run on all ranks of the world; return the results of all ranks on every rank."""
    from dml.wire.comm.mpi import world

    comm: Any = world(watchdog=20)
    assert comm.size == size, f"expected {size} ranks, got {comm.size}"
    return comm.allgather(program(comm))


def report(name: str, sizes: Sequence[int], run: Run | None = None) -> int:
    """Run the checks of an all-reduce and print a line for each; return the failures.

    Further checks are skipped after a failure on real ranks.
    """
    from dml.wire.collectives import ALLREDUCE
    from dml.wire.collectives.check import with_call_note

    allreduce = with_call_note(extend.find(name, ALLREDUCE, extend.ALLREDUCES), name)
    failures = 0
    last_fault = ""
    quiet = False
    if run:
        from dml.wire.comm.mpi import world

        quiet = world().rank > 0
    rank_type = "real" if run else "virtual"
    print_line(f"{name} on {', '.join(map(str, sizes))} {rank_type} ranks", quiet)
    for title, call in checks(allreduce, sizes, run):
        print_line(f"  {title:<40} ", quiet, end="")
        description = failure(call)
        failures += bool(description)
        print_line(FAILED if description else "ok", quiet)
        if description:
            repeated = description == last_fault
            text = "the same fault as above" if repeated else description
            print_line(f"      {text}", quiet)
            last_fault = description
        if description and run:
            break  # ranks may be at different points of the check
    return failures


def print_line(line: str, quiet: bool, end: str = "\n") -> None:
    if not quiet:
        sys.stdout.write(line + end)
        sys.stdout.flush()


def check_on_real_ranks(name: str, size: int) -> bool:
    """Check under mpirun; return whether all checks passed.

    Raises BadInput if mpirun fails for another reason.
    """
    mpirun = shutil.which("mpirun")
    if not size or not mpirun:
        reason = "mpirun is not on PATH" if size else "--ranks=0"
        print_line(f"  no checks on real ranks: {reason}", False)
        return True
    command = [*processes.end_with_parent(), mpirun, "-n", str(size)]
    command += [sys.executable, "-m", "dml.conformance"]
    command += ["--real", f"--ranks={size}", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line)
            sys.stdout.write(line)
    if process.returncode and not any(name in line for line in lines):
        raise BadInput(
            f"expected mpirun -n {size} to start, got code {process.returncode}; pass "
            "--ranks=0 to check virtual ranks only"
        )
    return not process.returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Check the all-reduces of the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dml.conformance", description="Check all-reduces."
    )
    parser.add_argument("names", nargs="+", help="NAME, FILE.py:NAME or MODULE:NAME")
    parser.add_argument("--real", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--ranks", type=int, default=REAL_SIZE, help="Number of real ranks; 0 for none."
    )
    options = parser.parse_args(argv)
    failures = 0
    try:
        if options.ranks < 0:
            raise BadInput(f"expected --ranks of 0 or more, got {options.ranks}")
        if not options.real and any(name in os.environ for name in MPI_VARIABLES):
            raise BadInput(
                "expected one process, which starts mpirun itself, got a rank of "
                "mpirun; drop mpirun"
            )
        for name in options.names:
            if options.real:
                failures += report(name, (options.ranks,), run_on_real_ranks)
                continue
            failed = report(name, VIRTUAL_SIZES)
            failed = failed or not check_on_real_ranks(name, options.ranks)
            print_line(f"{name}: {'wrong' if failed else 'conforms'}", options.real)
            failures += failed
    except BadInput as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    return int(failures > 0)


if __name__ == "__main__":
    with processes.safe_output():
        sys.exit(main())
