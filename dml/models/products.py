"""Programs whose products are computed only where they are read.

    dy x           x dy
     │ │            │ │
     dot       ──►  Product     not computed: an output is its two matrices
      │              │
    transpose       transpose
      │              │
     dw             dw = xᵀ dy

A traced program is evaluated equation by equation. The result of a dot_general, or of a
convolution with filters of 1 x 1, is a Product until another equation reads it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from dml.models import primitives
from dml.models.primitives import bind
from dml.wire.costs.factors import ProductSizes


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
        primitive = primitives.name(equation)
        if primitive == primitives.TRANSPOSE:
            if reshaped:
                return None
            axes = [axes[axis] for axis in equation.params["permutation"]]
        elif primitive == primitives.RESHAPE:
            reshaped = True
        elif primitive != primitives.CAST:
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

    def sizes(self) -> ProductSizes | None:
        """Return the sizes of the factors; None if there are none."""
        sides = self.sides()
        if sides is None:
            return None
        sizes = [
            math.prod(self.operands[side].shape[axis] for axis in self.free(side))
            for side in sides
        ]
        first = self.operands[0].shape
        return ProductSizes(
            math.prod(first[axis] for axis in self.contracted[0]), *sizes
        )

    def free(self, side: int) -> list[int]:
        """Return the axes of an operand that remain, in the order of the result's."""
        return [axis for operand, axis in self.axes if operand == side]

    def matrices(self) -> list[Any]:
        """Return the two factors: operands with K rows each."""
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
        return matrices


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
        return atom.val if primitives.is_literal(atom) else values[atom]

    for equation in jaxpr.eqns:
        outputs = step(equation, [value(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def step(equation: Any, inputs: list[Any]) -> Sequence[Any]:
    """Return the outputs of one equation."""
    primitive = primitives.name(equation)
    program = primitives.called_program(equation)
    if program is not None:
        if primitive in primitives.CHECKPOINTS and inputs:
            # otherwise XLA would not compute the forward pass again
            inputs = jax.lax.optimization_barrier([array(value) for value in inputs])
        return evaluate(*primitives.opened(program), inputs)
    if isinstance(inputs[0] if inputs else None, Product) and len(inputs) == 1:
        product = inputs[0].then(equation)
        if product is not None:
            return [product]
    arrays = [array(value) for value in inputs]
    if primitive == primitives.DOT:
        return [dot_product(equation, arrays)]
    if primitive == primitives.CONVOLUTION and is_dense(equation):
        return [dense_convolution(equation, arrays)]
    return bind(equation, arrays)


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
