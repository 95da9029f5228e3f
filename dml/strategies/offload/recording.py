"""The operations of one iteration, recorded from the shapes of a model and a batch.

    input   forward 0 … forward n   backward n   reduce   update   backward n-1 …
    batch   output/0    output/n    incoming/n-1
            saved/0/0   saved/n/0   gradient/b1 ───────►  params/b1, state/b1
    saved/0/1   saved/n/1

Each saved array is one buffer, as small buffers fill the memory better than large ones.
The params of a layer are updated as soon as their gradient is complete. On one rank
there is no `reduce`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from dml.models.backward import gradient_order
from dml.strategies.offload import programs
from dml.strategies.offload.memory import nbytes
from dml.strategies.offload.passes import record_backward, record_forward
from dml.strategies.offload.program import Program, Shapes, Turn
from dml.types import Model
from dml.update.dense import Optimizer
from dml.update.layers import apply_layer, companion


def record(
    model: Model, optimizer: Optimizer, shapes: Shapes, *, exchanged: bool
) -> Program:
    """Record an iteration.

    Args:
      model: A model with layers.
      optimizer: An optax optimizer that updates each layer separately.
      shapes: Shapes of the persistent buffers and of the batch.
      exchanged: Whether gradients are reduced over ranks.
    """
    sizes = {f"params/{name}": nbytes(tree) for name, tree in shapes.params.items()}
    sizes |= {f"state/{name}": nbytes(tree) for name, tree in shapes.state.items()}
    program = Program([], sizes)
    finish = partial(finish_gradient, program, optimizer, shapes, exchanged)
    if shapes.batch is None:
        for name in gradient_order(model):
            finish(name, "")
        return program
    put = {"batch": shapes.batch}
    program.add(
        "input", lambda _, turn: {"batch": turn.put(turn.batch)}, (), put, None, "input"
    )
    passes = record_forward(program, model, shapes)
    record_backward(program, model, shapes, passes, finish)
    return program


def finish_gradient(
    program: Program,
    optimizer: Optimizer,
    shapes: Shapes,
    exchanged: bool,
    name: str,
    buffer: str,
) -> None:
    """Record the operations on a complete gradient: reduction and update.

    Args:
      program: Receives the operations.
      optimizer: The optimizer.
      shapes: Shapes of params and state.
      exchanged: Whether gradients are reduced over ranks.
      name: Name of the params.
      buffer: Buffer of the gradient; empty on a rank without examples.
    """
    params, state = shapes.params[name], shapes.state[name]
    mean = buffer or f"gradient/{name}"
    if exchanged:

        def reduce(memory: Any, turn: Turn) -> Mapping[str, Any]:
            assert turn.exchange
            grads = memory[buffer] if buffer else None
            term = name, grads, turn.share, turn.losses
            return {mean: turn.put(turn.exchange.reduce(*term))}

        reads: tuple[str, ...] = (buffer,) if buffer else ()
        program.add(f"reduce {name}", reduce, reads, {mean: params}, None, "wire")
    compiled = programs.compile_function(
        apply_layer,
        (optimizer, companion(shapes.params, name)),
        {name: params},
        state,
        {name: params},
    )

    def update(memory: Any, turn: Turn) -> Mapping[str, Any]:
        trees = {name: memory[mean]}, memory[f"state/{name}"]
        new, new_state, _ = compiled.call(*trees, {name: memory[f"params/{name}"]})
        return {f"params/{name}": new[name], f"state/{name}": new_state}

    written = {f"params/{name}": params, f"state/{name}": state}
    program.add(f"update {name}", update, (mean, *written), written, compiled, "update")
