"""Choice of the all-reduce by predicted time, from rates measured once per machine."""

import json
import os
from functools import partial
from pathlib import Path

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.collectives.halving_doubling import halving_doubling_allreduce
from dml.wire.collectives.hierarchical import hierarchical_allreduce
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.collectives.shared import shared_allreduce
from dml.wire.comm import buffers
from dml.wire.comm.buffers import allocate, flat, release
from dml.wire.comm.once import once
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates, choose, fit
from dml.wire.plans.topology import SMALL, groups

# Star and tree are left out: a butterfly is never slower than either.
CANDIDATES = {
    "shared": shared_allreduce,
    "hierarchical": hierarchical_allreduce,
    "butterfly": butterfly_allreduce,
    "halving_doubling": halving_doubling_allreduce,
    "ring": ring_allreduce,
}
PROBES = (1 << 10, 1 << 16, 1 << 20, 1 << 23)  # bytes of the buffers that are timed
REPEATS = 5  # timings of each algorithm and buffer


def auto_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks by the algorithm with the least predicted time.

    The first call on a machine measures its rates and stores them in a file. All ranks
    use the rates of rank 0, and therefore choose the same algorithm.
    """
    buffer = flat(comm, buffer)
    if comm.size > 1:
        CANDIDATES[chosen_allreduce(comm, buffer)](comm, buffer, op)


def chosen_allreduce(comm: Comm, buffer: np.ndarray) -> str:
    """Return the name of the algorithm that `auto_allreduce` uses for this buffer."""
    # SMALL buffers are reduced alike whether registered or not
    registered = buffer.nbytes > SMALL and buffers.is_registered(comm, buffer)
    key = len(buffer), buffer.itemsize, registered
    if key not in comm.cache.chosen:
        names, job = candidates(comm)
        job = job._replace(
            length=len(buffer), itemsize=buffer.itemsize, registered=registered
        )
        rates = machine_rates(comm)
        comm.cache.chosen[key] = once(
            comm, "chosen", key, lambda: choose(job, rates, names)
        )
    return comm.cache.chosen[key]


def predicted_seconds(
    comm: Comm, name: str, buffer: np.ndarray, group: int = 0, outside: str = "ring"
) -> float:
    """Predict the seconds of an all-reduce on this machine.

    Args:
      comm: The ranks; collective at the first call.
      name: Name of the all-reduce in `ALLREDUCE`.
      buffer: Buffer to reduce. Only its length, itemsize and registration are used.
      group: Number of consecutive ranks in a group of the hierarchical all-reduce; 0
        makes each host a group.
      outside: Name of the all-reduce across groups, for the hierarchical all-reduce.
    """
    name = chosen_allreduce(comm, buffer) if name == "auto" else name
    rates, registered = machine_rates(comm), buffers.is_registered(comm, buffer)

    def seconds() -> float:
        hosts = comm.platform.hosts()
        members = groups(hosts, group)
        job = cost.Job(
            comm.size,
            len(buffer),
            buffer.itemsize,
            registered,
            groups=tuple(map(len, members)),
            hosts=all(len({hosts[rank] for rank in ranks}) == 1 for ranks in members),
            outside=outside,
        )
        return cost.seconds(name, job, rates)

    key = name, len(buffer), buffer.itemsize, registered, group, outside
    return once(comm, "predicted", key, seconds)


def candidates(comm: Comm) -> tuple[list[str], Job]:
    """Return the algorithms for this layout of hosts, and a `Job` of length 0.

    Collective at the first call. `shared` needs one host; `hierarchical` needs several
    hosts, one of them with several ranks.
    """
    return once(comm, "candidates", None, lambda: find_candidates(comm))


def find_candidates(comm: Comm) -> tuple[list[str], Job]:
    """Compute the result of `candidates`."""
    sizes = tuple(map(len, groups(comm.platform.hosts())))
    excluded = set()
    if len(sizes) > 1:
        excluded.add("shared")
    if len(sizes) in (1, comm.size):
        excluded.add("hierarchical")
    names = [name for name in CANDIDATES if name not in excluded]
    return names, Job(comm.size, 0, groups=sizes)


def machine_rates(comm: Comm) -> Rates:
    """Return the rates of this machine, or of the virtual network.

    The rates of a real machine are measured once, in about a second, and stored in a
    file. Collective at the first call.
    """
    if comm.size == 1:
        return Rates(0.0, 0.0, 0.0)
    if comm.platform.virtual:
        alpha, beta, gamma = comm.platform.network.rates[:3]
        return Rates(alpha, beta, gamma, barrier=alpha)
    if comm.cache.rates is None:
        from dml.wire.comm.mpi import machine

        rates, name = np.zeros(len(Rates._fields)), machine(comm)
        stored = read_rates(name) if comm.rank == 0 else None
        rates[:] = stored or 0
        broadcast(comm, rates)
        if not rates.any():
            measurements = measure(comm)
            if comm.rank == 0:
                rates[:] = fit(measurements)
                write_rates(name, Rates(*rates.tolist()))
            broadcast(comm, rates)
        comm.cache.rates = Rates(*rates.tolist())
    return Rates(*comm.cache.rates)


def measure(comm: Comm) -> list[tuple[str, Job, float]]:
    """Time the candidates on buffers of PROBES bytes; collective.

    Return rows of (name, job, seconds).

    Candidates that use shared memory are timed on registered and on plain buffers.
    """
    names, job = candidates(comm)
    registered = allocate(comm, max(PROBES), np.uint8)
    plain = np.zeros(max(PROBES), np.uint8)
    rows = []
    for nbytes in PROBES:
        length = nbytes // 4
        probes = [(name, registered, job._replace(length=length)) for name in names]
        for name in [name for name in names if name in ("shared", "hierarchical")]:
            plain_job = job._replace(length=length, registered=False)
            probes.append((name, plain, plain_job))
        calls = [
            partial(CANDIDATES[name], comm, memory[:nbytes].view(np.float32))
            for name, memory, _ in probes
        ]
        # the least, not the median: a disturbance must not enter the stored rates
        least = time_alternately(comm, calls, REPEATS).min(axis=1).tolist()
        rows += [
            (name, probe_job, seconds)
            for (name, _, probe_job), seconds in zip(probes, least, strict=True)
        ]
    release(comm, registered)
    return rows


def rates_file() -> Path:
    """Return the path of the file with the rates of each machine."""
    home = Path(os.environ.get("DML_DATA") or "~/.cache/dml").expanduser()
    return home / "rates.json"


def read_rates(machine: str) -> Rates | None:
    """Return the stored rates of a machine; None if there are no valid ones."""
    try:
        return Rates(*json.loads(rates_file().read_text())[machine])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_rates(machine: str, rates: Rates) -> None:
    """Store the rates of a machine, if the file is writable."""
    try:
        stored = json.loads(rates_file().read_text())
    except (OSError, ValueError):
        stored = {}
    try:
        rates_file().parent.mkdir(parents=True, exist_ok=True)
        # replaced at once, because runs may read and write the file simultaneously
        temporary = rates_file().with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(stored | {machine: list(rates)}, indent=1))
        temporary.replace(rates_file())
    except OSError:
        pass
