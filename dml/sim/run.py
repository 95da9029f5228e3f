"""Start a program on virtual ranks and collect their results."""

import gc
from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, greenlet

from dml.sim.comm import VirtualComm
from dml.sim.networks.uniform import Uniform
from dml.sim.world import World


def run(
    program: Callable[[Any], Any],
    size: int,
    network: Uniform | None = None,
    seed: int = 0,
) -> list[Any]:
    """Call program(comm) on `size` virtual ranks; return their results by rank.

    A seed other than 0 starts the ranks in another order.
    """
    world = World(size, network or Uniform())
    results: list[Any] = [None] * size

    def live(comm: VirtualComm) -> None:
        try:
            results[comm.rank] = program(comm)
        except GreenletExit:
            pass
        except BaseException as error:
            error.add_note(f"on virtual rank {comm.rank} of {size}")
            raise

    for comm in VirtualComm.group(world.processes):
        comm.process.root = greenlet(lambda comm=comm: live(comm), parent=world.hub)
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 100, 100)  # each walk visits all fibers: seldom, then
    try:
        world.play(seed)
    finally:
        gc.set_threshold(*thresholds)
        world.end()
    return results
