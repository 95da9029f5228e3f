"""A transformer: an encoder (BERT, Devlin 2019) or a decoder (GPT-2, Radford 2019).

    tokens → embed → block 0 → ... → block n-1 → head → loss
               └──────────── token table ─────────┘

Both networks normalise the input of attention and feed-forward, as GPT-2 does; the
original BERT normalises their output. Inputs of a Batch are tokens_BxL; targets are
tokens_BxL (GPT), or a pair of masked positions_BxM and their tokens_BxM (BERT). The
stream is the array of activations to which blocks add their outputs, BxLxD.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.initial import EMBEDDING, initial
from dml.models.layered import layered
from dml.models.layers.blocks import SIZES as SIZES
from dml.models.layers.blocks import Block, Embed, Head, Shape
from dml.models.layers.cross_entropy import cross_entropy, logits, vary_like
from dml.models.layers.dropout import dropout_of, tokens_of
from dml.models.layers.experts import Mixture, Routing
from dml.models.layers.partition import (
    ONE_DEVICE,
    Partition,
    partition_over,
    take_positions,
)
from dml.types import BadInput, Batch, Layer, Model, Params

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}  # dtypes of arithmetic
RESIDUALS = ("out", "down")  # kernels whose outputs are added to the residual stream


def modules(
    shape: Shape,
    causal: bool,
    dtype: str,
    partition: Partition = ONE_DEVICE,
    mixture: Mixture | None = None,
) -> dict[str, linen.Module]:
    """Return the modules of the model, in order, by the names of their params.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      dtype: Dtype of the arithmetic, a key of DTYPES.
      partition: Partition of a device; by default the full network.
      mixture: Experts in place of each feed-forward layer; None: dense.
    """
    if min(shape) < 1 or shape.width % shape.heads:
        raise BadInput(
            "expected sizes of at least 1 and heads that divide the width, got "
            f"{shape}; pass a width that is a multiple of heads={shape.heads}"
        )
    if dtype not in DTYPES:
        raise BadInput(
            f"expected a dtype of {', '.join(DTYPES)}, got {dtype!r}; pass one of them"
        )
    common = (DTYPES[dtype], partition)
    blocks = {
        f"block_{n}": Block(shape, causal, *common, mixture)
        for n in range(shape.layers)
    }
    head = Head(shape, causal, *common)
    return {"embed": Embed(shape, *common), **blocks, "head": head}


def shapes(shape: Shape, causal: bool, mixture: Mixture | None = None) -> Any:
    """Return the shapes of all params; no array is allocated."""
    stream: Any = jax.ShapeDtypeStruct((1, 1, shape.width), jnp.float32)
    if mixture:
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        stream = stream, Routing(scalar, scalar)
    inputs = {
        "embed": jax.ShapeDtypeStruct((1, 1), jnp.int32),
        "head": jax.ShapeDtypeStruct((1, shape.width), jnp.float32),
    }
    key = jax.random.key(0)
    return {
        name: jax.eval_shape(module.init, key, inputs.get(name, stream))["params"]
        for name, module in modules(shape, causal, "float32", mixture=mixture).items()
    }


def init_params(
    shape: Shape, causal: bool, mixture: Mixture | None, key: jax.Array
) -> Params:
    """Draw params as GPT-2 does.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      mixture: Experts in place of each feed-forward layer; None: dense.
      key: Random key.
    """

    def spread(path: tuple[str, ...], sizes: tuple[int, ...]) -> float | None:
        if path[-1] == "bias" or len(sizes) < 2:
            return None
        # smaller, so that the stream's variance does not grow with the number of blocks
        terms = 2 * shape.layers if path[-2] in RESIDUALS else 1
        return EMBEDDING / math.sqrt(terms)

    return initial(shapes(shape, causal, mixture), key, spread)


@dataclass(frozen=True, eq=False)
class Network:
    """The functions of a transformer's modules.

    Attributes:
      parts: Modules by the names of their params, in order; the last is the head.
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      partition: Partition of a device.
      mixture: Experts in place of each feed-forward layer; None: dense.
      dropout: Probability that an element is 0, for batches of KeyedTokens.
    """

    parts: Mapping[str, linen.Module]
    shape: Shape
    causal: bool
    partition: Partition
    mixture: Mixture | None
    dropout: float

    def run(
        self, name: str, params: Mapping[str, Params], inputs: Any, batch: Batch
    ) -> Any:
        """Return the stream after a module; with a mixture, a pair with Routing."""
        layer = [*self.parts].index(name)
        drop = dropout_of(batch.inputs, layer, self.dropout, self.partition)
        if name == "embed":
            inputs = tokens_of(batch.inputs)
        stream = self.parts[name].apply({"params": params[name]}, inputs, drop)
        if self.mixture and name == "embed":
            return stream, Routing(jnp.float32(0), jnp.float32(0))
        return stream

    def body(self, params: Params, batch: Batch) -> Any:
        """Return the stream after the last block."""
        stream = None
        for name in [*self.parts][:-1]:
            stream = self.run(name, params, stream, batch)
        return stream

    def activations(self, stream: Any) -> jax.Array:
        """Return the stream without Routing."""
        return stream[0] if self.mixture else stream

    def features(
        self, params: Mapping[str, Params], stream_BxLxD: Any
    ) -> tuple[Any, ...]:
        """Return the operands of the logits: features, token table and bias."""
        head = [*self.parts][-1]
        rows_RxD = stream_BxLxD.reshape(-1, self.shape.width)
        features_RxD, bias_V = self.parts[head].apply(
            {"params": params[head]}, rows_RxD
        )
        # BERT's head reads the masked positions only; every device has all of them.
        partition = (
            self.partition if self.causal else partition_over(self.partition.size)
        )
        features_RxD = partition.enter(features_RxD, len(stream_BxLxD))
        return features_RxD, params["embed"]["tokens"], bias_V

    def select_predicted(
        self, stream_BxLxD: Any, targets: Any
    ) -> tuple[Any, jax.Array]:
        """Return the stream at the predicted positions, and the target tokens."""
        if self.causal:
            return stream_BxLxD, targets.reshape(-1)
        positions_BxM, tokens_BxM = targets
        stream_BxMxD = take_positions(stream_BxLxD, positions_BxM, self.partition)
        return stream_BxMxD, tokens_BxM.reshape(-1)

    def loss(self, params: Mapping[str, Params], stream: Any, batch: Batch) -> Any:
        """Return the loss, given the stream after the last block."""
        stream_BxMxD, targets_R = self.select_predicted(
            self.activations(stream), batch.targets
        )
        operands = jax.tree.map(
            lambda array: vary_like(array, targets_R),
            self.features(params, stream_BxMxD),
        )
        loss = cross_entropy(*operands, targets_R, self.partition)
        if self.mixture:
            loss += self.mixture.weight * stream[1].balance / self.shape.layers
        return loss

    def scores(self, params: Params, tokens_BxL: jax.Array) -> jax.Array:
        """Return the logits of all positions, BxLxV."""
        stream = self.body(params, Batch(tokens_BxL, None))
        scores_RxV = logits(*self.features(params, self.activations(stream)))
        return scores_RxV.reshape(*tokens_BxL.shape, -1)

    def metrics(self, params: Params, batch: Batch) -> dict[str, jax.Array]:
        """Return accuracy, cross entropy and, with a mixture, Routing per block."""
        stream = self.body(params, batch)
        stream_BxMxD, targets_R = self.select_predicted(
            self.activations(stream), batch.targets
        )
        scores_RxV = logits(*self.features(params, stream_BxMxD))
        logs_R = jnp.take_along_axis(
            jax.nn.log_softmax(scores_RxV), targets_R[:, None], axis=1
        )
        measures = {
            "accuracy": (scores_RxV.argmax(axis=1) == targets_R).mean(),
            "cross_entropy": -logs_R.mean(),
        }
        if self.mixture:
            routing = stream[1]._asdict()
            measures |= {k: v / self.shape.layers for k, v in routing.items()}
        return measures


def transformer(
    shape: Shape,
    causal: bool,
    dtype: str = "float32",
    remat: bool = False,
    partition: Partition = ONE_DEVICE,
    mixture: Mixture | None = None,
    dropout: float = 0.0,
) -> Model:
    """Return GPT (causal) or BERT; the loss is the mean over the predicted tokens.

    With a mixture the loss includes the mean balance of the blocks, times its weight.
    With a partition only the layers of the model can be used, because scores and
    metrics need the whole token table.

    Args:
      shape: Sizes of the network.
      causal: Whether the network is GPT, not BERT.
      dtype: Dtype of the arithmetic, a key of DTYPES.
      remat: Whether the backward pass recomputes the activations inside each layer.
      partition: Partition of a device; by default the full network.
      mixture: Experts in place of each feed-forward layer; None: dense.
      dropout: Probability that an element is 0, for batches of KeyedTokens.
    """
    parts = modules(shape, causal, dtype, partition, mixture)
    network = Network(parts, shape, causal, partition, mixture, dropout)
    *body, head = parts
    layers = [Layer((name,), partial(network.run, name)) for name in body]
    layers.append(Layer((head, "embed"), network.loss))
    init = partial(init_params, shape, causal, mixture)
    return layered(layers, init, network.metrics, network.scores, remat)
