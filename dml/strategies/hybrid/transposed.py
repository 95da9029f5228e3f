"""GPipe (Huang 2019) as a forward that JAX transposes into its backward.

    tick       0 1 2 3 4      each tick: receive from the stage before, compute one
    stage 0    0 1 2 3 .      microbatch, send to the next stage (ppermute).
    stage 1    . 0 1 2 3      The transpose of a loop runs from its end, and that of
                              ppermute sends the other way: the backward pipeline.

pipeline.py executes the same schedule with a backward that is written out. Here JAX
saves, on every device, the activations of all stages; remat avoids this.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layered import layer_params
from dml.strategies.hybrid.instructions import shifted
from dml.strategies.hybrid.layout import Layout
from dml.strategies.hybrid.parts import Part
from dml.strategies.hybrid.pieces import traced
from dml.wire.mesh.packed import Vectors, largest, packing, read, write, zeros


def transposed(
    layout: Layout, microbatches: int, remat: bool
) -> Callable[[Vectors, Any], tuple[Any, Vectors]]:
    """Return the program of a device: (params, microbatches) -> loss, gradients."""
    stages = layout.axes.shape["stage"]

    def loss(params: Vectors, batches: Any) -> Any:
        first = jax.tree.map(lambda leaf: leaf[0], batches)
        pieces = traced(layout.parts, first, remat=False)
        outputs = [packing(part[-1].output) for part in pieces]
        message = largest(output.lengths for output in outputs)
        stage = jax.lax.axis_index("stage")

        def idle(params: Vectors, received: Vectors, batch: Any) -> tuple[Any, Vectors]:
            return jnp.float32(0), zeros(message)

        def forward(
            part: Part, params: Vectors, received: Vectors, batch: Any
        ) -> tuple[Any, Vectors]:
            number = part.stage
            activations: Any = None
            if number:
                activations = read(received, outputs[number - 1])
            weights = read(params, part.params)
            for layer in part.layers:
                activations = layer.apply(
                    layer_params(layer, weights), activations, batch
                )
            if number == stages - 1:
                return activations / microbatches, zeros(message)
            return jnp.float32(0), write(zeros(message), outputs[number], activations)

        work: Sequence[Any] = [idle, *(partial(forward, p) for p in layout.parts)]
        if remat:
            work = [jax.checkpoint(branch) for branch in work]

        def tick(carry: tuple[Any, Vectors], now: Any) -> tuple[Any, None]:
            total, received = carry
            number = now - stage
            busy = (number >= 0) & (number < microbatches)
            batch = jax.tree.map(lambda leaf: leaf[number], batches)
            loss, output = jax.lax.switch(
                jnp.where(busy, 1 + stage, 0), work, params, received, batch
            )
            return (total + loss, shifted(output, 1)), None

        ticks = jnp.arange(microbatches + stages - 1)
        (total, _), _ = jax.lax.scan(tick, (jnp.float32(0), zeros(message)), ticks)
        return total

    return jax.value_and_grad(loss)
