"""Rows of byteps.py on Parameter Hub: fused and separate updates of all parameters.

By messages:
  raw        Sendrecv of the bytes of `separate`, without arithmetic
  messages   chunks by messages, each updated when it has arrived
  separate   gradients are exchanged, added, applied by Adam; parameters are exchanged
  numpy      the same; each operation of Adam is a pass of numpy
In shared memory, each between the same two barriers:
  barriers   nothing: the time depends on the distance of the cores
  copy       the same bytes as `raw`, read from and written to the other ranks
  passes     copy of a gradient, sum, Adam and copy of the parameters, one after another
  chunks     the passes over one chunk after another
  fused      one loop
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from dml.runs.writers import Columns, Row, scaled_cell
from dml.types import Comm
from dml.update.fused_adam import FusedAdam
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.parameter_hub import hub_update
from dml.wire.collectives.shared import own_chunk
from dml.wire.comm import first_of_each_host
from dml.wire.comm.buffers import allocate, release
from dml.wire.plans.topology import chunks

METHODS = [
    *("barriers", "copy", "fused", "chunks", "passes"),  # in shared memory
    *("raw", "messages", "separate", "numpy"),  # by messages
]
RATIOS = {  # of the seconds of a method to those of `fused`
    "copy_share": "copy",
    "fusion": "passes",
    "raw_share": "raw",
    "speedup": "separate",
}
COLUMNS: Columns = {
    "ranks": (6, "{p}"),
    "MB": (5, "{megabytes:g}"),
    "KB": (5, "{chunk_kb:g}"),
    "fused us": (9, scaled_cell("fused_seconds", 1e6, ".3g")),
    "passes/fused": (12, "{fusion:.2f}"),
    "separate/fused": (14, "{speedup:.2f}"),
    "equal bits": (10, "{exact}"),
    "copy/fused": (10, "{copy_share:.2f}"),
    "raw/fused": (9, "{raw_share:.2f}"),
    **{
        f"{name} us": (len(name) + 4, scaled_cell(f"{name}_seconds", 1e6, ".3g"))
        for name in METHODS
        if name != "fused"
    },
}
Buffers = tuple[np.ndarray, np.ndarray]  # gradients, parameters
RATE = 1e-3  # learning rate
SECONDS = 1e-2  # duration of one timing: its first call is a small part


class NumpyAdam(FusedAdam):
    """The same rule; each operation is a pass of numpy over all parameters."""

    def update(
        self,
        start: int,
        terms: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
    ) -> None:
        share, rate, epsilon, decay, decay_2 = self.coefficients
        values, one = outputs[0], np.float32(1)
        part = slice(start, start + len(values))
        first, second = self.first[part], self.second[part]
        total = terms[0].copy()
        for term in terms[1:]:
            total += term
        gradient = share * total
        first[:] = (one - decay) * gradient + decay * first
        second[:] = (one - decay_2) * (gradient * gradient) + decay_2 * second
        values -= rate * (first / (np.sqrt(second) + epsilon))
        for output in outputs[1:]:
            output[:] = values


def hub_rows(
    comm: Comm, sizes: Sequence[int], chunk_sizes: Sequence[int], repeats: int
) -> Iterator[Row]:
    """Time updates of each size with each size of a chunk in bytes; collective.

    A ratio is the median over consecutive timings of two methods.
    """
    first_of_each_host(comm, partial(compile_ahead, comm.size))
    for length in sizes:
        rng = np.random.default_rng([length, comm.rank])
        registered = allocate(comm, length), allocate(comm, length)
        plain = np.zeros(length, np.float32), np.zeros(length, np.float32)
        registered[0][:] = plain[0][:] = rng.standard_normal(length, np.float32)
        for chunk in chunk_sizes:
            calls = methods(comm, registered, plain, chunk)
            exact = same_bits(comm, calls, registered, plain)
            times = time_alternately(comm, list(calls.values()), repeats, SECONDS)
            by_name = dict(zip(calls, times, strict=True))
            row = {
                f"{name}_seconds": np.median(t).item() for name, t in by_name.items()
            }
            shares = {
                name: np.median(by_name[method] / by_name["fused"]).item()
                for name, method in RATIOS.items()
            }
            yield (
                row
                | shares
                | {
                    "table": "hub",
                    "p": comm.size,
                    "bytes": 4 * length,
                    "megabytes": length / 2**18,
                    "chunk_kb": chunk / 1024,
                    "exact": exact,
                }
            )
        for buffer in registered:
            release(comm, buffer)


def compile_ahead(size: int) -> None:
    """Compile the loops for a number of ranks; numba caches the code."""
    adam, terms = FusedAdam(1), [np.ones(1, np.float32)] * size
    adam.begin(size)
    for outputs in (terms, terms[:1]):
        adam.update(0, terms, outputs)
        adam.update_by_chunks(0, terms, outputs, 4)


def methods(
    comm: Comm, registered: Buffers, plain: Buffers, chunk: int
) -> dict[str, Callable[[], None]]:
    """Return a call of each method, with its own moments, by name.

    Args:
      comm: The ranks.
      registered: Gradients and parameters in shared memory.
      plain: Gradients and parameters for messages.
      chunk: Size of a chunk in bytes.
    """
    own = chunks(len(plain[0]), comm.size)[comm.rank]
    count = own.stop - own.start
    largest = 4 * len(plain[0])  # one chunk

    def updater(
        buffers: Buffers, passes: int = 0, segment: int = 0, kind: type = FusedAdam
    ) -> Callable[[], None]:
        """Return a call of an update; `passes` is a size of chunks, 0: one loop."""
        adam = kind(count, RATE)
        by_chunks = partial(adam.update_by_chunks, chunk=passes)
        rule = by_chunks if passes else adam.update

        def update() -> None:
            adam.begin(comm.size)
            hub_update(comm, *buffers, rule, segment or largest)

        return update

    return {
        "barriers": partial(hub_update, comm, *registered, lambda *arguments: None),
        "copy": raw_copy(comm, *registered),
        "fused": updater(registered),
        "chunks": updater(registered, passes=chunk),
        "passes": updater(registered, passes=largest),
        "raw": raw_exchange(comm, *plain),
        "messages": updater(plain, segment=chunk),
        "separate": updater(plain, passes=largest),
        "numpy": updater(plain, kind=NumpyAdam),
    }


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


def raw_copy(comm: Comm, grads: np.ndarray, params: np.ndarray) -> Callable[[], None]:
    """Return a call that moves the bytes of `fused` between ranks, with no arithmetic.

    The owner of a part copies its gradients from the other ranks and its parameters to
    them.
    """
    gradients, values = own_chunk(comm, grads), own_chunk(comm, params)
    assert gradients is not None and values is not None  # registered
    window, rank = gradients[0], comm.rank
    others = [k for k in range(comm.size) if k != rank]
    sources = [gradients[1][k] for k in others]
    own, targets = values[1][rank], [values[1][k] for k in others]
    incoming = np.empty_like(own)

    def copy() -> None:
        window.barrier(comm.platform.pause)
        for source in sources:
            np.copyto(incoming, source)
        for target in targets:
            np.copyto(target, own)
        window.barrier(comm.platform.pause)

    return copy


def same_bits(
    comm: Comm,
    calls: dict[str, Callable[[], None]],
    registered: Buffers,
    plain: Buffers,
) -> bool:
    """Return whether the compiled updates give equal bits on all ranks."""
    results = []
    for name, (_, params) in {
        "separate": plain,
        "messages": plain,
        "fused": registered,
        "chunks": registered,
        "passes": registered,
    }.items():
        comm.Barrier()
        params[:] = 1
        comm.Barrier()  # the other ranks write to registered parameters
        calls[name]()
        results.append(params.tobytes())
    equal = np.array([len(set(results)) == 1], np.int64)
    comm.Allreduce(None, equal, np.minimum)
    return bool(equal[0])
