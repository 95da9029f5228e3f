"""What a step of hybrid sends: read from its compiled program, by axis.

    tensor   inside the parts: as often as there are microbatches, by one stage of K
    stage    boundaries and cotangents: in every tick in which any travels
    data     gradients, once; shared params and norms go with them

A compiled program and its schedule in, bytes that a device sends (a ring's share, the
mean over devices) out. XLA's text says what is sent, the schedule how often.
"""

import jax
import numpy as np

from dml.strategies.hybrid.pipeline import PART, TRAVEL
from dml.wire.mesh.traffic import collectives, sent
from dml.wire.pipelines import Schedule
from dml.wire.slots import places


def bytes_sent(compiled: jax.stages.Compiled, schedule: Schedule) -> dict[str, float]:
    """Return bytes a device and step, by the axis over which they go."""
    laid = places(schedule)
    travels = [
        int(np.count_nonzero((table >= 0).any(axis=1)))
        for table in (laid.arrives_forward, laid.arrives_backward)
    ]
    found = {"tensor": 0.0, "stage": 0.0, "data": 0.0}
    for one in collectives(compiled.as_text() or ""):
        if PART in one.of:
            found["tensor"] += sent(one) * schedule.microbatches / schedule.stages
        elif TRAVEL in one.of:
            found["stage"] += sent(one) * sum(travels) / len(travels)
        else:
            found["data"] += sent(one)
    return found
