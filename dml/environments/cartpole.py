"""CartPole (Barto 1983), with the constants and limits of gymnasium's CartPole-v1.

          |  pole: angle θ, ends beyond ±12°
       ┌──┴──┐
       └o───o┘  ◄─► force of ±10 N; cart: position x, ends beyond ±2.4
    ───────────────────────

The reward of each step is 1. The state is in float64, by Euler steps of 0.02 s, with
the operations of gymnasium in the same order. The angles of an episode are at most 12°,
so the errors of Taylor series of degree 11 are at most the last two bits of sine and
cosine. Loops without calls are compiled to wide registers.
"""

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

from dml.environments import draws
from dml.environments.copies import ENDED, EPISODE, SEED, STEP, Copies, kernel
from dml.types import Environment

GRAVITY = 9.8
CART, POLE = 1.0, 0.1  # masses
TOTAL = POLE + CART
LENGTH = 0.5  # half of the pole
MOMENT = POLE * LENGTH
FORCE = 10.0
SECONDS = 0.02  # of a step
WIDEST = 2.4  # largest position
STEEPEST = 12 * 2 * math.pi / 360  # largest angle
LIMIT = 500
START = 0.05  # bound of the numbers of a first state
S3, S5, S7, S9, S11 = ((-1.0) ** (n // 2) / math.factorial(n) for n in (3, 5, 7, 9, 11))
C2, C4, C6, C8, C10 = ((-1.0) ** (n // 2) / math.factorial(n) for n in (2, 4, 6, 8, 10))


@njit(inline="always")
def sine(angle):
    """Return the sine of an angle of an episode."""
    q = angle * angle
    return angle + angle * (q * (S3 + q * (S5 + q * (S7 + q * (S9 + q * S11)))))


@njit(inline="always")
def cosine(angle):
    """Return the cosine of an angle of an episode."""
    q = angle * angle
    return 1.0 + q * (C2 + q * (C4 + q * (C6 + q * (C8 + q * C10))))


@kernel
def step(copies, state, actions, observations, rewards, ends):
    """Step all copies; see `copies.Kernel`."""
    count = len(actions)
    known = True
    for n in range(count):
        known &= (actions[n] == 0) | (actions[n] == 1)
    move(state, actions)
    finish(copies, state, rewards, ends)
    for n in range(count):
        if rewards[n] == 0:
            start(copies, state, n)
    for n in range(count):
        for i in range(4):
            observations[n, i] = np.float32(state[i, n])
    return known


@kernel
def move(state, actions):
    """Add an Euler step to the state of each copy. Rows: x, dx/dt, θ, dθ/dt."""
    for n in range(len(actions)):
        speed, angle, turn = state[1, n], state[2, n], state[3, n]
        sin, cos = sine(angle), cosine(angle)
        force = FORCE if actions[n] == 1 else -FORCE
        push = (force + MOMENT * (turn * turn) * sin) / TOTAL
        swing = (GRAVITY * sin - cos * push) / (
            LENGTH * (4.0 / 3.0 - POLE * (cos * cos) / TOTAL)
        )
        pull = push - MOMENT * swing * cos / TOTAL
        state[0, n] += SECONDS * speed
        state[1, n] = speed + SECONDS * pull
        state[2, n] = angle + SECONDS * turn
        state[3, n] = turn + SECONDS * swing


@kernel
def finish(copies, state, rewards, ends):
    """Write rewards and ends. A reward of 0 marks a copy that only resets."""
    for n in range(len(rewards)):
        live = copies[STEP, n] != ENDED
        count = copies[STEP, n] + 1
        terminated = live & (
            (abs(state[0, n]) > WIDEST) | (abs(state[2, n]) > STEEPEST)
        )
        truncated = live & (count >= LIMIT)
        rewards[n] = 1 if live else 0
        ends[0, n], ends[1, n] = terminated, truncated
        copies[STEP, n] = ENDED if terminated | truncated else count


@kernel
def start(copies, state, n):
    """Start the next episode of a copy, whose step is 0."""
    copies[EPISODE, n] += 1
    place = draws.key(draws.ENVIRONMENT, copies[SEED, n], copies[EPISODE, n], 0)
    for i in range(4):
        state[i, n] = START * (2 * draws.number(place, i) - 1)


def make(seeds: Sequence[int]) -> Copies:
    """Return a copy for each seed."""
    return Copies(step, np.zeros((4, len(seeds))), seeds, (4,), 2)


CARTPOLE = Environment("cartpole", (4,), 2, LIMIT, 475.0, make)
