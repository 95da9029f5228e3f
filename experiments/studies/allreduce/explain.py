"""Columns of allreduce.py --explain: predictions, the choice of auto, the optimum."""

import numpy as np

from dml import sim
from dml.figures.allreduce_times import COLUMNS, ratio
from dml.runs.writers import Columns, Row, scaled_cell
from dml.sim.networks.cuts import allreduce_bound
from dml.types import CountedComm
from dml.wire.collectives import chosen_allreduce, machine_rates
from dml.wire.collectives.rates import candidates
from dml.wire.comm.once import once

CHOSEN, CANDIDATE = "chosen", "candidate"
EXPLAINED: Columns = {
    "buffer": COLUMNS["buffer"],
    "bytes": COLUMNS["bytes"],
    "algorithm": COLUMNS["algorithm"],
    "predicted": (
        9,
        lambda row: (
            "-"
            if row["predicted_seconds"] is None
            else f"{1e3 * row['predicted_seconds']:.4f}"
        ),
    ),
    "ms": (9, scaled_cell("seconds", 1e3, ".4f")),
    "of optimum": (10, lambda row: ratio(row["bound_seconds"], row["seconds"])),
    "auto": (9, "{auto}"),
}


def explain(comm: CountedComm, row: Row, buffer: np.ndarray) -> Row:
    """Return the entries of an all-reduce; collective.

    auto: Whether `auto` chooses the all-reduce for this buffer, or may choose it for
      another one. On real ranks the choice is measured at the first call and stored,
      on virtual ranks it has the least predicted seconds.
    bound_seconds: Least seconds of an all-reduce by messages (`sim.networks.cuts`), by
      the rates of the network or of this machine; None for an all-reduce that sends
      none, as in shared memory.
    """
    name = row["algorithm"]
    names, _ = candidates(comm)
    auto = CANDIDATE if name in names else ""
    if name == chosen_allreduce(comm, buffer):
        auto = CHOSEN
    network = comm.platform.network
    if network is None:
        network = sim.Uniform(*machine_rates(comm)[:3])
    bound = once(comm, "bound", None, lambda: allreduce_bound(network, comm.size))
    least = bound.seconds(buffer.nbytes) if row["words_sent"] else None
    return {"auto": auto, "bound_seconds": least}
