"""A function that runs in a thread while the training continues."""

import time
from collections.abc import Callable
from threading import Thread
from typing import Any


class Background:
    """Calls functions in a thread, one after another; waits at the end of `with`."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of the last call
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, call: Callable[[], object]) -> None:
        """Call a function in the thread, after the end of the call before it."""
        self.wait()
        # not a daemon: an error of the main thread does not end the call
        self._thread = Thread(target=self._run, args=(call,), name="background")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end of the call in progress; raise the error of the call."""
        if self._thread:
            self._thread.join()
        self._thread = None
        if self._error:
            error, self._error = self._error, None
            raise error

    def _run(self, call: Callable[[], object]) -> None:
        begun = time.monotonic()
        try:
            call()
        except BaseException as error:
            self._error = error
        self.seconds = time.monotonic() - begun

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self.wait()
        except Exception as failure:
            if error is None or isinstance(error, GeneratorExit):
                raise
            error.add_note(f"the last save failed, too: {failure}")
