"""The reduction of gradients over ranks, layer by layer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from dml.models.backward import gradient_order
from dml.strategies.loops.parameters import restore_memory
from dml.types import CountedComm, Problem, Reducer
from dml.wire.reducers.buckets import buckets, fill, gradient_views


class Exchange:
    """Buckets of one layer each; the last bucket has the loss.

    Args:
      comm: Ranks.
      problem: Problem whose model has layers.
      reducer: Computes the mean of gradients.
      memory: Leaves of the reducer's memory of each rank of an earlier run, or None.
    """

    def __init__(
        self, comm: CountedComm, problem: Problem, reducer: Reducer, memory: Any
    ) -> None:
        assert problem.model
        names = gradient_order(problem.model)
        sums = buckets(comm, problem.params, names, 0.0, scalars=1)
        self.comm, self.reducer, self.loss = comm, reducer, 0.0
        self.numbers = {bucket.names[0]: n for n, bucket in enumerate(sums)}
        self.sums = sums
        self.memories = restore_memory(
            comm, [reducer.init(bucket.layout) for bucket in sums], memory
        )

    def reduce(self, name: str, grads: Any, share: float, losses: list[float]) -> Any:
        """Return the mean gradient of a layer, valid until the next call; collective.

        Args:
          name: Name of the params.
          grads: Gradient of this rank; None without examples.
          share: This rank's share of the examples.
          losses: Mean loss of the rank's examples; empty without examples.
        """
        number = self.numbers[name]
        bucket = self.sums[number]
        fill(bucket, None if grads is None else jax.device_get({name: grads}), share)
        length = bucket.layout.length
        if number == len(self.sums) - 1:
            bucket.buffer[length:] = share * losses[0] if losses else 0.0
        memory = self.memories[number]
        self.memories[number] = self.reducer.reduce(self.comm, bucket.buffer, memory)
        if number == len(self.sums) - 1:
            self.loss = float(bucket.buffer[length])
        return gradient_views(bucket)[0][name]

    @property
    def collect(self) -> Callable[[], list[Any]]:
        """Memory of the reducer, as a call of a Step."""
        return partial(list, self.memories)
