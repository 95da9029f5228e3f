"""s-step SGD on columns: one all-reduce for s minibatches (Devarakonda & Demmel 2019).

    rank 0   X₀ w₀, X₀ X₀ᵀ ─┐                       ┌─ s steps by the sums ─ w₀ += X₀ᵀ a
    rank 1   X₁ w₁, X₁ X₁ᵀ ─┼─ one all-reduce: z, G ┼─ s steps by the sums ─ w₁ += X₁ᵀ a
    rank 2   X₂ w₂, X₂ X₂ᵀ ─┘                       └─ s steps by the sums ─ w₂ += X₂ᵀ a

X has the rows of s minibatches. With ρ = 1 - ηλ and the slopes g of b examples, a step
is w ← ρ w - η/b Xⱼᵀ gⱼ, so the margins of step k follow from those before the round:

    zₖ = ρᵏ Xₖ w - η/b Σ_{j<k} ρᵏ⁻¹⁻ʲ Gₖⱼ gⱼ

The parameters are those of `operation` with the same minibatches, except for rounding.
They are stored as a factor times a vector, so that a sparse step with λ > 0 changes the
features of its rows only.

Rounds: those of an all-reduce for s steps. Words: those of an all-reduce of s b
products, and of b² inner products for each pair of steps.

With `groups` the ranks are a grid: every group of p / groups ranks has all columns, and
does the steps by its part of each minibatch. The groups then average their columns by
an all-reduce. With s = 1 this is the step by the whole minibatch; with s > 1 it is
HybridSGD.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, pairwise

import numpy as np

from dml.metrics.timer import Timer
from dml.models.linear.block import Block
from dml.models.linear.problem import Products
from dml.strategies.operation import joined
from dml.types import AllReduce, BadInput, Comm, CountedComm, Problem, Step
from dml.types.ranges import Count, Positive, checked

SMALLEST = 1e-6  # factor below which the vector is multiplied by it


@checked
def s_step(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: None = None,
    *,
    comm: CountedComm,
    timer: Timer,
    allreduce: AllReduce,
    rate: Positive,
    steps: Count = 1,
    groups: Count = 1,
) -> Iterator[Step]:
    """Train on columns; yield a Step after each round of `steps` minibatches.

    Args:
      problem: Linear model, equal on all ranks.
      batches: Indices of each minibatch's examples, equal on all ranks.
      update: Not used: the steps are those of gradient descent.
      allreduce: Sums products and Gram matrices, and averages groups.
      rate: Learning rate η.
      steps: Number s of minibatches of a round; the last round may have fewer.
      groups: Number of groups of ranks, which have equal parts of a minibatch.
    """
    products: Products = problem.products
    rho = decay(products, rate)
    group, inside, across = grid(comm, groups)
    own = products.block(inside.rank, inside.size)
    vector, factor = np.zeros(own.features, products.targets.dtype), 1.0
    number, sent, remaining = 0, comm.bytes_sent, iter(batches)
    while parts := list(islice(remaining, steps)):
        mine = [own_part(part, group, groups) for part in parts]
        indices = np.concatenate(mine)
        step_R = np.repeat(np.arange(len(mine)), [len(part) for part in mine])
        pairs_RxR = step_R[:, None] > step_R
        with timer("gradient"):
            rows = own.take(indices)
            buffer = terms(rows, factor, vector, pairs_RxR)
        with timer("wire"):
            allreduce(inside, buffer, op=np.add)
        with timer("update"):
            given = products._replace(targets=products.targets[indices])
            loss, factors = descend(given, rate, step_R, buffer, pairs_RxR)
            factor *= rho ** len(mine)
            if factor < SMALLEST:
                vector *= factor
                factor = 1.0
            rows.add(factors / factor, vector)
        if across:
            with timer("wire"):
                loss = average(across, allreduce, vector, loss)
        number += len(parts)
        yield Step(
            number=number,
            loss=loss,
            params=partial(collected, problem, inside, group, (vector, factor)),
            examples=sum(map(len, parts)),
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // buffer.itemsize,
        )
        sent = comm.bytes_sent


def decay(products: Products, rate: float) -> float:
    """Return the factor ρ of the parameters in a step."""
    if rate * products.l2 >= 1:
        raise BadInput(
            f"expected a rate below 1/λ = {1 / products.l2:g}, got {rate}; lower it"
        )
    return 1 - rate * products.l2


def grid(comm: CountedComm, groups: int) -> tuple[int, Comm, Comm | None]:
    """Return the group, its ranks, and those of these columns in all groups."""
    if comm.size % groups:
        raise BadInput(
            f"expected groups of equally many ranks, got {groups} groups of "
            f"{comm.size} ranks; pass a divisor of {comm.size}"
        )
    if groups == 1:
        return 0, comm, None
    group, place = divmod(comm.rank, comm.size // groups)
    return group, comm.Split(group, comm.rank), comm.Split(place, comm.rank)


def terms(
    rows: Block, factor: float, vector: np.ndarray, pairs_RxR: np.ndarray
) -> np.ndarray:
    """Return this rank's terms of the margins, and of the inner products of pairs."""
    margins = factor * rows.product(vector)
    if not pairs_RxR.any():
        return margins
    return np.concatenate([margins, rows.gram()[pairs_RxR]])


def average(
    across: Comm, allreduce: AllReduce, vector: np.ndarray, loss: float
) -> float:
    """Replace the vector by the mean of the groups; return their mean loss."""
    mean = np.append(vector, vector.dtype.type(loss)) / across.size
    allreduce(across, mean, op=np.add)
    vector[:] = mean[:-1]
    return float(mean[-1])


def own_part(indices: np.ndarray, group: int, groups: int) -> np.ndarray:
    """Return a group's part of a minibatch."""
    if len(indices) % groups:
        raise BadInput(
            f"expected minibatches that {groups} groups can share equally, got "
            f"{len(indices)} examples; pass a multiple of {groups}"
        )
    count = len(indices) // groups
    return indices[group * count : (group + 1) * count]


def descend(
    given: Products,
    rate: float,
    step_R: np.ndarray,
    sums: np.ndarray,
    pairs_RxR: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Do the steps of a round; return the mean loss, and the factors a of the rows.

    Args:
      given: Loss and norm, with the targets of the rows.
      rate: Learning rate η.
      step_R: Step of each row, ascending.
      sums: Margins of the rows before the round, which are replaced by those before
        their steps, and inner products of pairs.
      pairs_RxR: Whether the first row of a pair is of a later step.
    """
    count, rho = len(step_R), 1 - rate * given.l2
    margins_R, factors_R = sums[:count], np.zeros(count, sums.dtype)
    gram_RxR = np.zeros(pairs_RxR.shape, sums.dtype)
    if len(sums) > count:
        gram_RxR[pairs_RxR] = sums[count:]
    given.work(2 * gram_RxR.size, 2 * sums.nbytes)
    edges = np.searchsorted(step_R, np.arange(step_R[-1] + 2)).tolist()
    for step, (first, last) in enumerate(pairwise(edges)):
        margins = margins_R[first:last]
        margins *= rho**step
        margins += gram_RxR[first:last, :first] @ factors_R[:first]
        slopes = given.loss.slope(margins, given.targets[first:last])
        factors_R[:first] *= rho
        factors_R[first:last] = slopes * (-rate / (last - first))
    return float(given.loss.value(margins_R, given.targets).mean()), factors_R


def collected(
    problem: Problem, inside: Comm, group: int, scaled: tuple[np.ndarray, float]
) -> np.ndarray | None:
    """Return the parameters of all columns on rank 0, None elsewhere; collective."""
    vector, factor = scaled
    return None if group else joined(problem, inside, factor * vector)
