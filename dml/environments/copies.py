"""Copies of an environment that a compiled kernel steps together.

    actions ─► kernel(copies, state, actions, observations, rewards, ends) ─► Outcome

A kernel steps all copies in one call and allocates no memory. `copies` has the rows
SEED, EPISODE and STEP, and a column for each copy. The step number ENDED marks a copy
that resets in the next step. `reset` marks all copies and steps them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.compiled import compile_loop
from dml.environments import draws
from dml.types import BadInput, Outcome

SEED, EPISODE, STEP = 0, 1, 2  # rows of `copies`
ENDED = -1  # step of a copy that resets in the next step

# (copies_3xN, state, actions_N, observations_NxO, rewards_N, ends_2xN) -> whether all
# actions exist. Rows of `ends`: terminated, truncated.
Kernel = Callable[..., bool]

# Divisions by 0 are not errors: with checks, loops with divisions are not compiled to
# wide registers.
kernel = compile_loop(draws, error_model="numpy")


class Copies:
    """Environments of a kernel.

    Args:
      kernel: Compiled function; see Kernel.
      state: State of all copies, read and written only by the kernel.
      seeds: Seed of each copy.
      shape: Shape of an observation.
      actions: Number of actions.
    """

    def __init__(
        self,
        kernel: Kernel,
        state: Any,
        seeds: Sequence[int],
        shape: tuple[int, ...],
        actions: int,
    ) -> None:
        self.kernel, self.state, self.known_actions = kernel, state, actions
        self.size = len(seeds)
        self.copies = np.zeros((3, self.size), np.int64)
        self.copies[SEED] = [int(seed) % 2**63 for seed in seeds]
        self.actions = np.zeros(self.size, np.int64)
        ends = np.zeros((2, self.size), np.bool_)
        observations = np.zeros((self.size, *shape), np.float32)
        rewards = np.zeros(self.size, np.float32)
        self.arrays = (
            *(self.copies, state, self.actions),
            *(observations, rewards, ends),
        )
        self.outcome = Outcome(observations, rewards, ends[0], ends[1])

    def reset(self) -> np.ndarray:
        """Start the first episode of every copy; return its observations, NxO."""
        self.copies[EPISODE] = -1
        self.copies[STEP] = ENDED
        self.actions[:] = 0
        self.kernel(*self.arrays)
        return self.outcome.observations

    def step(self, actions: np.ndarray) -> Outcome:
        """Step every copy by its action; the next step overwrites the arrays."""
        self.actions[:] = actions
        if not self.kernel(*self.arrays):
            raise BadInput(
                f"expected actions of 0 to {self.known_actions - 1}, got "
                f"{self.actions.min()} to {self.actions.max()}; pass numbers of actions"
            )
        return self.outcome
