"""The execution of recorded iterations, with the moves of their plan."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from dml.metrics.timer import Timer
from dml.strategies.offload.memory import DeviceMemory
from dml.strategies.offload.program import Operation, Program, Shapes, Turn
from dml.types import identity
from dml.wire.plans.offloading.offload import (
    FETCH,
    WRITE_BACK,
    Iteration,
    Move,
    moved,
    next_uses,
)
from dml.wire.plans.offloading.prefetching import plans


class Runner:
    """Runs iterations in device memory of a fixed capacity.

    Args:
      device: The memory; it contains params and state.
      record: shapes -> the program of an iteration.
      shapes: Shapes of params and state.
      rule: Rule of evictions.
      ahead: Whether buffers are fetched before they are needed.
    """

    def __init__(
        self,
        device: DeviceMemory,
        record: Callable[[Shapes], Program],
        shapes: Shapes,
        rule: str,
        ahead: bool,
    ) -> None:
        self.device, self.record, self.shapes = device, record, shapes
        self.rule, self.ahead = rule, ahead
        self.signature: Any = self  # of the minibatch; differs from that of any batch
        self.program, self.dead = Program([], {}), [[""]]
        self.plans: Iterator[Sequence[Move]] = iter(())
        self.number = 0  # of the next operation, in all iterations of the plan
        self.planned: deque[Move] = deque()  # moves that are not complete
        self.early = 0  # bytes that a previous plan moved for the next iteration

    def start(self, batch: Any) -> None:
        """Record an iteration for minibatches of this shape, and plan its moves."""
        self.device.drain()
        # moves for the next iteration of the previous plan
        self.early = moved(self.planned)
        self.planned.clear()
        self.program = self.record(self.shapes._replace(batch=batch))
        iteration, self.number = self.program.iteration, 0
        self.dead = dead_buffers(iteration)
        self.plans = plans(
            iteration,
            self.device.capacity,
            self.rule,
            self.device.resident(),
            self.ahead,
        )

    def run(self, turn: Turn, timer: Timer) -> Mapping[str, float]:
        """Run an iteration; return the bytes that were moved for it.

        Args:
          turn: Its minibatch and its exchange with other ranks.
          timer: Measures the phases.
        """
        batch = jax.eval_shape(identity, turn.batch)
        signature = jax.tree.flatten(batch)
        if signature != self.signature:
            self.start(batch)
            self.signature = signature
        moves = deque(next(self.plans))
        self.planned.extend(moves)
        for operation, dead in zip(self.program.operations, self.dead, strict=True):
            while moves and moves[0].slot <= self.number:
                self.device.submit(moves.popleft())
            with timer("wait"):
                self.device.wait(self.number)
            with timer(operation.phase):
                self.execute(operation, turn, dead)
            self.number += 1
        counted, order = self.device.lap()
        predicted, self.early = self.early, 0
        while self.planned and self.planned[0].deadline < self.number:
            predicted += self.planned.popleft().nbytes
        return {
            "fetched_bytes": counted[FETCH],
            "written_back_bytes": counted[WRITE_BACK],
            "predicted_bytes": predicted,
            "device_peak_bytes": self.device.peak,
            "access_order": order,
        }

    def execute(self, operation: Operation, turn: Turn, dead: Sequence[str]) -> None:
        """Run an operation within the capacity.

        Args:
          operation: The operation, whose buffers are in device memory.
          turn: Its minibatch and its exchange with other ranks.
          dead: Buffers whose content is not needed afterwards.
        """
        device, access = self.device, operation.access
        new = [name for name in access.writes if name not in device.values]
        device.reserve(access.workspace + sum(self.program.sizes[name] for name in new))
        written = jax.block_until_ready(operation.run(device, turn))
        for name, value in written.items():
            device.store(name, value)
        device.release(access.workspace)
        for name in dead:
            device.drop(name)


def dead_buffers(iteration: Iteration) -> list[list[str]]:
    """Return, by access, the buffers whose content is not needed after it."""
    following = next_uses(iteration)
    return [
        [name for name in access.buffers if following[name][index][1]]
        for index, access in enumerate(iteration.accesses)
    ]
