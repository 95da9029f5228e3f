"""A transformer: an encoder (BERT, Devlin 2019) or a decoder (GPT-2, Radford 2019).

    tokens → embed → block 0 → ... → block n-1 → head → loss
               └────────── table of tokens ───────┘

Both normalise the input of a block's parts, as GPT-2 does; the original BERT normalises
their output. A batch is a Batch: inputs tokens_BxL, targets tokens_BxL (GPT), or a pair
of masked positions_BxM and their tokens_BxM (BERT). With a Cut all sizes are those of
one device. With a Mixture the feed-forward of each block is a mixture of experts; the
stream is then a pair of activations and Routing.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen

from dml.models import experts
from dml.models.attention import attention
from dml.models.cut import (
    AXIS,
    RING,
    WHOLE,
    Cut,
    divisible,
    found,
    offset,
    over,
    own,
    picked,
)
from dml.models.entropy import alike, cross_entropy, log_odds
from dml.models.experts import Mixture
from dml.models.initial import EMBEDDING, initial
from dml.models.layers import layered
from dml.models.ring_attention import ring_attention
from dml.types import BadInput, Batch, Layer, Model, Params
from dml.wire.mesh.conjugate import summed

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


class Routing(NamedTuple):
    """Measures of the routes in all blocks so far; each a sum of means."""

    balance: Any
    dropped: Any  # share of the choices


class Embed(linen.Module):
    """The sum of a vector for each token and one for its position."""

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
        if length * self.cut.ring > most:
            raise BadInput(
                f"expected at most {most} tokens an example, got "
                f"{length * self.cut.ring}; pass a longer --length, or cut the examples"
            )
        if self.cut.sequence:
            divisible("the tokens of an example", length, self.cut.size)
        stream_BxLxD = found(table_VxD, tokens_BxL, self.cut)
        places_LxD = own(places_LxD, length, self.cut)
        return (stream_BxLxD + places_LxD[None]).astype(self.dtype)


class Block(linen.Module):
    """Attention, then a feed-forward or a mixture of experts; each is added."""

    shape: Shape
    causal: bool
    dtype: Any
    cut: Cut
    mixture: Mixture | None = None

    @linen.compact
    def __call__(self, stream: Any) -> Any:
        stream_BxLxD = stream[0] if self.mixture else stream
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
            added_RxD, measures = mixed(params, normed_RxD, count, self.mixture, cut)
            routing = Routing(*map(jnp.add, stream[1], measures))
            return (rows_RxD + added_RxD).reshape(stream_BxLxD.shape), routing
        hidden_RxF = dense(4 * width // cut.size, name="up")(normed_RxD)
        hidden_RxF = linen.gelu(hidden_RxF, approximate=True)
        down = dense(width, name="down", dot_general=product)
        rows_RxD = rows_RxD + down(hidden_RxF)
        return rows_RxD.reshape(stream_BxLxD.shape)


def mixed(
    params: Params, rows_RxD: jax.Array, count: int, mixture: Mixture, cut: Cut
) -> tuple[jax.Array, Routing]:
    """Return the outputs of experts for the rows of `count` examples.

    Every device of `tensor` has all rows, and routes those of its examples.
    """
    size, width = cut.size, rows_RxD.shape[1]
    divisible("the examples of a microbatch", count, size)
    rows_BxLxD, each = rows_RxD.reshape(count, -1, width), count // size
    if size == 1:
        made_BxLxD, measures = experts.experts(params, rows_BxLxD, mixture)
    else:
        own_BxLxD = jax.lax.dynamic_slice_in_dim(rows_BxLxD, offset(cut, each), each)
        made_BxLxD, measures = experts.experts(params, own_BxLxD, mixture, AXIS)
        made_BxLxD = jax.lax.dynamic_update_slice_in_dim(
            jnp.zeros_like(rows_BxLxD), made_BxLxD, offset(cut, each), 0
        )
    routing = Routing(
        measures.balance,
        measures.dropped / (each * rows_BxLxD.shape[1] * mixture.choices),
    )
    if size > 1:
        routing = Routing(*(summed(one / size, AXIS) for one in routing))
    return cut.leave(made_BxLxD.reshape(-1, width), count), routing


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
    shape: Shape,
    causal: bool,
    dtype: str,
    cut: Cut = WHOLE,
    mixture: Mixture | None = None,
) -> dict[str, linen.Module]:
    """Return the modules of the model, in order, by the names of their params."""
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
    blocks = {f"block_{n}": Block(shape, *what, mixture) for n in range(shape.layers)}
    return {"embed": Embed(shape, *what[1:]), **blocks, "head": Head(shape, *what)}


def shapes(shape: Shape, causal: bool, mixture: Mixture | None = None) -> Any:
    """Return the shapes of all params; nothing is allocated."""
    stream: Any = jax.ShapeDtypeStruct((1, 1, shape.width), jnp.float32)
    if mixture:
        number = jax.ShapeDtypeStruct((), jnp.float32)
        stream = stream, Routing(number, number)
    given = {
        "embed": jax.ShapeDtypeStruct((1, 1), jnp.int32),
        "head": jax.ShapeDtypeStruct((1, shape.width), jnp.float32),
    }
    key = jax.random.key(0)
    return {
        name: jax.eval_shape(one.init, key, given.get(name, stream))["params"]
        for name, one in modules(shape, causal, "float32", mixture=mixture).items()
    }


def start(
    shape: Shape, causal: bool, mixture: Mixture | None, key: jax.Array
) -> Params:
    """Draw params as GPT-2 does."""

    def spread(path: tuple[str, ...], wide: tuple[int, ...]) -> float | None:
        if path[-1] == "bias" or len(wide) < 2:
            return None
        # the stream's variance should not grow with the number of summands
        added = 2 * shape.layers if path[-2] in RESIDUALS else 1
        return EMBEDDING / math.sqrt(added)

    return initial(shapes(shape, causal, mixture), key, spread)


def transformer(
    shape: Shape,
    causal: bool,
    dtype: str = "float32",
    remat: bool = False,
    cut: Cut = WHOLE,
    mixture: Mixture | None = None,
) -> Model:
    """Return GPT (causal) or BERT; the loss is the mean over the predicted tokens.

    With a mixture the balance of the blocks, a mean, is added by its weight. A model
    with a cut offers its layers only: scores and metrics need all words.
    """
    parts = modules(shape, causal, dtype, cut, mixture)
    *body, head = parts
    # BERT's head has the few rows to tell, and so has every device all of them.
    last_cut = cut if causal else over(cut.size)

    def run(name: str, params: Mapping[str, Params], given: Any, batch: Batch) -> Any:
        given = batch.inputs if name == "embed" else given
        given = parts[name].apply({"params": params[name]}, given)
        if mixture and name == "embed":
            return given, Routing(jnp.float32(0), jnp.float32(0))
        return given

    def features(params: Mapping[str, Params], stream_BxLxD: Any) -> tuple[Any, ...]:
        rows_RxD = stream_BxLxD.reshape(-1, shape.width)
        features_RxD, bias_V = parts[head].apply({"params": params[head]}, rows_RxD)
        features_RxD = last_cut.enter(features_RxD, len(stream_BxLxD))
        return features_RxD, params["embed"]["tokens"], bias_V

    def told(stream_BxLxD: Any, targets: Any) -> tuple[Any, jax.Array]:
        """Return the predicted positions of the stream, and their tokens."""
        if causal:
            return stream_BxLxD, targets.reshape(-1)
        positions_BxM, tokens_BxM = targets
        return picked(stream_BxLxD, positions_BxM, cut), tokens_BxM.reshape(-1)

    def last(params: Mapping[str, Params], stream: Any, batch: Batch) -> Any:
        stream_BxMxD, targets_R = told(activations(stream), batch.targets)
        operands = jax.tree.map(
            lambda one: alike(one, targets_R), features(params, stream_BxMxD)
        )
        loss = cross_entropy(*operands, targets_R, cut)
        if mixture:
            loss += mixture.weight * stream[1].balance / shape.layers
        return loss

    def activations(stream: Any) -> jax.Array:
        return stream[0] if mixture else stream

    def streamed(params: Params, batch: Batch) -> Any:
        given = None
        for name in body:
            given = run(name, params, given, batch)
        return given

    def scores(params: Params, tokens_BxL: jax.Array) -> jax.Array:
        stream_BxLxD = activations(streamed(params, Batch(tokens_BxL, None)))
        scores_RxV = log_odds(*features(params, stream_BxLxD))
        return scores_RxV.reshape(*tokens_BxL.shape, -1)

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        stream = streamed(params, batch)
        stream_BxMxD, targets_R = told(activations(stream), batch.targets)
        scores_RxV = log_odds(*features(params, stream_BxMxD))
        chances_R = jnp.take_along_axis(
            jax.nn.log_softmax(scores_RxV), targets_R[:, None], axis=1
        )
        measures = {
            "accuracy": (scores_RxV.argmax(axis=1) == targets_R).mean(),
            "cross_entropy": -chances_R.mean(),
        }
        if mixture:
            measures |= {k: v / shape.layers for k, v in stream[1]._asdict().items()}
        return measures

    layers = [Layer((name,), partial(run, name)) for name in body]
    layers.append(Layer((head, "embed"), last))
    return layered(
        layers, partial(start, shape, causal, mixture), metrics, scores, remat
    )
