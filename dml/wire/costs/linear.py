"""Words, rounds and best sizes of linear models with columns split over p ranks."""

import math


def step_words(steps: int, batch: int) -> int:
    """Return the words of the buffer of s steps of b rows: products and Gram matrix.

    s b products, and b² inner products for each pair of steps.
    """
    return steps * batch + steps * (steps - 1) // 2 * batch**2


def lbfgs_words(examples: int, pairs: int) -> int:
    """Return the words of the buffers of an iteration of L-BFGS with k ≤ m pairs.

    3 (2k + 1) inner products of the new vectors with all, one product of an example
    with the direction, and two terms of the norm.
    """
    return 3 * (2 * pairs + 1) + examples + 2


def best_rows(
    alpha: float, beta: float, itemsize: int, size: int, passes: float = 2.0
) -> float:
    """Return the product s b with the least time of messages per step.

    A step takes α lg p / s + β w c s b² / 2 seconds, with c passes of the buffer.
    """
    return math.sqrt(2 * alpha * math.log2(size) / (beta * itemsize * passes))


def best_ranks(seconds: float, round_seconds: float, steps: int = 1) -> float:
    """Return the number of ranks p* beyond which more ranks make a step slower.

    A step takes T/p + a lg p / s seconds: its derivative is zero at p* = T s ln 2 / a.

    Args:
      seconds: Seconds T of a step on one rank.
      round_seconds: Seconds a of a round of the all-reduce; lg p rounds.
      steps: Number of steps s of an all-reduce.
    """
    return seconds * steps * math.log(2) / round_seconds
