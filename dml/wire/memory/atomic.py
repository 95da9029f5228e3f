"""Atomic sums: as HOGWILD!, but each number is added by compare and swap.

    x_s = 3   worker 0: 3 → 3 + δ ✓        worker 1: 3 → 3 + ε ✗, 3 + δ → 3 + δ + ε ✓

No addition is lost. An edge is not atomic: a worker may read rows before and after
another worker's change. Rows are read and written as by HOGWILD!, but each addition
waits for its cache line.
"""

from dml.wire.memory.atomics import add
from dml.wire.memory.hogwild import STEPS, enter, leave, turn

__all__ = ["STEPS", "add", "enter", "leave", "turn"]
