"""What four ranks on two hosts see: right sums, their groups, words on the cable."""

import json
import platform
import sys
from pathlib import Path

import numpy as np

from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.hierarchical import communicators
from dml.wire.comm.buffers import allocate
from dml.wire.comm.mpi import world

LENGTH = 1000
LONG = 1 << 18  # words of 4 bytes
SENT = Path("/sys/class/net/cable/statistics/tx_bytes")


def main():
    comm = world(watchdog=300)
    right = [name for name in ALLREDUCE if sums_are_right(comm, name)]
    inside, across, _ = communicators(comm, 0, ALLREDUCE["ring"])
    found = {
        "right": right,
        "hosts": comm.platform.hosts(),
        "names": comm.allgather(platform.node()),
        "inside": comm.allgather((inside.size, max(inside.platform.hosts()))),
        "across": comm.allgather((across.size, max(across.platform.hosts()))),
        "memory": comm.allgather(Path("/dev/shm").stat().st_dev),
        "cable": on_the_cable(comm),
    }
    if comm.rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    first = comm.Split(inside.rank)
    if inside.rank == 0:
        add_on_devices(first)


def add_on_devices(comm):
    """Add on a mesh of devices, whose ranks meet where the other host can come."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from dml.wire.mesh import devices

    devices.start(comm)
    axes, each = devices.mesh(data=comm.size), PartitionSpec("data")
    rows = np.arange(comm.size * 3.0, dtype=np.float32).reshape(comm.size, 3)
    placed = NamedSharding(axes, each)
    shards = jax.make_array_from_callback(rows.shape, placed, rows.__getitem__)
    layout = {"in_specs": each, "out_specs": PartitionSpec()}
    add = jax.shard_map(lambda row: jax.lax.psum(row, "data"), mesh=axes, **layout)
    found = np.asarray(jax.jit(add)(shards))
    assert found.tolist() == [rows.sum(axis=0).tolist()]
    if comm.rank == 0:
        sys.stdout.write(f"{comm.size} devices have added\n")


def sums_are_right(comm, name):
    """Integers, so that any order adds to the same; `shared` is for one host."""
    sizes = np.arange(LENGTH) % 97
    for new in (allocate, lambda comm, length: np.zeros(length, np.float32)):
        buffer = new(comm, LENGTH)
        buffer[:] = sizes + comm.rank
        try:
            ALLREDUCE[name](comm, buffer)
        except BadInput:
            return False
        if (buffer != comm.size * sizes + sum(range(comm.size))).any():
            return False
    return True


def on_the_cable(comm):
    """Bytes that left rank 0's host in a ring, of which 3/2 of the buffer must."""
    buffer = np.ones(LONG, np.float32)
    before = int(SENT.read_text())  # who leaves the barrier first sends at once
    comm.Barrier()
    ALLREDUCE["ring"](comm, buffer)
    comm.Barrier()
    return int(SENT.read_text()) - before


if __name__ == "__main__":
    main()
