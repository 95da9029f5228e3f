"""Trainings by volunteers and in a data centre, in virtual time."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dml.runs.writers import Row
from dml.sim.delays import DelayDistribution, constant
from dml.sim.volunteers import means
from dml.sim.volunteers.groups import Rules
from dml.sim.volunteers.population import Traits, population
from dml.sim.volunteers.rounds import Outcome, simulate_round
from dml.types import BadInput
from dml.wire.costs.allreduce import Job, Rates, choose, seconds
from studies.volunteers.learner import Learner

HOUR = 3600.0
SAMPLE = 64  # replicas of which the accuracy is measured
DATA_CENTRE = Rates(5e-6, 8e-11, 1e-11)  # 100 Gbit/s
CANDIDATES = ("ring", "halving_doubling", "tree")
FACTORS = (1.0, 2.0)  # of the learning rate in the data centre
SCALES = (1.0, 10.0)  # factors of the seconds of a gradient evaluation
FAST = 12.5e9  # bytes per second in the data centre


class Task(NamedTuple):
    """A training.

    Attributes:
      learner: The network.
      peers: Number of seats.
      rules: Rules of the rounds.
      traits: Distributions of volunteers.
      target: Accuracy at which the training ends.
      rounds: Largest number of rounds.
      seed: Random seed.
    """

    learner: Learner
    peers: int
    rules: Rules
    traits: Traits
    target: float
    rounds: int
    seed: int


def volunteer_rows(task: Task) -> Iterator[Row]:
    """Train by volunteers until the target; yield a row for each round."""
    peers = population(task.peers, task.traits, np.random.default_rng((task.seed, 0)))
    rows_PxN = np.tile(task.learner.start, (task.peers, 1))
    evaluations, sent, averages, lost = 0, 0.0, 0, 0
    row: Row = {}
    for t in range(task.rounds):
        generator = np.random.default_rng((task.seed, 1 + t))
        outcome = simulate_round(peers, task.rules, task.traits, t, generator)
        apply(task.learner, rows_PxN, outcome, t)
        present = np.flatnonzero(peers.present)
        if not len(present):
            continue  # newcomers join in the next round
        mean, spread = means.consensus(rows_PxN, peers.present)
        if not np.isfinite(mean).all():
            raise FloatingPointError(
                f"the weights are not finite after round {t + 1}; pass a smaller --lr"
            )
        evaluations += outcome.evaluations
        sent += outcome.sent
        averages, lost = averages + outcome.averages, lost + outcome.lost
        row = {
            "round": t + 1,
            "hours": float(np.median(peers.begins[present])) / HOUR,
            "evaluations": evaluations / task.peers,
            "accuracy": task.learner.accuracy(mean),
            "each": task.learner.accuracy(rows_PxN[generator.choice(present, SAMPLE)]),
            "consensus": spread,
            "megabytes": sent / task.peers / 1e6,
            "lost": lost / max(1, averages),
            "late": outcome.late / task.peers,
            "newcomers": len(outcome.newcomers) / task.peers,
        }
        yield row
        if row["accuracy"] >= task.target:
            return
    if not row:
        raise BadInput(
            f"expected volunteers that stay for a round, got none in {task.rounds} "
            "rounds; pass a larger --lifetime or fewer --steps"
        )


def apply(learner: Learner, rows_PxN: np.ndarray, outcome: Outcome, t: int) -> None:
    """Apply the effects of a round to the weights of all seats, in place.

    Args:
      learner: The network.
      rows_PxN: Weights of each seat.
      outcome: Effects of the round.
      t: Number of the round.
    """
    rows_PxN[outcome.newcomers] = rows_PxN[outcome.donors]
    learner.local(rows_PxN, outcome.started, t)
    means.average(rows_PxN, outcome)


def centre_rows(task: Task, evaluations: float) -> list[Row]:
    """Return the training in the data centre with the best learning rate.

    Args:
      task: The training; all peers have equal speeds and do not leave.
      evaluations: Number of gradient evaluations per peer.
    """
    trainings = [centre_at(task, evaluations, factor) for factor in FACTORS]
    return min(trainings, key=lambda rows: (first(rows, task), -rows[-1]["accuracy"]))


def first(rows: list[Row], task: Task) -> float:
    """Return the hours to the target; infinity if it is not reached."""
    reached = [row["hours"] for row in rows if row["accuracy"] >= task.target]
    return reached[0] if reached else math.inf


def centre_at(task: Task, evaluations: float, factor: float) -> list[Row]:
    """Return the rows of a training in the data centre with one learning rate."""
    job = Job(task.peers, int(task.rules.nbytes / 4))
    name = choose(job, DATA_CENTRE, CANDIDATES)
    each = task.rules.work.mean + seconds(name, job, DATA_CENTRE)
    vector, rows = task.learner.start, []
    sent = 2 * (1 - 1 / task.peers) * task.rules.nbytes
    steps = task.rules.steps
    for number in range(1, steps * math.ceil(evaluations / steps) + 1):
        vector = task.learner.update(vector, number, task.peers, factor)
        if number % steps:
            continue  # volunteers are evaluated after as many updates
        rows.append(
            {
                "hours": number * each / HOUR,
                "evaluations": float(number),
                "accuracy": task.learner.accuracy(vector),
                "megabytes": number * sent / 1e6,
                "factor": factor,
                "allreduce": name,
            }
        )
    return rows


def policy_rows(
    task: Task, peers: int, constants: Sequence[float], rounds: int
) -> Iterator[Row]:
    """Yield the last rows of trainings with other deadlines and durations of work.

    Args:
      task: The training; its number of peers and of rounds is replaced.
      peers: Number of peers.
      constants: Constant deadlines in seconds.
      rounds: Largest number of rounds.
    """
    rules = task.rules._replace(sides=squarest(peers, max(task.rules.sides)))
    policies = {
        "quorum": rules._replace(deadline=0.0, lost=0.0),
        "break-even wait": rules._replace(deadline=0.0, lost=1.0),
        **{f"{c:g} s": rules._replace(deadline=c) for c in constants},
    }
    for scale in SCALES:
        work = scaled(rules.work, scale)
        for name, policy in policies.items():
            policy = policy._replace(work=work)
            small = task._replace(peers=peers, rules=policy, rounds=rounds)
            yield end(name, scale, small)
        # all peers in one group, equal and permanent, with a fast network
        centre = rules._replace(work=constant(work.mean), sides=(peers,), quorum=1.0)
        small = task._replace(
            peers=peers, rules=centre, traits=Traits(bandwidth=FAST), rounds=rounds
        )
        yield end("data centre", scale, small)


def end(name: str, scale: float, task: Task) -> Row:
    """Return the last row of a training by volunteers."""
    *_, last = volunteer_rows(task)
    reached = last["accuracy"] >= task.target
    return {"policy": name, "scale": scale, "reached": reached, **last}


def scaled(work: DelayDistribution, factor: float) -> DelayDistribution:
    """Return the distribution of seconds, multiplied by a factor."""
    return work._replace(
        mean=factor * work.mean,
        draws=lambda generator, n: factor * work.draws(generator, n),
    )


def squarest(peers: int, most: int) -> tuple[int, ...]:
    """Return the equal sides of the smallest grid of seats, each at most `most`."""
    axes = 1
    while most**axes < peers:
        axes += 1
    side = next(side for side in range(1, most + 1) if side**axes >= peers)
    return (side,) * axes
