"""Seconds of a synchronous step on p workers, by α, β, γ: pure arithmetic.

T = gradient + all-reduce. With overlap, T = forward + max(backward, all-reduce), where
the backward pass is 2/3 of the gradient.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import SCHEDULES
from dml.wire.plans.topology import groups

BY_HAND = list(SCHEDULES)
BACKWARD = 2 / 3  # of a gradient's time: two products per layer, against one forward


class Training(NamedTuple):
    """A model, its minibatches and its speed.

    parameters: number of parameters.
    itemsize: bytes of a parameter on the wire.
    batch: batch size, per worker if scaling is weak, global if strong.
    strong: whether scaling is strong.
    fixed, example: a gradient of b examples takes fixed + b·example seconds.
    host: workers that share memory.
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
        return self.fixed + self.example * self.examples(size)

    def job(self, size: int) -> Job:
        hosts = tuple(rank // self.host for rank in range(size))
        sizes = tuple(map(len, groups(hosts)))
        return Job(size, self.parameters, self.itemsize, groups=sizes)


def step(
    training: Training, rates: Rates, name: str, size: int, overlap: bool
) -> float:
    """Predict the seconds of a step."""
    wire = cost.seconds(name, training.job(size), rates)
    return joined(training.gradient(size), wire, overlap)


def joined(gradient: float, wire: float, overlap: bool) -> float:
    hidden = min(wire, BACKWARD * gradient) if overlap else 0.0
    return gradient + wire - hidden


def speedup(training: Training, rates: Rates, name: str, size: int, overlap: bool):
    """Return examples per second relative to one worker."""
    serial = training.examples(1) / training.gradient(1)
    seconds = step(training, rates, name, size, overlap)
    return size * training.examples(size) / seconds / serial


def binds(training: Training, rates: Rates, name: str, size: int, overlap: bool) -> str:
    """Return the resource whose doubled speed shortens the step most."""
    halves = {"fixed": training.fixed / 2, "example": training.example / 2}
    less = {
        "latency": rates._replace(alpha=rates.alpha / 2, barrier=rates.barrier / 2),
        "bandwidth": rates._replace(beta=rates.beta / 2, copy=rates.copy / 2),
        "adding": rates._replace(gamma=rates.gamma / 2),
    }
    seconds_by_resource = {
        "computing": step(training._replace(**halves), rates, name, size, overlap)
    } | {
        resource: step(training, halved, name, size, overlap)
        for resource, halved in less.items()
    }
    return min(seconds_by_resource, key=lambda resource: seconds_by_resource[resource])


def rows(
    training: Training, rates: Rates, most: int, overlap: bool
) -> Iterator[dict[str, Any]]:
    """Yield predictions for 1, 2, 4, ... workers, up to `most`.

    A row has the speed-up with every all-reduce, the fastest, and what limits it.
    """
    size = 1
    while size <= most and training.examples(size) >= 1:
        speedups = {
            name: speedup(training, rates, name, size, overlap)
            for name in (*BY_HAND, "native")
        }
        best = max(BY_HAND, key=lambda name: speedups[name])
        yield {
            "p": size,
            "overlap": overlap,
            "gradient_seconds": training.gradient(size),
            "step_seconds": step(training, rates, best, size, overlap),
            "best": best if size > 1 else "-",
            "speedup": speedups[best],
            "efficiency": speedups[best] / size,
            "binds": binds(training, rates, best, size, overlap),
            **{f"{name}_speedup": value for name, value in speedups.items()},
        }
        size *= 2
