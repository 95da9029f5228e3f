"""The layers that `tensor.py` measures, dense and divided, with their formulas.

A transformer's layers are divided by Megatron's scheme, a mixture of experts by experts
and rows, and attention by positions on a ring. A stream is the input or output of a
block, batch x positions x width float32 elements. For a collective of n bytes, each of
t devices sends

    all-reduce                                  2 n (t - 1)/t bytes
    all-gather, reduce-scatter, all-to-all      n (t - 1)/t
    permutation                                 n
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import PartitionSpec

from dml.models.layered import layer_params
from dml.models.layers import experts
from dml.models.layers.attention import attention
from dml.models.layers.experts import Mixture
from dml.models.layers.partition import AXIS
from dml.models.layers.ring_attention import ring_attention
from dml.models.networks.tensor_transformer import tensor_transformer
from dml.models.networks.transformer import Shape, transformer
from dml.types import BadInput, Batch, Layer, Params
from studies.tensor import measurements
from studies.tensor.measurements import CompiledLayer, Operands, Specs

LAYERS = {"embed": 0, "block": 1, "head": -1}  # indices of a transformer's layers
EMPTY = Batch(np.zeros(0), np.zeros(0))


ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
ALL_TO_ALL, PERMUTE = "all-to-all", "collective-permute"
# Collectives of a stream by kind, forward and backward; keys: sequence parallel, layer.
STREAMS: dict[bool, dict[str, tuple[dict[str, int], dict[str, int]]]] = {
    False: {
        "embed": ({ALL_REDUCE: 1}, {}),
        "block": ({ALL_REDUCE: 2}, {ALL_REDUCE: 2}),
        "head": ({}, {ALL_REDUCE: 1}),
    },
    True: {  # sequence parallel
        "embed": ({REDUCE_SCATTER: 1}, {ALL_GATHER: 1}),
        "block": (
            {ALL_GATHER: 2, REDUCE_SCATTER: 2},
            {ALL_GATHER: 2, REDUCE_SCATTER: 2},
        ),
        "head": ({ALL_GATHER: 1}, {REDUCE_SCATTER: 1}),
    },
}
CROSS_ENTROPY = 3  # elements per position in the head's sums: maximum, sum, target


class Formula(NamedTuple):
    """Predicted collectives of a layer.

    counts: numbers of collectives by kind, in the forward and the backward pass.
    nbytes: bytes of each of them.
    small: bytes in total of smaller all-reduces in the forward pass.
    """

    counts: tuple[dict[str, int], dict[str, int]]
    nbytes: int
    small: int = 0


class Selection(NamedTuple):
    """The layers to measure, and their sizes.

    shape: shape of the transformer.
    batch: examples in a minibatch.
    sequence: whether the transformer is sequence parallel.
    mixture: mixture of experts; with 0 experts it is not measured.
    ring: whether ring attention is measured.
    """

    shape: Shape
    batch: int
    sequence: bool
    mixture: Mixture
    ring: bool


class Case(NamedTuple):
    """Functions of the number of devices: dense layer, divided layer, formula."""

    dense: Callable[[int], CompiledLayer]
    cut: Callable[[int], CompiledLayer]
    formula: Callable[[int], Formula]


def check(selection: Selection, size: int) -> None:
    """Raise BadInput where a layer cannot be divided over `size` devices."""
    if size < 2:
        raise BadInput(
            f"expected 2 devices or more, got --tensor={size}; pass 2 or more, "
            "which are compared with the dense layers on one device"
        )
    shape, mixture = selection.shape, selection.mixture
    tensor_transformer(shape, True, size, sequence=selection.sequence)
    divisible = {"length": shape.length} if selection.ring else {}
    if mixture.experts:
        divisible["experts"] = mixture.experts
        experts.capacity(mixture, selection.batch * shape.length // size)
    for name, count in divisible.items():
        if count % size:
            raise BadInput(
                f"expected --{name} to be divisible by --tensor={size}, got {count}; "
                f"pass a multiple of {size}"
            )


def selected_cases(selection: Selection, seed: int) -> dict[str, Case]:
    """Return the cases of all selected layers by name."""
    shape, batch = selection.shape, selection.batch
    cases = transformer_cases(shape, batch, seed, selection.sequence)
    if selection.mixture.experts:
        cases["experts"] = mixture_case(selection.mixture, batch * shape.length, seed)
    if selection.ring:
        cases["ring"] = ring_case(shape, batch, seed)
    return cases


def transformer_cases(
    shape: Shape, batch: int, seed: int, sequence: bool
) -> dict[str, Case]:
    """Return the cases of a transformer: embedding, block and head."""
    rng = np.random.default_rng(seed)
    params = noisy(transformer(shape, True).init(jax.random.key(seed)), rng)
    wide = batch, shape.length
    inputs, targets = rng.integers(shape.vocabulary, size=(2, *wide), dtype=np.int32)
    stream, weights = rng.standard_normal((2, *wide, shape.width), np.float32)

    def case(name: str) -> Case:
        layer = transformer(shape, True).layers[LAYERS[name]]
        operands = Operands(
            layer_params(layer, params),
            None if name == "embed" else stream,
            Batch(inputs, targets),
            np.float32(1) if name == "head" else weights,
        )

        def cut(size: int) -> CompiledLayer:
            tensor = tensor_transformer(shape, True, size, sequence=sequence)
            layer = tensor.layers[LAYERS[name]]
            specs, partial = (
                layer_params(layer, tensor.specs),
                layer_params(layer, tensor.partial),
            )
            replicated = measurements.REPLICATED
            stream_spec = PartitionSpec(None, AXIS) if sequence else replicated
            out_spec = replicated if name == "head" else stream_spec
            return measurements.cut(
                layer, operands, size, Specs(specs, stream_spec, out_spec, partial)
            )

        dense = measurements.dense(layer, operands)
        formula = transformer_formula(name, shape, batch, sequence)
        return Case(lambda size: dense, cut, lambda size: formula)

    return {name: case(name) for name in LAYERS}


def mixture_case(mixture: Mixture, rows: int, seed: int) -> Case:
    """Return the case of a mixture of experts; each device routes its own rows."""
    rng = np.random.default_rng(seed)
    stream, weights = rng.standard_normal((2, rows, mixture.width), np.float32)
    params = noisy(experts.init_params(mixture, jax.random.key(seed)), rng)
    operands = Operands(params, stream, EMPTY, weights)
    partial = jax.tree.map(lambda leaf: False, params)
    partial["router"]["kernel"] = True
    cut_rows = PartitionSpec(AXIS)
    specs = Specs(experts.specs(AXIS), cut_rows, cut_rows, partial)

    def layer(groups: int, axis: str | None) -> Layer:
        def apply(params, rows_RxD, batch):
            rows_GxRxD = rows_RxD.reshape(groups, -1, mixture.width)
            mixed_GxRxD, _ = experts.experts(params, rows_GxRxD, mixture, axis)
            return mixed_GxRxD.reshape(rows_RxD.shape)

        return Layer((), apply)

    return Case(
        lambda size: measurements.dense(layer(size, None), operands),
        lambda size: measurements.cut(layer(1, AXIS), operands, size, specs),
        lambda size: mixture_formula(mixture, rows, size),
    )


def ring_case(shape: Shape, batch: int, seed: int) -> Case:
    """Return the case of causal attention with positions divided over a ring."""
    rng = np.random.default_rng(seed)
    wide = batch, shape.length, shape.heads
    head_width = shape.width // shape.heads
    qkv = rng.standard_normal((*wide, 3, head_width), np.float32)
    weights = rng.standard_normal((*wide, head_width), np.float32)
    operands = Operands({}, qkv, EMPTY, weights)
    position_spec = PartitionSpec(None, AXIS)

    def dense_attention(params, qkv_BxLxHx3xK, batch):
        return attention(qkv_BxLxHx3xK, True)

    def distributed_attention(params, qkv_BxLxHx3xK, batch):
        queries_keys_values = (qkv_BxLxHx3xK[:, :, :, part] for part in range(3))
        return ring_attention(*queries_keys_values, True, AXIS)

    dense = measurements.dense(Layer((), dense_attention), operands)
    return Case(
        lambda size: dense,
        lambda size: measurements.cut(
            Layer((), distributed_attention),
            operands,
            size,
            Specs({}, position_spec, position_spec, {}),
        ),
        lambda size: ring_formula(shape, batch, size),
    )


def noisy(params: Params, rng: np.random.Generator) -> Params:
    """Add noise, so that no parameter is 0."""
    return jax.tree.map(
        lambda leaf: leaf + rng.normal(0, 0.02, leaf.shape).astype("f4"),
        jax.device_get(params),
    )


def transformer_formula(name: str, shape: Shape, batch: int, sequence: bool) -> Formula:
    """Return the collectives of an embedding, a block or a head."""
    nbytes = 4 * batch * shape.length  # one float32 element per position
    small = nbytes * CROSS_ENTROPY if name == "head" else 0
    return Formula(STREAMS[sequence][name], nbytes * shape.width, small)


def mixture_formula(mixture: Mixture, rows: int, size: int) -> Formula:
    """Return the collectives of a mixture: to the experts and back, in each pass."""
    slots = mixture.experts * experts.capacity(mixture, rows // size)
    return Formula(({ALL_TO_ALL: 2}, {ALL_TO_ALL: 2}), 4 * slots * mixture.width)


def ring_formula(shape: Shape, batch: int, size: int) -> Formula:
    """Return the collectives of ring attention: keys, values, and their gradients."""
    nbytes = 4 * batch * (shape.length // size) * shape.width
    forward = 2 * (size - 1)  # keys and values
    # The backward pass sends keys and values again, and their gradients. On two devices
    # XLA unrolls the loop and keeps the keys and values of the forward pass.
    repeated = forward if size > 2 else 0
    return Formula(({PERMUTE: forward}, {PERMUTE: repeated + 2 * size}), nbytes)
