"""The modules of a transformer: Embed, Block and Head.

The stream is the array of activations, BxLxD, to which blocks add their outputs. With a
Partition each module computes the slice of one device. With a Mixture the feed-forward
of a block is a mixture of experts, and the stream is a pair of activations and Routing.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.initial import EMBEDDING
from dml.models.layers import experts
from dml.models.layers.attention import attention
from dml.models.layers.dropout import Drop, keep_all
from dml.models.layers.experts import Mixture, Routing, mixture_output
from dml.models.layers.partition import (
    RING,
    Partition,
    check_divisible,
    local_positions,
    look_up,
)
from dml.models.layers.ring_attention import ring_attention
from dml.types import BadInput


class Shape(NamedTuple):
    """The sizes of a transformer: Shape(30522, 128, *SIZES["bert"]["base"])."""

    vocabulary: int  # number of tokens
    length: int  # maximum number of tokens in an example
    layers: int  # number of blocks
    width: int  # length of a token's vector
    heads: int  # number of attention heads in a block


SIZES = {  # layers, width, heads
    "bert": {
        "tiny": (2, 128, 2),
        "mini": (4, 256, 4),
        "base": (12, 768, 12),
        "large": (24, 1024, 16),
    },
    "gpt": {
        "tiny": (2, 128, 2),
        "mini": (4, 256, 4),
        "small": (12, 768, 12),
        "medium": (24, 1024, 16),
    },
}


class Embed(linen.Module):
    """The sum of a token's vector and its position's vector."""

    shape: Shape
    dtype: Any
    partition: Partition

    @linen.compact
    def __call__(self, tokens_BxL: jax.Array, drop: Drop = keep_all) -> jax.Array:
        vocabulary, max_tokens, _, width, _ = self.shape
        draw = linen.initializers.normal(EMBEDDING)
        table_VxD = self.param(
            "tokens", draw, (vocabulary // self.partition.size, width)
        )
        positions_LxD = self.param("positions", draw, (max_tokens, width))
        length = tokens_BxL.shape[1]
        tokens_per_example = length * self.partition.ring
        if tokens_per_example > max_tokens:
            raise BadInput(
                f"expected at most {max_tokens} tokens per example, got "
                f"{tokens_per_example}; pass a longer --length, or shorter examples"
            )
        if self.partition.sequence:
            check_divisible("the tokens of an example", length, self.partition.size)
        stream_BxLxD = look_up(table_VxD, tokens_BxL, self.partition)
        positions_LxD = local_positions(positions_LxD, length, self.partition)
        stream_BxLxD = (stream_BxLxD + positions_LxD[None]).astype(self.dtype)
        return drop(stream_BxLxD.reshape(-1, width), 0).reshape(stream_BxLxD.shape)


class Block(linen.Module):
    """Attention, then a feed-forward or a mixture of experts; both are residual."""

    shape: Shape
    causal: bool
    dtype: Any
    partition: Partition
    mixture: Mixture | None = None

    @linen.compact
    def __call__(self, stream: Any, drop: Drop = keep_all) -> Any:
        stream_BxLxD = stream[0] if self.mixture else stream
        partition = self.partition
        examples, _, width = stream_BxLxD.shape
        dense = partial(linen.Dense, dtype=self.dtype)
        norm = partial(linen.LayerNorm, epsilon=1e-5, dtype=self.dtype)

        def summed_product(*operands: Any, **options: Any) -> jax.Array:
            # order matters: Dense adds its bias to the sum over devices, not before
            return partition.leave(jax.lax.dot_general(*operands, **options), examples)

        # two axes: XLA's matrix products are faster than its products of three axes
        rows_RxD = stream_BxLxD.reshape(-1, width)
        normed_RxD = partition.enter(norm(name="norm_1")(rows_RxD), examples)
        qkv_RxE = dense(3 * width // partition.size, name="qkv")(normed_RxD)
        heads = self.shape.heads // partition.size, 3, width // self.shape.heads
        qkv_BxLxHx3xK = qkv_RxE.reshape(examples, -1, *heads)
        if partition.ring > 1:
            queries_keys_values = (qkv_BxLxHx3xK[:, :, :, part] for part in range(3))
            mixed_BxLxHxK = ring_attention(*queries_keys_values, self.causal, RING)
        else:
            mixed_BxLxHxK = attention(qkv_BxLxHx3xK, self.causal)
        mixed_RxE = mixed_BxLxHxK.reshape(len(qkv_RxE), -1)
        out = dense(width, name="out", dot_general=summed_product)
        rows_RxD = rows_RxD + drop(out(mixed_RxE), 0)
        normed_RxD = partition.enter(norm(name="norm_2")(rows_RxD), examples)
        if self.mixture:
            zeros = partial(jnp.zeros_like, dtype=jnp.float32)
            like = experts.shapes(self.mixture, partition.size)
            params = self.param("experts", lambda key: jax.tree.map(zeros, like))
            update_RxD, measures = mixture_output(
                params, normed_RxD, examples, self.mixture, partition
            )
            routing = Routing(*map(jnp.add, stream[1], measures))
            return (rows_RxD + drop(update_RxD, 1)).reshape(stream_BxLxD.shape), routing
        hidden_RxF = dense(4 * width // partition.size, name="up")(normed_RxD)
        hidden_RxF = linen.gelu(hidden_RxF, approximate=True)
        down = dense(width, name="down", dot_general=summed_product)
        rows_RxD = rows_RxD + drop(down(hidden_RxF), 1)
        return rows_RxD.reshape(stream_BxLxD.shape)


class Head(linen.Module):
    """Features whose inner products with the rows of the token table are logits.

    BERT also has a bias per token; for GPT the second result is None.
    """

    shape: Shape
    causal: bool
    dtype: Any
    partition: Partition

    @linen.compact
    def __call__(self, rows_RxD: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        norm = partial(linen.LayerNorm, epsilon=1e-5, dtype=self.dtype)
        rows_RxD = norm(name="norm")(rows_RxD)
        if self.causal:
            return rows_RxD, None
        rows_RxD = linen.Dense(self.shape.width, dtype=self.dtype, name="dense")(
            rows_RxD
        )
        rows_RxD = norm(name="dense_norm")(linen.gelu(rows_RxD, approximate=True))
        zeros = linen.initializers.zeros
        words = self.shape.vocabulary // self.partition.size
        return rows_RxD, self.param("bias", zeros, (words,))
