"""Round robin (Langford 2009): parallel gradients, changes in the order of steps.

    worker 0   gradient 0   change 0               gradient 2   …
    worker 1   gradient 1            change 1      …

Step t changes the table after step t - 1: no change is lost, and the staleness of a
gradient is at most p - 1. The policy is fast if a gradient takes much longer than a
change. In addition to its rows, an edge writes one word, which all other workers read.
"""

from numba import njit

from dml.wire.memory.atomics import store, wait_for
from dml.wire.memory.hogwild import add, enter

__all__ = ["STEPS", "add", "enter", "leave", "turn"]
STEPS = 1


@njit(nogil=True, cache=True)
def turn(sync, edges, e, t, moves):
    """Wait until the steps before this one have changed the table."""
    wait_for(sync.turn, 0, t)


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Start the turn of the next step."""
    store(sync.turn, 0, t + 1)
