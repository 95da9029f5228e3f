"""The processor of this machine, and the load that other programs put on it."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STAT = Path("/proc/stat")
BUSY = 0, 1, 2, 5, 6, 7  # user, nice, system, irq, softirq, steal; in 1/SC_CLK_TCK s


def describe_processor() -> dict[str, Any]:
    """Return the name of the processor and the number of its cores."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {"processor": (names or [platform.machine()])[0], "cores": os.cpu_count()}


def load_of_others() -> Callable[[], float]:
    """Return a function that returns the load of other programs since this call.

    The load is the mean number of cores that were busy with other programs. Children of
    this process are part of this program once they have ended. Without /proc/stat it is
    the load average at this call.
    """
    average, begin = os.getloadavg()[0], _seconds()

    def load() -> float:
        end = _seconds()
        wall, own, every = (b - a for a, b in zip(begin, end, strict=True))
        return max(every - own, 0.0) / wall if every else average

    return load


def _seconds() -> tuple[float, float, float]:
    """Return the clock, and the busy seconds of this program and of all cores."""
    own, every = sum(os.times()[:4]), 0.0
    if STAT.exists():
        ticks = STAT.read_text("ascii").split("\n", 1)[0].split()[1:]
        every = sum(int(ticks[k]) for k in BUSY) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), own, every
