"""Strategies in shared memory that run by turns: some epochs of each, then some more.

A problem, Settings and cases (--updates, workers) in; Turns by case out. What slows a
host down for a while slows all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from typing import NamedTuple

import numpy as np
from sparse_flags import Stated
from sparse_ways import Settings, begin

from dml.metrics.timer import Timer
from dml.strategies.shared.workers import Descent
from dml.types import BadInput, CountedComm, Problem, Step
from dml.wire.messages import first_of_all

UPDATING = ("update", "wait")  # the phases of a Step that an epoch takes
Case = tuple[str, int]  # a strategy by its name in --updates, and its workers
SERIAL: Case = ("serial", 1)


class Turn(NamedTuple):
    """Some epochs of one case."""

    seconds: float
    table: np.ndarray | None  # at their end, where it was asked for; rank 0 has it
    lost_share: float | None  # of the rows' changes, where they are counted
    planned: float  # seconds before the first epoch


Turns = Mapping[Case, Sequence[Turn]]


def settings(stated: Stated, epochs: int, seed: int) -> Settings:
    """Return the arguments of all cases; all turns have the same rates."""

    def rate(epoch: int) -> float:
        return stated.lr * stated.decay ** ((epoch - 1) % epochs)

    return Settings(Descent(rate), stated.batch, seed)


def by_turns(
    comm: CountedComm,
    problem: Problem,
    how: Settings,
    cases: Sequence[Case],
    turns: tuple[int, int],
) -> Turns:
    """Run every case for so many turns of so many epochs; keep the first's tables.

    Ranks without a worker sleep, and return no Turns.
    """
    repeats, epochs = turns
    with ExitStack() as stack:
        running_cases = {
            case: stack.enter_context(running(comm, problem, how, case))
            for case in cases
        }
        found: dict[Case, list[Turn]] = {case: [] for case in cases}
        for number in range(repeats):
            for case, run in running_cases.items():
                comm.Barrier()
                found[case] += run(epochs, not number)
    return found


@contextmanager
def running(
    comm: CountedComm, problem: Problem, how: Settings, case: Case
) -> Iterator[Callable[[int, bool], list[Turn]]]:
    """Begin a case; yield a call that trains for some epochs. One worker is rank 0."""
    updates, count = case
    team = comm.Split(comm.rank, comm.rank) if count == 1 < comm.size else comm
    if count % team.size:
        raise BadInput(
            f"expected 1 worker or a multiple of {comm.size} ranks, got {count}; pass "
            f"--workers=1,{comm.size}"
        )
    how = how._replace(threads=count // team.size)
    with closing(begin(updates, problem, how, team, Timer())) as steps:
        if team is comm:
            yield lambda epochs, table: [turn(steps, epochs, table)]
            return
        # order matters: the others sleep until rank 0 is done, and do nothing then
        yield lambda epochs, table: first_of_all(
            comm, lambda: [] if comm.rank else [turn(steps, epochs, table)]
        )


def turn(steps: Iterator[Step], epochs: int, wanted: bool) -> Turn:
    """Take some epochs."""
    seconds = changed = lost = planned = 0.0
    for step in islice(steps, epochs):
        seconds += sum(step.seconds.get(part, 0.0) for part in UPDATING)
        planned += step.seconds.get("plan", 0.0)
        changed += step.measures["rows_changed"]
        lost += step.measures.get("rows_lost", np.nan)
    table = step.params() if wanted else None
    share = None if np.isnan(lost) else lost / max(changed, 1)
    return Turn(seconds, table, share, planned)


def speedup(base: Sequence[Turn], turns: Sequence[Turn]) -> float:
    """Return the median of how much faster turns are than those beside them."""
    pairs = zip(base, turns, strict=True)
    return float(np.median([one.seconds / other.seconds for one, other in pairs]))


def seconds(turns: Sequence[Turn]) -> float:
    """Return a turn's median."""
    return float(np.median([turn.seconds for turn in turns]))
