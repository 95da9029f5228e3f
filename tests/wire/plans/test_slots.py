"""Tensors in flight have different slots, and no slot is without need."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.wire.plans.pipeline_facts import in_flight
from dml.wire.plans.pipelines import SCHEDULES, make
from dml.wire.plans.slots import assign_slots, instructions, slot_count

few = settings(derandomize=True, deadline=None, max_examples=60, database=None)
INTERVALS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=20)


@given(INTERVALS, st.sampled_from(["any", "first in, first out", "last in, first out"]))
@few
def test_overlapping_intervals_have_different_slots_and_none_is_too_many(lives, order):
    begin = np.array([first for first, _ in lives], int)
    end = np.array([first + length for first, length in lives], int)
    if order != "any":  # queues and stacks have ways of their own
        begin = np.sort(begin)
        end = np.maximum(np.sort(end), begin + 1)
        if order == "last in, first out":
            end = end[::-1] + begin.max(initial=0)
    slot = assign_slots(begin, end)
    peak = 0
    for tick in range(int(end.max(initial=0))):
        now = slot[(begin <= tick) & (tick < end)]
        assert len(set(now.tolist())) == len(now)
        peak = max(peak, len(now))
    assert set(slot.tolist()) == set(range(peak))


@given(INTERVALS)
@few
def test_queues_take_slots_in_turn(lives):
    begin = np.cumsum([first + 1 for first, _ in lives]).astype(int)
    end = begin + np.cumsum([length for _, length in lives]).astype(int)
    slot = assign_slots(begin, end)
    assert slot.tolist() == [n % slot_count(slot) for n in range(len(slot))]


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 6),
    st.integers(1, 10),
    st.integers(1, 3),
    st.integers(1, 3),
)
@few
def test_every_stage_reads_what_was_put_there(name, k, m, rounds, pieces):
    rounds = rounds if name == "interleaved" else 1
    schedule = make(name, k, m, rounds, pieces)
    played(schedule, instructions(schedule))


@pytest.mark.parametrize("table", ["activations", "saved", "gradients"])
def test_a_wrong_place_is_seen(table):
    schedule = make("1f1b", 3, 6)
    right = instructions(schedule)
    wrong = getattr(right, table).copy()
    at = tuple(np.argwhere(wrong >= 0)[-1])
    wrong[at] += 1
    with pytest.raises(AssertionError):
        played(schedule, right._replace(**{table: wrong}))


def played(schedule, table):
    """Play it on slots that remember what was put there last."""
    k, last = schedule.stages, schedule.stages * schedule.rounds - 1
    memory = {}
    for tick in range(len(schedule.piece)):
        now = [type(table)(*row) for row in zip(*(t[tick] for t in table), strict=True)]
        sent = {}
        for stage, row in enumerate(now):
            piece, part = row.piece, row.round * k + stage
            mine = row.microbatch, part
            reads = {
                "activations": piece == 0 and part > 0,
                "saved": piece >= 0,
                "gradients": piece == 1 and part < last,
            }
            if piece == 0:
                put(memory, ("saved", stage), row.saved, mine)
            for kind, needed in reads.items():
                slot = getattr(row, kind)
                read(memory, (kind, stage), slot, mine if needed else None)
            if piece == 0 and part < last:
                sent["activations", (stage + 1) % k] = (row.microbatch, part + 1)
            if piece == schedule.pieces and part > 0:
                sent["gradients", (stage - 1) % k] = (row.microbatch, part - 1)
        for stage, row in enumerate(now):
            for kind in ("activations", "gradients"):
                slot, what = getattr(row, f"recv_{kind}"), sent.get((kind, stage))
                put(memory, (kind, stage), slot, what)
    for kind in ("activations", "saved", "gradients"):
        used = [slot for (each, _), slot in memory if each == kind]
        assert max(used, default=-1) == slot_count(getattr(table, kind)) - 1


def put(memory, where, slot, what):
    assert (slot >= 0) == (what is not None)
    if what is not None:
        memory[where, slot] = what


def read(memory, where, slot, what):
    assert (slot >= 0) == (what is not None)
    if what is not None:
        assert memory.get((where, slot)) == what


@pytest.mark.parametrize(
    "name, rounds", [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)]
)
def test_there_are_as_many_slots_as_microbatches_in_flight(name, rounds):
    schedule = make(name, 4, 8, rounds)
    assert slot_count(instructions(schedule).saved) == in_flight(schedule).max()
