"""Seconds of the messages of a training step, for whole columns of runs.

    ring of p devices    p - 1 rounds of n/p bytes each: a gather or a reduce-scatter
    all-reduce           both: 2(p - 1) rounds
    all-to-all           p - 1 messages of n/p bytes from each device

A round takes α + n/(p B). These are the seconds of `dml.wire.collectives` on virtual
ranks of a uniform network with the rates α and 1/B.
"""

from typing import Any

import numpy as np


def gather_seconds(size: Any, nbytes: Any, bandwidth: Any, alpha: float = 0.0) -> Any:
    """Return the seconds of a ring all-gather to, or reduce-scatter of, nbytes bytes.

    Args:
      size: Number of devices p.
      nbytes: Bytes of the whole vector n.
      bandwidth: Bytes per second B of a device.
      alpha: Seconds of a message without content, α.
    """
    rounds = np.asarray(size, float) - 1
    return rounds * (alpha + nbytes / np.maximum(size, 1) / bandwidth)


def all_reduce_seconds(
    size: Any, nbytes: Any, bandwidth: Any, alpha: float = 0.0
) -> Any:
    """Return the seconds of a ring all-reduce; see `gather_seconds`."""
    return 2 * gather_seconds(size, nbytes, bandwidth, alpha)


def message_seconds(nbytes: Any, bandwidth: Any, alpha: float = 0.0) -> Any:
    """Return the seconds of one message."""
    return alpha + nbytes / bandwidth
