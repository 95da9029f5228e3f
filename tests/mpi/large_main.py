"""Messages and buffers of more than 2^31 bytes on two real ranks."""

import sys

import numpy as np

from dml.wire.collectives import ALLREDUCE, broadcast
from dml.wire.comm.mpi import world

WORDS = (1 << 29) + 5  # float32: 2^31 + 20 bytes
PERIOD = 1 << 20


def right(buffer, pattern):
    """Compare piece by piece: a mask as long as the buffer would cost memory."""
    for start in range(0, len(buffer), PERIOD):
        piece = buffer[start : start + PERIOD]
        if not np.array_equal(piece, pattern[: len(piece)]):
            return False
    return True


def fill(buffer, pattern):
    for start in range(0, WORDS, PERIOD):
        piece = buffer[start : start + PERIOD]
        piece[:] = pattern[: len(piece)]


def main():
    comm = world(watchdog=60)
    pattern = (np.arange(PERIOD) % 1021).astype(np.float32)
    buffer = np.empty(WORDS, np.float32)
    for name in ("broadcast", "ring", "shared"):
        fill(buffer, (comm.rank + 1) * pattern)
        if name == "broadcast":  # one message that long
            broadcast(comm, buffer, 1)
        else:
            ALLREDUCE[name](comm, buffer)
        assert right(buffer, (2 if name == "broadcast" else 3) * pattern), name
        sys.stdout.write(f"rank {comm.rank}: {buffer.nbytes} bytes by {name}\n")


if __name__ == "__main__":
    main()
