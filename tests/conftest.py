"""What all tests share: nothing hangs, nothing is compiled twice."""

import os
import signal
import tempfile

import pytest

PATIENCE = 120  # seconds; the slowest test takes a tenth of it

# Set before jax is imported, for all processes that tests start, too. A folder of this
# run: what another jax or machine has compiled is not met.
COMPILED = tempfile.TemporaryDirectory(prefix="dml-compiled-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each rank would compile every module


@pytest.fixture(autouse=True)
def patience():
    """End a test that hangs, with the trace of where it does."""

    def end(*_):
        raise TimeoutError(f"a test ran for more than {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
