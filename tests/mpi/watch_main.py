"""Ranks that stop under `dml.watch`: the argument names how."""

import os
import signal
import sys
import time
from contextlib import suppress

import numpy as np

import dml
from dml.wire.comm import watch as module
from dml.wire.comm.mpi_library import MPI
from dml.wire.comm.watch import Watch

QUICK = 1.5  # seconds without a step


def nap():
    time.sleep(600)


def in_a_compiled_step(comm):
    """Rank 1 sleeps in a callback of a compiled step; rank 0 waits for its message."""
    import jax

    def host(x):
        if comm.rank == 1 and x > 2:
            nap()
        return x

    @jax.jit
    def step(x):
        return jax.pure_callback(host, jax.ShapeDtypeStruct((), np.float32), x) + 1

    x = np.float32(0)
    with dml.watch(comm, QUICK * 4, file=sys.argv[2], code=76) as watch:
        while True:
            x = step(x)
            if comm.rank == 0:
                comm.recv(source=1)
            else:
                comm.send(float(x), dest=0)
            watch.step()


def in_another_branch(comm):
    """Rank 1 takes another branch than rank 0, and rank 2 leaves."""
    with suppress(ValueError), dml.watch(comm, QUICK, file=sys.argv[2]) as watch:
        for number in range(9):
            if comm.rank == 1 and number == 3:
                comm.recv(source=(comm.rank + 1) % comm.size, tag=number)
            elif comm.rank == 2 and number == 3:
                raise ValueError("its own")
            else:
                comm.Barrier()
            watch.step()
    nap()


def well(comm):
    """All ranks leave, at different times, and none has died."""
    module.GRACE = 0.1
    with dml.watch(comm, 60) as watch:
        time.sleep(0.3 * (comm.size - comm.rank))
        watch.step()
    comm.Barrier()
    if comm.rank == 0:
        sys.stdout.write("all have left\n")


def apart(rank, address):
    """A rank of a watch without MPI: rank 1 dies, rank 3 has never been there."""
    own = Watch(int(rank), 4, address, "token", 60)
    if own.rank == 0:
        own.listen()
        host, port = own.server.getsockname()
        sys.stdout.write(f"{host}:{port}\n")
        sys.stdout.flush()
    own.start()
    with own:
        own.step()
        time.sleep(own.rank)
        if own.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        nap()


if __name__ == "__main__":
    if sys.argv[1] == "apart":
        apart(*sys.argv[2:])
    globals()[sys.argv[1]](MPI.COMM_WORLD)
