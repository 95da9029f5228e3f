"""Energy, CO2e and cost of a run, by counters and CPU time.

One rank of each host reads the host's counters. If RAPL, the energy counters of CPUs,
can be read, the host's joules are divided between runs in proportion to their CPU time.
Otherwise a busy core has an assumed power. NVML has the energy counters of GPUs.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dml.runs import counters
from dml.runs.carbon import PRICES, dollars_per_hour, rent
from dml.types import Comm

START = counters.read_counters()  # at the import, soon after the start of the process
READ_INTERVAL = 60.0  # seconds; RAPL's counters overflow in twenty minutes
MAX_CORES = 4096  # per host
JOULES_PER_KWH = 3.6e6
Collective = Callable[[Callable[..., Any]], Any]  # see Meter


class Terms(NamedTuple):
    """Assumed power of a core, and conversions of energy and time.

    Attributes:
      watts: Power of a busy core with a part of memory and board, used without RAPL.
      pue: Power usage effectiveness of the data centre (Strubell 2019).
      grid: kg CO2e per kWh (Strubell 2019: 0.954 lb).
      core_price: Dollars per core and hour; None uses PRICES.
      gpu_price: Dollars per GPU and hour; None uses PRICES.
    """

    watts: float = 10.0
    pue: float = 1.58
    grid: float = 0.4327
    core_price: float | None = None
    gpu_price: float | None = None


class Consumption(NamedTuple):
    """Consumption of a host since the start of this process, as numbers.

    Attributes:
      seconds: Duration.
      joules_per_cpu_second: Power of a busy core.
      measured: 1 if RAPL measures the joules, 0 if they are estimated.
      gpu_joules: Energy of the GPUs.
      gpus: Number of GPUs.
      gpu_price: Dollars per GPU and hour.
      unlisted: 1 if the GPUs have no known price.
      joules: Energy of all processes of the host by RAPL; else infinite.
    """

    seconds: float
    joules_per_cpu_second: float
    measured: float
    gpu_joules: float
    gpus: float
    gpu_price: float
    unlisted: float
    joules: float = math.inf


class Meter:
    """Consumption of the hosts of all ranks; collective.

    The first rank of each host reads its counters. Virtual ranks, and a run without a
    communicator, are one process.

    Args:
      comm: Communicator of the ranks, or None.
      terms: Conversions of energy and time.
      start: Counters at the start.
      collective: (function of a communicator) -> its result on the ranks that take
        part; None: on all of `comm`. See `with_survivors`.
    """

    def __init__(
        self,
        comm: Comm | None,
        terms: Terms,
        start: counters.Reading = START,
        collective: Collective | None = None,
    ) -> None:
        self.collective = collective or (lambda call: call(comm))
        processes = 1 if comm is None or comm.platform.virtual else comm.size
        self.comm = comm if processes > 1 else None
        self.hosts = self.comm.platform.hosts() if self.comm else [0]
        rank = self.comm.rank if self.comm else 0
        self.host = self.hosts[rank]
        self.reads_counters = self.hosts.index(self.host) == rank
        self.terms = terms
        self.start = start
        self.joules = 0.0  # of RAPL since the start
        self.last_zones = dict(start.zones)
        self.lock = threading.Lock()
        self.gpus_at_start = counters.gpus() if self.reads_counters else counters.Gpus()

    def read_energy(self) -> None:
        """Add the joules since the last reading; a counter may overflow once."""
        with self.lock:
            for file, before in self.last_zones.items():
                now = counters.read_microjoules(file)
                if now < before:
                    before -= counters.read_microjoules(
                        file.with_name("max_energy_range_uj")
                    )
                self.joules += (now - before) / 1e6
                self.last_zones[file] = now

    def host_consumption(self) -> Consumption:
        """Return the host's consumption on its first rank, zeros on the others."""
        elapsed = time.monotonic() - self.start.time
        if not self.reads_counters:
            return Consumption(elapsed, 0, 0, 0, 0, 0, 0, 0)
        self.read_energy()
        all_cpu_seconds = max(
            counters.host_cpu_seconds() - self.start.cpu_seconds,
            counters.process_cpu_seconds(),
        )
        measured = self.joules > 0
        gpus, gpu_price = counters.gpus(), self.terms.gpu_price
        price = dollars_per_hour(gpus.name) if gpu_price is None else gpu_price
        return Consumption(
            elapsed,
            self.joules / all_cpu_seconds if measured else self.terms.watts,
            measured,
            gpus.joules - self.gpus_at_start.joules,
            gpus.number,
            price or 0.0,
            gpus.number > 0 and price is None,
            self.joules if measured else math.inf,
        )

    def run_consumption(self) -> dict[str, Any]:
        """Return energy, CO2e and cost since the processes started; collective."""
        fields = len(Consumption._fields)
        by_host = np.zeros((max(self.hosts) + 1, fields + MAX_CORES))
        by_host[self.host, :fields] = self.host_consumption()
        by_host[self.host, [fields + core for core in counters.own_cores()]] = 1
        cpu_seconds = np.zeros(len(by_host))
        cpu_seconds[self.host] = counters.process_cpu_seconds()

        def combine(comm: Comm, *_: Any) -> tuple[np.ndarray, np.ndarray]:
            sums, largest = cpu_seconds.copy(), by_host.copy()
            comm.Allreduce(None, sums, np.add)
            comm.Allreduce(None, largest.reshape(-1), np.maximum)
            return sums, largest

        if self.comm:
            cpu_seconds, by_host = self.collective(combine)
        hosts = [Consumption(*row[:fields]) for row in by_host.tolist()]
        cores = np.count_nonzero(by_host[:, fields:], axis=1)
        return total_consumption(
            hosts, cpu_seconds.tolist(), cores.tolist(), self.terms
        )


def total_consumption(
    hosts: Sequence[Consumption],
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
    # The CPU time of the run includes the time before START, but RAPL is read from
    # START on. The joules of the run cannot exceed the joules of the host.
    joules = sum(
        min(host.joules_per_cpu_second * seconds, host.joules) + host.gpu_joules
        for host, seconds in zip(hosts, cpu_seconds, strict=True)
    )
    core_price = terms.core_price
    if core_price is None:
        core_price = PRICES["core"].on_demand
    cost = sum(
        rent(count, host.seconds / 3600, core_price)
        + rent(host.gpus, host.seconds / 3600, host.gpu_price)
        for host, count in zip(hosts, cores, strict=True)
    )
    kwh = joules / JOULES_PER_KWH
    return {
        "energy_kwh": kwh,
        "energy_source": " and ".join(sources(hosts, terms)),
        "co2_kg": kwh * terms.pue * terms.grid,
        "cost_usd": None if any(host.unlisted for host in hosts) else cost,
    }


def sources(hosts: Sequence[Consumption], terms: Terms) -> list[str]:
    """Return the sources of the joules: counters, or an estimate."""
    estimate = f"CPU time x {terms.watts:g} W (estimated)"
    names = ["RAPL" if host.measured else estimate for host in hosts]
    names += ["NVML" for host in hosts if host.gpus]
    return sorted(set(names))


@contextmanager
def meter(
    comm: Comm | None,
    terms: Terms,
    start: counters.Reading = START,
    collective: Collective | None = None,
) -> Iterator[Meter]:
    """Open a meter whose thread reads counters before they can overflow twice."""
    result = Meter(comm, terms, start, collective)
    closed = threading.Event()

    def read_periodically() -> None:
        while not closed.wait(READ_INTERVAL):
            result.read_energy()

    if result.reads_counters and result.last_zones:
        threading.Thread(target=read_periodically, daemon=True).start()
    try:
        yield result
    finally:
        closed.set()
