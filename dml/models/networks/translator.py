"""An LSTM translator, one layer per device (Sutskever 2014; GNMT: Wu 2016, section 3).

layer 3        a  b  c  ·  z  y      input sentence a b c, start token ·,
layer 2     a  b  c  ·  z  y         translation z y
layer 1  a  b  c  ·  z  y
         ────────────────────→ ticks

In a tick each device computes one time step of its layer, from the output that the
layer below computed in the previous tick. K layers and L time steps take L + K - 1
ticks; one device takes K·L. The S tokens of the sentence are read by the encoder
kernels, the T tokens of the translation are predicted by the decoder kernels.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dml.models.initial import initial
from dml.models.networks.classifier import mean_cross_entropy
from dml.types import BadInput, Batch, Grads, Model, Params

AXIS = "layer"
ENCODER, DECODER = 0, 1  # index of the kernels of a layer
FORGET = 1.0  # constant added to the input of the forget gate

SPECS = {  # sharding of params: a layer on each device
    "embedding": PartitionSpec(),
    "layers": PartitionSpec(AXIS),
    "head": PartitionSpec(),
}


def translator(words: int, width: int, layers: int) -> Model:
    """Return the serial baseline: layers one after another on one device.

    Batches are sentences BxS and their translations BxT.

    Args:
      words: Size of the vocabulary of each language.
      width: Width of a layer.
      layers: Number of layers.
    """
    if min(words, width, layers) < 1:
        raise BadInput(
            f"expected words, width and layers of 1 or more, got {words=}, {width=}, "
            f"{layers=}; pass at least 1 of each"
        )

    def init(key: jax.Array) -> Params:
        shapes = {
            "embedding": (2 * words + 1, width),  # both languages, and a start token
            "layers": {
                "kernel": (layers, 2, 2 * width, 4 * width),
                "bias": (layers, 2, 4 * width),
            },
            "head": {"kernel": (width, words), "bias": (words,)},
        }
        return initial(shapes, key, spread)

    def loss(params: Params, batch: Batch) -> jax.Array:
        inputs_LxBxD = embed(params, batch)
        source = batch.inputs.shape[1]  # number of time steps of the encoder
        for index in range(layers):
            layer = jax.tree.map(lambda leaf, i=index: leaf[i], params["layers"])
            state = initial_state(inputs_LxBxD)
            step = partial(cell, layer, ENCODER, index > 0)
            state, encoded_SxBxD = jax.lax.scan(step, state, inputs_LxBxD[:source])
            step = partial(cell, layer, DECODER, index > 0)
            state, decoded_TxBxD = jax.lax.scan(step, state, inputs_LxBxD[source:])
            inputs_LxBxD = jnp.concatenate([encoded_SxBxD, decoded_TxBxD])
        return mean_loss(params, decoded_TxBxD, batch)

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        correct_BxT = translate(params, batch.inputs) == batch.targets
        return {"accuracy": correct_BxT.all(axis=1).mean(), "words": correct_BxT.mean()}

    return Model(init, loss, metrics)


def spread(names: tuple[str, ...], shape: tuple[int, ...]) -> float | None:
    """Return 1 / √(number of inputs) for kernels of layers, and 1 for the embedding."""
    if names[-1] == "embedding":
        return 1.0
    return None if len(shape) < 3 or "bias" in names else 1 / shape[-2] ** 0.5


def wavefront(axes: Mesh) -> Callable[[Params, Batch], tuple[Any, Grads]]:
    """Return (params sharded by SPECS, batch) -> loss, gradient.

    The axis `layer` has as many devices as there are layers.
    """
    size = axes.shape[AXIS]

    def loss_and_gradient(params: Params, batch: Batch) -> tuple[Any, Grads]:
        loss, grads = jax.value_and_grad(device_loss)(params, batch, size)
        # the first device reads the embedding, the last the head; the gradients of
        # other devices are zero
        replicated = {name: grads[name] for name, spec in SPECS.items() if not spec}
        loss, replicated = jax.lax.psum((loss, replicated), AXIS)
        return loss, grads | replicated

    return jax.shard_map(
        loss_and_gradient,
        mesh=axes,
        in_specs=(SPECS, PartitionSpec()),
        out_specs=(PartitionSpec(), SPECS),
        check_vma=False,
    )


def device_loss(params: Params, batch: Batch, size: int) -> jax.Array:
    """Return the loss on the last device, 0 on the others.

    The backward pass is a wavefront as well: the transpose of the scan begins with the
    last tick, and the transpose of ppermute sends to the layer below.

    Args:
      params: Params of this device's layer, and the replicated params.
      batch: The minibatch.
      size: Number of layers.
    """
    index = jax.lax.axis_index(AXIS)  # of this device's layer
    inputs_LxBxD = embed(params, batch)
    length, source = len(inputs_LxBxD), batch.inputs.shape[1]
    layer = jax.tree.map(lambda leaf: leaf[0], params["layers"])

    def step(kernel: int | None, carry: Any, tick: jax.Array) -> tuple[Any, jax.Array]:
        state, received_BxD = carry
        time = tick - index
        first_BxD = inputs_LxBxD[jnp.clip(time, 0, length - 1)]
        next_state, outputs_BxD = cell(
            layer,
            jnp.where(time < source, ENCODER, DECODER) if kernel is None else kernel,
            index > 0,
            state,
            jnp.where(index == 0, first_BxD, received_BxD),
        )
        # before its first input a layer does not change its state
        state = jax.tree.map(partial(jnp.where, time >= 0), next_state, state)
        return (state, send_up(outputs_BxD, size)), outputs_BxD

    carry: Any = (initial_state(inputs_LxBxD), jnp.zeros_like(inputs_LxBxD[0]))
    for kernel, interval in phases(size, source, length - source):
        carry, outputs_TxBxD = jax.lax.scan(
            partial(step, kernel), carry, jnp.arange(interval.start, interval.stop)
        )
    # on the last device, outputs of the last phase are those of all decoder time steps
    return jax.lax.cond(
        index == size - 1,
        lambda: mean_loss(params, outputs_TxBxD, batch),
        lambda: jnp.float32(0),
    )


def phases(layers: int, source: int, target: int) -> list[tuple[int | None, range]]:
    """Return intervals of ticks, and the kernels that layers use in each interval.

    None: some layers use the encoder kernels, others the decoder kernels. Each phase is
    a separate scan: the transpose of a single scan would copy both kernels in every
    tick.

    Args:
      layers: Number of layers.
      source: Number of time steps of the encoder.
      target: Number of time steps of the decoder.
    """
    encoder_end = source + layers - 1  # first tick in which no layer uses the encoder
    return [
        (ENCODER, range(source)),
        (None, range(source, encoder_end)),
        (DECODER, range(encoder_end, encoder_end + target)),
    ]


def send_up(outputs_BxD: jax.Array, size: int) -> jax.Array:
    """Send outputs to the layer above; the first layer receives zeros."""
    return jax.lax.ppermute(outputs_BxD, AXIS, [(k, k + 1) for k in range(size - 1)])


def ticks(layers: int, length: int) -> int:
    """Return the number of ticks of the wavefront; `length` is in time steps."""
    return length + layers - 1


def wave(layers: int, length: int) -> np.ndarray:
    """Return the time step of each layer in each of the N ticks, KxN; -1: none."""
    time_KxN = np.arange(ticks(layers, length)) - np.arange(layers)[:, None]
    return np.where((time_KxN >= 0) & (time_KxN < length), time_KxN, -1)


def cell(
    params: Params, kernel: Any, residual: Any, state: Any, below_BxD: jax.Array
) -> tuple[Any, jax.Array]:
    """Return the next state and the output of one time step of one LSTM layer.

    From the second layer on, the input is added to the output (Wu 2016, equation 6).

    Args:
      params: Kernels and biases of the layer.
      kernel: ENCODER or DECODER.
      residual: Whether the input is added to the output.
      state: Hidden state and cell state.
      below_BxD: Output of the layer below.
    """
    hidden_BxD, cell_BxD = state
    inputs_BxE = jnp.concatenate([below_BxD, hidden_BxD], axis=1)
    gates_BxG = inputs_BxE @ params["kernel"][kernel] + params["bias"][kernel]
    input_gate, forget_gate, candidate, output_gate = jnp.split(gates_BxG, 4, axis=1)
    cell_BxD = jax.nn.sigmoid(forget_gate + FORGET) * cell_BxD + jax.nn.sigmoid(
        input_gate
    ) * jnp.tanh(candidate)
    hidden_BxD = jax.nn.sigmoid(output_gate) * jnp.tanh(cell_BxD)
    return (hidden_BxD, cell_BxD), hidden_BxD + jnp.where(residual, below_BxD, 0.0)


def initial_state(inputs_LxBxD: jax.Array) -> Any:
    """Return the initial hidden state and cell state of a layer: zeros."""
    return (jnp.zeros_like(inputs_LxBxD[0]),) * 2


def embed(params: Params, batch: Batch) -> jax.Array:
    """Return the inputs of the first layer, LxBxD.

    They are the vectors of the S words of the sentence, of a start token, and of the
    translation without its last word; L = S + T.
    """
    table_VxD = params["embedding"]
    words = len(table_VxD) // 2
    start_Bx1 = jnp.full_like(batch.targets[:, :1], 2 * words)
    previous_BxT = jnp.concatenate([start_Bx1, words + batch.targets[:, :-1]], axis=1)
    tokens_BxL = jnp.concatenate([batch.inputs, previous_BxT], axis=1)
    return table_VxD[tokens_BxL.T]


def mean_loss(params: Params, outputs_TxBxD: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean cross entropy of the words of the translation."""
    scores_TxBxV = logits(params, outputs_TxBxD)
    return mean_cross_entropy(scores_TxBxV, batch.targets.T)


def logits(params: Params, outputs: jax.Array) -> jax.Array:
    """Return the logits of the outputs of the last layer."""
    return outputs @ params["head"]["kernel"] + params["head"]["bias"]


@jax.jit
def translate(params: Params, sources_BxS: jax.Array) -> jax.Array:
    """Return translations of the same length as the sentences, by greedy decoding."""
    table_VxD, stack = params["embedding"], params["layers"]
    words, layers = len(table_VxD) // 2, len(stack["kernel"])

    def step(kernel: int, states: Any, token_B: jax.Array) -> tuple[Any, jax.Array]:
        inputs_BxD = table_VxD[token_B]
        next_states = []
        for index in range(layers):
            layer = jax.tree.map(lambda leaf, i=index: leaf[i], stack)
            state = states[index]
            state, inputs_BxD = cell(layer, kernel, index > 0, state, inputs_BxD)
            next_states.append(state)
        return next_states, logits(params, inputs_BxD).argmax(axis=1)

    def decode(carry: Any, _: None) -> tuple[Any, jax.Array]:
        states, token_B = carry
        states, word_B = step(DECODER, states, token_B)
        return (states, words + word_B), word_B  # target words follow source words

    sources_SxB = jnp.asarray(sources_BxS).T
    states = [initial_state(table_VxD[sources_SxB])] * layers
    states, _ = jax.lax.scan(partial(step, ENCODER), states, sources_SxB)
    start_B = jnp.full_like(sources_SxB[0], 2 * words)
    _, decoded_SxB = jax.lax.scan(decode, (states, start_B), length=len(sources_SxB))
    return decoded_SxB.T
