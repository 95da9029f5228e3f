"""Five schemes against stragglers, and the mean seconds of their updates.

A scheme has a code, and a load: the examples of a worker relative to those of a worker
that computes one of n parts. With a delay X, a computation takes load·X seconds if the
tail grows with the load. If the tail is fixed, it takes X + (load - 1)·c, where c is
the least value of X: stragglers are then delayed by something else than their examples.
"""

from typing import NamedTuple

import numpy as np

from dml.sim.delays import DelayDistribution, expected
from dml.wire.plans.codes.decoding import DecodingPlan, make_plan

LOAD, FIXED = "load", "fixed"
TAILS = (LOAD, FIXED)
WAITING, IGNORING, BACKUP = "waiting", "ignoring", "backup"
REPETITION, CYCLIC = "repetition", "cyclic"
CODES = {  # by name: code of s stragglers
    WAITING: "uncoded:0",
    IGNORING: "uncoded:{}",
    BACKUP: "uncoded:{}",
    REPETITION: "repetition:{}",
    CYCLIC: "cyclic:{}",
}


class Scheme(NamedTuple):
    """A scheme of n workers.

    Attributes:
      name: Name of the scheme.
      code: Code, as `gradient_coding` takes it.
      plan: The plan of the code.
      share: Examples of a minibatch relative to the other schemes.
    """

    name: str
    code: str
    plan: DecodingPlan
    share: float = 1.0

    @property
    def load(self) -> float:
        return self.plan.load * self.share


def make_scheme(name: str, workers: int, stragglers: int) -> Scheme:
    """Return a scheme of CODES; raise BadInput if its code does not exist."""
    code = CODES[name].format(stragglers)
    plan = make_plan(code, workers)
    share = workers / (workers - stragglers) if name == BACKUP else 1.0
    return Scheme(name, code, plan, share)


def least(delay: DelayDistribution) -> float:
    """Return the least value of a delay."""
    return float(delay.tail(np.ones(1))[0])


def loaded(
    delay: DelayDistribution, tail: str, load: float, seconds: np.ndarray
) -> np.ndarray:
    """Return the seconds of computations of a load, from delays of load 1.

    Args:
      delay: Distribution of the delays.
      tail: Key of TAILS.
      load: Load of the computations.
      seconds: Delays.
    """
    if tail == LOAD:
        return load * seconds
    return seconds + (load - 1) * least(delay)


def predicted(scheme: Scheme, delay: DelayDistribution, tail: str) -> float | None:
    """Return the mean seconds of an update by order statistics.

    The update waits for the (n-s)-th of n workers, or for repetition until each of n/r
    groups has the first of its r workers. None: speeds of workers differ.

    Args:
      scheme: The scheme.
      delay: Distribution of the delays.
      tail: Key of TAILS.
    """
    workers, plan = scheme.plan.code.workers, scheme.plan
    if plan.exact and plan.code.repeats:
        groups, copies = plan.code.parts, plan.code.copies
        first = delay._replace(
            tail=lambda q: delay.tail(q ** (1 / copies)),
            kth=delay.kth if copies == 1 else None,
        )
        mean = expected(first, groups, groups)
    else:
        mean = expected(delay, workers - plan.stragglers, workers)
    if mean is None:
        return None
    return float(loaded(delay, tail, scheme.load, np.array(mean)))


def order_statistics(scheme: Scheme, seconds_TxP: np.ndarray) -> np.ndarray:
    """Return the seconds of every update, from those of every worker."""
    taken_T = np.empty(len(seconds_TxP))
    for number, seconds_P in enumerate(seconds_TxP):
        arrived = np.zeros(len(seconds_P), bool)
        for worker in np.argsort(seconds_P):
            arrived[worker] = True
            if scheme.plan.suffices(arrived):
                taken_T[number] = seconds_P[worker]
                break
    return taken_T
