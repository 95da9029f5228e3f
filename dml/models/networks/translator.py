"""An LSTM translator, one layer per device (Sutskever 2014; GNMT: Wu 2016, section 3).

layer 3        a  b  c  ·  z  y      in a tick each device computes one time step of
layer 2     a  b  c  ·  z  y         its layer, from the output that the layer below
layer 1  a  b  c  ·  z  y            has just sent: L + K - 1 ticks for K layers and
         ────────────────────→ ticks L time steps, not K L; a b c is read, z y written
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dml.models.initial import initial
from dml.models.networks.classifier import entropy
from dml.types import BadInput, Batch, Grads, Model, Params

AXIS = "layer"
READS, WRITES = 0, 1  # encoder and decoder, which have separate kernels
FORGET = 1.0  # constant added to the input of the forget gate

SPECS = {  # sharding of params: a layer on each device
    "embedding": PartitionSpec(),
    "layers": PartitionSpec(AXIS),
    "head": PartitionSpec(),
}


def translator(words: int, width: int, layers: int) -> Model:
    """Return the serial baseline: layers one after another, K L ticks on one device.

    Batches are sentences BxS and their translations BxT.

    Args:
      words: Number of words of each language.
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
        flowing_LxBxD, written = embedded(params, batch)
        read = len(flowing_LxBxD) - written
        for number in range(layers):
            layer = jax.tree.map(lambda leaf, at=number: leaf[at], params["layers"])
            state, parts = begin(flowing_LxBxD), []
            for phase, part in ((READS, slice(read)), (WRITES, slice(read, None))):
                turn = partial(cell, layer, phase, number > 0)
                state, made_LxBxD = jax.lax.scan(turn, state, flowing_LxBxD[part])
                parts.append(made_LxBxD)
            flowing_LxBxD = jnp.concatenate(parts)
        return mean_loss(params, flowing_LxBxD[read:], batch)

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        correct_BxT = translate(params, batch.inputs) == batch.targets
        return {"accuracy": correct_BxT.all(axis=1).mean(), "words": correct_BxT.mean()}

    return Model(init, loss, metrics)


def spread(names: tuple[str, ...], shape: tuple[int, ...]) -> float | None:
    """Return the standard deviation of a leaf; kernels of a stack are independent."""
    if names[-1] == "embedding":
        return 1.0
    return None if len(shape) < 3 or "bias" in names else 1 / shape[-2] ** 0.5


def wavefront(axes: Mesh) -> Callable[[Params, Batch], tuple[Any, Grads]]:
    """Return (params sharded by SPECS, batch) -> loss, gradient.

    The axis `layer` has as many devices as there are layers.
    """
    size = axes.shape[AXIS]

    def loss_and_gradient(params: Params, batch: Batch) -> tuple[Any, Grads]:
        loss, grads = jax.value_and_grad(swept)(params, batch, size)
        # one device reads the replicated params: the gradients of others are zero
        part = {name: grads[name] for name, spec in SPECS.items() if not spec}
        loss, part = jax.lax.psum((loss, part), AXIS)
        return loss, grads | part

    return jax.shard_map(
        loss_and_gradient,
        mesh=axes,
        in_specs=(SPECS, PartitionSpec()),
        out_specs=(PartitionSpec(), SPECS),
        check_vma=False,
    )


def swept(params: Params, batch: Batch, size: int) -> jax.Array:
    """Return the loss on the last device, 0 on the others.

    The transpose of the scan begins with the last tick, and that of ppermute sends to
    the layer below: the backward is a wavefront as well.

    Args:
      params: Params of this device's layer, and the replicated params.
      batch: The minibatch.
      size: Number of layers.
    """
    number = jax.lax.axis_index(AXIS)
    flowing_LxBxD, written = embedded(params, batch)
    length = len(flowing_LxBxD)
    layer = jax.tree.map(lambda leaf: leaf[0], params["layers"])

    def turn(phase: int | None, carry: Any, tick: jax.Array) -> tuple[Any, jax.Array]:
        state, received_BxD = carry
        time = tick - number
        first_BxD = flowing_LxBxD[jnp.clip(time, 0, length - 1)]
        moved, made_BxD = cell(
            layer,
            jnp.where(time < length - written, READS, WRITES)
            if phase is None
            else phase,
            number > 0,
            state,
            jnp.where(number == 0, first_BxD, received_BxD),
        )
        # before its first input a layer does not change its state
        state = jax.tree.map(partial(jnp.where, time >= 0), moved, state)
        return (state, upward(made_BxD, size)), made_BxD

    carry: Any = (begin(flowing_LxBxD), jnp.zeros_like(flowing_LxBxD[0]))
    for phase, interval in spans(size, length - written, written):
        carry, made_TxBxD = jax.lax.scan(
            partial(turn, phase), carry, jnp.arange(interval.start, interval.stop)
        )
    return jax.lax.cond(  # the last scan has the outputs of the last layer
        number == size - 1,
        lambda: mean_loss(params, made_TxBxD, batch),
        lambda: jnp.float32(0),
    )


def spans(layers: int, read: int, written: int) -> list[tuple[int | None, range]]:
    """Return the ticks in which all layers read, some read (None), or all write.

    In a single scan, the transpose would copy both kernels in every tick.
    """
    last = read + layers - 1  # the tick after the last one that reads
    return [
        (READS, range(read)),
        (None, range(read, last)),
        (WRITES, range(last, last + written)),
    ]


def upward(made_BxD: jax.Array, size: int) -> jax.Array:
    """Send outputs to the layer above; the first layer receives zeros."""
    return jax.lax.ppermute(made_BxD, AXIS, [(k, k + 1) for k in range(size - 1)])


def ticks(layers: int, length: int) -> int:
    """Return the number of ticks of the wavefront."""
    return length + layers - 1


def wave(layers: int, length: int) -> np.ndarray:
    """Return the time step that each layer computes in each tick, or -1: KxN."""
    time_KxN = np.arange(ticks(layers, length)) - np.arange(layers)[:, None]
    return np.where((time_KxN >= 0) & (time_KxN < length), time_KxN, -1)


def cell(
    params: Params, phase: Any, residual: Any, state: Any, below_BxD: jax.Array
) -> tuple[Any, jax.Array]:
    """Return the state and the output of one time step of one layer.

    From the second layer on, the input is added to the output (Wu 2016, equation 6).

    Args:
      params: Kernels and biases of the layer.
      phase: READS or WRITES.
      residual: Whether the input is added to the output.
      state: Hidden state and memory.
      below_BxD: Output of the layer below.
    """
    hidden_BxD, memory_BxD = state
    inputs_BxE = jnp.concatenate([below_BxD, hidden_BxD], axis=1)
    gates_BxG = inputs_BxE @ params["kernel"][phase] + params["bias"][phase]
    enters, forgets, new, leaves = jnp.split(gates_BxG, 4, axis=1)
    memory_BxD = jax.nn.sigmoid(forgets + FORGET) * memory_BxD + jax.nn.sigmoid(
        enters
    ) * jnp.tanh(new)
    hidden_BxD = jax.nn.sigmoid(leaves) * jnp.tanh(memory_BxD)
    return (hidden_BxD, memory_BxD), hidden_BxD + jnp.where(residual, below_BxD, 0.0)


def begin(flowing_LxBxD: jax.Array) -> Any:
    """Return the initial hidden state and memory of a layer: zeros."""
    return (jnp.zeros_like(flowing_LxBxD[0]),) * 2


def embedded(params: Params, batch: Batch) -> tuple[jax.Array, int]:
    """Return the inputs of the first layer, and the number of words to write.

    The inputs are the sentence, a start token, and the translation without its last
    word.
    """
    table_VxD = params["embedding"]
    words = len(table_VxD) // 2
    start_Bx1 = jnp.full_like(batch.targets[:, :1], 2 * words)
    known_BxT = jnp.concatenate([start_Bx1, words + batch.targets[:, :-1]], axis=1)
    tokens_BxL = jnp.concatenate([batch.inputs, known_BxT], axis=1)
    return table_VxD[tokens_BxL.T], batch.targets.shape[1]


def mean_loss(params: Params, made_TxBxD: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean cross entropy of the next words."""
    scores_TxBxV = scored(params, made_TxBxD)
    return entropy(scores_TxBxV, batch.targets.T)


def scored(params: Params, outputs: jax.Array) -> jax.Array:
    """Return the logits of the outputs of the last layer."""
    return outputs @ params["head"]["kernel"] + params["head"]["bias"]


@jax.jit
def translate(params: Params, sources_BxS: jax.Array) -> jax.Array:
    """Return the most probable words, one after another, as many as were read: BxS."""
    table_VxD, stack = params["embedding"], params["layers"]
    words, layers = len(table_VxD) // 2, len(stack["kernel"])

    def turn(phase: int, states: Any, token_B: jax.Array) -> tuple[Any, jax.Array]:
        flowing_BxD, after = table_VxD[token_B], []
        for number in range(layers):
            layer = jax.tree.map(lambda leaf, at=number: leaf[at], stack)
            state = states[number]
            state, flowing_BxD = cell(layer, phase, number > 0, state, flowing_BxD)
            after.append(state)
        return after, scored(params, flowing_BxD).argmax(axis=1)

    def write(carry: Any, _: None) -> tuple[Any, jax.Array]:
        states, token_B = carry
        states, word_B = turn(WRITES, states, token_B)
        return (states, words + word_B), word_B

    sources_SxB = jnp.asarray(sources_BxS).T
    states = [begin(table_VxD[sources_SxB])] * layers
    states, _ = jax.lax.scan(partial(turn, READS), states, sources_SxB)
    start_B = jnp.full_like(sources_SxB[0], 2 * words)
    _, written_TxB = jax.lax.scan(write, (states, start_B), length=len(sources_SxB))
    return written_TxB.T
