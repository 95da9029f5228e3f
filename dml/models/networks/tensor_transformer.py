"""Tensor-parallel transformer (Megatron, Shoeybi 2019), divided over devices.

    norm → f → qkv ║ heads ║ out ═ g → + → norm → f → up ║ hidden ║ down ═ g → +

    all-reduces of a block: 2 forward (g), 2 backward (f), of B x L x D numbers each

The layers are those of the dense network, with a slice of the heads, hidden units and
words on each device. With sequence=True (Korthikanti 2022) the activations between
these layers, and norms, are sliced by positions: f is an all-gather, g a
reduce-scatter, and a norm's gradient is a sum over devices.

Experts are divided over the same devices, each of which routes its share of the
examples. Positions are divided over the axis `sequence`, whose devices have equal
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

CUT = {  # sliced leaves, by the last names of their paths; all others are replicated
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
) -> Tensor:
    """Return GPT (causal) or BERT, divided over the axes `tensor` and `sequence`.

    The params are those of transformer(shape, causal) and its init.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      size: Number of devices of `tensor`.
      dtype: Dtype of the arithmetic.
      sequence: Whether `tensor` also slices activations by positions.
      ring: Number of devices of `sequence`.
      mixture: Experts in place of each feed-forward; None: dense.
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
    cut = partition_over(size, sequence, ring)
    layers = transformer(shape, causal, dtype, cut=cut, mixture=mixture).layers

    def spec_of(path: Any, leaf: Any) -> PartitionSpec:
        names = tuple(entry.key for entry in path)
        if "experts" in names:
            return REPLICATED if "router" in names else ROWS
        return CUT.get(names[-2:], REPLICATED)

    def is_partial(path: Any, spec: PartitionSpec) -> bool:
        if any(entry.key == "router" for entry in path):
            return cut.size > 1  # each device computes the gradient of its examples
        # the head of BERT computes the same few rows on all devices
        sliced = causal or path[0].key != "head"
        return cut.sequence and sliced and spec == REPLICATED

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
      ring: Number of devices of `sequence`.
      sequence: Whether `tensor` slices activations by positions.
      mixture: Experts in place of each feed-forward, or None.
    """
    if mixture and (sequence or ring > 1):
        raise BadInput(
            "expected experts with all positions of an example on one device, got "
            "divided positions; omit --sequence and the axis sequence"
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
