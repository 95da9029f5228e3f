"""Plans of moves: possible for any speed of the copy lane, and optimal where known."""

from itertools import islice

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.offloading.offload import (
    DROP,
    FETCH,
    RULES,
    WRITE_BACK,
    Access,
    Iteration,
    demand,
    moved,
    victims,
)
from dml.wire.plans.offloading.prefetching import plans, timeline

ITERATIONS = 4


def random_iteration(seed):
    """Return accesses of buffers of several sizes, and a capacity."""
    rng = np.random.default_rng(seed)
    sizes = {f"b{n}": int(rng.integers(1, 9)) for n in range(int(rng.integers(3, 12)))}
    accesses = []
    for number in range(int(rng.integers(4, 16))):
        used = list(
            rng.choice(list(sizes), size=int(rng.integers(1, 4)), replace=False)
        )
        writes = [name for name in used if rng.random() < 0.4]
        reads = [name for name in used if name not in writes or rng.random() < 0.6]
        workspace = int(rng.integers(0, 3))
        accesses.append(Access(f"a{number}", tuple(reads), tuple(writes), workspace, 1))
    iteration = Iteration(sizes, accesses)
    extra = max(1, iteration.most - iteration.least)
    return iteration, iteration.least + int(rng.integers(0, extra))


def execute(iteration, capacity, planned, early):
    """Execute a plan on numbers; moves run as early or as late as the plan allows.

    A buffer's number is that of the last access that wrote it. Returns what each access
    reads.
    """
    device, host, queue, seen = {}, dict.fromkeys(iteration.sizes, -1), [], []
    used = 0
    number = 0

    def run(move):
        nonlocal used
        name, size = move.buffer, iteration.sizes[move.buffer]
        if move.kind == FETCH:
            device[name] = host[name]
            used += size
        else:
            value = device.pop(name)
            used -= size
            if move.kind == WRITE_BACK:
                host[name] = value
            assert host[name] == value  # also of DROP
        assert used <= capacity

    for moves in planned:
        moves = list(moves)
        for access in iteration.accesses:
            while moves and moves[0].slot <= number:
                queue.append(moves.pop(0))
            while queue and (early or queue[0].deadline <= number):
                run(queue.pop(0))
            new = [name for name in access.writes if name not in device]
            used += access.workspace + sum(iteration.sizes[name] for name in new)
            assert used <= capacity
            seen.append([device[name] for name in access.reads])
            device |= dict.fromkeys(access.writes, number)
            used -= access.workspace
            for name in access.buffers:
                if is_dead(iteration, name, number):
                    del device[name]
                    used -= iteration.sizes[name]
            number += 1
    return seen


def is_dead(iteration, name, number):
    """Return whether a buffer is written before it is read again."""
    length = len(iteration.accesses)
    for later in range(number + 1, number + length + 1):
        access = iteration.accesses[later % length]
        if name in access.buffers:
            return name not in access.reads
    raise AssertionError(name)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("prefetch", (False, True))
@pytest.mark.parametrize("early", (False, True))
def test_a_plan_fits_and_keeps_all_values_for_any_speed_of_the_lane(
    rule, prefetch, early
):
    for seed in range(40):
        iteration, capacity = random_iteration(seed)
        planned = plans(iteration, capacity, rule, prefetch=prefetch)
        planned = list(islice(planned, ITERATIONS))
        all_fits = islice(plans(iteration, 10**6), ITERATIONS)
        expected = execute(iteration, 10**6, all_fits, early=False)
        assert execute(iteration, capacity, planned, early) == expected


def test_a_plan_continues_from_the_buffers_in_memory():
    iteration = cyclic(3, 1)
    resident = {"b1": False, "b2": True}
    first = next(plans(iteration, 2, resident=resident))
    # b2 was changed elsewhere: it is written back
    assert {(move.buffer, move.kind) for move in first[:2]} == {
        ("b2", WRITE_BACK),
        ("b0", FETCH),
    }


def cyclic(buffers, size, seconds=1.0):
    names = [f"b{n}" for n in range(buffers)]
    accesses = [Access(name, (name,), (), 0, seconds) for name in names]
    return Iteration(dict.fromkeys(names, size), accesses)


@pytest.mark.parametrize("capacity", (2, 4, 7))
def test_lru_always_misses_in_a_cycle_and_belady_has_the_known_number(capacity):
    buffers = 8
    for rule, expected in (
        ("lru", buffers * (buffers - 1)),
        ("belady", buffers * (buffers - capacity)),
    ):
        later = islice(plans(cyclic(buffers, 1), capacity, rule), 8, 8 + buffers - 1)
        assert sum(move.kind == FETCH for moves in later for move in moves) == expected


def test_read_buffers_are_dropped_and_dead_ones_are_not_moved():
    accesses = [
        Access("forward", ("p",), ("saved",)),
        Access("other", ("q",), ()),
        Access("backward", ("saved", "p"), ()),
    ]
    iteration = Iteration({"p": 2, "q": 2, "saved": 1}, accesses)
    moves = [move for moves in islice(plans(iteration, 4), 1, 4) for move in moves]
    assert moves and "saved" not in {move.buffer for move in moves}
    assert {move.kind for move in moves} == {FETCH, DROP}


def test_a_large_victim_spares_the_earlier_ones():
    sizes = {"a": 1, "b": 2, "c": 8}
    assert victims(["a", "b", "c"], sizes, 0) == []
    assert victims(["a", "b", "c"], sizes, 3) == ["a", "b"]
    assert victims(["a", "b", "c"], sizes, 8) == ["c"]
    assert victims(["a", "b", "c"], sizes, 10) == ["b", "c"]


@pytest.mark.parametrize("bandwidth", (0.5, 1.0, 4.0))
def test_time_is_the_larger_of_compute_and_transfer_or_their_sum(bandwidth):
    iteration, steady = cyclic(6, 1.0), 10
    for prefetch in (False, True):
        own = {"prefetch": prefetch, "reserve": int(prefetch)}
        planned = list(islice(plans(iteration, 3, **own), 41))
        ends = timeline(iteration, planned, bandwidth)
        seconds = ends[-1] - ends[steady]
        compute = 6.0 * (40 - steady)
        fetches = 6 * (6 - 2 if prefetch else 6 - 3) / 5  # of an iteration
        assert sum(map(moved, planned[steady + 1 :])) == fetches * (40 - steady)
        transfer = sum(moved(moves) for moves in planned[steady + 1 :]) / bandwidth
        if prefetch:
            # within a move and an access at both ends of the period
            assert seconds == pytest.approx(
                max(compute, transfer), abs=2 + 2 / bandwidth
            )
        else:
            assert seconds == pytest.approx(compute + transfer)


def test_less_memory_never_means_fewer_moves_of_equal_buffers():
    counts = []
    for capacity in range(2, 9):
        steps = islice(demand(cyclic(8, 1), capacity), 80)
        counts.append(sum(len(step.moves) for step in steps))
    assert counts == sorted(counts, reverse=True) and counts[-1] == 8


def test_memory_smaller_than_an_operation_is_refused_with_the_least():
    iteration = Iteration({"a": 10**6}, [Access("big", ("a",), (), 10**6)])
    with pytest.raises(BadInput, match="'big'.* 2,000,000 bytes.*--device_mb=2.000"):
        next(plans(iteration, 10**6))
    assert iteration.least == 2 * 10**6
