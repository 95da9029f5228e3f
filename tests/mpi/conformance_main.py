"""The conformance suite on the real world: mpirun -n P python -m tests.mpi.…

The arguments name how much is asked, `all` or `some`, and the file that takes what
virtual ranks must find, too.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np

from dml.wire.collectives import ALLREDUCE, all_gather, all_to_all, auto
from dml.wire.comm.wrapper import Wrapper
from tests.wire.collectives.conformance import (
    DTYPES,
    OPS,
    Case,
    behaves,
    conform,
    digest,
    given,
    lengths,
    reduces,
)
from tests.wire.collectives.spy import Spy
from tests.wire.comm import orders

MEGABYTES = 1_048_583  # words: several segments, several stages of shared memory
VIRTUAL = sorted(ALLREDUCE.keys() - {"auto", "native"})  # the same on virtual ranks


class Apart(Wrapper):
    """A communicator whose ranks seem to be on hosts of their own."""

    def __init__(self, comm):
        super().__init__(comm)
        self.platform = comm.platform._replace(hosts=lambda: list(range(comm.size)))


def real(program, size, wrap=lambda comm: comm):
    """Run on all ranks of the world; give everyone the results of all."""
    from dml.wire.comm.mpi import world

    comm = world(watchdog=20)
    assert comm.size == size
    return comm.allgather(program(wrap(comm)))


def turns(size):
    """Each dtype at each length, the operations by turns: they never see the wire."""
    ops = tuple(OPS)
    found = []
    for i, n in enumerate(lengths(size)):
        kinds = [(dtype, ops[(i + j) % len(ops)]) for j, dtype in enumerate(DTYPES)]
        found += [Case(size, n, *kind) for kind in kinds]
        found.append(Case(size, n, DTYPES[i % 3], "sum", True))
    return found


def bits(comm):
    """Hash what is reduced, for plain and for segmented buffers."""
    rows = [
        Case(comm.size, n, "float32", "sum", True)
        for n in (0, 1, comm.size + 1, 1009, 300_007)
    ]
    hashes = []
    for name in VIRTUAL:
        for case in rows:
            buffer = given(case)[comm.rank].copy()
            ALLREDUCE[name](comm, buffer)
            hashes.append(digest(buffer))
    return hashes


def counts(comm):
    """Count what is sent, message by message."""
    found = []
    for name in VIRTUAL:
        spy = Spy(comm)
        ALLREDUCE[name](spy, np.zeros(1009, np.float32))
        found.append((name, dict(spy.messages), dict(spy.bytes)))
    spy = Spy(comm)
    all_gather(spy, np.zeros(33))
    parts = [np.full(100_000 * dest, comm.rank) for dest in range(comm.size)]
    for source, part in enumerate(all_to_all(spy, parts)):
        assert part.tolist() == [source] * (100_000 * comm.rank)
    return [*found, dict(spy.bytes)]


def agreed(comm):
    """All in which real ranks and virtual ones must agree."""
    return [*bits(comm), *counts(comm)]


def main(amount, path):
    from dml.wire.comm.mpi import world

    size = world(watchdog=20).size
    every = amount == "all"
    if not every:  # that rates are found is enough
        auto.PROBES, auto.REPEATS = (1 << 10, 1 << 16), 1
    groups = (0, 1, 2, 3, size) if every else (2, 3)
    tried = dict(ALLREDUCE)
    for group in groups:
        if group <= size:
            hierarchical = partial(ALLREDUCE["hierarchical"], group=group)
            tried[f"hierarchical, {group}"] = hierarchical
    for name, allreduce in tried.items():
        if every:
            conform(allreduce, real, size, order=orders.ORDERS.get(name))
            long = [("float32", "sum"), ("float16", "max"), ("int64", "product")]
            reduces(allreduce, real, [Case(size, 100_003, *kind) for kind in long])
        else:
            reduces(allreduce, real, turns(size))
            behaves(allreduce, real, size, orders.ORDERS.get(name))
    for name in ("ring", "shared"):
        reduces(ALLREDUCE[name], real, [Case(size, MEGABYTES, "float32", "sum")])
    apart, hierarchical = partial(real, wrap=Apart), ALLREDUCE["hierarchical"]
    reduces(partial(hierarchical, group=2), apart, turns(size))
    behaves(partial(hierarchical, group=2), apart, size)
    every_rank = real(agreed, size)
    if world().rank == 0:
        Path(path).write_text(repr(every_rank))
        sys.stdout.write(f"{len(tried)} all-reduces conform on {size} ranks\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
