"""Rows of allreduce.py: checks, timings and predictions of all-reduces of a buffer."""

from collections.abc import Callable
from typing import Any

from lab import estimates
from lab import flags as lab
from lab.claims import grouped
from lab.shared_flags import FlagValues
import numpy as np

from dml.runs.results import Run
from dml.types import CountedComm
from dml.wire.collectives import AUTO, called
from dml.wire.collectives.background import overlapped_share
from dml.wire.collectives.benchmark import benchmark
from dml.wire.comm.buffers import is_registered
from dml.wire.comm.once import one_host
from studies.allreduce import libraries as libraries
from studies.allreduce.explain import explain

Row = dict[str, Any]
Table = dict[str, Callable[..., None]]


def select_algorithms(comm: CountedComm, names: list[str], flags: FlagValues) -> Table:
    """Return the all-reduces by name; `shared` is dropped on several hosts."""
    if flags.algorithms in ("all", "classic") and not one_host(comm):
        names = [name for name in names if name != "shared"]
    return {name: lab.allreduce(name, flags, comm.size) for name in names}


def measure(
    comm: CountedComm,
    table: Table,
    buffer: np.ndarray,
    flags: FlagValues,
    checked: dict | None,
) -> list[Row]:
    """Check and time all-reduces of a buffer; return a row for each.

    Args:
      comm: Communicator of the ranks that reduce.
      table: All-reduces by name.
      buffer: Buffer to reduce, in registered or in other memory.
      flags: Flags of allreduce.py.
      checked: Results of earlier checks; see `benchmark`.
    """
    topology = lab.widths(flags.group), flags.outside
    if comm.platform.virtual and comm.rank == 0:
        for name in table:
            messages = estimates.allreduce_messages(comm, name, buffer, *topology)
            estimates.warn(comm, f"{name}, {buffer.nbytes:,} bytes", messages, name)
    others = libraries.installed(comm, buffer) if flags.peers else {}
    options = {"seed": flags.seed, "peers": others, "checked": checked}
    rows = benchmark(comm, table, buffer, flags.repeats, **options)
    for row in rows:
        name = row["algorithm"]
        row["registered"] = is_registered(comm, buffer)
        if not row["words_sent"] and uncounted(comm, name, buffer):
            row["words_sent"] = None
        row["predicted_seconds"] = None  # other libraries have no cost model
        if name in table:
            row["predicted_seconds"] = estimates.predicted_seconds(
                comm, name, buffer, *topology
            )
        if flags.explain:
            row |= explain(comm, row, buffer)
        if name in table and flags.overlap:
            seconds, overlap = row["seconds"], flags.overlap
            row["hidden_share"] = overlapped_share(
                comm, buffer, table[name], seconds, overlap
            )
    return rows


def uncounted(comm: CountedComm, name: str, buffer: np.ndarray) -> bool:
    """Return whether an all-reduce is MPI's own, whose words nothing counts."""
    return called(comm, name, buffer) == "native" and comm.size > 1


def summary_entries(row: Row) -> Row:
    """Return entries of the summary: speed of `auto` relative to MPI and to memcpy."""
    if row["algorithm"] != "auto" or not row["seconds"]:
        return {}
    prefix = "" if row["registered"] else "plain_"
    return {
        f"{prefix}speedup_{row['bytes']}": row["speedup"],
        f"{prefix}memcpy_share_{row['bytes']}": row["memcpy_seconds"] / row["seconds"],
    }


def conclude(run: Run) -> str:
    """Return the fastest algorithm of each size, on registered buffers if there are."""
    kind = any(row["registered"] for row in run.rows)
    rows = [row for row in run.rows if row["registered"] == kind and row["seconds"]]
    rows = [row for row in rows if row["algorithm"] not in AUTO]  # one of the others
    fastest = [
        min(group, key=lambda row: row["seconds"])
        for group in grouped(rows, "bytes").values()
    ]
    if not fastest:
        return "No algorithm was timed."
    unit = "virtual ms" if run.flags.get("simulate") else "ms"
    texts = [
        f"{row['algorithm']} for {size_text(row['bytes'])} "
        f"({1e3 * row['seconds']:.3g} {unit})"
        for row in fastest
    ]
    size = fastest[0]["p"]
    ranks = f"{size} rank{'s' * (size > 1)}"
    return f"Fastest on {ranks}: {', '.join(texts)}."


def size_text(nbytes: int) -> str:
    """Return a number of bytes such as "4 KB"; a KB is 1024 bytes."""
    power = max(power for power in range(4) if not power or nbytes >> 10 * power)
    return f"{nbytes / 2 ** (10 * power):.4g} {['B', 'KB', 'MB', 'GB'][power]}"
