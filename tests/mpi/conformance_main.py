"""The conformance suite on the real world: mpirun -n P python -m tests.mpi.…

The first argument names how much is asked: `all` or `some`.
"""

import sys
from functools import partial

import numpy as np

from dml import sim
from dml.wire.messages import ALLREDUCE, Metered, all_gather, all_to_all, barrier
from dml.wire.messages.comm import world
from tests.wire.messages import orders
from tests.wire.messages.conformance import Case, conform, digest, given, reduces

MEGABYTES = 1_048_583  # words: several segments, several stages of shared memory


class Apart:
    """A communicator whose ranks seem to be on hosts of their own."""

    def __init__(self, comm):
        self.comm, self.kept = comm, {}

    def hosts(self):
        return list(range(self.comm.size))

    def Split(self, color=0, key=0):
        return Apart(self.comm.Split(color, key))

    def Dup(self):
        return Apart(self.comm.Dup())

    def __getattr__(self, name):
        return getattr(self.comm, name)


def real(program, size, wrap=lambda comm: comm):
    """Run on all ranks of the world; give everyone the results of all."""
    comm = world(watchdog=20)
    assert comm.size == size
    return comm.allgather(program(wrap(comm)))


def same_as_virtual(names, size):
    """Assert the bits that virtual ranks make, for plain and for segmented buffers."""
    rows = [Case(size, n, "float32", "sum", True) for n in (0, 1, size + 1, 1009)]
    rows.append(Case(size, 300_007, "float32", "sum", True))

    def program(comm):
        hashes = []
        for name in names:
            for case in rows:
                buffer = given(case)[comm.rank].copy()
                ALLREDUCE[name](comm, buffer)
                hashes.append(digest(buffer))
        return hashes

    assert real(program, size) == sim.run(program, size)


def counts(size):
    """Assert that real ranks send what virtual ones do, message by message."""

    def program(comm):
        found = []
        for name in sorted(ALLREDUCE.keys() - {"auto", "native"}):
            metered = Metered(comm)
            ALLREDUCE[name](metered, np.zeros(1009, np.float32))
            found.append((name, dict(metered.messages), dict(metered.bytes)))
        metered = Metered(comm)
        barrier(metered)
        all_gather(metered, np.zeros(33))
        parts = [np.full(100_000 * dest, comm.rank) for dest in range(size)]
        for source, part in enumerate(all_to_all(metered, parts)):
            assert part.tolist() == [source] * (100_000 * comm.rank)
        return [*found, dict(metered.bytes)]

    assert real(program, size) == sim.run(program, size)


def main(amount):
    size = world(watchdog=20).size
    every = amount == "all"
    groups = (0, 1, 2, 3, size) if every else (2, 3)
    tried = dict(ALLREDUCE)
    for group in groups:
        if group <= size:
            hierarchical = partial(ALLREDUCE["hierarchical"], group=group)
            tried[f"hierarchical, {group}"] = hierarchical
    for name, allreduce in tried.items():
        conform(allreduce, real, size, every, order=orders.ORDERS.get(name))
        long = [("float32", "sum"), ("float16", "max"), ("int64", "mean")]
        if every:
            reduces(allreduce, real, [Case(size, 100_003, *kind) for kind in long])
    for name in ("ring", "shared"):
        reduces(ALLREDUCE[name], real, [Case(size, MEGABYTES, "float32", "sum")])
    apart = partial(real, wrap=Apart)
    conform(partial(ALLREDUCE["hierarchical"], group=2), apart, size, False)
    same_as_virtual(sorted(ALLREDUCE.keys() - {"auto", "native"}), size)
    counts(size)
    if world().rank == 0:
        sys.stdout.write(f"{len(tried)} all-reduces conform on {size} ranks\n")


if __name__ == "__main__":
    main(sys.argv[1])
