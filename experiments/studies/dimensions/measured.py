"""Steps on real ranks beside the prediction, with rates that are measured there."""

from collections.abc import Iterator

import numpy as np

from dml.metrics.alternate import alternate
from dml.models.linear.problem import linear
from dml.runs.writers import Row
from dml.types import CountedComm
from dml.wire.collectives import allreduce, machine_rates
from dml.wire.comm.metered import uncounted
from studies.dimensions.data import columns, signs
from studies.dimensions.steps import (
    Machine,
    Processor,
    Task,
    Technique,
    predicted,
    trained,
)

SIDE = 512  # of the square matrix whose product is timed
ROWS, COLUMNS = 32, 1 << 19  # of the matrix whose product with a vector is timed
REPEATS = 7


def processor(comm: CountedComm) -> Processor:
    """Return the slowest rank's rates, measured on all ranks at once; collective."""
    square, wide = (
        np.ones((SIDE, SIDE), np.float32),
        np.ones((ROWS, COLUMNS), np.float32),
    )
    vector = np.ones(COLUMNS, np.float32)
    comm.Barrier()
    seconds = alternate(
        {"square": lambda: square @ square, "wide": lambda: wide @ vector}, REPEATS
    )
    took = np.array([np.median(times) for times in seconds.values()])
    allreduce(uncounted(comm), took, np.maximum, "ring")
    return Processor(2 * SIDE**3 / took[0], wide.nbytes / took[1])


def rows(
    comm: CountedComm,
    examples: int,
    features: int,
    nonzeros: int,
    techniques: list[Technique],
) -> Iterator[Row]:
    """Yield measured and predicted seconds of a step; collective."""
    machine = Machine(processor(comm), machine_rates(comm))
    for data, count in (("dense", 0), ("sparse", nonzeros)):
        made = columns(examples, features, count, 0)
        problem = linear(made, signs(examples, 0), dtype=np.float32)
        task = Task(problem, count)
        for technique in techniques:
            if comm.size % technique.groups:
                continue
            took = trained(comm, task, technique, REPEATS + 1)[1:]
            median = np.array([np.median([seconds for seconds, _ in took])])
            allreduce(uncounted(comm), median, np.maximum, "ring")
            yield {
                "data": data,
                "technique": str(technique),
                "p": comm.size,
                "seconds": float(median[0]) / technique.steps,
                "predicted": predicted(task, technique, comm.size, machine),
                "words": took[0][1] / technique.steps,
            }
