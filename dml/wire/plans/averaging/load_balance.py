"""Shares of a buffer that the members of a group reduce, by bandwidth.

In the average of g members, member i reduces the share w_i of a buffer of V elements.
It sends 1 - w_i of its values to the other members, and the mean of its share to g - 1
members. The number of elements that it sends, and that it receives, is

    load_i = V(1 - w_i) + V(g - 1)w_i = V(1 + (g - 2)w_i)

The shares minimise the largest load_i / b_i, where b_i are the bandwidths. The fastest
k members send until the same time T (the level); other members have the share 0.

    load/b  T ┄ █ ┄ █ ┄ █ ┄ ┄ ┄ ┄      T = V(g - 2 + k)/(b_1 + … + b_k)
                █   █   █   █
                █   █   █   █   █      the last two shares are 0

A member with bandwidth 0, a client behind a NAT, sends its values and has the share 0.
Ryabinin 2021, and `load_balancing.py` of hivemind. Pure arithmetic.
"""

from collections.abc import Sequence

import numpy as np

from dml.types import BadInput


def level(
    bandwidths_xM: np.ndarray, sizes: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best shares of groups, and the seconds for a buffer of one element.

    Args:
      bandwidths_xM: Elements per second of each seat; each row along the last axis is a
        group; 0 for clients and for seats without a member.
      sizes: Number of members of each group, clients included.

    Returns:
      Shares, whose sum is 1 in each group with a positive bandwidth; and seconds, which
      are infinite in groups without one. The seconds include members with the share 0,
      which send their values.
    """
    sizes = np.asarray(sizes)[..., None]
    order = np.argsort(-bandwidths_xM, axis=-1, kind="stable")
    fast_xM = np.take_along_axis(bandwidths_xM, order, -1)
    sums_xM = np.cumsum(fast_xM, -1)
    count = np.arange(1, bandwidths_xM.shape[-1] + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        times_xM = (sizes - 2 + count) / sums_xM
        # a member is one of the k fastest if it sends its values in at most T
        inside_xM = (fast_xM > 0) & (times_xM * fast_xM >= 1)
        k = np.maximum(inside_xM.sum(-1, keepdims=True), 1)
        time = np.take_along_axis(times_xM, k - 1, -1)
        shares_xM = np.where(
            sizes > 2,
            np.maximum(0, time * bandwidths_xM - 1) / np.maximum(1, sizes - 2),
            bandwidths_xM / sums_xM[..., -1:],  # every share has the same load
        )
        slowest = np.where(bandwidths_xM > 0, bandwidths_xM, np.inf).min(-1)
        seconds = np.maximum(time[..., 0], 1 / slowest)
    owned = bandwidths_xM.max(-1) > 0
    shares_xM = np.where(owned[..., None] & (bandwidths_xM > 0), shares_xM, 0.0)
    seconds = np.where(sizes[..., 0] > 1, seconds, 0.0)
    return shares_xM, np.where(owned, seconds, np.inf)


def shares(bandwidths: Sequence[float], length: int) -> np.ndarray:
    """Return the number of elements that each member reduces; they sum to `length`.

    Args:
      bandwidths: Elements (or bytes) per second of each member; 0: share of 0.
      length: Number of elements of the buffer.
    """
    speeds = np.asarray(bandwidths, float)
    if not (speeds >= 0).all() or not np.isfinite(speeds).all() or not speeds.any():
        raise BadInput(
            f"expected bandwidths of 0 or more, one above 0, got {list(bandwidths)}; "
            "correct them"
        )
    return integer_parts(level(speeds, len(speeds))[0], length)


def integer_parts(weights: np.ndarray, length: int) -> np.ndarray:
    """Return integers in proportion to weights, by the method of Hagenbach-Bischoff.

    Each part is first ⌊length·weight/Σ weights⌋. Each remaining element is added to the
    part with the largest weight/(part + 1); of equal ones, to the first. If the length
    increases, no part decreases; a larger weight never has a smaller part.

    Args:
      weights: Weights of 0 or more, one above 0.
      length: Sum of the parts.
    """
    weights = np.asarray(weights, float)
    parts = np.floor(weights * (length / weights.sum()) * (1 - 1e-12)).astype(np.int64)
    while parts.sum() < length:  # at most one step for each weight
        parts[np.argmax(weights / (parts + 1))] += 1
    return parts
