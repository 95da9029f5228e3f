"""A transformer: an encoder (BERT, Devlin 2019) or a decoder (GPT-2, Radford 2019).

    tokens → embed → block 0 → ... → block n-1 → head → loss
               └────────── table of tokens ───────┘

Both normalise the input of a block's parts, as GPT-2 does; the original BERT normalises
their output. A batch is a Batch: inputs tokens_BxL, targets tokens_BxL (GPT), or a pair
of masked positions_BxM and their tokens_BxM (BERT).
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.initial import EMBEDDING, initial
from dml.models.layered import layered
from dml.models.layers.blocks import SIZES as SIZES
from dml.models.layers.blocks import Block, Embed, Head, Shape
from dml.models.layers.cross_entropy import alike, cross_entropy, logits
from dml.models.layers.experts import Mixture, Routing
from dml.models.layers.partition import WHOLE, Partition, partition_over, take_positions
from dml.types import BadInput, Batch, Layer, Model, Params

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}  # of the arithmetic
RESIDUALS = ("out", "down")  # the kernels whose products are added to the stream


def modules(
    shape: Shape,
    causal: bool,
    dtype: str,
    cut: Partition = WHOLE,
    mixture: Mixture | None = None,
) -> dict[str, linen.Module]:
    """Return the modules of the model, in order, by the names of their params.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      dtype: Of the arithmetic, a key of DTYPES.
      cut: Partition of a device; by default the full network.
      mixture: Experts in place of each feed-forward; None: dense.
    """
    if min(shape) < 1 or shape.width % shape.heads:
        raise BadInput(
            f"expected sizes of at least 1, heads that divide the width, got {shape}; "
            f"pass a width that is a multiple of heads={shape.heads}"
        )
    if dtype not in DTYPES:
        raise BadInput(
            f"expected a dtype of {', '.join(DTYPES)}, got {dtype!r}; pass one of them"
        )
    common = DTYPES[dtype], cut
    blocks = {
        f"block_{n}": Block(shape, causal, *common, mixture)
        for n in range(shape.layers)
    }
    head = Head(shape, causal, *common)
    return {"embed": Embed(shape, *common), **blocks, "head": head}


def shapes(shape: Shape, causal: bool, mixture: Mixture | None = None) -> Any:
    """Return the shapes of all params; nothing is allocated."""
    stream: Any = jax.ShapeDtypeStruct((1, 1, shape.width), jnp.float32)
    if mixture:
        number = jax.ShapeDtypeStruct((), jnp.float32)
        stream = stream, Routing(number, number)
    inputs = {
        "embed": jax.ShapeDtypeStruct((1, 1), jnp.int32),
        "head": jax.ShapeDtypeStruct((1, shape.width), jnp.float32),
    }
    key = jax.random.key(0)
    return {
        name: jax.eval_shape(module.init, key, inputs.get(name, stream))["params"]
        for name, module in modules(shape, causal, "float32", mixture=mixture).items()
    }


def start(
    shape: Shape, causal: bool, mixture: Mixture | None, key: jax.Array
) -> Params:
    """Draw params as GPT-2 does.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      mixture: Experts in place of each feed-forward; None: dense.
      key: Random key.
    """

    def spread(path: tuple[str, ...], sizes: tuple[int, ...]) -> float | None:
        if path[-1] == "bias" or len(sizes) < 2:
            return None
        # the variance of the stream should not grow with the number of layers
        added = 2 * shape.layers if path[-2] in RESIDUALS else 1
        return EMBEDDING / math.sqrt(added)

    return initial(shapes(shape, causal, mixture), key, spread)


def transformer(
    shape: Shape,
    causal: bool,
    dtype: str = "float32",
    remat: bool = False,
    cut: Partition = WHOLE,
    mixture: Mixture | None = None,
) -> Model:
    """Return GPT (causal) or BERT; the loss is the mean over the predicted tokens.

    With a mixture the loss includes the mean balance of the blocks, times its weight. A
    model with a partition has layers only: scores and metrics need all words.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      dtype: Of the arithmetic, a key of DTYPES.
      remat: Whether the backward pass recomputes the inside of each layer.
      cut: Partition of a device; by default the full network.
      mixture: Experts in place of each feed-forward; None: dense.
    """
    parts = modules(shape, causal, dtype, cut, mixture)
    *body, head = parts
    # BERT's head reads few rows, and every device has all of them.
    last_cut = cut if causal else partition_over(cut.size)

    def run(name: str, params: Mapping[str, Params], inputs: Any, batch: Batch) -> Any:
        inputs = batch.inputs if name == "embed" else inputs
        stream = parts[name].apply({"params": params[name]}, inputs)
        if mixture and name == "embed":
            return stream, Routing(jnp.float32(0), jnp.float32(0))
        return stream

    def features(params: Mapping[str, Params], stream_BxLxD: Any) -> tuple[Any, ...]:
        rows_RxD = stream_BxLxD.reshape(-1, shape.width)
        features_RxD, bias_V = parts[head].apply({"params": params[head]}, rows_RxD)
        features_RxD = last_cut.enter(features_RxD, len(stream_BxLxD))
        return features_RxD, params["embed"]["tokens"], bias_V

    def predicted(stream_BxLxD: Any, targets: Any) -> tuple[Any, jax.Array]:
        """Return the predicted positions of the stream, and their tokens."""
        if causal:
            return stream_BxLxD, targets.reshape(-1)
        positions_BxM, tokens_BxM = targets
        return take_positions(stream_BxLxD, positions_BxM, cut), tokens_BxM.reshape(-1)

    def last(params: Mapping[str, Params], stream: Any, batch: Batch) -> Any:
        stream_BxMxD, targets_R = predicted(activations(stream), batch.targets)
        operands = jax.tree.map(
            lambda array: alike(array, targets_R), features(params, stream_BxMxD)
        )
        loss = cross_entropy(*operands, targets_R, cut)
        if mixture:
            loss += mixture.weight * stream[1].balance / shape.layers
        return loss

    def activations(stream: Any) -> jax.Array:
        return stream[0] if mixture else stream

    def streamed(params: Params, batch: Batch) -> Any:
        stream = None
        for name in body:
            stream = run(name, params, stream, batch)
        return stream

    def scores(params: Params, tokens_BxL: jax.Array) -> jax.Array:
        stream_BxLxD = activations(streamed(params, Batch(tokens_BxL, None)))
        scores_RxV = logits(*features(params, stream_BxLxD))
        return scores_RxV.reshape(*tokens_BxL.shape, -1)

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        stream = streamed(params, batch)
        stream_BxMxD, targets_R = predicted(activations(stream), batch.targets)
        scores_RxV = logits(*features(params, stream_BxMxD))
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
