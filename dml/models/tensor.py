"""GRADIENT: tensor parallel layers (Megatron, Shoeybi 2019), divided over devices.

    norm → f → qkv ║ heads ║ out ═ g → + → norm → f → up ║ hidden ║ down ═ g → +

    all-reduces of a block: 2 forward (g), 2 backward (f), of B x L x D numbers each

The layers are those of the dense network, with fewer heads, hidden units and words on
each device. With sequence=True (Korthikanti 2022) activations between the layers, and
all that is computed for each position alone, are sliced by positions: f is an
all-gather, g a reduce-scatter, and a norm's gradient is a sum over devices.
"""

from typing import Any

import jax
from jax.sharding import PartitionSpec

from dml.models.cut import divisible, over
from dml.models.transformer import Shape, shapes, transformer
from dml.types import BadInput, Tensor
from dml.wire.mesh.axes import COLUMNS, ROWS, WHOLE

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
) -> Tensor:
    """Return GPT (causal) or BERT, divided over size devices of the axis `tensor`.

    The params are those of transformer(shape, causal) and its init.

    Args:
      shape: sizes of the network.
      causal: whether the network is GPT, not BERT.
      size: number of devices.
      dtype: of products.
      sequence: whether activations are sliced by positions, too.
    """
    if size < 1:
        raise BadInput(f"expected at least 1 device, got tensor={size}; pass more")
    divisible("heads", shape.heads, size)  # the width is divisible by the heads
    divisible("the vocabulary", shape.vocabulary, size)
    if sequence:
        divisible("the length", shape.length, size)
    cut = over(size, sequence)
    layers = transformer(shape, causal, dtype, cut=cut).layers

    def spec_of(path: Any, leaf: Any) -> PartitionSpec:
        return CUT.get(tuple(entry.key for entry in path[-2:]), WHOLE)

    def is_partial(path: Any, spec: PartitionSpec) -> bool:
        # the head of BERT computes the same few rows on all devices
        sliced = causal or path[0].key != "head"
        return cut.sequence and sliced and spec == WHOLE

    specs = jax.tree_util.tree_map_with_path(spec_of, shapes(shape, causal))
    partial = jax.tree_util.tree_map_with_path(
        is_partial, specs, is_leaf=lambda one: isinstance(one, PartitionSpec)
    )
    return Tensor(layers, specs, partial)
