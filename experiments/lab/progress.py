"""Progress of a command: its first line, and a status line while it prints nothing.

hogwild.py: HOGWILD! (Niu 2011) against locked and serial SGD; 54 s in the last run
hogwild.py: 10 s, about 44 s left: svm, 2 workers

The first line appears with the first output or one second after the start, and later
than errors of bad input, which remain a single line; the status line after 5 silent
seconds on a terminal, and after 10 in a file and under mpirun, whose output may be a
terminal.
"""

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from lab import IMPORTED

from dml.data.archives import cache_folder
from dml.files import replacing
from dml.processes import rank
from dml.types import BadInput

FIRST_SECONDS = 1.0  # from the start of the command until the first line
CHECKED_SECONDS = 0.25  # in which a command finds bad input
Item = TypeVar("Item")

# silence before a status line
TERMINAL_SECONDS, FILE_SECONDS = 5.0, 10.0
MAX_DURATIONS = 1000  # commands of which the last duration is kept
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
ERASE = "\r\x1b[2K"


class Output:
    """Standard output that remembers when it was written last."""

    def __init__(self, stream: TextIO, first: str = ""):
        self.stream, self.written = stream, time.monotonic()
        self.first = first  # line to print before all others
        self.has_status = False  # a terminal shows the status line
        self.lock = threading.RLock()

    def write(self, text: str) -> int:
        with self.lock:
            self.erase()
            self.written = time.monotonic()
            text, self.first = self.first + text, ""
            return self.stream.write(text)

    def show(self, line: str) -> None:
        """Write a status line, which the next output replaces on a terminal."""
        with self.lock:
            self.has_status = self.stream.isatty()
            self.stream.write(f"{ERASE}{line}" if self.has_status else f"{line}\n")
            self.stream.flush()

    def erase(self) -> None:
        if self.has_status:
            self.stream.write(ERASE)
            self.stream.flush()
            self.has_status = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Progress:
    """The progress of this process's command; its methods do nothing on other ranks."""

    def __init__(self) -> None:
        self.name, self.key, self.task = "", "", ""
        self.begun, self.done, self.total, self.rows = 0.0, 0, 0, 0
        self.expected = 0.0  # seconds of the last run
        self.silence = FILE_SECONDS  # most seconds without output
        self.output: Output | None = None
        self.ended = threading.Event()

    def begin(self, purpose: str, chosen: Mapping[str, Any]) -> None:
        """Start the thread that prints the first line and the status line."""
        if not is_rank_0() or self.output:
            return
        self.name, self.begun = Path(sys.argv[0]).name, time.monotonic()
        text = json.dumps([chosen, first_set(SIZES, "1")], sort_keys=True, default=str)
        self.key = f"{self.name} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self.expected = durations().get(self.key, 0.0)
        time_text = "no earlier run with these flags"
        if self.expected:
            time_text = f"{seconds(self.expected)} in the last run with these flags"
        first = f"{self.name}: {purpose}; {time_text}\n"
        self.output = Output(sys.stdout, first)
        sys.stdout = self.output  # type: ignore[assignment]
        threading.Thread(target=self.write_progress, daemon=True).start()

    def expect(self, duration: float, silence: float) -> None:
        """Set the duration of a run without an earlier one, and the longest silence.

        Args:
          duration: Seconds; 0: unknown.
          silence: Seconds without output after which the status line is printed.
        """
        self.expected, self.silence = self.expected or duration, silence

    def step(self, task: str, total: int = 0) -> None:
        """Name the next part of the command, one of `total` if their number is known.

        Args:
          task: Text of the status line.
          total: Number of parts.
        """
        self.done += bool(self.task)
        self.task, self.total = task, total or self.total

    def each(self, items: Sequence[Item]) -> Iterator[Item]:
        """Yield the items; each is a part of the command, with its text as the name."""
        for item in items:
            self.step(str(item), len(items))
            yield item

    def write_progress(self) -> None:
        """Write the first line, and the status line until the command ends."""
        output = self.output
        if output is None or self.ended.wait(first_delay()):
            return
        output.write("")  # the first line
        output.flush()
        usual = TERMINAL_SECONDS if output.isatty() else FILE_SECONDS
        shown, interval = 0.0, min(usual, self.silence)
        while not self.ended.wait(min(0.5, interval / 10)):
            now, interval = time.monotonic(), min(usual, self.silence)
            if now - max(output.written, shown) >= interval:
                output.show(self.status(now - self.begun))
                shown = now

    def status(self, elapsed: float) -> str:
        """Return the status line after `elapsed` seconds."""
        left = self.expected - elapsed
        if not self.expected and self.done and self.total:
            left = elapsed * (self.total - self.done) / self.done
        known = self.expected or self.done and self.total
        parts = [f"{self.name}: {seconds(elapsed)}"]
        if known:
            parts.append(f", about {seconds(left)} left" if left > 0 else ", soon done")
        if self.task:
            parts.append(f": {self.task}")
        elif self.rows:
            parts.append(f": {self.rows} rows written")
        if self.total:
            parts.append(f" ({min(self.done + 1, self.total)} of {self.total})")
        return "".join(parts)

    def end(self, complete: bool) -> None:
        """End the thread; remember the duration of a complete run."""
        self.ended.set()
        if not self.output:
            return
        self.output.erase()
        sys.stdout = self.output.stream
        if complete:
            known = durations()
            known.pop(self.key, None)
            known[self.key] = round(time.monotonic() - self.begun, 3)
            remember(dict([*known.items()][-MAX_DURATIONS:]))
        self.output = None


PROGRESS = Progress()


def first_delay() -> float:
    """Return the seconds from now until the first line."""
    since_start = time.monotonic() - IMPORTED
    return max(FIRST_SECONDS - since_start, CHECKED_SECONDS)


def is_rank_0() -> bool:
    """Return whether this process is rank 0, by the variables of mpirun."""
    return rank() == 0


def first_set(names: tuple[str, ...], default: str) -> str:
    """Return the first of the environment variables that is set."""
    return next((os.environ[name] for name in names if name in os.environ), default)


def seconds(value: float) -> str:
    """Return a duration as text, such as "44 s" or "3 min 20 s"."""
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest or 1} s"


def durations() -> dict[str, float]:
    """Return the seconds of the last runs of commands, the oldest first."""
    with suppress(OSError, ValueError):
        known = json.loads((cache_folder() / "durations.json").read_text())
        if isinstance(known, dict):
            return {k: v for k, v in known.items() if isinstance(v, int | float)}
    return {}


def remember(known: Mapping[str, float]) -> None:
    """Save the durations; without a writable cache they are not kept."""
    path = cache_folder() / "durations.json"
    with suppress(BadInput), replacing(path) as file:
        file.write(json.dumps(known).encode())
