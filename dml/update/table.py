"""Updates of a server's rows in place, by their gradients.

Rows are numbers or a slice. A slice is consecutive memory, so its numbers are passed to
the rule's kernel in blocks, also if rows are narrow.
"""

from typing import Any

import numpy as np

from dml.types import BadInput
from dml.update.rules import RULES, compiled, shrink

BLOCK = 1024  # floats of each array that fit together into the first cache
SQUARED = ("adagrad", "glove")  # rules whose state is squares, with any initial value
SHRINKING = ("sgd",)  # rules with a proximal step


class Table:
    """Rows and the state of their rule: a server's Shard for sparse keys.

    `state` contains the rule's arrays, shaped like values, to be saved or written into.

    Args:
      rule: Key of RULES.
      values_RxD: The rows, changed in place.
      rates_D: Learning rate of each column.
      state: Arrays of the rule's state.
      l1: Weight of an L1 norm.
    """

    def __init__(
        self,
        rule: str,
        values_RxD: np.ndarray,
        rates_D: np.ndarray,
        state: tuple[np.ndarray, ...],
        l1: float = 0.0,
    ) -> None:
        self.values, self.state, self.l1 = values_RxD, state, l1
        self.kernel = compiled(rule)
        # a block begins with a row, so all blocks have the same rates
        self.rates_D = rates_D
        self.rates_B = np.tile(rates_D, -(-BLOCK // len(rates_D)))

    def update(
        self, at: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update rows, each once; with l1 all rows shrink by their share."""
        grads = np.ascontiguousarray(grads, np.float32)
        if isinstance(at, slice):
            self._step_on_slice(at, grads)
        else:
            self._step_on_rows(np.ascontiguousarray(at, np.int64), grads)
        if self.l1:
            amounts_B = self.rates_B * np.float32(self.l1 * share)
            for block in self._blocks((self.values,)):
                width = block[0].shape[1]
                shrink(*block, np.arange(len(block[0])), amounts_B[:width])

    def _step_on_rows(self, at_N: np.ndarray, grads_NxD: np.ndarray) -> None:
        self._check(len(at_N), grads_NxD)
        # kernels check no bounds; as unsigned numbers, negative rows are too large
        if len(at_N) and at_N.view(np.uint64).max() >= len(self.values):
            raise BadInput(
                f"expected rows 0 to {len(self.values) - 1}, got {at_N.min()} to "
                f"{at_N.max()}; push keys of this server only"
            )
        self.kernel(self.values, self.state, at_N, grads_NxD, self.rates_D)

    def _step_on_slice(self, at: slice, grads_NxD: np.ndarray) -> None:
        if at.step not in (None, 1):
            raise BadInput(f"expected consecutive rows, got {at}; pass their numbers")
        changed = tuple(array[at] for array in (self.values, *self.state))
        self._check(len(changed[0]), grads_NxD)
        for values, *state, grads in self._blocks((*changed, grads_NxD)):
            rows, rates = np.arange(len(grads)), self.rates_B[: grads.shape[1]]
            self.kernel(values, tuple(state), rows, grads, rates)

    def _check(self, rows: int, grads: np.ndarray) -> None:
        if grads.shape != (rows, self.values.shape[1]):
            raise BadInput(
                f"expected gradients of {(rows, self.values.shape[1])}, got "
                f"{grads.shape}; push a row for each key"
            )

    def _blocks(self, arrays: tuple[np.ndarray, ...]) -> list[list[np.ndarray]]:
        """View arrays as rows of a block each, and as one row of the remainder."""
        width = len(self.rates_B)
        flat = [array.reshape(-1) for array in arrays]
        end = len(flat[0]) // width * width
        rest = [array[None, end:] for array in flat]
        if not end:
            return [rest]
        return [[array[:end].reshape(-1, width) for array in flat], rest]


def table(
    rule: str,
    values: Any,
    rate: Any,
    *,
    l1: float = 0.0,
    squares: Any = None,
) -> Table:
    """Return a Table of copied values RxD; R values are a table of one column.

    Args:
      rule: Key of RULES.
      values: Rows.
      rate: Learning rate, or one per column.
      l1: Weight of |value| in the objective; for sgd only.
      squares: Initial squares of adagrad or glove, a number or an array; None: 0.1 and
        1.
    """
    if rule not in RULES:
        raise BadInput(
            f"expected a rule of {', '.join(RULES)}, got {rule!r}; "
            "pass --optimizer=<one of them>"
        )
    values_RxD = np.array(values, np.float32, order="C")
    if values_RxD.ndim == 1:
        values_RxD = values_RxD[:, None]
    if values_RxD.ndim != 2 or not values_RxD.shape[1]:
        raise BadInput(f"expected values RxD, got {values_RxD.shape}; reshape them")
    starts: tuple[Any, ...] = RULES[rule].starts
    if squares is not None:
        _only(rule, SQUARED, f"{squares=}")
        starts = (np.asarray(squares, np.float32),)
        if not (starts[0] >= 0).all():
            raise BadInput(f"expected squares of at least 0, got {squares=}")
    if l1:
        _only(rule, SHRINKING, f"{l1=}")
    if not 0 <= l1 < np.inf:
        raise BadInput(f"expected 0 <= l1 < inf, got {l1=}; pass --l1=<at least 0>")
    state = tuple(np.full(values_RxD.shape, start, np.float32) for start in starts)
    return Table(rule, values_RxD, _rates(rate, values_RxD.shape[1]), state, l1)


def _only(rule: str, rules: tuple[str, ...], argument: str) -> None:
    if rule not in rules:
        raise BadInput(
            f"expected {argument} with {' or '.join(rules)} only, got it with {rule}; "
            "leave it out"
        )


def _rates(rate: Any, columns: int) -> np.ndarray:
    rates = np.asarray(rate, np.float32)
    if rates.shape not in ((), (columns,)) or not np.isfinite(rates).all():
        raise BadInput(
            f"expected one finite rate, or one for each of {columns} columns, got "
            f"{rate}; correct it"
        )
    if (rates < 0).any():
        raise BadInput(f"expected a rate of at least 0, got {rate}; correct it")
    return np.full(columns, rates)
