"""Training steps of a pipeline on virtual ranks, with gradients clipped by their norm.

A stage has params and a state of Adam. It executes the schedule of each minibatch in
virtual time. Its gradients depend on the params that the minibatch was computed with,
so a forward by params that are restored later must be repeated.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from dml import sim
from dml.runs.writers import Row
from dml.sim.networks.named import network
from dml.strategies.hybrid.post_validation import (
    Learned,
    Pending,
    begin_update,
    clip_after_all,
    validate_update,
    within,
)
from dml.wire.plans.pipeline.schedules import FORWARD, SPLIT, Schedule, make
from dml.wire.plans.pipeline.times import output_of, stage_work
from studies.pipeline.virtual import Stage, execute, tag

MINIBATCHES = 20
CLIPPED = 10
SMALL, LARGE = 0.1, 90.0  # scales of gradients, of norms below and above 1
SIZE = 5  # params of a stage
RATE, DECAY, SQUARE_DECAY, EPSILON = 0.1, 0.9, 0.999, 1e-8


class Run(NamedTuple):
    """A run of minibatches on virtual ranks.

    stage: schedule, durations and size of messages.
    network: network as text, as in --network.
    scales: norm of the gradients of each minibatch at the start, roughly.
    clip: largest norm of the gradients.
    """

    stage: Stage
    network: str
    scales: Sequence[float]
    clip: float


def adam(grads: np.ndarray, learned: Learned) -> Learned:
    """Return params and state after an update of Adam."""
    params, (mean, square, count) = learned
    count = count + 1
    mean = DECAY * mean + (1 - DECAY) * grads
    square = SQUARE_DECAY * square + (1 - SQUARE_DECAY) * grads * grads
    step = RATE * (mean / (1 - DECAY**count))
    step /= np.sqrt(square / (1 - SQUARE_DECAY**count)) + EPSILON
    return Learned(params - step, (mean, square, count))


def start(rank: int) -> Learned:
    """Return the initial params and state of a stage."""
    params = np.random.default_rng(rank).normal(size=SIZE)
    return Learned(params, (np.zeros(SIZE), np.zeros(SIZE), np.zeros(1)))


def gradient(params: np.ndarray, rank: int, minibatch: int, scale: float) -> np.ndarray:
    """Return the gradient of a stage, which depends on params and minibatch."""
    target = np.random.default_rng([rank, 1 + minibatch]).normal(size=SIZE)
    return scale * np.tanh(params - target) / SIZE


def leading_forwards(schedule: Schedule, stage: int) -> list[tuple[int, int, int]]:
    """Return the first pieces of a stage, which need no later stage."""
    work = stage_work(schedule, stage)
    return [
        *takewhile(lambda key: key[0] == FORWARD and key[2] < schedule.stages, work)
    ]


def synchronous(comm: Any, run: Run) -> tuple[float, Learned, int]:
    """Train; each stage waits for the norm of all stages before its update."""
    learned, work = start(comm.rank), stage_work(run.stage.schedule, comm.rank)
    count = 0
    for minibatch, scale in enumerate(run.scales):
        comm.Waitall(execute(comm, run.stage, work, minibatch))
        grads = gradient(learned.params, comm.rank, minibatch, scale)
        learned, fits = clip_after_all(comm, learned, grads, adam, run.clip)
        count += not fits
    return comm.Wtime(), learned, count


def post_validated(comm: Any, run: Run) -> tuple[float, Learned, int]:
    """Train; a stage updates at once, and repeats an update that had to be clipped."""
    schedule = run.stage.schedule
    work, leading = (f(schedule, comm.rank) for f in (stage_work, leading_forwards))
    learned, repeated = start(comm.rank), 0
    pending: Pending | None = None
    for minibatch, scale in enumerate(run.scales):
        first, again = 2 * minibatch, 2 * minibatch + 1  # runs of the schedule
        sends, rest, number = [], work, first
        if pending:
            if pending.optimistic:
                sends, rest = (
                    execute(comm, run.stage, leading, first),
                    work[len(leading) :],
                )
            learned, valid = validate_update(comm, pending, adam, run.clip)
            if not valid:
                discard(comm, run.stage, pending, first, run.clip)
                rest, number, repeated = work, again, repeated + 1
        sends += execute(comm, run.stage, rest, number)
        comm.Waitall(sends)
        grads = gradient(learned.params, comm.rank, minibatch, scale)
        pending = begin_update(comm, learned, grads, adam, run.clip)
    assert pending
    learned, valid = validate_update(comm, pending, adam, run.clip)
    return comm.Wtime(), learned, repeated + (not valid)


def discard(comm: Any, stage: Stage, pending: Pending, run: int, clip: float) -> None:
    """Receive the activations that an earlier stage computed by restored params.

    The earlier stage has sent none if the squares up to it exceed the limit.
    """
    if comm.rank == 0 or not within(pending.earlier, clip):
        return
    schedule = stage.schedule
    received = leading_forwards(schedule, comm.rank) if pending.optimistic else []
    for key in leading_forwards(schedule, comm.rank - 1):
        target = output_of(schedule, *key)
        if target and target not in received:
            number = tag(schedule, *target, run=run)
            comm.Recv(sim.Phantom(stage.nbytes), comm.rank - 1, number)


def rows(
    stages: int, microbatches: int, seconds: float, link: tuple[int, str]
) -> Iterator[Row]:
    """Yield virtual seconds of a minibatch by schedule and number of clipped updates.

    F = B = W. Every CLIPPED-th update, or none, exceeds the limit.

    stages: number of stages K.
    microbatches: number of microbatches M.
    seconds: seconds of all layers for a microbatch, forward and backward together.
    link: bytes of activations, network as text.
    """
    nbytes, network_text = link
    for name in ("1f1b", *SPLIT):
        schedule = make(name, stages, microbatches, 2 if name == "zb_v" else 1)
        piece = seconds / schedule.parts / 3
        stage = Stage(schedule, [[piece] * 3] * schedule.parts, nbytes)
        for label, period in (("none", 0), (f"1 of {CLIPPED}", CLIPPED)):
            scales = [
                LARGE if period and n % period == period - 1 else SMALL
                for n in range(MINIBATCHES)
            ]
            run = Run(stage, network_text, scales, clip=1.0)
            waiting, expected, count = train("synchronous", run)
            ahead, learned, _ = train("post-validated", run)
            yield {
                "schedule": name,
                "clipped": label,
                "clipped_updates": count,
                "synchronous": 1e3 * waiting / MINIBATCHES,
                "post_validated": 1e3 * ahead / MINIBATCHES,
                "saved": 1 - ahead / waiting,
                "same_bits": all(
                    np.array_equal(one.params, other.params)
                    for one, other in zip(learned, expected, strict=True)
                ),
            }


TRAINERS = {"synchronous": synchronous, "post-validated": post_validated}


def train(trainer: str, run: Run) -> tuple[float, list[Learned], int]:
    """Return virtual seconds, params by stage, and the number of clipped updates."""
    size = run.stage.schedule.stages

    def program(comm: Any) -> tuple[float, Learned, int]:
        return TRAINERS[trainer](comm, run)

    results = sim.run(program, size, network(run.network, size))
    seconds, learned, clipped = zip(*results, strict=True)
    assert len(set(clipped)) == 1
    return max(seconds), list(learned), clipped[0]
