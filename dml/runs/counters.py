"""Read a host's counters of CPU time and energy."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

POWERCAP = Path("/sys/class/powercap")
STAT = Path("/proc/stat")
DRIVER = Path("/dev/nvidiactl")  # missing without GPUs; NVML is slower to check


class Reading(NamedTuple):
    """A host's counters at a time."""

    time: float  # monotonic clock, in seconds
    busy: float  # CPU seconds of all processes
    zones: Mapping[Path, int]  # microjoules, by file


class Gpus(NamedTuple):
    """The GPUs that this process may use."""

    joules: float = 0.0  # counters of energy, summed
    number: int = 0
    name: str = ""


def reading(root: Path = POWERCAP, stat: Path = STAT) -> Reading:
    """Read the counters of this host."""
    return Reading(time.monotonic(), busy(stat), zones(root))


def zones(root: Path) -> dict[Path, int]:
    """Read the energy counters of packages and memory, which add up to the host's."""
    microjoules = {}
    for zone in sorted(root.glob("intel-rapl:*")):  # AMD's have the same name
        try:
            if (zone / "name").read_text().startswith(("package", "dram")):
                microjoules[zone / "energy_uj"] = micro(zone / "energy_uj")
        except OSError:  # since 2020 only root may read the counters
            continue
    return microjoules


def micro(file: Path) -> int:
    """Read a counter in microjoules."""
    return int(file.read_text())


def busy(stat: Path = STAT) -> float:
    """Return the CPU seconds of all processes of this host."""
    try:
        _, user, nice, system, _, _, hard, soft, _ = stat.read_text().split(None, 8)
    except OSError:  # not Linux
        return 0.0
    return sum(map(int, (user, nice, system, hard, soft))) / os.sysconf("SC_CLK_TCK")


def worked() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    return time.process_time() + sum(os.times()[2:4])


def gpus() -> Gpus:
    """Read NVML's counters; all are 0 without GPUs or without pynvml."""
    if not DRIVER.exists():
        return Gpus()
    try:
        import pynvml as nvml
    except ImportError:
        return Gpus()
    try:
        nvml.nvmlInit()
        devices = [handle(nvml, name) for name in visible(nvml.nvmlDeviceGetCount())]
        millijoules = [nvml.nvmlDeviceGetTotalEnergyConsumption(d) for d in devices]
        names = {nvml.nvmlDeviceGetName(device) for device in devices}
    except nvml.NVMLError:  # GPUs before Volta have no energy counter
        return Gpus()
    return Gpus(sum(millijoules) / 1e3, len(devices), " ".join(sorted(names)))


def visible(count: int) -> list[str]:
    """Return the GPUs that CUDA may use, by number or by name."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    every = [str(i) for i in range(count)]
    return every if listed is None else [name for name in listed.split(",") if name]


def handle(nvml: Any, name: str) -> Any:
    """Return NVML's handle of a GPU, by its number or its UUID."""
    if name.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)


def own_cores() -> list[int]:
    """Return the cores that this process may run on."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return list(range(os.cpu_count() or 1))
