"""Rows of collectives.py: counted messages and words, formulas and seconds."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from lab.claims import grouped
import numpy as np

from dml.figures.allreduce_times import ratio
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from dml.sim.evaluate import messages as messages_of
from dml.types import BadInput, CountedComm
from dml.wire.collectives import AUTO, COLLECTIVES, machine_rates
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.table import Algorithm
from dml.wire.comm.buffers import is_registered
from dml.wire.costs.allreduce import Job
from dml.wire.plans.schedules import words_sent
from dml.wire.plans.topology import chunks
from studies.allreduce.rows import size_text

ITEMSIZE = 4
PERIOD = 997  # distinct elements of a buffer, at most
EXACT = 1 << 24  # integers below are exact in float32

Case = tuple[np.ndarray, np.ndarray, slice]  # start, expected elements and where


def cases(rank: int, size: int, length: int) -> dict[str, Case]:
    """Return the buffer of a rank, and a part of it after each collective."""
    factors, period = factors_of_ranks(size)
    ramp = (np.arange(length) % period).astype(np.float32)
    terms, total = ramp * factors[rank], ramp * factors.sum()
    before, so_far = factors[:rank].sum() or factors[0], factors[: rank + 1].sum()
    parts, every = chunks(length, size), slice(0, length)
    own, root = parts[rank], every if rank == 0 else slice(0, 0)
    gathered = np.full(length, -1, np.float32)
    gathered[own] = ramp[own]
    ranks = np.repeat(np.arange(size, dtype=np.float32), length // size)
    return {
        "allreduce": (terms, total, every),
        "reduce_scatter": (terms, total[own], own),
        "all_gather": (gathered, ramp, every),
        "broadcast": (terms, ramp, every),
        "reduce": (terms, total[root], root),
        "scan": (terms, ramp * so_far, every),
        "exclusive_scan": (terms, ramp * before, every),
        "all_to_all": (size * rank + ranks, size * ranks + rank, every),
    }


def factors_of_ranks(size: int) -> tuple[np.ndarray, int]:
    """Return a factor of each rank and a period, so that all sums are exact."""
    different = min(size, max(1, 2 * EXACT // (PERIOD * size) - 1))
    factors = (1 + np.arange(size) % different).astype(np.float32)
    return factors, min(PERIOD, int(EXACT // factors.sum()))


def usable(
    comm: CountedComm, collective: str, registered: bool
) -> dict[str, Algorithm]:
    """Return the algorithms for a kind of memory that can run on these hosts.

    Messages do not depend on the kind; algorithms that only send are timed on plain
    buffers.
    """
    table = dict(COLLECTIVES[collective])
    if len(set(comm.platform.hosts())) > 1:
        table.pop("shared", None)
    if registered:
        return {name: own for name, own in table.items() if own.schedule is None}
    return table


def rows(
    comm: CountedComm, collective: str, buffer: np.ndarray, repeats: int
) -> Iterator[Row]:
    """Check, count and time all algorithms of a collective; collective.

    Args:
      comm: The ranks.
      collective: Key of COLLECTIVES.
      buffer: Buffer of a multiple of as many elements as there are ranks; overwritten.
      repeats: Number of timings.
    """
    registered = is_registered(comm, buffer)
    table = usable(comm, collective, registered)
    if not table:
        return
    counted = {
        name: count(comm, name, collective, algorithm, buffer)
        for name, algorithm in table.items()
    }
    buffer[:] = 0
    calls = [partial(algorithm.function, comm, buffer) for algorithm in table.values()]
    native = native_calls(comm, len(buffer))[collective]
    times = time_alternately(comm, [native, *calls], repeats)
    native_seconds, *seconds = np.median(times, axis=1).tolist()
    for (name, algorithm), took in zip(table.items(), seconds, strict=True):
        sent, nbytes = counted[name]
        yield {
            "collective": collective,
            "algorithm": name,
            "p": comm.size,
            "bytes": buffer.nbytes,
            "registered": registered,
            "any_size": algorithm.any_size,
            "messages": sent,
            "words": nbytes // ITEMSIZE,
            "seconds": took,
            "native_seconds": None if comm.platform.virtual else native_seconds,
            **predictions(comm, algorithm, buffer, registered),
        }


def native_calls(comm: CountedComm, length: int) -> dict[str, Callable[[], None]]:
    """Return MPI's own collectives on plain memory; on virtual ranks, barriers."""
    raw = comm.platform.raw
    if comm.platform.virtual:
        return dict.fromkeys(COLLECTIVES, raw.Barrier)
    sent, received = np.zeros((2, length), np.float32)
    own = received[: length // comm.size]
    return {
        "allreduce": partial(raw.Allreduce, None, sent),
        "reduce_scatter": partial(raw.Reduce_scatter_block, sent, own),
        "all_gather": partial(raw.Allgather, None, sent),
        "broadcast": partial(raw.Bcast, sent),
        "reduce": partial(raw.Reduce, sent, received),
        "scan": partial(raw.Scan, sent, received),
        "exclusive_scan": partial(raw.Exscan, sent, received),
        "all_to_all": partial(raw.Alltoall, sent, received),
    }


def count(
    comm: CountedComm,
    name: str,
    collective: str,
    algorithm: Algorithm,
    buffer: np.ndarray,
) -> list[int]:
    """Return the messages and the bytes of all ranks; check the result.

    The first call, which may set up communicators and windows, is not counted.
    """
    length = len(buffer)
    start, expected, where = cases(comm.rank, comm.size, length)[collective]
    buffer[:] = start
    algorithm.function(comm, buffer)
    comm.Barrier()  # others may have read a registered buffer until now
    buffer[:] = start
    comm.Barrier()
    before = comm.messages_sent, comm.bytes_sent
    algorithm.function(comm, buffer)
    sent = np.array([comm.messages_sent, comm.bytes_sent]) - before
    wrong = np.array([not np.array_equal(buffer[where], expected)], np.int64)
    totals = np.concatenate([sent, wrong])
    comm.Allreduce(None, totals, np.add)
    *sums, failures = totals.tolist()
    if failures:
        raise BadInput(
            f"expected the {collective} {name} of {length} elements to be right, got "
            f"another result on {failures} of {comm.size} ranks; correct it"
        )
    return sums


def predictions(
    comm: CountedComm, algorithm: Algorithm, buffer: np.ndarray, registered: bool
) -> Row:
    """Return rounds, messages and words of the schedule, and the predicted seconds."""
    length = len(buffer)
    found: Row = dict.fromkeys(("rounds", "schedule_messages", "schedule_words"))
    if algorithm.schedule is not None:
        rounds = list(algorithm.schedule(comm.size, length, ITEMSIZE))
        found = {
            "rounds": sum(entry.times for entry in rounds),
            "schedule_messages": messages_of(rounds),
            "schedule_words": words_sent(rounds, ITEMSIZE),
        }
    found["predicted_seconds"] = None
    if algorithm.seconds is not None:
        hosts = np.unique(comm.platform.hosts(), return_counts=True)[1]
        groups = tuple(hosts.tolist())
        job = Job(comm.size, length, registered=registered, groups=groups)
        rates = machine_rates(comm)
        found["predicted_seconds"] = (
            algorithm.seconds(job, rates) if comm.size > 1 else 0.0
        )
    return found


COLUMNS: Columns = {
    "collective": (14, "{collective}"),
    "algorithm": (16, "{algorithm}"),
    "buffer": (10, lambda row: "registered" if row["registered"] else "plain"),
    "bytes": (7, lambda row: size_text(row["bytes"])),
    "words": (10, scaled_cell("words", 1, ",")),
    "ms": (8, scaled_cell("seconds", 1e3, ".4f")),
    "x native": (8, lambda row: ratio(row["native_seconds"], row["seconds"])),
    "formula": (10, scaled_cell("schedule_words", 1, ",")),
    "messages": (8, scaled_cell("messages", 1, ",")),
    "predicted": (9, scaled_cell("predicted_seconds", 1e3, ".4f")),
    "schedule": (8, scaled_cell("schedule_messages", 1, ",")),
    "rounds": (6, scaled_cell("rounds", 1, ",")),
    "any p": (5, lambda row: "yes" if row["any_size"] else "folds"),
}


def conclude(run: Run) -> str:
    """Return the fastest algorithm of each collective for the largest buffer."""
    most = max((row["bytes"] for row in run.rows), default=0)
    rows = [row for row in run.rows if row["bytes"] == most]
    texts = []
    for name, group in grouped(rows, "collective").items():
        timed: Sequence[Any] = [row for row in group if row["algorithm"] not in AUTO]
        fastest = min(timed, key=lambda row: row["seconds"])
        texts.append(f"{name} {fastest['algorithm']}")
    return f"Fastest for {size_text(most)}: {', '.join(texts)}." if texts else ""
