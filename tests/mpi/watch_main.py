"""Ranks that stop under `dml.watch`: the argument names how."""

import sys
import time
from contextlib import suppress

import numpy as np

import dml
from dml.wire.comm import watch as module
from dml.wire.comm.mpi_library import MPI
from dml.wire.comm.watch import Watch

QUICK = 0.2  # seconds without a step, once all ranks have stopped
LONG = 1200


def nap():
    time.sleep(600)


def end_once(stopped):
    """Let the watch wait LONG, and only QUICK once stopped(states) is true."""
    judge = Watch.judge

    def judge_stopped(watch, clients):
        if stopped(watch.states):
            watch.seconds = QUICK
        judge(watch, clients)

    Watch.judge = judge_stopped


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

    def stopped(states):
        return states[0].call.startswith("comm.recv") and "sleep" in states[1].call

    end_once(stopped)
    x = np.float32(0)
    with dml.watch(comm, LONG, file=sys.argv[2], code=76) as watch:
        while True:
            x = step(x)
            if comm.rank == 0:
                comm.recv(source=1)
            else:
                comm.send(float(x), dest=0)
            watch.step()


def in_another_branch(comm):
    """Rank 1 takes another branch than rank 0, and rank 2 leaves."""

    def stopped(states):
        last = states[0].step == states[1].step == 3 and states[2].left
        return last and "Barrier" in states[0].call and "recv" in states[1].call

    end_once(stopped)
    with suppress(ValueError), dml.watch(comm, LONG, file=sys.argv[2]) as watch:
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
    with dml.watch(comm, LONG) as watch:
        time.sleep(0.3 * (comm.size - comm.rank))
        watch.step()
    comm.Barrier()
    if comm.rank == 0:
        sys.stdout.write("all have left\n")


def apart(rank, address):
    """A rank of a watch without MPI; rank 1 is killed, rank 3 has never been there."""
    own = Watch(int(rank), 4, address, "token", LONG)
    if own.rank == 0:
        own.listen()
        host, port = own.server.getsockname()
        print(f"{host}:{port}", flush=True)
    own.start()
    with own:
        own.step()
        if own.rank == 0:
            while sum(state.step for state in own.states.values()) < 3:
                time.sleep(0.01)
            print("all report", flush=True)
        nap()


if __name__ == "__main__":
    if sys.argv[1] == "apart":
        apart(*sys.argv[2:])
    globals()[sys.argv[1]](MPI.COMM_WORLD)
