"""Fixtures of all tests: a time limit, and caches of compiled programs."""

import gc
import hashlib
import os
import platform
import re
import shutil
import signal
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

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
# the folder of the process that starts the workers, in which they exchange programs
EXCHANGED = Path(os.environ.setdefault("DML_TESTS_COMPILED", COMPILED.name))
KEEP = {  # read by jax when it is imported
    "JAX_COMPILATION_CACHE_DIR": COMPILED.name,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",  # else keys contain the folder
}
KEPT_BYTES = 1 << 30  # above which the kept programs are removed


def kept():
    """Return the folder of compiled programs that later sessions start with.

    The keys of JAX lack the features of the processor, which programs depend on.
    """
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    features = {x for x in lines if x.startswith(("flags", "Features", "model name"))}
    key = hashlib.sha256("".join([platform.machine(), *sorted(features)]).encode())
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "dml-tests" / f"compiled-{key.hexdigest()[:12]}"


def copy_new(source, target):
    """Link or copy the programs that `target` lacks; others see whole files only."""
    for name in {*os.listdir(source)} - {*os.listdir(target)}:
        if name.endswith("-cache"):
            file, half = source / name, target / f"{name}.{os.getpid()}"
            try:
                half.hardlink_to(file)
            except OSError:  # another file system
                shutil.copyfile(file, half)
            half.replace(target / name)


os.environ.update(KEEP)
with suppress(OSError):
    copy_new(kept(), Path(COMPILED.name))


def pytest_sessionfinish(session):
    """Keep the programs of a session without failures, if the folder can be written."""
    if session.testsfailed or not session.testscollected:
        return
    with suppress(OSError):
        kept().mkdir(parents=True, exist_ok=True)
        copy_new(Path(COMPILED.name), kept())
        if sum(file.stat().st_size for file in kept().iterdir()) > KEPT_BYTES:
            shutil.rmtree(kept())


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


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Disable the garbage collector while all modules are imported."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish():
    """Let processes of tests read the programs, but write none.

    Ranks might otherwise read half-written files of other ranks. What there is now
    stays to the end: the garbage collector need not look at it.
    """
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "1e9"
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def exchange():
    """Give the programs of a file to the other workers, and take theirs."""
    yield
    own = Path(COMPILED.name)
    if own != EXCHANGED:
        with suppress(OSError):
            copy_new(own, EXCHANGED)
            copy_new(EXCHANGED, own)


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


@pytest.fixture(scope="module")
def quick():
    """Compile without most optimizations of XLA, in this process and its children."""
    import jax

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        jax.config.update("jax_disable_most_optimizations", True)
        jax.clear_caches()  # programs of earlier files have optimizations
        yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
