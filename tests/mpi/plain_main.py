"""Functions of dml on communicators of mpi4py, and the bits of some trainings."""

import gc
import re
import sys
import weakref
from functools import partial

import numpy as np
from mpi4py import MPI

import dml
from dml.conformance.comparisons import check_behaviour, check_results
from dml.conformance.known_results import Case
from dml.types import BadInput
from dml.wire.averaging.gossip import gossip
from dml.wire.averaging.groups import group_average
from dml.wire.averaging.pairs import pair_averages
from dml.wire.averaging.push_sum import push_sum
from dml.wire.averaging.relay_sum import relay_sum
from dml.wire.collectives import (
    ALLREDUCE,
    all_gather,
    all_to_all,
    allreduce_async,
    broadcast,
    machine_rates,
    predicted_seconds,
    reduce_scatter,
    swarm_broadcast,
    with_check,
    with_first_check,
)
from dml.wire.collectives.byteps import byteps_allreduce
from dml.wire.collectives.check import compare_replicas
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.collectives.sharded_server import server_allreduce
from dml.wire.comm import Delayed, Throttled, Traced, first_of_all, first_of_each_host
from dml.wire.comm.buffers import allocate, layout, release
from dml.wire.comm.mpi import FreedWorld
from dml.wire.comm.mpi_process import this_process
from dml.wire.memory.shared import load_shared, shared_zeros
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.sides import sides
from dml.wire.plans.trees import tree

LENGTH = 20_000
OPERATIONS = (np.add, sum), (MPI.SUM, sum), (MPI.MAX, max)


def pairwise(comm, buffer, op=np.add):
    """Reduce in place by methods of mpi4py only; op is a NumPy function."""
    vector = dml.flat(comm, buffer)
    terms = [vector.copy() for _ in range(comm.Get_size())]
    for i in range(1, comm.size):
        ahead, behind = (comm.rank + i) % comm.size, (comm.rank - i) % comm.size
        comm.Sendrecv(terms[comm.rank], ahead, 0, terms[behind], behind, 0)
    vector[:] = terms[0]
    for term in terms[1:]:
        op(vector, term, out=vector)


def groups(comm):
    """Yield COMM_WORLD, and communicators made from it that are freed afterwards."""
    yield comm
    for made in (comm.Split(comm.rank // 2, -comm.rank), comm.Create_cart([comm.size])):
        yield made
        made.Free()


def reduces(comm):
    """Call every all-reduce on communicators of mpi4py, by all ways to call one."""
    for group in groups(comm):
        ranks = range(1, group.size + 1)
        for name, allreduce in ALLREDUCE.items():
            for op, result in OPERATIONS:
                for length in (3, LENGTH):
                    buffer = np.full(length, group.rank + 1.0)
                    allreduce(group, buffer, op)
                    assert (buffer == result(ranks)).all(), name
            for call in (with_check(allreduce), with_first_check(allreduce, name)):
                buffer = np.full(3, group.rank + 1.0)
                call(group, buffer, MPI.MAX)
                assert (buffer == group.size).all(), name
            registered = allocate(group, LENGTH, np.float64)
            registered[:] = group.rank + 1.0
            dml.allreduce(group, registered, algorithm=name)
            assert (registered == sum(ranks)).all(), name
            release(group, registered)
        for allreduce in (byteps_allreduce, server_allreduce, pairwise):
            buffer = np.full(LENGTH, group.rank + 1.0)
            dml.allreduce(group, buffer, MPI.SUM, allreduce)
            assert (buffer == sum(ranks)).all(), allreduce
        for own in ({}, {"allreduce": ALLREDUCE["ring"]}, {"thread": True}):
            buffer = np.full(LENGTH, group.rank + 1.0)
            allreduce_async(group, buffer, MPI.SUM, **own).wait()
            assert (buffer == sum(ranks)).all()


def collects(comm):
    """Call the other collectives, and functions of buffers and shared memory."""
    rank, size = comm.rank, comm.size
    for copy in (broadcast, swarm_broadcast):
        buffer = np.full(9, rank)
        copy(comm, buffer, size - 1)
        assert (buffer == size - 1).all()
    buffer = np.full(size, rank)
    all_gather(comm, buffer)
    assert buffer.tolist() == list(range(size))
    scattered = reduce_scatter(comm, np.arange(size), MPI.SUM)
    assert scattered.tolist() == [rank * size]
    parts = [np.full(dest, rank) for dest in range(size)]
    assert [part.tolist() for part in all_to_all(comm, parts)] == [
        [source] * rank for source in range(size)
    ]
    gathered = gather_arrays(comm, np.arange(rank))
    assert rank or [len(part) for part in gathered[0]] == list(range(size))
    compare_replicas(comm, np.ones(3))
    assert machine_rates(comm).alpha >= 0
    assert predicted_seconds(comm, "ring", np.ones(3)) > 0
    assert shared_zeros(comm, 5).tolist() == [0] * 5
    assert load_shared(comm, lambda: np.arange(3)).tolist() == [0, 1, 2]
    assert first_of_all(comm, lambda: 7) == first_of_each_host(comm, lambda: 7) == 7


def averages(comm):
    """Average by every protocol without a centre."""
    for protocol, plan in (
        (gossip, topology("complete", comm.size)),
        (push_sum, topology("complete", comm.size)),
        (relay_sum, tree("star", comm.size)),
        (group_average, topology("complete", comm.size)),
    ):
        buffer, state = np.full(9, float(comm.rank)), None
        for t in range(3):
            if protocol is relay_sum:  # its rounds have constant values
                buffer[:] = comm.rank
            state = protocol(comm, buffer, plan, t, state)
        np.testing.assert_allclose(buffer, (comm.size - 1) / 2)
    side = sides(topology("complete", comm.size))[comm.rank]
    pairs = pair_averages(comm, side, buffer)
    pairs.exchange(buffer, 0)
    pairs.settle(buffer)
    comm.Barrier()


def wraps(comm):
    """Construct wrappers; one counts the bytes of a ring."""
    for wrap in (
        *(dml.Metered, Traced),
        *(partial(Delayed, draws=iter(())), partial(Throttled, beta=1e-9)),
    ):
        wrapped = wrap(comm)
        buffer = np.full(comm.size, wrapped.rank + 1.0)
        ALLREDUCE["ring"](wrapped, buffer)
        assert (buffer == comm.size * (comm.size + 1) / 2).all()
    metered = dml.Metered(comm)
    ALLREDUCE["ring"](metered, np.zeros(comm.size))
    assert metered.bytes_sent == 2 * (comm.size - 1) * 8


def trains(comm):
    """Reduce by reducers, train by strategies; virtual ranks have the same bits."""
    star = ALLREDUCE["star"]
    means = trained(comm, "synchronous", reducer=dml.reducers.exact(star))
    return [reduced(comm), means, trained(comm, "easgd", allreduce=star)]


def reduced(comm):
    """Return sums of the means by several reducers."""
    found = []
    for text in ("exact", "order_free", "top_k:0.5+feedback", "sign", "median:0"):
        reducer = dml.reducers.reducer(text, ALLREDUCE["star"])
        buffer = (np.arange(64) * (comm.rank + 1)).astype(np.float32)
        reducer.reduce(comm, buffer, reducer.init(layout(buffer)))
        found.append(float(buffer.sum()))
    return found


def trained(comm, name, **options):
    """Return the parameter after some updates."""
    import optax

    def gradient(params, batch):
        error = params["x"] - batch.astype(np.float32)
        return float((error**2).mean()), {"x": error.mean(0, keepdims=True)}

    start = {"x": np.zeros(1, np.float32)}
    problem = dml.Problem(start, 12, gradient, lambda params: {})
    batches = [np.arange(12)] * 5
    steps = dml.strategy(name, problem)(
        *(problem, batches, optax.sgd(0.05)), comm=comm, timer=dml.Timer(), **options
    )
    *_, step = steps
    return float(np.asarray(step.params()["x"])[0])


def conforms(comm):
    """Check user functions, which receive a Comm, on COMM_WORLD."""

    def run(program, size):
        assert comm.size == size
        return comm.allgather(program(comm))

    case = Case(comm.size, 97, "float16", "sum", True)  # no dtype of MPI
    check_results(pairwise, run, [case])
    check_behaviour(pairwise, run, comm.size)


def separates(comm):
    """Receive a message of the program that was sent before collectives of dml."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    own, received = np.array([comm.rank]), np.empty(1, int)
    request = comm.Irecv(received, MPI.ANY_SOURCE, MPI.ANY_TAG)
    for name in ALLREDUCE:
        ALLREDUCE[name](comm, np.ones(3))
    comm.Send(own, right, 7)
    request.Wait()
    assert received[0] == left


def continues(comm):
    """Catch the error of a wrong argument, and call again."""
    for name, allreduce in ALLREDUCE.items():
        for wrong in ([1.0], np.arange(4.0)[::2]):
            try:
                allreduce(comm, wrong)
            except BadInput as error:
                assert f"rank {comm.rank}: expected a contiguous" in str(error)
            else:
                raise AssertionError(name)
        buffer = np.ones(3)
        allreduce(comm, buffer)
        assert (buffer == comm.size).all()


def frees(comm):
    """Free what dml has made from a communicator with it; 100 communicators."""
    dml.as_comm(comm)
    windows = this_process().windows
    before = set(windows)
    for number in range(100):
        group = comm.Split(comm.rank // 2, comm.rank)
        own, copy = dml.as_comm(group), group.Dup()
        assert dml.as_comm(group) is own is not dml.as_comm(copy)
        copy.Free()
        allocate(group, 10)
        if number == 0:
            ALLREDUCE["shared"](group, np.zeros(3))
            grouped = ALLREDUCE["hierarchical"]
            allreduce_async(group, np.zeros(3), allreduce=grouped).wait()
        made = [reference() for reference in own.made]
        assert len(made) == 2 * (number == 0)
        assert set(windows) > before
        group.Free()
        assert all(isinstance(each, FreedWorld) for each in (own, *made))
        assert set(windows) == before
        refused(own.Barrier, "one that was freed")
        refused(partial(dml.as_comm, group), "COMM_NULL or one that was freed")
    gone = weakref.ref(own)
    del own
    gc.collect()
    assert gone() is None


def refuses(comm):
    """Refuse what is no intracommunicator, each in one line."""
    between = comm.Split(comm.rank > 0).Create_intercomm(0, comm, int(comm.rank == 0))
    refused(partial(ALLREDUCE["ring"], between, np.ones(3)), "pass the result of its")
    refused(partial(dml.Metered, MPI.COMM_NULL), "COMM_NULL")


def refused(call, words):
    """Check that a call raises BadInput of one line."""
    try:
        call()
    except BadInput as error:
        assert re.search(words, str(error)) and "\n" not in str(error), error
    else:
        raise AssertionError(f"expected an error: {words}")


def main():
    comm, hook = MPI.COMM_WORLD, sys.excepthook
    handler = comm.Get_errhandler()
    found = trains(comm)
    for call in (reduces, collects, averages, wraps, separates, continues):
        call(comm)
    for call in (conforms, frees, refuses):
        call(comm)
    assert sys.excepthook is hook
    assert comm.Get_errhandler() == handler
    if comm.rank == 0:
        accepts = "all functions accept communicators of mpi4py"
        sys.stdout.write(f"{found!r}\n{accepts}\n")
        sys.stdout.flush()
    dml.world(watchdog=20)
    MPI.Finalize()
    refused(partial(dml.as_comm, comm), "MPI.Finalize")


if __name__ == "__main__":
    main()
