"""Code that several commands share: flags, run folders, claims, timelines."""

import sys
import time
from pathlib import Path
from typing import Any

from lab import stand_ins

from dml import extras, processes

IMPORTED = time.monotonic()  # about the start of the command

if Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parents[1]:
    processes.open_missing_streams()
    processes.end_at_interrupt()  # until flags.run


def print_exception(kind: type, error: BaseException, trace: Any) -> None:
    """Print an uncaught exception, but not Ctrl-C during imports on every rank."""
    missing = extras.explain(error)
    if missing:
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {missing}\n")
    elif not issubclass(kind, KeyboardInterrupt):
        from dml.wire.comm.tracebacks import exception_text

        sys.stderr.write(exception_text(kind, error, trace))


sys.excepthook = print_exception

if stand_ins.HELP.intersection(sys.argv[1:]):
    stand_ins.install()
