"""Catch (Mnih 2014; bsuite): a paddle moves left or right under a ball that falls.

    ○ · · · ·    row 0: the ball starts in a random column
    · · · · ·
    :            the ball falls by one row in each step
    · · ▔ · ·    row 9: the paddle starts in the middle

Actions: left, stay, right. When the ball is in the last row, the episode terminates
with a reward of 1 if the paddle is under the ball, else -1. An observation is the
board, with 1 at the ball and at the paddle, else 0.
"""

from collections.abc import Sequence

import numpy as np

from dml.environments import draws
from dml.environments.copies import ENDED, EPISODE, SEED, STEP, Copies, kernel
from dml.types import Environment

ROWS, COLUMNS = 10, 5
LAST = ROWS - 1  # the paddle's row, and the number of steps of an episode


@kernel
def step(copies, state, actions, observations, rewards, ends):
    """Step all copies; see `copies.Kernel`. Rows of the state: ball, paddle."""
    balls, paddles = state
    known = True
    for n in range(len(actions)):
        action = actions[n]
        known &= (action >= 0) & (action <= 2)
        rewards[n], ends[0, n] = 0, False
        if copies[STEP, n] == ENDED:
            copies[EPISODE, n] += 1
            row = 0
            place = draws.key(draws.ENVIRONMENT, copies[SEED, n], copies[EPISODE, n], 0)
            balls[n] = int(COLUMNS * draws.number(place, 0))
            paddles[n] = COLUMNS // 2
        else:
            row = copies[STEP, n] + 1
            paddles[n] = min(max(paddles[n] + action - 1, 0), COLUMNS - 1)
            if row == LAST:
                rewards[n] = 1 if paddles[n] == balls[n] else -1
                ends[0, n] = True
        copies[STEP, n] = ENDED if row == LAST else row
        observations[n, :] = 0
        observations[n, COLUMNS * row + balls[n]] = 1
        observations[n, COLUMNS * LAST + paddles[n]] = 1
    return known


def make(seeds: Sequence[int]) -> Copies:
    """Return a copy for each seed."""
    state = np.zeros((2, len(seeds)), np.int64)
    return Copies(step, state, seeds, (ROWS * COLUMNS,), 3)


CATCH = Environment("catch", (ROWS * COLUMNS,), 3, LAST, 0.95, make)
