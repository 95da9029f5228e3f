"""The table of Moshpit's notebook, with its own definitions and random numbers.

yandex-research/moshpit-sgd, averaging_experiments/plot_results.ipynb: rounds until the
variance is below 1e-9 (1e-4), at most 50, means of 10 restarts; peers are absent with a
probability in each round. Gossip and SGP divide each row of their matrix by the sum of
its present weights, which moves the mean of all values.

SGP of the notebook mixes thirds: a value, and those 2^h and 2^(h+1) places away. Its
matrix is rolled without an axis, so that entries beyond the last column move on to the
next row. Only ⌊lg(N - 1)⌋ of the shifts begin a round.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from dml.runs.writers import Row
from dml.sim.averaging.gossip import push_sum
from dml.wire.plans.averaging.faults import Faults
from dml.wire.plans.averaging.graphs import topology
from studies.averaging.rounds import TARGETS, first_below

SIDE = 32  # of the grid with two axes, and of random groups
MOST_ROUNDS = 50
SEATS_SEED = 100  # the notebook's seats have no seed

Round = Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # values, alive, number
Random = np.random.RandomState

# By number of peers and absence: rounds to 1e-9 and to 1e-4, for each method.
PUBLISHED: dict[tuple[int, float], tuple[tuple[float, float], ...]] = {
    (512, 0.0): ((1, 1), (50, 50), (47.6, 15.6), (6.1, 3.0), (8.2, 3.6)),
    (512, 0.01): ((41.7, 41.7), (50, 50), (47.8, 15.6), (6.6, 3.0), (8.8, 3.9)),
    (768, 0.0): ((1, 1), (50, 50), (43.2, 13.8), (6.2, 3.0), (6.0, 3.0)),
    (768, 0.01): ((50, 50), (50, 50), (43.9, 14.2), (7.0, 3.0), (6.9, 3.0)),
    (900, 0.0): ((1, 1), (50, 50), (45.0, 14.7), (6.4, 3.0), (5.0, 2.9)),
    (900, 0.01): ((50, 50), (50, 50), (45.6, 14.9), (7.0, 3.1), (6.5, 3.0)),
}


def all_reduce(p: int, random: Random) -> Round:
    """The mean of all peers if none is absent; else no change."""
    return lambda values, alive, t: np.full(p, values.mean()) if alive.all() else values


def row_normalised(sources: Sequence[np.ndarray], dests: Sequence[np.ndarray]) -> Round:
    """Return a round that divides each row by the sum of its present weights."""
    source, dest = np.concatenate(sources), np.concatenate(dests)

    def mixed(values: np.ndarray, alive: np.ndarray, t: int) -> np.ndarray:
        use = alive[source] & alive[dest]
        sums = np.bincount(dest[use], values[source[use]], len(values))
        weights = np.bincount(dest[use], minlength=len(values))
        return np.where(weights > 0, sums / np.maximum(weights, 1), values)

    return mixed


def gossip(p: int, random: Random) -> Round:
    """A third of each neighbour on a ring, and a third of the own value."""
    ranks = np.arange(p)
    shifted = [ranks, (ranks + 1) % p, (ranks - 1) % p]
    return row_normalised(shifted, [ranks] * 3)


def sgp(p: int, random: Random) -> Round:
    """Thirds over the shifts 2^h and 2^(h+1), in a matrix that is rolled flat."""
    ranks = np.arange(p)
    rounds = []
    for hop in range(int(np.floor(np.log2(p - 1)))):
        sources, dests = [ranks], [ranks]
        for shift in (1 << hop, 2 << hop):
            flat = ranks * (p + 1) + shift
            sources.append(flat % p)
            dests.append(flat // p % p)
        rounds.append(row_normalised(sources, dests))
    return lambda values, alive, t: rounds[t % len(rounds)](values, alive, t)


def random_groups(p: int, random: Random) -> Round:
    """Means of random groups of 32 present peers; other peers join the first groups."""

    def mixed(values: np.ndarray, alive: np.ndarray, t: int) -> np.ndarray:
        (order,) = np.nonzero(alive)
        random.shuffle(order)
        place, groups = np.arange(len(order)), max(1, len(order) // SIDE)
        full = place < groups * SIDE
        return group_means(values, order, np.where(full, place // SIDE, place % groups))

    return mixed


def moshpit(p: int, random: Random, seed: int = 0) -> Round:
    """Means of the present peers on the lines of a grid of 32 x 32 seats."""
    seats = Random(SEATS_SEED + seed).choice(SIDE**2, size=p, replace=False)

    def mixed(values: np.ndarray, alive: np.ndarray, t: int) -> np.ndarray:
        (here,) = np.nonzero(alive)
        line = seats % SIDE if t % 2 == 0 else seats // SIDE
        return group_means(values, here, line[here])

    return mixed


def group_means(values: np.ndarray, ranks: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return the values with the means of their groups at some ranks."""
    sums, counts = np.bincount(label, values[ranks]), np.bincount(label)
    result = values.copy()
    result[ranks] = (sums / np.maximum(counts, 1))[label]
    return result


NOTEBOOK: dict[str, Callable[..., Round]] = {  # in the order of PUBLISHED
    "all_reduce": all_reduce,
    "gossip": gossip,
    "sgp": sgp,
    "random_groups": random_groups,
    "moshpit": moshpit,
}
OURS = "one_peer_exponential"


def variances(
    method: Callable[..., Round], p: int, absence: float, seed: int
) -> tuple[np.ndarray, float]:
    """Return the variance before and after each round, and the change of the mean.

    Args:
      method: A method of the notebook.
      p: Number of peers.
      absence: Probability that a peer is absent in a round.
      seed: Random seed, as in the notebook.
    """
    random = Random(seed)
    values = random.normal(0, 1, p)
    first, found = values.mean(), [values.var()]
    options = {"seed": seed} if method is moshpit else {}
    mixed = method(p, random, **options)
    for t in range(1, MOST_ROUNDS + 1):
        if found[-1] < TARGETS[-1]:
            break
        values = mixed(values, random.uniform(0, 1, p) >= absence, t)
        found.append(values.var())
    return np.array(found), abs(values.mean() - first)


def halves(p: int, absence: float, seed: int) -> tuple[np.ndarray, float]:
    """Return the same for push-sum on the one-peer exponential graph, with halves."""
    values, state = Random(seed).normal(0, 1, p), None
    first, found = values.mean(), [values.var()]
    plan, faults = topology(OURS, p), Faults(absence=absence, seed=seed)
    result = values
    for t in range(MOST_ROUNDS):
        if found[-1] < TARGETS[-1]:
            break
        state = push_sum(values, plan, t, state, faults)
        result = values / state.weights
        found.append(result.var())
    return np.array(found), abs(result.mean() - first)


def rows(
    peers: Sequence[int], absences: Sequence[float], restarts: int
) -> Iterator[Row]:
    """Yield a row for each number of peers, absence and method.

    Args:
      peers: Numbers of peers.
      absences: Probabilities that a peer is absent.
      restarts: Number of restarts.
    """
    for p in peers:
        for absence in absences:
            published = dict(
                zip(NOTEBOOK, PUBLISHED.get((p, absence), ()), strict=False)
            )
            methods = {
                name: partial(variances, make) for name, make in NOTEBOOK.items()
            }
            for name, restart in {**methods, OURS: halves}.items():
                found = [restart(p, absence, seed) for seed in range(restarts)]
                many, few = (mean_rounds(found, target) for target in TARGETS[::-1])
                yield {
                    "method": name,
                    "peers": p,
                    "absence": absence,
                    "published_1e-9": published.get(name, (None, None))[0],
                    "rounds_1e-9": many,
                    "published_1e-4": published.get(name, (None, None))[1],
                    "rounds_1e-4": few,
                    "mean_error": float(np.mean([error for _, error in found])),
                }


def mean_rounds(found: Sequence[tuple[np.ndarray, float]], target: float) -> float:
    """Return the mean over restarts of the rounds to a target, at most 50."""
    rounds = [first_below(one, target) for one, _ in found]
    return float(np.mean([MOST_ROUNDS if n is None else n for n in rounds]))
