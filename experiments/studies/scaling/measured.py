"""Measured seconds of a gradient, and of synchronous steps with an all-reduce."""

from collections.abc import Callable
from math import isqrt
from typing import Any

import jax
import numpy as np

from dml.models.gradient import gradient
from dml.types import Batch, Comm, CountedComm
from dml.wire.collectives import ALLREDUCE, predicted_seconds
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.comm.buffers import allocate, release

REPEATS = 7


def squared(params: Any, batch: Batch) -> Any:
    """Return the squared error of two layers, a small model with a backward pass."""
    hidden_BxD = jax.numpy.tanh(batch.inputs @ params["in_DxD"])
    return ((hidden_BxD @ params["out_DxD"] - batch.targets) ** 2).mean()


def gradient_call(parameters: int, examples: int) -> Callable[[], Any]:
    """Return a function that computes one gradient.

    parameters: approximate number of parameters.
    examples: examples in the minibatch.
    """
    width = max(1, isqrt(parameters // 2))
    keys = jax.random.split(jax.random.key(0), 4)
    lengths = (width, width, examples, examples)
    hidden_DxD, out_DxD, inputs, targets = (
        jax.random.normal(key, (length, width))
        for key, length in zip(keys, lengths, strict=True)
    )
    params = {"in_DxD": hidden_DxD / width**0.5, "out_DxD": out_DxD / width**0.5}
    batch = Batch(inputs, targets)
    return lambda: jax.block_until_ready(gradient(squared, params, batch))


def gradient_line(comm: Comm, parameters: int, examples: int) -> tuple[float, float]:
    """Measure the fixed seconds of a gradient and its seconds per example."""
    few = max(1, examples // 8)
    all_seconds = slowest_seconds(comm, gradient_call(parameters, examples))
    if few == examples:
        return 0.0, all_seconds
    few_seconds = slowest_seconds(comm, gradient_call(parameters, few))
    per_example = (all_seconds - few_seconds) / (examples - few)
    fixed = all_seconds - per_example * examples
    if per_example <= 0 or fixed < 0:  # noise: no line with positive coefficients
        return 0.0, all_seconds / examples
    return fixed, per_example


def slowest_seconds(comm: Comm, program: Callable[[], Any]) -> float:
    """Return the median seconds of the slowest rank; all ranks call at once."""
    seconds = np.zeros(1 if comm.platform.virtual else REPEATS)
    program()
    for repeat in range(len(seconds)):
        comm.Barrier()
        start = comm.Wtime()
        program()
        seconds[repeat] = comm.Wtime() - start
    butterfly_allreduce(comm, seconds, np.maximum)
    return float(np.median(seconds))


def steps(
    comm: CountedComm, parameters: int, itemsize: int, compute: Callable[[], Any]
) -> list[dict[str, Any]]:
    """Predict and measure a step with every all-reduce over the ranks of comm."""
    gradient_seconds = slowest_seconds(comm, compute)
    rows = []
    buffer = allocate(comm, parameters, f"f{itemsize}")
    for name, allreduce in ALLREDUCE.items():
        if name == "shared" and max(comm.platform.hosts()):
            continue  # hosts share no memory

        def step(reduce: Callable[..., None] = allreduce) -> None:
            compute()
            reduce(comm, buffer)

        wire = predicted_seconds(comm, name, buffer)
        rows.append(
            {
                "algorithm": name,
                "p": comm.size,
                "gradient_seconds": gradient_seconds,
                "wire_seconds": wire,  # predicted
                "predicted_seconds": gradient_seconds + wire,
                "seconds": slowest_seconds(comm, step),
            }
        )
    release(comm, buffer)
    return rows
