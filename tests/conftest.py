"""Fixtures of all tests: a time limit, and a cache of compiled programs."""

import os
import re
import signal
import tempfile
from functools import cache

import pytest
from hypothesis import settings

# equal examples in every run, of any duration
settings.register_profile("dml", derandomize=True, deadline=None, database=None)
settings.load_profile("dml")

LIMIT = 1800  # seconds; the slowest test takes 40 s on an idle core, more under load

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each rank would compile every module
# ranks outnumber cores: a rank of MPICH that waits sleeps between polls
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
COMPILED = tempfile.TemporaryDirectory(prefix="dml-compiled-")
KEEP = {  # read by jax when it is imported
    "JAX_COMPILATION_CACHE_DIR": COMPILED.name,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
os.environ.update(KEEP)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Assign files with a shared fixture to one worker, and all mpirun to one."""
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
    """Remove the variables: ranks might read half-written files of other ranks."""
    for name in KEEP:
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def time_limit():
    """End a test after LIMIT seconds, with a traceback."""

    def end(*_):
        raise TimeoutError(f"a test ran for more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
