"""A JAX run of all ranks of a communicator, and a mesh of its devices.

rank 0      rank 1                       batch
┌──┬──┐     ┌──┬──┐                   ┌──┬──┬──┬──┐
│d0│d1│     │d2│d3│    start, mesh    │d0│d1│d2│d3│ dim
└──┴──┘     └──┴──┘                   └──┴──┴──┴──┘
"""

import math
import os
from typing import cast

import jax
from jax.sharding import AxisType, Mesh

from dml.types import BadInput, Comm
from dml.wire.comm.plain import as_comm
from dml.wire.comm.started import started_ranks
from dml.wire.mesh.coordinator import (
    bind_address,
    check_host_names,
    coordinator_address,
    on_cpu,
)
from dml.wire.mesh.gloo_output import drop_gloo_lines


def started_comm() -> Comm | None:
    """Return the communicator of the ranks that mpirun has started, if it has."""
    started = started_ranks()
    if started == 1:
        return None
    from dml.wire.comm.mpi import world

    comm = world()
    if comm.size < started:
        raise BadInput(
            f"expected the {started} ranks that mpirun has started, got {comm.size} in "
            "MPI; start them by the mpirun of mpi4py's MPI (python -m dml.doctor)"
        )
    return cast(Comm, comm)


def start_tasks() -> None:
    """Initialise the run of the tasks of srun, whose number and address JAX finds."""
    several = int(os.environ.get("SLURM_NTASKS", "1")) > 1
    if (
        several
        and "SLURM_LOCALID" in os.environ
        and not jax.distributed.is_initialized()
    ):
        jax.distributed.initialize(local_device_ids=int(os.environ["SLURM_LOCALID"]))


def start(comm: Comm | None = None) -> None:
    """Initialise one JAX run of all ranks; collective, before any device is used.

    Afterwards jax.devices() lists the devices of all ranks. For a single rank nothing
    needs to be done. On GPUs the k-th rank of a host uses the k-th GPU of the host.

    Args:
      comm: The ranks; None: those of mpirun, or those of srun without MPI.
    """
    if comm is None:
        comm = started_comm()
        if comm is None:
            start_tasks()
            return
    comm = as_comm(comm)
    if comm.size == 1 or jax.distributed.is_initialized():
        return
    if comm.platform.virtual:
        raise BadInput(
            f"expected real ranks on a mesh of devices, got {comm.size} virtual ranks; "
            "omit --simulate"
        )
    hosts = comm.platform.hosts()
    if on_cpu():
        drop_gloo_lines()
    if max(hosts) and on_cpu():
        check_host_names(comm)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # otherwise JAX handles SIGTERM, and a run cannot save its state and end
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
    """Return a mesh of all devices with axes of these sizes.

    A size of 0 or -1, for one axis, stands for all remaining devices.
    """
    count, given = len(jax.devices()), dict(axes)
    open_axes = [name for name, size in axes.items() if size in (0, -1)]
    if len(open_axes) == 1:
        fixed = math.prod(size for name, size in axes.items() if name != open_axes[0])
        axes[open_axes[0]] = count // fixed if fixed else 0
    if min(axes.values()) < 1 or math.prod(axes.values()) != count:
        sizes = " x ".join(f"{name}={size}" for name, size in given.items())
        raise BadInput(
            f"expected a mesh of all {count} devices, got {sizes}; pass axes whose "
            f"product is {count}, at most one of them 0"
        )
    axis_types = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=axis_types)
