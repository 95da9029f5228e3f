"""What all tests share: nothing hangs, nothing is compiled twice."""

import os
import re
import signal
import tempfile
from functools import cache

import pytest

PATIENCE = 300  # seconds; the slowest test takes 40 of a quiet core

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each rank would compile every module
COMPILED = tempfile.TemporaryDirectory(prefix="dml-compiled-")
KEEP = {  # what jax compiles in this run; it looks here when it is imported
    "JAX_COMPILATION_CACHE_DIR": COMPILED.name,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
os.environ.update(KEEP)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give a worker all files that share what is dear; one starts all real ranks."""
    from xdist.scheduler import LoadScopeScheduling

    def group(nodeid):  # not by marks: xdist 3.8 loses its groups with pytest 9
        file = nodeid.split("::")[0]
        text = (config.rootpath / file).read_text()
        shared = re.search("mpirun", text) or re.search(r"\w+_main\b", text)
        return shared[0] if shared else file

    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = cache(group)
    return scheduling


def pytest_collection_finish():
    """Keep it for this process: ranks would read what others have half written."""
    for name in KEEP:
        os.environ.pop(name, None)


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
