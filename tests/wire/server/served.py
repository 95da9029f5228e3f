"""A small server, its workers, and shards whose sums are exact."""

import numpy as np

from dml import sim
from dml.wire.comm import Metered
from dml.wire.plans.partition import partition
from dml.wire.server.client import Client
from dml.wire.server.consistency import Consistency
from dml.wire.server.replica import Replica
from dml.wire.server.server import Server

FREE, ASYNC = sim.Uniform(0, 0, 0), Consistency()


class Adding:
    """A shard that adds what comes: sums of whole numbers are exact."""

    def __init__(self, values):
        self.values = values

    def update(self, at, grads, share=1.0):
        self.values[at] += grads


def ran(work, workers, servers=1, rule=ASYNC, rows=8, width=1, **more):
    """Run work(client, comm) on workers; return their results and the servers."""
    split = partition(rows, servers)
    known = more.pop("known", 64)
    network = more.pop("network", None)

    def program(comm):
        comm = Metered(comm)
        if comm.rank >= workers:
            number = split.rows_of(comm.rank - workers)
            shard = Adding(np.zeros((rows, width), np.float32)[number].copy())
            server = Server(comm, shard, workers, rule)
            server.serve()
            return server
        ranks = range(workers, workers + servers)
        client = Client(comm, split, width, ranks, known=known)
        result = work(client, comm)
        client.end()
        return result

    found = sim.run(program, workers + servers, network, **more)
    return found[:workers], found[workers:]


def table(servers):
    return np.concatenate([server.shard.values for server in servers])


def replicated(client, rule, rows=8, width=1):
    """Return a replica of zeros, to which own gradients are added if they would be."""
    copy = np.zeros((rows, width), np.float32)
    return Replica(client, copy, rule, Adding(copy) if rule.aggregation_count else None)


def finish(client, replica):
    client.end()
    client.end = lambda: None
    replica.finish()
