"""Programs recorded or replayed on real ranks; arguments: how, which, and the file."""

import sys
from hashlib import sha256
from pathlib import Path

import numpy as np

from dml.runs import records
from dml.types import ANY, Status
from dml.wire.comm import Log, Metered, Recorded, Replayed, Traced, first_of_all
from tests.sim.test_agreement import Player, programs
from tests.wire.server.serving import serve

ENDING = (5003, 5006, 5009, 5010, 5012, 5019, 5021, 5040, 5042, 5046)  # of 3 ranks
CONFIG = {"experiment": "recorded_main"}


def served(comm):
    """Serve with delays that are others in every run."""
    first_of_all(comm, lambda: None)  # looks for a message as often as time allows
    return serve(comm, lambda: np.random.default_rng().uniform(1e-6, 1e-3))


def played(comm):
    """Play random programs, which may only end in a replay."""
    seen = []
    for seed in ENDING:
        ((_, scripts),) = programs(1, seed)
        player = Player(comm, scripts, lambda comm: comm, 1e-5)
        seen += [str(each[:-1]) for each in player.seen]
        comm.Barrier()
    return sha256("\n".join(seen).encode()).hexdigest()


def told_once(comm):
    """Ask who sent what a compute was cut off by."""
    status, into = Status(), np.zeros(1)
    request = comm.Irecv(into, ANY, ANY)
    comm.Send(np.ones(1), comm.rank, 7)
    while comm.platform.compute(1e-3, unless=request):
        pass
    request.Wait(status)
    return (*vars(status).values(),) == (comm.rank, 7, 8)


PROGRAMS = {"served": served, "played": played, "told_once": told_once}


def main(how, which, path):
    from dml.wire.comm.mpi import world

    comm = world(watchdog=300)
    program = PROGRAMS[which]
    if how == "record":
        log = Log()
        found = program(Metered(Traced(Recorded(comm, log))))
        every = log.collect(comm)
        if every is not None:
            records.write(Path(path), CONFIG, every)
        comm.Barrier()  # the file is there
        assert replay(program, comm, path) == found
    else:
        found = replay(program, comm, path)
    if all_found := comm.gather(found):
        sys.stdout.write("\n".join(map(str, all_found)))


def replay(program, comm, path):
    record = records.read(Path(path))
    record.check(CONFIG, comm.size)
    log = Log(record.ranks[comm.rank])
    found = program(Metered(Traced(Replayed(comm, log))))
    log.finish()
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
