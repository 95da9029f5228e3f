"""What a worker sends instead of its gradient: its momentum, or an attack."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.wire.reducers.robust.rule import Byzantine

NONE = np.zeros(0, np.float32)


class Workers(NamedTuple):
    """The state of the workers of a rank; a worker has one term in each update.

    Attributes:
      momentum: t x d, of t terms; empty: none.
      earlier: k x t x d: the terms of the last k updates; empty: none.
    """

    momentum: np.ndarray = NONE
    earlier: np.ndarray = NONE


def start(length: int, terms: int, momentum: float, lag: int) -> Workers:
    """Return the state before the first update.

    Args:
      length: Number of elements of a term.
      terms: Number of terms of the rank.
      momentum: Factor of the momentum; 0: none.
      lag: Number of updates by which attackers are late.
    """
    zeros = np.zeros((terms, length), np.float32)
    return Workers(
        zeros if momentum else NONE, np.stack([zeros] * lag) if lag else NONE
    )


def add_momentum(
    workers: Workers, terms: Sequence[np.ndarray], factor: float
) -> Workers:
    """Replace the terms g by m = βm + (1-β)g."""
    momentum = workers.momentum * np.float32(factor)
    for row, term in zip(momentum, terms, strict=True):
        row += np.float32(1 - factor) * term
        term[:] = row
    return workers._replace(momentum=momentum)


def forge_own(
    workers: Workers,
    terms: Sequence[np.ndarray],
    byzantine: Byzantine,
    step: int,
    place: tuple[int, int],
) -> Workers:
    """Replace the terms of attackers by what they send without knowing other terms.

    Args:
      workers: State of this rank's workers.
      terms: Terms of this rank.
      byzantine: Attack.
      step: Number of earlier updates.
      place: Number of the first term of this rank, and of terms of all ranks.
    """
    attack, (first, count) = byzantine.attack, place
    attackers = byzantine.workers(count)
    earlier = workers.earlier
    if attack.lag:
        now = np.stack(terms)
        for number, term in enumerate(terms, first):
            if number in attackers:
                term[:] = earlier[0, number - first]
        workers = workers._replace(earlier=np.concatenate([earlier[1:], now[None]]))
    if attack.own:
        for number, term in enumerate(terms, first):
            if number in attackers:
                attack.own(term, step, number)
    return workers
