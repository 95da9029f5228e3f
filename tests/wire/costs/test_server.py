"""What a clock costs by formula is what it takes on the virtual network."""

import numpy as np
import pytest

from dml import sim
from dml.strategies.server.roles import roles
from dml.update.table import table
from dml.wire.comm import Metered
from dml.wire.costs import server as server_cost
from dml.wire.costs.allreduce import Rates
from dml.wire.plans.partition import partition
from dml.wire.server import header as head
from dml.wire.server.client import Client
from dml.wire.server.consistency import Consistency
from dml.wire.server.server import Server

RATES = Rates(1e-6, 1e-9, 0.0)


def taken(rows, workers, servers, pulls=True):
    """Return the seconds and words of a clock on virtual ranks."""
    who, split = roles(workers + servers, servers), partition(rows, servers)
    everything = slice(0, rows)

    def program(comm):
        comm, number = Metered(comm), who.server(comm.rank)
        if number is not None:
            shard = table("sgd", np.zeros((split.count(number), 1), np.float32), 0.1)
            server = Server(comm, shard, workers, Consistency())
            while len(server.log) < workers or server.out.replies < workers * pulls:
                server.handle_next()
        else:
            client = Client(comm, split, 1, who.servers)
            client.push(everything, np.ones((rows, 1), np.float32))
            if pulls:
                client.pull(everything)
        return comm.Wtime(), comm.bytes_sent

    found = sim.run(program, workers + servers, sim.Uniform(*RATES[:3]))
    times, sent = zip(*found, strict=True)
    return max(times), sum(sent)


@pytest.mark.parametrize("pulls", [True, False])
@pytest.mark.parametrize("rows", [1, 256, 16_384, 16_385, 300_000])
def test_one_worker_and_one_server_take_exactly_the_formula(rows, pulls):
    found, sent = taken(rows, 1, 1, pulls)
    clock = server_cost.Clock(4 * rows, 1, 1)
    assert found == pytest.approx(server_cost.seconds(clock, RATES, pulls), rel=1e-9)
    heads = head.NBYTES + pulls * (head.NBYTES + head.LAST.nbytes)
    assert sent == clock.nbytes * (1 + pulls) + heads


@pytest.mark.parametrize(("workers", "servers"), [(3, 1), (6, 2), (1, 4), (8, 1)])
def test_many_of_large_rows_take_about_the_formula(workers, servers):
    found, sent = taken(600_000, workers, servers)
    clock = server_cost.Clock(4 * 600_000, workers, servers)
    known = server_cost.seconds(clock, RATES)
    # at best the rows are sent to a worker while the gradient of the next arrives
    assert (1 - 0.5 / workers) * known * 0.99 < found < 1.12 * known
    assert sent == pytest.approx(2 * workers * clock.nbytes, rel=1e-3)


def test_workers_in_each_others_way_take_half_as_long_again():
    found, _ = taken(600_000, 2, 3)
    known = server_cost.seconds(server_cost.Clock(4 * 600_000, 2, 3), RATES)
    assert known < found <= 1.51 * known
