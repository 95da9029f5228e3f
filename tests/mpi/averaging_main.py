"""Averaging protocols on real ranks: each writes its values and mass, as text."""

import sys

import numpy as np

from dml.wire.averaging.gossip import gossip
from dml.wire.averaging.groups import group_average
from dml.wire.averaging.push_sum import estimate, mass, push_sum
from dml.wire.averaging.relay_sum import relay_sum
from dml.wire.comm.mpi import world
from dml.wire.plans.averaging.faults import Faults
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.trees import tree

FAULTS = Faults(0.2, 0.2, 2, seed=3)
LENGTH = 20_000  # 160 KB: longer than an eager message


def averaged(comm):
    """Return sums of the values after rounds of every protocol, with faults."""
    results = []
    for protocol, plan in (
        (gossip, topology("exponential", comm.size)),
        (push_sum, topology("one_peer_exponential", comm.size)),
        (relay_sum, tree("tree", comm.size)),
        (group_average, topology("random_groups:2", comm.size)),
    ):
        buffer, state = np.arange(LENGTH) * (1.0 + comm.rank), None
        for t in range(8):
            state = protocol(comm, buffer, plan, t, state, FAULTS)
        if protocol is push_sum:
            values, weight = mass(buffer, state)
            results += [values.sum(), weight, estimate(buffer, state)[7]]
        results += [float(buffer.sum()), float(buffer[7])]
    return [float(result) for result in results]


if __name__ == "__main__":
    comm = world()
    with open(f"{sys.argv[1]}{comm.rank}", "w") as file:
        file.write(repr(averaged(comm)))
