"""watch.html: gossip on virtual ranks, and the weights of all values on each rank."""

from pathlib import Path
from typing import Any

from lab.watching import Recording
import numpy as np

from dml import sim
from dml.wire.averaging.gossip import gossip
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import Topology, matrix

ROUNDS = 40  # at most
CLOSE = 0.02  # largest difference of a weight from an equal share, in equal shares


def write(path: Path, name: str, size: int) -> int:
    """Gossip until all values have nearly equal weights; return the page's messages.

    Rank r begins with the r-th unit vector: component k of a rank's vector is then the
    weight of the value of rank k in its own.

    Args:
      path: Path of the page.
      name: Topology.
      size: Number of ranks.
    """
    recording, graph = Recording(size), topology(name, size)
    rounds = rounds_of(graph)

    def program(comm: Any) -> None:
        comm = recording.wrap(comm)
        weights, state = np.eye(size)[comm.rank], None
        recording.show(comm.rank, percent(weights))
        for t in range(rounds):
            state = gossip(comm, weights, graph, t, state)
            recording.show(comm.rank, percent(weights))

    sim.run(program, size)
    return recording.write(
        path,
        f"gossip on {name}, {size} ranks",
        f"{rounds} rounds on virtual ranks, recorded from a run of the code. A strip "
        "has a chunk for the value of each rank: the darker, the larger its weight in "
        f"the mean of this rank. An equal share is 1/{size}.",
        levels={1: "1 % of an equal share", 50: "50 %", 100: "100 % or more"},
    )


def rounds_of(graph: Topology) -> int:
    """Return the rounds until all weights are close to equal shares, at most ROUNDS."""
    weights = np.eye(graph.size)
    for t in range(ROUNDS):
        weights = matrix(graph, t) @ weights
        if np.abs(weights * graph.size - 1).max() < CLOSE:
            return t + 1
    return ROUNDS


def percent(weights: np.ndarray) -> np.ndarray:
    """Return weights in % of an equal share, rounded up."""
    return np.ceil(100 * len(weights) * weights - 1e-9)
