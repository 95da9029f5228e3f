"""Operation parallelism: every rank has some columns of all vectors.

          columns   r0   r1   r2        Each rank multiplies its columns, one all-reduce
      x  │░░░░│░░░░│░░░░│               adds up a minibatch's products, and each updates
      y  │░░░░│░░░░│░░░░│               its columns by the same misses.
          ⟨x,y⟩ = · + · + ·

No parameter travels. Words a minibatch: those of the all-reduce over B numbers.
"""

from collections.abc import Iterator

import numpy as np

from dml.data.tiles import Tiles
from dml.metrics.timer import Timer
from dml.strategies.glove.minibatch import Sums, batches, missed, products, summed
from dml.types import AllReduce, BadInput, CountedComm, Embeddings, Step
from dml.update.rows import adagrad, pack, unpack, width
from dml.wire.buffers import allocate
from dml.wire.messages.tags import Tag


def operation(
    state: Embeddings,
    tiles: Tiles,
    rate: float,
    timer: Timer,
    *,
    comm: CountedComm,
    allreduce: AllReduce,
    batch: int,
    epoch: int = 0,
) -> Iterator[Step]:
    """Train as minibatch does, each rank on its columns; biases are on all ranks."""
    rows, dim = state.vectors_TxD.shape
    if dim % comm.size:
        raise BadInput(
            f"expected dimensions that {comm.size} ranks can share equally, got {dim}; "
            f"pass --dim=<a multiple of {comm.size}>"
        )
    dim //= comm.size
    here = slice(comm.rank * dim, (comm.rank + 1) * dim)
    table = np.empty((rows, width(dim)), np.float32)
    pack(columns(state, here), table)
    sums, count = Sums(rows, dim, batch), len(tiles.logs)
    buffer = allocate(comm, min(batch, count))
    while True:
        epoch, loss, sent = epoch + 1, 0.0, comm.bytes_sent
        for records in batches(tiles, batch):
            found = buffer[: len(records.logs)]
            with timer("gradient"):
                found[:] = products(table, records, biases=comm.rank == 0)
                comm.platform.work(0.5)
            with timer("wire"):
                allreduce(comm, found, op=np.add)
            with timer("gradient"):
                grads, lost = missed(found, records)
                grads_of_rows = summed(table, records, grads, sums)
                comm.platform.work(0.5)
            with timer("update"):
                adagrad(table, grads_of_rows, rate)
            loss += lost
        words = (comm.bytes_sent - sent) // buffer.itemsize
        yield Step(
            epoch,
            loss / count,
            lambda: collect(comm, unpack(table, dim)),
            count,
            timer.lap(),
            words,
        )


def columns(state: Embeddings, here: slice) -> Embeddings:
    """Cut some columns out of the vectors."""
    return state._replace(
        vectors_TxD=state.vectors_TxD[:, here],
        vector_squares_TxD=state.vector_squares_TxD[:, here],
    )


def collect(comm: CountedComm, mine: Embeddings) -> Embeddings | None:
    """Put all ranks' columns side by side on rank 0."""
    both = np.stack([mine.vectors_TxD, mine.vector_squares_TxD])
    if comm.rank:
        comm.Send(both.reshape(-1), 0, Tag.COLLECT)
        return None
    each = [both]
    for source in range(1, comm.size):
        each.append(np.empty_like(both))
        comm.Recv(each[-1].reshape(-1), source, Tag.COLLECT)
    vectors, squares = np.concatenate(each, axis=2)
    return mine._replace(vectors_TxD=vectors, vector_squares_TxD=squares)
