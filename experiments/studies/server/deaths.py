"""Deaths of replicas in turn, and the recovery of the workers from each."""

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Columns
from dml.types import BadInput, CountedComm
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm.surviving import with_survivors
from dml.wire.plans.chain import Chain
from studies.server.runs import RunResult

ROLES = ("head", "middle", "tail")
COLUMNS: Columns = {
    "role": (8, "{role}"),
    "rank": (6, "{rank}"),
    "killed at": (11, "{killed_at:.4f} s"),
    "recovery": (12, "{recovery_seconds:.6f} s"),
}


def victims(chain: Chain, names: Sequence[str]) -> list[int]:
    """Return the ranks that die, by their roles in the chain of that time.

    Args:
      chain: The chain.
      names: Role of each rank that dies, in turn.
    """
    dead: list[int] = []
    for name in names:
        living = chain.living(dead)
        places = {"head": living[:1], "middle": living[1:-1], "tail": living[1:][-1:]}
        if not places.get(name):
            raise BadInput(
                f"expected --kill of {', '.join(ROLES)} that live and follow each "
                f"other, got {name} of {len(living)} replicas; pass other roles, more "
                "--replicas or more --spares"
            )
        dead.append(places[name][0])
    return dead


def start_deaths(comm: CountedComm, deaths: Mapping[int, float]) -> float:
    """Return the time of the start, and kill this process if it is to die; collective.

    Virtual ranks die by events. The clocks of real ranks of one host are equal.

    Args:
      comm: Communicator.
      deaths: Seconds after the start, by rank.
    """
    if comm.platform.virtual:
        return 0.0
    start = np.array([comm.Wtime()])
    comm.Allreduce(None, start, np.maximum)
    if comm.rank in deaths:
        seconds = start[0] + deaths[comm.rank] - comm.Wtime()
        kill = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        kill.daemon = True
        kill.start()
    return float(start[0])


def recoveries(
    comm: CountedComm, acknowledged: np.ndarray, times: Sequence[float]
) -> list[float | None] | None:
    """Return the seconds from each death to the next acknowledged update; collective.

    Only messages that were sent after the death count. The result is on the first
    living rank, None elsewhere; None in it: no message followed the death.

    Args:
      comm: Communicator of which ranks may have died.
      acknowledged: Seconds of the send and the acknowledgement of each message of this
        rank.
      times: Seconds of the deaths, on the same clock.
    """
    arrays = with_survivors(
        comm, lambda living, ranks: gather_arrays(living, acknowledged)
    )
    if arrays is None:
        return None
    sent, stored = np.concatenate(arrays[0]).T
    waits = [stored[sent >= time] - time for time in times]
    return [float(wait.min()) if len(wait) else None for wait in waits]


def count_updates(result: RunResult, workers: int, clocks: int) -> Mapping[str, int]:
    """Return the numbers of lost and of repeated updates of workers that finished.

    Args:
      result: Results of the run.
      workers: Number of workers, each of which pushes once per clock.
      clocks: Number of clocks.
    """
    pushes = set(zip(*(result.log[name] for name in ("worker", "clock")), strict=True))
    return {
        "lost_updates": workers * clocks - len(pushes),
        "repeated_updates": len(result.log["worker"]) - len(pushes),
    }


def death_rows(
    ranks: Sequence[int],
    names: Sequence[str],
    times: Sequence[float],
    waits: Sequence[float | None],
) -> list[dict[str, Any]]:
    """Return a row per death, with its time since the start and the recovery."""
    columns = zip(ranks, names, times, waits, strict=True)
    return [
        {"rank": rank, "role": name, "killed_at": time, "recovery_seconds": wait}
        for rank, name, time, wait in columns
    ]


def conclude(run: Run) -> str:
    """Return the numbers of lost and repeated updates, and the slowest recovery."""
    summary = run.summary
    text = (
        f"{summary['deaths']} ranks died: {summary['lost_updates']} updates of living "
        f"workers were lost, {summary['repeated_updates']} applied twice"
    )
    seconds = summary["recovery_seconds"]
    if seconds is not None:
        unit = "virtual s" if summary["virtual"] else "s"
        text += f"; workers continued after at most {seconds:.3g} {unit}"
    if run.flags.get("consistency") == "bsp":
        equal = summary["sha256"] == summary["sha256_without_deaths"]
        text += f"; the bits are {'equal' if equal else 'NOT equal'} to those without"
        text += " deaths"
    return f"{text}."
