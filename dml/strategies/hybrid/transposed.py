"""GPipe (Huang 2019) the short way: a forward that JAX transposes into its backward.

    tick       0 1 2 3 4      for each tick: take what the stage before has sent,
    stage 0    0 1 2 3 .      compute one microbatch, send what it gives (ppermute).
    stage 1    . 0 1 2 3      The transpose of a loop runs from its end, that of
                              ppermute sends the other way: the backward pipeline.

The whole algorithm in one loop; what pipeline.py plays is the same for any schedule.
Without remat JAX keeps what every stage's backward would need, on every device.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layers import read as named
from dml.strategies.hybrid.parts import Held, Part
from dml.strategies.hybrid.traced import trace
from dml.wire.mesh.packed import Vectors, empty, read, room, write


def transposed(
    held: Held, microbatches: int, remat: bool
) -> Callable[[Vectors, Any], tuple[Any, Vectors]]:
    """Return what one device does with its params and microbatches; see play."""
    stages = held.axes.shape["stage"]
    onward = [(stage, (stage + 1) % stages) for stage in range(stages)]

    def loss(params: Vectors, batches: Any) -> Any:
        one = jax.tree.map(lambda leaf: leaf[0], batches)
        traced = trace(held.parts, one, remat=False)
        gives = [part.gives for part in traced]
        boundary = room(some.lengths for some in gives)
        stage = jax.lax.axis_index("stage")

        def idle(params: Vectors, came: Vectors, batch: Any) -> tuple[Any, Vectors]:
            return jnp.float32(0), empty(boundary)

        def computes(
            part: Part, params: Vectors, came: Vectors, batch: Any
        ) -> tuple[Any, Vectors]:
            number = part.stage
            given: Any = read(came, gives[number - 1]) if number else None
            layers = [layer for piece in part.pieces for layer in piece]
            weights = read(params, part.params)
            for layer in layers:
                given = layer.apply(named(layer, weights), given, batch)
            if number == stages - 1:
                return given / microbatches, empty(boundary)
            return jnp.float32(0), write(empty(boundary), gives[number], given)

        does: Sequence[Any] = [idle, *(partial(computes, part) for part in held.parts)]
        if remat:
            does = [jax.checkpoint(one) for one in does]

        def tick(carry: tuple[Any, Vectors], now: Any) -> tuple[Any, None]:
            total, came = carry
            turn = now - stage
            busy = (turn >= 0) & (turn < microbatches)
            batch = jax.tree.map(lambda leaf: leaf[turn], batches)
            found, out = jax.lax.switch(
                jnp.where(busy, 1 + stage, 0), does, params, came, batch
            )
            sent = jax.tree.map(lambda one: jax.lax.ppermute(one, "stage", onward), out)
            return (total + found, sent), None

        start = jnp.float32(0), empty(boundary)
        ticks = jnp.arange(microbatches + stages - 1)
        (total, _), _ = jax.lax.scan(tick, start, ticks)
        return total

    return jax.value_and_grad(loss)
