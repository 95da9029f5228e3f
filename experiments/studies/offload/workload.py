"""The GPTs of offload.py, their recorded iterations, and virtual devices."""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.data.minibatches import take
from dml.models.model_problem import model_problem
from dml.models.networks.transformer import Shape, shapes, transformer
from dml.strategies.offload.program import Program, Shapes
from dml.strategies.offload.recording import record
from dml.types import Batch, Model, Problem
from dml.update.dense import Optimizer, make
from dml.wire.plans.offloading.offload import Iteration

LEARNING_RATE = 1e-3


class Workload(NamedTuple):
    """A GPT, its minibatches, and whether activations are recomputed.

    Attributes:
      shape: Sizes of the GPT.
      batch: Number of examples of a minibatch.
      remat: Whether the backward pass recomputes the activations inside each layer.
    """

    shape: Shape
    batch: int
    remat: bool = False

    def model(self) -> Model:
        return transformer(self.shape, causal=True, remat=self.remat)

    def problem(self, model: Model, seed: int) -> Problem:
        """Return the problem of random tokens, with params in host memory."""
        rng = np.random.default_rng(seed)
        size = 2, 4 * self.batch, self.shape.length
        data = Batch(*rng.integers(self.shape.vocabulary, size=size, dtype=np.int32))
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            params = jax.device_get(model.init(jax.random.key(seed)))
        return model_problem(
            model, params, examples=4 * self.batch, take=partial(take, data)
        )

    def program(self, model: Model, optimizer: Optimizer, ranks: int = 1) -> Program:
        """Return the recorded iteration of a rank; no array is allocated."""
        params = shapes(self.shape, causal=True)
        state = {
            name: jax.eval_shape(optimizer.init, {name: tree})
            for name, tree in params.items()
        }
        ids = jax.ShapeDtypeStruct(
            (self.batch // ranks, self.shape.length), np.dtype(np.int32)
        )
        sizes = Shapes(params, state, Batch(ids, ids))
        return record(model, optimizer, sizes, exchanged=ranks > 1)


class Device(NamedTuple):
    """Speeds of a virtual device, in operations and bytes per second.

    Attributes:
      flops: Arithmetic.
      memory: Access to device memory.
      link: Copies between device and host.
    """

    flops: float
    memory: float
    link: float

    def iteration(self, program: Program) -> Iteration:
        """Return the recorded iteration with the seconds of each operation.

        An operation is limited by arithmetic or by device memory.
        """
        accesses = [
            each.access._replace(
                seconds=max(each.flops / self.flops, each.traffic / self.memory)
            )
            for each in program.operations
        ]
        return Iteration(program.sizes, accesses)


def adam() -> Any:
    """Return the optimizer of all runs."""
    return make("adam", LEARNING_RATE)


def capacities(iteration: Iteration, fractions: list[float]) -> dict[float, int]:
    """Return capacities by fraction of the memory in which everything fits.

    Fractions below that of the largest working set are replaced by it, once.
    """
    sizes = [max(iteration.least, int(part * iteration.most)) for part in fractions]
    return {capacity / iteration.most: capacity for capacity in sizes}
