"""Contractions of the variance by one round: measured, exact, and published.

A million teapots: the rounds of a full grid, without and with absent peers.
"""

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np

from dml.runs.writers import Row
from dml.sim.averaging.groups import group_average
from dml.wire.plans.contraction import (
    grid_variances,
    independent_groups,
    published_independent_groups,
)
from dml.wire.plans.faults import NO_FAULTS, Faults
from dml.wire.plans.graphs import topology

INDEPENDENT = ((16, 8), (64, 8), (256, 32))  # peers and groups
BATCH = 1 << 20  # values of restarts that are drawn at once


def independent_rows(draws: int, seed: int) -> Iterator[Row]:
    """Yield a row for groups that each peer chooses from g groups by itself.

    Args:
      draws: Number of measured rounds.
      seed: Random seed.
    """
    generator = np.random.default_rng(seed)
    for peers, groups in INDEPENDENT:
        ratios: list[np.ndarray] = []
        left = draws
        while left > 0:
            count = min(left, max(1, BATCH // peers))
            ratios.append(one_round(generator, count, peers, groups))
            left -= count
        ratio = np.concatenate(ratios)
        yield {
            "peers": peers,
            "groups": groups,
            "measured": float(ratio.mean()),
            "error": float(ratio.std() / math.sqrt(len(ratio))),
            "exact": independent_groups(peers, groups),
            "published": published_independent_groups(peers, groups),
        }


def one_round(
    generator: np.random.Generator, count: int, peers: int, groups: int
) -> np.ndarray:
    """Return the ratios of the variances after and before a round, of many restarts."""
    values = generator.standard_normal((count, peers))
    label = generator.integers(groups, size=(count, peers))
    label += groups * np.arange(count)[:, None]
    sizes = np.bincount(label.reshape(-1), minlength=count * groups)
    sums = np.bincount(label.reshape(-1), values.reshape(-1), count * groups)
    means = sums / np.maximum(sizes, 1)
    return means[label].var(1) / values.var(1)


def teapot_rows(
    sides: Sequence[int],
    absences: Sequence[float],
    rounds: int,
    restarts: int,
    seed: int,
) -> Iterator[Row]:
    """Yield the variances of a full grid by round, for each probability of absence.

    Args:
      sides: Sides of the grid.
      absences: Probabilities that a peer is absent in a round.
      rounds: Number of rounds with absent peers; without, one for each side.
      restarts: Number of restarts, with other values.
      seed: Random seed.
    """
    peers = math.prod(sides)
    text = "grid:" + "x".join(map(str, sides))
    for absence in absences:
        count = rounds if absence else len(sides)
        ratios = []
        begun = time.perf_counter()
        for restart in range(restarts):
            sequence = np.random.SeedSequence(seed, spawn_key=(restart,))
            faults = NO_FAULTS
            if absence:
                faults = Faults(
                    absence=absence, seed=int(sequence.generate_state(1)[0])
                )
            generator = np.random.default_rng(sequence)
            ratios.append(teapots(peers, text, count, faults, generator))
        seconds = time.perf_counter() - begun
        exact = grid_variances(sides, count, 1 - absence)
        means = np.mean(ratios, 0)
        errors = np.std(ratios, 0) / math.sqrt(max(1, len(ratios) - 1))
        for t in range(count + 1):
            yield {
                "peers": peers,
                "absence": absence,
                "round": t,
                "variance": float(means[t]),
                "error": float(errors[t]),
                "exact": float(exact[t]),
                "restarts": restarts,
                "seconds": seconds / restarts,
            }


def teapots(
    peers: int, text: str, rounds: int, faults: Faults, generator: np.random.Generator
) -> np.ndarray:
    """Return the variance before and after each round, over the first.

    Args:
      peers: Number of peers.
      text: Name of the grid.
      rounds: Number of rounds.
      faults: Absences.
      generator: Generator of the values.
    """
    plan = topology(text, peers)
    values = generator.standard_normal(peers)
    variances = [values.var()]
    for t in range(rounds):
        group_average(values, plan, t, None, faults)
        variances.append(values.var())
    return np.array(variances) / variances[0]
