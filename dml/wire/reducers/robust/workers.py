"""Terms sent instead of gradients: momentum of workers, and attacks on own terms."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.wire.reducers.robust.rule import Byzantine


class Workers(NamedTuple):
    """The state of the workers of a rank; a worker has one term in each update.

    Attributes:
      momentum: t x d, of t terms; None: there is none.
      earlier: t x k x d: the terms of the last k updates; None: there are none.
    """

    momentum: np.ndarray | None = None
    earlier: np.ndarray | None = None


def start(length: int, terms: int, momentum: float, lag: int) -> Workers:
    """Return the state before the first update.

    Args:
      length: Number of elements of a term.
      terms: Number of terms of the rank.
      momentum: Factor of the momentum; 0: none.
      lag: Number of updates by which attackers are late.
    """
    return Workers(
        np.zeros((terms, length), np.float32) if momentum else None,
        np.zeros((terms, lag, length), np.float32) if lag else None,
    )


def fits(workers: Workers, terms: int) -> bool:
    """Return whether a state is that of a number of terms."""
    return all(len(array) == terms for array in workers if array is not None)


def add_momentum(
    workers: Workers, terms: Sequence[np.ndarray], factor: float
) -> Workers:
    """Replace the terms g by m = βm + (1-β)g."""
    if workers.momentum is None:
        return workers
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
    if earlier is not None:
        latest_Tx1xD = np.stack(terms)[:, None]
        for number, term in enumerate(terms, first):
            if number in attackers:
                term[:] = earlier[number - first, 0]
        earlier = np.concatenate([earlier[:, 1:], latest_Tx1xD], axis=1)
        workers = workers._replace(earlier=earlier)
    if attack.own:
        for number, term in enumerate(terms, first):
            if number in attackers:
                attack.own(term, step, number)
    return workers
