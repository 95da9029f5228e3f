"""What every wrapper has in common: delegation, its own cache, and delays."""

import inspect

import numpy as np
import pytest

from dml import sim
from dml.sim.comm import VirtualComm
from dml.sim.delays import drawing, law, seconds
from dml.types import Comm
from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm import Delayed, Log, Metered, Recorded, Traced
from dml.wire.comm.buffers import allocate, peers
from dml.wire.comm.sleeping import Napping
from dml.wire.comm.wrapper import Wrapper

WRAPPERS = {
    "wrapper": Wrapper,
    "metered": Metered,
    "traced": Traced,
    "recorded": lambda comm: Recorded(comm, Log()),
    "delayed": lambda comm: Delayed(comm, iter([])),
    "napping": Napping,
}
LATE = law("shifted_exponential:1,2*1,4")


class Noting:
    """A communicator that only notes which operations are called, and how."""

    rank, size, platform = 0, 1, None

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *args, **named: self.calls.append((name, args, named))


class Plain(Wrapper):
    def wrap(self, comm):
        return comm


def test_a_wrapper_passes_on_every_operation_with_all_its_arguments():
    comm, expected = Noting(), []
    for name, operation in vars(Comm).items():
        if name[0].isupper():
            parameters = list(inspect.signature(operation).parameters)[1:]
            getattr(Plain(comm), name)(*parameters)
            expected.append((name, tuple(parameters), {}))
    assert comm.calls == expected and len(expected) > 15


def test_a_wrapper_s_operations_have_the_defaults_of_a_communicator_s():
    for name in (name for name in vars(Comm) if name[0].isupper()):
        given, expected = (
            [one.default for one in inspect.signature(of).parameters.values()]
            for of in (getattr(Plain, name, getattr(Comm, name)), getattr(Comm, name))
        )
        assert given == expected, name


def test_operations_that_a_wrapper_binds_are_those_of_the_wrapped_communicator():
    def program(comm):
        outer = Metered(Traced(comm))
        return outer.Reduce_local == comm.Reduce_local and outer.Wtime == comm.Wtime

    assert sim.run(program, 1) == [True]


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_what_is_split_from_a_wrapper_is_wrapped_alike(wrap):
    def program(comm):
        outer = wrap(comm)
        for inner in (outer.Split(0, 0), outer.Split_type(), outer.Dup()):
            assert type(inner) is type(outer)
            assert isinstance(inner.comm, VirtualComm)
            assert inner.cache is inner.cache is not outer.cache is not comm.cache
            assert inner.platform.virtual and inner.platform.raw is inner.comm

    sim.run(program, 2)


def test_groups_that_a_collective_keeps_are_wrapped_as_its_communicator_is():
    def program(comm):
        metered = Metered(comm)
        ALLREDUCE["hierarchical"](comm, np.zeros(4), group=2)
        ALLREDUCE["hierarchical"](metered, np.zeros(4), group=2)
        for one, kind in ((comm, VirtualComm), (metered, Metered)):
            kept = [
                group for groups in one.cache.groups.values() for group in groups[:2]
            ]
            assert {type(group) for group in kept} == {kind}

    sim.run(program, 4, sim.Uniform(host=1))


def test_an_allreduce_in_the_background_reduces_registered_memory_where_it_is():
    def program(comm):
        buffer = allocate(comm, 3)
        for _ in range(2):
            handle = allreduce_async(comm, buffer, allreduce=ALLREDUCE["shared"])
            handle.wait()
            assert handle.comm is comm.cache.yielding
            assert peers(handle.comm, buffer)[0] is peers(comm, buffer)[0]

    sim.run(program, 2)


def test_work_takes_its_share_of_a_rank_s_own_draws_and_no_time_without_delays():
    def program(comm):
        delayed = Delayed(Metered(comm), drawing(LATE, 7, comm.rank), 3.0)
        outer = Traced(delayed.Dup())  # the copy goes on with the same draws
        times = [comm.Wtime()]
        for one, share in ((delayed, 1.0), (outer, 1.0), (outer, 0), (delayed, 0.5)):
            one.platform.work(share)
            times.append(comm.Wtime())
        Metered(comm).platform.work(1.0)
        assert comm.Wtime() == times[-1]
        return np.diff(times)

    drawn = 3 * seconds(LATE, 7, steps=3, size=3).T
    found = np.array(sim.run(program, 3, sim.Uniform(0, 0, 0)))
    assert found[:, 2].tolist() == [0.0] * 3
    want = drawn * [1, 1, 0.5]
    assert found[:, [0, 1, 3]] == pytest.approx(want, rel=1e-12)
