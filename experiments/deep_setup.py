"""What every way of training a deep network starts from: flags and objects, in one."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import flags
import numpy as np

from dml.metrics.timer import Timer
from dml.types import Batch, CountedComm, Examples, Model, Params, Tensor
from dml.update.dense import Optimizer
from dml.wire.messages import rates

AHEAD = 2  # minibatches made in the background
Cutter = Callable[[int, bool], Tensor]  # devices of `tensor`, sequence -> a model cut


class Setup(NamedTuple):
    """What every way trains."""

    values: flags.FlagValues
    comm: CountedComm
    model: Model
    params: Params
    data: Batch | Examples
    batches: Iterable[np.ndarray]
    optimizer: Optimizer
    timer: Timer
    state: Any
    done: int  # steps of a run that goes on
    tensor: Cutter | None = None  # None: a network that cannot be cut

    @property
    def common(self) -> tuple[Any, ...]:
        return self[2:8]

    @property
    def ahead(self) -> int:
        return 0 if self.comm.platform.virtual else AHEAD  # virtual ranks: one thread

    @property
    def options(self) -> dict[str, Any]:
        return {
            "accumulate": self.values.accumulate,
            "state": self.state,
            "ahead": self.ahead,
        }

    @property
    def wire(self) -> dict[str, Any]:
        name = self.values.allreduce
        if name == "auto":  # what measures a new machine is no part of the first step
            rates(self.comm)
        reduce = flags.allreduce(name, self.values, self.comm.size)
        return {"comm": self.comm, "allreduce": reduce}
