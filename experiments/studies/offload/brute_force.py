"""Plans of random accesses of few buffers, in comparison with the best of all plans."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, cycle, islice
from typing import Any

import numpy as np

from dml.runs.writers import Row
from dml.wire.plans.offloading.offload import (
    FETCH,
    RULES,
    WRITE_BACK,
    Access,
    Iteration,
    demand,
    next_uses,
)

ROUNDS = 2  # iterations of each plan
Cost = Callable[[str, int], int]  # (kind of a move, bytes of its buffer) -> cost
State = frozenset[tuple[str, bool]]  # buffers in device memory, and whether changed


def fetches(kind: str, nbytes: int) -> int:
    """Return 1 for a fetch."""
    return int(kind == FETCH)


def copied_bytes(kind: str, nbytes: int) -> int:
    """Return the bytes of a fetch or of a write-back."""
    return nbytes if kind in (FETCH, WRITE_BACK) else 0


def planned_cost(
    iteration: Iteration, capacity: int, rule: str, rounds: int, cost: Cost
) -> int:
    """Return the cost of the plan by a rule.

    Args:
      iteration: The recorded iteration.
      capacity: Bytes of device memory.
      rule: Key of RULES.
      rounds: Number of iterations.
      cost: Cost of a move.
    """
    steps = demand(iteration, capacity, rule)
    return sum(
        cost(move.kind, iteration.sizes[move.buffer])
        for step in islice(steps, rounds * len(iteration.accesses))
        for move in step.moves
    )


def least_cost(iteration: Iteration, capacity: int, rounds: int, cost: Cost) -> int:
    """Return the least cost of all plans, by a search of all states of memory.

    Plans that evict a buffer before its memory is needed are left out: the same move
    could be made later, at the same cost.

    Args:
      iteration: The recorded iteration.
      capacity: Bytes of device memory.
      rounds: Number of iterations.
      cost: Cost of a move.
    """
    following, length = next_uses(iteration), len(iteration.accesses)
    best: dict[State, int] = {frozenset(): 0}
    for number, access in enumerate(islice(cycle(iteration.accesses), rounds * length)):
        dead = {name for name in access.buffers if following[name][number % length][1]}
        reached: dict[State, int] = {}
        for state, spent in best.items():
            resident = dict(state)
            missing = [name for name in access.buffers if name not in resident]
            for evicted in evictions(iteration, capacity, access, resident):
                total = spent + sum(
                    cost(WRITE_BACK, iteration.sizes[name])
                    for name in evicted
                    if resident[name]
                )
                total += sum(
                    cost(FETCH, iteration.sizes[name])
                    for name in missing
                    if name in access.reads
                )
                key = frozenset(
                    (name, resident.get(name, False) or name in access.writes)
                    for name in [*resident, *missing]
                    if name not in evicted and name not in dead
                )
                reached[key] = min(total, reached.get(key, total))
        best = reached
    return min(best.values())


def evictions(
    iteration: Iteration, capacity: int, access: Access, resident: Mapping[str, bool]
) -> Iterator[tuple[str, ...]]:
    """Yield every set of buffers whose eviction makes an access possible.

    Sets that contain a smaller such set are left out.
    """
    sizes = iteration.sizes
    others = [name for name in resident if name not in access.buffers]
    excess = iteration.working_set(access) - capacity
    excess += sum(sizes[name] for name in others)
    for count in range(len(others) + 1):
        for chosen in combinations(others, count):
            freed = sum(sizes[name] for name in chosen)
            least = min((sizes[name] for name in chosen), default=0)
            if freed >= excess and (not chosen or freed - least < excess):
                yield chosen


def random_iteration(
    rng: np.random.Generator, equal: bool, written: bool
) -> tuple[Iteration, int]:
    """Draw accesses of 4 to 8 buffers, and a capacity that is too small for all.

    Args:
      rng: Random numbers.
      equal: Whether all buffers have one byte.
      written: Whether accesses write.
    """
    count = int(rng.integers(4, 9))
    names = [f"b{n}" for n in range(count)]
    sizes = {name: 1 if equal else int(rng.integers(1, 9)) for name in names}
    accesses = []
    for number in range(int(rng.integers(6, 13))):
        used = list(rng.choice(names, size=int(rng.integers(1, 4)), replace=False))
        writes = [name for name in used if written and rng.random() < 0.4]
        reads = [name for name in used if name not in writes or rng.random() < 0.7]
        accesses.append(Access(f"a{number}", tuple(reads), tuple(writes)))
    iteration = Iteration(sizes, accesses)
    used_bytes = sum(
        sizes[name] for name in {name for each in accesses for name in each.buffers}
    )
    least = iteration.least
    return iteration, least + int(rng.integers(0, max(1, (used_bytes - least) // 2)))


CASES: dict[str, tuple[bool, bool, Cost]] = {
    "equal buffers, only read: fetches": (True, False, fetches),
    "equal buffers: fetches": (True, True, fetches),
    "equal buffers: bytes": (True, True, copied_bytes),
    "unequal buffers: bytes": (False, True, copied_bytes),
}


def rows(draws: int, seed: int) -> Iterator[Row]:
    """Yield, by case and rule, how often a plan is the best, and its relative cost."""
    for case, (equal, written, cost) in CASES.items():
        rng = np.random.default_rng(seed)
        ratios: dict[str, list[float]] = {rule: [] for rule in RULES}
        for _ in range(draws):
            iteration, capacity = random_iteration(rng, equal, written)
            least = least_cost(iteration, capacity, ROUNDS, cost)
            for rule, costs in ratios.items():
                own = planned_cost(iteration, capacity, rule, ROUNDS, cost)
                costs.append(own / least if least else 1.0 + own)
        yield from (summary(case, rule, costs) for rule, costs in ratios.items())


def summary(case: str, rule: str, ratios: Sequence[float]) -> dict[str, Any]:
    """Return a row of costs relative to the least cost."""
    return {
        "case": case,
        "method": rule,
        "draws": len(ratios),
        "best": sum(ratio == 1 for ratio in ratios),
        "mean_ratio": float(np.mean(ratios)),
        "worst_ratio": float(np.max(ratios)),
    }
