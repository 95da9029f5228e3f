"""Rows of allreduce.py: checks, timings and predictions of all-reduces of a buffer."""

from collections.abc import Callable
from typing import Any

from lab import estimates
from lab import flags as lab
from lab.shared_flags import FlagValues
import numpy as np

from dml.types import CountedComm
from dml.wire.collectives.background import overlapped_share
from dml.wire.collectives.benchmark import benchmark
from dml.wire.comm.buffers import is_registered
from dml.wire.comm.once import one_host
from studies.allreduce import libraries as libraries

Row = dict[str, Any]
Table = dict[str, Callable[..., None]]


def select_algorithms(comm: CountedComm, names: list[str], flags: FlagValues) -> Table:
    """Return the all-reduces by name; `shared` is dropped on several hosts."""
    if flags.algorithms == "all" and not one_host(comm):
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
    topology = flags.group, flags.outside
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
        row["predicted_seconds"] = None  # other libraries have no cost model
        if name in table:
            row["predicted_seconds"] = estimates.predicted_seconds(
                comm, name, buffer, *topology
            )
        if name in table and flags.overlap:
            seconds, overlap = row["seconds"], flags.overlap
            row["hidden_share"] = overlapped_share(
                comm, buffer, table[name], seconds, overlap
            )
    return rows


def summary_entries(row: Row) -> Row:
    """Return entries of the summary: speed of `auto` relative to MPI and to memcpy."""
    if row["algorithm"] != "auto" or not row["seconds"]:
        return {}
    prefix = "" if row["registered"] else "plain_"
    return {
        f"{prefix}speedup_{row['bytes']}": row["speedup"],
        f"{prefix}memcpy_share_{row['bytes']}": row["memcpy_seconds"] / row["seconds"],
    }
