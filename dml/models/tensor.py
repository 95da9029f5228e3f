"""GRADIENT: tensor parallel (Megatron, Shoeybi 2019): devices have a part of a layer.

    norm → f → qkv ║ heads ║ out ═ g → + → norm → f → up ║ hidden ║ down ═ g → +

    all-reduces of a block: 2 forward (g), 2 backward (f), of B x L x D numbers each

The layers are the dense network's, with fewer heads, hidden units and words; what cuts
them comes in, a Tensor goes out. With sequence=True (Korthikanti 2022) the stream and
what is done to it place by place lie in slices of the places: f is an all-gather, g a
reduce-scatter, and a norm's device finds its gradient's part.
"""

from typing import Any

import jax
from jax.sharding import PartitionSpec

from dml.models.cut import divisible, over
from dml.models.transformer import Shape, shapes, transformer
from dml.types import BadInput, Tensor
from dml.wire.mesh.axes import COLUMNS, ROWS, WHOLE

CUT = {  # leaves, by the last names of their paths; all others are whole
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
    """Cut GPT (causal) or BERT over size devices of the axis `tensor`.

    The params are those of transformer(shape, causal), whose init draws them.
    """
    if size < 1:
        raise BadInput(f"expected at least 1 device, got tensor={size}; pass more")
    divisible("heads", shape.heads, size)  # and so is the width, and 4 of it
    divisible("the vocabulary", shape.vocabulary, size)
    if sequence:
        divisible("the length", shape.length, size)
    cut = over(size, sequence)
    layers = transformer(shape, causal, dtype, cut=cut).layers

    def lies(path: Any, leaf: Any) -> PartitionSpec:
        return CUT.get(tuple(entry.key for entry in path[-2:]), WHOLE)

    def part(path: Any, spec: PartitionSpec) -> bool:
        # BERT's head has the same few rows on all devices
        sliced = causal or path[0].key != "head"
        return cut.sequence and sliced and spec == WHOLE

    specs = jax.tree_util.tree_map_with_path(lies, shapes(shape, causal))
    partial = jax.tree_util.tree_map_with_path(
        part, specs, is_leaf=lambda one: isinstance(one, PartitionSpec)
    )
    return Tensor(layers, specs, partial)
