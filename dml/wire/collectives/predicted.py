"""Predicted seconds of an all-reduce, by name."""

from collections.abc import Sequence

import numpy as np

from dml.types import Comm
from dml.wire.collectives.auto import chosen_allreduce
from dml.wire.collectives.rates import machine_rates
from dml.wire.collectives.table import AUTO, COLLECTIVES
from dml.wire.comm import buffers
from dml.wire.comm.once import once
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job
from dml.wire.plans.topology import levels


def called(comm: Comm, name: str, buffer: np.ndarray) -> str:
    """Return the name of the all-reduce that an all-reduce calls: a choice, or itself.

    Collective at the first call of a choice.
    """
    return chosen_allreduce(comm, buffer, AUTO[name]) if name in AUTO else name


def predicted_seconds(
    comm: Comm,
    name: str,
    buffer: np.ndarray,
    group: int | Sequence[int] = 0,
    outside: str = "ring",
) -> float:
    """Predict the seconds of an all-reduce on this machine.

    Args:
      comm: The ranks; collective at the first call.
      name: Name of the all-reduce in `ALLREDUCE`.
      buffer: Buffer to reduce. Only its length, itemsize and registration are used.
      group: Number of consecutive members in a group of the hierarchical all-reduce,
        for each level; 0 makes each host a group.
      outside: Name of the all-reduce across groups, for the hierarchical all-reduce.
    """
    comm = as_comm(comm)
    name = called(comm, name, buffer)
    predict = COLLECTIVES["allreduce"][name].seconds
    assert predict  # only auto has no formula
    rates, registered = machine_rates(comm), buffers.is_registered(comm, buffer)

    def seconds() -> float:
        first, *further = levels(comm.platform.hosts(), group)
        job = Job(
            comm.size,
            len(buffer),
            buffer.itemsize,
            registered,
            groups=first.sizes,
            hosts=first.hosts,
            further=tuple((level.sizes, level.hosts) for level in further),
            outside=outside,
        )
        return predict(job, rates) if job.size > 1 else 0.0

    key = name, len(buffer), buffer.itemsize, registered, str(group), outside
    return once(comm, "predicted", key, seconds)
