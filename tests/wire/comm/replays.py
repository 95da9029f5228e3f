"""Run a program recorded, and again as its record says."""

from dml import sim
from dml.wire.comm import Log, Recorded, Replayed
from dml.wire.comm.events import decoded


def bare(comm):
    return comm


def on(size, program, *more):
    """Return run(wrap): program(comm, *more) on virtual ranks."""
    return lambda wrap: sim.run(lambda comm: program(wrap(comm), *more), size)


def recorded(run, size, around=bare):
    """Return what run(wrap) returns, and the words of every rank."""
    logs = [Log() for _ in range(size)]
    found = run(lambda comm: around(Recorded(comm, logs[comm.rank])))
    return found, [log.words() for log in logs] if found else []


def replayed(run, words, around=bare):
    logs = [Log(mine) for mine in words]
    found = run(lambda comm: around(Replayed(comm, logs[comm.rank])))
    for log in logs:
        log.finish()
    return found


def kinds(words):
    return [decoded(word).kind for mine in words for some in mine for word in some]
