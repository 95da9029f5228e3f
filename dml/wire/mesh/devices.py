"""Devices for a mesh: the ranks of a communicator in, one JAX run and its Mesh out.

rank 0      rank 1                       batch
┌──┬──┐     ┌──┬──┐                   ┌──┬──┬──┬──┐
│d0│d1│     │d2│d3│    start, mesh    │d0│d1│d2│d3│ dim
└──┴──┘     └──┴──┘                   └──┴──┴──┴──┘
"""

import math

import jax
from jax.sharding import AxisType, Mesh

from dml.types import BadInput, Comm
from dml.wire.mesh.coordinator import (
    bind_address,
    coordinator_address,
    known_by_name,
    on_cpu,
)


def start(comm: Comm) -> None:
    """Join the ranks into one run of JAX; collective, before any device is used.

    Afterwards jax.devices() are those of all ranks. One rank alone is a run already. On
    GPUs each rank takes one: that of its number on its host.
    """
    if comm.size == 1 or jax.distributed.is_initialized():
        return
    if comm.platform.virtual:
        raise BadInput(
            f"expected real ranks on a mesh of devices, got {comm.size} virtual ones; "
            "drop --simulate"
        )
    hosts = comm.platform.hosts()
    if max(hosts) and on_cpu():
        known_by_name(comm)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # else JAX takes SIGTERM for itself, and a run cannot save and end
    jax.config.update("jax_enable_preemption_service", False)
    address = coordinator_address(comm)
    jax.distributed.initialize(
        address,
        num_processes=comm.size,
        process_id=comm.rank,
        local_device_ids=hosts[: comm.rank].count(hosts[comm.rank]),
        coordinator_bind_address=bind_address(address),
    )


def mesh(**axes: int) -> Mesh:
    """Return a mesh of all devices with these axes; one of them may be 0: the rest."""
    count, asked = len(jax.devices()), dict(axes)
    rest = [name for name, size in axes.items() if size in (0, -1)]
    if len(rest) == 1:
        known = math.prod(size for name, size in axes.items() if name != rest[0])
        axes[rest[0]] = count // known if known else 0
    if min(axes.values()) < 1 or math.prod(axes.values()) != count:
        sizes = " x ".join(f"{name}={size}" for name, size in asked.items())
        raise BadInput(
            f"expected a mesh of all {count} devices, got {sizes}; pass axes whose "
            f"product is {count}, at most one of them 0"
        )
    kinds = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=kinds)
