"""Tensor-parallel transformer (Megatron, Shoeybi 2019), divided over devices.

    norm → f → qkv ║ heads ║ out ═ g → + → norm → f → up ║ hidden ║ down ═ g → +

    ║ slices of heads or hidden units      ═ terms of a sum over devices

Each device of the axis `tensor` has a slice of the heads, of the hidden units and of
the token table. Operator f is the identity forward and an all-reduce backward; operator
g is an all-reduce forward and the identity backward. A block thus has 2 all-reduces
forward and 2 backward, each of B·L·D elements. With sequence=True (Korthikanti 2022)
`tensor` also slices the activations outside f and g, and norms, by positions: f is an
all-gather, g a reduce-scatter, and gradients of norms are summed over devices.

Experts are divided over the same devices, each of which routes its share of the
examples. The axis `sequence` (ring attention) divides positions; its devices have equal
params.
"""

from typing import Any

import jax
from jax.sharding import PartitionSpec

from dml.models.layers.experts import Mixture
from dml.models.layers.partition import check_divisible, partition_over
from dml.models.networks.transformer import Shape, shapes, transformer
from dml.types import BadInput, Tensor
from dml.wire.mesh.axes import COLUMNS, REPLICATED, ROWS

SLICED = {  # leaves divided over devices, by the end of their path
    ("embed", "tokens"): ROWS,
    ("qkv", "kernel"): COLUMNS,
    ("qkv", "bias"): ROWS,
    ("out", "kernel"): ROWS,
    ("up", "kernel"): COLUMNS,
    ("up", "bias"): ROWS,
    ("down", "kernel"): ROWS,
    ("head", "bias"): ROWS,
}


def tensor_transformer(
    shape: Shape,
    causal: bool,
    size: int,
    dtype: str = "float32",
    sequence: bool = False,
    ring: int = 1,
    mixture: Mixture | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return GPT (causal) or BERT, divided over the axes `tensor` and `sequence`.

    The params are initialised by transformer(shape, causal, mixture=mixture).init.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      size: Number of devices of the axis `tensor`.
      dtype: Dtype of the arithmetic.
      sequence: Whether `tensor` also slices activations by positions.
      ring: Number of devices of the axis `sequence`.
      mixture: Experts in place of each feed-forward layer; None: dense.
      dropout: Probability that an element is 0, for batches of KeyedTokens.
    """
    if size < 1:
        raise BadInput(f"expected at least 1 device, got tensor={size}; pass 1 or more")
    check_divisible("heads", shape.heads, size)  # the width is divisible by the heads
    check_divisible("the vocabulary", shape.vocabulary, size)
    if sequence:
        check_divisible("the length", shape.length, size)
    if mixture:
        check_divisible("experts", mixture.experts, size)
    check_divisions(shape, causal, ring, sequence, mixture)
    partition = partition_over(size, sequence, ring)
    layers = transformer(
        shape,
        causal,
        dtype,
        partition=partition,
        mixture=mixture,
        dropout=dropout,
    ).layers

    def spec_of(path: Any, leaf: Any) -> PartitionSpec:
        names = tuple(entry.key for entry in path)
        if "experts" in names:
            return REPLICATED if "router" in names else ROWS
        return SLICED.get(names[-2:], REPLICATED)

    def is_partial(path: Any, spec: PartitionSpec) -> bool:
        if any(entry.key == "router" for entry in path):
            return partition.size > 1  # each device has the gradient of its examples
        # all devices compute the head of BERT for the same rows, the masked positions
        by_positions = causal or path[0].key != "head"
        return partition.sequence and by_positions and spec == REPLICATED

    specs = jax.tree_util.tree_map_with_path(spec_of, shapes(shape, causal, mixture))
    partial = jax.tree_util.tree_map_with_path(
        is_partial, specs, is_leaf=lambda node: isinstance(node, PartitionSpec)
    )
    return Tensor(layers, specs, partial)


def check_divisions(
    shape: Shape, causal: bool, ring: int, sequence: bool, mixture: Mixture | None
) -> None:
    """Raise BadInput if positions or experts cannot be divided.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      ring: Number of devices of the axis `sequence`.
      sequence: Whether `tensor` slices activations by positions.
      mixture: Experts in place of each feed-forward layer, or None.
    """
    if mixture and (sequence or ring > 1):
        raise BadInput(
            "expected all positions of an example on one device, because experts are "
            "used, got divided positions; omit --sequence and the axis sequence"
        )
    if ring > 1 and not causal:
        raise BadInput(
            f"expected a causal network on sequence:{ring}, got BERT; pass sequence:1, "
            "or run gpt.py"
        )
    if shape.length % ring:
        raise BadInput(
            f"expected a length divisible by sequence:{ring}, got {shape.length}; pass "
            f"a multiple of {ring}"
        )
