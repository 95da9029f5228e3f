"""Groups that change in each round: random groups, and the lines of Moshpit's grid.

    round 0: lines along axis 0     round 1: lines along axis 1     A grid of M^d ranks
        0 │ 1 │ 2                       0 ─ 1 ─ 2                   has the exact mean
        3 │ 4 │ 5                       3 ─ 4 ─ 5                   after d rounds.
        6 │ 7 │ 8                       6 ─ 7 ─ 8

Pure arithmetic, without communication: every rank computes the groups from the seed.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np


class Groups(NamedTuple):
    """Disjoint groups that contain all ranks.

    Attributes:
      order: All ranks, one group after another.
      starts: Positions in `order` at which the groups start, and its length.
      label: Group of each rank.
    """

    order: np.ndarray
    starts: np.ndarray
    label: np.ndarray

    def members(self, rank: int) -> np.ndarray:
        """Return the ranks of the group of a rank."""
        group = self.label[rank]
        return self.order[self.starts[group] : self.starts[group + 1]]

    def sizes(self) -> np.ndarray:
        """Return the number of ranks of each group."""
        return np.diff(self.starts)


def by_label(label: np.ndarray, count: int) -> Groups:
    """Return the groups of ranks with equal labels; a label is from 0 to count - 1."""
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(label, minlength=count), out=starts[1:])
    return Groups(np.argsort(label, kind="stable"), starts, label)


def _generator(seed: int, t: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(t,)))


@lru_cache(maxsize=8)
def random_groups(size: int, width: int, seed: int, t: int) -> Groups:
    """Return ⌊size/width⌋ random groups; the first ones take the remaining ranks.

    Args:
      size: Number of ranks.
      width: Number of ranks in a group.
      seed: Random seed.
      t: Number of the round.
    """
    order, count = _generator(seed, t).permutation(size), max(1, size // width)
    label = np.empty(size, np.int64)
    place = np.arange(size)
    label[order] = np.where(place < count * width, place // width, place % count)
    return by_label(label, count)


@lru_cache(maxsize=8)
def independent_groups(size: int, count: int, seed: int, t: int) -> Groups:
    """Return groups that every rank chooses at random, by itself, from `count`.

    Args:
      size: Number of ranks.
      count: Number of groups; some may be empty.
      seed: Random seed.
      t: Number of the round.
    """
    return by_label(_generator(seed, t).integers(count, size=size), count)


@lru_cache(maxsize=8)
def seats(size: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return the seats of the ranks in a grid: r of rank r, or random if some are free.

    Args:
      size: Number of ranks, at most the number of seats.
      shape: Sides of the grid.
      seed: Random seed.
    """
    count = math.prod(shape)
    if size == count:
        return np.arange(size)
    return np.random.default_rng(seed).permutation(count)[:size]


@lru_cache(maxsize=8)
def grid_lines(size: int, shape: tuple[int, ...], seed: int, axis: int) -> Groups:
    """Return the lines of a grid along an axis.

    Args:
      size: Number of ranks.
      shape: Sides of the grid.
      seed: Random seed of the seats of fewer ranks than seats.
      axis: Axis along which the lines run.
    """
    count = math.prod(shape) // shape[axis]
    return by_label(line(seats(size, shape, seed), shape, axis), count)


def line(seat: np.ndarray, shape: Sequence[int], axis: int) -> np.ndarray:
    """Return the line along an axis that contains each seat of a grid."""
    after = math.prod(shape[axis + 1 :])  # seats between neighbours on the line
    return seat // (after * shape[axis]) * after + seat % after
