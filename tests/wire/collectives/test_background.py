"""All-reduces under way together: on several communicators, or behind a computation."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.conformance.comparisons import conform
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, allreduce_async
from tests.wire.comm import orders

NAMES = orders.BASIC


MOST = 100_000  # polls; a handle that needs more will never be done


def poll_all(*handles):
    """Poll all in turn until all are done; nothing else happens between."""
    for _ in range(MOST):
        if all([handle.poll() for handle in handles]):
            return
    raise AssertionError(f"not done after {MOST} polls")


@pytest.mark.parametrize(
    "size, way, eager",
    [(1, "waited", 0), (3, "waited", 0), (3, "polled", 1 << 20), (4, "polled", 0)],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_polled_or_waited_allreduce_conforms(name, size, way, eager):
    """Ranks begin one after the other, so that messages are late."""

    def allreduce(comm, buffer, op=np.add):
        for _ in range(5 * comm.rank):
            comm.platform.pause()
        handle = allreduce_async(comm, buffer, op, ALLREDUCE[name])
        handle.poll()
        if way == "polled":
            poll_all(handle)
        handle.wait()

    run = partial(sim.run, network=sim.Uniform(eager=eager))
    conform(allreduce, run, size, all_pairs=False, order=orders.ORDERS.get(name))


@pytest.mark.parametrize("finish", ("poll", "wait"))
def test_what_a_program_raises_comes_out_where_it_goes_on(finish):
    def fails(comm, buffer, op):
        ALLREDUCE["ring"](comm, buffer, op)
        raise KeyError(f"lost by rank {comm.rank}")

    def program(comm):
        with pytest.raises(KeyError, match=f"lost by rank {comm.rank}"):
            handle = allreduce_async(comm, np.zeros(4), allreduce=fails)
            handle.wait() if finish == "wait" else poll_all(handle)

    sim.run(program, 2)


def test_virtual_ranks_have_no_thread_and_a_deadlock_names_what_it_waits_for():
    def program(comm):
        with pytest.raises(BadInput, match="one thread"):
            allreduce_async(comm, np.zeros(3), thread=True)
        if comm.rank == 0:  # rank 1 never begins
            allreduce_async(comm, np.zeros(9), allreduce=ALLREDUCE["ring"]).wait()

    with pytest.raises(sim.Deadlock, match="source=1, tag=RING"):
        sim.run(program, 2)
