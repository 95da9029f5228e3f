"""The all-reduce that the cost model picks, by rates measured once per machine."""

import json
import os
from functools import partial
from pathlib import Path

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.collectives.halving_doubling import halving_doubling_allreduce
from dml.wire.collectives.hierarchical import hierarchical_allreduce
from dml.wire.collectives.race import race
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
PROBES = (1 << 10, 1 << 16, 1 << 20, 1 << 23)  # bytes
REPEATS = 5


def auto_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks by the algorithm that is predicted to be fastest.

    The first call on a machine measures its rates and keeps them in a file; all ranks
    use those of rank 0, so they agree.
    """
    buffer = flat(comm, buffer)
    if comm.size > 1:
        CANDIDATES[chosen(comm, buffer)](comm, buffer, op)


def chosen(comm: Comm, buffer: np.ndarray) -> str:
    """Name the algorithm that `auto_allreduce` takes for this buffer."""
    registered = buffer.nbytes > SMALL and buffers.registered(comm, buffer)
    key = len(buffer), buffer.itemsize, registered
    if key not in comm.cache.chosen:
        names, job = candidates(comm)
        job = job._replace(
            length=len(buffer), itemsize=buffer.itemsize, registered=registered
        )
        known = rates(comm)
        comm.cache.chosen[key] = once(
            comm, "chosen", key, lambda: choose(job, known, names)
        )
    return comm.cache.chosen[key]


def predicted(
    comm: Comm, name: str, buffer: np.ndarray, group: int = 0, outside: str = "ring"
) -> float:
    """Predict the seconds of an all-reduce of this buffer on this machine."""
    name = chosen(comm, buffer) if name == "auto" else name
    known, registered = rates(comm), buffers.registered(comm, buffer)

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
        return cost.seconds(name, job, known)

    key = name, len(buffer), buffer.itemsize, registered, group, outside
    return once(comm, "predicted", key, seconds)


def candidates(comm: Comm) -> tuple[list[str], Job]:
    """The algorithms that the layout of hosts allows, and the job without a length."""
    return once(comm, "candidates", None, lambda: allowed(comm))


def allowed(comm: Comm) -> tuple[list[str], Job]:
    """The same, computed."""
    sizes = tuple(map(len, groups(comm.platform.hosts())))
    outside = {"hierarchical"} if len(sizes) in (1, comm.size) else {"shared"}
    outside |= {"shared"} if len(sizes) > 1 else set()
    return [name for name in CANDIDATES if name not in outside], Job(
        comm.size, 0, groups=sizes
    )


def rates(comm: Comm) -> Rates:
    """What this machine takes: a virtual one says so, on a real one they are measured.

    They are kept in a file; the first who asks on a new machine waits a second.
    """
    if comm.size == 1:
        return Rates(0.0, 0.0, 0.0)
    if comm.platform.virtual:
        alpha, beta, gamma = comm.platform.network.rates[:3]
        return Rates(alpha, beta, gamma, meet=alpha)
    if comm.cache.rates is None:
        from dml.wire.comm.mpi import machine

        found, name = np.zeros(len(Rates._fields)), machine(comm)
        known = read(name) if comm.rank == 0 else None
        found[:] = known or 0
        broadcast(comm, found)
        if not found.any():
            measured = measure(comm)
            if comm.rank == 0:
                found[:] = fit(measured)
                write(name, Rates(*found.tolist()))
            broadcast(comm, found)
        comm.cache.rates = Rates(*found.tolist())
    return Rates(*comm.cache.rates)


def measure(comm: Comm) -> list[tuple[str, Job, float]]:
    """Time the candidates on a few lengths; those that share memory on both kinds."""
    names, job = candidates(comm)
    memory = allocate(comm, max(PROBES), np.uint8)
    plain = np.zeros(max(PROBES), np.uint8)
    rows = []
    for nbytes in PROBES:
        length = nbytes // 4
        probes = [(name, memory, job._replace(length=length)) for name in names]
        for name in [name for name in names if name in ("shared", "hierarchical")]:
            here = job._replace(length=length, registered=False)
            probes.append((name, plain, here))
        calls = [
            partial(CANDIDATES[name], comm, where[:nbytes].view(np.float32))
            for name, where, _ in probes
        ]
        # The least, not the median: what disturbs a machine once is not kept for good.
        took = race(comm, calls, REPEATS).min(axis=1).tolist()
        rows += [
            (name, here, least)
            for (name, _, here), least in zip(probes, took, strict=True)
        ]
    release(comm, memory)
    return rows


def cache() -> Path:
    """The file that keeps rates by machine."""
    home = Path(os.environ.get("DML_DATA") or "~/.cache/dml").expanduser()
    return home / "rates.json"


def read(machine: str) -> Rates | None:
    try:
        return Rates(*json.loads(cache().read_text())[machine])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not measured yet, or not readable: measure


def write(machine: str, found: Rates) -> None:
    """Keep the rates; a machine whose disk cannot be written measures again."""
    try:
        known = json.loads(cache().read_text())
    except (OSError, ValueError):
        known = {}
    try:
        cache().parent.mkdir(parents=True, exist_ok=True)
        part = cache().with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(known | {machine: list(found)}, indent=1))
        part.replace(cache())
    except OSError:
        pass
