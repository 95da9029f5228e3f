"""The square-cube law of pipelines: costs of computation and of transfer by width.

    compute   ∝ d² per token, d³ for d tokens     ████████████████
    transfer  ∝ d  per token, d² for d tokens     ████

A stage of width d multiplies vectors by d x d matrices, and sends vectors of d numbers.
At equal bandwidth, twice the width halves the ratio of transfer to computation.
Ryabinin 2023, SWARM Parallelism, section 3.1. Pure arithmetic.
"""

from typing import NamedTuple


class Stage(NamedTuple):
    """A pipeline stage of transformer blocks, and its microbatch.

    Attributes:
      width: Units of the residual stream, d.
      length: Tokens of an example.
      batch: Examples of a microbatch.
      blocks: Number of blocks.
      expansion: Width of the hidden layer of a block, divided by d.
      itemsize: Bytes of an activation and of its gradient.
    """

    width: int
    length: int
    batch: int = 1
    blocks: int = 1
    expansion: int = 4
    itemsize: int = 4


def flops(stage: Stage) -> float:
    """Return the floating-point operations of a forward and backward pass.

    Forward pass for each token and block: 2·(4 + 2·expansion)·d² for matrices and
    4·length·d for attention. Backward pass: twice as many.
    """
    matrices = 2 * (4 + 2 * stage.expansion) * stage.width**2
    attention = 4 * stage.length * stage.width
    tokens = stage.batch * stage.length
    return 3.0 * tokens * stage.blocks * (matrices + attention)


def words(stage: Stage) -> int:
    """Return the words of activations and of their gradients that a stage sends."""
    return 2 * stage.batch * stage.length * stage.width


class Speeds(NamedTuple):
    """Speeds of a volunteer.

    Attributes:
      flops: Floating-point operations per second.
      bandwidth: Bytes per second of upload.
      latency: Seconds of a message.
    """

    flops: float
    bandwidth: float
    latency: float = 0.0


def seconds(stage: Stage, speeds: Speeds) -> tuple[float, float]:
    """Return the seconds of computation and of transfer of a microbatch."""
    transfer = 2 * speeds.latency + words(stage) * stage.itemsize / speeds.bandwidth
    return flops(stage) / speeds.flops, transfer


def communication(stage: Stage, speeds: Speeds) -> float:
    """Return the share of time in communication, without overlap with computation."""
    compute, transfer = seconds(stage, speeds)
    return transfer / (compute + transfer)


def least_width(stage: Stage, speeds: Speeds, share: float) -> int:
    """Return the smallest width with at most a share of communication.

    Args:
      stage: Stage; its width is ignored.
      speeds: Speeds of a volunteer.
      share: Share of time in communication, between 0 and 1.
    """
    low, high = 0, 1
    while communication(stage._replace(width=high), speeds) > share:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        wide = communication(stage._replace(width=middle), speeds) > share
        low, high = (middle, high) if wide else (low, middle)
    return high
