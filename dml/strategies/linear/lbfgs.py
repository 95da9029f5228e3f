"""Vector-free L-BFGS on columns (Chen, Wang & Zhou 2014), with the margins kept.

    margins z = X w, on all ranks    slopes g = ℓ'(z)/n: nothing is sent
    own columns    gradient Xᵀ g + λ w
    all-reduce 1   inner products of the new vectors with the 2k + 1 vectors
                   (s₁ … s_k, y₁ … y_k, gradient): the two-loop recursion needs no more
    own columns    direction d, a combination of these vectors
    all-reduce 2   X d, and the terms of ‖w + t d‖²
    on all ranks   line search on z + t X d: nothing is sent

The pairs are stored as vectors, not computed from sums, which is stable. All ranks
compute the same numbers from the same sums.

Rounds: those of two all-reduces in an iteration, for any number of trials of the line
search. Words: those of 3 (2k + 1) inner products, at most (2m + 1)² for k ≤ m pairs,
and of n + 2 words for n examples.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.models.linear.block import Work
from dml.models.linear.problem import Products
from dml.strategies.operation import joined
from dml.types import AllReduce, CountedComm, Problem, Step
from dml.types.ranges import Count, checked

FLAT = 0.1  # slope at the end of a line search, relative to that at its start
TRIALS = 60  # of a line search
CURVED = 1e-14  # least ⟨s, y⟩ of a pair, relative to the norms


class Line(NamedTuple):
    """The objective along a direction: φ(t) = mean ℓ(z + t u) + ½ λ ‖w + t d‖².

    Attributes:
      products: Loss, targets and λ.
      margins: z.
      changes: u = X d.
      norms: ⟨w, w⟩, ⟨w, d⟩ and ⟨d, d⟩.
    """

    products: Products
    margins: np.ndarray
    changes: np.ndarray
    norms: tuple[float, float, float]

    def loss(self, t: float) -> float:
        """Return the mean loss."""
        losses = self.products.loss.value(
            self.margins + t * self.changes, self.products.targets
        )
        return float(losses.mean())

    def value(self, t: float) -> float:
        """Return φ(t)."""
        own, mixed, change = self.norms
        norm = own + 2 * t * mixed + t * t * change
        return self.loss(t) + 0.5 * self.products.l2 * norm

    def slope(self, t: float) -> float:
        """Return φ'(t)."""
        slopes = self.products.loss.slope(
            self.margins + t * self.changes, self.products.targets
        )
        _, mixed, change = self.norms
        norm = self.products.l2 * (mixed + t * change)
        return float(slopes @ self.changes) / len(slopes) + norm


@checked
def lbfgs(
    problem: Problem,
    batches: Iterable[Any],
    update: None = None,
    *,
    comm: CountedComm,
    timer: Timer,
    allreduce: AllReduce,
    pairs: Count = 10,
) -> Iterator[Step]:
    """Minimise over all examples; yield a Step after every iteration.

    Iterations end before the last item if no direction descends, by rounding.

    Args:
      problem: Linear model, equal on all ranks.
      batches: An item for each iteration; the items are not read.
      update: Not used.
      allreduce: Sums inner products.
      pairs: Greatest number m of pairs (s, y).
    """
    products: Products = problem.products
    own = products.block(comm.rank, comm.size)
    count, dtype = products.columns.examples, products.targets.dtype
    params, margins = np.zeros(own.features, dtype), np.zeros(count, dtype)
    history = History(own.features, pairs, dtype)
    sent = comm.bytes_sent
    for number, _ in enumerate(batches, 1):
        with timer("gradient"):
            gradient = products.l2 * params
            own.add(products.loss.slope(margins, products.targets) / count, gradient)
            sums = history.terms(gradient, own.work)
        with timer("wire"):
            allreduce(comm, sums, op=np.add)
        with timer("gradient"):
            direction = history.direction(sums, own.work)
            norms = np.array([params @ params, params @ direction], dtype)
            buffer = np.concatenate([own.product(direction), norms])
        with timer("wire"):
            allreduce(comm, buffer, op=np.add)
        with timer("update"):
            norms_of_line = (*buffer[-2:].tolist(), history.square)
            line = Line(products, margins, buffer[:-2], norms_of_line)
            length, trials = search(line.slope)
            own.work(8.0 * count * trials, 4.0 * margins.nbytes * trials)
            history.step = dtype.type(length) * direction
            params = params + history.step
            margins = margins + dtype.type(length) * line.changes
        yield Step(
            number=number,
            loss=line.loss(0.0),
            params=partial(joined, problem, comm, params),
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // dtype.itemsize,
            measures={"objective": line.value(length), "trials": trials},
        )
        sent = comm.bytes_sent
        if not length:
            return


class History:
    """The pairs (s, y) and the gradient of a rank's columns, and their inner products.

    Slots 0 … m-1 have steps s, slots m … 2m-1 the changes y of the gradient, and slot
    2m the gradient.

    Args:
      features: Number of columns of the rank.
      pairs: Greatest number m of pairs.
      dtype: Type of the vectors.
    """

    def __init__(self, features: int, pairs: int, dtype: Any) -> None:
        self.pairs, self.order = pairs, list[int]()  # slots of steps, the oldest first
        self.vectors = np.zeros((2 * pairs + 1, features), dtype)
        self.gram = np.zeros((2 * pairs + 1, 2 * pairs + 1))
        self.step: np.ndarray | None = None  # from the gradient to the next one
        self.fresh, self.square = [2 * pairs], 0.0

    @property
    def used(self) -> list[int]:
        """Return the slots in use."""
        m = self.pairs
        return [*self.order, *(m + slot for slot in self.order), 2 * m]

    def add(self, gradient: np.ndarray) -> None:
        """Add the pair of the last step, and replace the gradient."""
        m, order = self.pairs, self.order
        if self.step is not None:
            free = next((slot for slot in range(m) if slot not in order), None)
            slot = order.pop(0) if free is None else free
            self.vectors[slot] = self.step
            self.vectors[m + slot] = gradient - self.vectors[2 * m]
            order.append(slot)
            self.fresh = [slot, m + slot, 2 * m]
        self.vectors[2 * m] = gradient

    def terms(self, gradient: np.ndarray, work: Work) -> np.ndarray:
        """Add a gradient; return terms of the products of the new vectors with all."""
        self.add(gradient)
        work(2.0 * len(self.fresh) * self.vectors.size, self.vectors.nbytes)
        return (self.vectors[self.fresh] @ self.vectors.T)[:, self.used].ravel()

    def direction(self, sums: np.ndarray, work: Work) -> np.ndarray:
        """Return the direction of this rank's columns; zero if none descends.

        sums: Terms of all ranks.
        """
        m, used = self.pairs, self.used
        products = sums.reshape(len(self.fresh), len(used))
        self.gram[np.ix_(self.fresh, used)] = products
        self.gram[np.ix_(used, self.fresh)] = products.T
        if self.order:
            last = self.order[-1]
            norms = self.gram[last, last] * self.gram[m + last, m + last]
            if not self.gram[last, m + last] > CURVED * np.sqrt(norms):
                self.order.pop()
        factors = two_loops(self.gram, self.order, m)
        work(2.0 * self.vectors.size, self.vectors.nbytes)
        self.square = float(factors @ self.gram @ factors)
        if not factors @ self.gram[2 * m] < 0:
            factors[:], self.square = 0, 0.0
        return factors.astype(self.vectors.dtype) @ self.vectors


def two_loops(gram: np.ndarray, order: list[int], m: int) -> np.ndarray:
    """Return the factors of the slots in the direction (Nocedal 1980)."""
    factors, alphas = np.zeros(len(gram)), dict[int, float]()
    factors[2 * m] = -1
    for slot in reversed(order):
        alphas[slot] = factors @ gram[slot] / gram[slot, m + slot]
        factors[m + slot] -= alphas[slot]
    if order:
        last = order[-1]
        factors *= gram[last, m + last] / gram[m + last, m + last]
    for slot in order:
        beta = factors @ gram[m + slot] / gram[slot, m + slot]
        factors[slot] += alphas[slot] - beta
    return factors


def search(slope: Callable[[float], float]) -> tuple[float, int]:
    """Return a length with a flat slope, and the number of trials.

    The slope of a convex function ascends: steep trials bound the length from below,
    others from above. The length is 0 if the slope at 0 is not negative.
    """
    start, low, high, t = slope(0.0), 0.0, np.inf, 1.0
    if not start < 0:
        return 0.0, 1
    lower, upper = start, np.inf
    for trial in range(2, TRIALS):
        now = slope(t)
        if abs(now) <= -FLAT * start:
            return t, trial
        if now < 0:
            low, lower = t, now
        else:
            high, upper = t, now
        if high == np.inf:
            t *= 4
        elif trial % 2 and upper < np.inf:
            t = low - lower * (high - low) / (upper - lower)
        else:
            t = 0.5 * (low + high)
    return low, TRIALS
