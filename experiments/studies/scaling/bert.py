"""BERT-large on 256, 1024 and 1472 V100: the lecture's minutes, and by α, β, γ.

The model is one of the same job, fitted to nothing but the row of 256; what it assumes
stands here. Hosts are DGX-2H: 16 V100 each, joined by NVSwitch.
"""

from collections.abc import Callable
from typing import Any

from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from studies.scaling.model import BACKWARD, joined

PUBLISHED = {256: 236.0, 1024: 67.0, 1472: 47.0}  # minutes by V100
ALONE = 14 * 24 * 60.0  # minutes that one V100 takes at least: "more than two weeks"
PARAMETERS, ITEMSIZE = 340_000_000, 2  # gradients go in half precision
STEPS = 7038 + 1563  # assumed: sequences of 128, 65 536 a step; of 512, 32 768 a step
HOST = 16
OUTSIDE = Rates(alpha=5e-6, beta=16 / 100e9, gamma=1 / 300e9)  # 8 x 100 Gb/s a host
INSIDE = OUTSIDE._replace(beta=1 / 150e9)

ASSUMED = (
    f"the model's rows assume {PARAMETERS / 1e6:.0f} M gradients of {ITEMSIZE} bytes, "
    f"{STEPS} steps whatever the V100, hosts of {HOST} with 100 GB/s out, 150 GB/s "
    "inside"
)


def ring(size: int) -> float:
    """One ring over all, each V100 with its share of its host's ports."""
    return cost.seconds("ring", Job(size, PARAMETERS, ITEMSIZE), OUTSIDE)


def two_levels(size: int) -> float:
    """Rings inside hosts, and across them one for each 16th of the gradient."""
    inside = cost.seconds("ring", Job(HOST, PARAMETERS, ITEMSIZE), INSIDE)
    share = Job(size // HOST, PARAMETERS // HOST, ITEMSIZE)
    return inside + cost.seconds("ring", share, OUTSIDE)


def minutes(size: int, wire: Callable[[int], float], overlap: bool) -> float:
    """Predict a run; how fast a gradient is comes from the row of 256."""
    known = 60 * PUBLISHED[256] / STEPS
    gradient = known - wire(256)
    if overlap:  # the inverse of `joined`
        gradient = min(known, gradient / (1 - BACKWARD))
    return STEPS * joined(gradient * 256 / size, wire(size), overlap) / 60


def rows() -> list[dict[str, Any]]:
    """The published row, then the model's: minutes, efficiencies, errors."""
    each = {"published": PUBLISHED}
    for name, wire in (("ring", ring), ("two levels", two_levels)):
        for overlap in (False, True):
            title = f"{name}, overlapped" if overlap else name
            each[title] = {size: minutes(size, wire, overlap) for size in PUBLISHED}
    return [
        {"job": title}
        | {f"minutes_{size}": took for size, took in of.items()}
        | {f"efficiency_{size}": efficiency(size, took) for size, took in of.items()}
        | {f"error_{size}": took / PUBLISHED[size] - 1 for size, took in of.items()}
        for title, of in each.items()
    ]


def efficiency(size: int, took: float) -> float:
    """Of a speed-up that is linear from 256 on."""
    return PUBLISHED[256] * 256 / (took * size)


def single_device_text() -> str:
    """What the table says of one V100, of which it gives but a bound."""
    shares = [
        f"{ALONE / (size * took):.0%} on {size}" for size, took in PUBLISHED.items()
    ]
    return f"against one V100 (> 2 weeks): more than {', '.join(shares)}"
