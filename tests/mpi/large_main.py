"""Messages and buffers of more than 2^31 bytes on two real ranks: one by its name."""

import sys

import numpy as np

from dml.wire.messages import ALLREDUCE, broadcast
from dml.wire.messages.comm import world

WORDS = (1 << 29) + 5  # float32: 2^31 + 20 bytes
PERIOD = 1 << 20


def right(buffer, pattern):
    """Compare piece by piece: a mask as long as the buffer would cost memory."""
    for start in range(0, len(buffer), PERIOD):
        piece = buffer[start : start + PERIOD]
        if not np.array_equal(piece, pattern[: len(piece)]):
            return False
    return True


def main(name):
    comm = world(watchdog=60)
    pattern = (np.arange(PERIOD) % 1021).astype(np.float32)
    buffer = np.empty(WORDS, np.float32)
    for start in range(0, WORDS, PERIOD):
        piece = buffer[start : start + PERIOD]
        piece[:] = pattern[: len(piece)]
    buffer *= comm.rank + 1
    if name == "broadcast":  # one message that long
        broadcast(comm, buffer, 1)
        assert right(buffer, 2 * pattern)
    else:
        ALLREDUCE[name](comm, buffer)
        assert right(buffer, 3 * pattern)
    sys.stdout.write(f"rank {comm.rank}: {buffer.nbytes} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1])
