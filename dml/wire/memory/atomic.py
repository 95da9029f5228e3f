"""Atomic sums: HOGWILD! with additions by compare and swap.

    x_s = 3   worker 0: 3 → 3 + δ ✓        worker 1: 3 → 3 + ε ✗, 3 + δ → 3 + δ + ε ✓

No addition is lost. The update of an edge (an example, with the rows that it uses) is
not atomic: a worker may read some rows before and some rows after another worker's
change. Each addition waits for exclusive access to its cache line.
"""

from dml.wire.memory.atomics import add
from dml.wire.memory.hogwild import STEPS, before_changes, enter, leave

__all__ = ["STEPS", "add", "before_changes", "enter", "leave"]
