"""Conformance suite of all-reduces: what each of them must do, on any kind of rank.

    python -m dml.conformance ring ./mine.py:swing

The command runs the checks on virtual ranks, then on 3 real ranks if `mpirun` is
installed, and prints what is wrong. It exits with 1 if a check fails.

The results of all ranks are compared with those of one process, and with each other.
A function of a check takes an all-reduce, a number of ranks and `run(program, size)` ->
results by rank, and raises AssertionError with a sentence about the first fault.
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
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dml import extend
from dml.types import AllReduce, BadInput, Comm
from dml.wire.comm.buffers import allocate, release

Run = Callable[[Callable[[Any], Any], int], list[Any]]
OPS = {
    "sum": np.add,
    "product": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
DTYPES = ("float16", "float32", "float64", "int32", "int64")
LONG = 100_003
GUARD = 3  # words before and after a buffer that must not change
VIRTUAL_SIZES = (1, 2, 3, 4, 5, 7, 8, 12)
REAL_SIZE = 3
SECONDS = 120  # time limit of a check, which takes about one second
FAILED = "FAILED"
STARTED = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")  # environment of ranks under mpirun


class Case(NamedTuple):
    """An all-reduce of known result."""

    size: int
    length: int
    dtype: str
    op: str  # of OPS
    rounds: bool = False  # whether sums are rounded, so that their order matters


def lengths(size: int) -> list[int]:
    """Return lengths of buffers: few words, and about one word per rank."""
    return sorted({0, 1, size - 1, size, size + 1, 97})


def cases(size: int, lengths: Iterable[int], every: bool = True) -> list[Case]:
    """Return cases of each length.

    Args:
      size: Number of ranks.
      lengths: Numbers of words.
      every: Whether every dtype is combined with every operation; otherwise each dtype
        has two operations.
    """
    ops = tuple(OPS)
    pairs = list(product(DTYPES, ops))
    if not every:
        pairs = [(DTYPES[i], ops[(i + j) % 4]) for i in range(5) for j in (0, 2)]
    exact = [Case(size, n, *pair) for n in lengths for pair in pairs]
    floats = [name for name in DTYPES if name.startswith("float")]
    return exact + [
        Case(size, n, dtype, "sum", True) for n in lengths for dtype in floats
    ]


@lru_cache(maxsize=32)
def inputs(case: Case) -> np.ndarray:
    """Return the words of all ranks, a row each; no two words are equal by design.

    Exact cases are exact in any order: floats are small whole numbers (powers of two in
    products), integers use more bits than a float has.
    """
    shape, dtype = (case.size, case.length), np.dtype(case.dtype)
    rng = np.random.default_rng([case.size, case.length, case.op == "product"])
    if case.rounds:
        return (rng.standard_normal(shape) * 10 ** rng.uniform(-2, 2, shape)).astype(
            dtype
        )
    if dtype.kind == "i":
        most = np.iinfo(dtype).max // 32
        rows = rng.integers(-most, most, shape, dtype, endpoint=True)
        return rows | (case.op == "product")  # a product of odd numbers is not zero
    if case.op == "product":
        rows = rng.choice([-1.0, 1.0], shape)
        rows[:8] *= rng.choice([0.5, 2.0], rows[:8].shape)  # within float16
        return rng.permuted(rows, axis=0).astype(dtype)
    return rng.integers(-60, 60, shape, endpoint=True).astype(dtype)


@lru_cache(maxsize=32)
def expected(case: Case) -> np.ndarray:
    """Return the result, computed by one process; in float64 for rounded sums."""
    rows = inputs(case)
    if case.rounds:
        return rows.astype(np.float64).sum(axis=0)
    return OPS[case.op].reduce(rows, axis=0, dtype=rows.dtype)


def fault(case: Case, result: np.ndarray) -> str:
    """Describe the first wrong word of a result; empty if all are correct."""
    right = expected(case)
    if case.rounds:
        # p-1 additions, each with an error of at most half the last bit of a partial
        # sum: the bound for any order (Higham 2002, eq. 4.4).
        rows = inputs(case)
        magnitudes = np.abs(rows.astype(np.float64)).sum(axis=0)
        error = np.abs(result.astype(np.float64) - right)
        wrong = ~(error <= (case.size - 1) * np.finfo(rows.dtype).eps * magnitudes)
    else:
        wrong = ~(result == right)
    if not wrong.any():
        return ""
    word = int(np.flatnonzero(wrong)[0])
    return (
        f"the {case.op} of {case.length} words of {case.dtype} on {case.size} ranks "
        f"has {wrong.sum()} wrong words, the first at {word}: expected "
        f"{right[word].item()!r}, got {result[word].item()!r}"
    )


def digest(array: np.ndarray) -> str:
    """Return the hash of the array's bits."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def reduce_case(
    comm: Comm, allreduce: AllReduce, case: Case, memory: np.ndarray
) -> tuple[str, str]:
    """Reduce one case in a part of `memory`; return the fault and the hash."""
    dtype = np.dtype(case.dtype)
    guarded = memory[: (case.length + 2 * GUARD) * dtype.itemsize].view(dtype)
    guarded[:] = 77
    buffer = guarded[GUARD : GUARD + case.length]
    buffer[:] = inputs(case)[comm.rank]
    if case.op == "sum" and case.length % 2:
        allreduce(comm, buffer)  # sum is the default
    else:
        allreduce(comm, buffer, OPS[case.op])
    found, bits = fault(case, buffer), digest(buffer)
    if (guarded[:GUARD] != 77).any() or (guarded[GUARD + case.length :] != 77).any():
        found = found or f"it wrote beyond a buffer of {case.length} words"
    return found, bits


def check_results(allreduce: AllReduce, run: Run, cases: Sequence[Case]) -> None:
    """Check results, and equal bits on all ranks, in plain and registered memory."""
    if not cases:
        return

    def program(comm: Comm) -> list[tuple[str, str]]:
        nbytes = (max(case.length for case in cases) + 2 * GUARD) * 8
        plain, registered = np.empty(nbytes, np.uint8), allocate(comm, nbytes, np.uint8)
        results = [
            reduce_case(comm, allreduce, case, memory)
            for case in cases
            for memory in (plain, registered)
        ]
        release(comm, registered)
        return results

    by_rank = run(program, cases[0].size)
    for rank, results in enumerate(by_rank):
        for number, (found, bits) in enumerate(results):
            assert not found, f"rank {rank}: {found}"
            case = cases[number // 2]
            assert bits == by_rank[0][number][1], (
                f"rank {rank} has other bits than rank 0 in the {case.op} of "
                f"{case.length} words of {case.dtype} on {case.size} ranks"
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

    assert_none(run(program, size))


def check_groups(allreduce: AllReduce, run: Run, size: int) -> None:
    """Check all-reduces in groups of a communicator, and in their parent afterwards.

    Colours make groups of unequal sizes, keys reverse the ranks.
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

    assert_none(run(program, size))


def check_bad_buffers(allreduce: AllReduce, run: Run, size: int) -> None:
    """Check that an unusable buffer raises BadInput on its rank and does not change."""

    def program(comm: Comm) -> list[str]:
        frozen = np.arange(12.0)
        frozen.flags.writeable = False
        bad: dict[str, Any] = {
            "every other word of an array": np.arange(12.0)[::2],
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
                    f"it accepts {name}; call dml.flat(comm, buffer) before the first "
                    "message, which raises BadInput"
                )
            except BadInput as error:
                if f"rank {comm.rank}" not in str(error):
                    faults.append(f"{name}: {error} does not name rank {comm.rank}")
            if not np.array_equal(before, buffer):
                faults.append(f"it changes {name}")
        return faults

    assert_none(run(program, size))


def assert_none(faults: Sequence[Sequence[str]]) -> None:
    """Raise AssertionError with the first fault of the ranks."""
    for rank, found in enumerate(faults):
        for sentence in found:
            assert not sentence, f"rank {rank}: {sentence}"


def check_order(
    allreduce: AllReduce,
    run: Run,
    size: int,
    order: Callable[[np.ndarray], np.ndarray],
    more: Iterable[int] = (),
) -> None:
    """Check the order in which float32 words are added, by their bits.

    Args:
      allreduce: All-reduce.
      run: (program, size) -> results by rank.
      size: Number of ranks.
      order: Words of all ranks, a row each -> their sum in the expected order.
      more: Further lengths.
    """
    tried = [
        Case(size, n, "float32", "sum", True) for n in (*lengths(size), 1009, *more)
    ]

    def program(comm: Comm) -> list[str]:
        hashes = []
        for case in tried:
            buffer = inputs(case)[comm.rank].copy()
            allreduce(comm, buffer)
            hashes.append(digest(buffer))
        return hashes

    right = [digest(order(inputs(case))) for case in tried]
    for rank, hashes in enumerate(run(program, size)):
        for case, bits, expected_bits in zip(tried, hashes, right, strict=True):
            assert bits == expected_bits, (
                f"rank {rank}: another order than {order.__name__} in {case}"
            )


def check_behaviour(
    allreduce: AllReduce,
    run: Run,
    size: int,
    order: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Check everything but the results of all dtypes, operations and lengths."""
    check_shapes(allreduce, run, size)
    check_groups(allreduce, run, size)
    check_bad_buffers(allreduce, run, size)
    if order:
        check_order(allreduce, run, size, order)


def conform(
    allreduce: AllReduce,
    run: Run,
    size: int,
    every: bool = True,
    more: Iterable[int] = (),
    order: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Run all checks on `size` ranks.

    Args:
      allreduce: All-reduce.
      run: (program, size) -> results by rank.
      size: Number of ranks.
      every: Whether every dtype is combined with every operation.
      more: Further lengths.
      order: Order in which float32 words are added; None: any.
    """
    check_results(allreduce, run, cases(size, lengths(size), every))
    check_results(allreduce, run, cases(size, more, False))
    check_behaviour(allreduce, run, size, order)


def checks(
    allreduce: AllReduce, sizes: Sequence[int], run: Run | None = None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield (name, call) of each check of the command.

    Args:
      allreduce: All-reduce.
      sizes: Numbers of ranks.
      run: (program, size) -> results by rank; None: virtual ranks, with further checks
        that only they can make.
    """
    from dml import sim

    def on(check: Callable[..., None], run: Run, *own: Any) -> Callable[[], None]:
        def call() -> None:
            for size in sizes:
                check(allreduce, run, size, *own)

        return call

    def results(every: bool, more: Sequence[int], *arguments: Any) -> None:
        allreduce, run, size = arguments
        check_results(allreduce, run, cases(size, (*lengths(size), *more), every))

    plain = run or sim.run
    yield (
        "results by length, dtype and operation",
        on(partial(results, True, ()), plain),
    )
    yield "long buffers", on(partial(results, False, (20_011,)), plain)
    yield "buffers of several axes", on(check_shapes, plain)
    yield "groups of ranks", on(check_groups, plain)
    if not run:
        reversed_start = partial(sim.run, seed=1)
        yield (
            "ranks that start in another order",
            on(partial(results, False, ()), reversed_start),
        )
        unbuffered = partial(sim.run, network=sim.Uniform(eager=0))
        yield (
            "sends that wait for their receive",
            on(partial(results, False, (20_011,)), unbuffered),
        )
    yield "unusable buffers are refused", on(check_bad_buffers, plain)


def failure(call: Callable[[], None]) -> str:
    """Call; return a sentence about what failed, empty if nothing did."""
    from dml import sim

    try:
        with limited(SECONDS):
            call()
    except AssertionError as error:
        return str(error)
    except SystemExit:
        return "it ends Python with sys.exit()"
    except sim.Deadlock as error:
        lines = [line.strip() for line in str(error).splitlines()]
        return f"no rank can continue: {'; '.join(lines[:5])}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        notes = "; ".join(getattr(error, "__notes__", ()))
        return (
            f"{type(error).__name__}: {error} ({notes or 'raised'}, line {last.lineno} "
            f"of {last.filename})"
        )
    return ""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise AssertionError, with the line of the program, after some seconds."""

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


def on_real_ranks(program: Callable[[Any], Any], size: int) -> list[Any]:
    """Run on all ranks of MPI's world; return the results of all on every rank."""
    from dml.wire.comm.mpi import world

    comm: Any = world(watchdog=20)
    assert comm.size == size, f"expected {size} ranks, got {comm.size}"
    return comm.allgather(program(comm))


def report(name: str, sizes: Sequence[int], run: Run | None = None) -> int:
    """Run the checks of one all-reduce, print a line for each; return the failures."""
    from dml.wire.collectives import ALLREDUCE

    allreduce, failures = extend.find(name, ALLREDUCE, extend.ALLREDUCES), 0
    quiet, before = False, ""
    if run:
        from dml.wire.comm.mpi import world

        quiet = world().rank > 0
    kind = "real" if run else "virtual"
    say(f"{name} on {', '.join(map(str, sizes))} {kind} ranks", quiet)
    for title, call in checks(allreduce, sizes, run):
        say(f"  {title:<40} ", quiet, end="")
        found = failure(call)
        failures += bool(found)
        say(FAILED if found else "ok", quiet)
        if found:
            say(f"      {'as before' if found == before else found}", quiet)
            before = found
        if found and run:
            break  # ranks may be at different points of the check
    return failures


def say(line: str, quiet: bool, end: str = "\n") -> None:
    if not quiet:
        sys.stdout.write(line + end)
        sys.stdout.flush()


def conforms_on_real_ranks(name: str, size: int) -> bool:
    """Check under mpirun; return whether nothing failed.

    Raises BadInput if mpirun fails for another reason.
    """
    mpirun = shutil.which("mpirun")
    if not size or not mpirun:
        say(f"  no real ranks{'' if size else ': --ranks=0'}", False)
        return True
    command = [mpirun, "-n", str(size), sys.executable, "-m", "dml.conformance"]
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
        "--ranks", type=int, default=REAL_SIZE, help="real ranks; 0: none"
    )
    options = parser.parse_args(argv)
    failures = 0
    try:
        if options.ranks < 0:
            raise BadInput(f"expected --ranks of 0 or more, got {options.ranks}")
        if not options.real and any(name in os.environ for name in STARTED):
            raise BadInput("expected one process, which starts mpirun; drop mpirun")
        for name in options.names:
            if options.real:
                failures += report(name, (options.ranks,), on_real_ranks)
                continue
            failed = report(name, VIRTUAL_SIZES)
            failed = failed or not conforms_on_real_ranks(name, options.ranks)
            say(f"{name}: {'wrong' if failed else 'conforms'}", options.real)
            failures += failed
    except BadInput as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
