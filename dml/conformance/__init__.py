"""Conformance suite of all-reduces, for virtual and real ranks.

    python -m dml.conformance ring ./mine.py:swing

The command runs the checks on virtual ranks, then on 3 real ranks if `mpirun` is
installed, and prints the first fault of each check. It exits with 1 if a check fails.

The result of each rank is compared with the result of one process, and with the other
ranks: see `known_results` and `comparisons`.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from dml import extend, processes
from dml.conformance.comparisons import (
    Run,
    check_bad_buffers,
    check_groups,
    check_results,
    check_shapes,
)
from dml.conformance.known_results import cases, lengths, segmented_cases
from dml.types import AllReduce, BadInput
from dml.wire.comm.tracebacks import user_frames

VIRTUAL_SIZES = (1, 2, 3, 4, 5, 7, 8, 12)
SEGMENTED_SIZES = (2, 3, 5)  # of these, those with buffers above a segment
REAL_SIZE = 3
SECONDS = 120  # time limit of a check; most take about one second
FAILED = "FAILED"
MPI_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")  # set by mpirun


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
