"""Start a program on virtual ranks with mpi4py's communicators."""

from collections.abc import Callable
from typing import Any

from dml.sim.mpi.algorithms import COLLECTIVES
from dml.sim.mpi.communicators import own_comm
from dml.sim.mpi.ranks import CURRENT, Options, Rank
from dml.sim.run import run as run_plain
from dml.types import BadInput


def run(
    program: Callable[[Any], Any],
    size: int,
    network: Any = None,
    *,
    collectives: str = "mpich",
    eager: int | None = None,
    trace: Any = None,
    **options: Any,
) -> list[Any]:
    """Call program(COMM_WORLD) on `size` virtual ranks; return their results by rank.

    Args:
      program: Called with the communicator of each rank.
      size: Number of ranks.
      network: See `sim.run`.
      collectives: Algorithms of collective calls: mpich, tree, ring or linear.
      eager: Bytes up to which a send does not wait for its receive; None: those of the
        network.
      trace: A `Trace` that keeps intervals and messages, or None.
      **options: Those of `sim.run`.
    """
    if eager is not None and eager < 0:
        raise BadInput(
            f"expected eager of at least 0 bytes, got {eager}; pass 0 or more"
        )
    if collectives not in COLLECTIVES:
        raise BadInput(
            f"expected collectives of {', '.join(COLLECTIVES)}, got {collectives!r}"
        )
    shared = Options(collectives, trace)

    def run_rank(comm: Any) -> Any:
        if eager is not None:
            world = comm.process.world
            comm.eager, world.rates = eager, (*world.rates[:3], eager)
        rank = Rank(comm, shared)
        CURRENT.set(rank)
        try:
            return program(own_comm("COMM_WORLD"))
        finally:
            rank.release()

    return run_plain(run_rank, size, network, **options)
