"""The ways of updating one table by name, and how a Setup makes each of them."""

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.sparse.average import average
from dml.strategies.sparse.batched import batched
from dml.strategies.sparse.free import free
from dml.strategies.sparse.workers import Settings, Sparse, Workers
from dml.types import BadInput, Step
from dml.wire.memory import atomic, hogwild, locked, round_robin, whole
from dml.wire.memory.conflicts import hubs


class Setup(NamedTuple):
    """What every way begins with."""

    problem: Sparse
    settings: Settings
    timer: Timer
    crew: Workers
    hubs: float  # rows in more than this share of the edges wait


def freely(guard: ModuleType, setup: Setup) -> Iterator[Step]:
    return free(*setup[:3], crew=setup.crew, guard=guard)


def alone(setup: Setup) -> Iterator[Step]:
    if setup.crew.count > 1:
        raise BadInput(
            f"expected one worker with --updates=serial, got {setup.crew.count}; pass "
            "--updates=cyclades, which has the same bits where no row waits"
        )
    return freely(hogwild, setup)


def without_conflicts(setup: Setup) -> Iterator[Step]:
    problem = setup.problem
    apart = hubs(problem.data.edges, len(problem.start), setup.hubs)
    return batched(*setup[:3], crew=setup.crew, apart=apart)


def in_step(setup: Setup) -> Iterator[Step]:
    everything = np.ones(len(setup.problem.start), np.bool_)
    return batched(*setup[:3], crew=setup.crew, apart=everything)


def apart(setup: Setup) -> Iterator[Step]:
    return average(*setup[:3], crew=setup.crew)


UPDATES: dict[str, Callable[[Setup], Iterator[Step]]] = {
    "serial": alone,
    "hogwild": partial(freely, hogwild),
    "atomic": partial(freely, atomic),
    "locked": partial(freely, locked),
    "global": partial(freely, whole),
    "roundrobin": partial(freely, round_robin),
    "cyclades": without_conflicts,
    "average": apart,
    "minibatch": in_step,
}
