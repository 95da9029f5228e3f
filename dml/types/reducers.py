"""The contract of reductions: the gradients of all ranks become their mean."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types.comm import Comm
from dml.types.sparse import Rows

Combine = Callable[[Sequence[Rows]], Rows]  # terms in worker order -> their sum


class Reducer(NamedTuple):
    """How the gradients of all ranks become their mean.

    The mean is a sum of one term per worker: its gradient times its share of the
    examples. Without servers all ranks add their terms together, by `reduce`. A server
    receives the terms of an update as messages and adds them alone, by `combine`. Both
    functions of a reducer compute the same, so a robust estimate of the sum, such as R
    times the median of R terms, is one reducer for `synchronous` and for `server`.

    init: layout of the gradient -> the state of this rank; None where there is none.
    reduce: (comm, buffer, state) -> the next state. The buffer holds this rank's term
        and receives the mean. Behind the gradient stand scalars, such as the loss, that
        every reducer sums exactly.
    combine: the terms of an update -> the rows of their sum, or of an estimate of it.
        It has no state. A term has the rows that its worker touched, each once; the
        other rows of a term are zero. None where the sum needs all ranks: `server`
        refuses the reducer.
    """

    init: Callable[[Any], Any]
    reduce: Callable[[Comm, np.ndarray, Any], Any]
    combine: Combine | None = None
