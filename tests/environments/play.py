"""Trajectories of an environment with actions by seed and step."""

import numpy as np

STEPS = 130


def trajectory(environment, seeds, choose, steps=STEPS):
    """Return observations, rewards, terminated and truncated of all steps."""
    copies = environment.make(seeds)
    seen = [copies.reset().copy()]
    rows = []
    for t in range(steps):
        actions = np.array([choose(seed, t) for seed in seeds])
        outcome = copies.step(actions)
        rows.append([np.copy(field) for field in outcome])
        seen.append(rows[-1][0])
    _, *others = (np.stack(field) for field in zip(*rows, strict=True))
    return np.stack(seen), *others


def chooser(actions):
    """Return (seed, step) -> action."""
    table = np.random.default_rng(7).integers(0, actions, (1000, STEPS))
    return lambda seed, t: table[seed, t]
