"""ProxCoCoA+ on columns (Smith et al. 2015): coordinate descent on each rank.

    margins z = X w, on all ranks    slopes g = ℓ'(z)/n: nothing is sent
    own columns    coordinate descent on  ⟨g, u⟩ + σ τ/2n ‖u‖² + norms of w + c, u = X c
    all-reduce     the sum of u over ranks: z += u

The loss is τ-smooth, so with σ = p the ranks' objectives add up to an upper bound of
the objective, and all changes c are added (γ = 1). The norms are α ‖w‖₁ and ½ λ ‖w‖².

Rounds: those of one all-reduce in an iteration, for any number of passes. Words: those
of an all-reduce of n + 2 words for n examples; the last two are of the norms.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from dml.metrics.timer import Timer
from dml.models.linear.block import parts
from dml.models.linear.problem import Products
from dml.strategies.operation import joined
from dml.types import AllReduce, CountedComm, Problem, Step
from dml.types.ranges import Count, Number, checked


@checked
def prox_cocoa(
    problem: Problem,
    batches: Iterable[Any],
    update: None = None,
    *,
    comm: CountedComm,
    timer: Timer,
    allreduce: AllReduce,
    l1: Number = 0.0,
    passes: Count = 1,
) -> Iterator[Step]:
    """Minimise over all examples; yield a Step after every all-reduce.

    Args:
      problem: Linear model, equal on all ranks.
      batches: An item for each all-reduce; the items are not read.
      update: Not used.
      comm: Ranks.
      timer: Measures the phases.
      allreduce: Sums changes of margins.
      l1: Weight α of ‖w‖₁.
      passes: Number of passes over a rank's columns between two all-reduces.
    """
    products: Products = problem.products
    own = products.block(comm.rank, comm.size)
    columns = sparse.csc_matrix(own.matrix)
    count, dtype = products.columns.examples, products.targets.dtype
    params, margins = np.zeros(own.features, dtype), np.zeros(count, dtype)
    bound = dtype.type(comm.size * products.loss.smoothness / count)
    squares = np.asarray(columns.multiply(columns).sum(axis=0)).ravel() * bound
    bounds = squares, bound, dtype.type(l1), dtype.type(products.l2)
    sent = comm.bytes_sent
    for number, _ in enumerate(batches, 1):
        with timer("gradient"):
            slopes = products.loss.slope(margins, products.targets) / count
            loss = float(products.loss.value(margins, products.targets).mean())
            own.work(20.0 * count, 4.0 * margins.nbytes)
        with timer("update"):
            moved = columns.nnz * (4 + dtype.itemsize)
            own.work(4.0 * passes * columns.nnz, 2.0 * passes * moved)
            buffer = np.zeros(count + 2, dtype)
            for _ in range(passes):
                descend(parts(columns), slopes, bounds, params, buffer)
            buffer[-2:] = np.abs(params).sum(), params @ params
        with timer("wire"):
            allreduce(comm, buffer, op=np.add)
        margins = margins + buffer[:-2]
        value = float(products.loss.value(margins, products.targets).mean())
        norms = l1 * float(buffer[-2]) + 0.5 * products.l2 * float(buffer[-1])
        yield Step(
            number=number,
            loss=loss,
            params=partial(joined, problem, comm, params.copy()),
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // dtype.itemsize,
            measures={"objective": value + norms},
        )
        sent = comm.bytes_sent


@njit(nogil=True, cache=True)
def descend(columns, slopes_N, bounds, params_D, changes_N):
    """Minimise over each coordinate once; update parameters and changes of margins.

    Args:
      columns: Starts, rows and values of the columns, in the format CSC.
      slopes_N: Slopes of the mean loss before the iteration.
      bounds: σ τ/n ‖x‖² of each column, σ τ/n, and the weights α and λ of the norms.
      params_D: Parameters, changed in place.
      changes_N: Changes of the margins, changed in place.
    """
    starts, rows, values = columns
    squares_D, bound, l1, l2 = bounds
    for column in range(len(params_D)):
        curvature = squares_D[column] + l2
        if squares_D[column] == 0:
            continue
        slope = l2 * params_D[column]
        for k in range(starts[column], starts[column + 1]):
            row = rows[k]
            slope += values[k] * (slopes_N[row] + bound * changes_N[row])
        target = params_D[column] - slope / curvature
        shrunk = max(abs(target) - l1 / curvature, params_D.dtype.type(0))
        change = (shrunk if target > 0 else -shrunk) - params_D[column]
        if change != 0:
            params_D[column] += change
            for k in range(starts[column], starts[column + 1]):
                changes_N[rows[k]] += change * values[k]
