"""Meshes over ranks, a device each: a deep network, then GloVe.

The arguments are a file for the losses and params of a deep network's steps, and a
folder for its checkpoint. One rank of two devices must have the bits of two ranks.
"""

import sys
from pathlib import Path

import jax
import numpy as np

from dml.metrics.replicas import first_difference
from dml.metrics.timer import Timer
from dml.runs import states
from dml.strategies import mesh as deep
from dml.strategies.glove.mesh import mesh
from dml.update.rows import unpack
from dml.wire.comm.mpi import world
from dml.wire.mesh import devices
from tests.strategies.glove.mesh_main import (
    BATCH,
    CLOSE,
    CLOSE_LOSS,
    DIM,
    EPOCHS,
    RATE,
    one_worker,
    problem,
)
from tests.strategies.small import apart, train

LISTENS, LOOPBACK = "0A", "0100007F"  # in /proc/net/tcp


def main(path, folder):
    comm = world(watchdog=300)
    addresses = []
    choose = devices.coordinator_address
    devices.coordinator_address = lambda comm: (
        addresses.append(choose(comm)) or addresses[-1]
    )
    devices.start(comm)
    devices.start(comm)  # a second time is nothing
    if comm.size > 1 and comm.rank == 0:
        check_coordinator_is_private(*addresses)
    train_deep(comm, path, Path(folder))
    if comm.size > 1:
        agrees_with_one_worker(comm, 1, comm.size)


def check_coordinator_is_private(address):
    """Compare the interfaces on which JAX's coordinator listens, on one host."""
    port = f"{int(address.rpartition(':')[2]):04X}"
    interfaces = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            interface, _, number = line.split()[1].partition(":")
            if number == port and line.split()[3] == LISTENS:
                interfaces.add(interface[-8:])  # of ::ffff:127.0.0.1, too
    assert interfaces == {LOOPBACK}


def train_deep(comm, path, folder):
    """Train a deep network on a mesh; save and load its state."""
    axes = devices.mesh(data=2)
    sliced = train(deep.mesh, axes=axes, zero=3)
    if comm.rank == 0:
        losses = [step.loss for step in sliced]
        np.savez(path, losses, *jax.tree.leaves(sliced[-1].params))
    assert first_difference(sliced[-1].params, comm) is None

    tree = {"params": sliced[-1].params, "state": sliced[-1].state}
    if comm.rank == 0:
        states.save(folder, 4, tree, {})
    comm.Barrier()
    number, again = states.load(folder, {}, tree, warn=lambda line: None)
    assert (number, apart(again, tree)) == (4, 0)


def agrees_with_one_worker(comm, batch, dim):
    axes = devices.mesh(batch=batch, dim=dim)
    task = problem(tables=2)
    common = {"comm": comm, "timer": Timer()}
    found = list(mesh(task, range(EPOCHS), RATE, axes=axes, batch=BATCH, **common))
    table = found[-1].params()
    assert (table is None) == (comm.rank > 0)
    losses = [step.loss for step in found]
    assert comm.allgather(losses) == [losses] * comm.size
    if comm.rank == 0:
        want_losses, want_end = one_worker(task)
        np.testing.assert_allclose(losses, want_losses, **CLOSE_LOSS)
        for mine, want in zip(unpack(table, DIM), want_end, strict=True):
            np.testing.assert_allclose(mine, want, **CLOSE)
        sys.stdout.write(f"a mesh of {batch} x {dim} is as one worker\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
