"""GRADIENT: a transformer: encoder (BERT, Devlin 2019), decoder (GPT-2, Radford 2019).

    tokens → embed → block 0 → ... → block n-1 → head → loss
               └────────── table of tokens ───────┘

Both norm what goes into a block's parts (GPT-2's way; BERT normed what came out). A
batch is a Batch: inputs tokens_BxL, targets tokens_BxL to tell (GPT), or a pair of
positions_BxM that were masked and tokens_BxM that stood there (BERT). Where a Cut is
given, all sizes are those of what one of its devices has.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.attention import attention
from dml.models.cut import WHOLE, Cut, divisible, found, over, own, picked
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
    cut: Cut

    @linen.compact
    def __call__(self, tokens_BxL: jax.Array) -> jax.Array:
        vocabulary, most, _, width, _ = self.shape
        draw = linen.initializers.normal(EMBEDDING)
        table_VxD = self.param("tokens", draw, (vocabulary // self.cut.size, width))
        places_LxD = self.param("positions", draw, (most, width))
        length = tokens_BxL.shape[1]
        if length > most:
            raise BadInput(
                f"expected at most {most} tokens an example, got {length}; pass a "
                "longer --length, or cut the examples"
            )
        if self.cut.sequence:
            divisible("the tokens of an example", length, self.cut.size)
        stream_BxLxD = found(table_VxD, tokens_BxL, self.cut)
        places_LxD = own(places_LxD[:length], self.cut)
        return (stream_BxLxD + places_LxD[None]).astype(self.dtype)


class Block(linen.Module):
    """What a place takes from others, then what it makes of it; each is added."""

    shape: Shape
    causal: bool
    dtype: Any
    cut: Cut

    @linen.compact
    def __call__(self, stream_BxLxD: jax.Array) -> jax.Array:
        cut, (count, _, width) = self.cut, stream_BxLxD.shape
        dense = partial(linen.Dense, dtype=self.dtype)
        norm = partial(linen.LayerNorm, epsilon=1e-5, dtype=self.dtype)

        def product(*operands: Any, **options: Any) -> jax.Array:
            # order matters: a Dense adds its bias after this, once and not t times
            return cut.leave(jax.lax.dot_general(*operands, **options), count)

        # Rows: products of two axes, and their gradients, are XLA's fastest.
        rows_RxD = stream_BxLxD.reshape(-1, width)
        normed_RxD = cut.enter(norm(name="norm_1")(rows_RxD), count)
        qkv_RxE = dense(3 * width // cut.size, name="qkv")(normed_RxD)
        heads = self.shape.heads // cut.size, 3, width // self.shape.heads
        mixed_BxLxHxK = attention(qkv_RxE.reshape(count, -1, *heads), self.causal)
        mixed_RxE = mixed_BxLxHxK.reshape(len(qkv_RxE), -1)
        rows_RxD = rows_RxD + dense(width, name="out", dot_general=product)(mixed_RxE)
        normed_RxD = cut.enter(norm(name="norm_2")(rows_RxD), count)
        hidden_RxF = dense(4 * width // cut.size, name="up")(normed_RxD)
        hidden_RxF = linen.gelu(hidden_RxF, approximate=True)
        down = dense(width, name="down", dot_general=product)
        rows_RxD = rows_RxD + down(hidden_RxF)
        return rows_RxD.reshape(stream_BxLxD.shape)


class Head(linen.Module):
    """The stream to features, whose products with the table of tokens are log-odds."""

    shape: Shape
    causal: bool
    dtype: Any
    cut: Cut

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


def modules(
    shape: Shape, causal: bool, dtype: str, cut: Cut = WHOLE
) -> dict[str, linen.Module]:
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
    what = causal, DTYPES[dtype], cut
    blocks = {f"block_{n}": Block(shape, *what) for n in range(shape.layers)}
    return {"embed": Embed(shape, *what[1:]), **blocks, "head": Head(shape, *what)}


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
    shape: Shape,
    causal: bool,
    dtype: str = "float32",
    remat: bool = False,
    cut: Cut = WHOLE,
) -> Model:
    """Make GPT (causal) or BERT; the loss is the mean over the tokens to tell.

    Of a model that is cut only layers are of use: scores and metrics need all words.
    """
    parts = modules(shape, causal, dtype, cut)
    *body, head = parts
    # BERT's head has the few rows to tell, and so has every device all of them.
    last_cut = cut if causal else over(cut.size)

    def run(name: str, params: Mapping[str, Params], given: Any, batch: Batch) -> Any:
        given = batch.inputs if name == "embed" else given
        return parts[name].apply({"params": params[name]}, given)

    def features(params: Mapping[str, Params], stream_BxLxD: Any) -> tuple[Any, ...]:
        rows_RxD = stream_BxLxD.reshape(-1, shape.width)
        features_RxD, bias_V = parts[head].apply({"params": params[head]}, rows_RxD)
        features_RxD = last_cut.enter(features_RxD, len(stream_BxLxD))
        return features_RxD, params["embed"]["tokens"], bias_V

    def told(stream_BxLxD: Any, targets: Any) -> tuple[Any, jax.Array]:
        """Return the places to tell and what is there."""
        if causal:
            return stream_BxLxD, targets.reshape(-1)
        positions_BxM, tokens_BxM = targets
        return picked(stream_BxLxD, positions_BxM, cut), tokens_BxM.reshape(-1)

    def last(params: Mapping[str, Params], stream_BxLxD: Any, batch: Batch) -> Any:
        stream_BxMxD, targets_R = told(stream_BxLxD, batch.targets)
        operands = jax.tree.map(
            lambda one: alike(one, targets_R), features(params, stream_BxMxD)
        )
        return cross_entropy(*operands, targets_R, cut)

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
