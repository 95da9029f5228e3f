"""Run an mpi4py script on virtual ranks.

    python -m dml.sim -n 64 --network=torus:8x8 script.py ARGUMENTS

Each rank executes the script, whose `from mpi4py import MPI` gives virtual ranks. The
last lines, on stderr, have the virtual seconds, the messages and the bytes, and the
critical path. Exit codes: 1 after an exception or a deadlock, 2 for bad arguments, else
that of sys.exit or Abort.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dml import extras
from dml.sim.events import events
from dml.sim.mpi.algorithms import COLLECTIVES
from dml.sim.mpi.scripts import Aborted, Finished, ScriptError, run_script
from dml.sim.mpi.tracing import Trace, critical_path
from dml.sim.networks.named import network
from dml.sim.world import Deadlock, Limits
from dml.types import BadInput


def arguments_of(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dml.sim", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("-n", type=int, required=True, metavar="RANKS", help="number of ranks")
    add("--network", default="uniform", help="network, such as torus:8x8")
    add(
        "--collectives",
        default="mpich",
        choices=[*COLLECTIVES],
        help="algorithms of collective calls",
    )
    add(
        "--eager",
        type=int,
        metavar="BYTES",
        help="longest message of a Send that does not wait for its receive",
    )
    add("--events", default="", help="failures, such as die:3@0.001")
    add(
        "--virtual_seconds",
        type=float,
        default=Limits().seconds,
        help="virtual time after which the run is stopped",
    )
    add(
        "--timeline",
        metavar="FILE",
        help="timeline of calls and messages: .json or .svg",
    )
    add("--path", action="store_true", help="messages of the critical path")
    add("script", help="file that imports mpi4py")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    values = arguments_of(given)
    trace = Trace() if values.timeline or values.path else None
    try:
        check_timeline(values.timeline)
        finished = run_script(
            values.script,
            values.arguments,
            values.n,
            network(values.network, values.n),
            events=events(values.events),
            limits=Limits(values.virtual_seconds),
            collectives=values.collectives,
            eager=values.eager,
            trace=trace,
        )
    except Aborted as end:
        sys.stderr.write(f"{end}\n")
        return end.code
    except ScriptError as error:
        return report_error(error, values)
    except Deadlock as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except ModuleNotFoundError as error:  # of an extra; a script's are ScriptErrors
        if not (text := extras.explain(error)):
            raise
        sys.stderr.write(f"{text}\n")
        return 2
    report(finished, trace, values)
    return next((code for code in finished.codes if code), 0)


def report_error(error: ScriptError, values: argparse.Namespace) -> int:
    """Write the traceback of a script from its own first line, and the rank."""
    reason = error.reason
    place = reason.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != values.script:
        place = place.tb_next
    place = place or reason.__traceback__
    traceback.print_exception(type(reason), reason, place)
    sys.stderr.write(f"on rank {error.rank} of {values.n}; all ranks were ended\n")
    return 1


def report(finished: Finished, trace: Trace | None, values: argparse.Namespace) -> None:
    last = max(range(values.n), key=lambda rank: finished.seconds[rank])
    end = finished.seconds[last]
    write = sys.stderr.write
    sys.stdout.flush()
    write(
        f"{values.n} virtual ranks: {end:.9g} s of virtual time, "
        f"{finished.messages} messages, {finished.nbytes} bytes\n"
    )
    if trace is None:
        return
    found = critical_path(trace, last, end)
    write(
        f"critical path: ends on rank {last}; {len(found.messages)} messages, which "
        f"take {found.seconds:.9g} s\n"
    )
    if values.path:
        for one in reversed(found.messages):
            write(
                f"  {one.sent:.9f} to {one.received:.9f} s: rank {one.source} to "
                f"{one.dest}, {one.nbytes} bytes\n"
            )
    if values.timeline:
        write_timeline(Path(values.timeline), trace)


def check_timeline(path: str | None) -> None:
    """Raise an error for a timeline that cannot be written."""
    if path is None:
        return
    if Path(path).suffix not in (".json", ".svg"):
        raise BadInput(f"expected --timeline=FILE.json or FILE.svg, got {path!r}")
    if not Path(path).parent.is_dir():
        raise BadInput(f"expected a folder for --timeline, got {path!r}; make it")
    if Path(path).suffix == ".svg":
        extras.load("matplotlib")


def write_timeline(path: Path, trace: Trace) -> None:
    """Write a timeline: a trace of Chrome, or a figure."""
    draw: Any
    if path.suffix == ".json":
        from dml.metrics.timeline import write as draw
    else:
        from dml.figures.timeline import draw
    draw(path.with_suffix(""), trace.timeline())  # both add the suffix


if __name__ == "__main__":
    sys.exit(main())
