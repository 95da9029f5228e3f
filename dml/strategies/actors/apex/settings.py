"""Roles of the ranks of Ape-X, and the settings of a run.

rank 0   │ 1 .. R  │ R+1 .. size-1
learner  │ replays │ actors             actor i sends to replay i mod R
"""

from typing import NamedTuple

from dml.types import BadInput
from dml.types.ranges import (
    Count,
    Every,
    Fraction,
    Large,
    Number,
    Positive,
    Seed,
    Updates,
)


class ApexSettings(NamedTuple):
    """Settings of a run, equal on all ranks.

    Attributes:
      replays: Number R of replays, among which the actors are divided.
      capacity: Largest number of transitions of all replays.
      batch: Number B of transitions of an update.
      warmup: Number of transitions before the first update.
      ratio: Number of samples per transition, after the warm-up.
      alpha: Exponent of priorities; 0: uniform replay.
      beta: Exponent of importance weights.
      n_step: Largest number n of steps of a transition.
      discount: γ.
      epsilon: Share ε of random actions of the first actor.
      spread: Spread of the exponents of ε over actors; 0: all actors have ε.
      target_every: Number of updates between two renewals of the target network.
      pull_every: Number of messages of an actor between two requests of params.
      window: Largest number of messages of an actor without a credit.
      prefetch: Number of requested batches that the learner has not received.
      report_every: Number of updates in a Step.
      seed: Seed of episodes, random actions and samples.
      elastic: Whether the run continues when actors die.
    """

    replays: Count = 1
    capacity: Large = 2**17
    batch: Count = 64
    warmup: Updates = 1000
    ratio: Positive = 8.0
    alpha: Fraction = 0.6
    beta: Fraction = 0.4
    n_step: Count = 3
    discount: Fraction = 0.99
    epsilon: Fraction = 0.4
    spread: Number = 7.0
    target_every: Every = 200
    pull_every: Every = 2
    window: Count = 2
    prefetch: Count = 2
    report_every: Every = 100
    seed: Seed = 0
    elastic: bool = False

    def check(self) -> None:
        """Raise BadInput for settings that do not fit together."""
        if self.warmup + self.batch > self.capacity:
            raise BadInput(
                f"expected a capacity of warmup and batch, {self.warmup + self.batch} "
                f"transitions, or more, got {self.capacity}; pass a larger capacity"
            )


class Roles(NamedTuple):
    """The roles of ranks: a learner, R replays, then the actors.

    Attributes:
      size: Number of ranks.
      replays: R.
    """

    size: int
    replays: int

    @property
    def actors(self) -> range:
        """Ranks of the actors."""
        return range(1 + self.replays, self.size)

    def replay_of(self, actor: int) -> int:
        """Return the rank of the replay that receives the transitions of an actor."""
        return 1 + (actor - 1 - self.replays) % self.replays

    def actors_of(self, replay: int) -> list[int]:
        """Return the ranks of the actors that send to a replay."""
        return [actor for actor in self.actors if self.replay_of(actor) == replay]

    def check(self) -> None:
        """Raise BadInput unless every replay has an actor."""
        if self.replays < 1 or self.size < 1 + 2 * self.replays:
            raise BadInput(
                "expected a learner, 1 replay or more and an actor for each, got "
                f"{self.size} ranks with --replays={self.replays}; start 3 ranks or "
                "more with mpirun -n <ranks> or --simulate=<ranks>"
            )
