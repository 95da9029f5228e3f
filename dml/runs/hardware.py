"""The processor of this machine, for printed lines and run folders."""

import os
import platform
from pathlib import Path
from typing import Any


def describe_processor() -> dict[str, Any]:
    """Return the name of the processor and the number of its cores."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {"processor": (names or [platform.machine()])[0], "cores": os.cpu_count()}
