"""A backward in two programs: the gradient of the input, then those of the params.

    saved ──→ p = tanh'(saved)          in both        The equations of a backward, as
    grad ───→ g = grad · p              B              JAX traces them. An equation is
              input gradient = g Wᵀ     B              part of B if the input gradient
              weight gradient = xᵀ g    W              depends on it, else of W.

W reads values of B that depend on the incoming gradient, such as g. These values are
deferred: stored in a slot from the tick of B to the tick of W. Equations that do not
depend on the incoming gradient recompute cheap functions of saved activations, and are
executed in both programs where needed. No product is computed twice.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax

from dml.models import primitives


class Equation(NamedTuple):
    """A primitive with its operands: indices of values, or literals."""

    primitive: Any
    params: dict[str, Any]
    inputs: list[Any]  # an int is the index of a value
    outputs: list[int]


class SplitBackward(NamedTuple):
    """The two programs of a backward."""

    input_grad: Callable[..., Any]  # (params, saved, grad) -> input grad, deferred
    weight_grad: Callable[..., Any]  # (params, saved, deferred) -> grads of params
    deferred: list[Any]  # shapes of the deferred values


class EquationGraph(NamedTuple):
    """All equations of a function, without nesting; values are numbered."""

    inputs: list[int]
    equations: list[Equation]
    outputs: list[Any]
    shapes: dict[int, Any]  # of each value
    constants: dict[int, Any]


def split_backward(
    backward: Callable[..., Any], params: Any, saved: Any, grad: Any
) -> SplitBackward:
    """Return the two programs of a backward; called inside shard_map.

    Args:
      backward: (params, saved, grad) -> gradients of params, gradient of the input.
      params: Shapes of the params.
      saved: Shapes of the saved activations.
      grad: Shape of the gradient of the output.
    """
    closed, result = jax.make_jaxpr(backward, return_shape=True)(params, saved, grad)
    graph = flatten(closed)
    grads_tree: Any = jax.tree.structure(result[0])
    input_tree: Any = jax.tree.structure(result[1])
    grads, input_grad = (
        graph.outputs[: grads_tree.num_leaves],
        graph.outputs[grads_tree.num_leaves :],
    )
    count = len(jax.tree.leaves((params, saved)))
    without_grad, incoming = graph.inputs[:count], set(graph.inputs[count:])
    gradient_values = depending_on(graph.equations, incoming)

    input_equations = needed(graph.equations, input_grad, set())
    computed = {n for equation in input_equations for n in equation.outputs}
    reshaped = {
        n
        for equation in input_equations
        for n in equation.outputs
        if primitives.name(equation) in primitives.VIEWS
    }  # W repeats them, so that an array is not deferred in two shapes
    # values that W reads instead of computing them
    available = (computed & gradient_values - reshaped) | incoming
    weight_equations = needed(graph.equations, grads, available)
    read = {n for e in weight_equations for n in e.inputs if isinstance(n, int)}
    read |= {n for n in grads if isinstance(n, int)}
    deferred = sorted(available & read)

    def compute_input(params: Any, saved: Any, grad: Any) -> tuple[Any, list[Any]]:
        leaves = jax.tree.leaves((params, saved, grad))
        values = graph.constants | dict(zip(graph.inputs, leaves, strict=True))
        execute(input_equations, values)
        outputs = [value_of(values, n) for n in input_grad]
        return input_tree.unflatten(outputs), [values[n] for n in deferred]

    def compute_weights(params: Any, saved: Any, left: Sequence[Any]) -> Any:
        leaves = jax.tree.leaves((params, saved))
        values = graph.constants | dict(zip(without_grad, leaves, strict=True))
        values |= dict(zip(deferred, left, strict=True))
        execute(weight_equations, values)
        return grads_tree.unflatten([value_of(values, n) for n in grads])

    shapes = [graph.shapes[n] for n in deferred]
    return SplitBackward(compute_input, compute_weights, shapes)


def flatten(closed: Any) -> EquationGraph:
    """Return the equations of a closed jaxpr, with nested equations inlined."""
    graph = EquationGraph([], [], [], {}, {})

    def number(variable: Any) -> int:
        index = len(graph.shapes)
        aval = variable.aval
        graph.shapes[index] = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
        return index

    def constant(variable: Any, value: Any) -> int:
        index = number(variable)
        graph.constants[index] = value
        return index

    def inline(closed: Any, operands: Sequence[Any]) -> list[Any]:
        jaxpr, values = primitives.opened(closed)
        numbers = dict(zip(jaxpr.invars, operands, strict=True))
        consts = zip(jaxpr.constvars, values, strict=True)
        numbers |= {variable: constant(variable, value) for variable, value in consts}

        def operand(atom: Any) -> Any:
            return atom if primitives.is_literal(atom) else numbers[atom]

        for equation in jaxpr.eqns:
            inputs = [operand(atom) for atom in equation.invars]
            program = primitives.called_program(equation)
            if program is not None:
                outputs = inline(program, inputs)
            else:
                outputs = [number(variable) for variable in equation.outvars]
                graph.equations.append(
                    Equation(equation.primitive, equation.params, inputs, outputs)
                )
            numbers |= dict(zip(equation.outvars, outputs, strict=True))
        return [operand(atom) for atom in jaxpr.outvars]

    graph.inputs.extend(number(variable) for variable in closed.jaxpr.invars)
    graph.outputs.extend(inline(closed, graph.inputs))
    return graph


def depending_on(equations: Sequence[Equation], values: set[int]) -> set[int]:
    """Return these values, and all values that are computed from any of them."""
    dependent = set(values)
    for equation in equations:
        if any(isinstance(n, int) and n in dependent for n in equation.inputs):
            dependent.update(equation.outputs)
    return dependent


def needed(
    equations: Sequence[Equation], outputs: Iterable[Any], available: set[int]
) -> list[Equation]:
    """Return the equations, in order, that outputs need beyond available values."""
    wanted = {n for n in outputs if isinstance(n, int)} - available
    chosen = []
    for equation in reversed(equations):
        if wanted & set(equation.outputs):
            chosen.append(equation)
            inputs = {n for n in equation.inputs if isinstance(n, int)}
            wanted |= inputs - available
    return chosen[::-1]


def execute(equations: Sequence[Equation], values: dict[int, Any]) -> None:
    """Compute the outputs of equations from `values`, and add them to it."""
    for equation in equations:
        operands = [value_of(values, n) for n in equation.inputs]
        outputs = primitives.bind(equation, operands)
        values.update(zip(equation.outputs, outputs, strict=True))


def value_of(values: dict[int, Any], operand: Any) -> Any:
    """Return the value of an operand of an equation."""
    return operand.val if primitives.is_literal(operand) else values[operand]
