"""Parts of all adapters: imports, spaces, and copies with next-step reset.

    start() ─► first observations, step function
    step function(actions) ─► observations, rewards, terminated, truncated, ...

An adapter passes `start`. Its step function resets a copy in the step after the end of
an episode.
"""

import importlib
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from dml import extras
from dml.types import BadInput, Environment, Outcome

LIMIT = 10_000  # steps of an episode, if the package has no limit
NO_LIMIT = 2**31 - 1
BYTE = 255.0  # observations in uint8 are divided by it

Start = Callable[[], tuple[Any, Callable[[np.ndarray], Sequence[Any]]]]


def require(module: str) -> Any:
    """Import a module of the extra `rl`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BadInput(
            extras.explain(error)
            or f"expected the package {module.partition('.')[0]}, got: {error}; "
            f"pip install '{extras.DISTRIBUTION}[rl]'"
        ) from error


def check_name(prefix: str, name: str, known: Sequence[str]) -> None:
    """Raise BadInput if a package has no environment of this name."""
    if name not in known:
        closest = get_close_matches(name, known, 3) or list(known)[:3]
        raise BadInput(
            f"expected an environment of {prefix}, such as {', '.join(closest)}, got "
            f"{name!r}; correct the name after {prefix}:"
        )


def environment(
    name: str,
    spaces: tuple[Any, Any],
    limit: int | None,
    solved: float | None,
    make: Callable[[Sequence[int]], Start],
) -> Environment:
    """Return an environment of another package.

    Args:
      name: Name of the environment, with the prefix of its package.
      spaces: Spaces of an observation and of an action.
      limit: Largest number of steps of an episode; None: LIMIT.
      solved: Mean return from which the environment counts as solved; None: never.
      make: seeds -> function that starts the copies.

    Raises:
      BadInput: Actions are not discrete, or observations are not one array.
    """
    observations, actions = spaces
    if type(observations).__name__ != "Box" or type(actions).__name__ != "Discrete":
        raise BadInput(
            f"expected an environment with a Box of observations and Discrete actions, "
            f"got {name} with {type(observations).__name__} and "
            f"{type(actions).__name__}; choose another environment"
        )
    count, first = int(actions.n), int(getattr(actions, "start", 0))
    shape = tuple(int(size) for size in observations.shape)

    def make_copies(seeds: Sequence[int]) -> Adapted:
        return Adapted(len(seeds), make(seeds), count, first)

    limit, solved = limit or LIMIT, np.inf if solved is None else float(solved)
    return Environment(name, shape, count, int(limit), solved, make_copies)


class Adapted:
    """Environments of another package.

    Args:
      size: Number of copies.
      start: Function that starts the first episode of all copies.
      actions: Number of actions.
      first: Number of the first action in the package.
    """

    def __init__(self, size: int, start: Start, actions: int, first: int) -> None:
        self.size, self.start, self.known_actions = size, start, actions
        self.first = first

    def reset(self) -> np.ndarray:
        """Start the first episode of every copy; return its observations."""
        observations, self.advance = self.start()
        return to_float32(observations)

    def step(self, actions: np.ndarray) -> Outcome:
        """Step every copy by its action."""
        actions = np.asarray(actions, np.int32)
        if actions.min() < 0 or actions.max() >= self.known_actions:
            raise BadInput(
                f"expected actions of 0 to {self.known_actions - 1}, got "
                f"{actions.min()} to {actions.max()}; pass numbers of actions"
            )
        observations, rewards, terminated, truncated, *_ = self.advance(
            actions + np.int32(self.first)
        )
        return Outcome(
            to_float32(observations),
            np.asarray(rewards, np.float32),
            np.asarray(terminated, np.bool_),
            np.asarray(truncated, np.bool_),
        )


def to_float32(observations: Any) -> np.ndarray:
    """Return observations in float32; bytes are divided by 255."""
    array = np.asarray(observations)
    if array.dtype == np.uint8:
        return array / np.float32(BYTE)
    return array.astype(np.float32, copy=False)
