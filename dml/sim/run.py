"""Start a program on virtual ranks and collect their results."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

from greenlet import GreenletExit, greenlet

from dml.sim.comm import VirtualComm
from dml.sim.networks.fabric import fits
from dml.sim.networks.uniform import Uniform
from dml.sim.world import Limits, World


def run(
    program: Callable[[Any], Any],
    size: int,
    network: Any = None,
    seed: int = 0,
    *,
    events: Sequence[Any] = (),
    limits: Limits | None = None,
) -> list[Any]:
    """Call program(comm) on `size` virtual ranks; return their results by rank.

    A seed other than 0 starts the ranks in another order. Events (sim.events) are what
    goes wrong; the result of a rank that dies is None.
    """
    network = network or Uniform()
    fits(network, size)
    world = World(size, network, limits or Limits())
    results: list[Any] = [None] * size

    def live(comm: VirtualComm) -> None:
        try:
            results[comm.rank] = program(comm)
        except GreenletExit:
            pass
        except BaseException as error:
            error.add_note(f"on virtual rank {comm.rank} of {size}")
            raise

    for comm in kind(world, events).group(world.processes):
        comm.process.root = greenlet(lambda comm=comm: live(comm), parent=world.hub)
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 100, 100)  # each walk visits all fibers: seldom, then
    try:
        world.play(seed)
    finally:
        gc.set_threshold(*thresholds)
        world.end()
    return results


def kind(world: World, events: Sequence[Any]) -> type[VirtualComm]:
    """Prepare the world's links; say which communicator it takes."""
    if isinstance(world.network, Uniform) and not events:
        return VirtualComm
    from dml.sim.events import Death, HostDeath, checked, deaths
    from dml.sim.links import RunningLinks
    from dml.sim.routed import RoutedComm

    checked(events, world.network, len(world.processes))
    for rank, time in deaths(events, world.hosts()).items():
        world.doom(world.processes[rank], time)
    troubles = [each for each in events if not isinstance(each, Death | HostDeath)]
    world.links = RunningLinks(world.network, troubles)
    return RoutedComm
