"""Tests of reads: the gradients that each read includes, by worker and clock.

Column w of the table counts the examples of worker w that touch a row. So a read shows
which gradients it includes, and how often.
"""

from functools import partial
from operator import attrgetter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from dml import sim
from dml.data.shards import shards
from dml.sim.networks.named import network
from dml.strategies.server.roles import roles
from dml.strategies.server.workers import WorkerOptions
from dml.types import Problem, RowBatch, Rows
from dml.wire.comm import Delayed, Metered
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import Descent, serve

CLOCKS = 8
NETWORKS = {
    "none": lambda size: sim.Uniform(0, 0, 0),
    "slow": lambda size: sim.Uniform(1e-4, 1e-8, 0),
    "unbuffered": lambda size: sim.Uniform(1e-5, 1e-9, 0, eager=0),
    "routed": lambda size: network(f"torus:2x{-(-max(3, size) // 2)}", max(3, size)),
}


class Counted:
    """A problem whose gradients count examples; records all reads."""

    def __init__(self, draws, workers, batch, rows, wide, dense):
        self.rows, self.dense = rows, dense
        self.batches = np.arange(CLOCKS * batch).reshape(CLOCKS, batch)
        self.touches = draws.random((CLOCKS * batch, rows)) < 2 / rows
        self.touches[np.arange(CLOCKS * batch), draws.integers(rows)] = True
        parts = [shards(index, workers) for index in self.batches]
        self.whose = {
            e: (w, k)
            for k, of in enumerate(parts)
            for w, part in enumerate(of)
            for e in part
        }
        marks = np.array([[self.touches[e].sum(0) for e in of] for of in parts])
        none = np.zeros((1, workers, rows))
        self.before_CxWxR = np.concatenate([none, marks.cumsum(0)])
        self.wide, self.width = wide, wide * workers
        self.reads = []  # worker, clock, rows, values

    def take(self, numbers):
        every = slice(0, self.rows)
        some = every if self.dense else np.flatnonzero(self.touches[numbers].any(0))
        return RowBatch(numbers, some)

    def gradient(self, table, batch):
        numbers, rows = batch
        worker, clock = self.whose[int(numbers[0])]
        self.reads.append((worker, clock, rows, table[rows, :: self.wide].copy()))
        grads = np.zeros((self.rows, self.width), np.float32)
        grads[:, worker * self.wide] = self.touches[numbers].sum(0)
        whole = self.batches.shape[1]
        return 0.0, Rows(rows, (grads * np.float32(whole / len(numbers)))[rows])

    def problem(self):
        start = np.zeros((self.rows, self.width), np.float32)
        frequency = None if self.dense else self.touches.sum(0)
        rows, silent = attrgetter("rows"), lambda table: {}
        return Problem(start, 0, self.gradient, silent, self.take, rows, frequency)

    def faults(self, staleness, pushes):
        """Yield the reads that lack a required gradient, or have one too many."""
        workers = self.width // self.wide
        last = np.zeros((workers, workers, self.rows))  # reads never go back
        for worker, clock, rows, seen in self.reads:
            if (seen < last[worker][:, rows].T - 0.1).any():
                yield worker, clock, "older than the read before"
            last[worker][:, rows] = seen.T
            required = max(0, clock - staleness) // pushes * pushes
            least = self.before_CxWxR[required][:, rows].T.copy()
            most = self.before_CxWxR[-1][:, rows].T.copy()
            own = self.before_CxWxR[clock][worker, rows]
            least[:, worker] = most[:, worker] = own
            # weights such as 1/3 are rounded; one gradient changes a value by 1
            if (seen < least - 0.1).any() or (seen > most + 0.1).any():
                yield worker, clock, seen - least


def ran(counted, who, rule, fabric, seed, scale, **options):
    def program(comm):
        pace = iter(np.random.default_rng([seed, comm.rank]).exponential, None)
        comm, make = Delayed(Metered(comm), pace, scale), partial(Descent, rate=-1)
        task = counted.problem()
        return serve(comm, task, counted.batches, make, who, rule, **options)[-1]

    size = max(who.workers, 1 + max(who.servers))
    return sim.run(program, size, fabric(size), seed % 3)[0]


@settings(max_examples=40)
@given(some.data())
def test_every_read_has_each_own_gradient_once_and_keeps_its_bound(data):
    draw = data.draw
    name = draw(some.sampled_from(["async", "ssp", "essp", "essp"]))
    colocated, workers = draw(some.booleans()), draw(some.integers(1, 6))
    servers = draw(some.integers(1, workers if colocated else 4))
    who = roles(workers + (0 if colocated else servers), servers, colocated)
    s, seed = draw(some.integers(1, 4)), draw(some.integers(0, 10**6))
    choice = Choice(staleness=s, pull_period=draw(some.sampled_from([0, 0, 1, 2, 5])))
    worker_options = WorkerOptions(
        push_period=draw(some.sampled_from([1, 1, 2, 3])),
        prefetch=draw(some.booleans()),
    )
    wide = draw(some.sampled_from([1, 1, 1, 3000]))  # of these a part is a message
    counted = Counted(
        np.random.default_rng(seed),
        workers,
        draw(some.integers(1, 12)),
        draw(some.integers(6, 12)),
        wide,
        draw(some.booleans()),
    )
    rule = consistency(name, choice, workers)
    fabric = NETWORKS[draw(some.sampled_from(sorted(NETWORKS)))]
    scale = draw(some.sampled_from([0.0, 1e-6, 1e-5, 1e-4]))
    options = {"worker_options": worker_options, "key_lists": seed % 3}
    found = ran(counted, who, rule, fabric, seed, scale, **options)
    bound = CLOCKS if name == "async" else s
    assert list(counted.faults(bound, worker_options.push_period)) == []
    np.testing.assert_allclose(
        found.table[:, ::wide], counted.before_CxWxR[-1].T, atol=0.1
    )
