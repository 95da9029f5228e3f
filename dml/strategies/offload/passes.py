"""The recorded forward and backward passes of all layers, and their buffers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax

from dml.models.backward import ones
from dml.models.gradient import add_scaled
from dml.models.layered import first_readers, layer_params
from dml.strategies.offload import programs
from dml.strategies.offload.program import Program, Shapes, Turn
from dml.strategies.offload.programs import Forward
from dml.types import Model


class Pass(NamedTuple):
    """The forward pass of a layer, shapes and names of its buffers."""

    forward: Forward
    arguments: tuple[Any, Any, Any]  # shapes of params, activations and batch
    buffers: tuple[str, ...]  # names of params, of activations except None, batch
    results: tuple[str, ...]  # names of output and saved arrays


def record_forward(program: Program, model: Model, shapes: Shapes) -> list[Pass]:
    """Record the forward passes of all layers, and the loss."""
    passes: list[Pass] = []
    output: Any = None
    for number, layer in enumerate(model.layers):
        arguments = layer_params(layer, shapes.params), output, shapes.batch
        forward = programs.forward(layer.apply, *arguments)
        # the order of leaves of the dict of params
        buffers = tuple(f"params/{name}" for name in sorted(layer.names))
        buffers += passes[-1].results[:1] if passes else ()
        saved = [f"saved/{number}/{n}" for n in range(len(forward.saved))]
        results = f"output/{number}", *saved
        each = Pass(forward, arguments, (*buffers, "batch"), results)
        program.add(
            f"forward {number}",
            partial(run_forward, each, layer.names),
            each.buffers,
            dict(zip(results, (forward.output, *forward.saved), strict=True)),
            forward.compiled,
        )
        passes.append(each)
        output = forward.output
    loss = passes[-1].results[0]

    def report(memory: Any, turn: Turn) -> Mapping[str, Any]:
        turn.losses.append(float(jax.device_get(memory[loss])))
        return {}

    program.add("loss", report, (loss,), {})
    return passes


def run_forward(
    each: Pass, names: tuple[str, ...], memory: Any, turn: Turn
) -> Mapping[str, Any]:
    """Compute the output and the saved arrays of a layer."""
    params = {name: memory[f"params/{name}"] for name in names}
    others = [memory[name] for name in each.buffers[len(names) :]]
    activations = others[0] if len(others) > 1 else None
    output, saved = each.forward.compiled.call(params, activations, others[-1])
    return dict(zip(each.results, (output, *saved), strict=True))


def record_backward(
    program: Program,
    model: Model,
    shapes: Shapes,
    passes: list[Pass],
    finish: Callable[[str, str], None],
) -> None:
    """Record the backward passes of all layers.

    Args:
      program: Receives the operations.
      model: The model.
      shapes: Shapes of params and batch.
      passes: The forward passes.
      finish: Records the operations on a complete gradient: (name, its buffer).
    """
    first_layer = first_readers(model.layers)
    incomplete: dict[str, str] = {}  # buffer of the gradient so far, by name
    incoming, loss = f"incoming/{len(passes) - 1}", passes[-1].results[0]
    seed = {incoming: passes[-1].forward.output}
    program.add("seed", lambda memory, _: {incoming: ones(memory[loss])}, (loss,), seed)
    for number in reversed(range(len(passes))):
        each, layer = passes[number], model.layers[number]
        add_backward(program, each, number, layer.names)
        for name in layer.names:
            buffer = gradient_name(name, number)
            if name in incomplete:
                earlier, shape = incomplete.pop(name), {buffer: shapes.params[name]}
                add = partial(run_add, earlier, buffer)
                program.add(f"add {name}", add, (earlier, buffer), shape)
            if first_layer[name] == number:
                finish(name, buffer)
            else:
                incomplete[name] = buffer


def gradient_name(name: str, number: int) -> str:
    """Return the name of the buffer of a gradient by the layer of a number."""
    return f"gradient/{name}/{number}"


def add_backward(
    program: Program, each: Pass, number: int, names: tuple[str, ...]
) -> None:
    """Record the backward pass of a layer.

    Args:
      program: Receives the operation.
      each: The forward pass.
      number: Number of the layer.
      names: Names of its params.
    """
    params, activations, batch = each.arguments
    incoming = f"incoming/{number}"
    layer = (*each.arguments, each.forward.output, each.forward.saved)
    compiled = programs.backward(each.forward, layer, each.forward.output)
    trees = [params[name] for name in sorted(names)]
    trees += [] if activations is None else [activations]
    trees += [batch, each.forward.output, *each.forward.saved]
    owners = [
        (buffer, position)
        for buffer, tree in zip((*each.buffers, *each.results), trees, strict=True)
        for position in range(len(jax.tree.leaves(tree)))
    ]
    leaves = [owners[source] for source in each.forward.sources]
    writes = {gradient_name(name, number): params[name] for name in names}
    if activations is not None:
        writes |= {f"incoming/{number - 1}": activations}

    def run(memory: Any, turn: Turn) -> Mapping[str, Any]:
        values = {name: jax.tree.leaves(memory[name]) for name in dict(leaves)}
        pullback = each.forward.structure.unflatten(
            [values[name][position] for name, position in leaves]
        )
        grads, below = compiled.call(pullback, memory[incoming])
        written = {gradient_name(name, number): grads[name] for name in names}
        if activations is not None:
            written |= {f"incoming/{number - 1}": below}
        return written

    reads = (*(name for name, _ in leaves), incoming)
    program.add(f"backward {number}", run, reads, writes, compiled)


def run_add(earlier: str, buffer: str, memory: Any, turn: Turn) -> Mapping[str, Any]:
    """Add two gradients; the memory of the earlier one is reused."""
    return {buffer: add_scaled(memory[earlier], memory[buffer], 1)}
