"""The arguments of all strategies for a deep network."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lab import adversaries, flags
import numpy as np

from dml.metrics.timer import Timer
from dml.types import (
    AllReduce,
    CountedComm,
    Model,
    Problem,
    Reducer,
    Tensor,
    no_op,
)
from dml.update.dense import Optimizer
from dml.wire.collectives import AUTO, machine_rates
from dml.wire.reducers.checked import checked

PREFETCH = 2  # minibatches prepared in the background
MakeTensor = Callable[..., Tensor]  # tensor_transformer, for one shape


def output_names(model: Model) -> Sequence[str]:
    """Return the names of the params of a model's output layer; () without layers."""
    return model.layers[-1].names if model.layers else ()


class Setup(NamedTuple):
    """The arguments of a strategy.

    values: flags.
    comm: communicator of all ranks.
    problem: network, start value and data.
    batches: indices of each minibatch.
    update: optimizer.
    timer: measures the phases.
    state, memory: optimizer state, and reducer memory by saved rank, if resumed.
    done: number of updates before the checkpoint.
    tensor: makes the tensor-parallel model; None if the network has none.
    commit: called before every update of an elastic run, which votes.
    """

    values: flags.FlagValues
    comm: CountedComm
    problem: Problem
    batches: Iterable[np.ndarray]
    update: Optimizer
    timer: Timer
    state: Any = None
    memory: Any = None
    done: int = 0
    tensor: MakeTensor | None = None
    commit: Callable[[], object] = no_op

    @property
    def prefetch(self) -> int:
        """Return the number of minibatches to prefetch."""
        # virtual ranks share one thread: nothing runs in the background
        return 0 if self.comm.platform.virtual else PREFETCH

    @property
    def allreduce(self) -> AllReduce:
        name = self.values.allreduce
        if name in AUTO:  # measure a new machine before the first step
            machine_rates(self.comm)
        return flags.allreduce(name, self.values, self.comm.size)

    @property
    def reducer(self) -> Reducer:
        attack = adversaries.byzantine(self.values)
        reducer = flags.reducer(self.values.reduce, self.allreduce, attack)
        return checked(reducer, self.values.reduce) if self.values.check else reducer
