"""A mesh over ranks, a device each: what the steps leave, written by rank 0.

Arguments: a file for the losses and params of a mesh's steps. With one rank of two
devices it must have the same bits.
"""

import sys
from pathlib import Path

import jax
import numpy as np

from dml.metrics.replicas import different
from dml.runs import states
from dml.strategies.mesh import mesh
from dml.strategies.serial import serial
from dml.wire.comm.mpi import world
from dml.wire.mesh import devices
from tests.strategies.small import apart, train


def main(path, folder):
    comm = world(watchdog=30)
    devices.start(comm)
    axes = devices.mesh(data=2)
    found = train(mesh, axes=axes)
    if comm.rank == 0:
        losses = [step.loss for step in found]
        np.savez(path, losses, *jax.tree.leaves(found[-1].params))
    sliced = train(mesh, axes=axes, zero=3)
    alone = train(serial)
    assert apart(sliced[-1].params, alone[-1].params) < 3e-6
    assert apart(found[-1].params, alone[-1].params) < 3e-6
    assert different(found[-1].params, comm) is None

    tree = {"params": sliced[-1].params, "state": sliced[-1].state}
    if comm.rank == 0:
        states.save(folder, 4, tree, {})
    comm.Barrier()
    number, again = states.load(folder, {}, tree, say=lambda line: None)
    assert (number, apart(again, tree)) == (4, 0)
    if comm.rank == 0:
        sys.stdout.write("a mesh of ranks is as one worker\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
