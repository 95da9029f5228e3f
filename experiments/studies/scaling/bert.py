"""BERT-large on 256, 1024 and 1472 V100: published minutes and the α-β-γ model.

α is the latency of a message, β and γ the seconds of sending and adding a byte. The
model is fitted to the published time on 256 V100 only; its other assumptions are the
constants below. Hosts are DGX-2H: 16 V100 each, connected by NVSwitch.
"""

from collections.abc import Callable
from typing import Any

from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from studies.scaling.model import BACKWARD, total_seconds

PUBLISHED = {256: 236.0, 1024: 67.0, 1472: 47.0}  # minutes by number of V100
MIN_SERIAL = 14 * 24 * 60.0  # minutes; one V100 takes "more than two weeks"
PARAMETERS, ITEMSIZE = 340_000_000, 2  # gradients are sent in half precision
STEPS = 7038 + 1563  # assumed; 65 536 sequences of 128 per step, then 32 768 of 512
HOST = 16  # V100 per host
OUTSIDE = Rates(alpha=5e-6, beta=16 / 100e9, gamma=1 / 300e9)  # 8 x 100 Gb/s per host
INSIDE = OUTSIDE._replace(beta=1 / 150e9)

ASSUMED = (
    f"the model's rows assume {PARAMETERS / 1e6:.0f} M gradients of {ITEMSIZE} bytes, "
    f"{STEPS} steps for any number of V100, and hosts of {HOST} V100 with 100 GB/s "
    "between hosts and 150 GB/s inside"
)


def ring(size: int) -> float:
    """Return the seconds of one ring; the V100 of a host share its ports equally."""
    return cost.seconds("ring", Job(size, PARAMETERS, ITEMSIZE), OUTSIDE)


def two_levels(size: int) -> float:
    """Return the seconds of rings inside hosts, then 16 rings between hosts."""
    inside = cost.seconds("ring", Job(HOST, PARAMETERS, ITEMSIZE), INSIDE)
    one_of_16 = Job(size // HOST, PARAMETERS // HOST, ITEMSIZE)
    return inside + cost.seconds("ring", one_of_16, OUTSIDE)


def minutes(size: int, wire: Callable[[int], float], overlap: bool) -> float:
    """Predict the minutes of training on `size` V100.

    wire: number of V100 -> seconds of an all-reduce.
    overlap: whether the all-reduce overlaps with the backward pass.
    """
    step_seconds = 60 * PUBLISHED[256] / STEPS
    gradient = step_seconds - wire(256)
    if overlap:  # the inverse of `total_seconds`
        gradient = min(step_seconds, gradient / (1 - BACKWARD))
    return STEPS * total_seconds(gradient * 256 / size, wire(size), overlap) / 60


def rows() -> list[dict[str, Any]]:
    """Return the published row and a row per model: minutes, efficiencies, errors."""
    minutes_by_job = {"published": PUBLISHED}
    for name, wire in (("ring", ring), ("two levels", two_levels)):
        for overlap in (False, True):
            title = f"{name}, overlapped" if overlap else name
            minutes_by_job[title] = {
                size: minutes(size, wire, overlap) for size in PUBLISHED
            }
    return [
        {"job": title}
        | {f"minutes_{size}": time for size, time in times.items()}
        | {f"efficiency_{size}": efficiency(size, time) for size, time in times.items()}
        | {f"error_{size}": time / PUBLISHED[size] - 1 for size, time in times.items()}
        for title, times in minutes_by_job.items()
    ]


def efficiency(size: int, time: float) -> float:
    """Return the efficiency of minutes on `size` V100, relative to 256 V100."""
    return PUBLISHED[256] * 256 / (time * size)


def single_device_text() -> str:
    """Return the lower bounds of the efficiencies relative to one V100 as text."""
    efficiencies = [
        f"{MIN_SERIAL / (size * time):.0%} on {size}"
        for size, time in PUBLISHED.items()
    ]
    return f"against one V100 (> 2 weeks): more than {', '.join(efficiencies)}"
