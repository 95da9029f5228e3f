"""The contract of reductions: the mean of the gradients of all ranks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types.comm import Comm
from dml.types.sparse import Rows

Combine = Callable[[Sequence[Rows]], Rows]  # terms in worker order -> their sum


class Memory(NamedTuple):
    """The state of a reducer on one rank, between steps.

    Attributes:
      own: Arrays whose sum over ranks matters, such as the error memory; None: none.
        A run that is resumed on another number of ranks adds them.
      common: Arrays that are equal on all ranks.
    """

    own: Any = None
    common: Any = None


class TermMemory(NamedTuple):
    """A part of the state of a reducer, with arrays of the terms of one rank.

    Attributes:
      arrays: Arrays whose first axis is that of the terms. A run that is resumed on
        another number of ranks divides the terms of all ranks among them.
    """

    arrays: Any


class Reducer(NamedTuple):
    """A reduction of the gradients of all ranks to their mean.

    The mean is a sum of one term per worker: the worker's gradient times the worker's
    share of the examples. Without servers all ranks add their terms by `reduce`. A
    server receives the terms of an update as messages and adds them by `combine`.
    `reduce` and `combine` of one reducer compute the same sum, or the same robust
    estimate of the sum, such as R times the median of R terms.

    Attributes:
      init: layout of the gradient -> the state of this rank, or None. Arrays in a
        `Memory` or `TermMemory` can be resumed on another number of ranks.
      reduce: (comm, buffer, state) -> the next state. The buffer contains this rank's
        term and receives the mean. Scalars after the gradient, such as the loss, are
        summed exactly by every reducer.
      combine: the terms of an update -> the rows of their sum, or of an estimate of the
        sum. Stateless. A term has the distinct rows that its worker touched; its other
        rows are zero. None if the sum needs all ranks; `server` then raises BadInput.
      reduce_terms: (comm, terms, state) -> the next state. As `reduce`, but a rank may
        have several terms, and the first receives the mean, which does not depend on
        the rank of a term. None if it would. All ranks call it, or all call `reduce`.
      reduce_parts: (comm, terms, parts, state) -> the next state. As `reduce_terms`,
        but rank r receives only parts[r] of the mean. None: the reducer needs all.
      least_terms: Least number of terms; `server` raises BadInput for updates with
        fewer.
      equal_shares: Whether terms are compared, so that workers need equal shares.
      measures: states of all buckets -> measures of their last reductions, for Steps
        of trees; None: there are none.
    """

    init: Callable[[Any], Any]
    reduce: Callable[[Comm, np.ndarray, Any], Any]
    combine: Combine | None = None
    reduce_terms: Callable[[Comm, Sequence[np.ndarray], Any], Any] | None = None
    reduce_parts: (
        Callable[[Comm, Sequence[np.ndarray], Sequence[slice], Any], Any] | None
    ) = None
    least_terms: int = 1
    equal_shares: bool = False
    measures: Callable[[Sequence[Any]], Mapping[str, float]] | None = None
