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

    Args:
      program: Called with the communicator of each rank.
      size: Number of ranks.
      network: `Uniform` or one of `sim.networks`; None is Uniform().
      seed: Random seed of the order in which ranks start; 0 is the order of ranks.
      events: Failures (`sim.events`); the result of a rank that dies is None.
      limits: Virtual seconds and messages after which the program is stopped.
    """
    network, limits = network or Uniform(), limits or Limits()
    fits(network, size)
    if not (limits.seconds >= 0 and limits.messages > 0):
        raise BadInput(
            f"expected limits of at least 0 s and 1 message, got {limits}; raise them"
        )
    thresholds = gc.get_threshold()
    gc.set_threshold(1_000_000, 100, 100)  # rare, as a collection visits all greenlets
    world = World(size, network, limits)
    results: list[Any] = [None] * size

    def run_rank(comm: VirtualComm) -> None:
        try:
            results[comm.rank] = program(comm)
        except GreenletExit:
            pass
        except BaseException as error:
            error.add_note(f"on virtual rank {comm.rank} of {size}")
            raise

    try:
        comms = communicator(world, events).group(world.processes)
        for process in world.processes:
            process.root = greenlet(run_rank, world.hub)
        world.run(comms, seed)
    finally:
        gc.set_threshold(*thresholds)
        world.end()
    return results


def communicator(world: World, events: Sequence[Any]) -> type[VirtualComm]:
    """Set up links and failures; return the class of communicator."""
    if isinstance(world.network, Uniform) and not events:
        return VirtualComm
    from dml.sim.events import Death, HostDeath, check_events, deaths
    from dml.sim.links import RunningLinks
    from dml.sim.routed import RoutedComm

    check_events(events, world.network, len(world.processes))
    for rank, time in deaths(events, world.hosts()).items():
        world.schedule_death(world.processes[rank], time)
    failures = [event for event in events if not isinstance(event, Death | HostDeath)]
    world.links = RunningLinks(world.network, failures)
    return RoutedComm
