"""The operations of an iteration, with their buffers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dml.strategies.offload.exchange import Exchange
from dml.strategies.offload.memory import nbytes
from dml.strategies.offload.programs import Compiled
from dml.types import identity
from dml.wire.plans.offloading.offload import Access, Iteration

NOT_COMPILED = Compiled(identity, 0, 0, 0.0, 0.0)


class Turn(NamedTuple):
    """Inputs of an iteration from outside of device memory.

    Attributes:
      batch: The minibatch on the host; None for a rank without examples.
      put: Copies a tree to the device.
      exchange: Reduces gradients over ranks; None on one rank.
      share: This rank's share of the examples.
      losses: Receives the mean loss of the rank's examples.
    """

    batch: Any
    put: Callable[[Any], Any]
    exchange: Exchange | None
    share: float
    losses: list[float]


class Operation(NamedTuple):
    """An operation of the iteration.

    Attributes:
      access: Its buffers and its workspace.
      phase: Phase of the timer.
      run: (buffers by name, turn) -> written buffers by name.
      flops: Number of floating-point operations.
      traffic: Bytes that it reads and writes in device memory.
    """

    access: Access
    phase: str
    run: Callable[[Any, Turn], Mapping[str, Any]]
    flops: float = 0.0
    traffic: float = 0.0


class Program(NamedTuple):
    """The operations of an iteration, and the bytes of all buffers."""

    operations: list[Operation]
    sizes: dict[str, int]

    @property
    def iteration(self) -> Iteration:
        """The argument of `dml.wire.plans.offloading.prefetching.plans`."""
        return Iteration(self.sizes, [each.access for each in self.operations])

    def add(
        self,
        name: str,
        run: Callable[[Any, Turn], Mapping[str, Any]],
        reads: tuple[str, ...],
        writes: Mapping[str, Any],
        compiled: Compiled | None = None,
        phase: str = "gradient",
    ) -> None:
        """Append an operation.

        Args:
          name: Name of the operation.
          run: See Operation.
          reads: Buffers that it reads.
          writes: Shapes of the buffers that it writes.
          compiled: Its compiled function, if it has one.
          phase: Phase of the timer.
        """
        self.sizes.update({name: nbytes(shapes) for name, shapes in writes.items()})
        _, workspace, results, flops, traffic = compiled or NOT_COMPILED
        reads = tuple(dict.fromkeys(reads))
        new = sum(self.sizes[name] for name in writes if name not in reads)
        workspace += max(0, results - new)
        access = Access(name, reads, tuple(writes), workspace)
        self.operations.append(Operation(access, phase, run, flops, traffic))


class Shapes(NamedTuple):
    """Shapes of params and optimizer state by name, and of the batch; None: empty."""

    params: Mapping[str, Any]
    state: Mapping[str, Any]
    batch: Any
