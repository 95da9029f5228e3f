"""Pictures of an episode of the trained agent."""

from contextlib import suppress
from pathlib import Path

from lab import flags
import numpy as np

from dml.environments import draws
from dml.environments.named import find
from dml.environments.pictures import frames
from dml.figures import episodes
from dml.models.policies.actor import Act
from dml.models.policies.network import act as draw_action
from dml.models.policies.network import to_numpy
from dml.types import BadInput, Params, Play

PICTURES = 8


def draw_agent(
    path: Path, values: flags.FlagValues, params: Params, play: Play | None
) -> None:
    """Draw an episode; environments without pictures have none.

    Args:
      path: Path of the figure, without suffix.
      values: Flags.
      params: Parameters of the policy.
      play: Acting part of the problem; None: the problem of episodes.
    """
    act = play.act if play else draw_action
    observations, total = episode(values, params, act)
    steps = list(episodes.chosen_steps(len(observations), PICTURES))
    with suppress(BadInput):
        chosen = frames(values.environment, observations[steps])  # slow: not of all
        pictures = np.zeros((len(observations), *chosen.shape[1:]), np.uint8)
        pictures[steps] = chosen
        title = f"{values.environment}: {len(pictures) - 1} steps, return {total:g}"
        episodes.draw(path, pictures, PICTURES, title)


def episode(
    values: flags.FlagValues, params: Params, act: Act
) -> tuple[np.ndarray, float]:
    """Return the observations of an episode, and its return."""
    environments = find(values.environment).make([values.seed])
    params, observations = to_numpy(params), [environments.reset().copy()]
    total, ended = 0.0, False
    while not ended:
        step = len(observations) - 1
        actions, _ = act(
            params, observations[-1], draws.uniform(values.seed, 0, step, 1)
        )
        outcome = environments.step(actions)
        observations.append(np.array(outcome.observations))
        total += float(outcome.rewards[0])
        ended = bool(outcome.terminated[0] | outcome.truncated[0])
    return np.concatenate(observations), total
