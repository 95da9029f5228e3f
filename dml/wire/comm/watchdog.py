"""The watchdog: a thread that names the call in which a rank waits for too long."""

import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any


class Watchdog:
    """Looks at the `call` of every communicator of this process.

    After `seconds` in one call it prints the call; after twice that it ends all ranks,
    so that every waiting rank prints its call first.
    """

    def __init__(self, name: str, stop: Callable[[], Any]):
        self.seconds, self.name, self.stop = 0.0, name, stop
        self.comms: list[weakref.ref] = []
        self.seen: dict[int, tuple[Any, float]] = {}  # by communicator: call, since
        self.named: set[int] = set()
        self.thread: threading.Thread | None = None

    def start(self, seconds: float) -> None:
        """Print the call after `seconds`; 0: never."""
        self.seconds = seconds
        if seconds > 0 and self.thread is None:
            self.thread = threading.Thread(target=self.look, daemon=True)
            self.thread.start()

    def add(self, comm: Any) -> None:
        self.comms.append(weakref.ref(comm))

    def look(self) -> None:
        while self.seconds > 0:
            time.sleep(min(1.0, self.seconds / 4))
            for reference in list(self.comms):
                comm = reference()
                if comm is None:
                    self.comms.remove(reference)
                else:
                    self.judge(id(comm), comm.call, time.monotonic())
        self.thread = None

    def judge(self, key: int, call: Any, now: float) -> None:
        before, since = self.seen.get(key, (None, now))
        if call is None or call is not before:
            self.seen[key] = (call, now)
            self.named.discard(key)
            return
        if now - since >= self.seconds and key not in self.named:
            self.named.add(key)
            self.say(f"has waited {now - since:.0f} s in {describe(*call)}")
        if now - since >= 2 * self.seconds:
            self.say(
                f"gives up after {now - since:.0f} s; ranks that need longer to come "
                f"want --watchdog={4 * self.seconds:.0f} or 0 (off)"
            )
            self.stop()

    def say(self, what: str) -> None:
        sys.stderr.write(f"watchdog: {self.name} {what}\n")
        sys.stderr.flush()


def describe(operation: str, role: str, peer: int, tag: int, buffer: Any) -> str:
    """Name a call: its operation, peer, tag and length."""
    length = getattr(buffer, "nbytes", len(buffer) if buffer is not None else 0)
    tag = getattr(tag, "name", tag)
    return f"{operation}({role}={peer}, tag={tag}, {length} bytes)"
