"""The compilation cache, shared optimizers, and errors of runs without memory."""

import hashlib
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import jax

from dml.data.archives import cache_folder
from dml.types import BadInput
from dml.update.dense import Optimizer, make

SMALLER_FLAGS = "a smaller --batch, a larger --accumulate, --remat, or --zero=3"


@cache  # the optimizer is a static argument of the compiled update
def sgd(rate: float) -> Optimizer:
    """Return SGD without momentum, one object for each learning rate."""
    return make("sgd", rate)


def enable_cache() -> Path:
    """Enable JAX's persistent compilation cache; return its folder.

    A folder that JAX_COMPILATION_CACHE_DIR names is left as it is.
    Ranks may share the folder: a half-written program counts as missing. Of several
    processes on one mesh of CPUs only the first uses the cache, since JAX gives each
    process its own key and only the first one writes.
    """
    if chosen := jax.config.jax_compilation_cache_dir:
        return Path(chosen)
    folder = cache_folder() / "compiled" / processor_hash()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"expected a folder for compiled programs, got {error}; set DML_DATA to one"
        ) from error
    # A program that cannot be read is compiled again, without a warning.
    for verb in ("reading", "writing"):
        warnings.filterwarnings("ignore", f"Error {verb} persistent compilation cache")
    for name, value in {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(name, value)
    return folder


def processor_hash() -> str:
    """Return a hash of this processor's features; compiled programs depend on them.

    The cache key of JAX lacks these features, and different hosts may share a home
    folder.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    prefixes = ("flags", "Features", "model name")
    features = sorted({line for line in lines if line.startswith(prefixes)})
    text = "\n".join([platform.machine(), *features])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def explain_memory_errors(smaller_flags: str = SMALLER_FLAGS) -> Iterator[None]:
    """Raise BadInput, with flags that need less memory, if memory is exhausted."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        exhausted = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
        if not exhausted:
            raise
        message = " ".join(str(error).split()) or "none left"
        raise BadInput(
            f"expected enough memory for the run, got {message[:200]}; pass "
            f"{smaller_flags}"
        ) from error
