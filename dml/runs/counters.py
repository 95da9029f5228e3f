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
    cpu_seconds: float  # of all processes since boot
    zones: Mapping[Path, int]  # microjoules, by file of an energy counter


class Gpus(NamedTuple):
    """The GPUs that this process may use."""

    joules: float = 0.0  # sum of the energy counters
    number: int = 0  # number of GPUs
    name: str = ""  # distinct product names


def read_counters(root: Path = POWERCAP, stat: Path = STAT) -> Reading:
    """Read the counters of this host."""
    return Reading(time.monotonic(), host_cpu_seconds(stat), read_zones(root))


def read_zones(root: Path) -> dict[Path, int]:
    """Read RAPL's counters of CPU packages and memory; they add up to the host."""
    microjoules = {}
    for zone in sorted(root.glob("intel-rapl:*")):  # also on AMD
        try:
            if (zone / "name").read_text().startswith(("package", "dram")):
                microjoules[zone / "energy_uj"] = read_microjoules(zone / "energy_uj")
        except OSError:  # since 2020 only root may read the counters
            continue
    return microjoules


def read_microjoules(file: Path) -> int:
    """Read a counter in microjoules."""
    return int(file.read_text())


def host_cpu_seconds(stat: Path = STAT) -> float:
    """Return the CPU seconds of all processes of this host since boot."""
    try:
        _, user, nice, system, _, _, hard, soft, _ = stat.read_text().split(None, 8)
    except OSError:  # not Linux
        return 0.0
    return sum(map(int, (user, nice, system, hard, soft))) / os.sysconf("SC_CLK_TCK")


def process_cpu_seconds() -> float:
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
        devices = [
            gpu_handle(nvml, name) for name in visible_gpus(nvml.nvmlDeviceGetCount())
        ]
        millijoules = [nvml.nvmlDeviceGetTotalEnergyConsumption(d) for d in devices]
        names = {nvml.nvmlDeviceGetName(device) for device in devices}
    except nvml.NVMLError:  # GPUs before Volta have no energy counter
        return Gpus()
    return Gpus(sum(millijoules) / 1e3, len(devices), " ".join(sorted(names)))


def visible_gpus(count: int) -> list[str]:
    """Return the GPUs that CUDA may use, each as an index or as a UUID."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [str(index) for index in range(count)]
    return [name for name in listed.split(",") if name]


def gpu_handle(nvml: Any, name: str) -> Any:
    """Return NVML's handle of a GPU with this index or UUID."""
    if name.isdecimal():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)


def own_cores() -> list[int]:
    """Return the indices of the cores that this process may run on."""
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return list(range(os.cpu_count() or 1))
