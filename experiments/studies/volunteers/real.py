"""Rounds of volunteers on the ranks of a communicator: matchmaking and an average."""

import numpy as np

from dml.types import Comm
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.comm.sleeping import sleep_if_oversubscribed
from dml.wire.volunteers import Peer, average, find_group, settle

WARM_UP = 5  # rounds that are not measured
COMPARED = ("ring", "halving_doubling")  # all-reduces without matchmaking
QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def measure(comm: Comm, megabytes: float, rounds: int, seed: int) -> dict[str, float]:
    """Return the milliseconds of rounds, over all ranks and rounds; collective.

    `search` is the time of the matchmaking among all ranks, `round` the time of
    matchmaking and average, and `settled` the time of both and `settle`. Rounds
    alternate with all-reduces of the same buffer by all ranks.

    Args:
      comm: The ranks; those of one host may be more than its cores.
      megabytes: Size of the buffer in units of 10^6 bytes.
      rounds: Number of measured rounds.
      seed: Random seed of the values.
    """
    length = round(megabytes * 1e6) // 4
    values = np.random.default_rng([seed, comm.rank]).standard_normal(
        length, np.float32
    )
    exact = values.astype(np.float64)
    comm.Allreduce(None, exact, np.add)
    exact /= comm.size
    plain = comm if comm.platform.virtual else sleep_if_oversubscribed(comm)
    peer = Peer(comm.Dup(), values.nbytes, [(comm.rank + 1) % comm.size])
    buffer = np.empty_like(values)
    times: dict[str, list[float]] = {}
    share = error = 0.0  # of complete averages; largest difference to exact means
    for number in range(WARM_UP + rounds):
        buffer[:] = values
        row, complete = volunteer_round(plain, peer, buffer)
        if complete:
            error = max(error, float(np.abs(buffer - exact).max()))
        for name in COMPARED:
            buffer[:] = values
            plain.Barrier()
            begun = comm.Wtime()
            ALLREDUCE[name](plain, buffer)
            row[name] = comm.Wtime() - begun
        if number >= WARM_UP:
            share += complete / rounds
            for name, seconds in row.items():
                times.setdefault(name, []).append(seconds)
    plain.Barrier()  # all messages are sent
    while peer.mailbox.receive(comm.Wtime()):
        pass
    peer.close()
    figures = {
        f"{name}_{quantile}_ms": 1e3 * float(np.quantile(gathered, level))
        for name, seconds in times.items()
        for gathered in [gather(comm, seconds)]
        for quantile, level in QUANTILES.items()
    }
    return figures | {
        "complete": float(gather(comm, [share]).mean()),
        "error": float(gather(comm, [error]).max()),
    }


def volunteer_round(
    plain: Comm, peer: Peer, buffer: np.ndarray
) -> tuple[dict[str, float], bool]:
    """Run a round; return its seconds, and whether all parts are complete."""
    comm = peer.comm
    plain.Barrier()
    begun = comm.Wtime()
    group = find_group(peer, peer.next_round())
    search = comm.Wtime() - begun
    counts = average(peer, group, buffer).counts
    round_ = comm.Wtime() - begun
    settle(peer)
    row = {"search": search, "round": round_, "settled": comm.Wtime() - begun}
    return row, counts == (comm.size,) * comm.size


def gather(comm: Comm, own: list[float]) -> np.ndarray:
    """Return the concatenated values of all ranks, of equal number on each."""
    return all_gather_parts(comm, np.array(own), np.full(comm.size, len(own)))
