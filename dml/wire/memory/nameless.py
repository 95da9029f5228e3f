"""The memory in which MPICH's ranks meet, without the name that would outlive them.

MPICH removes the file when ranks end well. Once all have mapped it nobody needs its
name, and memory without one goes with its last process, however that ends.
"""

from pathlib import Path

NAMES = "/dev/shm/mpich_shm_"


def nameless(maps: Path = Path("/proc/self/maps")) -> None:
    """Remove the names of files of MPICH's that this process maps; all ranks have."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:  # no Linux: then nobody says what is mapped
        return
    for line in lines:
        path = line[line.find("/") :]
        if path.startswith(NAMES) and not path.endswith(" (deleted)"):
            Path(path).unlink(missing_ok=True)  # all ranks of a host do
