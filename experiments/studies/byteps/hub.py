"""Rows of byteps.py on Parameter Hub: fused and separate updates of all parameters.

raw        exchange of as many bytes as `separate`, without arithmetic
messages   chunks by messages, each updated when it has arrived
separate   gradients are exchanged, added, applied by Adam; parameters are exchanged
numpy      the same; each operation of Adam is a pass of numpy
fused      chunks in shared memory
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dml.runs.writers import Columns, Row, scaled_cell
from dml.types import Comm
from dml.update.fused_adam import FusedAdam
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.parameter_hub import hub_update
from dml.wire.comm.buffers import allocate, release
from dml.wire.plans.topology import chunks

COLUMNS: Columns = {
    "ranks": (6, "{p}"),
    "MB": (6, "{megabytes:g}"),
    "chunk KB": (9, "{chunk_kb:g}"),
    "raw us": (9, scaled_cell("raw_seconds", 1e6, ".4g")),
    "fused": (9, scaled_cell("fused_seconds", 1e6, ".4g")),
    "messages": (9, scaled_cell("messages_seconds", 1e6, ".4g")),
    "separate": (9, scaled_cell("separate_seconds", 1e6, ".4g")),
    "numpy": (9, scaled_cell("numpy_seconds", 1e6, ".4g")),
    "raw/fused": (10, "{raw_share:.2f}"),
    "separate/fused": (15, "{speedup:.2f}"),
    "equal bits": (11, "{exact}"),
}
RATE = 1e-3  # learning rate


class NumpyAdam(FusedAdam):
    """The same rule; each operation is a pass of numpy over all parameters."""

    def update(
        self,
        start: int,
        terms: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
    ) -> None:
        share, rate, epsilon, decay, decay_2, *corrections = self.coefficients
        values, one = outputs[0], np.float32(1)
        part = slice(start, start + len(values))
        first, second = self.first[part], self.second[part]
        total = terms[0].copy()
        for term in terms[1:]:
            total += term
        gradient = share * total
        first[:] = (one - decay) * gradient + decay * first
        second[:] = (one - decay_2) * (gradient * gradient) + decay_2 * second
        root = np.sqrt(second / corrections[1]) + epsilon
        values -= rate * ((first / corrections[0]) / root)
        for output in outputs[1:]:
            output[:] = values


def hub_rows(
    comm: Comm, sizes: Sequence[int], chunk_sizes: Sequence[int], repeats: int
) -> Iterator[Row]:
    """Time updates of each size with each size of a chunk in bytes; collective."""
    for length in sizes:
        own = chunks(length, comm.size)[comm.rank]
        rng = np.random.default_rng([length, comm.rank])
        registered = allocate(comm, length), allocate(comm, length)
        plain = np.zeros(length, np.float32), np.zeros(length, np.float32)
        registered[0][:] = plain[0][:] = rng.standard_normal(length, np.float32)
        count = own.stop - own.start
        for chunk in chunk_sizes:
            one_chunk = max(4 * length, chunk)  # one message, one pass
            calls = {
                "raw": raw_exchange(comm, *plain),
                "fused": updater(comm, FusedAdam(count, RATE, chunk), registered),
                "messages": updater(comm, FusedAdam(count, RATE, chunk), plain, chunk),
                "separate": updater(comm, FusedAdam(count, RATE, 0), plain, one_chunk),
                "numpy": updater(comm, NumpyAdam(count, RATE, 0), plain, one_chunk),
            }
            exact = same_bits(comm, calls, registered, plain)
            times = time_alternately(comm, list(calls.values()), repeats)
            medians = np.median(times, axis=1).tolist()
            row = dict(zip(calls, medians, strict=True))
            yield {f"{name}_seconds": value for name, value in row.items()} | {
                "table": "hub",
                "p": comm.size,
                "bytes": 4 * length,
                "megabytes": length / 2**18,
                "chunk_kb": chunk / 1024,
                "raw_share": row["raw"] / row["fused"],
                "speedup": row["separate"] / row["fused"],
                "exact": exact,
            }
        for buffer in registered:
            release(comm, buffer)


def updater(
    comm: Comm,
    adam: FusedAdam,
    buffers: tuple[np.ndarray, np.ndarray],
    segment: int = 1,
) -> Callable[[], None]:
    """Return a call of an update of all parameters."""
    grads, params = buffers

    def update() -> None:
        adam.begin(comm.size)
        hub_update(comm, grads, params, adam.update, segment)

    return update


def raw_exchange(
    comm: Comm, grads: np.ndarray, params: np.ndarray
) -> Callable[[], None]:
    """Return a call that moves the bytes of `separate`, with no arithmetic.

    For 2 ranks it is one Sendrecv of n elements.
    """
    rank, size = comm.rank, comm.size
    length = len(grads) * 2 // size  # both directions of a pair of ranks
    outgoing, incoming = grads[:length], np.empty(length, np.float32)
    pairs = [((rank + k) % size, (rank - k) % size) for k in range(1, size)]

    def exchange() -> None:
        for dest, source in pairs:
            comm.Sendrecv(outgoing, dest, 0, incoming, source, 0)

    return exchange


def same_bits(
    comm: Comm,
    calls: dict[str, Callable[[], None]],
    registered: tuple[np.ndarray, np.ndarray],
    plain: tuple[np.ndarray, np.ndarray],
) -> bool:
    """Return whether the compiled updates give equal bits on all ranks."""
    results = []
    for name, (_, params) in {
        "separate": plain,
        "messages": plain,
        "fused": registered,
    }.items():
        comm.Barrier()
        params[:] = 1
        comm.Barrier()  # the other ranks write to registered parameters
        calls[name]()
        results.append(params.tobytes())
    equal = np.array([len(set(results)) == 1], np.int64)
    comm.Allreduce(None, equal, np.minimum)
    return bool(equal[0])
