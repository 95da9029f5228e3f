"""DiLoCo (Douillard 2023): many local updates, then an outer step by momentum.

    rank i   θ ─ H updates of the inner optimizer ─► θ_i
    outer    Δ = mean of θ - θ_i       u ← μu + Δ      θ ← θ - η (Δ + μu)

The outer gradient Δ is reduced once in H updates, by any reducer. Streaming DiLoCo
(Douillard 2025) divides the parameters into P fragments; one is reduced every H/P
updates, so that the peak of the traffic is P times lower. A result may arrive τ updates
later, and is mixed with the local values: α θ_i + (1-α) θ.

With η = 1 and μ = 0 it is `local` SGD, and with H = 1 and SGD `synchronous`, except for
rounding. Words sent per outer step: those of the reducer for n elements.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.decentral.outer import nesterov
from dml.strategies.decentral.replicas import Protocol, train_replicas
from dml.strategies.loops.parameters import Update
from dml.types import BadInput, Comm, CountedComm, Problem, Reducer, Step
from dml.types.ranges import (
    Count,
    Every,
    Fraction,
    Number,
    Size,
    Updates,
    checked,
)
from dml.wire.comm.buffers import TreeLayout, layout
from dml.wire.plans.topology import chunks


class Outer(NamedTuple):
    """The outer optimizer and its schedule.

    Attributes:
      every: H, number of updates between two outer steps of a fragment.
      lr: Learning rate η.
      momentum: μ of Nesterov's momentum.
      fragments: Number of fragments P, which divides H.
      delay: Updates τ after which a reduced fragment arrives, below H/P.
      keep: Weight α of the local values of a fragment that arrives.
    """

    every: int = 8
    lr: float = 0.7
    momentum: float = 0.9
    fragments: int = 1
    delay: int = 0
    keep: float = 0.0

    def check(self) -> None:
        """Raise BadInput for values that do not fit together."""
        every, parts = self.every, self.fragments
        if every % parts:
            raise BadInput(
                f"expected a number of fragments that divides the {every} updates of "
                f"a round, got {parts}; pass another"
            )
        if self.delay >= every // parts:
            raise BadInput(
                f"expected a delay of 0 to {every // parts - 1} updates, got "
                f"{self.delay}; pass another delay"
            )


@checked
def diloco(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    outer_every: Every = 8,
    outer_lr: Number = 0.7,
    outer_momentum: Fraction = 0.9,
    fragments: Count = 1,
    delay: Updates = 0,
    keep: Fraction = 0.0,
    accumulate: Count = 1,
    prefetch: Size = 0,
    consensus: bool = False,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train replicas whose outer gradients are reduced every H updates.

    A Step is a round of H updates, or one update with several fragments or a delay.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch.
      update: Inner optimizer, or rule of rows.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of outer gradients.
      outer_every: H.
      outer_lr: η.
      outer_momentum: μ.
      fragments: P.
      delay: τ.
      keep: α.
      accumulate: Number of microbatches of a rank's shard.
      prefetch: Number of minibatches prepared in the background.
      consensus: Whether the distance of the replicas is measured.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    outer = Outer(outer_every, outer_lr, outer_momentum, fragments, delay, keep)
    outer.check()
    streaming = fragments > 1 or delay > 0
    every = 1 if streaming else outer_every
    protocol = outer_steps(reducer, outer, outer_every // fragments // every)
    return train_replicas(
        problem,
        batches,
        update,
        protocol,
        comm=comm,
        timer=timer,
        every=every,
        accumulate=accumulate,
        prefetch=prefetch,
        consensus=consensus,
        state=state,
        memory=memory,
    )


class OuterState(NamedTuple):
    """The outer parameters and their momentum, and the state of each reducer."""

    params: np.ndarray
    momentum: np.ndarray
    reducers: Any


def outer_steps(reducer: Reducer, outer: Outer, period: int) -> Protocol:
    """Return the protocol of outer steps.

    Args:
      reducer: Computes the mean of outer gradients.
      outer: Outer optimizer.
      period: Number of rounds between two reductions of fragments.
    """

    def init(start: np.ndarray, like: TreeLayout) -> OuterState:
        parts = chunks(len(start), outer.fragments)
        layouts = [like] if len(parts) == 1 else [layout(start[part]) for part in parts]
        zeros = np.zeros_like(start)
        return OuterState(start, zeros, [reducer.init(each) for each in layouts])

    def mix(
        comm: Comm, before: np.ndarray, after: np.ndarray, t: int, state: OuterState
    ) -> OuterState:
        turn, updates = divmod(t + 1, period)
        number = (turn - 1) % outer.fragments
        part = chunks(len(after), outer.fragments)[number]
        if not updates:
            state = outer_step(comm, after, number, part, state)
        if turn and updates == outer.delay:
            local, arrived = after[part], state.params[part]
            keep = after.dtype.type(outer.keep)
            after[part] = keep * local + (1 - keep) * arrived if keep else arrived
        return state

    def outer_step(
        comm: Comm, after: np.ndarray, number: int, part: slice, state: OuterState
    ) -> OuterState:
        share = after.dtype.type(1 / comm.size)
        change = (state.params[part] - after[part]) * share
        reducers = list(state.reducers)
        reducers[number] = reducer.reduce(comm, change, reducers[number])
        momentum, params = state.momentum.copy(), state.params.copy()
        nesterov(params[part], momentum[part], change, change, outer.lr, outer.momentum)
        return OuterState(params, momentum, reducers)

    return Protocol(init, mix)
