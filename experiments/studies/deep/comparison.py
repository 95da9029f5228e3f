"""Training of one network on one device and divided over a mesh, for comparison."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lab import compiling, flags
import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from dml.metrics.timer import Timer
from dml.strategies.sharded import sharded
from dml.train import Curve, curve
from dml.types import BadInput, CountedComm, Problem
from dml.update.dense import Optimizer
from dml.wire.mesh import devices
from dml.wire.mesh.axes import REPLICATED
from studies.server.runs import simulate_single_process


class Division(NamedTuple):
    """A problem with its gradient on a mesh, and the sharding of its params."""

    problem: Problem
    axes: Mesh
    specs: Any = REPLICATED


def ranks(
    values: flags.FlagValues, size: int, compare: Callable[[CountedComm], Any]
) -> list[Any]:
    """Run the comparison on all ranks, or on virtual devices without mpirun.

    Args:
        values: flags.
        size: number of virtual devices without mpirun.
        compare: function of a communicator.

    Returns:
        Results of the ranks of this process.
    """
    simulate_single_process(values, size)
    compiling.enable_cache()

    def program(comm: CountedComm) -> Any:
        devices.start(comm)
        return compare(comm)

    return flags.ranks(program, values, devices=True)


def one_device(problem: Problem) -> Division:
    """Return the problem on the first device of this process."""
    return Division(problem, mesh("one", jax.local_devices()[:1], 1))


def mesh(name: str, available: Sequence[jax.Device], size: int) -> Mesh:
    """Return the first devices as a mesh of one axis."""
    # every process runs the program, so a mesh has devices of all processes
    may_omit = jax.process_count() == 1
    if len(available) < size or (len(available) > size and not may_omit):
        raise BadInput(
            f"expected {size} devices for the axis {name}, got {len(available)}; pass "
            f"--simulate={size}, or start {size} ranks"
        )
    return Mesh(np.array(available[:size]), (name,), axis_types=(AxisType.Auto,))


def train(
    division: Division,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    comm: CountedComm,
    evaluate_every: int = 0,
) -> Curve:
    """Train a division; the summary has the final params under `params`.

    Args:
        division: problem, mesh and sharding.
        batches: indices of each minibatch.
        update: optimizer.
        comm: communicator of all ranks.
        evaluate_every: steps between evaluations; 0: at the end only.
    """
    problem, axes, specs = division
    steps = sharded(
        problem, batches, update, comm=comm, timer=Timer(), axes=axes, specs=specs
    )

    def evaluate(params: Any) -> dict[str, Any]:
        return {**problem.evaluate(params), "params": params}

    return curve(steps, evaluate, evaluate_every)


def median_step_seconds(result: Curve) -> float:
    """Return the median seconds of a step, without its input."""
    return float(np.median([row["gradient_seconds"] for row in result.rows]))


def largest_difference(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest absolute difference of two loss curves."""
    return float(np.max(np.abs(np.subtract(first, second))))
