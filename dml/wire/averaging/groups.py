"""Exact averages inside groups that change in each round, as in Moshpit."""

from collections.abc import Callable

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.averaging.exchange import floating
from dml.wire.collectives.halving_doubling import halving_doubling_allreduce
from dml.wire.comm.members import Members
from dml.wire.comm.plain import as_comm
from dml.wire.plans.averaging.faults import NO_FAULTS, Faults, participates
from dml.wire.plans.averaging.mixing import Topology


def group_average(
    comm: Comm,
    buffer: np.ndarray,
    topology: Topology,
    t: int,
    state: None = None,
    faults: Faults = NO_FAULTS,
    allreduce: Callable[..., None] = halving_doubling_allreduce,
) -> None:
    """Average in place over this rank's group of round t.

        round 0: 0 ─ 1 ─ 2    round 1: 0   1   2     each line: reduce-scatter and
                 3 ─ 4 ─ 5             │   │   │     all-gather, all lines at once
                 6 ─ 7 ─ 8             3   4   5 …   grid of M^d: exact after d rounds

    A group is known to its members from the plan, so no rank waits for others than
    those of its group. Ranks that do not take part in this round keep their values and
    the others average without them, so the mean of all ranks never changes.
    Groups of g ranks: 1 round of the plan, 2(g-1)/g·n words per rank,
    2⌈lg g⌉α + 2(g-1)/g·nβ + (g-1)/g·nγ.

    Args:
      comm: The ranks.
      buffer: Floating-point values of any length, equal on all ranks.
      topology: Groups of each round.
      t: Number of the round.
      state: None; groups have no state.
      faults: Losses, delays and absences; see `faults.participates`.
      allreduce: All-reduce of messages inside a group.
    """
    comm, buffer = as_comm(comm), floating(comm, buffer)
    if topology.groups is None:
        raise BadInput(
            f"expected a topology of groups, got {topology.name}; pass complete, "
            "grid:MxM or random_groups:RANKS"
        )
    members = topology.groups(t).members(comm.rank)
    if faults != NO_FAULTS:
        members = members[participates(faults, t, members)]
        if comm.rank not in members:
            return
    if len(members) == 1:
        return
    group = Members(comm, members.tolist())
    allreduce(group, buffer)
    buffer /= group.size
