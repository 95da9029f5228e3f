"""Graphs whose cables have unequal rates."""

import numpy as np

FREE = "@0,1e-9,0"  # no latency, no time of additions


def unequal_cables(folder, seed, size=6, more=3):
    """Return the text of a network: a path of all ranks, and up to `more` cables."""
    rng, path = np.random.default_rng(seed), folder / "graph.txt"
    order = rng.permutation(size)
    pairs = {tuple(sorted(map(int, order[k : k + 2]))) for k in range(size - 1)}
    pairs |= {tuple(sorted(rng.choice(size, 2, False).tolist())) for _ in range(more)}
    lines = [f"{a} {b} {rng.uniform(0.1, 1):.3f}\n" for a, b in sorted(pairs)]
    path.write_text("".join(lines))
    return f"graph:{path}{FREE}"
