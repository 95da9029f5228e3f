"""GPipe (Huang 2019) as a forward that JAX transposes into its backward.

    tick       0 1 2 3 4      In each tick a stage receives from the previous stage,
    stage 0    0 1 2 3 .      computes a microbatch, and sends to the next stage.
    stage 1    . 0 1 2 3

The transpose of the loop over ticks is a loop from its end, and the transpose of
ppermute sends in the opposite direction: together they are the backward pipeline.
pipeline.py executes the same schedule with a backward that is written out. Here every
device has memory for the saved activations of all stages, unless remat is true.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layered import layer_params
from dml.strategies.hybrid.instructions import shift
from dml.strategies.hybrid.layout import StageLayout
from dml.strategies.hybrid.parts import StagePart
from dml.strategies.hybrid.pieces import trace_pieces
from dml.wire.mesh.packed import Vectors, largest, packing, read, write, zeros


def transposed_program(
    layout: StageLayout, microbatches: int, remat: bool
) -> Callable[[Vectors, Any], tuple[Any, Vectors]]:
    """Return the program of a device: (params, microbatches) -> (loss, gradients).

    Args:
      layout: Layout of the params.
      microbatches: Number of microbatches of a replica.
      remat: Whether a stage saves only its inputs.
    """
    stages = layout.axes.shape["stage"]

    def loss(params: Vectors, batches: Any) -> Any:
        first = jax.tree.map(lambda leaf: leaf[0], batches)
        pieces = trace_pieces(layout.parts, first, remat=False)
        outputs = [packing(part[-1].output) for part in pieces]
        message = largest(output.lengths for output in outputs)
        stage = jax.lax.axis_index("stage")

        def idle(params: Vectors, received: Vectors, batch: Any) -> tuple[Any, Vectors]:
            return jnp.float32(0), zeros(message)

        def forward(
            part: StagePart, params: Vectors, received: Vectors, batch: Any
        ) -> tuple[Any, Vectors]:
            activations: Any = None
            if part.stage:
                activations = read(received, outputs[part.stage - 1])
            weights = read(params, part.params)
            for layer in part.layers:
                activations = layer.apply(
                    layer_params(layer, weights), activations, batch
                )
            if part.stage == stages - 1:
                return activations / microbatches, zeros(message)
            output = write(zeros(message), outputs[part.stage], activations)
            return jnp.float32(0), output

        branches: Sequence[Any] = [idle, *(partial(forward, p) for p in layout.parts)]
        if remat:
            branches = [jax.checkpoint(branch) for branch in branches]

        def tick(carry: tuple[Any, Vectors], now: Any) -> tuple[Any, None]:
            total, received = carry
            microbatch = now - stage
            busy = (microbatch >= 0) & (microbatch < microbatches)
            batch = jax.tree.map(lambda leaf: leaf[microbatch], batches)
            loss, output = jax.lax.switch(
                jnp.where(busy, 1 + stage, 0), branches, params, received, batch
            )
            return (total + loss, shift(output, 1)), None

        ticks = jnp.arange(microbatches + stages - 1)
        (total, _), _ = jax.lax.scan(tick, (jnp.float32(0), zeros(message)), ticks)
        return total

    return jax.value_and_grad(loss)
