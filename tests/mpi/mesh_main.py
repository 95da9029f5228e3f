"""GloVe on meshes of real ranks, a device each: by batches, then by dimensions."""

import sys
from functools import partial

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.glove.mesh import mesh
from dml.strategies.glove.problem import minibatches
from dml.strategies.serial import serial
from dml.update.rows import AdaGrad, unpack
from dml.wire.comm.mpi import world
from dml.wire.mesh import devices
from tests.strategies.glove.mesh_main import (
    BATCH,
    CLOSE,
    CLOSE_LOSS,
    DIM,
    RATE,
    problem,
)

EPOCHS = 2


def main():
    comm = world(watchdog=30)
    devices.start(comm)
    devices.start(comm)  # a second time is nothing
    for batch, dim in ((comm.size, 1), (1, comm.size)):
        agrees_with_one_worker(comm, batch, dim)


def agrees_with_one_worker(comm, batch, dim):
    axes = devices.mesh(batch=batch, dim=dim)
    task = problem(tables=2)
    common = {"comm": comm, "timer": Timer()}
    found = list(mesh(task, range(EPOCHS), RATE, axes=axes, batch=BATCH, **common))
    batches = [b for _ in range(EPOCHS) for b in minibatches(task.examples, BATCH)]
    update, each = partial(AdaGrad, rate=RATE), len(batches) // EPOCHS
    alone = list(serial(task, batches, update, every=each, **common))
    table = found[-1].params()
    assert (table is None) == (comm.rank > 0)
    losses = [step.loss for step in found]
    assert comm.allgather(losses) == [losses] * comm.size
    np.testing.assert_allclose(losses, [step.loss for step in alone], **CLOSE_LOSS)
    if comm.rank == 0:
        want_table = alone[-1].params()
        both = (unpack(one, DIM) for one in (table, want_table))
        for mine, want in zip(*both, strict=True):
            np.testing.assert_allclose(mine, want, **CLOSE)
        sys.stdout.write(f"a mesh of {batch} x {dim} is as one worker\n")


if __name__ == "__main__":
    main()
