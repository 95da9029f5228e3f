"""Bytes of a device in training, by part.

    parameters   2 each in bfloat16, 4 in float32 or with zero = 3
    gradients    as many; 4 more if they are accumulated in float32
    optimizer    12: a copy in float32 and two moments (8 with zero = 3)
    activations  of the micro batches in flight: min(M, K) on the first stage
    work         the block that is recomputed, or the logits, whichever is larger
    gathered     two blocks and the embedding with zero = 3
    reserve      context of the device, buffers of messages, fragments

ZeRO divides them over the replicas: 1 the optimizer state, 2 also gradients, 3 also
parameters. A block keeps its input with recomputation, else its products' operands.
"""

from typing import Any, NamedTuple

import numpy as np

from dml.planner.runs import Runs

FUSED_LOGITS = 4.0  # bytes of a logit and its gradient by a fused loss


class MemoryCoefficients(NamedTuple):
    """Coefficients of the formulas, fitted once for all devices."""

    kept: float = 0.75  # fraction of the operands that is kept for the backward
    selective: float = 0.46  # the same if attention is recomputed
    logits: float = 5.6  # bytes of a logit and its gradient
    fragments: float = 1.16  # activations, allocated, over activations in use
    reserve: float = 0.08  # fraction of the memory: context, buffers of messages


def parts(runs: Runs, sizes: MemoryCoefficients) -> dict[str, Any]:
    """Return the bytes of the fullest device by part."""
    zero, data = np.asarray(runs.zero), runs.data * runs.context
    shards = np.minimum(runs.zero_group, data)
    dense, experts = stage_parameters(runs)
    full = zero >= 3
    copies = np.maximum(shards / runs.expert, 1)

    def bytes_of(each: Any, divided: Any) -> Any:
        per_dense = dense / np.where(divided, shards, 1)
        return each * (per_dense + experts / np.where(divided, copies, 1))

    gradient = runs.itemsize + 4 * np.asarray(runs.gradients32)
    activations, work = activation_bytes(runs, sizes)
    waves = np.asarray(runs.processors) > 0
    fragments = np.where(waves, sizes.fragments, 1.0)
    block = runs.attention_parameters + runs.expert_parameters
    embedding = runs.vocabulary * runs.width / runs.tensor
    gathered = np.where(full, 2 * (2 * block + embedding) / runs.tensor, 0.0)
    return {
        "parameters": bytes_of(np.where(full, 4.0, runs.itemsize), full),
        "gradients": bytes_of(np.where(full, 4.0, gradient), zero >= 2),
        "optimizer": bytes_of(np.where(full, 8.0, 12.0), zero >= 1),
        "activations": fragments * activations,
        "work": fragments * work,
        "gathered": fragments * gathered,
        "reserve": np.where(waves, sizes.reserve * runs.memory, 0.2e9),
    }


def total(pieces: dict[str, Any]) -> Any:
    """Return the bytes of a device."""
    return sum(pieces.values())


def stage_parameters(runs: Runs) -> tuple[Any, Any]:
    """Return the parameters of the largest stage on a device: dense ones, experts."""
    layers = runs.largest_stage / runs.tensor
    routed = np.asarray(runs.experts) > 1
    dense = runs.attention_parameters + np.where(routed, 0, runs.expert_parameters)
    experts = np.where(routed, runs.experts * runs.expert_parameters, 0.0)
    # one stage: embedding and head, which are one matrix in models without gates
    tables = np.where(np.asarray(runs.stage) > 1, 1.0, runs.matrices)
    embedding = tables * runs.vocabulary * runs.width / runs.tensor
    return layers * dense + embedding, layers * experts / runs.expert


def activation_bytes(runs: Runs, sizes: MemoryCoefficients) -> tuple[Any, Any]:
    """Return the bytes of the micro batches in flight, and of the work on one."""
    tokens, tensor = runs.tokens, runs.tensor
    stream = np.where(np.asarray(runs.sequence_parallel) > 0, tensor, 1.0)
    fused = np.asarray(runs.fused) > 0
    norms = np.where(fused, 4.0, 5.0) * runs.width / stream
    heads = 2 * (runs.queries + runs.keys) / tensor
    hidden = runs.top_k * (runs.matrices + 1) * runs.feed_forward / tensor
    operands = sizes.kept * 2 * tokens * (norms + heads + hidden)
    scores = np.where(fused, 0.0, 5.0 * tokens * runs.sequence * runs.heads / tensor)
    inputs = 2 * tokens * runs.width / stream
    remat, selective = np.asarray(runs.remat), np.asarray(runs.selective)
    plain = np.maximum(1 - remat - selective, 0)
    kept = (
        remat * inputs
        + selective * sizes.selective * operands
        + plain * (operands + scores)
    )
    layers, stage = runs.largest_stage, runs.stage
    flight = np.minimum(runs.micro_batches, stage)
    # interleaving: (K - 1)/(K v) more
    flight = flight * np.where(
        np.asarray(runs.rounds) > 1, 1 + (stage - 1) / (stage * runs.rounds), 1.0
    )
    work = np.where(remat > 0, operands + scores + inputs, 0.0)
    work = np.where(selective > 0, np.maximum(work, scores), work)
    each = np.where(np.asarray(runs.fused_loss) > 0, FUSED_LOGITS, sizes.logits)
    logits = each * tokens * runs.output * runs.vocabulary / tensor
    first = layers * kept * flight
    last = layers * kept + np.maximum(work, logits)  # one micro batch in flight
    piped = np.maximum(first + work, last) - first
    return first, np.where(stage > 1, piped, np.maximum(work, logits))
