"""Gradients of a network, and the curvature of its dense layers.

    y = x w + b     x: inputs of a row, followed by 1 if the layer has a bias
                    g: gradient of the loss of a row by y

    A = mean of x xᵀ     G = mean of g gᵀ     the curvature of the layer is A ⊗ G

A and G are second moments over the rows of a batch: its examples, or its tokens. A ⊗ G
is the Kronecker-factored approximation of the empirical Fisher matrix, whose
gradients are those of the targets of the batch (Martens 2015, section 3; Eschenhagen
2023 for layers with several rows for each example).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.models.factors import Factors, by_path, gradient_factors, multiply
from dml.types import Batch, Grads, Params
from dml.wire.costs.factors import ProductSizes
from dml.wire.plans.curvature import Layer

Curvature = list[tuple[Any, Any]]  # A and G of each layer


class DenseLayer(NamedTuple):
    """A dense layer: the paths of its parameters, and the sizes of its curvature.

    Attributes:
      kernel: Path of the kernel.
      bias: Path of the bias; "" if there is none.
      sizes: Orders of A, with the bias as a further input, and of G.
    """

    kernel: str
    bias: str
    sizes: Layer


def dense_layers_with_bias(
    kernels: Mapping[str, ProductSizes], params: Params
) -> tuple[DenseLayer, ...]:
    """Return the layers of kernels, in the order of params.

    The bias of a kernel "a/kernel" is the parameter "a/bias" with one element for each
    output. A bias of several kernels, such as "a/input" and "a/recurrent", belongs to
    none of them.

    Args:
      kernels: Sizes of the kernels by path, of `factors.dense_layers`.
      params: The parameters, or their shapes.
    """
    elements = {path: math.prod(leaf.shape) for path, leaf in by_path(params).items()}
    in_order = [path for path in elements if path in kernels]
    biases = {path: "".join(path.rpartition("/")[:2]) + "bias" for path in in_order}
    uses = Counter(biases.values())
    layers = []
    for path in in_order:
        sizes, bias = kernels[path], biases[path]
        has_bias = (
            bias != path and uses[bias] == 1 and elements.get(bias) == sizes.outputs
        )
        orders = Layer(sizes.inputs + has_bias, sizes.outputs)
        layers.append(DenseLayer(path, bias if has_bias else "", orders))
    return tuple(layers)


# The loss and the layers are static arguments, as in `dml.models.gradient`.
@partial(jax.jit, static_argnums=(0, 1))
def gradient_curvature(
    loss: Callable[[Params, Batch], Any],
    layers: Sequence[DenseLayer],
    params: Params,
    batch: Batch,
) -> tuple[Any, tuple[Grads, Curvature]]:
    """Return the loss, the gradient, and the curvature of the layers.

    Args:
      loss: (params, batch) -> scalar, the mean over the batch.
      layers: The layers.
      params: The parameters.
      batch: The minibatch.
    """
    kernels = frozenset(layer.kernel for layer in layers)
    value, rest, factors = gradient_factors(loss, params, batch, kernels)
    dense = iter(jax.tree.leaves(rest))
    leaves = [
        multiply(factors[path], leaf.shape).astype(leaf.dtype)
        if path in factors
        else next(dense)
        for path, leaf in by_path(params).items()
    ]
    pairs = [curvature(factors[layer.kernel], bool(layer.bias)) for layer in layers]
    return value, (jax.tree.unflatten(jax.tree.structure(params), leaves), pairs)


def curvature(factors: Factors, bias: bool) -> tuple[Any, Any]:
    """Return A and G of a batch.

    Args:
      factors: Factors of the gradient of the mean loss.
      bias: Whether 1 follows the inputs of each row.
    """
    inputs_KxM, outputs_KxN = (jnp.asarray(factor, jnp.float32) for factor in factors)
    rows = len(inputs_KxM)
    if bias:
        inputs_KxM = jnp.pad(inputs_KxM, ((0, 0), (0, 1)), constant_values=1)
    # outputs are of the mean loss: a row's gradient has been divided by the rows. This
    # is exact if every row has a loss. With a mean over M < K rows, such as masked
    # tokens, G is K/M times its mean over these rows: a smaller damping and update.
    return (
        inputs_KxM.T @ inputs_KxM / rows,
        outputs_KxN.T @ outputs_KxN * jnp.float32(rows),
    )
