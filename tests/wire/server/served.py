"""Small servers and workers on virtual ranks, and shards whose sums are exact."""

import numpy as np

from dml import sim
from dml.wire.comm import Metered
from dml.wire.plans.partition import partition
from dml.wire.server.client import Client
from dml.wire.server.consistency import Consistency
from dml.wire.server.replica import Replica
from dml.wire.server.server import Server

FREE = sim.Uniform(0, 0, 0)  # a network whose messages take no time
ASYNC = Consistency()


class Adding:
    """A shard that adds gradients; sums of integers are exact."""

    def __init__(self, values):
        self.values = values

    def update(self, at, grads, share=1.0):
        self.values[at] += grads


def run_servers(work, workers, servers=1, rule=ASYNC, rows=8, width=1, **more):
    """Run work(client, comm) on workers; return their results and the servers."""
    split = partition(rows, servers)
    known = more.pop("known", 64)
    network = more.pop("network", None)

    def program(comm):
        comm = Metered(comm)
        if comm.rank >= workers:
            server_rows = split.rows_of(comm.rank - workers)
            shard = Adding(np.zeros((rows, width), np.float32)[server_rows].copy())
            server = Server(comm, shard, workers, rule)
            server.serve()
            return server
        ranks = range(workers, workers + servers)
        client = Client(comm, split, width, ranks, known=known)
        result = work(client, comm)
        client.end()
        return result

    results = sim.run(program, workers + servers, network, **more)
    return results[:workers], results[workers:]


def table(servers):
    """Return the rows of all servers."""
    return np.concatenate([server.shard.values for server in servers])


def replicated(client, rule, rows=8, width=1):
    """Return a replica of zeros; own gradients are added unless they are by clock."""
    copy = np.zeros((rows, width), np.float32)
    return Replica(client, copy, rule, Adding(copy) if rule.aggregation_count else None)


def finish(client, replica):
    """End the client before its replica; `run_servers` would end it a second time."""
    client.end()
    client.end = lambda: None
    replica.finish()
