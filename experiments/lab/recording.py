"""--record and --replay: run a program with a recorded order of messages.

A run may be replayed on other networks and at other speeds, and on virtual ranks if it
was recorded on real ranks, or the reverse. All flags except FREE must be equal.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lab.shared_flags import VIRTUAL, WRITTEN, FlagValues, chosen

from dml.runs import records
from dml.types import BadInput, Comm
from dml.wire.comm import Log, Recorded, Replayed

Program = Callable[[Any], Any]
# Flags that do not change the results of a run.
FREE = (*WRITTEN, "record", "replay", "timeline", "watchdog", "check", "straggle")
FREE += ("profile", *VIRTUAL)


def record_or_replay(
    program: Program, module_function: Program, values: FlagValues
) -> Program:
    """Return the program with --record or --replay applied.

    Args:
      program: Program of a rank.
      named: Function of the experiment's module, by which the record names it.
      values: Flags.
    """
    if "record" not in values or not (values.record or values.replay):
        return program
    if values.record and values.replay:
        raise BadInput(
            f"expected --record or --replay, got both, {values.record} and "
            f"{values.replay}; pass one of them"
        )
    if "die" in values.events:
        raise BadInput(
            f"expected no deaths of ranks with --record or --replay, got --events="
            f"{values.events}; delete them, since a record has no time of death"
        )
    config = {"experiment": experiment(module_function)} | {
        f"--{k}": v for k, v in chosen(values).items() if k not in FREE
    }
    if values.replay:
        recorded = records.read(Path(values.replay))
        return partial(replay, program, recorded, config)
    path = Path(values.record)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadInput(
            f"expected a file in a writable folder, got --record={path}; make the "
            "folder, or pass another file"
        )
    return partial(record, program, path, config)


def record(program: Program, path: Path, config: dict[str, Any], comm: Comm) -> Any:
    """Run the program and write the order of its messages to path."""
    log = Log()
    result = program(Recorded(comm, log))
    logs = log.collect(comm)
    if logs is not None:
        records.write(path, config, logs)
    return result


def replay(
    program: Program, recorded: records.Record, config: dict[str, Any], comm: Comm
) -> Any:
    """Run the program with the recorded order of messages."""
    recorded.check(config, comm.size)
    log = Log(recorded.ranks[comm.rank])
    result = program(Replayed(comm, log))
    log.finish()
    return result


def experiment(program: Program) -> str:
    """Return the name of the file of a program, run as a command or imported."""
    while isinstance(program, partial):
        program = program.func
    name = program.__module__
    main = getattr(sys.modules["__main__"], "__file__", None)
    return Path(main).stem if name == "__main__" and main else name.split(".")[-1]
