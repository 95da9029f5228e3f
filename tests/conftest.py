"""What all tests share: nothing hangs."""

import signal

import pytest

PATIENCE = 120  # seconds; the slowest test takes a tenth of it


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
