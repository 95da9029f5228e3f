"""Check the machine of a run: MPI, names, threads, GPUs, shared memory, message rates.

    mpirun -n 4 python -m dml.doctor

    ok    mpi       MPICH 5.0.1 in mpi4py and mpirun
    warn  threads   4 ranks x 8 threads on 8 cores; set OMP_NUM_THREADS=2
    FAIL  memory    64 KB free in /dev/shm; docker: --shm-size=1g

Every finding says what to do. Findings of equal text are printed once, with their
ranks. The exit code is 1 if one of them is FAIL.
"""

import argparse
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml import processes
from dml.types import BadInput
from dml.wire.comm.started import started_ranks
from dml.wire.comm.watchdog import rank_text

OK, WARN, FAIL = "ok", "warn", "FAIL"
SMALL, LARGE = 8, 1 << 20  # bytes of the messages that are measured
ROUNDS = {SMALL: 200, LARGE: 10}
SLOW_SECONDS = 1e-3  # for a small message: ranks that share a core
LITTLE_MEMORY = 64 << 20  # bytes of /dev/shm for a rank
SHARED = Path("/dev/shm")
DEVICES = Path("/dev")
LIBRARIES = "MPICH", "Open MPI", "Intel(R) MPI", "MVAPICH"
PACKAGES = "numpy", "mpi4py", "jax", "jaxlib"


class Finding(NamedTuple):
    """The result of a check: its level, its subject, and a sentence with a remedy."""

    level: str
    subject: str
    text: str


class Place(NamedTuple):
    """Where a rank runs.

    Attributes:
      comm: Communicator of mpi4py; None without MPI.
      rank: This rank.
      size: Number of ranks.
      hosts: Names of the hosts by rank.
    """

    comm: Any
    rank: int
    size: int
    hosts: Sequence[str]

    @property
    def here(self) -> int:
        """Number of ranks on this host."""
        return list(self.hosts).count(self.hosts[self.rank])


def check_packages(place: Place) -> Iterator[Finding]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding(OK, "packages", f"Python {python}, {', '.join(found)}")


def check_mpi(place: Place) -> Iterator[Finding]:
    """Compare the MPI of mpi4py with that of mpirun, and the number of ranks."""
    if place.comm is None:
        remedy = "pip install mpi4py mpich"
        yield Finding(WARN, "mpi", f"no MPI library for mpi4py; {remedy}")
        return
    from dml.wire.comm.mpi_library import MPI

    own = library(MPI.Get_library_version())
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        yield Finding(
            WARN, "mpi", f"{own} in mpi4py, no mpirun on PATH; add its folder"
        )
    else:
        command = [mpirun, "--version"]
        done = subprocess.run(command, capture_output=True, text=True)
        other = library(done.stdout + done.stderr)
        if other.split()[0] != own.split()[0]:
            yield Finding(
                FAIL,
                "mpi",
                f"{own} in mpi4py, but {other} in {mpirun}: every process would be "
                "rank 0 of 1; put the mpirun of mpi4py's MPI first on PATH",
            )
        else:
            yield Finding(OK, "mpi", f"{own} in mpi4py and mpirun")
    if (started := started_ranks()) > place.size:
        yield Finding(
            FAIL,
            "mpi",
            f"mpirun has started {started} processes, and MPI has {place.size} ranks; "
            "start them by the mpirun of mpi4py's MPI",
        )


def library(text: str) -> str:
    """Return name and version of an MPI library from its version text."""
    name = next((name for name in LIBRARIES if name in text), "")
    if not name and "HYDRA" in text:
        name = "MPICH"
    if not name and "open-mpi" in text.lower():
        name = "Open MPI"
    number = re.search(r"\d+\.\d+(\.\d+)?", text)
    return f"{name or 'an unknown MPI'} {number[0] if number else ''}".strip()


def check_names(place: Place) -> Iterator[Finding]:
    """Check that the host's name leads to an address that other hosts reach."""
    name = socket.gethostname()
    try:
        address = str(socket.getaddrinfo(name, None)[0][4][0])
    except OSError:
        address = ""
    if address and not ip_address(address.partition("%")[0]).is_loopback:
        yield Finding(OK, "names", f"{name} is {address}")
        return
    several = len(set(place.hosts)) > 1
    what = f"{name} is {address or 'unknown'}, which other hosts do not reach"
    remedy = "write the host's address in its /etc/hosts"
    yield Finding(
        FAIL if several else OK,
        "names",
        f"{what}; {remedy}" if several else f"{what} (one host: not needed)",
    )


def check_threads(place: Place) -> Iterator[Finding]:
    """Compare the threads of all ranks of this host with its cores."""
    cores = cores_of_host()
    setting = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(setting) if setting.isdigit() else cores
    fitting = max(1, cores // place.here)
    what = f"{place.here} x {threads} threads of ranks on {cores} cores"
    if place.here > cores:
        remedy = "ranks that wait take turns; start fewer, or --simulate"
        yield Finding(WARN, "threads", f"{what}: {remedy}")
    elif place.here * threads > cores:
        yield Finding(WARN, "threads", f"{what}; set OMP_NUM_THREADS={fitting}")
    else:
        yield Finding(OK, "threads", what)


def cores_of_host() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def check_gpus(place: Place) -> Iterator[Finding]:
    """Compare the GPUs of this host with its ranks and with JAX's plugins."""
    gpus = len([path for path in DEVICES.glob("nvidia*") if path.name[6:].isdigit()])
    if not gpus:
        yield Finding(OK, "gpus", "none")
        return
    plugins = [f"jax_cuda{n}_plugin" for n in (12, 13)]
    if not any(importlib.util.find_spec(name) for name in plugins):
        yield Finding(WARN, "gpus", f"{gpus}, unused by JAX; pip install '.[cuda12]'")
    elif place.here > gpus:
        remedy = "start one rank for each GPU"
        yield Finding(FAIL, "gpus", f"{gpus} for {place.here} ranks; {remedy}")
    else:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        some = f", of which {visible} are visible" if visible is not None else ""
        yield Finding(OK, "gpus", f"{gpus}{some}; rank k of a host uses the k-th")


def check_memory(place: Place) -> Iterator[Finding]:
    """Check the free shared memory, which MPI and windows use."""
    try:
        disk = os.statvfs(SHARED)
    except OSError:
        yield Finding(WARN, "memory", f"no {SHARED}: MPI uses slower messages")
        return
    free = disk.f_bavail * disk.f_frsize
    text = f"{free / 2**20:,.0f} MB free in {SHARED}"
    if free < LITTLE_MEMORY * place.here:
        wanted = LITTLE_MEMORY * place.here >> 20
        remedy = f"{wanted} MB are needed; containers: --shm-size, --ipc=host"
        yield Finding(FAIL, "memory", f"{text}; {remedy}")
    else:
        yield Finding(OK, "memory", text)


def check_rates(place: Place) -> Iterator[Finding]:
    """Measure messages between rank 0 and the last rank; collective."""
    if place.size < 2:
        remedy = "mpirun -n 2 python -m dml.doctor measures them"
        yield Finding(OK, "rates", f"one rank; {remedy}")
        return
    last = place.size - 1
    seconds = {}
    for nbytes, rounds in ROUNDS.items():
        buffer, times = np.zeros(nbytes, np.uint8), []
        place.comm.Barrier()
        for _ in range(rounds):
            begin = time.perf_counter()
            if place.rank == 0:
                place.comm.Send(buffer, last)
                place.comm.Recv(buffer, last)
            elif place.rank == last:
                place.comm.Recv(buffer, 0)
                place.comm.Send(buffer, 0)
            times.append((time.perf_counter() - begin) / 2)
        seconds[nbytes] = float(np.median(times))
    place.comm.Barrier()
    if place.rank:
        return
    beta = (seconds[LARGE] - seconds[SMALL]) / (LARGE - SMALL)
    text = (
        f"rank 0 to {last}: {seconds[SMALL] * 1e6:.1f} us a message, "
        f"{1e-9 / max(beta, 1e-15):.2g} GB/s"
    )
    slow = seconds[SMALL] > SLOW_SECONDS
    remedy = "; ranks share cores, or the network is slow: start fewer ranks a host"
    yield Finding(WARN if slow else OK, "rates", text + remedy * slow)


CHECKS: tuple[Callable[[Place], Iterator[Finding]], ...] = (
    check_packages,
    check_mpi,
    check_names,
    check_threads,
    check_gpus,
    check_memory,
    check_rates,
)


def this_place() -> Place:
    """Return the place of this process."""
    try:
        from dml.wire.comm.mpi_library import MPI
    except (ImportError, BadInput):  # no mpi4py, or no MPI library
        return Place(None, 0, 1, [socket.gethostname()])
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(socket.gethostname())
    return Place(comm, comm.rank, comm.size, hosts)


def lines(found: Sequence[Sequence[Finding]]) -> Iterator[str]:
    """Return the findings of all ranks as lines; ranks with equal ones share a line."""
    ranks: dict[Finding, list[int]] = {}
    for rank, findings in enumerate(found):
        for finding in findings:
            ranks.setdefault(finding, []).append(rank)
    subjects = list(dict.fromkeys(finding.subject for finding in ranks))
    for (level, subject, text), own in sorted(
        ranks.items(), key=lambda item: (subjects.index(item[0].subject), item[1])
    ):
        some = f" ({rank_text(own)})" if len(own) not in (1, len(found)) else ""
        yield f"{level:<4}  {subject:<8}  {text}{some}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings of all ranks on rank 0; return 1 on all if one is FAIL."""
    parser = argparse.ArgumentParser(prog="python -m dml.doctor", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.parse_args(argv)
    place = this_place()
    own = [finding for check in CHECKS for finding in check(place)]
    found = place.comm.allgather(own) if place.comm else [own]
    if place.rank == 0:
        sys.stdout.write("\n".join(lines(found)) + "\n")
    return int(any(finding.level == FAIL for each in found for finding in each))


if __name__ == "__main__":
    with processes.safe_output():
        sys.exit(main())
