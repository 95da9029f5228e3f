"""Admission of rollouts to a bounded queue: a bound of the lag of every sample.

             grant at version w         consumed by the update of version v
    rollout  ├── played ──┤ arrived ────┤            lag = v - w ≤ K

Updates are numbered by the version of the parameters that they read; each consumes B
rollouts. Of the rollouts that are outstanding (granted, not consumed), those of version
w or less must be consumed by the update w + K at the latest. At version v this is
possible if and only if for every w

    number of outstanding rollouts of versions ≤ w   ≤   B (w + K - v + 1).

Two rules keep this condition true. A rollout is granted only if fewer than B (K + 1)
rollouts are outstanding. An update consumes the oldest B rollouts that have arrived, if
the condition holds at version v + 1 for the remaining rollouts; else it waits for
further arrivals. There is no deadlock: once B or more rollouts are outstanding and all
have arrived, the oldest B can be consumed. If the oldest B cannot be consumed, no other
B can, as older rollouts would remain.

K = 0 is synchronous: an update consumes the B rollouts of the same version.
"""

import heapq
from collections import Counter

from dml.types import BadInput


class Admission:
    """The outstanding rollouts; a rollout has the number of its grant.

    Args:
      batch: Number B of rollouts of an update.
      lag: Largest lag K.
      version: Number of updates so far.

    Attributes:
      versions: Version of each outstanding rollout, by number, in the order of grants.
      arrived: Numbers of the outstanding rollouts that have arrived, as a heap.
      outstanding: Number of outstanding rollouts, by version.
      ready: Number of outstanding rollouts that have arrived, by version.
    """

    def __init__(self, batch: int, lag: int, version: int = 0) -> None:
        if batch < 1 or lag < 0:
            raise BadInput(
                f"expected updates of 1 rollout or more and a lag of 0 or more, got "
                f"{batch} and {lag}; pass numbers in range"
            )
        self.batch, self.lag, self.version = batch, lag, version
        self.granted = 0
        self.versions: dict[int, int] = {}
        self.arrived: list[int] = []
        self.outstanding: Counter[int] = Counter()
        self.ready: Counter[int] = Counter()

    def grant(self) -> int | None:
        """Return the number of a new rollout; None: the actor must wait."""
        if len(self.versions) >= self.batch * (self.lag + 1):
            return None
        number, self.granted = self.granted, self.granted + 1
        self.versions[number] = self.version
        self.outstanding[self.version] += 1
        return number

    def arrive(self, number: int) -> None:
        """Mark an outstanding rollout as arrived."""
        heapq.heappush(self.arrived, number)
        self.ready[self.versions[number]] += 1

    def drop(self, number: int) -> None:
        """Remove an outstanding rollout that will not arrive."""
        self.outstanding[self.versions.pop(number)] -= 1

    def take(self) -> list[int] | None:
        """Return the numbers of the rollouts of an update; None: the update must wait.

        The rollouts are no longer outstanding, and the version increases by 1.
        """
        if len(self.arrived) < self.batch or not self.feasible():
            return None
        numbers = [heapq.heappop(self.arrived) for _ in range(self.batch)]
        for number in numbers:
            version = self.versions.pop(number)
            self.outstanding[version] -= 1
            self.ready[version] -= 1
        self.version += 1
        for version in [w for w, count in self.outstanding.items() if not count]:
            del self.outstanding[version], self.ready[version]
        return numbers

    def feasible(self) -> bool:
        """Return whether the condition will hold without the oldest B arrived."""
        chosen = remaining = 0
        for version in sorted(self.outstanding):
            chosen += (part := min(self.ready[version], self.batch - chosen))
            remaining += self.outstanding[version] - part
            if remaining > self.batch * (version + self.lag - self.version):
                return False
        return True
