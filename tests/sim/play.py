"""Programs of virtual ranks as lists of steps."""

import numpy as np
import pytest

from dml import sim


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def play(comm, steps):
    """Run the steps of one rank; return its clock after each.

    A step is a number of seconds to compute; an operation with a peer and a number of
    bytes (500 by default), such as ("Send", 1) or ("Irecv", 0, 8), for a Sendrecv those
    to send and to receive; ("Wait",) for the oldest request; or ("Waitall",).
    """
    pending, clocks = [], []
    for step in steps:
        name, *args = step if isinstance(step, tuple) else ("compute", step)
        peer, *sizes = [*args, 500, 500][: max(2, len(args))] if args else (0,)
        buffers = [np.zeros(int(size), np.uint8) for size in sizes]
        if name == "compute":
            comm.platform.compute(peer)
        elif name == "Sendrecv":
            data, into = (buffers * 2)[:2]
            comm.Sendrecv(data, peer, 0, into.copy(), peer, 0)
        elif name == "Wait":
            pending.pop(0).Wait()
        elif name == "Waitall":
            comm.Waitall(pending)
        elif request := getattr(comm, name)(buffers[0], peer):
            pending.append(request)
        clocks.append(comm.Wtime())
    return clocks


def clocks(programs, network, **options):
    """Return the clocks of all ranks after each of their steps."""

    def program(comm):
        return play(comm, programs[comm.rank])

    return sim.run(program, len(programs), network, **options)
