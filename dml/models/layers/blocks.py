"""The modules of a transformer: Embed, Block and Head.

With a Partition all sizes are those of one device. With a Mixture the feed-forward of a
block is a mixture of experts; its stream is then a pair of activations and Routing.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.initial import EMBEDDING
from dml.models.layers import experts
from dml.models.layers.attention import attention
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

    vocabulary: int
    length: int  # greatest number of tokens in an example
    layers: int
    width: int
    heads: int


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
    cut: Partition

    @linen.compact
    def __call__(self, tokens_BxL: jax.Array) -> jax.Array:
        vocabulary, most_tokens, _, width, _ = self.shape
        draw = linen.initializers.normal(EMBEDDING)
        table_VxD = self.param("tokens", draw, (vocabulary // self.cut.size, width))
        places_LxD = self.param("positions", draw, (most_tokens, width))
        length = tokens_BxL.shape[1]
        if length * self.cut.ring > most_tokens:
            raise BadInput(
                f"expected at most {most_tokens} tokens an example, got "
                f"{length * self.cut.ring}; pass a longer --length, or shorter examples"
            )
        if self.cut.sequence:
            check_divisible("the tokens of an example", length, self.cut.size)
        stream_BxLxD = look_up(table_VxD, tokens_BxL, self.cut)
        places_LxD = local_positions(places_LxD, length, self.cut)
        return (stream_BxLxD + places_LxD[None]).astype(self.dtype)


class Block(linen.Module):
    """Attention, then a feed-forward or a mixture of experts; both are residual."""

    shape: Shape
    causal: bool
    dtype: Any
    cut: Partition
    mixture: Mixture | None = None

    @linen.compact
    def __call__(self, stream: Any) -> Any:
        stream_BxLxD = stream[0] if self.mixture else stream
        cut, (count, _, width) = self.cut, stream_BxLxD.shape
        dense = partial(linen.Dense, dtype=self.dtype)
        norm = partial(linen.LayerNorm, epsilon=1e-5, dtype=self.dtype)

        def product(*operands: Any, **options: Any) -> jax.Array:
            # order matters: Dense adds its bias to the sum over devices, not before
            return cut.leave(jax.lax.dot_general(*operands, **options), count)

        # two axes: XLA's matrix products are faster than its products of three axes
        rows_RxD = stream_BxLxD.reshape(-1, width)
        normed_RxD = cut.enter(norm(name="norm_1")(rows_RxD), count)
        qkv_RxE = dense(3 * width // cut.size, name="qkv")(normed_RxD)
        heads = self.shape.heads // cut.size, 3, width // self.shape.heads
        qkv_BxLxHx3xK = qkv_RxE.reshape(count, -1, *heads)
        if cut.ring > 1:
            queries_keys_values = (qkv_BxLxHx3xK[:, :, :, part] for part in range(3))
            mixed_BxLxHxK = ring_attention(*queries_keys_values, self.causal, RING)
        else:
            mixed_BxLxHxK = attention(qkv_BxLxHx3xK, self.causal)
        mixed_RxE = mixed_BxLxHxK.reshape(len(qkv_RxE), -1)
        rows_RxD = rows_RxD + dense(width, name="out", dot_general=product)(mixed_RxE)
        normed_RxD = cut.enter(norm(name="norm_2")(rows_RxD), count)
        if self.mixture:
            zeros = partial(jnp.zeros_like, dtype=jnp.float32)
            like = experts.shapes(self.mixture, cut.size)
            params = self.param("experts", lambda key: jax.tree.map(zeros, like))
            added_RxD, measures = mixture_output(
                params, normed_RxD, count, self.mixture, cut
            )
            routing = Routing(*map(jnp.add, stream[1], measures))
            return (rows_RxD + added_RxD).reshape(stream_BxLxD.shape), routing
        hidden_RxF = dense(4 * width // cut.size, name="up")(normed_RxD)
        hidden_RxF = linen.gelu(hidden_RxF, approximate=True)
        down = dense(width, name="down", dot_general=product)
        rows_RxD = rows_RxD + down(hidden_RxF)
        return rows_RxD.reshape(stream_BxLxD.shape)


class Head(linen.Module):
    """Features of the stream, whose products with the token table are logits."""

    shape: Shape
    causal: bool
    dtype: Any
    cut: Partition

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
        words = self.shape.vocabulary // self.cut.size
        return rows_RxD, self.param("bias", zeros, (words,))
