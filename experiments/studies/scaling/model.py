"""Predicted seconds of a synchronous step on p workers, by α, β and γ.

α is the latency of a message, β and γ the seconds of sending and adding a byte. A step
takes gradient + all-reduce seconds; with overlap forward + max(backward, all-reduce),
where the backward pass is 2/3 of the gradient.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import SCHEDULES
from dml.wire.plans.topology import groups

BY_HAND = list(SCHEDULES)  # the all-reduces of this codebase; native is MPI's
BACKWARD = 2 / 3  # share of a gradient's time: two products per layer, forward has one


class Training(NamedTuple):
    """A model, its minibatches and its speed.

    parameters: number of parameters.
    itemsize: bytes of a parameter on the wire.
    batch: batch size, per worker if scaling is weak, global if strong.
    strong: whether scaling is strong.
    fixed: seconds of a gradient that do not depend on the number of examples.
    example: further seconds of a gradient for each example.
    host: workers per host.
    """

    parameters: int
    itemsize: int
    batch: int
    strong: bool
    fixed: float
    example: float
    host: int = 1

    def examples(self, size: int) -> float:
        """Return the number of examples per worker."""
        return self.batch / size if self.strong else float(self.batch)

    def gradient(self, size: int) -> float:
        """Return the seconds of a gradient on one of `size` workers."""
        return self.fixed + self.example * self.examples(size)

    def job(self, size: int) -> Job:
        """Return the all-reduce of the gradient over `size` workers."""
        hosts = tuple(rank // self.host for rank in range(size))
        sizes = tuple(map(len, groups(hosts)))
        return Job(size, self.parameters, self.itemsize, groups=sizes)


def step_seconds(
    training: Training, rates: Rates, name: str, size: int, overlap: bool
) -> float:
    """Predict the seconds of a step on `size` workers with the named all-reduce."""
    wire = cost.seconds(name, training.job(size), rates)
    return total_seconds(training.gradient(size), wire, overlap)


def total_seconds(gradient: float, wire: float, overlap: bool) -> float:
    """Return the seconds of a step from those of its gradient and its all-reduce."""
    hidden = min(wire, BACKWARD * gradient) if overlap else 0.0
    return gradient + wire - hidden


def speedup(
    training: Training, rates: Rates, name: str, size: int, overlap: bool
) -> float:
    """Return examples per second relative to one worker."""
    serial = training.examples(1) / training.gradient(1)
    seconds = step_seconds(training, rates, name, size, overlap)
    return size * training.examples(size) / seconds / serial


def bottleneck(
    training: Training, rates: Rates, name: str, size: int, overlap: bool
) -> str:
    """Return the resource whose doubled speed shortens the step most."""
    faster_training = training._replace(
        fixed=training.fixed / 2, example=training.example / 2
    )
    faster_rates = {
        "latency": rates._replace(alpha=rates.alpha / 2, barrier=rates.barrier / 2),
        "bandwidth": rates._replace(beta=rates.beta / 2, copy=rates.copy / 2),
        "adding": rates._replace(gamma=rates.gamma / 2),
    }
    seconds = {
        "computing": step_seconds(faster_training, rates, name, size, overlap)
    } | {
        resource: step_seconds(training, faster, name, size, overlap)
        for resource, faster in faster_rates.items()
    }
    return min(seconds, key=lambda resource: seconds[resource])


def rows(
    training: Training, rates: Rates, most: int, overlap: bool
) -> Iterator[dict[str, Any]]:
    """Yield predictions for 1, 2, 4, ... workers below `most`, and for `most`.

    A row has the speed-up with every all-reduce, the fastest all-reduce of BY_HAND, and
    its bottleneck. Strong scaling ends at one example per worker.
    """
    powers = [1 << k for k in range(most.bit_length())]
    for size in sorted({*powers, most}):
        if training.examples(size) < 1:
            break
        speedups = {
            name: speedup(training, rates, name, size, overlap)
            for name in (*BY_HAND, "native")
        }
        best = max(BY_HAND, key=lambda name: speedups[name])
        yield {
            "p": size,
            "overlap": overlap,
            "gradient_seconds": training.gradient(size),
            "step_seconds": step_seconds(training, rates, best, size, overlap),
            "best": best if size > 1 else "-",
            "speedup": speedups[best],
            "efficiency": speedups[best] / size,
            "bottleneck": bottleneck(training, rates, best, size, overlap),
            **{f"{name}_speedup": value for name, value in speedups.items()},
        }
