"""Start a program on virtual ranks and collect their results."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

from greenlet import GreenletExit, greenlet

from dml.sim.comm import VirtualComm
from dml.sim.networks.fabric import fits
from dml.sim.networks.uniform import Uniform
from dml.sim.world import Limits, World
from dml.types import BadInput


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
    network, limits = network or Uniform(), limits or Limits()
    fits(network, size)
    if not (limits.seconds >= 0 and limits.messages > 0):
        raise BadInput(f"expected limits of 0 s and 1 message or more, got {limits}")
    thresholds = gc.get_threshold()
    gc.set_threshold(1_000_000, 100, 100)  # each walk visits all fibers: seldom, then
    world = World(size, network, limits)
    results: list[Any] = [None] * size

    def live(comm: VirtualComm) -> None:
        try:
            results[comm.rank] = program(comm)
        except GreenletExit:
            pass
        except BaseException as error:
            error.add_note(f"on virtual rank {comm.rank} of {size}")
            raise

    try:
        comms = kind(world, events).group(world.processes)
        for process in world.processes:
            process.root = greenlet(live, world.hub)
        world.play(comms, seed)
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
