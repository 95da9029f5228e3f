"""--record and --replay: run a program with a recorded order of messages.

A run may be replayed on other networks and at other speeds, and on virtual ranks if it
was recorded on real ranks, or the reverse. All flags except FREE must be equal.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lab.shared_flags import VIRTUAL, WRITTEN, FlagValues, chosen
import numpy as np

from dml.runs import records
from dml.types import BadInput, Comm, RankFailed
from dml.wire.collectives import tree_allreduce
from dml.wire.comm import Log, Recorded, Replayed
from dml.wire.comm.members import Members
from dml.wire.comm.surviving import with_survivors
from dml.wire.comm.wrapper import Wrapper

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
      module_function: Function of the experiment's module, by whose name the record
        finds it.
      values: Flags.
    """
    if "record" not in values or not (values.record or values.replay):
        return program
    if values.record and values.replay:
        raise BadInput(
            f"expected --record or --replay, got both, {values.record} and "
            f"{values.replay}; pass one of them"
        )
    check_deaths(values)
    elastic = "elastic" in values and bool(values.elastic)
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
    return partial(record, program, path, config, elastic)


def check_deaths(values: FlagValues) -> None:
    """Raise BadInput for deaths that cannot be recorded."""
    elastic = "elastic" in values and values.elastic
    if "die" in values.events and (values.replay or not elastic):
        raise BadInput(
            f"expected no deaths of ranks with --record or --replay, got --events="
            f"{values.events}; pass --elastic with --record, and delete them with "
            "--replay, since a record has the deaths"
        )
    if "replicas" in values and values.replicas > 1:
        raise BadInput(
            f"expected servers without replicas with --record or --replay, got "
            f"--replicas={values.replicas}; delete it"
        )


def record(
    program: Program, path: Path, config: dict[str, Any], elastic: bool, comm: Comm
) -> Any:
    """Run the program and write the order of its messages to path.

    The record of a rank that died is empty.
    """
    log = Log()
    result = program(Recorded(comm, log))

    def collect(living: Comm, ranks: Sequence[int]) -> list[Any] | None:
        codes = log.collect(living)
        by_rank = codes and dict(zip(ranks, codes, strict=True))
        return by_rank and [by_rank.get(rank, []) for rank in range(comm.size)]

    logs = with_survivors(comm, collect) if elastic else log.collect(comm)
    if logs is not None:
        records.write(path, config, logs)
    return result


def replay(
    program: Program, recorded: records.Record, config: dict[str, Any], comm: Comm
) -> Any:
    """Run the program with the recorded order of messages."""
    recorded.check(config, comm.size)
    living = [rank for rank, codes in enumerate(recorded.ranks) if len(codes)]
    if len(living) < comm.size and not comm.platform.virtual:
        raise BadInput(
            f"expected virtual ranks, since {comm.size - len(living)} ranks died in "
            f"the recorded run, got real ones; pass --simulate={comm.size}"
        )
    if comm.rank not in living:
        with suppress(RankFailed):
            program(Unrecorded(comm))
        return None
    log = Log(recorded.ranks[comm.rank])
    result = program(Replayed(comm, log))
    log.finish()
    if len(living) < comm.size:
        tree_allreduce(Members(comm, living), np.zeros(0))  # all have finished
        comm.Revoke()  # ends the ranks that died in the recorded run
    return result


class Unrecorded(Wrapper):
    """The communicator of a replayed rank that died: it never learns of its death."""

    def Agree(self, flag: int) -> int:
        return flag

    def Shrink(self) -> Any:
        raise RankFailed("this rank died in the recorded run")


def experiment(program: Program) -> str:
    """Return the name of the file of a program, run as a command or imported."""
    while isinstance(program, partial):
        program = program.func
    name = program.__module__
    main = getattr(sys.modules["__main__"], "__file__", None)
    return Path(main).stem if name == "__main__" and main else name.split(".")[-1]
