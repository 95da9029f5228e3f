"""Columns of allreduce.py --explain: predictions, the choice of auto, the optimum."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dml import sim
from dml.figures.allreduce_times import COLUMNS, ratio
from dml.runs.writers import Columns, Row, scaled_cell
from dml.sim.networks.cuts import allreduce_bound
from dml.types import CountedComm
from dml.wire.collectives import (
    ALLREDUCE,
    AUTO,
    called,
    chosen_allreduce,
    machine_rates,
)
from dml.wire.collectives.rates import candidates, usable
from dml.wire.collectives.table import on_network
from dml.wire.comm.buffers import is_registered
from dml.wire.comm.once import once
from dml.wire.costs.allreduce import Job


def names(row: Row, kinds: Sequence[str]) -> str:
    """Return the names of the choices that an all-reduce belongs to."""
    found = [name for name in AUTO if row[name] in kinds]
    return "both" if len(found) > 1 else "".join(found)


CHOSEN, CANDIDATE = "chosen", "candidate"
EXPLAINED: Columns = {
    "algorithm": (16, "{algorithm}"),
    "bytes": (10, "{bytes:,}"),
    "buffer": COLUMNS["buffer"],
    "predicted": (9, scaled_cell("predicted_seconds", 1e3, ".4f")),
    "ms": (7, scaled_cell("seconds", 1e3, ".4f")),
    "of bound": (8, lambda row: ratio(row["bound_seconds"], row["seconds"])),
    "choice": (8, lambda row: names(row, [CHOSEN])),
    "on links": (8, scaled_cell("network_seconds", 1e3, ".4f")),
    "candidate of": (12, lambda row: names(row, [CHOSEN, CANDIDATE])),
}


def explain(comm: CountedComm, row: Row, buffer: np.ndarray) -> Row:
    """Return the entries of an all-reduce; collective.

    auto, auto_all: Whether `auto` or `auto_all` chooses the all-reduce for this buffer,
      or may choose it for another one. On real ranks the choice is measured at the
      first call and stored. On virtual ranks it has the least seconds: for `auto` those
      predicted by the formula, for `auto_all` those of the schedule on the network.
    network_seconds: Seconds of the schedule on the network; None on real ranks, and for
      all-reduces of a user.
    bound_seconds: Least seconds of an all-reduce by messages (`sim.networks.cuts`), by
      the rates of the network or of this machine; None for an all-reduce that sends
      none, as in shared memory.
    """
    name = row["algorithm"]
    found: Row = {}
    for choice, among in AUTO.items():
        found[choice] = CANDIDATE if name in usable(comm, among.functions) else ""
        if name == chosen_allreduce(comm, buffer, among):
            found[choice] = CHOSEN
    network = comm.platform.network
    if network is None:
        network = sim.Uniform(*machine_rates(comm)[:3])
    bound = once(comm, "bound", None, lambda: allreduce_bound(network, comm.size))
    least = bound.seconds(buffer.nbytes) if row["words_sent"] else None
    return {
        **found,
        "bound_seconds": least,
        "network_seconds": seconds(comm, name, buffer),
    }


def seconds(comm: CountedComm, name: str, buffer: np.ndarray) -> float | None:
    """Return the seconds of the schedule on the network of virtual ranks."""
    name = called(comm, name, buffer)
    if not comm.platform.virtual or name not in ALLREDUCE or comm.size == 1:
        return None
    groups = candidates(comm)[1].groups
    job = Job(comm.size, len(buffer), buffer.itemsize, is_registered(comm, buffer))
    job, key = job._replace(groups=groups), (name, len(buffer), buffer.itemsize)
    call = partial(on_network, comm, [name], job)
    return once(comm, "on network", key, call)[0]
