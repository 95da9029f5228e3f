"""Gradients of dense layers as factors: two matrices instead of their product.

    y = x w          x_KxM: inputs of the layer, one row for each example or token
    dw = xᵀ dy       dy_KxN: gradient of the loss by the outputs

The K(M + N) elements of x and dy determine the MN elements of dw, a matrix of rank K at
most. They are the sufficient factors of Poseidon (Zhang 2017), and the matrices whose
second moments K-FAC (Martens 2015) averages.

A program that computes gradients is traced (`products`). If an output is a product of
two matrices that is only transposed, reshaped or cast, the product is not computed; the
output is the two matrices. This holds for any module: flax's `Dense`, `x @ w`, and a
convolution whose filters are as large as its maps, as in AlexNet. Gradients of other
convolutions, scales, biases, and kernels that two layers share are no such products and
do not change.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from dml.models.products import Product, array, evaluate
from dml.types import Batch, Grads, Params
from dml.wire.costs.factors import ProductSizes


class Factors(NamedTuple):
    """A gradient as a product, inputsᵀ · outputs, in the shape of its kernel.

    The factor of the mean loss (1/B for B examples, or the weights of masked tokens) is
    part of `outputs_KxN`; `inputs_KxM` are the inputs of the layer. The gradient of the
    layer's bias is the sum of the rows of `outputs_KxN`.
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
) -> dict[str, ProductSizes]:
    """Return the sizes of the kernels with factors, by path, from shapes alone.

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
        path: ProductSizes(rows, inputs, outputs)
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


def by_path(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by path, such as "head/kernel"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {path_name(path): leaf for path, leaf in leaves}


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
            Factors(*value.matrices())
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
