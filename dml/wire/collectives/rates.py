"""Rates α, β, γ of a machine, fitted to timings of all-reduces and stored in a file."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from dml.types import Comm
from dml.wire.collectives import stored
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.collectives.halving_doubling import halving_doubling_allreduce
from dml.wire.collectives.hierarchical import hierarchical_allreduce
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.collectives.shared import shared_allreduce
from dml.wire.comm.buffers import allocate, release
from dml.wire.comm.metered import uncounted
from dml.wire.comm.once import once
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, Rates, fit
from dml.wire.plans.topology import groups

# Star and tree are left out: a butterfly is never slower than either.
CANDIDATES = {
    "shared": shared_allreduce,
    "hierarchical": hierarchical_allreduce,
    "butterfly": butterfly_allreduce,
    "halving_doubling": halving_doubling_allreduce,
    "ring": ring_allreduce,
}
RATES = "rates.json"
PROBES = (1 << 10, 1 << 16, 1 << 20, 1 << 23)  # bytes of the buffers that are timed
REPEATS = 5  # timings of each algorithm and buffer


def candidates(comm: Comm) -> tuple[list[str], Job]:
    """Return the algorithms for this layout of hosts, and a `Job` of length 0.

    Collective at the first call. `shared` needs one host; `hierarchical` needs several
    hosts, one of them with several ranks.
    """
    return once(comm, "candidates", None, lambda: find_candidates(comm))


def find_candidates(comm: Comm) -> tuple[list[str], Job]:
    """Compute the result of `candidates`."""
    sizes = tuple(map(len, groups(comm.platform.hosts())))
    names = usable(comm)
    if len(sizes) == 1:  # a single group sends nothing between groups
        names = [name for name in names if name != "hierarchical"]
    return names, Job(comm.size, 0, groups=sizes)


def usable(comm: Comm, names: Iterable[str] = CANDIDATES) -> list[str]:
    """Return the names that can run on these hosts; collective at the first call.

    `shared` needs one host, `hierarchical` a host with several ranks.
    """
    hosts = len(set(comm.platform.hosts()))
    excluded = {"shared": hosts > 1, "hierarchical": hosts == comm.size}
    return [name for name in names if not excluded.get(name)]


def machine_rates(comm: Comm) -> Rates:
    """Return the rates of this machine, or of the virtual network.

    The rates of a real machine are measured once, in about a second, and stored in a
    file. Collective at the first call.
    """
    comm = as_comm(comm)
    if comm.size == 1:
        return Rates(0.0, 0.0, 0.0)
    if comm.platform.virtual:
        alpha, beta, gamma = comm.platform.network.rates[:3]
        return Rates(alpha, beta, gamma, barrier=alpha)
    if comm.cache.rates is None:
        rates, inner = np.zeros(len(Rates._fields)), uncounted(comm)
        rates[:] = stored_rates(inner) or 0
        broadcast(inner, rates)
        if not rates.any():
            measurements = measure(inner)
            if comm.rank == 0:
                rates[:] = fit(measurements)
            stored.write(RATES, inner, rates.tolist())
            broadcast(inner, rates)
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


def stored_rates(comm: Comm) -> Rates | None:
    """Return the stored rates of this machine on rank 0, None if there are none."""
    try:
        return Rates(*map(float, stored.read(RATES, comm)))
    except (TypeError, ValueError):
        return None
