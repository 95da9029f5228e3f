"""The layers that `tensor.py` measures: dense, cut over devices, and their formulas.

A transformer's layers are cut by Megatron's scheme. A mixture of experts is cut by
experts and rows, attention by places in a ring.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import tensor_formulas as formulas
import tensor_parts as parts
from jax.sharding import PartitionSpec
from tensor_formulas import Formula
from tensor_parts import Lies, Operands, Part

from dml.models import experts
from dml.models.attention import attention
from dml.models.cut import AXIS
from dml.models.experts import Mixture
from dml.models.layers import read
from dml.models.ring_attention import ring_attention
from dml.models.tensor import tensor_transformer
from dml.models.transformer import Shape, transformer
from dml.types import BadInput, Batch, Layer, Params

PLACES = {"embed": 0, "block": 1, "head": -1}  # among the layers of a transformer
EMPTY = Batch(np.zeros(0), np.zeros(0))


class Wanted(NamedTuple):
    """The layers to measure, and their sizes."""

    shape: Shape
    batch: int
    sequence: bool  # the stream of the transformer is cut by places
    mixture: Mixture  # of 0 experts: none
    ring: bool


class Case(NamedTuple):
    """A layer by number of devices: the dense reference, the cut layer, the formula."""

    dense: Callable[[int], Part]
    cut: Callable[[int], Part]
    formula: Callable[[int], Formula]


def check(wanted: Wanted, size: int) -> None:
    """Raise where a layer cannot be cut over `size` devices."""
    shape, mixture = wanted.shape, wanted.mixture
    tensor_transformer(shape, True, size, sequence=wanted.sequence)
    shared = {"length": shape.length} if wanted.ring else {}
    if mixture.experts:
        shared["experts"] = mixture.experts
        experts.capacity(mixture, wanted.batch * shape.length, size)
    for name, count in shared.items():
        if count % size:
            raise BadInput(
                f"expected --{name} to be divisible by --tensor={size}, got {count}; "
                f"pass a multiple of {size}"
            )


def measured(wanted: Wanted, seed: int) -> dict[str, Case]:
    """Return the layers by name."""
    shape, batch = wanted.shape, wanted.batch
    found = layers(shape, batch, seed, wanted.sequence)
    if wanted.mixture.experts:
        found["experts"] = mixture(wanted.mixture, batch * shape.length, seed)
    if wanted.ring:
        found["ring"] = ring(shape, batch, seed)
    return found


def layers(shape: Shape, batch: int, seed: int, sequence: bool) -> dict[str, Case]:
    """Return the layers of a transformer."""
    rng = np.random.default_rng(seed)
    params = noisy(transformer(shape, True).init(jax.random.key(seed)), rng)
    wide = batch, shape.length
    inputs, targets = rng.integers(shape.vocabulary, size=(2, *wide), dtype=np.int32)
    stream, seen = rng.standard_normal((2, *wide, shape.width), np.float32)

    def case(name: str) -> Case:
        layer = transformer(shape, True).layers[PLACES[name]]
        given = Operands(
            read(layer, params),
            None if name == "embed" else stream,
            Batch(inputs, targets),
            np.float32(1) if name == "head" else seen,
        )

        def cut(size: int) -> Part:
            tensor = tensor_transformer(shape, True, size, sequence=sequence)
            layer = tensor.layers[PLACES[name]]
            specs, partial = read(layer, tensor.specs), read(layer, tensor.partial)
            places = PartitionSpec(None, AXIS) if sequence else parts.WHOLE
            out = parts.WHOLE if name == "head" else places
            return parts.cut(layer, given, size, Lies(specs, places, out, partial))

        dense = parts.dense(layer, given)
        formula = formulas.transformer(name, shape, batch, sequence)
        return Case(lambda size: dense, cut, lambda size: formula)

    return {name: case(name) for name in PLACES}


def mixture(mixture: Mixture, rows: int, seed: int) -> Case:
    """Return a mixture of experts; each device routes its own rows."""
    rng = np.random.default_rng(seed)
    stream, seen = rng.standard_normal((2, rows, mixture.width), np.float32)
    params = noisy(experts.start(mixture, jax.random.key(seed)), rng)
    given = Operands(params, stream, EMPTY, seen)
    partial = jax.tree.map(lambda leaf: False, params)
    partial["router"]["kernel"] = True
    cut_rows = PartitionSpec(AXIS)
    lies = Lies(experts.specs(AXIS), cut_rows, cut_rows, partial)

    def dense(size: int) -> Part:
        def apply(params, rows_RxD, batch):
            return experts.dense_experts(params, rows_RxD, mixture, size)[0]

        return parts.dense(Layer((), apply), given)

    def cut(size: int) -> Part:
        def apply(params, rows_RxD, batch):
            return experts.experts(params, rows_RxD, mixture, AXIS)[0]

        return parts.cut(Layer((), apply), given, size, lies)

    return Case(dense, cut, lambda size: formulas.experts(mixture, rows, size))


def ring(shape: Shape, batch: int, seed: int) -> Case:
    """Return causal attention over places that lie on a ring of devices."""
    rng = np.random.default_rng(seed)
    wide = batch, shape.length, shape.heads
    each = shape.width // shape.heads
    qkv = rng.standard_normal((*wide, 3, each), np.float32)
    seen = rng.standard_normal((*wide, each), np.float32)
    given = Operands({}, qkv, EMPTY, seen)
    places = PartitionSpec(None, AXIS)

    def whole(params, qkv_BxLxHx3xK, batch):
        return attention(qkv_BxLxHx3xK, True)

    def around(params, qkv_BxLxHx3xK, batch):
        three = (qkv_BxLxHx3xK[:, :, :, part] for part in range(3))
        return ring_attention(*three, True, AXIS)

    dense = parts.dense(Layer((), whole), given)
    return Case(
        lambda size: dense,
        lambda size: parts.cut(
            Layer((), around), given, size, Lies({}, places, places, {})
        ),
        lambda size: formulas.ring(shape, batch, size),
    )


def noisy(params: Params, rng: np.random.Generator) -> Params:
    """Add noise, so that no parameter is 0."""
    return jax.tree.map(
        lambda leaf: leaf + rng.normal(0, 0.02, leaf.shape).astype("f4"),
        jax.device_get(params),
    )
