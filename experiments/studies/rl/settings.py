"""Settings of training by environment, which the flags of commands override.

They reach the return from which an environment counts as solved with a policy lag of
zero to eight updates, in all of the seeds 0 to 4.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Settings(NamedTuple):
    """Settings of a training.

    Attributes:
      copies: Number N of environments of an actor; of episodes: in a minibatch.
      length: Number T of steps of a rollout; unused by episodes.
      batch: Number of rollouts in an update.
      optimizer: Name in `update.dense.OPTIMIZERS`.
      lr: Learning rate.
      widths: Numbers of units in the hidden layers.
      loss: Fields of `actor_critic.Loss`, or arguments of `q_problem`, that differ from
        their defaults.
      replay: Fields of `Settings` of Ape-X that differ from their defaults.
    """

    copies: int = 8
    length: int = 16
    batch: int = 1
    optimizer: str = "adam"
    lr: float = 0.002
    widths: tuple[int, ...] = (64, 64)
    loss: Mapping[str, Any] = {}
    replay: Mapping[str, Any] = {}


CARTPOLE_REPLAY = {"capacity": 20_000, "target_every": 10, "pull_every": 1}
ROLLOUTS: Mapping[str, Settings] = {
    "cartpole": Settings(loss={"reward_scale": 0.1}),
    "catch": Settings(lr=0.003),
}
REPLAY: Mapping[str, Settings] = {
    "cartpole": Settings(lr=0.003, loss={"reward_scale": 0.1}, replay=CARTPOLE_REPLAY),
    "catch": Settings(lr=0.001),
}
EPISODES: Mapping[str, Settings] = {
    "cartpole": Settings(copies=1, loss={"reward_scale": 0.1, "trace": 0.95}),
    "catch": Settings(copies=4, lr=0.003),
}
