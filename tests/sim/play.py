"""Programs of virtual ranks as lists of steps, and a network to play them on."""

from typing import NamedTuple

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Slow
from dml.sim.networks.fabric import Links, Paths, Rates

NOTHING = (Slow(frozenset([0]), frozenset([0]), 1.0),)  # routes, and slows nothing
FABRICS = pytest.mark.parametrize("events", ((), NOTHING), ids=("free", "routed"))


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def play(comm, steps):
    """Run the steps of one rank; return its clock after each.

    A step is a number of seconds to compute; ("Send", peer, bytes, tag) and alike, by
    default of 500 bytes with tag 0; ("Sendrecv", peer, bytes, bytes to receive);
    ("Wait",) for the oldest request; or ("Waitall",).
    """
    pending, clocks = [], []
    for step in steps:
        name, *args = step if isinstance(step, tuple) else ("compute", step)
        if name == "compute":
            comm.platform.compute(step)
        elif name == "Wait":
            pending.pop(0).Wait()
        elif name == "Waitall":
            comm.Waitall(pending)
        else:
            peer, nbytes, more = (*args, *(500, 0)[len(args) - 1 :])
            data = np.zeros(nbytes, np.uint8)
            if name == "Sendrecv":
                comm.Sendrecv(data, peer, 0, np.zeros(more or nbytes, np.uint8), peer)
            elif request := getattr(comm, name)(data, peer, more):
                pending.append(request)
        clocks.append(comm.Wtime())
    return clocks


def clocks(programs, network, **options):
    """Return the clocks of all ranks after each of their steps."""

    def program(comm):
        return play(comm, programs[comm.rank])

    return sim.run(program, len(programs), network, **options)


def first(program, others, network, **options):
    """Return what the program returns on rank 0, while other ranks run their steps."""

    def either(comm):
        return play(comm, others[comm.rank - 1]) if comm.rank else program(comm)

    return sim.run(either, 1 + len(others), network, **options)[0]


class Line(NamedTuple):
    """Routers in a row: link 2i goes from router i to i + 1, link 2i + 1 back."""

    size: int
    rates: Rates
    seats: int = 1  # ranks at each router
    spread: float = 1.0  # how much slower the last link is than the first

    @property
    def capacity(self):
        return self.size

    def links(self):
        slower = np.linspace(1, self.spread, 2 * (self.size // self.seats - 1))
        return Links(self.rates.hop * slower, self.rates.link * slower)

    def paths(self, source, dest):
        ways = [
            np.arange(a, b) * 2 if a < b else np.arange(a - 1, b - 1, -1) * 2 + 1
            for a, b in zip(source // self.seats, dest // self.seats, strict=True)
        ]
        starts = np.cumsum([0] + [len(way) for way in ways])
        links = np.concatenate([*ways, []]).astype(np.int32)
        ones = np.ones(len(source))
        return Paths(self.rates.alpha * ones, self.rates.beta * ones, starts, links)

    def hosts(self, size):
        return list(range(size))
