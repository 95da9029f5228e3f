"""Examples of workers whose data differ: shards by label, and their minibatches.

    similarity:γ    a fraction γ of the examples is dealt at random; the others are
                    sorted by label and cut into one piece per worker (Hsieh 2020)
    dirichlet:α     a worker's share of each label is drawn from a Dirichlet
                    distribution (Hsu 2019); a small α gives a label to few workers

Part w of a minibatch has examples of worker w's shard. Minibatches are indices, equal
on all ranks, so every strategy trains on skewed shards, by any number of ranks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

import numpy as np

from dml.data.shards import bounds, shards
from dml.types import BadInput, spec
from dml.types.ranges import Fraction, Range

Shards = Sequence[np.ndarray]  # indices of the examples of each worker
Concentration = Annotated[float, Range(1e-3, 1e6)]


def random_order(count: int, seed: int) -> np.ndarray:
    """Return a random order of examples, whose contiguous shards are i.i.d."""
    return np.random.default_rng(seed).permutation(count)


def by_label(labels: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """Return examples sorted by label; those of a label keep their order."""
    return examples[np.argsort(labels[examples], kind="stable")]


def similar_shards(labels: np.ndarray, workers: int, gamma: float, seed: int) -> Shards:
    """Return shards with a fraction γ of random examples; 1: i.i.d., 0: by label.

    The lengths of shards differ by at most one.
    """
    order = random_order(len(labels), seed)
    count = round(gamma * len(labels))
    dealt = shards(order[:count], workers)
    lengths = [
        len(shard) - len(part)
        for shard, part in zip(shards(order, workers), dealt, strict=True)
    ]
    pieces = np.split(by_label(labels, order[count:]), np.cumsum(lengths)[:-1])
    return [np.concatenate(pair) for pair in zip(dealt, pieces, strict=True)]


def dirichlet_shards(
    labels: np.ndarray, workers: int, alpha: float, seed: int
) -> Shards:
    """Return shards with Dirichlet shares of each label; none is empty."""
    draws = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(workers)]
    for label in np.unique(labels):
        examples = draws.permutation(np.flatnonzero(labels == label))
        shares = draws.dirichlet(np.full(workers, alpha))
        edges = np.round(np.cumsum(shares)[:-1] * len(examples)).astype(int)
        for part, piece in zip(parts, np.split(examples, edges), strict=True):
            part.append(piece)
    made = [np.concatenate(part) for part in parts]
    for worker in range(workers):
        if not len(made[worker]):
            largest = int(np.argmax([len(each) for each in made]))
            made[worker], made[largest] = made[largest][:1], made[largest][1:]
    return made


Share = Callable[[np.ndarray, int, int], Shards]  # labels, workers, seed -> shards


def similarity(gamma: Fraction) -> Share:
    return lambda labels, workers, seed: similar_shards(labels, workers, gamma, seed)


def dirichlet(alpha: Concentration) -> Share:
    return lambda labels, workers, seed: dirichlet_shards(labels, workers, alpha, seed)


SKEWS: Mapping[str, Callable[..., Share]] = {
    "similarity": similarity,
    "dirichlet": dirichlet,
}


def parse(text: str) -> Share:
    """Return the function of a skew; raise BadInput if there is none."""
    share: Share = spec.call(text, SKEWS, "a skew")
    return share


def skewed_shards(
    labels: np.ndarray, workers: int, text: str, seed: int, attackers: int = 0
) -> Shards:
    """Return the shard of each worker.

    Args:
      labels: Label of each example.
      workers: Number of workers.
      text: NAME:ARGUMENT, with a name of SKEWS.
      seed: Random seed.
      attackers: Number of last workers that are Byzantine. All examples belong to the
        honest ones; attackers have copies of their shards.
    """
    share = parse(text)
    honest = workers - attackers
    if honest > len(labels):
        raise BadInput(
            f"expected at least one of {len(labels)} examples for each of {honest} "
            "workers; use fewer workers"
        )
    made = list(share(labels, honest, seed))
    return made + [made[k % honest] for k in range(attackers)]


def skewed_draws(
    own: Shards, batch: int, seed: int, examples: int, start: int = 0
) -> Iterator[np.ndarray]:
    """Yield the draw numbers of each minibatch: part w has examples of worker w.

    A worker reads its shard in a new order whenever it has read all of it.

    Args:
      own: Shard of each worker.
      batch: Draws per minibatch.
      seed: Random seed.
      examples: Total number of draws.
      start: Number of draws to skip, a multiple of `batch`, to resume a run.
    """
    workers, count = len(own), 1 + max(int(part.max()) for part in own)
    for first in range(start, examples, batch):
        length = min(batch, examples - first)
        parts = []
        for worker, part in enumerate(own):
            low, high = bounds(batch, worker, workers)
            wanted_low, wanted_high = bounds(length, worker, workers)
            position = first // batch * (high - low)
            positions = range(position, position + wanted_high - wanted_low)
            parts += worker_draws(part, (seed, worker), positions, count)
        yield np.concatenate(parts)


def worker_draws(
    part: np.ndarray, seed: tuple[int, int], positions: range, count: int
) -> list[np.ndarray]:
    """Return the draws at positions of a worker's sequence, an array per epoch.

    Args:
      part: Examples of the worker.
      seed: Seed, and number of the worker.
      positions: Positions in the infinite sequence of its draws.
      count: Number of examples of all workers.
    """
    found = []
    while positions:
        epoch, offset = divmod(positions[0], len(part))
        order = part_order(len(part), seed, epoch)[offset : offset + len(positions)]
        found.append(epoch * count + part[order])
        positions = positions[len(order) :]
    return found


@lru_cache(maxsize=4096)  # virtual ranks share the orders
def part_order(length: int, seed: tuple[int, int], epoch: int) -> np.ndarray:
    return np.random.default_rng([*seed, epoch]).permutation(length)
