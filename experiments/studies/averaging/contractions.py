"""Contractions of the variance by one round: measured, exact, and published.

A million teapots: the rounds of a full grid, without and with absent peers.
"""

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np

from dml.runs.writers import Row
from dml.sim.averaging.groups import group_average
from dml.wire.plans.averaging.contraction import (
    equal_groups,
    grid_variances,
    independent_groups,
    published_groups,
)
from dml.wire.plans.averaging.faults import NO_FAULTS, Faults
from dml.wire.plans.averaging.graphs import topology

GROUPS = ((16, 8), (64, 8), (256, 32))  # peers and groups
BATCH = 1 << 20  # values of restarts that are drawn at once


def group_rows(draws: int, seed: int) -> Iterator[Row]:
    """Yield a row for each kind of random groups, and number of peers and groups.

    Args:
      draws: Number of measured rounds.
      seed: Random seed.
    """
    generator = np.random.default_rng(seed)
    for kind, (choose, exact) in KINDS.items():
        for peers, groups in GROUPS:
            ratios: list[np.ndarray] = []
            left = draws
            while left > 0:
                count = min(left, max(1, BATCH // peers))
                label = choose(generator, count, peers, groups)
                ratios.append(one_round(generator, label, groups))
                left -= count
            ratio = np.concatenate(ratios)
            yield {
                "kind": kind,
                "peers": peers,
                "groups": groups,
                "measured": float(ratio.mean()),
                "error": float(ratio.std() / math.sqrt(len(ratio))),
                "exact": exact(peers, groups),
                "published": published_groups(peers, groups),
            }


def chosen(
    generator: np.random.Generator, count: int, peers: int, groups: int
) -> np.ndarray:
    """Return the groups that peers choose by themselves, for each of `count` rounds."""
    return generator.integers(groups, size=(count, peers))


def equal(
    generator: np.random.Generator, count: int, peers: int, groups: int
) -> np.ndarray:
    """Return random groups of equal size, for each of `count` rounds."""
    label = np.broadcast_to(np.arange(peers) % groups, (count, peers))
    return generator.permuted(label, axis=1)


KINDS = {"chosen": (chosen, independent_groups), "equal": (equal, equal_groups)}


def one_round(
    generator: np.random.Generator, label: np.ndarray, groups: int
) -> np.ndarray:
    """Return the ratios of the variances after and before a round.

    Args:
      generator: Generator of the values.
      label: Groups of the peers, one row for each round.
      groups: Number of groups.
    """
    count = len(label)
    values = generator.standard_normal(label.shape)
    label = label + groups * np.arange(count)[:, None]
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
