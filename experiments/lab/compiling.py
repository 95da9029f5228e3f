"""What a run does before and around compiling: it keeps programs, and fits in memory.

A second start finds what the first one has compiled in the cache's folder; a run that
is larger than its memory ends with one line that says what makes it smaller.
"""

import hashlib
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from dml.data.archives import cache
from dml.types import BadInput

SMALLER = "a smaller --batch, a larger --accumulate, --remat, or --zero=3"


def cached() -> Path:
    """Keep every program that is compiled from now on, and return in which folder.

    Ranks may share it: what another one has written half counts as not there. Of many
    processes on one mesh of CPUs only the first finds its programs again: JAX tells
    their keys apart, and lets that one write alone.
    """
    folder = cache() / "compiled" / machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"expected a folder to keep programs in, got {error}; set DML_DATA to one"
        ) from error
    # What cannot be read is compiled anew, which needs no word.
    for verb in ("reading", "writing"):
        warnings.filterwarnings("ignore", f"Error {verb} persistent compilation cache")
    for name, value in {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(name, value)
    return folder


def machine() -> str:
    """Return a name of what this host's processor can do: programs run there alone.

    JAX tells programs by versions and kinds of devices; two hosts may share a home.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    wanted = ("flags", "Features", "model name")
    about = sorted({line for line in lines if line.startswith(wanted)})
    text = "\n".join([platform.machine(), *about])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def fitting(smaller: str = SMALLER) -> Iterator[None]:
    """Turn memory that does not suffice into bad input that says what needs less."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(
            error
        ):
            raise
        said = " ".join(str(error).split()) or "none left"
        raise BadInput(
            f"expected memory enough for the run, got {said[:200]}; pass {smaller}"
        ) from error
