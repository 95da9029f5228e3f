"""Energy, CO2e and cost of a run, by counters and CPU time.

There is one meter a host. Where RAPL can be read, a run gets the share of the host's
joules that it has of the host's CPU time, so the joules of all ranks and runs add up
to those of the host. Otherwise a CPU second has a stated power. GPUs count their own
joules (NVML).
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dml.runs import counters
from dml.runs.carbon import PRICES, hourly, rent
from dml.types import Comm

BEGUN = counters.reading()  # when the process began, as its CPU time
LOOK = 60.0  # seconds between readings; RAPL's counters overflow in twenty minutes
CORES = 4096  # of a host, at most
JOULES = 3.6e6  # in a kWh


class Terms(NamedTuple):
    """Power of CPU time, CO2e of a kWh, and prices of hours."""

    watts: float = 10.0  # of a busy core with its memory and board, where none is read
    pue: float = 1.58  # a data centre's energy by its machines' (Strubell 2019)
    grid: float = 0.4327  # kg CO2e a kWh: 0.954 lb, as there
    core_price: float | None = None  # dollars an hour; None takes the table's
    gpu_price: float | None = None


class Took(NamedTuple):
    """Consumption of a host; a run has a share of it, by cores and time."""

    seconds: float
    rate: float  # joules of a CPU second
    read: float  # 1: by RAPL
    gpu_joules: float
    gpus: float
    gpu_price: float  # dollars an hour
    unlisted: float  # 1: no price is listed
    joules: float = math.inf  # of all processes of the host, where they are read


class Meter:
    """Consumption of the hosts of all ranks; collective.

    The first rank of each host reads its counters. Virtual ranks are one process, as is
    a run without comm.
    """

    def __init__(
        self, comm: Comm | None, terms: Terms, begun: counters.Reading = BEGUN
    ) -> None:
        many = comm is not None and not comm.platform.virtual and comm.size > 1
        self.comm = comm if many else None
        self.hosts = self.comm.platform.hosts() if self.comm else [0]
        rank = self.comm.rank if self.comm else 0
        self.host = self.hosts[rank]
        self.leads = self.hosts.index(self.host) == rank
        self.terms, self.begun = terms, begun
        self.joules, self.last = 0.0, dict(begun.zones)
        self.looking = threading.Lock()
        self.gpus = counters.gpus() if self.leads else counters.Gpus()

    def look(self) -> None:
        """Add the joules since the last reading, also of counters that overflowed."""
        with self.looking:
            for file, before in self.last.items():
                now = counters.micro(file)
                if now < before:
                    before -= counters.micro(file.with_name("max_energy_range_uj"))
                self.joules += (now - before) / 1e6
                self.last[file] = now

    def took(self) -> Took:
        """Return the host's consumption on its first rank, zeros on the others."""
        elapsed = time.monotonic() - self.begun.time
        if not self.leads:
            return Took(elapsed, 0, 0, 0, 0, 0, 0, 0)
        self.look()
        everyone = max(counters.busy() - self.begun.busy, counters.worked())
        read = self.joules > 0
        gpus, gpu_price = counters.gpus(), self.terms.gpu_price
        price = hourly(gpus.name) if gpu_price is None else gpu_price
        return Took(
            elapsed,
            self.joules / everyone if read else self.terms.watts,
            read,
            gpus.joules - self.gpus.joules,
            gpus.number,
            price or 0.0,
            gpus.number > 0 and price is None,
            self.joules if read else math.inf,
        )

    def spent(self) -> dict[str, Any]:
        """Return energy, CO2e and cost since the processes began; collective."""
        fields = len(Took._fields)
        most = np.zeros((max(self.hosts) + 1, fields + CORES))
        most[self.host, :fields] = self.took()
        most[self.host, [fields + core for core in counters.mine()]] = 1
        cpu_seconds = np.zeros(len(most))
        cpu_seconds[self.host] = counters.worked()
        if self.comm:
            self.comm.Allreduce(None, cpu_seconds, np.add)
            self.comm.Allreduce(None, most.reshape(-1), np.maximum)
        hosts = [Took(*row[:fields]) for row in most.tolist()]
        cores = np.count_nonzero(most[:, fields:], axis=1)
        return summed(hosts, cpu_seconds.tolist(), cores.tolist(), self.terms)


def summed(
    hosts: Sequence[Took],
    cpu_seconds: Sequence[float],
    cores: Sequence[int],
    terms: Terms,
) -> dict[str, Any]:
    """Sum over hosts, by the CPU seconds and cores of the run on each."""
    # A process works before BEGUN, too: its share is at most what was read.
    joules = sum(
        min(host.rate * seconds, host.joules) + host.gpu_joules
        for host, seconds in zip(hosts, cpu_seconds, strict=True)
    )
    core = PRICES["core"].on_demand if terms.core_price is None else terms.core_price
    cost = sum(
        rent(count, host.seconds / 3600, core)
        + rent(host.gpus, host.seconds / 3600, host.gpu_price)
        for host, count in zip(hosts, cores, strict=True)
    )
    kwh = joules / JOULES
    return {
        "energy_kwh": kwh,
        "energy_source": " and ".join(sources(hosts, terms)),
        "co2_kg": kwh * terms.pue * terms.grid,
        "cost_usd": None if any(host.unlisted for host in hosts) else cost,
    }


def sources(hosts: Sequence[Took], terms: Terms) -> list[str]:
    """Return the sources of the joules: counters, or an estimate."""
    stated = f"CPU time x {terms.watts:g} W (estimated)"
    names = ["RAPL" if host.read else stated for host in hosts]
    names += ["NVML" for host in hosts if host.gpus]
    return sorted(set(names))


@contextmanager
def meter(
    comm: Comm | None, terms: Terms, begun: counters.Reading = BEGUN
) -> Iterator[Meter]:
    """Make a meter that reads its counters before they can overflow twice."""
    made, over = Meter(comm, terms, begun), threading.Event()

    def looks() -> None:
        while not over.wait(LOOK):
            made.look()

    if made.leads and made.last:
        threading.Thread(target=looks, daemon=True).start()
    try:
        yield made
    finally:
        over.set()
