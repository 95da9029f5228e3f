"""Drop the lines that gloo prints for every new group of devices on CPUs.

gloo writes to file descriptor 1 in C++, where Python's sys.stdout cannot filter:

    fd 1 ──► pipe ──► thread: drop lines with PREFIX ──► the former fd 1
"""

import atexit
import os
import sys
import threading

PREFIX = b"[Gloo] "


def drop_gloo_lines() -> None:
    """Filter file descriptor 1 of this process until its end."""
    sys.stdout.flush()
    target = os.dup(1)
    source, sink = os.pipe()
    os.dup2(sink, 1)
    os.close(sink)
    thread = threading.Thread(target=copy_lines, args=(source, target), daemon=True)
    thread.start()

    def end() -> None:
        sys.stdout.flush()
        os.dup2(target, 1)  # closes the pipe, so that the thread ends
        thread.join(1.0)  # a child process may still have the pipe

    atexit.register(end)


def copy_lines(source: int, target: int) -> None:
    """Copy whole lines, without those that begin with PREFIX."""
    pending = b""
    while data := os.read(source, 1 << 16):
        *lines, pending = (pending + data).split(b"\n")
        kept = [line + b"\n" for line in lines if not line.startswith(PREFIX)]
        os.write(target, b"".join(kept))
    os.write(target, pending)
