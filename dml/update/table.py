"""Updates of a server's rows in place, by their gradients.

Rows to update are given as indices or as a slice. The rows of a slice are consecutive
in memory: they are passed to the rule as blocks, which is faster if rows are narrow.
"""

from typing import Any

import numpy as np

from dml.types import BadInput
from dml.update.rules import RULES, compile_rule, shrink

FIRST_ROW = np.zeros(1, np.int64)
BLOCK = 1024  # floats of each array that fit together into the first cache
WITH_SQUARES = ("adagrad", "glove")  # rules whose state is sums of squared gradients
WITH_L1 = ("sgd",)  # rules with a proximal step


class Table:
    """A server's Shard for sparse keys: rows, and the state of their rule.

    Args:
      rule: Key of RULES.
      values_RxD: The rows, changed in place.
      rates_D: Learning rate of each column.
      state: Arrays of the rule's state, RxD, changed in place.
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
        self.kernel = compile_rule(rule)
        # a block begins with a row, so all blocks have the same rates
        self.rates_D = rates_D
        self.rates_B = np.tile(rates_D, -(-BLOCK // len(rates_D)))

    def update(
        self, rows: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update distinct rows; then shrink all rows by rate · l1 · share."""
        grads = np.ascontiguousarray(grads, np.float32)
        if isinstance(rows, slice):
            self._step_on_slice(rows, grads)
        else:
            self._step_on_rows(np.ascontiguousarray(rows, np.int64), grads)
        if self.l1:
            amounts_B = self.rates_B * np.float32(self.l1 * share)
            for block in self._blocks((self.values,)):
                width = block[0].shape[1]
                shrink(*block, np.arange(len(block[0])), amounts_B[:width])

    def _step_on_rows(self, rows_N: np.ndarray, grads_NxD: np.ndarray) -> None:
        self._check(len(rows_N), grads_NxD)
        # kernels do not check bounds; as unsigned integers, negative rows are too large
        if len(rows_N) and rows_N.view(np.uint64).max() >= len(self.values):
            raise BadInput(
                f"expected rows 0 to {len(self.values) - 1}, got {rows_N.min()} to "
                f"{rows_N.max()}; push keys of this server only"
            )
        self.kernel(self.values, self.state, rows_N, grads_NxD, self.rates_D)

    def _step_on_slice(self, rows: slice, grads_NxD: np.ndarray) -> None:
        if rows.step not in (None, 1):
            raise BadInput(f"expected consecutive rows, got {rows}; pass row indices")
        changed = [array[rows] for array in (self.values, *self.state)]
        self._check(len(changed[0]), grads_NxD)
        if grads_NxD.size <= len(self.rates_B):  # one block
            values, *state, grads = [a.reshape(1, -1) for a in (*changed, grads_NxD)]
            rates = self.rates_B[: grads.size]
            self.kernel(values, tuple(state), FIRST_ROW, grads, rates)
            return
        for values, *state, grads in self._blocks((*changed, grads_NxD)):
            indices, rates = np.arange(len(grads)), self.rates_B[: grads.shape[1]]
            self.kernel(values, tuple(state), indices, grads, rates)

    def _check(self, rows: int, grads: np.ndarray) -> None:
        if grads.shape != (rows, len(self.rates_D)):
            raise BadInput(
                f"expected gradients of shape {(rows, self.values.shape[1])}, got "
                f"{grads.shape}; push one row for each key"
            )

    def _blocks(self, arrays: tuple[np.ndarray, ...]) -> list[list[np.ndarray]]:
        """Return views of the arrays: one row per full block, then the remainder."""
        width = len(self.rates_B)
        flat = [array.reshape(-1) for array in arrays]
        end = len(flat[0]) // width * width
        remainder = [array[None, end:] for array in flat]
        if not end:
            return [remainder]
        return [[array[:end].reshape(-1, width) for array in flat], remainder]


def table(
    rule: str,
    values: Any,
    rate: Any,
    *,
    l1: float = 0.0,
    squares: Any = None,
) -> Table:
    """Return a Table with a copy of the values.

    Args:
      rule: Key of RULES.
      values: Rows, RxD; a vector of R values is a table of one column.
      rate: Learning rate, or one rate per column.
      l1: Weight of |value| in the objective; for sgd only.
      squares: Initial sums of squared gradients, a number or an array; for adagrad
        (None: 0.1) and glove (None: 1) only.
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
    initial: tuple[Any, ...] = RULES[rule].initial
    if squares is not None:
        _check_rule(rule, WITH_SQUARES, f"{squares=}")
        initial = (np.asarray(squares, np.float32),)
        if not (initial[0] >= 0).all():
            raise BadInput(f"expected squares of at least 0, got {squares=}")
    if l1:
        _check_rule(rule, WITH_L1, f"{l1=}")
    if not 0 <= l1 < np.inf:
        raise BadInput(f"expected 0 <= l1 < inf, got {l1=}; pass --l1=<at least 0>")
    state = tuple(np.full(values_RxD.shape, start, np.float32) for start in initial)
    return Table(rule, values_RxD, _rates(rate, values_RxD.shape[1]), state, l1)


def _check_rule(rule: str, rules: tuple[str, ...], argument: str) -> None:
    if rule not in rules:
        raise BadInput(
            f"expected {argument} with {' or '.join(rules)} only, got it with {rule}; "
            f"omit it, or pass --optimizer={rules[0]}"
        )


def _rates(rate: Any, columns: int) -> np.ndarray:
    rates = np.asarray(rate, np.float32)
    if rates.shape not in ((), (columns,)) or not np.isfinite(rates).all():
        raise BadInput(
            f"expected one finite rate, or one for each of {columns} columns, got "
            f"{rate}; correct the rate"
        )
    if (rates < 0).any():
        raise BadInput(f"expected a rate of at least 0, got {rate}; correct the rate")
    return np.full(columns, rates)
