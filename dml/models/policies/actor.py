"""An actor: steps the copies of an environment, and writes rollouts.

    params ─► act ─► actions ─► environments ─► one record of T steps of N copies

The random numbers of an actor depend only on the seed, its rank and the step, so equal
params lead to equal rollouts in every process.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.environments import draws
from dml.models.policies.network import to_numpy
from dml.types import BadInput, Environment, Params, Play

Act = Callable[[Params, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
EPISODES = 32  # number of episodes in an evaluation
EVALUATION = 2**31 - 1  # actor of the random numbers of evaluations


class Actor:
    """The environments of one actor.

    Attributes:
      observations: Observations before the next step, NxO.
      steps: Number of steps so far.
      returns: Returns of the episodes that ended; the caller may clear the list.

    Args:
      play: Acting part of the problem.
      seed: Seed of the run.
      actor: Number of the actor, from 0 on.
    """

    def __init__(self, play: Play, seed: int, actor: int) -> None:
        self.play, self.seed, self.actor = play, seed, actor
        self.environments = play.environment.make(copy_seeds(seed, actor, play.copies))
        self.observations = first_observations(self.environments.reset(), play)
        self.ended = np.zeros(play.copies, np.bool_)
        self.sums = np.zeros(play.copies)
        self.returns: list[float] = []
        self.steps = self.rollouts = 0

    def rollout(self, params: Params, version: int, out: np.ndarray) -> None:
        """Write a rollout of T steps with the same params.

        Args:
          params: Parameters of the policy.
          version: Number of updates of the params.
          out: A record of the play's dtype, which is overwritten.
        """
        params = to_numpy(params)
        self.begin(out)
        for t in range(self.play.length):
            actions, logits = self.play.act(params, self.observations, self.draws())
            self.step(out, t, actions, logits, version)

    def begin(self, out: np.ndarray) -> None:
        """Write the fields of a record that its steps do not write."""
        out["actor"], out["number"] = self.actor, self.rollouts
        out["observations"][0] = self.observations
        self.rollouts += 1

    def draws(self) -> np.ndarray:
        """Return the uniform numbers of the next step, N."""
        return self.play.draws(self.seed, self.actor, self.steps, self.play.copies)

    def step(
        self,
        out: np.ndarray,
        t: int,
        actions: np.ndarray,
        logits: np.ndarray,
        version: int,
    ) -> None:
        """Step the environments, and write step t of a record."""
        out["versions"][t] = version
        out["logits"][t] = logits
        out["actions"][t] = actions
        out["resets"][t] = self.ended
        outcome = self.environments.step(actions)
        self.observations = outcome.observations
        out["observations"][t + 1] = outcome.observations
        out["rewards"][t] = outcome.rewards
        out["terminated"][t] = outcome.terminated
        out["truncated"][t] = outcome.truncated
        self.ended = outcome.terminated | outcome.truncated
        self.sums += outcome.rewards
        if self.ended.any():
            self.returns += self.sums[self.ended].tolist()
            self.sums[self.ended] = 0
        self.steps += 1


def first_observations(observations: Any, play: Play) -> np.ndarray:
    """Return the first observations; raise BadInput if their shape is another."""
    shape = (play.copies, *play.environment.shape)
    if np.shape(observations) != shape:
        raise BadInput(
            f"expected observations of {shape} from reset() of "
            f"{play.environment.name}, got {np.shape(observations)}; correct the shape "
            "of the environment"
        )
    return np.asarray(observations)


def copy_seeds(seed: int, actor: int, copies: int) -> list[int]:
    """Return a seed for each copy of an environment of an actor."""
    sequence = np.random.SeedSequence([seed % 2**63, actor])
    return [int(number) for number in sequence.generate_state(copies, np.uint64)]


def evaluation(
    environment: Environment, act: Act, seed: int, episodes: int
) -> Callable[[Params], dict[str, Any]]:
    """Return params -> the mean return of episodes, each with a fixed seed.

    Actions are drawn from the policy, as in training.

    Args:
      environment: Environment of the episodes.
      act: See `Play.act`.
      seed: Seed of the episodes and actions.
      episodes: Number of episodes, which are played together.
    """

    def evaluate(params: Params) -> dict[str, Any]:
        params = to_numpy(params)
        made = environment.make(copy_seeds(seed, EVALUATION, episodes))
        observations = made.reset()
        sums, playing = np.zeros(episodes), np.ones(episodes, np.bool_)
        step = 0
        while playing.any():
            numbers = draws.uniform(seed, EVALUATION, step, episodes)
            actions, _ = act(params, observations, numbers)
            outcome = made.step(actions)
            observations = outcome.observations
            sums[playing] += outcome.rewards[playing]
            playing &= ~(outcome.terminated | outcome.truncated)
            step += 1
        return {"mean_return": float(sums.mean())}

    return evaluate
