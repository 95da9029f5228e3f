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

# Functions of dml.wire.collectives for operations of MPI that a Comm lacks.
FUNCTIONS = {
    "Bcast": "broadcast",
    "Allgather": "all_gather",
    "Alltoall": "all_to_all",
    "Reduce_scatter": "reduce_scatter",
    "Iallreduce": "allreduce_async",
}


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
    # rare, as a collection visits all greenlets
    gc.set_threshold(max(1_000_000, 50 * size), 100, 100)
    world = World(size, network, limits)
    results: list[Any] = [None] * size

    def run_rank(comm: VirtualComm) -> None:
        try:
            results[comm.rank] = program(comm)
        except GreenletExit:
            pass
        except BaseException as error:
            if isinstance(error, AttributeError) and is_comm(error.obj):
                error.add_note(replacement(str(error.name)))
            error.add_note(f"on virtual rank {comm.rank} of {size}")
            raise

    try:
        comms = communicator(world, events).group(world.processes)
        for process in world.processes:
            process.root = greenlet(run_rank, world.hub)
        world.run(comms, seed)
    finally:
        world.end()
        gc.set_threshold(*thresholds)
    return results


def is_comm(value: object) -> bool:
    """Return whether a value is a communicator, or a wrapper of one."""
    return hasattr(type(value), "Sendrecv")


def replacement(name: str) -> str:
    """Return what to call in place of an attribute that a communicator lacks."""
    operation = name.capitalize()
    if operation in FUNCTIONS:
        text = f"call dml.wire.collectives.{FUNCTIONS[operation]}(comm, ...)"
    elif hasattr(VirtualComm, operation):
        text = f"call {operation}, whose buffers are NumPy arrays"
    else:
        text = "docs/virtual.md lists the supported calls"
    return f"a virtual communicator has no {name!r}; {text}"


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
