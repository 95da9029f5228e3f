"""GloVe on meshes of real ranks, a device each: by batches, then by dimensions."""

import sys
from itertools import islice

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.glove.mesh import mesh
from dml.strategies.glove.minibatch import minibatch
from dml.wire.mesh import devices
from dml.wire.messages.comm import world
from tests.strategies.glove.mesh_main import BATCH, CLOSE, CLOSE_LOSS, RATE, problem

EPOCHS = 2


def main():
    comm = world(watchdog=30)
    devices.start(comm)
    devices.start(comm)  # a second time is nothing
    for batch, dim in ((comm.size, 1), (1, comm.size)):
        agrees_with_one_worker(comm, batch, dim)


def agrees_with_one_worker(comm, batch, dim):
    axes = devices.mesh(batch=batch, dim=dim)
    state, tiles = problem(tables=2)
    options = {"comm": comm, "axes": axes, "batch": BATCH}
    found = list(islice(mesh(state, tiles, RATE, Timer(), **options), EPOCHS))
    alone = list(islice(minibatch(state, tiles, RATE, Timer(), batch=BATCH), EPOCHS))
    params = found[-1].params()
    assert (params is None) == (comm.rank > 0)
    losses = [step.loss for step in found]
    assert comm.allgather(losses) == [losses] * comm.size
    np.testing.assert_allclose(losses, [step.loss for step in alone], **CLOSE_LOSS)
    if comm.rank == 0:
        for mine, want in zip(params, alone[-1].params(), strict=True):
            np.testing.assert_allclose(mine, want, **CLOSE)
        sys.stdout.write(f"a mesh of {batch} x {dim} is as one worker\n")


if __name__ == "__main__":
    main()
