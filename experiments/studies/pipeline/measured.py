"""Pipelines on real devices: speed-up over one device, and memory.

One device and the pipelines are timed alternately, with one core for each device that
computes; seconds are medians. Bytes are those of the compiled program.
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
from dml.strategies.hybrid.hybrid import divide_examples, replicate_layers
from dml.strategies.hybrid.layout import layout_of
from dml.strategies.hybrid.parts import Pipeline, divide
from dml.strategies.hybrid.programs import GradientPrograms
from dml.types import Batch
from dml.wire.mesh import devices
from studies.tensor.measurements import time_alternately

MB = 1e6
SERIAL = "one device"
SCHEDULES = {
    name: Pipeline(name, rounds=2 if name == "zb_v" else 1)
    for name in ("gpipe", "1f1b", "zb_h1", "zb_h2", "zb_v")
}


class Workload(NamedTuple):
    """A GPT and the size of its microbatches.

    shape: shape of the GPT.
    microbatch_size: examples per microbatch.
    seed: random seed of the parameters and of the tokens.
    """

    shape: Shape
    microbatch_size: int
    seed: int

    def network(self) -> tuple[Any, Any]:
        """Return the GPT and its initial parameters."""
        model = transformer(self.shape, causal=True)
        return model, model.init(jax.random.key(self.seed))

    def batch(self, microbatches: int) -> Batch:
        """Return a minibatch of random tokens, of this number of microbatches."""
        rng = np.random.default_rng(self.seed)
        size = 2, microbatches * self.microbatch_size, self.shape.length
        return Batch(*rng.integers(self.shape.vocabulary, size=size, dtype=np.int32))


def serial(workload: Workload, microbatches: int) -> Callable[[], Any]:
    """Return a function that computes the gradient on one device."""
    model, params = workload.network()
    batch = workload.batch(microbatches)
    rows = np.arange(workload.microbatch_size)
    parts = [take(batch, n * len(rows) + rows) for n in range(microbatches)]
    weights = [1 / microbatches] * microbatches
    arguments = jax.device_put((params, parts), jax.devices()[0])
    microbatch_gradient = partial(gradient, model.loss)
    return lambda: accumulate(microbatch_gradient, *arguments, weights)


def pipelined(workload: Workload, pipeline: Pipeline) -> tuple[Callable[[], Any], Any]:
    """Return a function that computes the gradient, and its compiled programs.

    Each device is a stage.
    """
    model, params = workload.network()
    network = replicate_layers(model, params)
    # Operations replace seconds here: only the ratios between layers matter.
    costs = layer_costs.flops(model.layers, params, workload.batch(1))
    pipeline = pipeline._replace(seconds=costs)
    axes = devices.mesh(data=1, stage=len(jax.devices()), tensor=1)
    parts = divide(network, params, axes, pipeline)
    layout = layout_of(parts, params, axes, lambda tree: tree)
    programs = GradientPrograms(network, layout, pipeline)
    scattered_params = layout.scatter(params)
    batch = workload.batch(pipeline.microbatches)
    index, _ = divide_examples(1, pipeline.microbatches, np.arange(len(batch.targets)))
    call = partial(
        programs, scattered_params, take(batch, index), pipeline.microbatches
    )
    return call, programs


def speeds(
    workload: Workload, microbatch_counts: Sequence[int], repeats: int
) -> Iterator[Row]:
    """Yield the speed-up of every schedule, for each number of microbatches.

    Args:
        workload: the GPT and the size of its microbatches.
        microbatch_counts: numbers of microbatches.
        repeats: number of timings, whose median is taken.
    """
    stages = len(jax.devices())
    for microbatches in microbatch_counts:
        built = {
            name: pipelined(workload, pipeline._replace(microbatches=microbatches))
            for name, pipeline in SCHEDULES.items()
        }
        calls = {name: (stages, call) for name, (call, _) in built.items()}
        times = time_alternately(
            {SERIAL: (1, serial(workload, microbatches))} | calls, repeats
        )
        grads = {
            name: programs.layout.collect(call()[1])
            for name, (call, programs) in built.items()
        }
        for name, (_, programs) in built.items():
            yield {
                "schedule": name,
                "stages": stages,
                "microbatches": microbatches,
                "milliseconds": 1e3 * float(np.median(times[name])),
                "formula": stages * microbatches / (microbatches + stages - 1),
                "measured": median_ratio(times[SERIAL], times[name]),
                "of_gpipe": median_ratio(times[name], times["gpipe"]),
                "temporary_mb": programs.temporary_bytes / MB,
                "difference": difference(grads[name], grads["gpipe"]),
                "bits_of_1f1b": difference(grads[name], grads["1f1b"]) == 0,
            }


def median_ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of times[n] / others[n]; both were timed alternately."""
    return float(np.median(np.divide(times, others)))


def difference(grads: Any, reference: Any) -> float:
    """Return the largest difference of gradients, relative to the largest of them."""
    leaves = zip(jax.tree.leaves(grads), jax.tree.leaves(reference), strict=True)
    largest = max(abs(leaf).max() for leaf in jax.tree.leaves(reference))
    return float(max(abs(one - other).max() for one, other in leaves) / largest)
