"""One network trained on one device, and divided over the devices of a mesh."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh
from lab import compiling, flags

from dml.metrics.timer import Timer
from dml.strategies.sharded import sharded
from dml.train import Curve, curve
from dml.types import BadInput, CountedComm, Problem
from dml.update.dense import Optimizer
from dml.wire.mesh import devices
from dml.wire.mesh.axes import WHOLE
from studies.server.runs import virtual_if_alone


class Division(NamedTuple):
    """A problem with its gradient on a mesh, and the sharding of its params."""

    problem: Problem
    axes: Mesh
    specs: Any = WHOLE


def ranks(
    values: flags.FlagValues, size: int, compare: Callable[[CountedComm], Any]
) -> list[Any]:
    """Run the comparison on all ranks; on so many devices if mpirun started one rank.

    Returns the results of the ranks of this process.
    """
    virtual_if_alone(values, size)
    compiling.cached()

    def program(comm: CountedComm) -> Any:
        devices.start(comm)
        return compare(comm)

    return flags.ranks(program, values, devices=True)


def one_device(problem: Problem) -> Division:
    """Return the problem on the first device of this process."""
    return Division(problem, mesh("one", jax.local_devices()[:1], 1))


def mesh(name: str, found: Sequence[jax.Device], size: int) -> Mesh:
    """Return the first devices as a mesh of one axis."""
    # devices of other processes cannot be left out: each process runs the program
    may_leave = jax.process_count() == 1
    if len(found) < size or (len(found) > size and not may_leave):
        raise BadInput(
            f"expected {size} devices for the axis {name}, got {len(found)}; pass "
            f"--simulate={size}, or start {size} ranks"
        )
    return Mesh(np.array(found[:size]), (name,), axis_types=(AxisType.Auto,))


def train(
    division: Division,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    comm: CountedComm,
    evaluate_every: int = 0,
) -> Curve:
    """Train; the last params are in the summary, as `params`."""
    problem, axes, specs = division
    steps = sharded(
        problem, batches, update, comm=comm, timer=Timer(), axes=axes, specs=specs
    )

    def evaluate(params: Any) -> dict[str, Any]:
        return {**problem.evaluate(params), "params": params}

    return curve(steps, evaluate, evaluate_every)


def median_step_seconds(found: Curve) -> float:
    """Return the median seconds of a step, without its input."""
    return float(np.median([row["gradient_seconds"] for row in found.rows]))


def largest_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference of two curves of losses."""
    return float(np.max(np.abs(np.subtract(one, other))))
