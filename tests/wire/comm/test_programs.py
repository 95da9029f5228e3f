"""Random programs agree on virtual ranks, networks and wrappers (real: tests/mpi)."""

from functools import cache

import pytest

from dml import sim
from dml.sim.networks.named import network
from dml.wire.comm import Delayed, Log, Metered, Recorded, Replayed, Throttled, Traced
from dml.wire.comm.surviving import Surviving
from tests.sim.play import NOTHING
from tests.wire.comm.programs import Player, drawn

MPI = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
SEEDS = range(12)


def traced(comm):
    comm = Traced(comm)
    comm.begin()
    return comm


WRAPPERS = {
    "metered": Metered,
    "traced": traced,
    "recorded": lambda comm: Recorded(comm, Log()),
    "delayed": lambda comm: Delayed(comm, iter([])),
    "throttled": lambda comm: Throttled(comm, 1e-9),
    "surviving": Surviving,
}
NETWORKS = {
    "rendezvous": (sim.Uniform(eager=0), ()),
    "routed": (sim.Uniform(eager=100), NOTHING),
    "torus": (network("torus:2x2", 4), ()),
}


def steps(seed):
    size = 2 + seed % 3
    return drawn(seed, size), size


def notes(seed, wrap=lambda comm: comm, links=None, events=()):
    """Return what the ranks of a program find."""
    program, size = steps(seed)

    def play(comm):
        return Player(wrap(comm), program, MPI).notes

    return sim.run(play, size, links, events=events)


expected = cache(notes)


@pytest.mark.parametrize("name", WRAPPERS)
def test_programs_find_the_same_on_a_wrapper(name):
    for seed in SEEDS:
        assert notes(seed, WRAPPERS[name]) == expected(seed), seed


@pytest.mark.parametrize("name", NETWORKS)
def test_programs_find_the_same_on_a_network(name):
    links, events = NETWORKS[name]
    for seed in SEEDS:
        assert notes(seed, links=links, events=events) == expected(seed), seed


def test_programs_find_the_same_when_they_are_replayed():
    for seed in SEEDS:
        program, size = steps(seed)
        codes = []

        def record(comm):
            log = Log()
            found = Player(Recorded(comm, log), program, MPI).notes  # noqa: B023
            codes.append(log.collect(comm))  # noqa: B023
            return found

        assert sim.run(record, size) == expected(seed), seed
        (codes,) = (each for each in codes if each is not None)

        def replay(comm):
            log = Log(codes[comm.rank])  # noqa: B023
            found = Player(Replayed(comm, log), program, MPI).notes  # noqa: B023
            log.finish()
            return found

        assert sim.run(replay, size) == expected(seed), seed
