"""Record a program on virtual ranks, and replay its record."""

from dml import sim
from dml.wire.comm import Log, Recorded, Replayed
from dml.wire.comm.events import decode


def bare(comm):
    return comm


def on(size, program, *arguments):
    """Return run(wrap): program(wrap(comm), *arguments) on virtual ranks."""
    return lambda wrap: sim.run(lambda comm: program(wrap(comm), *arguments), size)


def recorded(run, size, around=bare):
    """Return the result of run(wrap), and the encoded events of every rank."""
    logs = [Log() for _ in range(size)]
    result = run(lambda comm: around(Recorded(comm, logs[comm.rank])))
    return result, [log.codes() for log in logs] if result else []


def replayed(run, codes, around=bare):
    """Return the result of run(wrap) with the recorded events of every rank."""
    logs = [Log(rank_codes) for rank_codes in codes]
    result = run(lambda comm: around(Replayed(comm, logs[comm.rank])))
    for log in logs:
        log.finish()
    return result


def kinds(codes):
    """Return the kinds of all events, of all ranks and communicators in order."""
    return [
        decode(code).kind
        for rank_codes in codes
        for comm_codes in rank_codes
        for code in comm_codes
    ]
