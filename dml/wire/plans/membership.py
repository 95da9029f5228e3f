"""Which ranks of an elastic run are workers: pure arithmetic.

    world      0  1  2  3  4  5        workers 0 … 3, spares 4 and 5, target 4
    2 dies     0  1  ×  3  4  5        order of workers: 0, 1, 3, then spare 4
    target 3   0  1  ×  3  4  5        the last worker becomes a spare

Workers keep their order, so that most ranks keep their part of a minibatch.
"""

from collections.abc import Sequence

from dml.types import BadInput

SPARE = -1  # position of a rank that is not a worker


def choose_workers(positions: Sequence[int], target: int) -> list[int]:
    """Return the ranks of the next workers, in their order.

    Args:
      positions: Position of each living rank among the workers; SPARE for others.
      target: Requested number of workers; there are fewer if fewer ranks live.
    """
    if target < 1:
        raise BadInput(f"expected 1 worker or more, got {target}; pass 1 or more")
    ranks = range(len(positions))
    before = sorted(
        (rank for rank in ranks if positions[rank] != SPARE),
        key=lambda rank: positions[rank],
    )
    spares = [rank for rank in ranks if positions[rank] == SPARE]
    return [*before, *spares][:target]


def sources(has_state: Sequence[bool]) -> dict[int, int]:
    """Return the worker that sends the state to each worker without it.

    The senders take turns. Without any sender, all workers begin anew.

    Args:
      has_state: Whether each worker has the state.
    """
    senders = [worker for worker, has in enumerate(has_state) if has]
    receivers = [worker for worker, has in enumerate(has_state) if not has]
    return {
        receiver: senders[k % len(senders)]
        for k, receiver in enumerate(receivers if senders else ())
    }
