"""Memory of compiled training steps compared with formulas.

Nothing is allocated, unless a step is executed for the device's high-water mark.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.models import memory
from dml.models.networks.transformer import Shape, shapes, transformer
from dml.runs.writers import Row
from dml.types import Batch, Model
from dml.update.dense import Optimizer, apply, make


class Case(NamedTuple):
    """A step to compile."""

    batch: int
    length: int
    remat: bool


# XLA's CPU compiler drops the optimization barriers of remat. Its scheduler then keeps
# the original and the recomputed values in memory, so that remat saves nothing.
KEEP_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
CASES = {  # step and compiler options, by name
    "short examples": (Case(8, 64, False), {}),
    "long examples": (Case(8, 256, False), {}),
    "remat": (Case(8, 256, True), {}),
    "remat with barriers": (Case(8, 256, True), KEEP_BARRIERS),
}


def rows(shape: Shape, execute: bool = False) -> Iterator[Row]:
    """Compile a training step of a GPT of this shape in every case.

    Args:
      shape: Sizes of the GPT; the length is that of the case.
      execute: Whether each step is executed once.
    """
    for name, (case, options) in CASES.items():
        start = time.perf_counter()
        resized = shape._replace(length=case.length)
        lowered = lower(resized, case)
        compiled = lowered.compile(compiler_options=options)
        expected = memory.step_bytes(resized, True, case.batch, case.remat)
        description = {"case": name} | case._asdict()
        measured = description | row(compiled, expected)
        mark = high_water(compiled, lowered.args_info) if execute else None
        measured["high_water"] = mark
        measured["high_water_ratio"] = (
            (expected.arguments + expected.temporary) / mark if mark else None
        )
        yield measured | {"compile_seconds": time.perf_counter() - start}


def lower(shape: Shape, case: Case) -> Any:
    """Lower gradient and Adam update on one device, from shapes only."""
    optimizer = make("adam", 1e-3)
    params = shapes(shape, True)
    tokens = jax.ShapeDtypeStruct((case.batch, case.length), jnp.int32)
    model = transformer(shape, True, remat=case.remat)
    return jax.jit(step(model, optimizer), donate_argnums=(0, 1)).lower(
        params, jax.eval_shape(optimizer.init, params), Batch(tokens, tokens)
    )


def step(model: Model, optimizer: Optimizer) -> Any:
    """Return a training step: params, state, batch -> loss, params, state."""

    def train_step(params: Any, state: Any, batch: Batch) -> Any:
        loss, grads = jax.value_and_grad(model.loss)(params, batch)
        return loss, *apply(optimizer, grads, state, params)

    return train_step


def high_water(compiled: Any, arguments: Any) -> int | None:
    """Execute a program on zeros; return the largest number of bytes in use.

    None if the device does not report it, as CPUs, or if an earlier program of this
    process used more.

    Args:
      compiled: The compiled program.
      arguments: Its positional and keyword arguments; shapes of arrays.
    """
    device = jax.local_devices()[0]
    before = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    positional, _ = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), arguments
    )
    jax.block_until_ready(compiled(*positional))
    after = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
    return after if after > before else None


def row(compiled: Any, expected: memory.Expected) -> dict[str, Any]:
    """Return measured and predicted bytes of a compiled program on one device."""
    measured = compiled.memory_analysis()
    return {
        "arguments": measured.argument_size_in_bytes,
        "expected_arguments": expected.arguments,
        "arguments_ratio": expected.arguments / measured.argument_size_in_bytes,
        "output": measured.output_size_in_bytes,
        "aliased": measured.alias_size_in_bytes,  # outputs written over arguments
        "temporary": measured.temp_size_in_bytes,
        "expected_temporary": expected.temporary,
        "temporary_ratio": expected.temporary / measured.temp_size_in_bytes,
    }
