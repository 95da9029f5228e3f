"""Seconds of a synchronous step on p workers, by α, β, γ: pure arithmetic.

T = gradient + all-reduce; or, where layers are reduced while those before them are
still computed, forward + max(backward, all-reduce), the backward pass being 2/3.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import SCHEDULES
from dml.wire.plans.topology import groups

BY_HAND = list(SCHEDULES)
BACKWARD = 2 / 3  # of a gradient's time: two products a layer, against one forward


class Training(NamedTuple):
    """A model and its minibatches; a gradient of b examples takes fixed + b·example."""

    parameters: int
    itemsize: int  # bytes of one on the wire
    batch: int  # of a worker if weak; of all together if strong
    strong: bool
    fixed: float
    example: float
    host: int = 1  # workers that share memory

    def examples(self, size: int) -> float:
        """Return the examples of one worker."""
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
    """Examples a second, over those of one worker."""
    alone = training.examples(1) / training.gradient(1)
    took = step(training, rates, name, size, overlap)
    return size * training.examples(size) / took / alone


def binds(training: Training, rates: Rates, name: str, size: int, overlap: bool) -> str:
    """Name the resource of which a double would shorten the step most."""
    halves = {"fixed": training.fixed / 2, "example": training.example / 2}
    less = {
        "latency": rates._replace(alpha=rates.alpha / 2, meet=rates.meet / 2),
        "bandwidth": rates._replace(beta=rates.beta / 2, touch=rates.touch / 2),
        "adding": rates._replace(gamma=rates.gamma / 2),
    }
    took = {
        "computing": step(training._replace(**halves), rates, name, size, overlap)
    } | {what: step(training, one, name, size, overlap) for what, one in less.items()}
    return min(took, key=lambda what: took[what])


def rows(
    training: Training, rates: Rates, most: int, overlap: bool
) -> Iterator[dict[str, Any]]:
    """Predict for 1, 2, 4, ... workers: all all-reduces, the fastest, its limit."""
    size = 1
    while size <= most and training.examples(size) >= 1:
        of = {
            name: speedup(training, rates, name, size, overlap)
            for name in (*BY_HAND, "native")
        }
        best = max(BY_HAND, key=lambda name: of[name])
        yield {
            "p": size,
            "overlap": overlap,
            "gradient_seconds": training.gradient(size),
            "step_seconds": step(training, rates, best, size, overlap),
            "best": best if size > 1 else "-",
            "speedup": of[best],
            "efficiency": of[best] / size,
            "binds": binds(training, rates, best, size, overlap),
            **{f"{name}_speedup": value for name, value in of.items()},
        }
        size *= 2
