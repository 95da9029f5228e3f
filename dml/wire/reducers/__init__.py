"""Reducers: reductions of the gradients of all ranks to their mean.

`reducer("power_sgd:2+feedback", allreduce)` returns one by name; see `names`.
"""

from dml.wire.reducers.exact import exact as exact
from dml.wire.reducers.names import REDUCERS as REDUCERS
from dml.wire.reducers.names import reducer as reducer
