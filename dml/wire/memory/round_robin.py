"""Round robin (Langford 2009): parallel gradients, changes in the order of steps.

    worker 0   gradient 0   change 0               gradient 2   …
    worker 1   gradient 1            change 1      …

Step t changes the table after step t - 1. No change is lost, and the staleness of a
gradient is at most p - 1 steps for p workers. The policy is fast if a gradient takes
much longer than a change. In addition to its rows, a step writes the number of the next
step, which all other workers read.
"""

from numba import njit

from dml.wire.memory.atomics import store, wait_for
from dml.wire.memory.hogwild import add, enter

__all__ = ["STEPS", "add", "before_changes", "enter", "leave"]
STEPS = 1  # consecutive steps of a worker


@njit(nogil=True, cache=True)
def before_changes(sync, edges, e, t, moves):
    """Wait until the steps before this one have changed the table."""
    wait_for(sync.turn, 0, t)


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Allow the next step to change the table."""
    store(sync.turn, 0, t + 1)
