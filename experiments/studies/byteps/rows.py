"""Rows of byteps.py: times of BytePS by spare ranks, and the speed of a sum."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import NamedTuple

from lab.claims import grouped
import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from dml.types import BadInput, Comm
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.byteps import byteps_allreduce
from dml.wire.comm.throttled import Throttled
from dml.wire.costs.allreduce import Job, Rates, byteps_seconds
from studies.topology.byteps import run as virtual_seconds

BURST = 1 << 16  # bytes that a throttled port sends at once after idle time

COLUMNS: Columns = {
    "links": (9, "{links}"),
    "workers": (8, "{n}"),
    "spares": (7, "{k}"),
    "formula ms": (11, scaled_cell("paper_seconds", 1e3, ".4g")),
    "virtual": (9, scaled_cell("virtual_seconds", 1e3, ".4g")),
    "measured": (9, scaled_cell("seconds", 1e3, ".4g")),
    "/ formula": (10, "{ratio:.3f}"),
    "with drain": (11, scaled_cell("predicted_seconds", 1e3, ".4g")),
    "bits of a serial sum": (21, "{exact}"),
}
SUMS: Columns = {
    "sum of MB": (10, "{megabytes:g}"),
    "copy GB/s": (10, scaled_cell("copy_rate", 1e-9, ".4g")),
    "add GB/s": (10, scaled_cell("add_rate", 1e-9, ".4g")),
    "buffer share": (13, "{share:.2f}"),
    "traffic share": (14, "{traffic_share:.2f}"),
}


class Exchange(NamedTuple):
    """Size of an all-reduce, and how it is timed."""

    length: int  # float32 elements
    segment: int  # bytes
    repeats: int
    seed: int


def worlds(size: int, spares: int) -> list[tuple[int, int]]:
    """Return (workers, spare ranks): 2 workers, and those of the flags, by spares."""
    if not 0 <= spares <= size - spares or size - spares < 2:
        raise BadInput(
            f"expected --spares=0 to {size // 2} of {size} ranks, at most one per "
            f"worker and at least 2 workers, got --spares={spares}; pass a number in "
            "this range, or start more ranks"
        )
    workers = sorted({2, size - spares})
    return [(n, k) for n in workers for k in range(min(n, size - n) + 1)]


def measure_bandwidth(comm: Comm, sizes: Exchange) -> float:
    """Return bytes per second of exchanges between ranks 0 and 1; collective.

    The messages are as long as the longest ones of BytePS.
    """
    outgoing, incoming = np.ones((2, sizes.segment), np.uint8)
    messages = -(-4 * sizes.length // sizes.segment)

    def exchange() -> None:
        if comm.rank < 2:
            peer = 1 - comm.rank
            for _ in range(messages):
                comm.Sendrecv(outgoing, peer, 0, incoming, peer, 0)

    seconds = time_alternately(comm, [exchange], sizes.repeats)
    return messages * sizes.segment / float(np.median(seconds))


def spare_rows(
    comm: Comm, links: str, rates: Rates, spares: int, sizes: Exchange
) -> Iterator[Row]:
    """Time BytePS for each number of workers and spare ranks; collective.

    Args:
      comm: All ranks.
      links: Name of the links.
      rates: Rates of the links, for the predictions.
      spares: Number of spare ranks of the run.
      sizes: Sizes of the exchange.
    """
    for n, k in worlds(comm.size, spares):
        part = comm.Split(int(comm.rank >= n + k), comm.rank)
        seconds, exact = 0.0, True
        if comm.rank < n + k:
            seconds, exact = time_byteps(part, n, k, sizes)
        comm.Barrier()
        part.Free()
        if comm.rank:
            continue
        job = Job(n + k, sizes.length, segment=sizes.segment)
        nbytes = 4 * sizes.length
        paper = 2 * n * (n - 1) * nbytes * rates.beta / (n * n + k * n - 2 * k)
        yield {
            "table": "spares",
            "links": links,
            "n": n,
            "k": k,
            "bytes": nbytes,
            "bandwidth": 1 / rates.beta,
            "paper_seconds": paper,
            "predicted_seconds": byteps_seconds(job, rates, k),
            "virtual_seconds": virtual_seconds(job, k, rates),
            "seconds": seconds,
            "ratio": seconds / paper,
            "exact": exact,
        }


def time_byteps(comm: Comm, n: int, k: int, sizes: Exchange) -> tuple[float, bool]:
    """Return the median seconds, and whether all results are those of a serial sum."""

    def values(rank: int) -> np.ndarray:
        rng = np.random.default_rng([sizes.seed, rank])
        return rng.standard_normal(sizes.length, np.float32)

    options = {"spare": k, "segment": sizes.segment}
    buffer = values(comm.rank)
    byteps_allreduce(comm, buffer, **options)
    expected = reduce(np.add, map(values, range(n)))
    if comm.rank >= n:
        expected = values(comm.rank)
    equal = np.array([buffer.tobytes() == expected.tobytes()], np.int64)
    comm.Allreduce(None, equal, np.minimum)
    buffer[:] = 0
    call = partial(byteps_allreduce, comm, buffer, **options)
    seconds = time_alternately(comm, [call], sizes.repeats)
    return float(np.median(seconds)), bool(equal[0])


def sum_rows(comm: Comm, lengths: Sequence[int], repeats: int) -> Iterator[Row]:
    """Time a sum in place, which a spare rank computes, and a copy; rank 0 only.

    The rates are bytes of the added or copied buffer per second. A sum reads two
    buffers and writes one, a copy reads and writes one: traffic is 3 and 2 buffers.
    """
    for length in lengths if comm.rank == 0 else ():
        total, term = np.zeros(length, np.float32), np.ones(length, np.float32)
        add = shortest(comm, lambda a=total, b=term: np.add(a, b, out=a), repeats)
        copy = shortest(comm, lambda a=total, b=term: np.copyto(a, b), repeats)
        yield {
            "table": "sums",
            "bytes": total.nbytes,
            "megabytes": total.nbytes / 2**20,
            "add_rate": total.nbytes / add,
            "copy_rate": total.nbytes / copy,
            "share": copy / add,
            "traffic_share": 1.5 * copy / add,
        }
    comm.Barrier()


def shortest(comm: Comm, call: Callable[[], object], repeats: int) -> float:
    """Return the least seconds of a call, after one call that is not timed."""
    call()
    times = []
    for _ in range(repeats):
        start = comm.Wtime()
        call()
        times.append(comm.Wtime() - start)
    return min(times)


def links(
    comm: Comm, bandwidth: float, latency: float, sizes: Exchange
) -> Iterator[tuple[str, Comm, Rates]]:
    """Yield name, communicator and rates: throttled ports, then the machine's links.

    Args:
      comm: All ranks; virtual ranks have only the links of their network.
      bandwidth: Bytes per second of a throttled port; 0: none is throttled.
      latency: Seconds per message of a throttled port.
      sizes: Sizes of the exchange that measures the machine's bandwidth.
    """
    if comm.platform.virtual:
        yield "virtual", comm, Rates(*comm.platform.network.rates[:3])
        return
    if bandwidth:
        rates = Rates(latency, 1 / bandwidth, 0.0)
        yield "throttled", Throttled(comm, rates.beta, rates.alpha, BURST), rates
    measured = measure_bandwidth(comm, sizes)
    yield "machine", comm, Rates(0.0, 1 / measured, 0.0)


def conclude(run: Run) -> str:
    """Return the fastest number of spare ranks, and the speed-up of fused updates."""
    tables = grouped(run.rows, "table")
    texts = []
    groups = grouped(tables.get("spares", []), "links", "n")
    for (links, n), rows in groups.items():
        best = min(rows, key=seconds)
        unit = "ms" if best["seconds"] else "virtual ms"
        times = [f"{row['k']} spares {1e3 * seconds(row):.3g}" for row in rows]
        texts.append(
            f"{n} workers on {links} links are fastest with {best['k']} spare ranks "
            f"({', '.join(times)} {unit})"
        )
    for row in tables.get("hub", [])[-1:]:
        texts.append(
            f"a fused update of {row['megabytes']:g} MB takes "
            f"{1e3 * row['fused_seconds']:.3g} ms, {row['fusion']:.2f} times as fast "
            "as separate passes"
        )
    return "; ".join(texts) + "." if texts else "Nothing was timed."


def seconds(row: Row) -> float:
    """Return the measured seconds of an exchange, or else the virtual ones."""
    found: float = row["seconds"] or row["virtual_seconds"]
    return found
