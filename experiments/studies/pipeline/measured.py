"""Pipelines on real devices: speed-up over one device, and memory.

Seconds are medians over alternating turns, with one core for each device that computes.
Bytes are those of the compiled program.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.data.minibatches import take
from dml.models import layer_costs
from dml.models.gradient import accumulate, gradient
from dml.models.networks.transformer import Shape, transformer
from dml.runs.writers import Row
from dml.strategies.hybrid.hybrid import dense, shares
from dml.strategies.hybrid.layout import layout_of
from dml.strategies.hybrid.parts import Pipeline, divide
from dml.strategies.hybrid.programs import Gradients
from dml.types import Batch
from dml.wire.mesh import devices
from studies.tensor.measurements import time_in_turns

MB = 1e6
SERIAL = "one device"
SCHEDULES = {name: Pipeline(name) for name in ("gpipe", "1f1b")}


class Workload(NamedTuple):
    """A GPT and the size of its microbatches.

    shape: shape of the GPT.
    each: examples of a microbatch.
    seed: random seed.
    """

    shape: Shape
    each: int
    seed: int

    def network(self) -> tuple[Any, Any]:
        model = transformer(self.shape, causal=True)
        return model, model.init(jax.random.key(self.seed))

    def batch(self, microbatches: int) -> Batch:
        rng = np.random.default_rng(self.seed)
        size = 2, microbatches * self.each, self.shape.length
        return Batch(*rng.integers(self.shape.vocabulary, size=size, dtype=np.int32))


def serial(problem: Workload, microbatches: int) -> Callable[[], Any]:
    """Return a function that computes the gradient on one device."""
    model, params = problem.network()
    batch, each = problem.batch(microbatches), problem.each
    parts = [take(batch, n * each + np.arange(each)) for n in range(microbatches)]
    weights = [1 / microbatches] * microbatches
    arguments = jax.device_put((params, parts), jax.devices()[0])
    microbatch_gradient = partial(gradient, model.loss)
    return lambda: accumulate(microbatch_gradient, *arguments, weights)


def on_stages(problem: Workload, pipeline: Pipeline) -> tuple[Callable[[], Any], Any]:
    """Return a function that computes the gradient, and its programs.

    Each device is a stage.
    """
    model, params = problem.network()
    network = dense(model, params)
    seconds = layer_costs.flops(model.layers, params, problem.batch(1))
    pipeline = pipeline._replace(seconds=seconds)
    axes = devices.mesh(data=1, stage=len(jax.devices()), tensor=1)
    parts = divide(network, params, axes, pipeline)
    layout = layout_of(parts, params, axes, lambda tree: tree)
    call, now = Gradients(network, layout, pipeline), layout.scatter(params)
    batch = problem.batch(pipeline.microbatches)
    index, _ = shares(1, pipeline.microbatches, np.arange(len(batch.targets)))
    return partial(call, now, take(batch, index), pipeline.microbatches), call


def speeds(
    problem: Workload, microbatch_counts: Sequence[int], turns: int
) -> Iterator[Row]:
    """Yield the speed-up of every schedule, for each number of microbatches.

    Args:
        problem: the GPT and the size of its microbatches.
        microbatch_counts: numbers of microbatches.
        turns: timed turns.
    """
    stages = len(jax.devices())
    for microbatches in microbatch_counts:
        built = {
            name: on_stages(problem, pipeline._replace(microbatches=microbatches))
            for name, pipeline in SCHEDULES.items()
        }
        calls = {name: (stages, call) for name, (call, _) in built.items()}
        times = time_in_turns(
            {SERIAL: (1, serial(problem, microbatches))} | calls, turns
        )
        for name, (_, programs) in built.items():
            pairs = zip(times[SERIAL], times[name], strict=True)
            yield {
                "way": name,
                "stages": stages,
                "microbatches": microbatches,
                "milliseconds": 1e3 * float(np.median(times[name])),
                "formula": stages * microbatches / (microbatches + stages - 1),
                "measured": float(
                    np.median(
                        [
                            serial_time / pipeline_time
                            for serial_time, pipeline_time in pairs
                        ]
                    )
                ),
                "temporary_mb": programs.temporary / MB,
            }
