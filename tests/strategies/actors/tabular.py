"""A table of action values of a chain, in NumPy: a problem of rollouts without JAX.

start ─► 0 ◄─► 1 ◄─► 2 ◄─► 3 ─► 4     reward 1 and end at 4; limit of 12 steps
"""

from functools import partial

import numpy as np

from dml.environments import draws
from dml.types import Environment, Outcome, Play, Problem, Rows, rollout_dtype
from dml.update.table import table

STATES, LIMIT = 5, 12


class Chain:
    def __init__(self, seeds):
        self.size = len(seeds)
        self.starts = np.array([seed % 3 for seed in seeds])

    def reset(self):
        self.places, self.ages = self.starts.copy(), np.zeros(self.size, int)
        self.ended = np.zeros(self.size, bool)
        return self.observe()

    def observe(self):
        return self.places[:, None].astype(np.float32)

    def step(self, actions):
        self.places = np.clip(
            self.places + np.where(actions == 1, 1, -1), 0, STATES - 1
        )
        self.ages += 1
        self.places[self.ended] = self.starts[self.ended]
        self.ages[self.ended] = 0
        terminated = ~self.ended & (self.places == STATES - 1)
        truncated = ~self.ended & ~terminated & (self.ages == LIMIT)
        self.ended = terminated | truncated
        rewards = terminated.astype(np.float32)
        return Outcome(self.observe(), rewards, terminated, truncated)


def act(params, observations, numbers):
    logits = params[observations[:, 0].astype(int)]
    right = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    return (numbers < right).astype(np.int32), logits


def gradient(params, rollouts):
    """Return loss and gradient of REINFORCE with the rewards of the rollout."""
    BxTxN = rollouts["actions"].shape
    to_go = rollouts["rewards"][:, ::-1].cumsum(1)[:, ::-1]
    states = rollouts["observations"][:, :-1, :, 0].astype(int)
    exps = np.exp(params[states])
    shares = exps / exps.sum(-1, keepdims=True)
    chosen = np.eye(2, dtype=np.float32)[rollouts["actions"]]
    weights = np.where(rollouts["resets"], 0, to_go) / np.float32(np.prod(BxTxN))
    loss = -(np.log((shares * chosen).sum(-1)) * weights).sum()
    grads = np.zeros_like(params)
    np.add.at(grads, states, (shares - chosen) * weights[..., None])
    return float(loss), Rows(np.arange(STATES), grads)


CHAIN = Environment("chain", (1,), 2, LIMIT, 0.9, Chain)


def problem(copies=3, length=8):
    dtype = rollout_dtype(CHAIN, copies, length)
    return Problem(
        np.zeros((STATES, 2), np.float32),
        0,
        gradient,
        lambda params: {},
        touched=lambda batch: np.arange(STATES),
        play=Play(CHAIN, copies, length, dtype, act, draws.uniform),
    )


UPDATE = partial(table, "momentum", rate=0.5)
