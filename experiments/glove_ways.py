"""The ways of training GloVe by name, and how the flags make each of them.

A Setup in, a generator of Step, an epoch each, out.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import flags
import glove_flags
import server_flags

from dml.data.tiles import Blocks, Tiles
from dml.metrics.timer import Timer
from dml.strategies.glove.hogwild import hogwild
from dml.strategies.glove.minibatch import minibatch
from dml.strategies.glove.operation import operation
from dml.strategies.glove.rotation import rotation
from dml.strategies.glove.serial import serial
from dml.strategies.glove.server import server
from dml.strategies.glove.synchronous import synchronous
from dml.types import BadInput, CountedComm, Embeddings, Step
from dml.wire.messages.gather_parts import dense_is_cheaper


class Setup(NamedTuple):
    """What every way begins with."""

    flags: flags.FlagValues
    comm: CountedComm
    state: Embeddings
    tiles: Tiles
    blocks: Blocks
    timer: Timer
    epoch: int
    summary: dict[str, Any]  # what a way adds to the run's


def by_records(setup: Setup, way: Callable[..., Any], **more: Any) -> Iterator[Step]:
    return way(*common(setup), epoch=setup.epoch, **more)


def by_batches(setup: Setup, way: Callable[..., Any], **more: Any) -> Iterator[Step]:
    batch = setup.flags.batch or glove_flags.BATCH
    return way(*common(setup), epoch=setup.epoch, batch=batch, **more)


def common(setup: Setup) -> tuple[Any, ...]:
    return setup.state, setup.tiles, setup.flags.lr, setup.timer


def alone(setup: Setup) -> Iterator[Step]:
    if setup.comm.size > 1:
        raise BadInput(
            f"expected one rank with --strategy=serial, got {setup.comm.size}; "
            "pass --strategy=rotation"
        )
    work = setup.comm.platform.work
    if setup.flags.batch:
        return by_batches(setup, minibatch, work=work)
    return by_records(setup, serial, work=work)


def free_for_all(setup: Setup) -> Iterator[Step]:
    if setup.flags.simulate:
        raise BadInput(
            "expected real ranks with --strategy=hogwild, got --simulate, whose ranks "
            "never run at once; start it with mpirun"
        )
    return by_records(setup, hogwild, comm=setup.comm)


def in_turns(setup: Setup) -> Iterator[Step]:
    one_host = not max(setup.comm.platform.hosts())
    medium = setup.flags.medium
    if medium == "memory" and not one_host:
        raise BadInput(
            "expected all ranks on one host with --medium=memory, got ranks on "
            f"{max(setup.comm.platform.hosts()) + 1}; pass --medium=messages"
        )
    travel = medium == "messages" or not one_host
    return by_records(
        setup, rotation, comm=setup.comm, blocks=setup.blocks, travel=travel
    )


def by_operations(setup: Setup) -> Iterator[Step]:
    allreduce = flags.allreduce(setup.flags.allreduce, setup.flags, setup.comm.size)
    return by_batches(setup, operation, comm=setup.comm, allreduce=allreduce)


def by_gradients(setup: Setup) -> Iterator[Step]:
    name = setup.flags.allreduce
    dense = {
        "auto": partial(dense_is_cheaper, setup.comm, name),
        "sparse": lambda buffer, nbytes: False,
        "dense": lambda buffer, nbytes: True,
    }[setup.flags.rows]
    allreduce = flags.allreduce(name, setup.flags, setup.comm.size)
    return by_batches(
        setup, synchronous, comm=setup.comm, allreduce=allreduce, dense=dense
    )


def on_a_mesh(setup: Setup) -> Iterator[Step]:
    from dml.strategies.glove.mesh import mesh as train
    from dml.wire.mesh.devices import mesh, start

    start(setup.comm)
    axes = mesh(batch=0, dim=setup.flags.columns)
    return by_batches(setup, train, comm=setup.comm, axes=axes)


def through_servers(setup: Setup) -> Iterator[Step]:
    values, size = setup.flags, setup.comm.size
    roles = server_flags.roles(values, size)
    rule = server_flags.rule(values, roles.workers)
    usual = glove_flags.STALE if rule.gathers else glove_flags.SERVED
    return by_records(
        setup,
        server,
        comm=setup.comm,
        batch=values.batch or usual,
        roles=roles,
        rule=rule,
        habits=server_flags.habits(values),
        known=values.key_lists,
        summary=setup.summary,
    )


STRATEGIES: dict[str, Callable[[Setup], Iterator[Step]]] = {
    "serial": alone,
    "hogwild": free_for_all,
    "rotation": in_turns,
    "operation": by_operations,
    "synchronous": by_gradients,
    "mesh": on_a_mesh,
    "server": through_servers,
}
FEWEST = {"server": 2}  # ranks that a way needs, where it is not one


def sizes(way: str, ranks: Iterable[int]) -> list[int]:
    """Return on how many of these ranks a way can train."""
    if way == "serial":
        return [1]
    return [size for size in ranks if size >= FEWEST.get(way, 1)]
