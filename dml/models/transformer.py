"""GRADIENT: a transformer: encoder (BERT, Devlin 2019), decoder (GPT-2, Radford 2019).

    tokens → embed → block 0 → ... → block n-1 → head → loss
               └────────── table of tokens ───────┘

Both norm what goes into a block's parts (GPT-2's way; BERT normed what came out). A
batch is a Batch: inputs tokens_BxL, targets tokens_BxL to tell (GPT), or a pair of
positions_BxM that were masked and tokens_BxM that stood there (BERT).
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.attention import attention
from dml.models.entropy import alike, cross_entropy, log_odds
from dml.models.initial import EMBEDDING, initial
from dml.models.layers import layered
from dml.types import BadInput, Batch, Layer, Model, Params

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}  # of the arithmetic
RESIDUALS = ("out", "down")  # the kernels whose products are added to the stream


class Shape(NamedTuple):
    """What a transformer is made of: Shape(30522, 128, *SIZES["bert"]["base"])."""

    vocabulary: int
    length: int  # the most tokens of an example
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
    """Tokens to vectors: what each is, and where."""

    shape: Shape
    dtype: Any

    @linen.compact
    def __call__(self, tokens_BxL: jax.Array) -> jax.Array:
        vocabulary, most, _, width, _ = self.shape
        draw = linen.initializers.normal(EMBEDDING)
        table_VxD = self.param("tokens", draw, (vocabulary, width))
        places_LxD = self.param("positions", draw, (most, width))
        length = tokens_BxL.shape[1]
        if length > most:
            raise BadInput(
                f"expected at most {most} tokens an example, got {length}; pass a "
                "longer --length, or cut the examples"
            )
        return (table_VxD[tokens_BxL] + places_LxD[None, :length]).astype(self.dtype)


class Block(linen.Module):
    """What a place takes from others, then what it makes of it; each is added."""

    shape: Shape
    causal: bool
    dtype: Any

    @linen.compact
    def __call__(self, stream_BxLxD: jax.Array) -> jax.Array:
        count, length, width = stream_BxLxD.shape
        dense = partial(linen.Dense, dtype=self.dtype)
        norm = partial(linen.LayerNorm, epsilon=1e-5, dtype=self.dtype)
        # Rows: products of two axes, and their gradients, are XLA's fastest.
        rows_RxD = stream_BxLxD.reshape(-1, width)
        qkv_RxE = dense(3 * width, name="qkv")(norm(name="norm_1")(rows_RxD))
        heads = (count, length, self.shape.heads, 3, width // self.shape.heads)
        mixed_BxLxHxK = attention(qkv_RxE.reshape(heads), self.causal)
        mixed_RxD = mixed_BxLxHxK.reshape(rows_RxD.shape)
        rows_RxD = rows_RxD + dense(width, name="out")(mixed_RxD)
        hidden_RxF = dense(4 * width, name="up")(norm(name="norm_2")(rows_RxD))
        hidden_RxF = linen.gelu(hidden_RxF, approximate=True)
        rows_RxD = rows_RxD + dense(width, name="down")(hidden_RxF)
        return rows_RxD.reshape(stream_BxLxD.shape)


class Head(linen.Module):
    """The stream to features, whose products with the table of tokens are log-odds."""

    shape: Shape
    causal: bool
    dtype: Any

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
        return rows_RxD, self.param("bias", zeros, (self.shape.vocabulary,))


def modules(shape: Shape, causal: bool, dtype: str) -> dict[str, linen.Module]:
    """Return what makes the model, in order, by the names of its params."""
    if min(shape) < 1 or shape.width % shape.heads:
        raise BadInput(
            f"expected sizes of at least 1 and a width of whole heads, got {shape}; "
            f"pass a width that is a multiple of heads={shape.heads}"
        )
    if dtype not in DTYPES:
        raise BadInput(
            f"expected a dtype of {', '.join(DTYPES)}, got {dtype!r}; pass one of them"
        )
    kind = DTYPES[dtype]
    blocks = {f"block_{n}": Block(shape, causal, kind) for n in range(shape.layers)}
    head = Head(shape, causal, kind)
    return {"embed": Embed(shape, kind), **blocks, "head": head}


def shapes(shape: Shape, causal: bool) -> Any:
    """Return the shapes of all params; nothing is allocated."""
    stream = jax.ShapeDtypeStruct((1, 1, shape.width), jnp.float32)
    given = {
        "embed": jax.ShapeDtypeStruct((1, 1), jnp.int32),
        "head": jax.ShapeDtypeStruct((1, shape.width), jnp.float32),
    }
    key = jax.random.key(0)
    return {
        name: jax.eval_shape(one.init, key, given.get(name, stream))["params"]
        for name, one in modules(shape, causal, "float32").items()
    }


def start(shape: Shape, causal: bool, key: jax.Array) -> Params:
    """Draw params as GPT-2 does."""

    def spread(path: tuple[str, ...], wide: tuple[int, ...]) -> float | None:
        if len(wide) < 2:
            return None
        # the stream's spread should not grow with what is added to it
        added = 2 * shape.layers if path[-2] in RESIDUALS else 1
        return EMBEDDING / math.sqrt(added)

    return initial(shapes(shape, causal), key, spread)


def transformer(
    shape: Shape, causal: bool, dtype: str = "float32", remat: bool = False
) -> Model:
    """Make GPT (causal) or BERT; the loss is the mean over the tokens to tell."""
    parts = modules(shape, causal, dtype)
    *body, head = parts

    def run(name: str, params: Mapping[str, Params], given: Any, batch: Batch) -> Any:
        given = batch.inputs if name == "embed" else given
        return parts[name].apply({"params": params[name]}, given)

    def features(params: Mapping[str, Params], stream_BxLxD: Any) -> tuple[Any, ...]:
        rows_RxD = stream_BxLxD.reshape(-1, shape.width)
        features_RxD, bias_V = parts[head].apply({"params": params[head]}, rows_RxD)
        return features_RxD, params["embed"]["tokens"], bias_V

    def told(stream_BxLxD: Any, targets: Any) -> tuple[Any, jax.Array]:
        """Return the places to tell and what is there."""
        if causal:
            return stream_BxLxD, targets.reshape(-1)
        positions_BxM, tokens_BxM = targets
        at_BxMx1 = positions_BxM[:, :, None]
        return jnp.take_along_axis(stream_BxLxD, at_BxMx1, axis=1), tokens_BxM.reshape(
            -1
        )

    def last(params: Mapping[str, Params], stream_BxLxD: Any, batch: Batch) -> Any:
        stream_BxMxD, targets_R = told(stream_BxLxD, batch.targets)
        operands = jax.tree.map(
            lambda one: alike(one, targets_R), features(params, stream_BxMxD)
        )
        return cross_entropy(*operands, targets_R)

    def stream(params: Params, batch: Batch) -> Any:
        given = None
        for name in body:
            given = run(name, params, given, batch)
        return given

    def scores(params: Params, tokens_BxL: jax.Array) -> jax.Array:
        stream_BxLxD = stream(params, Batch(tokens_BxL, None))
        scores_RxV = log_odds(*features(params, stream_BxLxD))
        return scores_RxV.reshape(*tokens_BxL.shape, -1)

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        stream_BxMxD, targets_R = told(stream(params, batch), batch.targets)
        scores_RxV = log_odds(*features(params, stream_BxMxD))
        chances_R = jnp.take_along_axis(
            jax.nn.log_softmax(scores_RxV), targets_R[:, None], axis=1
        )
        return {
            "accuracy": (scores_RxV.argmax(axis=1) == targets_R).mean(),
            "cross_entropy": -chances_R.mean(),
        }

    layers = [Layer((name,), partial(run, name)) for name in body]
    layers.append(Layer((head, "embed"), last))
    return layered(layers, partial(start, shape, causal), metrics, scores, remat)
