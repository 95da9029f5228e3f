"""Tables of shares by bandwidth, broadcasts and the square-cube law."""

from collections.abc import Iterator, Mapping

import numpy as np

from dml import sim
from dml.runs.writers import Row
from dml.types import Comm
from dml.types.ranges import SEEDS
from dml.wire.collectives import broadcast, swarm_broadcast
from dml.wire.costs import square_cube
from dml.wire.costs.square_cube import Speeds, Stage
from dml.wire.plans import swarm
from dml.wire.plans.averaging import load_balance

MEMBERS = 16
PEERS = (1, 2, 3, 4, 7, 8, 16, 33, 64, 100, 256)
PIECES = (1, 8, 32)
LENGTH_RUN, MOST_RUN = 3200, 33  # elements and largest number of peers of virtual runs
SWARMS = 3  # number of random swarms in the mean of a row
WIDTHS = (256, 1024, 4096, 16384)
LENGTH = 512
FLOPS = 10e12  # per second, of a volunteer
LATENCY = 0.05  # seconds
MEGABITS = (10, 100, 1000)  # per second


def groups(seed: int) -> Mapping[str, np.ndarray]:
    """Return the relative bandwidths of the members of each group."""
    uneven = np.exp(np.random.default_rng(seed).standard_normal(MEMBERS))
    clients = np.where(np.arange(MEMBERS) % 4 == 0, 0, uneven)
    slow = np.where(np.arange(MEMBERS) == 0, 0.1, 1.0)
    return {
        "equal": np.ones(MEMBERS),
        "one of 16 is ten times slower": slow,
        "lognormal, spread 1": uneven,
        "the same, a quarter are clients": clients,
    }


def balance_rows(megabytes: float, bandwidth: float, seed: int) -> Iterator[Row]:
    """Yield the seconds of an average with equal, proportional and optimal shares.

    Args:
      megabytes: Size of the buffer.
      bandwidth: Bytes per second for a relative bandwidth of 1.
      seed: Random seed.
    """
    for name, relative in groups(seed).items():
        speeds, owns = relative * bandwidth, relative > 0
        kinds = {"equal": owns / owns.sum(), "proportional": speeds / speeds.sum()}
        row: Row = {"group": name}
        for kind, shares in kinds.items():
            load = 1e6 * megabytes * (1 + (MEMBERS - 2) * shares[owns])
            row[kind] = float((load / speeds[owns]).max())
        shares, seconds = load_balance.level(speeds, MEMBERS)
        row["level"] = 1e6 * megabytes * float(seconds)
        row["owners"] = int((shares > 0).sum())
        yield row


def broadcast_rows(megabytes: float, bandwidth: float, seed: int) -> Iterator[Row]:
    """Yield the rounds of broadcasts in pieces, and the lower bound.

    For up to MOST_RUN peers, both broadcasts run on virtual ranks, with a buffer of
    LENGTH_RUN numbers whose transfers take the time of `megabytes`.

    Args:
      megabytes: Size of the buffer.
      bandwidth: Bytes per second of every peer.
      seed: Random seed.
    """
    beta = 1e6 * megabytes / (8 * LENGTH_RUN) / bandwidth
    network = sim.Uniform(LATENCY, beta, 0)
    for pieces in PIECES:
        for peers in PEERS:
            cubes = 0 in (peers & (peers - 1), peers & (peers + 1))
            runs = peers <= MOST_RUN
            swarms = [
                len(swarm.rarest_first(pieces, peers, (seed + s) % SEEDS))
                for s in range(SWARMS)
            ]
            yield {
                "pieces": pieces,
                "peers": peers,
                "bound": swarm.least_rounds(pieces, peers),
                "cube": len(swarm.schedule(pieces, peers)) if cubes else None,
                "rarest_first": float(np.mean(swarms)),
                # ⌈lg(N + 1)⌉ transfers of all pieces
                "tree": pieces * peers.bit_length(),
                "swarm_seconds": run(peers, pieces, network) if runs else None,
                "tree_seconds": run(peers, 0, network) if runs else None,
            }


def run(peers: int, pieces: int, network: sim.Uniform) -> float:
    """Return the virtual seconds of a swarm broadcast; 0 pieces: of a tree.

    Args:
      peers: Number of ranks besides the root.
      pieces: Number of pieces.
      network: The network.
    """

    def program(comm: Comm) -> float:
        buffer = np.full(LENGTH_RUN, float(comm.rank))
        if pieces:
            swarm_broadcast(comm, buffer, pieces=pieces)
        else:
            broadcast(comm, buffer)
        assert not buffer.any()  # the values of rank 0
        return comm.Wtime()

    return max(sim.run(program, peers + 1, network))


def square_cube_rows() -> Iterator[Row]:
    """Yield the share of communication by width of a stage and by bandwidth."""
    for width in WIDTHS:
        stage = Stage(width, LENGTH, itemsize=2)
        compute, _ = square_cube.seconds(stage, volunteer(MEGABITS[0]))
        row: Row = {"width": width, "milliseconds": 1e3 * compute}
        for megabits in MEGABITS:
            peer = volunteer(megabits)
            row[f"share_{megabits}"] = square_cube.communication(stage, peer)
        yield row


def half_widths() -> dict[int, int]:
    """Return the smallest width with at most half of the time in communication."""
    stage = Stage(1, LENGTH, itemsize=2)
    return {
        megabits: square_cube.least_width(stage, volunteer(megabits), 0.5)
        for megabits in MEGABITS
    }


def volunteer(megabits: float) -> Speeds:
    return Speeds(FLOPS, megabits * 1e6 / 8, LATENCY)
