"""Run a script on the ranks of mpirun; start it again after a rank was killed.

launch/elastic.sh calls this module; its --help describes the rules. Only the standard
library is imported.
"""

import itertools
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from supervisor_folder import (
    Checkpoint,
    FolderError,
    checkpoints_in_memory,
    move_to_disk,
    newest_checkpoint,
    summary_time,
)
from supervisor_plan import Plan, make_plan, parse
from supervisor_processes import SupervisedRun

COMPLETE, BAD_INPUT, STOPPED, OUTPUT_CLOSED = 0, 2, 130, 141  # exit codes of a run
FINAL = (COMPLETE, BAD_INPUT, STOPPED, OUTPUT_CLOSED)
# MPICH's exit code is the number of the signal, Open MPI's is 128 more.
DEADLY = (
    *(signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM),
)


def say(text: str) -> None:
    sys.stderr.write(f"launch: {text}\n")
    sys.stderr.flush()


def killed_by(code: int) -> int:
    """Return the signal by which a rank or mpirun was killed, by the exit code; or 0.

    Args:
      code: Exit code of mpirun; negative if a signal has killed mpirun itself.
    """
    number = -code if code < 0 else code - 128 if code > 128 else code
    return number if code < 0 or number in DEADLY else 0


def supervise(plan: Plan, signals: Callable[[], int]) -> int:
    """Run until the script succeeds or cannot succeed; return an exit code.

    Args:
      plan: Supervised run.
      signals: () -> number of signals to stop that were received.
    """
    # a run with --overwrite deletes the checkpoints of an earlier run in its folder
    earlier = None if plan.resume else newest_checkpoint(plan.folder)
    summarized = summary_time(plan.folder)
    newest = own_checkpoint(plan, earlier)
    deaths = idle = 0
    for start in itertools.count(1):
        ranks = number_of_ranks(plan, deaths)
        resume = plan.resume or newest is not None
        code, seconds = run_once(plan, ranks, resume, signals)
        plan = plan._replace(overwrite=True)  # a second start replaces the first
        if signals():
            say(f"stopped by a signal; to resume, pass --resume={plan.folder}")
            return STOPPED
        number = killed_by(code)
        if number and summary_time(plan.folder) > summarized:
            say(f"the run is complete; a rank was killed (signal {number}) at its end")
            return COMPLETE
        if code in FINAL:
            if start > 1 and code == COMPLETE:
                say(f"complete after {start} starts, {deaths} of them ended by a death")
            return code
        deaths += bool(number)
        before, newest = newest, own_checkpoint(plan, earlier)
        idle = idle + 1 if newest == before else 0
        ranks = number_of_ranks(plan, deaths)
        cause = f"a rank was killed (signal {number})" if number else f"code {code}"
        place = f"from {newest.place}" if newest else "from the beginning"
        say(f"start {start} ended after {seconds:.1f} s: {cause}")
        if idle >= (plan.attempts if number else 1) or not ranks:
            return report_failure(plan, 128 + number if number else code, idle, place)
        say(f"start {start + 1} on {ranks} of {plan.ranks} ranks, {place}")
    raise AssertionError("unreachable")


def own_checkpoint(plan: Plan, earlier: Checkpoint | None) -> Checkpoint | None:
    """Return the newest checkpoint of this run, not of an earlier one in its folder."""
    newest = newest_checkpoint(plan.folder)
    return None if newest == earlier else newest


def number_of_ranks(plan: Plan, deaths: int) -> int:
    """Return the number of ranks after deaths; spare slots replace the first ones."""
    return plan.ranks + min(0, plan.spares - deaths)


def report_failure(plan: Plan, code: int, idle: int, place: str) -> int:
    """Print the reason of a failed run; return the exit code."""
    reason = "no slot is left"
    if idle:
        starts = "start" if idle == 1 else f"{idle} starts"
        reason = f"the last {starts}, {place}, saved no new checkpoint"
    say(
        f"expected the run to end with code 0, got code {code}, and {reason}; fix the "
        f"cause and pass --resume={plan.folder} if it has a checkpoint"
    )
    return code


def run_once(
    plan: Plan, ranks: int, resume: bool, signals: Callable[[], int]
) -> tuple[int, float]:
    """Run the script once; return the exit code of mpirun, and seconds."""
    folder = [f"--resume={plan.folder}"]
    if not resume:
        folder = ["--overwrite"] * plan.overwrite + [f"--out={plan.folder}"]
    began = time.monotonic()
    command = [plan.mpirun, "-n", str(ranks), sys.executable, plan.script]
    run = SupervisedRun([*command, *plan.flags, *folder])
    code = run.run_to_end(signals)
    return code, time.monotonic() - began


@contextmanager
def counted_signals() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the number of SIGINT, SIGTERM and SIGHUP so far."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as by nohup
            signal.signal(number, lambda number, _: received.append(number))
    try:
        yield lambda: len(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(argv: Sequence[str]) -> int:
    """Supervise a run by the arguments of launch/elastic.sh; return an exit code."""
    arguments = parse(argv)
    try:
        plan = make_plan(arguments)
        say(f"the run folder is {plan.folder}")
        move_to_disk(plan.folder)  # from a supervisor that was killed
        keep = checkpoints_in_memory if arguments.memory else nullcontext
        with counted_signals() as signals, keep(plan.folder):
            return supervise(plan, signals)
    except FolderError as error:
        say(str(error))
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
