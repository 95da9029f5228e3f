"""Measures of the rollouts of an update: returns of episodes, frames and lag.

rollouts of a copy   ──5──┤ ──3── │ ──4──┤ ──      returns 5 and 7: an episode may
                       ends         ends           continue in the next rollout
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np


class EpisodeSums(NamedTuple):
    """Sums over the rollouts of an update, of one learner or of all learners.

    Attributes:
      samples: Number of steps of environments, with steps that only reset.
      frames: Number of steps of environments, without steps that only reset.
      lag: Sum of the lags of all samples.
      episodes: Number of episodes that ended.
      returns: Sum of the returns of these episodes.
      queued: Number of rollouts that have arrived and were not consumed.
    """

    samples: float
    frames: float
    lag: float
    episodes: float
    returns: float
    queued: float

    def measures(self, lag_max: int) -> dict[str, float]:
        """Return the measures of a Step; mean_return only if an episode ended."""
        mean = {"mean_return": self.returns / self.episodes} if self.episodes else {}
        return {
            "lag_mean": self.lag / self.samples,
            "lag_max": lag_max,
            "frames": int(self.frames),
            "queued": int(self.queued),
            **mean,
        }


class Episodes:
    """The unfinished episodes of all actors: sums of their rewards by copy."""

    def __init__(self) -> None:
        self.unfinished: dict[int, np.ndarray | float] = defaultdict(float)

    def returns(self, rollout: np.ndarray) -> list[float]:
        """Return the returns of the episodes that ended in a rollout.

        Args:
          rollout: Record; the rollouts of an actor must be passed in order.
        """
        actor = int(rollout["actor"])
        totals_TxN = rollout["rewards"].cumsum(axis=0, dtype=np.float64)
        totals_TxN += self.unfinished[actor]
        before_N, returns = np.zeros(totals_TxN.shape[1]), []
        ends = np.nonzero(rollout["terminated"] | rollout["truncated"])
        for t, n in zip(*ends, strict=True):  # by time
            returns.append(float(totals_TxN[t, n] - before_N[n]))
            before_N[n] = totals_TxN[t, n]
        self.unfinished[actor] = totals_TxN[-1] - before_N
        return returns

    def sums(self, rollouts: np.ndarray, version: int, queued: int) -> EpisodeSums:
        """Return the sums over the rollouts of an update of params of a version."""
        returns = [value for rollout in rollouts for value in self.returns(rollout)]
        lags = version - rollouts["versions"]
        resets = rollouts["resets"]
        return EpisodeSums(
            samples=resets.size,
            frames=resets.size - int(np.count_nonzero(resets)),
            lag=float(lags.mean() * resets.size),
            episodes=len(returns),
            returns=sum(returns),
            queued=queued,
        )
