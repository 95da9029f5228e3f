"""Bubbles of zero-bubble schedules and 1f1b by dependencies, for durations F, B, W.

F, B and W are the seconds of a stage for a microbatch: a forward, the gradient of its
input, the gradient of its params. 1f1b executes B and W together.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dml.metrics.alternate import alternate
from dml.runs.writers import Row
from dml.wire.plans.pipeline import facts
from dml.wire.plans.pipeline.schedules import SPLIT, make
from dml.wire.plans.pipeline.slots import instructions, slot_count
from dml.wire.plans.pipeline.times import bubble_seconds

EQUAL_LABEL, EQUAL = "F = B = W", (1.0, 1.0, 1.0)
MINIBATCHES = 6  # of a run in which no stage waits for the updates of others
REPEATS = 20  # timings of a piece, of which the minimum is used


def bubble_rows(
    stages: int, microbatches: int, durations: dict[str, Sequence[float]]
) -> Iterator[Row]:
    """Yield bubble and memory of 1f1b and the zero-bubble schedules.

    Bubbles are in units of F + B + W; `run` is that of a minibatch in a run without
    flushes. In flight are microbatches of a stage, from F to W; deferred are those from
    B to W, for which the gradients of products are stored too.

    stages: number of stages K.
    microbatches: number of microbatches M.
    durations: F, B and W by name.
    """
    for label, (forward, backward, weights) in durations.items():
        total = forward + backward + weights
        formulas = {
            "1f1b": total,
            "zb_h1": forward + backward - weights,
            "zb_h2": forward + backward - 2 * weights,
        }
        for name in ("1f1b", *SPLIT):
            rounds = 2 if name == "zb_v" else 1
            schedule = make(name, stages, microbatches, rounds)
            pieces = [forward, backward, weights]
            if not schedule.split:
                pieces[1:] = [(backward + weights) / 2] * 2
            pieces = [seconds / rounds for seconds in pieces]
            formula = formulas.get(name)
            yield {
                "durations": label,
                "piece_seconds": [forward, backward, weights],
                "schedule": name,
                "in_flight": float(facts.in_flight(schedule).max() / rounds),
                "deferred": slot_count(instructions(schedule).deferred) / rounds,
                "formula": None if formula is None else (stages - 1) * formula / total,
                "bubble": bubble_seconds(schedule, pieces) / total,
                "run": bubble_seconds(schedule, pieces, MINIBATCHES) / total,
            }


def measured_pieces(sizes: Sequence[int], microbatch: int) -> dict[str, Any]:
    """Return the seconds F, B, W of a GPT's block, and MB that it saves and defers.

    sizes: the fields of transformer.Shape.
    microbatch: examples in a microbatch.
    """
    import jax
    import jax.numpy as jnp

    from dml.models.layered import layer_params
    from dml.models.networks.transformer import Shape, shapes, transformer
    from dml.strategies.hybrid.pieces import checkpoint_layer, trace_piece
    from dml.strategies.hybrid.split import split_backward
    from dml.types import Batch
    from dml.wire.mesh.packed import packing

    shape = Shape(*sizes)._replace(layers=1)
    block = transformer(shape, causal=True).layers[1]
    params = layer_params(block, shapes(shape, True))
    inputs = jax.ShapeDtypeStruct((microbatch, shape.length, shape.width), jnp.float32)
    call, batch = checkpoint_layer(block), Batch(None, None)  # it reads no batch
    piece = trace_piece(
        lambda batch, params, inputs: call(params, inputs, batch),
        params,
        inputs,
        batch,
    )
    parts = split_backward(piece.backward, params, piece.saved, inputs)

    def seconds(function: Callable[..., Any], *arguments: Any) -> float:
        ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), arguments)
        compiled = jax.jit(function)
        call = {function: lambda: jax.block_until_ready(compiled(*ones))}
        return min(alternate(call, REPEATS)[function])

    def nbytes(tree: Any) -> int:
        return 4 * sum(packing(tree).lengths.values())

    return {
        "pieces": (
            seconds(lambda *trees: piece.forward(*trees, batch), params, inputs),
            seconds(parts.input_grad, params, piece.saved, inputs),
            seconds(parts.weight_grad, params, piece.saved, parts.deferred),
        ),
        "saved_mb": nbytes(piece.saved) / 1e6,
        "deferred_mb": nbytes(parts.deferred) / 1e6,
    }
