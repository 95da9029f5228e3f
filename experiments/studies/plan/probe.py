"""Rates of this machine's cores, measured by all ranks at once.

mpirun -n 2 python experiments/studies/plan/probe.py       prints a line of JSON

    peak        flops per second of a float32 product of 512 x 512 matrices
    bandwidth   bytes per second that an elementwise operation reads and writes
    alpha, link seconds of a round of an all-reduce without content; bytes per second
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dml.types import Comm
from dml.wire.comm.mpi import world
from dml.wire.mesh import devices

SIDE = 512  # rows and columns of a matrix
UNITS = 1 << 18  # elements of an elementwise operation
SIZES = (1 << 14, 1 << 19)  # elements of two all-reduces
CALLS = 8  # operations of a compiled call
REPEATS = 15


def rates(comm: Comm) -> dict[str, float]:
    """Return the rates of the slowest rank; collective."""
    devices.start(comm)
    seconds = partial(slowest_seconds, comm)
    side = jnp.full((SIDE, SIDE), 1 / SIDE, jnp.float32)
    units = jnp.ones(UNITS, jnp.float32)
    found = {
        "peak": 2 * SIDE**3 / seconds(repeated(lambda x: x @ side), side),
        "bandwidth": 8 * UNITS / seconds(repeated(scaled), units),
    }
    if comm.size == 1:
        return found | {"alpha": 0.0, "link": found["bandwidth"]}
    rounds = 2 * (comm.size - 1)
    short, long = (seconds(*all_reduce(comm.size, size)) / rounds for size in SIZES)
    part = 4 * (SIZES[1] - SIZES[0]) / comm.size  # bytes of a round
    link = part / max(long - short, 1e-9)
    alpha = max(short - 4 * SIZES[0] / comm.size / link, 0.0)
    return found | {"alpha": alpha, "link": link}


def scaled(units: Any) -> Any:
    """Return units times a constant, an operation that XLA does not merge."""
    return jax.lax.optimization_barrier(units * np.float32(1.0001))


def repeated(operation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the compiled repetition of an operation, CALLS times."""
    return jax.jit(lambda x: jax.lax.fori_loop(0, CALLS, lambda _, y: operation(y), x))


def all_reduce(size: int, length: int) -> tuple[Callable[[Any], Any], Any]:
    """Return repeated means over all devices, and vectors of a length."""
    mesh = devices.mesh(data=size)
    spec = jax.sharding.PartitionSpec("data")
    vectors = jax.make_array_from_callback(
        (size * length,),
        jax.sharding.NamedSharding(mesh, spec),
        lambda index: np.ones(length, np.float32),
    )
    mean = repeated(lambda x: jax.lax.pmean(x, "data"))
    mean = jax.shard_map(
        mean, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    return jax.jit(mean), vectors


def slowest_seconds(comm: Comm, call: Callable[[Any], Any], argument: Any) -> float:
    """Return the median seconds of one operation on the slowest rank; collective."""
    jax.block_until_ready(call(argument))  # compiles
    laps = []
    comm.Barrier()
    for _ in range(REPEATS):
        start = perf_counter()
        jax.block_until_ready(call(argument))
        laps.append(perf_counter() - start)
    slowest = np.zeros(1)
    comm.Allreduce(np.array([np.median(laps) / CALLS]), slowest, np.maximum)
    return float(slowest[0])


if __name__ == "__main__":
    comm = world()
    found = rates(comm)
    if comm.rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")
