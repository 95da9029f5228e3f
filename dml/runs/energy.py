"""Energy, CO2e and cost of a run, by counters and CPU time.

There is one meter per host. Where RAPL can be read, a run's share of the host's joules
is its share of the host's CPU time, so that the joules of all runs add up to those of
the host. Otherwise a busy core has an assumed power. GPUs have energy counters (NVML).
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

BEGUN = counters.reading()  # at the import, soon after the start of the process
LOOK = 60.0  # seconds between readings; RAPL's counters overflow in twenty minutes
CORES = 4096  # largest number of cores of a host
JOULES = 3.6e6  # joules in a kWh


class Terms(NamedTuple):
    """Assumed power of a core, and conversions of energy and time.

    Attributes:
      watts: Power of a busy core with its share of memory and board, without RAPL.
      pue: Power usage effectiveness of the data centre (Strubell 2019).
      grid: kg CO2e of a kWh (Strubell 2019: 0.954 lb).
      core_price: Dollars an hour of a core; None takes the price of PRICES.
      gpu_price: Dollars an hour of a GPU; None takes the price of PRICES.
    """

    watts: float = 10.0
    pue: float = 1.58
    grid: float = 0.4327
    core_price: float | None = None
    gpu_price: float | None = None


class Took(NamedTuple):
    """Consumption of a host, all numbers; a run has a share of it.

    Attributes:
      seconds: Duration.
      rate: Joules of a CPU second.
      read: 1 if joules are read from RAPL, 0 if they are estimated.
      gpu_joules: Energy of the GPUs.
      gpus: Number of GPUs.
      gpu_price: Dollars an hour of a GPU.
      unlisted: 1 if the GPUs have no known price.
      joules: Energy of all processes of the host by RAPL; else infinite.
    """

    seconds: float
    rate: float
    read: float
    gpu_joules: float
    gpus: float
    gpu_price: float
    unlisted: float
    joules: float = math.inf


class Meter:
    """Consumption of the hosts of all ranks; collective.

    The first rank of each host reads its counters. All virtual ranks are one process;
    so is a run without a communicator.
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
        """Add the joules since the last reading; a counter may overflow once."""
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
        all_cpu_seconds = max(counters.busy() - self.begun.busy, counters.worked())
        read = self.joules > 0
        gpus, gpu_price = counters.gpus(), self.terms.gpu_price
        price = hourly(gpus.name) if gpu_price is None else gpu_price
        return Took(
            elapsed,
            self.joules / all_cpu_seconds if read else self.terms.watts,
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
        most[self.host, [fields + core for core in counters.own_cores()]] = 1
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
    """Return the consumption of a run on all hosts.

    Args:
      hosts: Consumption of each host.
      cpu_seconds: CPU seconds of the run on each host.
      cores: Number of cores of the run on each host.
      terms: Conversions of energy and time.
    """
    # CPU time before BEGUN counts, too, so the share is limited to the joules read.
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
    estimate = f"CPU time x {terms.watts:g} W (estimated)"
    names = ["RAPL" if host.read else estimate for host in hosts]
    names += ["NVML" for host in hosts if host.gpus]
    return sorted(set(names))


@contextmanager
def meter(
    comm: Comm | None, terms: Terms, begun: counters.Reading = BEGUN
) -> Iterator[Meter]:
    """Open a meter whose thread reads counters before they can overflow twice."""
    result, closed = Meter(comm, terms, begun), threading.Event()

    def looks() -> None:
        while not closed.wait(LOOK):
            result.look()

    if result.leads and result.last:
        threading.Thread(target=looks, daemon=True).start()
    try:
        yield result
    finally:
        closed.set()
