"""Exchange examples on real ranks; the result has to be that of virtual ranks."""

import hashlib
import sys

import numpy as np

from dml import sim
from dml.data.shards import shard
from dml.strategies.exchange import exchanged_minibatches
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world

COUNT = 23


def exchanged(comm):
    """Return messages, bytes and the hash of the examples of this rank."""
    numbers = np.arange(COUNT)
    data = numbers[:, None] + np.array([0, 0.5], np.float32), numbers.astype(np.int16)
    own = [shard(array, comm.rank, comm.size).copy() for array in data]
    counted = Metered(comm)
    for fraction in (0, 0.1, 1):
        batches = exchanged_minibatches(
            counted, own, count=COUNT, batch=4, fraction=fraction, seed=1, epochs=2
        )
        indices = list(batches)
    bits = b"".join(array.tobytes() for array in [*own, *indices])
    return counted.messages_sent, counted.bytes_sent, hashlib.sha256(bits).hexdigest()


def main():
    comm = world(watchdog=300)
    result = exchanged(comm)
    assert result == sim.run(exchanged, comm.size)[comm.rank]
    assert result[0] > 0
    sys.stdout.write(f"rank {comm.rank} agrees\n")


if __name__ == "__main__":
    main()
