"""Gradients of dense layers as factors: two matrices instead of their product.

    y = x w          x_KxM: inputs of the layer, one row for each example or token
    dw = xᵀ dy       dy_KxN: gradient of the loss by the outputs

K(M + N) elements stand for the MN elements of dw, whose rank is at most K: these are
the sufficient factors of Poseidon (Zhang 2017), and the matrices whose second moments
K-FAC (Martens 2015) averages.

A program that computes gradients is traced. A product of two matrices that is only
transposed, reshaped or cast on its way to an output is not computed; the output is the
two matrices. So every model has factors, whatever its modules: flax's `Dense`, `x @ w`,
and a convolution whose filters are as large as its maps, as in AlexNet. Convolutions,
scales, biases, and kernels that two layers share have other programs; their gradients
stay as they are.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.extend import core

from dml.types import Batch, Grads, Params
from dml.wire.costs.factors import Sizes

# Primitives that call a program, by the name of the parameter with the program.
CALLS = {
    **dict.fromkeys(("jit", "pjit", "closed_call", "checkpoint", "remat2"), "jaxpr"),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}
REMATS = ("checkpoint", "remat2")


class Factors(NamedTuple):
    """A gradient as a product, inputsᵀ · outputs, in the shape of its kernel.

    The loss is a mean, so its 1/K (the 1/B of B examples, the weights of masked tokens)
    is part of the gradients by the outputs; inputs are those of the layer. The gradient
    of the layer's bias is the sum of the rows of `outputs_KxN`.
    """

    inputs_KxM: Any
    outputs_KxN: Any


# The loss and the kernels are static arguments, as in `dml.models.gradient`.
@partial(jax.jit, static_argnums=(0, 3))
def gradient_factors(
    loss: Callable[[Params, Batch], Any],
    params: Params,
    batch: Batch,
    kernels: frozenset[str] | None = None,
) -> tuple[Any, Grads, dict[str, Factors]]:
    """Return loss, gradient, and the factors of kernels by path.

    The gradient has None in place of the kernels with factors, whose products are not
    computed. A path is such as "block_0/qkv/kernel".

    Args:
      loss: (params, batch) -> scalar.
      params: The parameters.
      batch: The minibatch.
      kernels: Paths of the kernels with factors; None: all that have a product.
    """

    def grads(params: Params) -> tuple[Grads, Any]:
        value, grads = jax.value_and_grad(loss)(params, batch)
        return grads, value

    gradient, value = factored(grads, kernels)(params)
    return value, *separated(gradient)


def dense_layers(
    loss: Callable[[Params, Batch], Any], params: Params, batch: Batch
) -> dict[str, Sizes]:
    """Return the sizes of the kernels with factors, by path; computes nothing.

    Args:
      loss: (params, batch) -> scalar.
      params: The parameters, or their shapes.
      batch: A minibatch, or its shapes.
    """
    factors = jax.eval_shape(partial(gradient_factors, loss), params, batch)[2]
    shapes = {
        path: (pair.inputs_KxM.shape, pair.outputs_KxN.shape)
        for path, pair in factors.items()
    }
    return {
        path: Sizes(rows, inputs, outputs)
        for path, ((rows, inputs), (_, outputs)) in shapes.items()
    }


def separated(grads: Any) -> tuple[Grads, dict[str, Factors]]:
    """Return gradients with None in place of Factors, and the Factors by path."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(grads, is_leaf=is_factors)
    factors = {path_name(path): leaf for path, leaf in leaves if is_factors(leaf)}
    rest = [None if is_factors(leaf) else leaf for _, leaf in leaves]
    return jax.tree.unflatten(tree, rest), factors


def multiply(factors: Factors, shape: Sequence[int]) -> Any:
    """Return the gradient of a kernel of that shape, for NumPy or JAX arrays."""
    return (factors.inputs_KxM.T @ factors.outputs_KxN).reshape(shape)


def is_factors(node: Any) -> bool:
    return isinstance(node, Factors)


def path_name(path: Sequence[Any]) -> str:
    """Return the names of a path of keys, separated by slashes."""
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")


def factored(
    function: Callable[..., tuple[Any, Any]], kernels: frozenset[str] | None
) -> Callable[..., tuple[Any, Any]]:
    """Return the function with Factors in place of gradients that are products.

    Use it inside `jax.jit`: it traces the function at every call. The function has no
    shard_map, and the result must not be differentiated.

    Args:
      function: Arrays -> (gradients, other outputs), trees of arrays.
      kernels: Paths of the gradients that become Factors; None: all products.
    """

    def factors(*args: Any) -> tuple[Any, Any]:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        values = evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        paths, tree = jax.tree_util.tree_flatten_with_path(shapes[0])
        grads = [
            value.factors()
            if isinstance(value, Product)
            and value.sizes()
            and (kernels is None or path_name(path) in kernels)
            else array(value)
            for (path, _), value in zip(paths, values, strict=False)
        ]
        others = [array(value) for value in values[len(grads) :]]
        return (
            jax.tree.unflatten(tree, grads),
            jax.tree.unflatten(jax.tree.structure(shapes[1]), others),
        )

    return factors


class Product:
    """A product of two arrays that has not been computed.

    Attributes:
      operands: The two arrays.
      contracted: The axes over which each operand is summed.
      axes: Operand and axis of each axis of the result, in the order of its memory.
      compute: () -> the result.
      reshaped: Whether the result has another shape in the same order of memory.
    """

    def __init__(
        self,
        operands: Sequence[Any],
        contracted: Sequence[Sequence[int]],
        axes: Sequence[tuple[int, int]],
        compute: Callable[[], Any],
        reshaped: bool = False,
    ) -> None:
        self.operands, self.contracted, self.axes = operands, contracted, axes
        self.compute, self.reshaped = compute, reshaped
        self.computed: Any = None

    def array(self) -> Any:
        """Return the result, computed at the first call."""
        if self.computed is None:
            self.computed = self.compute()
        return self.computed

    def then(self, equation: Any) -> "Product | None":
        """Return the result of a transpose, reshape or cast; None if not a product."""
        axes, reshaped = self.axes, self.reshaped
        if equation.primitive.name == "transpose":
            if reshaped:
                return None
            axes = [axes[axis] for axis in equation.params["permutation"]]
        elif equation.primitive.name == "reshape":
            reshaped = True
        elif equation.primitive.name != "convert_element_type":
            return None

        def compute() -> Any:
            return bind(equation, [self.array()])[0]

        return Product(self.operands, self.contracted, axes, compute, reshaped)

    def sides(self) -> list[int] | None:
        """Return the operands in the order of the result's axes; None if these mix."""
        sides = [operand for operand, _ in self.axes]
        first = sides[0] if sides else 0
        count = sides.count(first)
        mixed = sides != [first] * count + [1 - first] * (len(sides) - count)
        return None if mixed or count in (0, len(sides)) else [first, 1 - first]

    def sizes(self) -> Sizes | None:
        """Return the sizes of the factors; None if there are none."""
        sides = self.sides()
        if sides is None:
            return None
        sizes = [
            math.prod(self.operands[side].shape[axis] for axis in self.free(side))
            for side in sides
        ]
        first = self.operands[0].shape
        return Sizes(math.prod(first[axis] for axis in self.contracted[0]), *sizes)

    def free(self, side: int) -> list[int]:
        """Return the axes of an operand that remain, in the order of the result's."""
        return [axis for operand, axis in self.axes if operand == side]

    def factors(self) -> Factors:
        """Return the operands as matrices."""
        sizes, sides = self.sizes(), self.sides()
        assert sizes and sides
        matrices = []
        for side, columns in zip(sides, sizes[1:], strict=True):
            operand = self.operands[side]
            order = [*self.contracted[side], *self.free(side)]
            rest = [axis for axis in range(operand.ndim) if axis not in order]  # of 1
            matrices.append(
                operand.transpose([*order, *rest]).reshape(sizes.rows, columns)
            )
        return Factors(*matrices)


def array(value: Any) -> Any:
    """Return a value of the evaluation as an array."""
    return value.array() if isinstance(value, Product) else value


def evaluate(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]
) -> list[Any | Product]:
    """Return the outputs of a program; products are computed where they are read."""
    values: dict[Any, Any] = dict(
        zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True)
    )

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        outputs = step(equation, [value(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def step(equation: Any, inputs: list[Any]) -> Sequence[Any]:
    """Return the outputs of one equation."""
    primitive = equation.primitive.name
    if primitive in CALLS:
        program = equation.params[CALLS[primitive]]
        if primitive in REMATS and inputs:
            # otherwise XLA would not compute the forward pass again
            inputs = jax.lax.optimization_barrier([array(value) for value in inputs])
        inner = getattr(program, "jaxpr", program)
        return evaluate(inner, getattr(program, "consts", ()), inputs)
    if isinstance(inputs[0] if inputs else None, Product) and len(inputs) == 1:
        product = inputs[0].then(equation)
        if product is not None:
            return [product]
    arrays = [array(value) for value in inputs]
    if primitive == "dot_general":
        return [dot_product(equation, arrays)]
    if primitive == "conv_general_dilated" and is_dense(equation):
        return [dense_convolution(equation, arrays)]
    return bind(equation, arrays)


def bind(equation: Any, arrays: list[Any]) -> Sequence[Any]:
    """Return the arrays that one equation computes."""
    outputs = equation.primitive.bind(*arrays, **equation.params)
    return outputs if equation.primitive.multiple_results else [outputs]


def dot_product(equation: Any, arrays: list[Any]) -> Any:
    """Return the Product of a dot_general; an array if its operands share axes."""
    contracted, batched = equation.params["dimension_numbers"]
    if batched[0]:
        return bind(equation, arrays)[0]
    axes = [
        (side, axis)
        for side in (0, 1)
        for axis in range(arrays[side].ndim)
        if axis not in contracted[side]
    ]
    return Product(arrays, contracted, axes, lambda: bind(equation, arrays)[0])


def is_dense(equation: Any) -> bool:
    """Return whether each output of a convolution reads one pixel of its input."""
    params = equation.params
    filters = equation.invars[1].aval.shape
    return (
        all(filters[axis] == 1 for axis in params["dimension_numbers"].rhs_spec[2:])
        and all(low == high == 0 for low, high in params["padding"])
        and {*params["window_strides"], *params["lhs_dilation"]} <= {1}
        and params["feature_group_count"] == params["batch_group_count"] == 1
    )


def dense_convolution(equation: Any, arrays: list[Any]) -> Product:
    """Return the Product of a convolution with filters of 1 x 1."""
    inputs, filters, result = equation.params["dimension_numbers"]
    axes = [(0, 0)] * len(result)
    axes[result[0]], axes[result[1]] = (0, inputs[0]), (1, filters[0])
    for axis, source in zip(result[2:], inputs[2:], strict=True):
        axes[axis] = (0, source)
    contracted = [inputs[1]], [filters[1]]
    return Product(arrays, contracted, axes, lambda: bind(equation, arrays)[0])
