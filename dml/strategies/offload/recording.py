"""The operations of one iteration, recorded from the shapes of a model and a batch.

    input   forward 0 … forward n   backward n   reduce   update   backward n-1 …
    batch   output/0    output/n    incoming/n-1
            saved/0/0   saved/n/0   gradient/b1 ───────►  params/b1, state/b1
    saved/0/1   saved/n/1

Each saved array is a buffer: the smaller the buffers, the better they fill the memory.
The params of a layer are updated as soon as their gradient is complete. Without ranks
that share gradients there is no `reduce`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax

from dml.models.backward import gradient_order, ones
from dml.models.gradient import add_scaled
from dml.models.layered import first_readers, layer_params
from dml.strategies.offload import programs
from dml.strategies.offload.exchange import Exchange
from dml.strategies.offload.memory import nbytes
from dml.strategies.offload.programs import Compiled, Forward
from dml.types import Model, identity
from dml.update.dense import Optimizer
from dml.update.layers import apply_layer, companion
from dml.wire.plans.offload import Access, Iteration

NOT_COMPILED = Compiled(identity, 0, 0, 0.0, 0.0)


class Turn(NamedTuple):
    """What an iteration gets from outside of device memory.

    Attributes:
      batch: The minibatch on the host; None for a rank without examples.
      put: Copies a tree to the device.
      exchange: Reduces gradients over ranks; None on one rank.
      share: This rank's share of the examples.
      losses: Receives the mean loss of the rank's examples.
    """

    batch: Any
    put: Callable[[Any], Any]
    exchange: Exchange | None
    share: float
    losses: list[float]


class Operation(NamedTuple):
    """An operation of the iteration.

    Attributes:
      access: Its buffers and its workspace.
      phase: Phase of the timer.
      run: (buffers by name, turn) -> written buffers by name.
      flops: Number of floating-point operations.
      traffic: Bytes that it reads and writes in device memory.
    """

    access: Access
    phase: str
    run: Callable[[Any, Turn], Mapping[str, Any]]
    flops: float = 0.0
    traffic: float = 0.0


class Program(NamedTuple):
    """The operations of an iteration, and the bytes of all buffers."""

    operations: list[Operation]
    sizes: dict[str, int]

    @property
    def iteration(self) -> Iteration:
        """The argument of `dml.wire.plans.offload.plans`."""
        return Iteration(self.sizes, [each.access for each in self.operations])

    def add(
        self,
        name: str,
        run: Callable[[Any, Turn], Mapping[str, Any]],
        reads: tuple[str, ...],
        writes: Mapping[str, Any],
        compiled: Compiled | None = None,
        phase: str = "gradient",
    ) -> None:
        """Append an operation.

        Args:
          name: Name of the operation.
          run: See Operation.
          reads: Buffers that it reads.
          writes: Shapes of the buffers that it writes.
          compiled: Its compiled function, if it has one.
          phase: Phase of the timer.
        """
        self.sizes.update({name: nbytes(shapes) for name, shapes in writes.items()})
        _, workspace, results, flops, traffic = compiled or NOT_COMPILED
        reads = tuple(dict.fromkeys(reads))
        new = sum(self.sizes[name] for name in writes if name not in reads)
        workspace += max(0, results - new)
        access = Access(name, reads, tuple(writes), workspace)
        self.operations.append(Operation(access, phase, run, flops, traffic))


class Shapes(NamedTuple):
    """Shapes of params and optimizer state by name, and of the batch; None: empty."""

    params: Mapping[str, Any]
    state: Mapping[str, Any]
    batch: Any


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
    if exchanged:
        reads: tuple[str, ...] = (buffer,) if buffer else ()
        mean = buffer or f"gradient/{name}"

        def reduce(memory: Any, turn: Turn) -> Mapping[str, Any]:
            assert turn.exchange
            grads = memory[buffer] if buffer else None
            term = name, grads, turn.share, turn.losses
            return {mean: turn.put(turn.exchange.reduce(*term))}

        program.add(f"reduce {name}", reduce, reads, {mean: params}, None, "wire")
        buffer = mean
    compiled = programs.compile_function(
        *(apply_layer, (optimizer, companion(shapes.params, name))),
        *({name: params}, state, {name: params}),
    )

    def update(memory: Any, turn: Turn) -> Mapping[str, Any]:
        trees = {name: memory[buffer]}, memory[f"state/{name}"]
        new, new_state, _ = compiled.call(*trees, {name: memory[f"params/{name}"]})
        return {f"params/{name}": new[name], f"state/{name}": new_state}

    written = {f"params/{name}": params, f"state/{name}": state}
    program.add(
        f"update {name}", update, (buffer, *written), written, compiled, "update"
    )
