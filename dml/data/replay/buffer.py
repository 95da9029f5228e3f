"""A ring buffer of records that are sampled in proportion to a power of a priority.

    key      0  1  2  3  4  5  6        number of the record
    slot     0  1  2  3  0  1  2        key mod capacity (here 4)
    records  4  5  6  3                 by slot: the newest `capacity` records

Record i with priority p_i is sampled with probability P(i) = w_i / Σ w, where w_i =
p_i^α as an integer (fixed point), by a sum tree (Schaul 2016). The importance weight
of a record among n is (n P(i))^-β, divided by the largest weight of the batch. New
priorities of overwritten records are recognised by their keys, and dropped.
"""

from typing import NamedTuple

import numpy as np

from dml.data.replay.sum_tree import SumTree, stratified_draws

ONE = 2**24  # the weight of priority 1
LARGEST = 2**40  # of a weight: priorities^α are at most 2^16


class Sampled(NamedTuple):
    """A batch of records.

    Attributes:
      keys: Key of each record, B in int64.
      records: Array of B records.
      weights: Importance weights, B in float32; the largest is 1.
    """

    keys: np.ndarray
    records: np.ndarray
    weights: np.ndarray


class ReplayBuffer:
    """The newest records, with priorities.

    Args:
      capacity: Largest number of records.
      dtype: Structured dtype of a record.
      alpha: Exponent α of priorities; 0: all records are equally probable.
      beta: Exponent β of importance weights; 1: the gradient is unbiased; 0: all
        weights are 1.

    Attributes:
      inserted: Number of inserted records, which is the key of the next record.
    """

    def __init__(
        self, capacity: int, dtype: np.dtype, alpha: float = 0.6, beta: float = 0.4
    ):
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self.tree = SumTree(capacity, LARGEST)
        self.records = np.zeros(capacity, dtype)
        self.inserted = 0

    def __len__(self) -> int:
        return min(self.inserted, self.capacity)

    def insert(self, records: np.ndarray, priorities: np.ndarray) -> None:
        """Add records, which overwrite the oldest records of a full buffer."""
        keys = np.arange(self.inserted, self.inserted + len(records))
        slots = keys % self.capacity
        self.records[slots] = records
        self.tree.update(slots, fixed_point(priorities, self.alpha))
        self.inserted += len(records)

    def set_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Set priorities of records by key; keys of overwritten records are ignored."""
        exists = keys >= self.inserted - self.capacity
        weights = fixed_point(priorities[exists], self.alpha)
        self.tree.update(keys[exists] % self.capacity, weights)

    def sample(self, uniforms: np.ndarray) -> Sampled:
        """Return B records by stratified draws in proportion to the weights.

        Args:
          uniforms: Random numbers from 0 to 2^64 - 1, B in uint64.
        """
        slots = self.tree.find(stratified_draws(self.tree.total, uniforms))
        laps = (self.inserted - 1 - slots) // self.capacity
        return Sampled(
            slots + laps * self.capacity,
            self.records[slots],
            self.importance(self.tree.weights[slots]),
        )

    def importance(self, weights: np.ndarray) -> np.ndarray:
        """Return (n P(i))^-β over its maximum; it is 1 for the smallest weight."""
        return ((weights / weights.min()) ** -self.beta).astype(np.float32)


def fixed_point(priorities: np.ndarray, alpha: float) -> np.ndarray:
    """Return priorities^α in units of 1/ONE as integers.

    Priority 0 has the weight 0, also for α = 0; other weights are at least 1, and at
    most LARGEST.
    """
    priorities = np.asarray(priorities, np.float64)
    if not (priorities >= 0).all():
        raise ValueError(
            f"expected priorities of at least 0, got {priorities}; pass errors"
        )
    powers = np.minimum(priorities**alpha, LARGEST // ONE)
    weights = np.maximum(np.rint(powers * ONE), 1).astype(np.int64)
    return np.where(priorities > 0, weights, 0)
