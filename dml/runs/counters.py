"""Read a host's counters of CPU time and joules."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

POWERCAP = Path("/sys/class/powercap")
STAT = Path("/proc/stat")
DRIVER = Path("/dev/nvidiactl")  # no GPU without: asking NVML takes time


class Reading(NamedTuple):
    """A host's counters at a time: CPU seconds of all, microjoules by file."""

    time: float
    busy: float
    zones: Mapping[Path, int]


class Gpus(NamedTuple):
    """The joules so far, number and name of the GPUs that this process may use."""

    joules: float = 0.0
    number: int = 0
    name: str = ""


def reading(root: Path = POWERCAP, stat: Path = STAT) -> Reading:
    return Reading(time.monotonic(), busy(stat), zones(root))


def zones(root: Path) -> dict[Path, int]:
    """Read the counters whose sum is that of a host: packages and memory."""
    microjoules = {}
    for zone in sorted(root.glob("intel-rapl:*")):  # AMD's have the same name
        try:
            if (zone / "name").read_text().startswith(("package", "dram")):
                microjoules[zone / "energy_uj"] = micro(zone / "energy_uj")
        except OSError:  # since 2020 only root may
            continue
    return microjoules


def micro(file: Path) -> int:
    return int(file.read_text())


def busy(stat: Path = STAT) -> float:
    """Return the CPU seconds of all processes of this host."""
    try:
        _, user, nice, system, _, _, hard, soft, _ = stat.read_text().split(None, 8)
    except OSError:  # no Linux
        return 0.0
    return sum(map(int, (user, nice, system, hard, soft))) / os.sysconf("SC_CLK_TCK")


def worked() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    return time.process_time() + sum(os.times()[2:4])


def gpus() -> Gpus:
    """Read NVML's counters; without GPUs, or without its library, all is 0."""
    if not DRIVER.exists():
        return Gpus()
    try:
        import pynvml as nvml
    except ImportError:
        return Gpus()
    try:
        nvml.nvmlInit()
        handles = [handle(nvml, one) for one in visible(nvml.nvmlDeviceGetCount())]
        took = [nvml.nvmlDeviceGetTotalEnergyConsumption(one) for one in handles]
        names = {nvml.nvmlDeviceGetName(one) for one in handles}
    except nvml.NVMLError:  # before Volta none counted
        return Gpus()
    return Gpus(sum(took) / 1e3, len(handles), " ".join(sorted(names)))


def visible(count: int) -> list[str]:
    """Return the GPUs that CUDA may use, by number or by name."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    every = [str(i) for i in range(count)]
    return every if listed is None else [name for name in listed.split(",") if name]


def handle(nvml: Any, one: str) -> Any:
    if one.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(one))
    return nvml.nvmlDeviceGetHandleByUUID(one)


def mine() -> list[int]:
    """Return the cores that this process may run on."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # no Linux
        return list(range(os.cpu_count() or 1))
