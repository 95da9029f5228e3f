"""Group averages evaluated for all ranks at once."""

import numpy as np

from dml.types import BadInput
from dml.wire.plans.averaging.faults import NO_FAULTS, Faults, participates
from dml.wire.plans.averaging.mixing import Topology


def group_average(
    values: np.ndarray,
    topology: Topology,
    t: int,
    state: None = None,
    faults: Faults = NO_FAULTS,
) -> None:
    """Average in place over the groups of round t.

    Args:
      values: Value of every rank.
      topology: Groups of each round.
      t: Number of the round.
      state: None; groups have no state.
      faults: Losses, delays and absences.
    """
    if topology.groups is None:
        raise BadInput(
            f"expected a topology of groups, got {topology.name}; pass complete, "
            "grid:MxM or random_groups:RANKS"
        )
    label, sizes = topology.groups(t).label, topology.groups(t).sizes()
    if faults == NO_FAULTS:
        sums = np.bincount(label, values, len(sizes))
        values[:] = (sums / np.maximum(sizes, 1))[label]
        return
    inside = participates(faults, t, np.arange(topology.size))
    label = label[inside]
    sums = np.bincount(label, values[inside], len(sizes))
    counts = np.bincount(label, minlength=len(sizes))
    values[inside] = (sums / np.maximum(counts, 1))[label]
