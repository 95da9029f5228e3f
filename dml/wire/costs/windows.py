"""Predicted seconds of all-gathers, reduce-scatters and all-reduces by windows.

Exact on the uniform network if all chunks are equal, otherwise an upper bound.
"""

from dml.wire.costs.allreduce import (
    Job,
    Rates,
    folding_seconds,
    reduce_seconds,
    send_seconds,
)
from dml.wire.plans.windows import Pattern, longest


def gather_seconds(pattern: Pattern, job: Job, rates: Rates) -> float:
    """Return the seconds of the all-gather of the chunks of all ranks."""
    power, extra = pattern.fold(job.size)
    pair = 2 if extra else 1  # chunks of the largest place
    lengths = [
        longest(job.length, job.size, pair * count) for count in pattern.counts(power)
    ]
    if extra:
        lengths += [longest(job.length, job.size, 1), job.length]
    return sum(send_seconds(job, rates, length) for length in lengths)


def scatter_seconds(pattern: Pattern, job: Job, rates: Rates) -> float:
    """Return the seconds of the reduce-scatter."""
    power, extra = pattern.fold(job.size)
    pair = 2 if extra else 1
    lengths = [
        longest(job.length, job.size, pair * count) for count in pattern.counts(power)
    ]
    total = 0.0
    if extra:
        lengths.append(job.length)
        total = send_seconds(job, rates, longest(job.length, job.size, 1))
    return total + sum(reduce_seconds(job, rates, length) for length in lengths)


def allreduce_seconds(pattern: Pattern, job: Job, rates: Rates) -> float:
    """Return the seconds of the reduce-scatter and the all-gather, and of folding."""
    power, extra = pattern.fold(job.size)
    total = folding_seconds(job, rates) if extra else 0.0
    for count in pattern.counts(power):
        most = longest(job.length, power, count)
        total += reduce_seconds(job, rates, most) + send_seconds(job, rates, most)
    return total
